"""Section 3.5 as the families vary it: where a token stands, told to its embedding, to its heads or to the scores.

*Added to embeddings*, given the tokens and their places in the row: `LearnedPlaces`, `SinusoidalPlaces`, either of them
behind `CountedPlaces`. *Turning queries and keys*: `Rotary`. *Added to scores*: `RelativeBias`.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.errors import UserError

# --- Added to embeddings ---


class NoPlaces(nn.Module):
    """Nothing is added: positions enter elsewhere."""

    def forward(self, tokens: Int[Tensor, "rows length"], places: Int[Tensor, "#rows length"]) -> float:
        """Zero."""
        return 0.0


class LearnedPlaces(nn.Module):
    """A trained vector for each place; row `offset` of the table is that of the first (BART keeps two rows free)."""

    def __init__(self, max_len: int, d_model: int, offset: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_len + offset, d_model)
        self.offset = offset

    def forward(
        self, tokens: Int[Tensor, "rows length"], places: Int[Tensor, "#rows length"]
    ) -> Float[Tensor, "#rows length d_model"]:
        """The vectors of `places`; `UserError` where there is none any more."""
        last, limit = int(places.max()), self.table.num_embeddings - self.offset
        if last >= limit:
            raise UserError(f"a sequence of {last + 1} tokens is longer than the model's {limit} learned positions")
        return self.table(places + self.offset)


class CountedPlaces(nn.Module):
    """Places that count only what is no padding, as models made with fairseq do; padding stands at place -1."""

    def __init__(self, positions: nn.Module, pad_id: int) -> None:
        super().__init__()
        self.positions = positions
        self.pad_id = pad_id

    def forward(
        self, tokens: Int[Tensor, "rows length"], places: Int[Tensor, "#rows length"]
    ) -> Float[Tensor, "rows length d_model"]:
        """The vectors of the places so counted, from the first of `places` on."""
        real = tokens != self.pad_id
        counted = (real.cumsum(1) + places[:, :1]) * real - 1
        return self.positions(tokens, counted)


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


class SinusoidalPlaces(nn.Module):
    """Sines and cosines in halves; any length, no parameters. Place p has the angles of p + `offset`, place -1 zeros.

    They are float32 whatever the network computes with: who adds them rounds the sum. `codes` makes the table of a
    number of positions (`halved_sinusoids`).
    """

    def __init__(self, codes: Callable[[int], Float[Tensor, "length d_model"]], offset: int) -> None:
        super().__init__()
        self.codes = codes
        self.offset = offset
        self.register_buffer("table", self._rows(64), persistent=False)

    def _rows(self, length: int) -> Float[Tensor, "rows d_model"]:
        """The code of place p in row p + 1."""
        codes = self.codes(length + self.offset)[self.offset :]
        return torch.cat([torch.zeros_like(codes[:1]), codes])

    def forward(
        self, tokens: Int[Tensor, "rows length"], places: Int[Tensor, "#rows length"]
    ) -> Float[Tensor, "#rows length d_model"]:
        """The codes of `places`."""
        needed = int(places.max()) + 2
        if needed > len(self.table):
            with torch.inference_mode(False):  # or a table grown while decoding could not be trained with
                self.table = self._rows(2 * needed).to(self.table)
        return F.embedding(places + 1, self.table)


# --- Turning queries and keys ---


def rotary_rates(width: int, base: float) -> Float[Tensor, " pairs"]:
    """base^(-2i/width): by how much a position turns each of the width / 2 pairs, radians."""
    return 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width))


def slowed_rates(rates: Float[Tensor, " pairs"], factor: float) -> Float[Tensor, " pairs"]:
    """Linear scaling: `factor` times as many positions in the same turn (arXiv:2306.15595)."""
    return rates / factor


def llama3_rates(
    rates: Float[Tensor, " pairs"], factor: float, low: float, high: float, trained_len: int
) -> Float[Tensor, " pairs"]:
    """LLaMA 3.1's scaling: slow pairs are slowed by `factor`, fast ones stay, those between are blended.

    A pair is slow when it turns fewer than `low` times in `trained_len` positions, fast when more than `high` times.
    """
    turns = trained_len * rates / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share) * rates / factor + share * rates


class Unrotated(nn.Module):
    """Queries and keys as they are."""

    def forward(
        self, x: Float[Tensor, "batch heads length d_head"], start: int
    ) -> Float[Tensor, "batch heads length d_head"]:
        """`x` itself."""
        return x


class Rotary(nn.Module):
    """Turns pairs (x_i, x_{i + width/2}) of the first `width` components by position * rate_i (arXiv:2104.09864).

    The product of a query and a key then depends on their distance alone. One module serves all layers.
    """

    def __init__(self, rates: Float[Tensor, " pairs"]) -> None:
        super().__init__()
        self._rates = rates  # no buffer: rounded to half precision, they would turn far positions by another angle
        self.register_buffer("cos", torch.empty(0, 2 * len(rates)), persistent=False)
        self.register_buffer("sin", torch.empty(0, 2 * len(rates)), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch heads length d_head"], start: int
    ) -> Float[Tensor, "batch heads length d_head"]:
        """`x` turned; its first position is `start`."""
        end = start + x.size(2)
        if end > len(self.cos):
            self._grow(max(64, end, 2 * len(self.cos)), x.device)
        cos, sin = (table[start:end].to(x.dtype) for table in (self.cos, self.sin))
        turned, rest = x[..., : cos.size(-1)], x[..., cos.size(-1) :]
        first, second = turned.chunk(2, -1)
        turned = turned * cos + torch.cat([-second, first], -1) * sin
        return torch.cat([turned, rest], -1) if rest.size(-1) else turned

    def _grow(self, length: int, device: torch.device) -> None:
        with torch.inference_mode(False):
            angles = torch.arange(length, device=device).float().unsqueeze(1) * self._rates.to(device)
            angles = torch.cat([angles, angles], -1)
            self.cos, self.sin = angles.cos(), angles.sin()


# --- Added to scores ---


def relative_buckets(
    distance: Int[Tensor, "*any"], n_buckets: int, max_distance: int, both_ways: bool
) -> Int[Tensor, "*any"]:
    """Which bucket the distance key - query falls into: one each for near ones, then wider and wider ones.

    Half of the buckets are for single distances; in the other half widths grow logarithmically up to `max_distance`,
    and the last one takes everything beyond (T5, arXiv:1910.10683, section 2.1). With `both_ways` the upper half of all
    buckets is for keys after the query; otherwise those fall into bucket 0.

    >>> relative_buckets(torch.tensor([-200, -9, -8, -1, 0, 1]), 16, 128, both_ways=False).tolist()
    [15, 8, 8, 1, 0, 0]
    """
    if both_ways:
        n_buckets //= 2
        later = (distance > 0).long() * n_buckets
        return later + relative_buckets(-distance.abs(), n_buckets, max_distance, both_ways=False)
    back = (-distance).clamp(min=0)
    single = n_buckets // 2
    growth = torch.log(back.float() / single) / math.log(max_distance / single) * (n_buckets - single)
    wide = single + growth.clamp(min=0).long().clamp(max=n_buckets - single - 1)
    return torch.where(back < single, back, wide)


class RelativeBias(nn.Module):
    """A trained number for each head and bucket of distances, added to the scores of a whole stack (T5).

    Stands in the place of the stack's reach, which it is given: where a position may not attend, it adds the lowest
    finite number.
    """

    def __init__(self, n_heads: int, n_buckets: int, max_distance: int, both_ways: bool, reach: nn.Module) -> None:
        super().__init__()
        self.buckets = nn.Embedding(n_buckets, n_heads)
        self.max_distance = max_distance
        self.both_ways = both_ways
        self.reach = reach

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> Float[Tensor, "#batch heads queries keys"]:
        """What is added to the scores; arguments as of `masks.Everywhere.forward`."""
        keys = torch.arange(start + queries, device=device)
        distance = keys - keys[start:].unsqueeze(1)
        bucket = relative_buckets(distance, self.buckets.num_embeddings, self.max_distance, self.both_ways)
        bias = self.buckets(bucket).permute(2, 0, 1).unsqueeze(0)
        visible = self.reach(mask, start, queries, device)
        return bias if visible is None else bias.masked_fill(~visible, torch.finfo(bias.dtype).min)
