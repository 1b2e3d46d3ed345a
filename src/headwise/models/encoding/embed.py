"""Text embeddings: the last hidden states of a network, pooled, and further steps; in numpy.

As in sentence-transformers (arXiv:1908.10084): special tokens are pooled, padding is not. See `sentences` for the
settings of a folder and `pytorch.models.text_pooling` for poolings with gradients.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from headwise.models.encoding.library_encoder import EncoderNetwork

States = Float32[np.ndarray, "length d_model"]
Vector = Float32[np.ndarray, " width"]
Vectors = Float32[np.ndarray, "texts width"]
VectorStep = Callable[[Vectors], Vectors]
EPS = 1e-12  # smallest length that is divided by, as in torch


# --- Poolings: from the states of a text, of which the first `skip` are not pooled, to one vector ---


POOLINGS: dict[str, Callable[[States, int], Vector]] = {
    "first": lambda states, skip: states[skip],  # which BERT trains to represent the whole text ([CLS])
    "max": lambda states, skip: states[skip:].max(0),
    "mean": lambda states, skip: states[skip:].mean(0),
    "mean_sqrt_len": lambda states, skip: states[skip:].sum(0) / np.float32(math.sqrt(len(states) - skip)),
    "weighted_mean": lambda states, skip: _weighted_mean(states[skip:], skip),
    "last": lambda states, skip: states[-1],  # in a decoder the only one that sees the whole text
}  # in the order in which several are concatenated


def _weighted_mean(states: States, skip: int) -> Vector:
    """The mean of the states, the n-th of the text counted n times (SGPT, arXiv:2202.08904)."""
    weights = np.arange(skip + 1, skip + len(states) + 1, dtype=np.float32)
    return weights @ states / weights.sum()


# --- Further steps ---


def unit(vectors: Vectors) -> Vectors:
    """Vectors of length 1, whose products are cosines."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(EPS))


def gelu(x: Vectors) -> Vectors:
    """x Phi(x) (arXiv:1606.08415)."""
    return x * np.vectorize(lambda one: 0.5 * math.erfc(-one / math.sqrt(2)), otypes=[np.float32])(x)


ACTIVATIONS: dict[str, VectorStep] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": gelu,
}


@dataclass(frozen=True, eq=False)
class Dense:
    """activation(W x + b)."""

    weight: Float32[np.ndarray, "out in"]
    bias: Float32[np.ndarray, " out"] | None
    activation: str  # of `ACTIVATIONS`

    def __call__(self, vectors: Float32[np.ndarray, "texts in"]) -> Float32[np.ndarray, "texts out"]:
        products = vectors @ self.weight.T
        return ACTIVATIONS[self.activation](products if self.bias is None else products + self.bias)


def embed(
    network: EncoderNetwork,
    texts: Sequence[Sequence[int]],
    poolings: Sequence[str],
    steps: Sequence[VectorStep],
    width: int,
    batch_size: int,
    skip: int = 0,
) -> Vectors:
    """One vector for each text, in order; zeros for a text without a token, or with no more than `skip`.

    Args:
        poolings: of `POOLINGS`; several are concatenated.
        steps: functions of the pooled vectors, in order.
        width: of the resulting vectors.
        batch_size: texts that torch reads at once.
        skip: tokens at the start of each text that are not pooled.
    """
    found = np.zeros((len(texts), width), np.float32)
    kept = [i for i, text in enumerate(texts) if len(text) > skip]
    if not kept:
        return found
    pooled: list[Vector | None] = [None] * len(kept)
    for i, states in network.states([texts[i] for i in kept], batch_size):
        pooled[i] = np.concatenate([POOLINGS[name](states, skip) for name in poolings])
    vectors = np.stack([vector for vector in pooled if vector is not None])
    for step in steps:
        vectors = step(vectors)
    found[kept] = vectors
    return found
