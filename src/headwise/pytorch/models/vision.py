"""Networks that read pictures (ViT, DeiT). See `headwise.pytorch.data.image` for image files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.core.transformer import EncoderOnly
from headwise.evaluate.classes import LabelReport, label_report
from headwise.models.introspection import InspectableModel, ModelWithLoss
from headwise.pytorch.data.image import Preprocessing, read_image
from headwise.pytorch.data.pictures import check_picture_labels, read_pictures
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import EncodedInput
from headwise.pytorch.models.inputs import encoded_picture, label_number, labelled, preprocessing_of
from headwise.pytorch.models.model import ModelInTorch


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


class PictureInTorch(ModelInTorch):
    """A `VisionModel` in torch."""

    def observed(self, given: str | Path) -> EncodedInput:
        """An image file as the inspector reads it."""
        return encoded_picture(self.model, given, self.model.preprocessing)

    def example(self, given: str | Path, target: Any) -> Example:
        """An image file and its label, with their loss."""
        return labelled(self.observed(given).values, label_number(self.model, target))


class VisionModel(InspectableModel):
    """An encoder of patches (ViT, DeiT) without a head."""

    does = "reads pictures"
    reads = "picture"
    usual_task = "label"

    def torch(self) -> PictureInTorch:
        """The model in torch."""
        return PictureInTorch(self)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """The settings by which a picture is resized and normalised for the network."""
        return preprocessing_of(self)


class PictureClassifier(VisionModel, ModelWithLoss):
    """An encoder of patches (ViT, DeiT) that labels pictures."""

    def label(self, picture: str | Path, top: int = 5) -> list[Label]:
        """The most probable labels of an image file, best first."""
        pixels = read_image(picture, self.preprocessing)
        return label_picture(self.network, pixels, self._names, min(top, self.config.n_classes))

    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on folders or tables of pictures (`pytorch.data.pictures`); `UserError` for an unknown
        label.
        """
        pictures = read_pictures(paths)
        check_picture_labels(pictures, list(self._names.values()))
        found = [self.label(picture.path, top=1)[0].name for picture in pictures]
        return label_report([picture.label for picture in pictures], found)

    @property
    def _names(self) -> dict[int, str]:
        return {int(i): name for i, name in (self.hf_config.get("id2label") or {}).items()}
