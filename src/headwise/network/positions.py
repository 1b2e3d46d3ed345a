"""Section 3.5: where a token stands in its sequence, added to its embedding.

Sinusoids need no parameters and know no end; a table of learned vectors (Table 3, row E) has one. Positions that enter
elsewhere are in `rotary.py` (turning queries and keys) and `relative.py` (added to scores).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.errors import UserError
from headwise.native import positions

PositionIds = Int[Tensor, "#rows length"]  # where tokens stand, from 0


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """The paper's codes: sin and cos in turns. One table (`native.positions`) serves all that computes."""
    return torch.from_numpy(positions.sinusoid_table(0, length, d_model))


def halved_sinusoids(
    length: int, d_model: int, rate_steps: float | None = None, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "length d_model"]:
    """All sines, then all cosines, of pos / 10000^(i / rate_steps), where the paper has them in turns.

    `rate_steps` is d_model / 2 in the paper (None), and one less in tensor2tensor, in fairseq and in what was trained
    with them. `dtype` is what the angles are computed in: a model knows those it was trained with.
    """
    rate_steps = d_model / 2 if rate_steps is None else rate_steps
    rate = torch.exp(torch.arange((d_model + 1) // 2, dtype=dtype) * -(math.log(10000.0) / rate_steps))
    angle = torch.arange(length, dtype=dtype).unsqueeze(1) * rate
    return torch.cat([angle.sin(), angle[:, : d_model // 2].cos()], 1).float()


class NoPositions(nn.Module):
    """Nothing is added: positions enter elsewhere."""

    def forward(self, position_ids: PositionIds, end: int) -> float:
        """Zero."""
        return 0.0


class SinusoidalPositions(nn.Module):
    """Fixed codes of any length; the table grows when a longer sequence comes.

    Codes are float32 whatever the network computes with: who adds them rounds the sum.

    Args:
        codes: makes the table of so many positions, such as `sinusoids`, given the width.
        offset: the first token has the code of this position (M2M-100); position -1, which is padding's, zeros.
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
        """The code of position p in row p + 1."""
        codes = self.codes(length + self.offset, self.d_model)[self.offset :]
        return torch.cat([torch.zeros_like(codes[:1]), codes])

    def forward(self, position_ids: PositionIds, end: int) -> Float[Tensor, "#rows length d_model"]:
        """The codes of `position_ids`, all of them less than `end`."""
        if end >= len(self.table):
            with torch.inference_mode(False):  # or a table grown while decoding could not be trained with
                self.table = self._rows(2 * end).to(self.table)
        return F.embedding(position_ids + 1, self.table)


class LearnedPositions(nn.Module):
    """A trained vector per position; row `offset` of the table is that of the first (BART keeps two rows free)."""

    def __init__(self, d_model: int, max_len: int, offset: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len + offset, d_model)
        self.offset = offset
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    @property
    def max_len(self) -> int:
        """How many positions there are."""
        return self.table.num_embeddings - self.offset

    def forward(self, position_ids: PositionIds, end: int) -> Float[Tensor, "#rows length d_model"]:
        """The vectors of `position_ids`, all of them less than `end`; `UserError` where there is none any more."""
        if end > self.max_len:
            raise UserError(f"a sequence of {end} tokens is longer than the model's {self.max_len} learned positions")
        return self.table(position_ids + self.offset)


# --- Which positions tokens have ---

Numbering = Callable[[Int[Tensor, "rows length"], int | PositionIds], tuple[PositionIds, int]]


def numbered_in_order(tokens: Int[Tensor, "rows length"], start: int | PositionIds = 0) -> tuple[PositionIds, int]:
    """Position ids of tokens from `start` on, all rows alike, and their end; or the positions that `start` names."""
    if isinstance(start, int):
        end = start + tokens.size(1)
        return torch.arange(start, end, device=tokens.device).unsqueeze(0), end
    return start, int(start.max()) + 1


@dataclass(frozen=True)
class WithoutPadding:
    """Position ids that count only what is no padding, as models made with fairseq do; padding has position -1."""

    pad_id: int

    def __call__(self, tokens: Int[Tensor, "rows length"], start: int | PositionIds = 0) -> tuple[PositionIds, int]:
        """As `numbered_in_order`."""
        real = tokens != self.pad_id
        first = start if isinstance(start, int) else start[:, :1]
        position_ids = (real.cumsum(1) + first) * real - 1
        return position_ids, int(position_ids.max()) + 1
