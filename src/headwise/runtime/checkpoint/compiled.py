"""A Transformer of the compiled library from the arrays of a model folder, without a torch module.

The axes (`config.network`) say everything that the arrays' shapes do not. `pytorch/search/compiled.py` passes those of
a torch module.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.from_recipe import transformer_config
from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.network import NetworkConfig, StackConfig
from headwise.config.positions import halved_sinusoid_table, scaled_rates, sinusoid_table
from headwise.runtime.native.library import instructions, library
from headwise.runtime.native.linear import PackedMemory
from headwise.runtime.native.network import ACTIVATIONS, CompiledNetwork, Shape
from headwise.runtime.native.speech import CompiledSpeech

Weights = Mapping[str, NDArray[Any]]  # by the names of the file, shared ones under the first of their names
SOURCE, TARGET, OUTPUT = "src_embeddings.tokens.weight", "tgt_embeddings.tokens.weight", "head.output.weight"
ALONE = "embeddings."  # instead of "tgt_embeddings." in a decoder alone
FRONTS = ("tokens", "audio")
NORMS = {"layer": "layer", "layer_unbiased": "layer", "rms": "rms", "rms_shifted": "rms_shifted"}  # in native.network
ALIKE = (  # fields that both stacks must agree in
    *("d_model", "score_scale", "activation", "norm", "norm_eps", "norm_position", "count_from", "rotary"),
)
SINUSOIDS: dict[str, Callable[[int, int], NDArray[np.float32]]] = {  # length and width
    "sinusoidal_interleaved": lambda length, width: sinusoid_table(0, length, width),
    "sinusoidal": halved_sinusoid_table,
    "sinusoidal_tensor2tensor": lambda length, width: halved_sinusoid_table(length, width, width // 2 - 1.0, True),
}


def described() -> str:
    """The compiled library and its build, for people."""
    return f"the compiled library ({instructions()})"


def axes_for_library(c: ModelConfig) -> NetworkConfig | None:
    """The axes of a network trained here, if the library is available and supports it."""
    found = transformer_config(c) if isinstance(c, TransformerConfig) and c.task == "translate" else None
    return found if found and library() is not None and library_shape(found) else None


def compiled(c: NetworkConfig, weights: Weights, compute: str, memory: PackedMemory | None = None) -> CompiledNetwork:
    """The network packed to compute with `compute`, one of `runtime.native.linear.NUMBERS`, in `memory` if it is
    given.
    """
    shape = library_shape(c)
    assert shape and c.decoder
    names = {f"tgt_{name}" if name.startswith(ALONE) else name: name for name in weights}
    if c.encoder and c.front == "tokens":
        names.setdefault(TARGET, names[SOURCE])  # the file has shared parameters once
    names["output.weight"] = names.pop(OUTPUT, names[TARGET])
    if "head.output.bias" in names:
        names["output.bias"] = names.pop("head.output.bias")
    parameters = RenamedArrays(weights, names)
    learned = {name: parameters[name] for name in parameters if name.endswith(".positions.table.weight")}
    stacks = {"src": c.encoder, "tgt": c.decoder} if c.encoder and c.front == "tokens" else {"tgt": c.decoder}

    def positions(length: int) -> tuple[Any, ...]:
        if len(stacks) == 1 and stacks["tgt"].positions == "none":
            return (None,)
        made: dict[Any, NDArray[np.float32]] = {}  # one table for both sides if they agree
        for side, stack in stacks.items():
            key = stack.positions, stack.position_offset, side if stack.positions == "learned" else ""
            made.setdefault(key, positions_of(stack, f"{side}_embeddings", learned, length))
        tables = [*made.values()]
        return (tables[0], tables[-1])[-len(stacks) :]

    kind = CompiledSpeech if c.front == "audio" else CompiledNetwork
    return kind(parameters, shape, positions, compute, memory)


class RenamedArrays(Mapping[str, NDArray[Any]]):
    """A lazy view of `arrays` under new names; `names` maps each new name to the old one."""

    def __init__(self, arrays: Weights, names: Mapping[str, str]) -> None:
        self._arrays, self._names = arrays, names

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def positions_of(c: StackConfig, embeddings: str, parameters: Weights, length: int) -> NDArray[np.float32]:
    """The encodings of at least `length` positions; of all if they are learned.

    If padding does not count as a position, its encoding comes first: zeros, or the row before the learned positions.
    """
    padding = c.count_from >= 0
    if c.positions == "learned":
        return parameters[f"{embeddings}.positions.table.weight"][c.position_offset - padding :]
    width = c.d_embedding or c.d_model
    if c.positions == "none":
        return np.zeros((length + padding, width), np.float32)
    codes = SINUSOIDS[c.positions](length + c.position_offset, width)[c.position_offset :]
    return np.concatenate([np.zeros_like(codes[:1]), codes]) if padding else codes


def library_shape(c: NetworkConfig) -> Shape | None:
    """The settings that the compiled library needs besides the parameters; None for an unsupported network."""
    encoder, decoder = c.encoder, c.decoder
    if not decoder or unsupported_setting(c):
        return None
    return Shape(
        (encoder.heads or (encoder.n_heads,) * encoder.n_layers) if encoder else (),
        decoder.heads or (decoder.n_heads,) * decoder.n_layers,
        (decoder.cross_heads or (decoder.n_heads,) * decoder.n_layers) if encoder else (),
        norm_first=decoder.norm_position == "pre",
        eps=decoder.norm_eps,
        norm=NORMS[decoder.norm],
        activation=decoder.activation,
        embedding_scales=((encoder or decoder).embedding_scale, decoder.embedding_scale),
        score_scale=score_scale(decoder),
        logit_scale=c.logit_scale,
        padding=decoder.count_from,
        rotary=rotation_rates(decoder),
        windows=decoder.windows,
    )


def score_scale(c: StackConfig) -> float:
    """The factor on the scores; 0 for the paper's."""
    return 0.0 if math.isclose(c.score_scale**2 * c.d_head, 1.0) else c.score_scale


