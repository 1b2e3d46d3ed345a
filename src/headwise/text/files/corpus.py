"""Read files of sentence pairs.

Everything streams, so memory does not grow with the corpus. Only a line feed ends a line: a text with U+2028, U+0085, a
form feed or a lone carriage return stays one line, and two aligned files stay aligned. Every problem with a file
becomes a `UserError` that names the file, the line and the fix. Dropping unsuitable pairs is in `prepared.py`, and
tokenization in `tokenizer.py`.
"""

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedIOBase
from itertools import zip_longest
from typing import IO, Any

from headwise.errors import UserError
from headwise.text.files.hugging_face import read_hugging_face
from headwise.text.files.sources import HF_PREFIX, STANDARD_INPUT, Pair, count_of, display_name, text_field, unreadable

RawLines = Callable[
    [str], Iterator[bytes]
]  # reads the lines of a file: `read_raw_lines` or a function with side effects

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True)
class Corpus:
    """One parallel corpus: two aligned text files, or one `.tsv`, `.jsonl`, `hf:` dataset or `-`.

    `-` is standard input holding tab-separated pairs. Every file may be gzip-compressed.
    """

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(map(display_name, self.paths))


@dataclass(frozen=True)
class PlainText(Corpus):
    """A file of plain text, possibly gzip-compressed; every line is read as a pair with itself."""


def plain_texts(paths: Sequence[str]) -> list[Corpus]:
    """One corpus for each file of plain text.

    >>> [corpus.paths for corpus in plain_texts(["mono.en", "mono.de.gz"])]
    [('mono.en',), ('mono.de.gz',)]
    """
    for path in paths:
        if stands_alone(path):
            raise UserError(f"{path}: expected plain text, one sentence per line; write each column into its own file")
    return [PlainText((path,)) for path in paths]


def parse_corpora(arguments: Sequence[str]) -> list[Corpus]:
    """Group a flat command-line list into corpora.

    `.tsv`, `.jsonl` (each also `.gz`), `hf:...` and `-` hold both languages; all other paths come as source and target.

    >>> [corpus.paths for corpus in parse_corpora(["a.en", "a.de", "more.tsv.gz"])]
    [('a.en', 'a.de'), ('more.tsv.gz',)]
    """
    corpora: list[Corpus] = []
    source: str | None = None
    for path in arguments:
        if stands_alone(path) and source is None:
            corpora.append(Corpus((path,)))
        elif stands_alone(path):
            break
        elif source is None:
            source = path
        else:
            corpora.append(Corpus((source, path)))
            source = None
    if source is not None:
        raise UserError(f"{source}: has no partner; give a source and a target file, or one .tsv or .jsonl file")
    return corpora


def stands_alone(path: str) -> bool:
    """Whether one path holds both languages."""
    stem = path.removesuffix(".gz")
    return path == STANDARD_INPUT or path.startswith(HF_PREFIX) or stem.endswith((".tsv", ".jsonl"))


def read_pairs(corpora: Sequence[Corpus]) -> Iterator[Pair]:
    """All pairs of all corpora, in order.

    Raises:
        UserError: a file is missing, malformed or not aligned; raised when it is read.
    """
    for corpus in corpora:
        yield from read_corpus(corpus)


def read_corpus(corpus: Corpus, raw: RawLines | None = None) -> Iterator[Pair]:
    """The pairs of one corpus; `raw` reads the lines of its files, by default `read_raw_lines`."""
    return pair_reader(corpus)(*corpus.paths, **({"raw": raw} if raw else {}))


def pair_reader(corpus: Corpus) -> Callable[..., Iterator[Pair]]:
    """The function that reads this corpus."""
    if isinstance(corpus, PlainText):
        return read_texts
    if len(corpus.paths) == 2:
        return read_aligned
    path = corpus.paths[0]
    if path.startswith(HF_PREFIX):
        return read_hugging_face
    return read_jsonl if path.removesuffix(".gz").endswith(".jsonl") else read_tsv


def read_aligned(src_path: str, tgt_path: str, raw: RawLines | None = None) -> Iterator[Pair]:
    """Pairs of two aligned files; `UserError` if their line counts differ."""
    src_count = tgt_count = 0
    sides = (read_lines(path, allow_empty=True, raw=raw) for path in (src_path, tgt_path))
    for src, tgt in zip_longest(*sides):
        src_count += src is not None
        tgt_count += tgt is not None
        if src is not None and tgt is not None:
            yield src, tgt
    if src_count != tgt_count:
        raise misaligned(src_path, src_count, tgt_path, tgt_count)
    if src_count == 0:
        raise empty(src_path)


def empty(path: str) -> UserError:
    """The error for an empty file."""
    return UserError(f"{display_name(path)}: is empty; it must hold one sentence per line")


def misaligned(src_path: str, src_count: int, tgt_path: str, tgt_count: int) -> UserError:
    """The error for two files with different line counts."""
    return UserError(
        f"{display_name(src_path)} has {count_of(src_count, 'line')} but {display_name(tgt_path)} has {tgt_count}; "
        "line i of one must translate line i of the other: align the files again"
    )


