"""Translation memories among the files of a training: their pairs are learnt, whatever the rest is."""

from dataclasses import replace

from sightline.localisation.memory import as_tsv
from sightline.tasks.job import TrainRequest, say


def with_memories(request: TrainRequest) -> TrainRequest:
    """The request with pairs, in files of the cache, for the memories among its files and in its folders."""
    files = {}
    for name in ("train", "valid"):
        paths = getattr(request, name)
        files[name], report = as_tsv(paths, request.languages)
        if report.units:
            say(request, f"--{name} {' '.join(paths)}: {report}")
    return replace(request, **files)
