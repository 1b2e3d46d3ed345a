"""Tokenise chunks of pairs into the columns of a prepared corpus, in this process or in several.

The result of a chunk depends on the chunk alone, so any number of processes gives the same bytes. The main process
reads the files and writes the columns.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.data import PairData
from headwise.text.files.sources import Pair
from headwise.text.prepared.processes import ordered_results, worker_processes
from headwise.text.tokens.pair_tokenizer import PairTokenizer

ColumnPart = tuple[bytes, NDArray[np.int32]]  # concatenated rows, and the length of each
Result = tuple[list[ColumnPart], Counter[str]]  # a part of every column, and the dropped pairs by reason

COLUMNS = {
    "src": np.dtype("<i4"),
    "tgt": np.dtype("<i4"),
    "src_text": np.dtype("u1"),
    "tgt_text": np.dtype("u1"),
}
LENGTH = np.dtype("<i4")
CHUNKS_PER_PROCESS = 3  # chunks in flight for each process: none has to wait, and memory stays bounded


def tokenize_pairs(pairs: Sequence[Pair], tokenizer: PairTokenizer, limits: PairData | None) -> Result:
    """Tokenise pairs; with `limits`, drop those that `drop_reason` rejects."""
    src_texts, tgt_texts = zip(*pairs, strict=True)
    src, tgt = tokenizer.source.encode_batch(src_texts), tokenizer.encode_batch(tgt_texts)
    rows: list[tuple[Any, ...]] = []
    dropped = Counter[str]()
    for src_text, tgt_text, src_row, tgt_row in zip(src_texts, tgt_texts, src, tgt, strict=True):
        reason = drop_reason(src_text, tgt_text, len(src_row), len(tgt_row), limits) if limits else None
        if reason:
            dropped[reason] += 1
        else:
            rows.append((src_row, tgt_row, src_text.encode(), tgt_text.encode()))
    columns = zip(zip(*rows, strict=True), COLUMNS.values(), strict=bool(rows))
    return [_concatenate_rows(*column) for column in columns], dropped


def _concatenate_rows(rows: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> ColumnPart:
    lengths = np.fromiter(map(len, rows), LENGTH, len(rows))
    if dtype.itemsize == 1:
        return b"".join(map(bytes, rows)), lengths
    return np.fromiter(chain.from_iterable(rows), dtype, lengths.sum()).tobytes(), lengths


def drop_reason(src: str, tgt: str, n_src: int, n_tgt: int, limits: PairData) -> str | None:
    """Why a pair is not used for training; None if it is. Lengths are in tokens without EOS.

    >>> drop_reason("Go!", " ", 2, 1, PairData())
    'one side is empty'
    """
    if not src.strip() or not tgt.strip():
        return "one side is empty"
    if max(n_src, n_tgt) + 1 > limits.max_length:
        return "longer than data.max_length"
    if 0 < limits.max_length_ratio * min(n_src, n_tgt) < max(n_src, n_tgt):
        return "more uneven than data.max_length_ratio"
    return None


@contextmanager
def tokenizing_processes(
    workers: int, tokenizer: PairTokenizer, limits: PairData | None
) -> Iterator[Callable[[Iterable[list[Pair]]], Iterator[Result]]]:
    """A function that tokenises chunk after chunk in `workers` processes, as `tokenize_pairs` does.

    Raises:
        UserError: a process was killed.
    """
    with worker_processes(workers, "a tokenising process", _start, tokenizer, limits) as submit:
        yield lambda chunks: ordered_results(
            chunks, lambda chunk: submit(_tokenize_chunk, chunk), lambda: CHUNKS_PER_PROCESS * workers
        )


_arguments: list[tuple[PairTokenizer, PairData | None]] = []  # of this process


def _start(tokenizer: PairTokenizer, limits: PairData | None) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread for each process
    _arguments.append((tokenizer, limits))


def _tokenize_chunk(chunk: list[Pair]) -> list[Result]:
    return [tokenize_pairs(chunk, *_arguments[0])]
