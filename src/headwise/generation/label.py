"""Labels of images (ViT, DeiT), and names of classes.

Not here: image files (`headwise.data.image`), special tokens around a text (`reading`), training (`headwise.tasks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.network.transformer import EncoderOnly

BATCH_TOKENS = 4096  # in a batch


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


def class_names(hf_config: Mapping[str, Any], n_classes: int) -> tuple[str, ...]:
    """The names of classes in config.json; those without one are named as in `transformers`.

    >>> class_names({"id2label": {"1": "good"}}, 2)
    ('LABEL_0', 'good')
    """
    listed = {int(i): str(name) for i, name in (hf_config.get("id2label") or {}).items()}
    return tuple(listed.get(i, f"LABEL_{i}") for i in range(n_classes))