def read_texts(path: str, raw: RawLines | None = None) -> Iterator[Pair]:
    """Every line of a file as a pair with itself."""
    return ((line, line) for line in read_lines(path, raw=raw))


def read_tsv(path: str, raw: RawLines | None = None, allow_empty: bool = False) -> Iterator[Pair]:
    """Pairs of a tab-separated file: source TAB target, no quoting, further columns ignored."""
    for number, line in enumerate(read_lines(path, allow_empty, raw), start=1):
        columns = line.split("\t", maxsplit=2)
        if len(columns) < 2:
            raise UserError(f"{display_name(path)}: line {number} has no tab; write 'source TAB target' on every line")
        yield columns[0], columns[1]


def read_jsonl(path: str, raw: RawLines | None = None, allow_empty: bool = False) -> Iterator[Pair]:
    """Pairs of a JSON-lines file: one `{"src": "...", "tgt": "..."}` per line, further keys ignored."""
    fix = "; to read other fields, name the folder of the file: hf:FOLDER?src=en&tgt=de"
    for number, line in enumerate(read_lines(path, allow_empty, raw), start=1):
        location = f"{display_name(path)}: line {number}"
        record = json_object(line, location, '{"src": "...", "tgt": "..."}')
        yield text_field(record, "src", location, fix), text_field(record, "tgt", location, fix)


def json_object(line: str, location: str, wanted: str) -> dict[str, Any]:
    """Parse a line as a JSON object; `wanted` is an example for the error message."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{location} is not JSON ({error}); write {wanted}") from error
    if not isinstance(record, dict):
        raise UserError(f"{location} is not an object; write {wanted}")
    return record


def read_lines(path: str, allow_empty: bool = False, raw: RawLines | None = None) -> Iterator[str]:
    """The lines of a UTF-8 file without line ends; `-` is standard input, and gzip is detected.

    A line ends at a line feed; one carriage return before it is removed (CRLF), and so is a byte-order mark
    at the start of the file. The last line needs no line feed. The bytes come from `raw`, by default `read_raw_lines`.

    Raises:
        UserError: the file is missing, a folder, unreadable, empty (unless `allow_empty`), not UTF-8, or a
            broken `.gz`; raised when it is read.
    """
    offset = number = 0
    for number, line in enumerate((raw or read_raw_lines)(path), start=1):
        yield decode_line(line, path, number, offset)
        offset += len(line)
    if number == 0 and not allow_empty:
        raise empty(path)


def read_raw_lines(path: str) -> Iterator[bytes]:
    """The lines of a file as bytes, decompressed, line feeds included."""
    with open_binary(path) as stream:
        yield from file_lines(stream.readline, path)


def file_lines(readline: Callable[[int], bytes], path: str) -> Iterator[bytes]:
    """The lines of an open file; `path` is for the error message of a line that is too long."""
    for number, line in enumerate(iter(partial(readline, LONGEST_LINE + 1), b""), 1):
        if len(line) > LONGEST_LINE:
            long = f"line {number} is longer than {LONGEST_LINE >> 20} MiB"
            raise UserError(f"{display_name(path)}: {long}; is it text, with one sentence or document per line?")
        yield line


def read_head(path: str, size: int) -> bytes:
    """Up to `size` bytes from the start of a file, decompressed."""
    with open_binary(path) as stream:
        return stream.read(size)


@contextmanager
def open_binary(path: str) -> Iterator[IO[bytes] | BufferedIOBase]:
    """The decompressed bytes of a file; gzip is detected by the name or the first two bytes."""
    import gzip

    try:
        if path == STANDARD_INPUT:
            yield sys.stdin.buffer
            return
        with open(path, "rb") as stream:
            compressed = path.endswith(".gz") or stream.peek(2)[:2] == GZIP_MAGIC
            yield gzip.GzipFile(fileobj=stream) if compressed else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{display_name(path)}: the .gz is damaged ({error}); download or compress it again") from error
    except OSError as error:
        raise unreadable(path, error) from error


def decode_line(raw: bytes, path: str, number: int, offset: int) -> str:
    """The text of line `number`, which starts `offset` bytes into the file."""
    content = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    skipped = len(BYTE_ORDER_MARK) if number == 1 and content.startswith(BYTE_ORDER_MARK) else 0
    try:
        return content[skipped:].decode("utf-8")
    except UnicodeDecodeError as error:
        at = skipped + error.start
        raise UserError(
            f"{display_name(path)}: line {number} is not UTF-8 "
            f"(byte 0x{content[at]:02x} at byte offset {offset + at}); "
            f"convert the file: iconv -f {likely_encoding(raw, number)} -t UTF-8 FILE > NEWFILE"
        ) from error


def likely_encoding(raw: bytes, number: int) -> str:
    """The encoding to suggest: UTF-16 has a byte-order mark; otherwise Latin is most likely."""
    return "UTF-16" if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"
