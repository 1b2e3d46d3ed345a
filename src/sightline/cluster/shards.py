"""Results of stretches of lines, kept beside the output until it is whole: what is there is not computed again.

A shard appears under its name when it is complete. The name says which stretch it is and of what: of these lines, this
model and these settings; whatever is changed finds no shard of before.
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

from sightline.errors import writing

ReadRow = Callable[[Mapping[str, Any]], Any]


class ResultShards:
    """A folder of them, or none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def kept(
        self, number: int, of: Any, read: ReadRow, compute: "Callable[[], Future[list[Any]]]"
    ) -> "Future[list[Any]]":
        """The results of stretch `number`, which were written, or are computed and then written.

        Args:
            number: from 0.
            of: all that they depend on, as JSON takes it.
            read: a result from what `dataclasses.asdict` has made of it.
            compute: begins to.
        """
        if self.folder is None:
            return compute()
        digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:24]
        path, found = self.folder / f"{number:08d}-{digest}.jsonl", Future[list[Any]]()
        if path.is_file():
            with path.open(encoding="utf-8") as file:
                found.set_result([read(json.loads(line)) for line in file])
        else:
            compute().add_done_callback(lambda done: _write_and_resolve(path, done, found))
        return found

    def remove(self) -> None:
        """All of them."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _write_and_resolve(path: Path, done: "Future[list[Any]]", found: "Future[list[Any]]") -> None:
    try:
        _write(path, rows := done.result())
    except BaseException as error:
        found.set_exception(error)
    else:
        found.set_result(rows)


def _write(path: Path, rows: Sequence[Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        draft.replace(path)
