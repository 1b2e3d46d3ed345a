"""Section 3.5: where a token stands in its sequence."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.errors import UserError
from sightline.native import positions


def sinusoids(start: int, length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """The table of `native.positions` as a tensor: there is one, so all that computes has the same codes."""
    return torch.from_numpy(positions.sinusoids(start, length, d_model))


class SinusoidalPositions(nn.Module):
    """The paper's fixed encoding; any length, no parameters. The table grows when a longer sequence comes."""

    def __init__(self, d_model: int, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(0, length, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Float[Tensor, "length d_model"]:
        """Encodings of positions start ... start + length - 1."""
        have, d_model = self.table.shape
        if start + length > have:
            with torch.inference_mode(False):  # or a table grown while decoding could not be trained with
                more = sinusoids(have, max(have, start + length - have), d_model)
                self.table = torch.cat([self.table, more.to(self.table)])
        return self.table[start : start + length]


class LearnedPositions(nn.Module):
    """A trained vector per position (Table 3, row E); sequences beyond `max_len` are an error."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_len, d_model))
        nn.init.normal_(self.table, std=d_model**-0.5)

    def forward(self, start: int, length: int) -> Float[Tensor, "length d_model"]:
        """Encodings of positions start ... start + length - 1."""
        if start + length > len(self.table):
            raise UserError(f"a sequence of {start + length} pieces is longer than model.max_len = {len(self.table)}")
        return self.table[start : start + length]
