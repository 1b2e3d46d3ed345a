"""Labels of images (ViT, DeiT). Not here: image files (`headwise.data.image`)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.network.transformer import EncoderOnly


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
