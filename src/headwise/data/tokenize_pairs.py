"""Columns of token ids, packed into flat arrays."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.config.data import PairData
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.processes import ordered_results, worker_processes
from headwise.data.sources import Pair

Item = TypeVar("Item")


ColumnPart = tuple[bytes, NDArray[np.int32]]  # rows of a column, one behind the other, and their lengths


COLUMNS = {
    "src": np.dtype("<i4"),
    "tgt": np.dtype("<i4"),
    "src_text": np.dtype("u1"),
    "tgt_text": np.dtype("u1"),
}


LENGTH = np.dtype("<i4")  # the end mark included


def tokenize_pairs(
    pairs: Sequence[Pair], tokenizer: PairTokenizer, limits: PairData | None
) -> tuple[list[ColumnPart], Counter[str]]:
    """The pairs that are kept as rows of the four columns, and how many were dropped for which reason."""
    src_texts, tgt_texts = zip(*pairs, strict=True)
    src, tgt = tokenizer.source.encode_batch(src_texts), tokenizer.encode_batch(tgt_texts)
    rows: list[tuple[Any, ...]] = []
    faults = Counter[str]()
    for src_text, tgt_text, src_row, tgt_row in zip(src_texts, tgt_texts, src, tgt, strict=True):
        reason = drop_reason(src_text, tgt_text, len(src_row), len(tgt_row), limits) if limits else None
        if reason:
            faults[reason] += 1
        else:
            rows.append((src_row, tgt_row, src_text.encode(), tgt_text.encode()))
    return [
        concatenate_rows(*column) for column in zip(zip(*rows, strict=True), COLUMNS.values(), strict=bool(rows))
    ], faults


def concatenate_rows(rows: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> ColumnPart:
    """Rows of numbers (bytes are numbers too) one behind the other, and their lengths."""
    lengths = np.fromiter(map(len, rows), LENGTH, len(rows))
    if dtype.itemsize == 1:
        return b"".join(map(bytes, rows)), lengths
    return np.fromiter(chain.from_iterable(rows), dtype, lengths.sum()).tobytes(), lengths


def drop_reason(src: str, tgt: str, n_src: int, n_tgt: int, limits: PairData) -> str | None:
    """Why a pair is no training material; lengths in pieces without end mark.

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


AHEAD = 3  # chunks of each process that are on their way, so that none waits and memory does not grow with the corpus
Result = tuple[list[ColumnPart], Counter[str]]


@contextmanager
def tokenizing_processes(
    workers: int, tokenizer: PairTokenizer, limits: PairData | None
) -> Iterator[Callable[[Iterable[list[Pair]]], Iterator[Result]]]:
    """So many processes, as a function that has them `prepared.pack` chunk after chunk.

    Raises:
        UserError: one of them was ended from outside.
    """
    what = "a process that cuts the corpus into pieces"
    with worker_processes(workers, what, _begin, tokenizer, limits) as submit:
        yield lambda chunks: ordered_results(chunks, lambda chunk: submit(_pack, chunk), lambda: AHEAD * workers)


_how: list[tuple[PairTokenizer, PairData | None]] = []  # of this process


def _begin(tokenizer: PairTokenizer, limits: PairData | None) -> None:
    """A process of the pool has one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _how.append((tokenizer, limits))


def _pack(chunk: list[Pair]) -> list[Result]:
    return [tokenize_pairs(chunk, *_how[0])]
