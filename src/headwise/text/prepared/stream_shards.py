"""Shards: files of sentence pairs that are read during training, and never copied.

`stream:PATTERN` names them: `.tsv` and `.jsonl` as in `corpus.py`, and `.tar` in the format of WebDataset
(https://github.com/webdataset/webdataset): files with the same name up to the first dot are a record. The pair of a
record is in KEY.src and KEY.tgt, or in KEY.json as `{"src": "...", "tgt": "..."}`; other files of it are ignored. Each
shard may be gzip-compressed. A shard may be empty.
"""

import hashlib
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import UserError
from headwise.text.files.corpus import LONGEST_LINE, json_object, open_binary, read_jsonl, read_tsv
from headwise.text.files.sources import STREAM_PREFIX, Pair, changed_file_error, text_field, unreadable
from headwise.text.prepared.file_hashes import short_hash

PROBE = 1024  # bytes of each end of a shard that tell whether it has changed; a gzip file ends with its checksum
FIELDS = ("src", "tgt", "json")  # extensions of the files of a record that are read


@dataclass(frozen=True)
class ShardFile:
    """A shard, as it was when training began."""

    path: str
    size: int  # bytes
    modified: int  # nanoseconds

    def read(self) -> Iterator[tuple[int, Pair]]:
        """The pairs, with the numbers of their records from 1 on.

        Raises:
            UserError: the shard is damaged or has changed; the message says after which record.
        """
        number = 0
        try:
            if shard_file(self.path) != self:
                raise changed_file_error([self.path])
            for number, pair in enumerate(_read(self.path), start=1):
                yield number, pair
        except UserError as error:
            raise UserError(f"{error} (after {number:,} records of this shard)") from None

    def ends(self) -> str:
        """A hash of the first and the last bytes."""
        try:
            with open(self.path, "rb") as file:
                first = file.read(PROBE)
                file.seek(max(0, self.size - PROBE))
                return hashlib.sha256(first + file.read(PROBE)).hexdigest()
        except OSError as error:
            raise unreadable(self.path, error) from error


@dataclass(frozen=True)
class Shards:
    """The shards of a stream, at least one."""

    files: Sequence[ShardFile]

    def __str__(self) -> str:
        more = len(self.files) - 1
        return self.files[0].path + (f" and {more:,} other shards" if more else "")

    @property
    def version(self) -> str:
        """The number of shards, and a hash of names, sizes and ends; the same on all machines."""
        parts = [[Path(one.path).name, one.size, one.ends()] for one in self.files]
        return f"{len(self.files):,} ({short_hash(parts)[:12]})"

    def order(self, seed: int, epoch: int, slices: int = 1) -> list[int]:
        """The units of an epoch, shuffled: numbers below `slices` times the number of shards."""
        return np.random.default_rng([seed, epoch]).permutation(slices * len(self.files)).tolist()

    def first_pairs(self, seed: int, n: int) -> Iterator[Pair]:
        """The first `n` pairs in the order of the first epoch; all if `n` is 0."""
        pairs = (pair for i in self.order(seed, 0) for _, pair in self.files[i].read())
        return islice(pairs, n or None)


def find_shards(arguments: Sequence[str]) -> Shards:
    """The shards that arguments of the form `stream:PATTERN` match, sorted within each.

    Raises:
        UserError: an argument has another form or matches no file, or a shard has another format.
    """
    paths = list[str]()
    for argument in arguments:
        if not argument.startswith(STREAM_PREFIX):
            raise UserError(f"--train {argument}: does not go with {STREAM_PREFIX} shards; name it {STREAM_PREFIX}FILE")
        found = sorted(glob(argument.removeprefix(STREAM_PREFIX), recursive=True))
        if not found:
            raise UserError(f"--train {argument}: matches no file; quote the pattern, as in 'stream:shards/*.tsv.gz'")
        paths += found
    for path in paths:
        if not path.removesuffix(".gz").endswith((".tsv", ".jsonl", ".tar")):
            raise UserError(f"{path}: a shard is .tsv, .jsonl or .tar, each also as .gz; convert it, or narrow --train")
    return Shards([*map(shard_file, paths)])


def shard_file(path: str) -> ShardFile:
    """A shard as it is now."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return ShardFile(path, status.st_size, status.st_mtime_ns)


def _read(path: str) -> Iterator[Pair]:
    stem = path.removesuffix(".gz")
    if stem.endswith(".tar"):
        return read_tar(path)
    return (read_jsonl if stem.endswith(".jsonl") else read_tsv)(path, allow_empty=True)


def read_tar(path: str) -> Iterator[Pair]:
    """The pairs of a shard in WebDataset's format."""
    for key, members in groupby(_members(path), key=lambda member: member[0]):
        fields = {extension: content for _, extension, content in members}
        location = f"{path}: record {key}"
        if "json" in fields:
            record = json_object(_text(fields["json"], location), location, '{"src": "...", "tgt": "..."}')
        else:
            record = {side: _text(fields[side], location) for side in ("src", "tgt") if side in fields}
        if not record:
            there = ", ".join(f".{extension}" for extension in fields)
            raise UserError(f"{location} has {there}; it needs .src and .tgt, or .json")
        yield text_field(record, "src", location), text_field(record, "tgt", location)


def _text(content: bytes, location: str) -> str:
    try:
        return content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{location} is not UTF-8 ({error.reason}); write the shard again") from None


def _members(path: str) -> Iterator[tuple[str, str, bytes]]:
    """Key, extension and content of every file in an archive; the content is empty unless it may be read."""
    with open_binary(path) as stream:
        block, name = stream.read(tarfile.BLOCKSIZE), ""  # the name of the next file, if it is not in its header
        while block.strip(b"\0"):
            try:
                member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                raise _damaged(path, str(error)) from None
            path_inside = name or member.name
            extension = path_inside.rpartition("/")[2].partition(".")[2]
            names = member.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)
            content = _content(stream, path, member, names or extension in FIELDS)
            name = _next_name(content, member.type) if names else ""
            if member.isfile():
                yield path_inside.removesuffix(f".{extension}"), extension, content
            if not (block := stream.read(tarfile.BLOCKSIZE)):
                raise _damaged(path, "it ends too early")


def _content(stream: Any, path: str, member: tarfile.TarInfo, is_read: bool) -> bytes:
    """The content of a member, or nothing after skipping it."""
    left, parts = -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, list[bytes]()
    if is_read and member.size > LONGEST_LINE:
        raise UserError(f"{path}: {member.name} is longer than {LONGEST_LINE >> 20} MiB; is it text?")
    while left > 0:
        part = stream.read(min(left, 1 << 20))
        if not part:
            raise _damaged(path, "it ends too early")
        left -= len(part)
        if is_read:
            parts.append(part)
    return b"".join(parts)[: member.size]


def _next_name(content: bytes, kind: bytes) -> str:
    """The name that a header of GNU tar or of POSIX ("25 path=...") gives to the next file; "" if it gives none."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return content.rstrip(b"\0").decode("utf-8", "surrogateescape")
    found = re.search(rb"(?:^|\n)\d+ path=([^\n]*)\n", content)
    return found[1].decode("utf-8", "surrogateescape") if found else ""


def _damaged(path: str, why: str) -> UserError:
    return UserError(f"{path}: the .tar is damaged ({why}); download or write it again")
