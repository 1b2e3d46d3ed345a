"""Hashes of input files, and reading that fails if a file has changed since it was hashed.

A corpus is read several times: to hash it, to train a tokenizer, to tokenise it. Cached results are stored under the
hash of the first reading, so every later reading checks that it sees the same bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headwise.data.corpus import Corpus, RawLines, misaligned, pair_reader, read_raw_lines
from headwise.data.sources import changed_file_error
from headwise.errors import UserError

Item = TypeVar("Item")


class HashedLines:
    """Like `read_raw_lines`; also hashes the files and counts lines and bytes."""

    def __init__(self) -> None:
        self._files: list[Any] = []  # hash objects, in the order in which the files were opened
        self.lines: list[int] = []
        self.size = 0  # bytes of all files

    def __call__(self, path: str) -> Iterator[bytes]:
        sha, number = hashlib.sha256(), len(self._files)
        self._files.append(sha)
        self.lines.append(0)
        for line in read_raw_lines(path):
            sha.update(line)
            self.lines[number] += 1
            self.size += len(line)
            yield line

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

    def read(self, reader: Callable[[RawLines], Iterator[Item]]) -> Iterator[Item]:
        """The items that `reader` reads from these files, which it opens in this order.

        Raises:
            UserError: a file has changed since it was hashed, raised at its end; or an error of `reader`.
        """
        seen = HashedLines()
        try:
            yield from reader(seen)
        except UserError:
            if self._is_current():
                raise
            raise changed_file_error(self.paths) from None
        if seen.hashes != self.hashes:
            raise changed_file_error(self.paths)

    def _is_current(self) -> bool:
        try:
            return hash_files(self.paths).hashes == self.hashes
        except UserError:
            return False


def hash_files(paths: Sequence[str]) -> HashedFiles:
    """Read and hash files."""
    seen = HashedLines()
    for path in paths:
        for _ in seen(path):
            pass
    return HashedFiles(tuple(paths), seen.hashes, tuple(seen.lines), seen.size)


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
