"""Whisper (arXiv:2212.04356) packed for the compiled library: two convolutions before the Transformer."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from headwise.contract import SearchCancelled
from headwise.errors import UserError
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, Ints, at
from headwise.runtime.native.linear import Linear, PackedMemory
from headwise.runtime.native.network import ACTIVATIONS, CompiledNetwork, Decoding, Shape

WIDTH = 3  # of the convolutions
ROWS = 256  # outputs of a convolution computed between two looks at the flag that cancels


class CompiledSpeech(CompiledNetwork):
    """A packed Whisper; arguments as for `CompiledNetwork`, which only needs the positions of the target.

    Convolutions are float32 in any precision: they are a small part of the work.
    """

    def __init__(
        self,
        parameters: Mapping[str, Floats],
        shape: Shape,
        positions: Callable[[int], tuple[Floats | None, Floats | None]],
        numbers: str,
        memory: PackedMemory | None = None,
    ) -> None:
        memory = memory or PackedMemory()
        first, second = (_convolution(parameters, f"src_embeddings.conv{n}", memory) for n in (1, 2))
        self.n_mels, self._convolutions = first.d_in // WIDTH, (first, second)
        self._source_positions = np.array(parameters["src_embeddings.positions"], np.float32)
        super().__init__(parameters, shape, positions, numbers, memory)
        assert (second.d_in, second.d_out) == (WIDTH * first.d_out, self.d_model), "widths of the convolutions"

    def encode(self, mel: Floats, stop: Ints | None = None) -> Decoding:
        """Encode a log-mel spectrogram (n_mels, frames), two frames a position; `stop` as for `Decoding`."""
        assert mel.ndim == 2 and len(mel) == self.n_mels and mel.shape[1], f"a spectrogram of {self.n_mels} bands"
        first, second = self._convolutions
        x = _convolve(second, _convolve(first, mel.T, 1, stop), 2, stop)
        if len(x) > len(self._source_positions):
            limit = 2 * len(self._source_positions)
            raise UserError(f"a recording of {mel.shape[1]} frames is longer than the model's {limit}: cut it")
        return Decoding.of_vectors(self, x + self._source_positions[: len(x)], stop)


def _convolution(parameters: Mapping[str, Floats], name: str, memory: PackedMemory) -> Linear:
    """A convolution as a product with neighbouring rows, one after another."""
    weight = parameters[f"{name}.weight"]
    assert weight.ndim == 3 and weight.shape[2] == WIDTH, f"{name}: (d_out, d_in, {WIDTH})"
    rows = weight.transpose(0, 2, 1).reshape(len(weight), -1)
    return Linear(rows, parameters[f"{name}.bias"], memory=memory)


def _convolve(layer: Linear, x: Floats, stride: int, stop: Ints | None) -> Floats:
    """gelu of the convolution (outputs, d_out), with zeros around x (frames, d_in)."""
    width = x.shape[1]
    padded = np.pad(x, ((1, 1), (0, 0))).reshape(-1)
    neighbours = sliding_window_view(padded, WIDTH * width)[:: stride * width]
    found = np.empty((len(neighbours), layer.d_out), np.float32)
    for start in range(0, len(found), ROWS):
        if stop is not None and stop[0]:
            raise SearchCancelled
        found[start : start + ROWS] = layer(neighbours[start : start + ROWS])
    c.needed().headwise_activate(ACTIVATIONS.index("gelu"), at(found), found.size)
    return found
