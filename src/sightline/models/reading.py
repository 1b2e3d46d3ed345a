"""Encoders."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.errors import UserError
from sightline.generation.chat import mark_of, tokenizer_settings
from sightline.generation.fill import Filling, fillings, mask_of
from sightline.generation.label import LabelVerbs
from sightline.generation.reading import longest_text
from sightline.generation.vectors import EmbeddingVerbs, TextEmbedder, text_embedder
from sightline.models.family_model import FamilyModel
from sightline.models.looking import LookVerbs
from sightline.network.halves import EncoderOnly

if TYPE_CHECKING:
    from sightline.evaluate.classes import LabelReport
    from sightline.evaluate.retrieval import RetrievalReport
    from sightline.models.shown import Encoded, Example


class ReadingModel(LabelVerbs, LookVerbs, EmbeddingVerbs, FamilyModel):
    """An encoder alone (BERT, RoBERTa, ...): it embeds texts; given the head for it, it fills in what is masked, or
    says which label a text has.
    """

    network: EncoderOnly
    does = "reads texts"

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the likeliest pieces, the likeliest first; each mask is filled on its own.

        >>> model.fill_mask("A dog [MASK] in the park.")[0][0].text  # doctest: +SKIP
        'plays'

        Raises:
            UserError: no mask in the text, or a model without the head for it.
        """
        if self.config.head != "masked":
            raise UserError(f"{self.path}: was saved without its head for masked tokens; it can only embed")
        return fillings(lambda mask_id: self.network, text, self.path, self.tokenizer, min(top, self.config.vocab_size))

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, paths: Sequence[str]
    ) -> "LabelReport | RetrievalReport":
        """Without a head how often a text of a file finds, by its vector, the one that belongs to it (as `train --task
        embed` reads files); with one for labels accuracy and F1.
        """
        if self.config.head != "none":
            return super().evaluate(paths)
        from sightline.data.related import read_related
        from sightline.generation.vectors import retrieved

        lines = read_related(paths)
        return retrieved(self.embedder, [line[0] for line in lines], [line[1] for line in lines])

    def shown(self, given: str) -> "Encoded":
        """A text, for `attend`."""
        from sightline.models.shown import encoded_text

        return encoded_text(self, given, longest_text(self.config.encoder))

    def example(self, given: str, target: Any) -> "Example":
        """A text, masked here and there, or with its label, for `head_importance`."""
        from sightline.models.shown import label_number, labelled, masked_text

        if self.config.head == "text_class":
            return labelled(self.shown(given).values, label_number(self, target))
        if self.config.head != "masked":
            return super().example(given, target)
        _, mask_id = mask_of(self.tokenizer, mark_of(tokenizer_settings(self.path), "mask_token"))
        return masked_text(self.shown(given).values, self.tokenizer, mask_id)

    def make_embedder(self) -> TextEmbedder:
        """What turns texts into vectors."""
        stack = self.config.encoder
        assert stack
        longest = longest_text(stack)
        return text_embedder(self.network, self.tokenizer, self.hf_config, stack.d_model, longest, self.path)
