"""The forms of a Transformer that decoding asks for: itself, in half precision, in the compiled library, or for torch.

All keep the contract of the model they come from; what makes each faster is in its own file (`native_inference`,
`inference`).
"""

import copy
import warnings
from typing import Any

import torch

from sightline.errors import UserError
from sightline.network.native_inference import NativeTransformer, foreign, native_available
from sightline.network.plain import is_plain
from sightline.network.transformer import Transformer

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class PreparedForms:
    """The forms of one model that decoding asks for, each made when first asked for and kept."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._forms: dict[str, tuple[int, Any]] = {}

    def __call__(self, compute: str) -> Any:
        """The form for `compute`, as `prepare_for_inference` makes it; a new one if the model was changed since."""
        version = sum(0 if p.is_inference() else p._version for p in self._model.parameters())
        known, form = self._forms.get(compute, (None, None))
        if form is None or known != version:
            form = prepare_for_inference(self._model, compute)
            self._forms[compute] = (version, form)
        return form


def prepare_for_inference(model: Transformer, compute: str = "float32") -> Any:
    """The same model for decoding only, a snapshot: later changes to `model` need a new one.

    Args:
        model: whichever of our Transformers; stays as it is and shares what it can.
        compute: "float32", equal to the model but for rounding; "int8", on a CPU only, faster and smaller;
            "bfloat16" or "float16", a copy of the model in these numbers. On a CPU the first two are for the compiled
            library where there is one, for torch where not; without the instructions for int8, torch gets float32 and
            a warning. On CUDA float32 is the model itself.

    Raises:
        UserError: int8 for a model that is not on a CPU.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    if compute in HALF:
        return copy.deepcopy(model).to(HALF[compute]).requires_grad_(False).eval()
    if compute == "int8" and not on_cpu:
        raise UserError("decode.compute = int8 is for a CPU: choose --device cpu, or bfloat16 to stay on this device")
    if on_cpu and native_available(model):
        return NativeTransformer(model, compute)
    if not (on_cpu and is_plain(model)):
        return _in_float32(model, compute)
    from sightline.network.inference import InferenceTransformer  # where there is no library
    from sightline.network.quantized import int8_available

    if compute == "int8" and not int8_available():
        warnings.warn("this processor or this torch has no int8 matrix products: float32 is used", stacklevel=2)
        compute = "float32"
    with torch.no_grad():
        return InferenceTransformer(model, compute)


def _in_float32(model: Transformer, compute: str) -> Transformer:
    """The model itself, which computes with what it has; `UserError` where 8 bits are asked of it."""
    if compute == "int8":
        lacks = foreign(model)
        why = f"lacks a part of this network ({lacks})" if lacks else "is not here: it needs AVX2 or a 64-bit ARM"
        raise UserError(f"compute = int8 is computed by the compiled library, which {why}; leave it out")
    return model
