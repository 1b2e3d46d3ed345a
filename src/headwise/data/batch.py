"""Last stage of the pipeline: ids of some pairs to the tensors of one batch.

Section 3.4 and Figure 1 of the paper: the decoder reads the true target shifted right (teacher forcing), so a target
becomes `tgt_in = start + pieces` and `tgt_out = pieces + end`. Sources carry the end mark too. Which pairs form a batch
is decided in `batching.py`; masks inside the model are made in `network/masks.py`. Batches of texts with labels are in
`labelled.py`, those of windows of a time series in `series.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

Tokens = Sequence[int] | NDArray[np.int32]
AnyDeviceBatch = TypeVar("AnyDeviceBatch", bound="DeviceBatch")


@runtime_checkable
class TrainingBatch(Protocol):
    """What a trainer may know of a batch: sizes."""

    @property
    def n_targets(self) -> int: ...  # what the loss is a sum over
    @property
    def n_tokens(self) -> int: ...  # what speed is counted in
    @property
    def n_real(self) -> int: ...  # cells that are no padding
    @property
    def n_cells(self) -> int: ...  # all of them
    @property
    def extent(self) -> str: ...  # how large it is, in words
    def to(self, device: torch.device | str) -> "TrainingBatch": ...
    def pinned(self) -> "TrainingBatch": ...


@runtime_checkable
class Stream(Protocol):
    """Where batches come from: `headwise.data.batching.BatchStream`."""

    wait_seconds: float  # how long its consumer has waited so far

    def __iter__(self) -> Iterator[TrainingBatch]: ...
    def state(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class DeviceBatch:
    """Batches go to a device tensor by tensor."""

    def to(self: AnyDeviceBatch, device: torch.device | str) -> AnyDeviceBatch:
        """The same batch on another device; the copy of a pinned one runs beside the computation."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self: AnyDeviceBatch) -> AnyDeviceBatch:
        """The same batch in memory that a CUDA device reads by itself."""
        return self.each(lambda tensor: tensor.pin_memory())

    def each(self: AnyDeviceBatch, change: Callable[[Tensor], Tensor]) -> AnyDeviceBatch:
        """The batch with each of its tensors changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        tensors = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(DeviceBatch):
    """Sentence pairs, padded on the right."""

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    index: Int[Tensor, " batch"]  # which pair of the corpus each row is
    n_source_tokens: int  # real tokens of src, end marks included
    n_target_tokens: int  # real tokens of tgt_out, end marks included

    @property
    def n_targets(self) -> int:
        """Target pieces: what the loss is a sum over."""
        return self.n_target_tokens

    @property
    def n_tokens(self) -> int:
        """Target pieces: what speed is counted in."""
        return self.n_target_tokens

    @property
    def n_real(self) -> int:
        """Cells that are no padding."""
        return self.n_source_tokens + self.n_target_tokens

    @property
    def n_cells(self) -> int:
        """Cells of `src` and `tgt_out`."""
        return self.src.numel() + self.tgt_out.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        rows, src_len = self.src.shape
        return f"{rows} pairs, {src_len} source and {self.tgt_out.size(1)} target pieces long"


def collate(
    pairs: Sequence[tuple[Tokens, Tokens]],
    pad_id: int,
    bos_id: int,
    eos_id: int,
    index: Sequence[int] | NDArray[np.int64] | None = None,
    src_end_id: int | None = None,
) -> Batch:
    """Tensors of some pairs of ids; the ids come without start and end marks. `index` defaults to 0, 1, 2...

    `src_end_id` stands behind a source where that is not the end mark: mBART has the language's code there.

    >>> batch = collate([([5, 6], [7]), ([8], [9, 9])], pad_id=0, bos_id=1, eos_id=2)
    >>> batch.src.tolist(), batch.tgt_in.tolist(), batch.tgt_out.tolist()
    ([[5, 6, 2], [8, 2, 0]], [[1, 7, 0], [1, 9, 9]], [[7, 2, 0], [9, 9, 2]])
    """
    src, src_mask = pad([src for src, _ in pairs], pad_id, last=eos_id if src_end_id is None else src_end_id)
    tgt_out, tgt_mask = pad([tgt for _, tgt in pairs], pad_id, last=eos_id)
    tgt_in = np.where(tgt_mask, np.roll(tgt_out, 1, axis=1), pad_id)
    tgt_in[:, 0] = bos_id
    rows = np.arange(len(pairs)) if index is None else np.asarray(index, dtype=np.int64)
    tensors = map(torch.from_numpy, (src, tgt_in, tgt_out, src_mask, rows))
    return Batch(*tensors, n_source_tokens=int(src_mask.sum()), n_target_tokens=int(tgt_mask.sum()))


def pad(rows: Sequence[Tokens], pad_id: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of ids, each with `last` behind it, as one matrix, and where that matrix is real."""
    lengths = np.array([len(row) for row in rows]) + 1
    mask = np.arange(lengths.max()) < lengths[:, None]
    matrix = np.full(mask.shape, pad_id, dtype=np.int64)
    matrix[mask] = np.concatenate([part for row in rows for part in (row, (last,))])
    return matrix, mask


class UnpaddedBatch(DeviceBatch):
    """All that is read is real; a subclass says how much that is, and in what speed is counted (`n_tokens`)."""

    @property
    def n_tokens(self) -> int:
        """All of them."""
        raise NotImplementedError

    @property
    def n_real(self) -> int:
        """As many."""
        return self.n_tokens

    @property
    def n_cells(self) -> int:
        """As many."""
        return self.n_tokens
