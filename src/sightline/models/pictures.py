"""Models of pictures (ViT, DeiT), with their verbs. Not here: image files (`sightline.data.image`)."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.checkpoint.layout import PREPROCESSOR, read_json
from sightline.data.image import Preprocessing, preprocessing_from_hf, read_image
from sightline.errors import UserError
from sightline.evaluate.classes import LabelReport, label_report
from sightline.generation.label import Label, label
from sightline.models.family_model import FamilyModel
from sightline.models.looking import LookVerbs
from sightline.network.halves import EncoderOnly

if TYPE_CHECKING:
    from sightline.models.shown import Encoded, Example


class PictureModel(LookVerbs, FamilyModel):
    """An encoder of patches (ViT, DeiT): it says what a picture shows."""

    reads = "picture"
    network: EncoderOnly
    does = "reads pictures"
    usual_task = "label"

    def label(self, picture: str | Path, top: int = 5) -> list[Label]:
        """The likeliest labels of an image file, the likeliest first.

        Raises:
            UserError: the file cannot be read, or the model was saved without its head.
        """
        if self.config.head != "image_class":
            raise UserError(f"{self.path}: was saved without its head for classes; it names nothing")
        pixels = read_image(picture, self.preprocessing)
        names = {int(i): name for i, name in (self.hf_config.get("id2label") or {}).items()}
        return label(self.network, pixels, names, min(top, self.config.n_classes))

    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on folders or tables of pictures (`data.pictures`); `UserError` for a label it has not."""
        from sightline.data.pictures import check_known, read_pictures

        pictures, known = read_pictures(paths), list((self.hf_config.get("id2label") or {}).values())
        check_known(pictures, known)
        found = [self.label(picture.path, top=1)[0].name for picture in pictures]
        return label_report([picture.label for picture in pictures], found)

    def shown(self, given: str | Path) -> "Encoded":
        """An image file, for `attend`."""
        from sightline.models.shown import encoded_picture

        return encoded_picture(self, given, self.preprocessing)

    def example(self, given: str | Path, target: Any) -> "Example":
        """An image file and its label, for `head_importance`."""
        from sightline.models.shown import label_number, labelled

        if self.config.head != "image_class":
            return super().example(given, target)
        return labelled(self.shown(given).values, label_number(self, target))

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """What is done to a picture before the network sees it."""
        return preprocessing_of(self)


def preprocessing_of(model: FamilyModel) -> Preprocessing:
    """What the folder of a model of pictures says; without that ViT's own, at the size of its pictures."""
    path = model.path / PREPROCESSOR
    if path.is_file():
        return preprocessing_from_hf(read_json(path))
    return Preprocessing(size=model.config.image_size)
