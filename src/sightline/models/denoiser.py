"""A model trained to denoise."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.checkpoint.folder import Folder
from sightline.config.settings import longest_sequence, meaningful
from sightline.data.noise import MASK
from sightline.decode.translator import Translation, Translator
from sightline.models.model import Model
from sightline.models.pairs import HeadVerbs
from sightline.network.parameters import count_parameters

if TYPE_CHECKING:
    from sightline.inspect.heads import Head


class Denoiser(HeadVerbs, Model):
    """A model of this task; made by `sightline.load`. To go on with it is what it is for: `train(init=...)`."""

    does = "restores texts, and a translator starts from it (`sightline train --init`)"
    reads = "pairs"

    def __init__(self, directory: Folder) -> None:
        self.path = directory.path
        self.tokenizer = directory.tokenizer
        self.config = directory.config
        self.about = directory.about
        self.network = directory.network

    def restore(self, texts: Sequence[str], **overrides: Any) -> list[Translation]:
        """Each text with words in the place of every `<mask>`, as many as the model finds fitting.

        >>> model.restore(["A dog <mask> grass."])[0].text  # doctest: +SKIP
        'A dog runs through the grass.'
        """
        translator = Translator(self.network, self.tokenizer, self.config.decode, longest_sequence(self.config.model))
        masked = re.compile(rf"\s*{MASK}\s*")  # a mask has no blanks beside it: they belong to the words
        return translator.translate([masked.sub(MASK, text) for text in texts], **overrides)

    def head_importance(self, masked: Sequence[str], texts: Sequence[str]) -> "dict[Head, float]":
        """How much the loss of these texts, given what is left of them, would change with each head."""
        from sightline.inspect.importance import head_importance

        return head_importance(self.network, self.tokenizer, masked, texts)

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        return {
            "parameters": count_parameters(self.network),
            "vocabulary": self.tokenizer.vocab_size,
            **self.about,
            **meaningful(self.config),
        }
