"""Linear layers prepared for inference: weights packed once, in float32 or in 8-bit integers.

`Int8Linear` scales every row of its input on its own, and sums of integers are exact, so what a row yields is the
same to the last bit whatever rows stand beside it. Not here: which layers are prepared (`inference`).
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int, Int8
from torch import Tensor, nn
from torch.nn import functional as F

# Levels and zero point of inputs: -127 ... 127 around a zero of 128, or 0 ... 255 where none is negative.
_SIGNED = (127, 128)
_UNSIGNED = (255, 0)
# fbgemm adds two neighbouring products of an input byte, up to 255, and a weight in 16 bits. So no two neighbouring
# weights may have magnitudes of more than 128 together, one of which is left to rounding.
_PAIR_LEVELS = 127
_TINY = 1e-30  # the scale of a row of zeros


class Float32Linear(nn.Module):
    """y = x W^T + b, the parameters shared with the layer they come from."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"] | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Float[Tensor, "*any d_in"]) -> Float[Tensor, "*any d_out"]:
        """Any number of rows."""
        return F.linear(x, self.weight, self.bias)


class Int8Linear(nn.Module):
    """y = s_x / 127 (round(127 x / s_x) W_8^T) s_W + b, s_x the largest magnitude of a row, s_W one scale per output.

    The products are summed exactly, in 32 bits. One scale for each row of inputs and
    one for each output is the vector-wise quantisation of arXiv:2208.07339. Inputs known not to be negative, those
    that come from a ReLU, have twice as many levels.
    """

    bias: Tensor | None

    def __init__(
        self,
        weight: "Float[Tensor, 'd_out d_in'] | Rounded",
        bias: Float[Tensor, " d_out"] | None,
        after_relu: bool = False,
    ) -> None:
        super().__init__()
        self.packed = (weight if isinstance(weight, Rounded) else Rounded.of(weight)).packed()
        self.register_buffer("bias", bias)
        self.after_relu = after_relu
        self.levels, self.zero = _UNSIGNED if after_relu else _SIGNED

    def forward(self, x: Float[Tensor, "*any d_in"]) -> Float[Tensor, "*any d_out"]:
        """Any number of rows."""
        magnitude = x if self.after_relu else x.abs()
        scale = magnitude.amax(-1, keepdim=True).clamp_min(_TINY)
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            x / scale, 1 / self.levels, self.zero, self.packed
        )
        return y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)


@dataclass(frozen=True)
class Rounded:
    """A weight in 8-bit integers, W = scale * levels, one scale per output."""

    levels: Int8[Tensor, "d_out d_in"]
    scales: Float64[Tensor, " d_out"]

    @staticmethod
    def of(weight: Float[Tensor, "d_out d_in"]) -> "Rounded":
        """The nearest levels, within the bounds that keep fbgemm's sums exact."""
        weight = weight.float()
        pairs = F.pad(weight.abs(), (0, weight.size(1) % 2)).unflatten(1, (-1, 2)).sum(-1)
        scales = (pairs.amax(1).clamp_min(_TINY) / _PAIR_LEVELS).double()
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with _fbgemm():
            return Rounded(torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8).int_repr(), scales)

    def rows(self, index: Int[Tensor, " n"]) -> "Rounded":
        """Some of the outputs, in this order."""
        return Rounded(self.levels[index], self.scales[index])

    def packed(self) -> torch.ScriptObject:
        """The form that fbgemm multiplies with."""
        zeros = torch.zeros(len(self.levels), dtype=torch.long)
        with _fbgemm():
            weight = torch._make_per_channel_quantized_tensor(self.levels, self.scales, zeros, 0)
            return torch.ops.quantized.linear_prepack(weight, None)


@contextmanager
def _fbgemm() -> Iterator[None]:
    """Its kernels, and no warning that torch means to drop tensors of dtype qint8 one day: see `int8_available`."""
    engine = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = "fbgemm"
        try:
            yield
        finally:
            torch.backends.quantized.engine = engine


def int8_available() -> bool:
    """Whether this torch on this processor has the integer products `Int8Linear` is made of."""
    try:
        layer = Int8Linear(torch.ones(8, 8), None)
        return bool((layer(torch.ones(1, 8)) - 8).abs().max() < 0.1)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def fuse(
    layers: Sequence[nn.Linear], compute: str, scales: Sequence[float] | None = None, after_relu: bool = False
) -> nn.Module:
    """One prepared layer that yields the outputs of several, side by side, each times its scale.

    Args:
        layers: of the same input; all with a bias or all without.
        compute: "float32" or "int8".
        scales: one for each layer; none means 1.
        after_relu: whether the input is never negative.
    """
    scales = scales or [1.0] * len(layers)
    weights = [
        layer.weight.detach() if s == 1 else layer.weight.detach() * s for layer, s in zip(layers, scales, strict=True)
    ]
    biases = [None if layer.bias is None else layer.bias.detach() * s for layer, s in zip(layers, scales, strict=True)]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    known = [bias for bias in biases if bias is not None]
    assert len(known) in (0, len(biases)), "layers that are fused all have a bias or none has"
    bias = torch.cat(known) if known else None
    return Int8Linear(weight, bias, after_relu) if compute == "int8" else Float32Linear(weight, bias)


class ChosenOutputs:
    """A layer from which layers for some of its outputs are prepared again and again; arguments as `fuse`."""

    def __init__(self, layer: nn.Linear, compute: str) -> None:
        self.weight = layer.weight.detach()
        self.bias = None if layer.bias is None else layer.bias.detach()
        self.compute = compute

    @cached_property
    def rounded(self) -> "Rounded":
        """The weights in int8, made when first needed: rounding costs as much as packing."""
        return Rounded.of(self.weight)

    def __call__(self, rows: Int[Tensor, " n"]) -> nn.Module:
        """The layer that yields these outputs only, in this order."""
        bias = None if self.bias is None else self.bias[rows]
        if self.compute == "int8":
            return Int8Linear(self.rounded.rows(rows), bias)
        return Float32Linear(self.weight[rows], bias)
