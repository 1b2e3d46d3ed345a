"""The steps of a walk, made from tensors: names, sentences, operands and parameters.

Formulas depend on the network: see `walk`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.layers import ACTIVATIONS, RMSNorm, ShiftedRMSNorm
from headwise.view.record import Prediction, WalkStep

QUERIES, KEYS, VALUES = "Queries", "Keys", "Values"

# By the id of a step, or by what follows the name of its sublayer.
TEXTS: dict[str, tuple[str, str]] = {
    "embeddings": (
        "Embeddings",
        "Every token is looked up in the embedding table; its row is the vector of the token.",
    ),
    "scaled-embeddings": (
        "Embeddings",
        "Every token is looked up in the embedding table; its row, multiplied by √d_model, is the vector of the token.",
    ),
    "position-codes": (
        "Positional encoding",
        "Every position has a vector of its own, because attention alone does not know the order of the tokens.",
    ),
    "token-types": ("Token types", "Every segment of the text has a vector of its own (BERT)."),
    "embedded": ("Embedded tokens", "The sum says which token stands where; it is the input of the first layer."),
    "embedded-norm": ("Norm", "The embedded tokens are normalised before the first layer."),
    "embedded-projection": ("Projection", "The embeddings are projected to the width of the layers."),
    "input": ("Input of the layer", "Each layer reads the output of the layer below it."),
    "memory": ("Memory", "The decoder reads the encoder's output, which is computed once for the whole source."),
    "queries": (QUERIES, "The query of a token stands for what the token looks for."),
    "keys": (KEYS, "The key of a token stands for what the token can be found by."),
    "values": (VALUES, "The value of a token is what it passes on to the tokens that attend to it."),
    "cross_attn.queries": (QUERIES, "The queries of cross-attention come from the decoder."),
    "cross_attn.keys": (KEYS, "The keys of cross-attention come from the memory: one for each source token."),
    "cross_attn.values": (VALUES, "The values of cross-attention come from the memory, too."),
    "normed-queries": ("Normalised queries", "The queries of each head are normalised."),
    "normed-keys": ("Normalised keys", "The keys of each head are normalised."),
    "rotated-queries": (
        "Rotated queries",
        "Pairs of dimensions are rotated by an angle that grows with the position (rotary positions).",
    ),
    "rotated-keys": (
        "Rotated keys",
        "Keys are rotated in the same way, so that a score depends on the distance of the two positions.",
    ),
    "relative-bias": (
        "Relative position bias",
        "A trained number for each distance between query and key is added to the scores (T5).",
    ),
    "scores": ("Scores", "A score is the dot product of a query and a key: how well the two fit."),
    "softmax": (
        "Softmax",
        "Softmax turns each row of scores into attention weights, which are positive and sum to one.",
    ),
    "weighted-sum": (
        "Weighted sum",
        "The output of the head is the sum of the values, each multiplied by its attention weight.",
    ),
    "concat": (
        "Concatenation",
        "The outputs of all heads are put side by side; the columns of this head are outlined.",
    ),
    "heads": ("All heads together", "The output projection mixes the heads and returns to the width of the model."),
    "norm": ("Norm", "Each row is normalised to mean 0 and deviation 1, then scaled and shifted by trained numbers."),
    "rms-norm": ("Norm", "Each row is divided by its root mean square, then scaled by trained numbers."),
    "norm-after": ("Norm after the sublayer", "The output of the sublayer is normalised before it is added."),
    "add": ("Add", "The residual connection adds the input of the sublayer to its output."),
    "gate": ("Gate", "A gated feed-forward network has a second projection, which controls the first one."),
    "up": ("Feed-forward, first projection", "Every token is projected to the inner width, on its own."),
    "inside": ("Feed-forward, inside", "The activation function makes the network more than one linear map."),
    "outside": ("Feed-forward, outside", "The second projection returns to the width of the model."),
    "top": ("Output of the last layer", "The remaining layers do the same with weights of their own."),
    "output": ("Output", "This is the result of the whole stack: a vector for each token."),
    "head.dense": ("Head, projection", "The head for masked tokens first projects every vector once more."),
    "head.inside": ("Head, activation", "An activation function follows, as inside the feed-forward network."),
    "head.norm": ("Head, norm", "The head normalises its vectors before it compares them with the vocabulary."),
    "logits": ("Logits", "Every token of the vocabulary gets a score at every position; the best tokens are shown."),
    "probabilities": ("Output probabilities", "Softmax over the whole vocabulary turns the scores into probabilities."),
}


def texts_of(step: str) -> tuple[str, str]:
    """Name and sentence of a step with this id.

    >>> texts_of("self_attn.softmax")[0]
    'Softmax'
    """
    return TEXTS[step] if step in TEXTS else TEXTS[step.partition(".")[2]]


class Steps:
    """The steps made so far for one layer and head.

    Args:
        network, stack, layer, head: where the walk is.
        axes: names of rows and columns: "src" and "tgt", what encoder and decoder read, and "vocabulary".
        taken, returned: the first input and the output of each module, by name, (1, tokens, width).
    """

    def __init__(
        self,
        network: Any,
        stack: str,
        layer: int,
        head: int,
        axes: dict[str, list[str]],
        taken: Mapping[str, Tensor],
        returned: Mapping[str, Tensor],
    ) -> None:
        self.network, self.stack, self.layer, self.head = network, stack, layer, head
        self.axes, self.taken, self.returned = axes, taken, returned
        self.rows = "src" if stack == "encoder" else "tgt"
        self.here = f"{stack}.layers.{layer}"
        self.module: Any = network.get_submodule(self.here)
        self.made: list[WalkStep] = []
        self._values: dict[str, Tensor] = {}

    def value(self, step: str) -> Tensor:
        """The values of a step made before."""
        return self._values[step]

    def output(self, name: str) -> Float[Tensor, "tokens width"]:
        """The output of a module of the layer."""
        return self.returned[f"{self.here}.{name}"][0]

    def add(
        self,
        step: str,
        operation: str,
        formula: str,
        values: Any,
        operands: Sequence[str] = (),
        *,
        place: str = "embedding",
        rows: str = "",
        columns: str = "",
        of_head: bool = False,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        predictions: Sequence[Prediction] = (),
        **settings: str | float | list[float],
    ) -> str:
        """Make a step; its id."""
        values = values[0] if values.dim() == 3 else values
        self._values[step] = values
        scaled = step == "embeddings" and settings["scale"] != 1
        name, sentence = texts_of("rms-norm" if settings.get("kind") == "rms" else "scaled-" * scaled + step)
        in_layer = step == "input" or place in ("self_attn", "cross_attn", "ffn")
        self.made.append(
            WalkStep(
                step,
                place,
                name,
                sentence,
                formula,
                operation,
                list(operands),
                self.axes[rows or self.rows],
                self.axes[columns] if columns else [],
                array(values),
                self.layer if (in_layer and step != "memory") or step == "top" else None,
                self.head if of_head else None,
                settings,
                None if weight is None else array(weight),
                None if bias is None else array(bias),
                predictions,
            )
        )
        return step

    def norm(self, step: str, norm: Any, x: str, *, place: str, rows: str = "", of_head: bool = False) -> str:
        """y = norm(x), for every kind of norm."""
        rms = isinstance(norm, RMSNorm)
        weight = 1.0 + norm.weight if isinstance(norm, ShiftedRMSNorm) else norm.weight
        formula = "x / rms(x) ⊙ γ" if rms else "(x - μ) / σ ⊙ γ" + ("" if norm.bias is None else " + β")
        shift = None if rms else norm.bias
        settings: dict[str, Any] = {"kind": "rms" if rms else "layer", "eps": norm.eps}
        values = norm(self.value(x))
        where: dict[str, Any] = {"place": place, "rows": rows, "of_head": of_head}
        return self.add(step, "norm", formula, values, [x], weight=weight, bias=shift, **where, **settings)

    def project(self, step: str, formula: str, linear: nn.Linear, x: str, *, place: str) -> str:
        """y = x W + b."""
        values = linear(self.value(x))
        return self.add(step, "projection", formula, values, [x], place=place, weight=linear.weight.T, bias=linear.bias)


def array(values: Tensor) -> np.ndarray:
    """A numpy array in float32, or in float64 if the network computes in float64."""
    values = values.detach()
    return values.to(torch.promote_types(values.dtype, torch.float32)).cpu().numpy()


def is_norm(module: nn.Module) -> bool:
    """Whether a place for a norm has one."""
    return not isinstance(module, nn.Identity)


def bias_of(linear: nn.Linear, name: str) -> str:
    """The bias of a projection as a part of a formula, if it has one."""
    return "" if linear.bias is None else f" + b{name}"


def activation_name(function: Any) -> str:
    """The name of an activation, as in the settings."""
    return next((name for name, one in ACTIVATIONS.items() if one is function), "act")
