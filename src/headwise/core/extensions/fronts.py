"""Input layers for images, audio and time series. Token embeddings (section 3.4) are in `embeddings.py`.

The method `real` of a `Front` gives the mask of its output.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.dropout import Dropout
from headwise.core.embeddings import Embeddings
from headwise.core.positions import sequential_positions
from headwise.errors import UserError


class PatchFront(nn.Module):
    """[prefix; W patch + b] + P for the square patches of an image, row by row (ViT, arXiv:2010.11929, equation 1).

    The prefix holds trained vectors: the class token, and in DeiT also the distillation token.
    """

    def __init__(
        self, d_model: int, channels: int, size: tuple[int, int], patch: int, n_prefix: int, dropout: float
    ) -> None:
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(channels, d_model, patch, stride=patch)
        n_patches = (size[0] // patch) * (size[1] // patch)
        self.prefix = nn.ParameterList([nn.Parameter(torch.zeros(1, d_model)) for _ in range(n_prefix)])
        self.positions = nn.Parameter(torch.zeros(n_prefix + n_patches, d_model))
        self.dropout = Dropout(dropout)

    def forward(
        self, pixels: Float[Tensor, "batch channels height width"], start: object = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Vectors of the prefix and the patches; `start` is ignored. `UserError` for an image of another size."""
        shape, wanted = tuple(pixels.shape[1:]), (self.patches.in_channels, *self.size)
        if shape != wanted:
            raise UserError(f"a picture of (channels, height, width) {shape} is not {wanted}: resize it")
        patches = self.patches(pixels.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        prefix = [vector.expand(len(pixels), 1, -1) for vector in self.prefix]
        return self.dropout(torch.cat([*prefix, patches], 1) + self.positions)

    def real(self, mask: Bool[Tensor, "batch length"] | None) -> None:
        """None: images have no padding."""
        return None


class AudioFront(nn.Module):
    """Two convolutions over a log-mel spectrogram, the second with stride 2, plus P (Whisper, arXiv:2212.04356).

    Recordings have no mask: the model was trained with silence as padding.
    """

    def __init__(self, d_model: int, n_mels: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, d_model, 3, padding=1)
        self.conv2 = nn.Conv1d(d_model, d_model, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(max_len, d_model))
        self.dropout = Dropout(dropout)

    def forward(
        self, mel: Float[Tensor, "batch n_mels frames"], start: object = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """One vector for two frames; `start` is ignored. `UserError` for a recording that is too long."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel.to(self.conv1.weight.dtype))))).transpose(1, 2)
        if x.size(1) > len(self.positions):
            limit = 2 * len(self.positions)
            raise UserError(f"a recording of {mel.size(2)} frames is longer than the model's {limit}: cut it")
        return self.dropout(x + self.positions[: x.size(1)])

    def real(self, mask: Bool[Tensor, "batch frames"] | None) -> None:
        """None: padding is silence, which the model reads."""
        return None


class SeriesEmbeddings(nn.Module):
    """dropout(W x + b + PE[position]) for a time series of vectors x."""

    def __init__(self, n_columns: int, d_model: int, positions: nn.Module, dropout: float) -> None:
        super().__init__()
        self.proj = nn.Linear(n_columns, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, values: Float[Tensor, "batch length columns"]) -> Float[Tensor, "batch length d_model"]:
        """One vector for each step of the series."""
        position_ids, end = sequential_positions(values[..., 0].long())
        return self.dropout(self.proj(values) + self.positions(position_ids, end))


Front = Embeddings | PatchFront | AudioFront
