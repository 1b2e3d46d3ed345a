"""A model that translates and scores on a cluster; its other methods run locally.

Chunks of lines are sent to workers that load the same files as here (`headwise.serve.cluster.folders`). Texts and their
order are the same as in one process, because chunks are cut as in `translate_lines` and `score`.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from headwise.errors import UserError
from headwise.evaluate.score import SCORED_TOGETHER, PairScore
from headwise.models.load import load
from headwise.runtime.search.translator import CHUNK_LINES, Translation
from headwise.serve.cluster.actors import ClusterExecutor, MachineUnusable
from headwise.serve.cluster.folders import ClusterFolder
from headwise.serve.cluster.shards import ReadRow, ResultShards
from headwise.text.files.sources import count_of
from headwise.text.prepared.processes import ordered_results
from headwise.version import __version__

CHUNKS_PER_PROCESS = 4  # chunks in flight, including finished ones that are not yet consumed
REPORT_SECONDS = 30.0  # seconds


@dataclass(frozen=True)
class ModelLocation:
    """The folders, device, precision and languages with which a worker loads the model."""

    folders: tuple[ClusterFolder, ...]  # one model or an ensemble
    device: str
    dtype: str
    languages: tuple[str, str] | None = None  # of a multilingual model

    def stamp(self) -> list[Any]:
        """Identifies this version of the model."""
        return [[[one.path, one.files] for one in self.folders], self.device, self.dtype, self.languages]


class ClusterModel:
    """A loaded model whose methods for many lines run on a cluster."""

    def __init__(self, model: Any, location: ModelLocation, actors: ClusterExecutor, shards: ResultShards) -> None:
        self._model, self._location, self._actors, self._shards = model, location, actors, shards
        self._stamp = [__version__, *location.stamp()]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def translate(self, texts: Sequence[str], **settings: Any) -> list[Translation]:
        """Like the method of the model, chunk by chunk."""
        return list(self.translate_lines(texts, **settings))

    def translate_lines(
        self, lines: Iterable[str], prefix: str = "", chunk_lines: int = CHUNK_LINES, workers: int = 0, **settings: Any
    ) -> Iterator[Translation]:
        """Like the method of the model; `workers` is determined by the cluster."""
        stream = iter(lines)
        chunks = ((chunk,) for chunk in iter(lambda: list(islice(stream, chunk_lines)), []))
        return self._spread("translate", chunks, {"prefix": prefix, **settings}, _read_translation)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """Like the method of the model."""
        starts = range(0, len(sources), SCORED_TOGETHER)
        chunks = (tuple(side[start : start + SCORED_TOGETHER] for side in (sources, targets)) for start in starts)
        return list(self._spread("score", chunks, {}, lambda row: PairScore(**row)))

    def _spread(
        self, method: str, chunks: Iterable[tuple[Any, ...]], settings: Mapping[str, Any], read: ReadRow
    ) -> Iterator[Any]:
        def submit(numbered: tuple[int, tuple[Any, ...]]) -> Any:
            number, columns = numbered
            key = [self._stamp, method, columns, settings]
            return self._shards.load_or_compute(
                number, key, read, lambda: self._actors.submit(run_on_worker, self._location, method, columns, settings)
            )

        return with_progress(
            ordered_results(enumerate(chunks), submit, lambda: CHUNKS_PER_PROCESS * max(self._actors.size, 1)),
            self._actors,
        )


def run_on_worker(
    location: ModelLocation, method: str, columns: Sequence[Any], settings: Mapping[str, Any]
) -> list[Any]:
    """Run a method in a worker; `MachineUnusable` if the model cannot be loaded there."""
    try:
        model = _load(location)
    except (UserError, OSError) as error:
        raise MachineUnusable(str(error)) from error
    return list(getattr(model, method)(*columns, **settings))


@cache
def _load(location: ModelLocation) -> Any:
    first, *others = (folder.on_this_machine() for folder in location.folders)
    model: Any = load([first, *others] if others else first, location.device, location.dtype)
    languages = location.languages or ("", "")
    return model.between(*languages, complete=False) if any(languages) else model


def _read_translation(row: Mapping[str, Any]) -> Translation:
    return Translation(**{**row, "alternatives": tuple(map(_read_translation, row["alternatives"]))})


def with_progress(results: Iterator[Any], actors: ClusterExecutor) -> Iterator[Any]:
    """The same results, with progress on standard error at intervals if it is not a terminal."""
    reported = time.monotonic()
    for count, result in enumerate(results, 1):
        yield result
        if time.monotonic() - reported > REPORT_SECONDS and not sys.stderr.isatty():
            reported = time.monotonic()
            print(f"headwise: {count_of(count, 'line')} done on {count_of(actors.size, 'worker')}", file=sys.stderr)
