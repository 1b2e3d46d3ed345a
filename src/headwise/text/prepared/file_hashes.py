"""Hashes of input files, and reading that fails if a file has changed since it was hashed.

A corpus is read several times: to hash it, to train a tokenizer, to tokenise it. Cached results are stored under the
hash of the first reading, so every later reading checks that it sees the same bytes. A change of bytes that were read
before, be it into a buffer whose size depends on the version of Python, shows in the file's size or time at its end.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, RawLines, file_lines, misaligned, open_binary, pair_reader
from headwise.text.files.sources import changed_file_error

Item = TypeVar("Item")
SHARD = 1 << 20  # lines between two recorded hashes of a file's beginning; a multiple of `prepared.CHUNK`


class HashedLines:
    """Like `read_raw_lines`; also hashes the files and counts lines and bytes.

    `known` are the `marks` of an earlier reading; another one is an error where it is found.
    """

    def __init__(self, known: "HashedFiles | None" = None) -> None:
        self._known = known
        self.marks: list[list[str]] = []  # of each file, the hashes of its first SHARD, 2 SHARD... lines
        self._files: list[Any] = []  # hash objects, in the order in which the files were opened
        self.lines: list[int] = []
        self.size = 0  # bytes of all files
        self.was_written = False  # a file with `known` marks was written to while it was open

    def __call__(self, path: str) -> Iterator[bytes]:
        sha, number, marks = hashlib.sha256(), len(self._files), list[str]()
        self._files.append(sha)
        self.lines.append(0)
        self.marks.append(marks)
        with open_binary(path) as stream:
            opened = _size_and_time(stream.fileno()) if self._known else None
            for line in file_lines(stream.readline, path):
                sha.update(line)
                self.lines[number] += 1
                self.size += len(line)
                if self.lines[number] % SHARD == 0:
                    marks.append(sha.hexdigest())
                    if self._known and (*marks,) != self._known.marks[number][: len(marks)]:
                        raise changed_file_error(self._known.paths)
                yield line
            self.was_written |= opened is not None and _size_and_time(stream.fileno()) != opened

    @property
    def hashes(self) -> tuple[str, ...]:
        """SHA-256 of each file, decompressed."""
        return tuple(sha.hexdigest() for sha in self._files)


@dataclass(frozen=True)
class HashedFiles:
    """Files, with the hashes of their content."""

    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    lines: tuple[int, ...]
    size: int  # bytes of all files, decompressed
    marks: tuple[tuple[str, ...], ...]  # of each file, the hashes of its first SHARD, 2 SHARD... lines

    def read(self, reader: Callable[[RawLines], Iterator[Item]]) -> Iterator[Item]:
        """The items that `reader` reads from these files, which it opens in this order.

        Raises:
            UserError: a file has changed since it was hashed, raised at the next mark, before the item of that line,
                or at its end; or an error of `reader`. A file that was replaced after it was opened has not changed.
        """
        seen = HashedLines(self)
        try:
            yield from reader(seen)
        except UserError:
            if self._is_current():
                raise
            raise changed_file_error(self.paths) from None
        if seen.hashes != self.hashes or (seen.was_written and not self._is_current()):
            raise changed_file_error(self.paths)

    def _is_current(self) -> bool:
        try:
            return hash_files(self.paths).hashes == self.hashes
        except UserError:
            return False


def _size_and_time(descriptor: int) -> tuple[int, int]:
    """Size and time of the last change of an open file."""
    stat = os.fstat(descriptor)
    return stat.st_size, stat.st_mtime_ns


def hash_files(paths: Sequence[str]) -> HashedFiles:
    """Read and hash files."""
    seen = HashedLines()
    for path in paths:
        for _ in seen(path):
            pass
    return HashedFiles(tuple(paths), seen.hashes, tuple(seen.lines), seen.size, tuple(map(tuple, seen.marks)))


@dataclass(frozen=True)
class HashedCorpus(HashedFiles):
    """A corpus, hashed; aligned files have the same number of lines."""

    key: str  # hash of the files and of the function that reads them


def hash_corpora(corpora: Sequence[Corpus]) -> list[HashedCorpus]:
    """Read and hash every corpus.

    Raises:
        UserError: a file cannot be read, or two files are misaligned.
    """
    return [_hash_corpus(corpus) for corpus in corpora]


def _hash_corpus(corpus: Corpus) -> HashedCorpus:
    hashed = hash_files(corpus.paths)
    if hashed.lines[0] != hashed.lines[-1]:
        raise misaligned(corpus.paths[0], hashed.lines[0], corpus.paths[-1], hashed.lines[-1])
    return HashedCorpus(**vars(hashed), key=short_hash(pair_reader(corpus).__name__, hashed.hashes))


def short_hash(*parts: Any) -> str:
    """A hash of JSON values, for file names: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
