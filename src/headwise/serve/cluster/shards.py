"""Results of chunks of lines, stored beside the output until it is complete, so that they are not computed again.

A shard appears under its name when it is complete. The name has the chunk number and a digest of its lines, the model
and the settings; any change leads to new shards.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwise.errors import writing

ReadRow = Callable[[Mapping[str, Any]], Any]


class ResultShards:
    """A folder of shards, or none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def load_or_compute(
        self, number: int, key: Any, read: ReadRow, compute: "Callable[[], Future[list[Any]]]"
    ) -> "Future[list[Any]]":
        """The results of chunk `number`: stored ones, or computed and then stored.

        Args:
            number: from 0.
            key: everything that the results depend on, as JSON.
            read: converts a dictionary of `dataclasses.asdict` to a result.
            compute: starts the computation.
        """
        if self.folder is None:
            return compute()
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
        path, results = self.folder / f"{number:08d}-{digest}.jsonl", Future[list[Any]]()
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                results.set_result([read(json.loads(line)) for line in file])
        else:
            compute().add_done_callback(lambda done: _write_and_resolve(path, done, results))
        return results

    def remove(self) -> None:
        """Delete all shards."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _write_and_resolve(path: Path, done: "Future[list[Any]]", results: "Future[list[Any]]") -> None:
    try:
        _write(path, rows := done.result())
    except BaseException as error:
        results.set_exception(error)
    else:
        results.set_result(rows)


def _write(path: Path, rows: Sequence[Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        draft.replace(path)
