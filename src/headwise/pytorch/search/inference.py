"""Prepares a Transformer for decoding: as it is, in another precision, or packed for the compiled library.

The first two decode step by step with torch and a cache (`cache`); the library runs the search itself (`compiled`).
"""

import copy
import warnings
from typing import Any

import torch
from torch import nn

from headwise.config.settings import INTEGERS
from headwise.core.transformer import DecoderOnly, Transformer
from headwise.errors import UserError
from headwise.pytorch.search.changes import change_of, is_intervened
from headwise.pytorch.search.compiled import native_available, pack_network, unsupported_module
from headwise.runtime.native.library import absence

AnyTransformer = Transformer | DecoderOnly
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # bfloat16 on a CPU is `rounded` instead


class PrecisionVariants:
    """One model in the precisions that decoding requests, each prepared on first use and cached.

    Changed parameters invalidate the cache. After any other change, such as a hook or another attention kernel, torch
    decodes with the model itself until the change is undone.
    """

    def __init__(self, model: AnyTransformer, automatic: str = "float32") -> None:
        """`automatic` is the precision for "auto"; a model whose file is in half precision stays as it is."""
        self._model = model
        in_file = next(model.parameters()).dtype
        self.automatic = automatic if in_file == torch.float32 else "float32"
        self._change = change_of(model)
        self._loaded = self._parameters()
        self._prepared: dict[str, tuple[Any, Any]] = {}
        self._warned = False

    @property
    def changed(self) -> bool:
        """Whether parameters, hooks or modules were changed since this object was made."""
        return self._parameters() != self._loaded or change_of(self._model) != self._change

    def __call__(self, compute: str) -> Any:
        """The model for `compute`, from `prepare_for_inference`; prepared again if its parameters were changed."""
        compute = self.automatic if compute == "auto" else compute
        if change := change_of(self._model):
            return self._prepare_changed(compute, change)
        parameters = self._parameters()
        known, network = self._prepared.get(compute, (None, None))
        if network is None or known != parameters:
            network = prepare_for_inference(self._model, compute)
            self._prepared[compute] = (parameters, network)
        return network

    def _parameters(self) -> list[tuple[int, int]]:
        """The address and version counter of each parameter."""
        return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in self._model.parameters()]

    def _prepare_changed(self, compute: str, change: str) -> Any:
        """The model for torch, since the library does not see `change`; copies are not cached."""
        if compute in INTEGERS:
            raise UserError(
                f"compute = {compute} is computed by the compiled library, which does not support {change}; "
                f"undo that, or leave out {compute}"
            )
        if change != self._change and not self._warned and not is_intervened(self._model):
            self._warned = True
            warnings.warn(f"{change}: torch decodes from now on, more slowly than the compiled library", stacklevel=2)
        on_cpu = next(self._model.parameters()).device.type == "cpu"
        if compute == "bfloat16" and on_cpu:
            return rounded(self._model)
        return _converted(self._model, HALF[compute]) if compute in HALF else self._model


def prepare_for_inference(model: AnyTransformer, compute: str = "float32") -> Any:
    """The model for decoding. The result is a snapshot unless it is the model itself: prepare again after changes.

    On a CPU the compiled library runs float32, int8, int4 and bfloat16 if it supports the model. Otherwise:

    Args:
        model: an encoder-decoder, or a decoder alone.
        compute: "float32" and "torch" return the model itself; "float16" a copy in float16; "bfloat16" a copy in
            bfloat16, on a CPU one with `rounded` weights. "int8" and "int4" need the library.

    Raises:
        UserError: int8 or int4 for a model that the library does not support.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    if compute == "float16" or (compute == "bfloat16" and not on_cpu):
        return _converted(model, HALF[compute]).eval()
    if compute != "torch" and on_cpu and native_available(model):
        return pack_network(model, compute)
    if compute == "bfloat16":
        return rounded(model)
    if compute in INTEGERS:
        raise _no_integers(model, compute, on_cpu)
    return model


def _converted(model: AnyTransformer, dtype: torch.dtype) -> AnyTransformer:
    if all(parameter.dtype == dtype for parameter in model.parameters()):
        return model
    return copy.deepcopy(model).to(dtype).requires_grad_(False)


@torch.no_grad()
def rounded(model: AnyTransformer) -> AnyTransformer:
    """A copy that computes in torch what the library computes in bfloat16.

    Arithmetic is float32. Weight matrices and embeddings are rounded; positions, norms and biases are not.
    """
    copied = copy.deepcopy(model).float().requires_grad_(False).eval()
    modules: list[tuple[str, Any]] = list(copied.named_modules())
    for name, module in modules:
        if isinstance(module, nn.Linear) or name.endswith("embeddings.tokens"):
            module.weight.copy_(module.weight.bfloat16())
    return copied


def _no_integers(model: AnyTransformer, compute: str, on_cpu: bool) -> UserError:
    if not on_cpu:
        what = f"decode.compute = {compute} is for a CPU"
        return UserError(f"{what}: choose --device cpu, or bfloat16 to stay on this device")
    lacks = unsupported_module(model)
    why = f"lacks a part of this network ({lacks})" if lacks else absence()
    return UserError(f"compute = {compute} is computed by the compiled library, which {why}; leave it out")
