"""Read given texts with the compiled library: log-probabilities, attention, hidden states.

There is no search: the decoder reads the target of a pair shifted right by one (teacher forcing), and a decoder alone a
text.
"""

import math
from collections.abc import Mapping, Sequence
from ctypes import byref
from dataclasses import dataclass
from itertools import chain

import numpy as np
from jaxtyping import Float32

from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, Ints, at
from headwise.runtime.native.network import CompiledNetwork, Decoding

LOGITS_AT_ONCE = 1 << 22  # numbers
Heads = Sequence[Float32[np.ndarray, "_ _ _"]]  # of each layer: (heads, queries, keys)


@dataclass(frozen=True)
class Reading:
    """The results of a network for one pair; parts that were not requested are empty."""

    encoder: Heads
    decoder: Heads
    cross: Heads
    residual: Float32[np.ndarray, "_ target d_model"]  # embeddings of the target, then each layer's output
    states: Float32[np.ndarray, "_ target d_model"]  # these outputs after the decoder's final norm


def read_pair_of_ids(
    network: CompiledNetwork, source: Sequence[int], target: Sequence[int], parts: Sequence[str]
) -> Reading:
    """Read one source and one target, both with their special tokens.

    Args:
        source: with its end token.
        target: the input of the decoder, with its start token.
        parts: fields of `Reading` to record.
    """
    n, m, d_model = len(source), len(target), network.d_model
    layers = len(network.heads["cross"])
    shapes: dict[str, list[tuple[int, ...]]] = {
        "encoder": [(heads, n, n) for heads in network.heads["encoder"]],
        "decoder": [(heads, m, m) for heads in network.heads["decoder"]],
        "cross": [(heads, m, n) for heads in network.heads["cross"]],
        "residual": [(layers + 1, m, d_model)],
        "states": [(layers, m, d_model)],
    }
    shapes = {part: sizes if part in parts else [] for part, sizes in shapes.items()}
    found = _read(network, [(source, target)], shapes, range(layers))
    nothing = [np.zeros((0, m, d_model), np.float32)]
    return Reading(
        found["encoder"],
        found["decoder"],
        found["cross"],
        (found["residual"] or nothing)[0],
        (found["states"] or nothing)[0],
    )


def forced_cross_attention(
    network: CompiledNetwork, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], layers: Sequence[int]
) -> list[dict[int, Float32[np.ndarray, "_ _ _"]]]:
    """The attention weights of given decoder layers over the source, for each pair.

    Args:
        pairs: sources with their end token; inputs of the decoder, with their start token.
        layers: from 0; layers after the last of them are not computed.

    Returns: (heads, target, source) by layer.
    """
    span = range(min(layers), max(layers) + 1)
    shapes = [(network.heads["cross"][layer], len(tgt), len(src)) for layer in span for src, tgt in pairs]
    weights = iter(_read(network, pairs, {"cross": shapes}, span)["cross"])
    by_layer = {layer: [next(weights) for _ in pairs] for layer in span}
    return [{layer: by_layer[layer][row] for layer in layers} for row in range(len(pairs))]


def _read(
    network: CompiledNetwork,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    shapes: Mapping[str, Sequence[tuple[int, ...]]],
    layers: range,
) -> dict[str, list[Floats]]:
    """Arrays of these shapes for each recorded part; `layers` are those whose attention to the source is recorded."""
    memory = {part: np.zeros(sum(map(math.prod, sizes)), np.float32) for part, sizes in shapes.items()}
    sides = [[ids for ids, _ in pairs], [ids for _, ids in pairs]]
    tokens = [np.fromiter(chain.from_iterable(side), np.int32) for side in sides]
    lengths = [np.array([len(ids) for ids in side], np.int32) for side in sides]
    network.check_tokens(tokens[0], "src")
    network.check_tokens(tokens[1], "tgt")
    network.extend_positions(int(max(each.max() for each in lengths)))
    recording = c.Recording(first=layers.start, end=layers.stop)
    for part, one in memory.items():
        setattr(recording, part, at(one) if one.size else None)
    arrays = (at(each) for pair in zip(tokens, lengths, strict=True) for each in pair)
    if c.needed().headwise_read(byref(network.structure), *arrays, len(pairs), byref(recording)):
        raise MemoryError("not enough memory to read a pair")
    return {part: _divided(memory[part], sizes) for part, sizes in shapes.items()}


def _divided(memory: Floats, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
    """Arrays that follow each other in memory."""
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=int).tolist()
    return [part.reshape(shape) for part, shape in zip(np.split(memory, ends[:-1]), shapes, strict=bool(shapes))]


def forced_log_probs(network: CompiledNetwork, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Floats]:
    """The log-probability of each token of each target, the end token included, given the source and the tokens before.

    Args:
        pairs: sources with their end token; targets with their start and end tokens.
    """
    decoding = network.start([source for source, _ in pairs])
    lengths = np.array([len(target) - 1 for _, target in pairs])
    rows, longest = int(lengths.sum()), int(lengths.max())
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)  # row in which each row's target starts
    positions = np.arange(rows) - first
    paths = (first[:, None] + np.arange(longest)).clip(max=rows - 1).astype(np.int32)
    tokens = np.concatenate([target[:-1] for _, target in pairs]).astype(np.int32)
    wanted = np.concatenate([target[1:] for _, target in pairs]).astype(np.int32)
    network.check_tokens(wanted, "tgt")
    decoding.make_room(rows, np.zeros((1, longest), np.int32), 0)
    hidden = decoding.step(tokens, positions, np.repeat(np.arange(len(pairs)), lengths), paths)
    return np.split(chosen_log_probs(network, hidden, wanted), np.cumsum(lengths)[:-1])


def chosen_log_probs(network: CompiledNetwork, hidden: Floats, tokens: np.ndarray) -> Floats:
    """log softmax of the output at one token for each row (rows, d_model), summed in float64."""
    step = max(1, LOGITS_AT_ONCE // network.output.d_out)
    found = np.empty(len(hidden), np.float32)
    for start in range(0, len(hidden), step):
        rows = slice(start, start + step)
        logits = network.output(hidden[rows])
        chosen = np.take_along_axis(logits, tokens[rows, None].astype(np.int64), 1)[:, 0]
        most = logits.max(1, keepdims=True)
        logits -= most
        total = np.exp(logits, out=logits).sum(1, dtype=np.float64)
        found[rows] = chosen - (most[:, 0] + np.log(total))
    return found


def token_log_probs(
    network: CompiledNetwork, tokens: Sequence[int], first: int = 1, stop: Ints | None = None
) -> Floats:
    """The log-probability of each token of a text from token `first` on, given those before it, by a decoder alone.

    The memory of logits does not depend on the length. `stop` as `Decoding` takes it.
    """
    assert 1 <= first < len(tokens), "the first token is not predicted"
    wanted = np.array(tokens[first:], np.int32)
    network.check_tokens(wanted, "tgt")
    hidden = np.empty((len(tokens) - 1, network.d_model), np.float32)
    decoding = Decoding(network, [tokens[:-1]], stop, hidden)
    found, states = np.empty(len(wanted), np.float32), hidden[first - 1 :]
    output, rows = network.output.address, len(wanted)
    decoding.done(c.needed().headwise_log_probs(output, at(states), at(wanted), rows, at(found), at(stop)))
    return found
