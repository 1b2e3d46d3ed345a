"""Labels of images (ViT, DeiT), and names of classes.

Not here: image files (`headwise.data.image`), special tokens around a text (`reading`), training (`headwise.tasks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import UserError, unknown
from headwise.network.transformer import EncoderOnly

BATCH_TOKENS = 4096  # in a batch
ONE, SEVERAL, NUMBER = PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")


@dataclass(frozen=True)
class Label:
    """A possible class of an image."""

    name: str
    number: int  # of the class
    probability: float


@torch.inference_mode()
def label_picture(
    network: EncoderOnly, pixels: Float[Tensor, "channels height width"], names: Mapping[int, str], top: int
) -> list[Label]:
    """The `top` most probable labels, best first; a class without a name is called by its number."""
    logits = network(pixels.unsqueeze(0).to(next(network.parameters())))[0]  # its device, its precision
    best = logits.softmax(-1, dtype=torch.float32).topk(top)
    ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [Label(names.get(i, str(i)), i, probability) for i, probability in ranked]


def problem_type(hf_config: Mapping[str, Any], n_classes: int) -> str:
    """One of `PROBLEMS`: as config.json says, else as `transformers` decides by the number of outputs.

    >>> problem_type({}, 1), problem_type({"problem_type": "multi_label_classification"}, 3)
    ('regression', 'multi_label_classification')

    Raises:
        UserError: an unknown problem type, or one that does not fit the number of outputs.
    """
    named = hf_config.get("problem_type") or (NUMBER if n_classes == 1 else ONE)
    if named not in PROBLEMS:
        raise unknown("problem_type in config.json", str(named), PROBLEMS)
    if (named == NUMBER) != (n_classes == 1) and named != SEVERAL:
        raise UserError(f"config.json: problem_type = {named} does not fit {n_classes} outputs")
    return named


def class_names(hf_config: Mapping[str, Any], n_classes: int) -> tuple[str, ...]:
    """The names of classes in config.json; those without one are named as in `transformers`.

    >>> class_names({"id2label": {"1": "good"}}, 2)
    ('LABEL_0', 'good')
    """
    listed = {int(i): str(name) for i, name in (hf_config.get("id2label") or {}).items()}
    return tuple(listed.get(i, f"LABEL_{i}") for i in range(n_classes))
