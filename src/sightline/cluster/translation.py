"""A model whose lines a cluster translates and scores; what else it is asked it does here.

Chunks of lines go to processes that have loaded the model from its folder, which they must find where it is here. Text
and order are those of one process: chunks are cut as `translate_lines` and `score` cut them there.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from sightline.cluster.actors import ClusterExecutor, MachineUnusable
from sightline.cluster.shards import ReadRow, ResultShards
from sightline.data.processes import in_order
from sightline.decode.translator import Translation
from sightline.errors import UserError
from sightline.evaluate.score import SCORED_TOGETHER, PairScore
from sightline.models.load import load
from sightline.version import __version__

CHUNKS_PER_PROCESS = 4  # chunks on their way, done and not asked for yet among them
REPORT_SECONDS = 30.0  # seconds


@dataclass(frozen=True)
class ModelLocation:
    """What a process must know to load the model."""

    paths: tuple[str, ...]  # of one model, or of an ensemble
    device: str
    dtype: str
    languages: tuple[str, str] | None = None  # of a model of many

    def stamp(self) -> list[Any]:
        """What tells the model from any other, and from what it may be tomorrow."""
        files = [file for path in self.paths for file in sorted(Path(path).glob("*")) if file.is_file()]
        return [asdict(self), [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files]]


class ClusterModel:
    """What `sightline.load` has made, with its verbs for many lines spread over a cluster."""

    def __init__(self, model: Any, loading: ModelLocation, actors: ClusterExecutor, shards: ResultShards) -> None:
        self._model, self._loading, self._actors, self._shards = model, loading, actors, shards
        self._stamp = [__version__, *loading.stamp()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def translate(self, texts: Sequence[str], **settings: Any) -> list[Translation]:
        """As of the model, chunk by chunk."""
        return list(self.translate_lines(texts, **settings))

    def translate_lines(
        self, lines: Iterable[str], prefix: str = "", chunk_lines: int = 1000, workers: int = 0, **settings: Any
    ) -> Iterator[Translation]:
        """As of the model; the number of `workers` is the cluster's."""
        stream = iter(lines)
        chunks = ((chunk,) for chunk in iter(lambda: list(islice(stream, chunk_lines)), []))
        return self._spread("translate", chunks, {"prefix": prefix, **settings}, _read_translation)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """As of the model."""
        starts = range(0, len(sources), SCORED_TOGETHER)
        chunks = (tuple(side[start : start + SCORED_TOGETHER] for side in (sources, targets)) for start in starts)
        return list(self._spread("score", chunks, {}, lambda row: PairScore(**row)))

    def _spread(
        self, verb: str, chunks: Iterable[tuple[Any, ...]], settings: Mapping[str, Any], read: ReadRow
    ) -> Iterator[Any]:
        def submit(numbered: tuple[int, tuple[Any, ...]]) -> Any:
            number, columns = numbered
            of = [self._stamp, verb, columns, settings]
            return self._shards.kept(
                number, of, read, lambda: self._actors.submit(run_on_worker, self._loading, verb, columns, settings)
            )

        return with_progress(
            in_order(enumerate(chunks), submit, lambda: CHUNKS_PER_PROCESS * max(self._actors.size, 1)), self._actors
        )


def run_on_worker(loading: ModelLocation, verb: str, columns: Sequence[Any], settings: Mapping[str, Any]) -> list[Any]:
    """In a process of the cluster; `MachineUnusable` if the model cannot be loaded there."""
    try:
        model = _load(loading)
    except (UserError, OSError) as error:
        raise MachineUnusable(str(error)) from error
    return list(getattr(model, verb)(*columns, **settings))


@cache
def _load(loading: ModelLocation) -> Any:
    first, *others = loading.paths
    model: Any = load([first, *others] if others else first, loading.device, loading.dtype)
    if loading.languages:
        source, target = loading.languages
        model = replace(model, source_language=source, target_language=target)
    return model


def _read_translation(row: Mapping[str, Any]) -> Translation:
    return Translation(**{**row, "alternatives": tuple(map(_read_translation, row["alternatives"]))})


def with_progress(results: Iterator[Any], actors: ClusterExecutor) -> Iterator[Any]:
    """The same; where no bar shows how far it is, a line on standard error says so from time to time."""
    said = time.monotonic()
    for count, result in enumerate(results, 1):
        yield result
        if time.monotonic() - said > REPORT_SECONDS and not sys.stderr.isatty():
            said = time.monotonic()
            print(f"sightline: {count:,} lines by {actors.size} processes of the cluster", file=sys.stderr)
