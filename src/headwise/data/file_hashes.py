"""What files hold, as a hash, and reading that fails if they no longer hold it.

A corpus is read several times: to hash it, to train a tokenizer, to tokenise it. What is kept in the cache under the
hash of the first reading must have been made of the same bytes, so every later reading hashes the lines it uses.
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
    """Reads files as `read_raw_lines` does, and hashes and counts what it reads."""

    def __init__(self) -> None:
        self._files: list[Any] = []  # a hash for each, in the order in which they were opened
        self.lines: list[int] = []
        self.size = 0  # bytes of all

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
    """What files held when they were hashed."""

    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    lines: tuple[int, ...]
    size: int  # bytes of all, decompressed

    def read(self, reader: Callable[[RawLines], Iterator[Item]]) -> Iterator[Item]:
        """What `reader` makes of the lines of these files, opened in this order.

        Raises:
            UserError: a file holds something else now, which is known when it has been read; or what `reader` raises.
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
    """Read files once for their hashes."""
    seen = HashedLines()
    for path in paths:
        for _ in seen(path):
            pass
    return HashedFiles(tuple(paths), seen.hashes, tuple(seen.lines), seen.size)


@dataclass(frozen=True)
class HashedCorpus(HashedFiles):
    """What the files of a corpus held; aligned files had as many lines each."""

    key: str  # a hash of them, and of how they are read


def hash_corpora(corpora: Sequence[Corpus]) -> list[HashedCorpus]:
    """Read every corpus once for its hash.

    Raises:
        UserError: a file cannot be read, or two files are misaligned.
    """
    return [_hash_corpus(corpus) for corpus in corpora]


def _hash_corpus(corpus: Corpus) -> HashedCorpus:
    found = hash_files(corpus.paths)
    if found.lines[0] != found.lines[-1]:
        raise misaligned(corpus.paths[0], found.lines[0], corpus.paths[-1], found.lines[-1])
    return HashedCorpus(**vars(found), key=short_hash(pair_reader(corpus).__name__, found.hashes))


def short_hash(*parts: Any) -> str:
    """A short name for anything JSON can hold."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
