"""The forms of a Transformer that decoding asks for: itself, in other numbers, or packed for the compiled library.

The first two are decoded step by step with torch and a cache (`cache`); the last searches by itself (`compiled`).
"""

import copy
import warnings
from typing import Any

import torch
from torch import nn

from headwise.errors import UserError
from headwise.native.library import absence
from headwise.network.compiled import foreign, native_available, packed
from headwise.network.interventions import Structure
from headwise.network.transformer import Transformer

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # copies in these: on a CPU of the latter alone


class PreparedForms:
    """The forms of one model that decoding asks for, each made when first asked for and kept.

    New values of parameters make new forms. After any other change, such as a hook or another attention kernel, torch
    decodes with the model itself until the change is undone.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._structure = Structure(model)
        self._loaded = self._parameters()
        self._forms: dict[str, tuple[Any, Any]] = {}
        self._warned = False

    @property
    def changed(self) -> bool:
        """Whether the model computes anything else than when it was given."""
        return self._parameters() != self._loaded or bool(self._structure.change())

    def __call__(self, compute: str) -> Any:
        """The form for `compute`, as `prepare_for_inference` makes it; a new one if the model was changed since."""
        if change := self._structure.change():
            return self._changed_form(compute, change)
        parameters = self._parameters()
        known, form = self._forms.get(compute, (None, None))
        if form is None or known != parameters:
            form = prepare_for_inference(self._model, compute)
            self._forms[compute] = (parameters, form)
        return form

    def _parameters(self) -> list[tuple[int, int]]:
        """Where each parameter is, and how often it was changed there."""
        return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in self._model.parameters()]

    def _changed_form(self, compute: str, change: str) -> Any:
        """What torch decodes with, for the library knows of no `change`; copies are made anew each time."""
        if compute == "int8":
            raise UserError(
                f"compute = int8 is computed by the compiled library, which does not support {change}; "
                "undo that, or leave out int8"
            )
        if not self._warned:
            self._warned = True
            warnings.warn(f"{change}: torch decodes from now on, more slowly than the compiled library", stacklevel=2)
        on_cpu = next(self._model.parameters()).device.type == "cpu"
        if compute == "bfloat16" and on_cpu:
            return rounded(self._model)
        return _converted(self._model, HALF[compute]) if compute in HALF else self._model


def prepare_for_inference(model: Transformer, compute: str = "float32") -> Any:
    """The same model for decoding only; what is not the model itself is a snapshot: later changes need a new one.

    Args:
        model: whichever of our Transformers.
        compute: "float32"; "int8", by the compiled library only, faster and smaller; "bfloat16", on a CPU for weights
            alone; "float16". All but the last are for the library where the model is on a CPU and the library has its
            every part. Else float32 is the model itself, as "torch" is anywhere; bfloat16 on a CPU is `rounded`, and
            elsewhere, as float16 is, a copy of the model in these numbers.

    Raises:
        UserError: int8 for a model that the library does not decode.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    if compute == "float16" or (compute == "bfloat16" and not on_cpu):
        return _converted(model, HALF[compute]).eval()
    if compute != "torch" and on_cpu and native_available(model):
        return packed(model, compute)
    if compute == "bfloat16":
        return rounded(model)
    if compute == "int8":
        raise _no_int8(model, on_cpu)
    return model


def _converted(model: Transformer, dtype: torch.dtype) -> Transformer:
    if all(parameter.dtype == dtype for parameter in model.parameters()):
        return model
    return copy.deepcopy(model).to(dtype).requires_grad_(False)


@torch.no_grad()
def rounded(model: Transformer) -> Transformer:
    """A copy that does in torch what the library does in bfloat16: arithmetic is float32, and the matrices of products
    and embeddings are rounded, not positions, norms and biases.
    """
    copied = copy.deepcopy(model).float().requires_grad_(False).eval()
    modules: list[tuple[str, Any]] = list(copied.named_modules())
    for name, module in modules:
        if isinstance(module, nn.Linear) or name.endswith("embeddings.tokens"):
            module.weight.copy_(module.weight.bfloat16())
    return copied


def _no_int8(model: Transformer, on_cpu: bool) -> UserError:
    if not on_cpu:
        return UserError("decode.compute = int8 is for a CPU: choose --device cpu, or bfloat16 to stay on this device")
    lacks = foreign(model)
    why = f"lacks a part of this network ({lacks})" if lacks else absence()
    return UserError(f"compute = int8 is computed by the compiled library, which {why}; leave it out")
