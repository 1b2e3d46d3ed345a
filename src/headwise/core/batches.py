"""Token ids to the tensors of a batch.

The decoder reads the target shifted right (section 3.4 and Figure 1 of the paper): `tgt_in = BOS + tokens` and
`tgt_out = tokens + EOS`. Sources end with EOS too. Batches are planned in `batch_planning.py`, and the attention masks
inside the model are made in `core/masks.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.text.tokens.pair_tokenizer import Tokens

AnyDeviceBatch = TypeVar("AnyDeviceBatch", bound="DeviceBatch")


@runtime_checkable
class TrainingBatch(Protocol):
    """The sizes of a batch, which are all that the trainer needs of it."""

    @property
    def n_targets(self) -> int: ...  # the loss is a sum over these
    @property
    def n_tokens(self) -> int: ...  # throughput counts these
    @property
    def n_real(self) -> int: ...  # positions without padding
    @property
    def n_cells(self) -> int: ...  # positions with padding
    @property
    def extent(self) -> str: ...  # its shape, for messages
    def to(self, device: torch.device | str) -> "TrainingBatch": ...
    def pinned(self) -> "TrainingBatch": ...


@runtime_checkable
class Stream(Protocol):
    """An iterator over training batches, such as `headwise.pytorch.data.stream.EndlessStream`."""

    wait_seconds: float  # total time that the consumer has waited

    def __iter__(self) -> Iterator[TrainingBatch]: ...
    def state(self) -> dict[str, Any]: ...  # as JSON
    def close(self) -> None: ...


class DeviceBatch:
    """A dataclass of tensors that moves between devices."""

    def to(self: AnyDeviceBatch, device: torch.device | str) -> AnyDeviceBatch:
        """The same batch on another device; a pinned batch is copied asynchronously."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self: AnyDeviceBatch) -> AnyDeviceBatch:
        """The same batch in pinned memory."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self: AnyDeviceBatch, change: Callable[[Tensor], Tensor]) -> AnyDeviceBatch:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        tensors = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[type-var]


class PaddedBatch(DeviceBatch):
    """A batch of texts, padded on the right; subclasses have these fields."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    n_real: int  # tokens without padding

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a network."""
        return self.src, self.src_mask

    @property
    def n_tokens(self) -> int:
        return self.n_real

    @property
    def n_cells(self) -> int:
        return self.src.numel()


class UnpaddedBatch(DeviceBatch):
    """A batch without padding; subclasses define `n_tokens`."""

    @property
    def n_tokens(self) -> int:
        raise NotImplementedError

    @property
    def n_real(self) -> int:
        return self.n_tokens

    @property
    def n_cells(self) -> int:
        return self.n_tokens


@dataclass(frozen=True)
class Batch(DeviceBatch):
    """Sentence pairs, padded on the right."""

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    index: Int[Tensor, " batch"]  # the row of each pair in the corpus
    n_source_tokens: int  # real tokens of src, with EOS
    n_target_tokens: int  # real tokens of tgt_out, with EOS

    @property
    def n_targets(self) -> int:
        return self.n_target_tokens

    @property
    def n_tokens(self) -> int:
        return self.n_target_tokens

    @property
    def n_real(self) -> int:
        return self.n_source_tokens + self.n_target_tokens

    @property
    def n_cells(self) -> int:
        return self.src.numel() + self.tgt_out.numel()

    @property
    def extent(self) -> str:
        rows, src_len = self.src.shape
        return f"{rows} pairs, {src_len} source and {self.tgt_out.size(1)} target tokens long"


def collate(
    pairs: Sequence[tuple[Tokens, Tokens]],
    pad_id: int,
    bos_id: int,
    eos_id: int,
    index: Sequence[int] | NDArray[np.int64] | None = None,
    src_end_id: int | None = None,
) -> Batch:
    """Build the tensors of a batch from pairs of token ids without BOS and EOS. `index` defaults to 0, 1, 2...

    `src_end_id` ends a source if it is not EOS: mBART ends sources with the language code.

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


def pad(rows: Sequence[Tokens], pad_id: int, last: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad rows of token ids to one length, after appending `last` to each; also returns the mask of real tokens."""
    lengths = np.array([len(row) for row in rows]) + (last is not None)
    mask = np.arange(lengths.max()) < lengths[:, None]
    matrix = np.full(mask.shape, pad_id, dtype=np.int64)
    matrix[mask] = np.concatenate(rows if last is None else [part for row in rows for part in (row, (last,))])
    return matrix, mask
