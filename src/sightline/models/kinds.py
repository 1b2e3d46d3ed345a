"""A loaded model of a family with the verbs that suit it: what `sightline.load` returns of the Hugging Face layout.

Each verb turns strings (pictures, sound) into what a network takes, hands it to the module that knows how, and turns
the answer back. Not here: networks, files of weights, searches.
"""

from typing import Any

import torch

from sightline.checkpoint.folder import Folder
from sightline.models.family_model import FamilyModel
from sightline.models.pictures import PictureModel
from sightline.models.reading import ReadingModel
from sightline.models.rewriting import RewritingModel
from sightline.models.text import ForwardModel, TextModel
from sightline.network.axes import NetworkConfig


def with_verbs(folder: Folder) -> FamilyModel:
    """The published model in a folder as what it is good for."""
    from sightline.models.xlnet import kind_of_xlnet

    kind: Any = kind_of(folder.config) if isinstance(folder.config, NetworkConfig) else kind_of_xlnet(folder.config)
    return kind(folder.network, folder.config, folder.about, folder.path, torch.device(folder.device))


def kind_of(c: NetworkConfig) -> type[FamilyModel]:
    """The class whose verbs suit a network."""
    if c.front == "patches" and c.decoder is None:
        return PictureModel
    if c.decoder is None and c.head == "masked":
        from sightline.models.masked import MaskedModel  # it is made of what is here

        return MaskedModel
    if c.decoder is None and c.head == "token_class":
        from sightline.models.tagging import TaggingModel  # as above

        return TaggingModel
    if c.decoder is None and c.head == "span":
        from sightline.models.answering import AnsweringModel

        return AnsweringModel
    if c.decoder is None:
        return ReadingModel
    if c.encoder is None:
        return TextModel if c.head == "language" else ForwardModel
    if c.head != "language":
        return FamilyModel
    if c.front == "patches":
        from sightline.models.captions import CaptionModel

        return CaptionModel
    if c.front != "audio":
        return RewritingModel
    from sightline.models.speech import SpeechModel

    return SpeechModel
