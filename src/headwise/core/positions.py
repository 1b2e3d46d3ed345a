"""Section 3.5: position embeddings, sinusoidal or learned (Table 3, row E).

Rotary positions are in `rotary.py`, relative ones in `relative.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import positions
from headwise.core.cache import StepPosition
from headwise.errors import UserError

PositionIds = Int[Tensor, "#rows length"]  # from 0


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """The paper's encodings: sine and cosine interleaved."""
    return torch.from_numpy(positions.sinusoid_table(0, length, d_model))


def halved_sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """All sines, then all cosines, where the paper alternates them (Marian)."""
    return torch.from_numpy(positions.halved_sinusoid_table(length, d_model))


def tensor2tensor_sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """The codes of tensor2tensor and fairseq (M2M-100): halved, with rates of their own, computed in float32."""
    return torch.from_numpy(positions.halved_sinusoid_table(length, d_model, d_model // 2 - 1.0, rounded=True))


class NoPositions(nn.Module):
    """No position embeddings: positions enter elsewhere."""

    def forward(self, position_ids: PositionIds, end: int) -> float:
        """Zero."""
        return 0.0


class SinusoidalPositions(nn.Module):
    """Sinusoidal encodings; the table grows for longer sequences.

    Encodings are always float32; the caller rounds the sum.

    Args:
        codes: computes the table from length and width, such as `sinusoids`.
        offset: position of the first token (M2M-100); padding has position -1 and encoding 0.
    """

    def __init__(
        self, d_model: int, codes: Callable[[int, int], Float[Tensor, "length d_model"]] = sinusoids, offset: int = 0
    ) -> None:
        super().__init__()
        self.codes = codes
        self.d_model = d_model
        self.offset = offset
        self.register_buffer("table", self._rows(512), persistent=False)

    def _rows(self, length: int) -> Float[Tensor, "rows d_model"]:
        """The table, with position p in row p + 1."""
        codes = self.codes(length + self.offset, self.d_model)[self.offset :]
        return torch.cat([torch.zeros_like(codes[:1]), codes])

    def forward(self, position_ids: PositionIds, end: int) -> Float[Tensor, "#rows length d_model"]:
        """The encodings of `position_ids`, all less than `end`."""
        if end >= len(self.table):
            with torch.inference_mode(False):  # a table grown while decoding must be usable for training
                self.table = self._rows(2 * end).to(self.table)
        return F.embedding(position_ids + 1, self.table)


class LearnedPositions(nn.Module):
    """A trained vector per position; the first position is row `offset` of the table (2 in BART)."""

    def __init__(self, d_model: int, max_len: int, offset: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len + offset, d_model)
        self.offset = offset
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    @property
    def max_len(self) -> int:
        """The number of positions."""
        return self.table.num_embeddings - self.offset

    def forward(self, position_ids: PositionIds, end: int) -> Float[Tensor, "#rows length d_model"]:
        """The vectors of `position_ids`, all less than `end`; `UserError` if `end` exceeds the table."""
        if end > self.max_len:
            raise UserError(f"a sequence of {end} tokens is longer than the model's {self.max_len} learned positions")
        return self.table(position_ids + self.offset)


# --- Position ids ---

PositionNumbering = Callable[[Int[Tensor, "rows length"], int | PositionIds | StepPosition], tuple[PositionIds, int]]


def sequential_positions(
    tokens: Int[Tensor, "rows length"], start: int | PositionIds | StepPosition = 0
) -> tuple[PositionIds, int]:
    """Position ids counting from `start`, or `start` itself if it holds ids; and an upper bound of them."""
    if isinstance(start, StepPosition):
        return start.ids(), start.bound
    if isinstance(start, int):
        end = start + tokens.size(1)
        return torch.arange(start, end, device=tokens.device).unsqueeze(0), end
    return start, int(start.max()) + 1


@dataclass(frozen=True)
class PositionsWithoutPadding:
    """Position ids that do not count padding, as in fairseq; padding has position -1."""

    pad_id: int

    def __call__(
        self, tokens: Int[Tensor, "rows length"], start: int | PositionIds | StepPosition = 0
    ) -> tuple[PositionIds, int]:
        """See `sequential_positions`."""
        real = tokens != self.pad_id
        if isinstance(start, StepPosition):
            return (real + start.ids()) * real - 1, start.bound
        first = start if isinstance(start, int) else start[:, :1]
        position_ids = (real.cumsum(1) + first) * real - 1
        return position_ids, int(position_ids.max()) + 1
