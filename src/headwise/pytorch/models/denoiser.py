"""A model trained to denoise."""

import re
from collections.abc import Sequence
from typing import Any

from headwise.config.model import longest_sequence
from headwise.models.introspection import PrunableModel
from headwise.pytorch.inspect.heads import Head
from headwise.pytorch.inspect.importance import head_importance
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.translator import TextTranslator, Translation
from headwise.text.prepared.noise import MASK


class Denoiser(PrunableModel):
    """An encoder-decoder that restores texts; a translator can be fine-tuned from it (`train(init=...)`)."""

    does = "restores texts, and a translator starts from it (`headwise train --init`)"
    reads = "pairs"
    usual_task = "denoise"

    def restore(self, texts: Sequence[str], **overrides: Any) -> list[Translation]:
        """Each text with words in the place of every `<mask>`; the model decides how many.

        >>> model.restore(["A dog <mask> grass."])[0].text  # doctest: +SKIP
        'A dog runs through the grass.'
        """
        translator = TextTranslator(
            engine_of(self.network), self.tokenizer, self.config.decode, longest_sequence(self.config.model)
        )
        masked = re.compile(rf"\s*{MASK}\s*")  # blanks around a mask belong to the words in its place
        return translator.translate([masked.sub(MASK, text) for text in texts], **overrides)

    def head_importance(self, masked: Sequence[str], texts: Sequence[str]) -> dict[Head, float]:
        """The sensitivity of the loss of `texts`, given their masked versions, to each head."""
        return head_importance(self.network, self.tokenizer, masked, texts)