def rotation_rates(c: StackConfig) -> tuple[float, ...]:
    """The rotation of each pair of a head, radians a position; () without rotary positions."""
    return tuple(scaled_rates(**asdict(c.rotary)).tolist()) if c.rotary else ()


def unsupported_setting(c: NetworkConfig) -> str:
    """The first setting of an encoder-decoder or a decoder that the compiled library lacks; "" if it has all."""
    encoder, decoder = c.encoder, c.decoder
    if not decoder:
        return "no decoder"
    if found := _first(c, front=c.front not in FRONTS, head=c.head != "language", logit_cap=c.logit_cap):
        return found
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        if stack and (found := _unsupported_embeddings(stack) or unsupported_layers(stack, alone=encoder is None)):
            return f"{side}.{found}"
    differing = (name for name in ALIKE if encoder and getattr(encoder, name) != getattr(decoder, name))
    return next((f"different {name} in encoder and decoder" for name in differing), "")


def _unsupported_embeddings(c: StackConfig) -> str:
    return _first(
        c,
        relative_buckets=c.relative_buckets,
        n_types=c.n_types,
        d_embedding=c.d_embedding not in (0, c.d_model),
        d_memory=c.d_memory not in (0, c.d_model),
        layer_groups=c.layer_groups,
        count_from=c.count_from >= 0 and c.positions not in SINUSOIDS,
    )


def unsupported_layers(c: StackConfig, alone: bool = False) -> str:
    """The first setting of the layers of a stack that the library lacks, apart from embeddings; "" if it has all.

    `alone`: of a decoder without an encoder, which may have windows and normalised heads.
    """
    return _first(
        c,
        score_cap=c.score_cap,
        disentangled=c.disentangled,
        parallel=c.parallel != "no",
        first_norm=not c.first_norm,
        window_rotary=c.window_rotary,
        windows=not alone and any(c.windows),
        normalise_heads=c.normalise_heads and not (alone and NORMS.get(c.norm) != "layer"),
        heads=c.heads and len(c.heads) != c.n_layers,  # torch refuses this, too
        cross_heads=c.cross_heads and len(c.cross_heads) != c.n_layers,
        norm_position=c.norm_position not in ("pre", "post"),
        norm=c.norm not in NORMS,
        activation=c.activation not in ACTIVATIONS,
    )


def _first(c: NetworkConfig | StackConfig, **lacking: object) -> str:
    """The first setting of `c` whose value here is true, with its value; "" if there is none."""
    return next((f"{name} = {getattr(c, name)}" for name, lacks in lacking.items() if lacks), "")
