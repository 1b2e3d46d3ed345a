"""The steps of a walk, made from tensors: operands and parameters.

Formulas depend on the network: see `walk`. Names and sentences are in the catalogues of the pages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.layers import ACTIVATIONS, RMSNorm, ShiftedRMSNorm
from headwise.view.record import Prediction, WalkStep, text_of


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
        in_layer = step == "input" or place in ("self_attn", "cross_attn", "ffn")
        self.made.append(
            WalkStep(
                step,
                place,
                text_of("rms-norm" if settings.get("kind") == "rms" else "scaled-" * scaled + step),
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
