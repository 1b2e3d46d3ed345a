"""Networks that read pictures (ViT, DeiT). Not here: image files (`headwise.data.image`)."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.data.image import Preprocessing, read_image
from headwise.data.pictures import check_picture_labels, read_pictures
from headwise.evaluate.classes import LabelReport, label_report
from headwise.generation.picture_labels import Label, label_picture
from headwise.inspect.importance import Example
from headwise.inspect.inputs import EncodedInput
from headwise.models.inputs import encoded_picture, label_number, labelled, preprocessing_of
from headwise.models.introspection import (
    attend_input,
    input_head_importance,
    inspect_input,
    mask_model_heads,
    prune_model,
    trace_input,
)
from headwise.models.model import Model, only_with


class VisionModel(Model):
    """An encoder of patches (ViT, DeiT): it labels pictures."""

    does = "reads pictures"
    reads = "picture"
    usual_task = "label"
    attend, trace, look_inside = attend_input, trace_input, inspect_input
    mask_heads, prune = mask_model_heads, prune_model
    head_importance = only_with("image_class")(input_head_importance)

    @only_with("image_class")
    def label(self, picture: str | Path, top: int = 5) -> list[Label]:
        pixels = read_image(picture, self.preprocessing)
        return label_picture(self.network, pixels, self._names, min(top, self.config.n_classes))

    @only_with("image_class")
    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on folders or tables of pictures (`data.pictures`); `UserError` for an unknown label."""
        pictures = read_pictures(paths)
        check_picture_labels(pictures, list(self._names.values()))
        found = [self.label(picture.path, top=1)[0].name for picture in pictures]
        return label_report([picture.label for picture in pictures], found)

    @property
    def _names(self) -> dict[int, str]:
        return {int(i): name for i, name in (self.hf_config.get("id2label") or {}).items()}

    def observed(self, given: str | Path) -> EncodedInput:
        """An image file as the inspector reads it."""
        return encoded_picture(self, given, self.preprocessing)

    def example(self, given: str | Path, target: Any) -> Example:
        """An image file and its label, with their loss."""
        return labelled(self.observed(given).values, label_number(self, target))

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How a picture is resized and normalised for the network."""
        return preprocessing_of(self)
