"""Token classification."""

from collections.abc import Sequence
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from sightline.errors import UserError
from sightline.evaluate.entities import TagReport, tag_report
from sightline.generation.label import class_names
from sightline.generation.tag import Tagging, _cut, _known, _tagging, read_words, word_logits
from sightline.models.reading import ReadingModel


class TaggingModel(ReadingModel):
    """An encoder alone with a head for classes of tokens: it says what the words of a text are."""

    does = "tags words"
    usual_task = "tag"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Class i is called so."""
        return class_names(self.hf_config, self.config.n_classes)

    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[Tagging]:
        """The tags of the words of each text, and what they mark with its characters; a text may come cut into words.

        >>> model.tag(["Angela Merkel met Macron."])[0].spans[0].text  # doctest: +SKIP
        'Angela Merkel'
        """
        if isinstance(texts, str):
            raise UserError("tag takes a list of texts, or of lists of words; this is one string")
        cut = [_cut(text) for text in texts]
        words = [[text[start:end] for start, end in places] for text, places in cut]
        there = [one for one in words if one]
        found = iter(word_logits(self.network, self.reader, read_words(self.reader, there), self.device))
        best = [self._best(next(found)) if one else [] for one in words]
        return [_tagging(*one, tags) for one, tags in zip(cut, best, strict=True)]

    def _best(self, logits: Float[Tensor, "words classes"]) -> list[tuple[str, float]]:
        """The likeliest tag of each word, and its probability."""
        highest = logits.softmax(1).max(1)
        return [(self.tags[i], p) for p, i in zip(highest.values.tolist(), highest.indices.tolist(), strict=True)]

    def evaluate(self, paths: Sequence[str]) -> TagReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accuracy and F1 on files of tagged words; `UserError` where a tag is none of the model's."""
        sentences = [one for path in paths for one in _known(path, self.tags)]
        found = self.tag([one.words for one in sentences])
        return tag_report([one.tags for one in sentences], [one.tags for one in found])
