"""Translation through a third language (pivoting), and the word links of translations.

The server queues sentences for each of the two models; see `serve.pivot`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise, tee
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.documents.markup.markers import supports_markers
from headwise.errors import UserError
from headwise.runtime.search.translator import Translation
from headwise.text.files.links import Links, compose_links
from headwise.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class PivotTranslation(Translation):
    """A translation through a third language."""

    between: str = ""  # the text in that language


class PivotTranslator:
    """Two translation models as one."""

    def __init__(self, first: Any, second: Any) -> None:
        """Both as `models.translation.translator.Translator`; the second reads the language that the first writes."""
        self.first, self.second = first, second

    @property
    def decode_config(self) -> SearchSettings:
        """The default search settings of the second model."""
        return self.second.decode_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a model without placeholder markers if there is one, because markers must pass both."""
        return min((self.first.tokenizer, self.second.tokenizer), key=supports_markers)

    def translate(self, texts: Sequence[str], prefix: str = "", **settings: Any) -> list[PivotTranslation]:
        """Translate each text; `settings` as for `Translator.translate`, for both models.

        The prefix and the number of alternatives are those of the second model. Log-probabilities and scores are sums.
        """
        firsts = self.first.translate(texts, **settings | {"n_best": 1})
        seconds = self.second.translate([one.text for one in firsts], prefix, **settings)
        return [_joined(*both) for both in zip(firsts, seconds, strict=True)]

    def translate_lines(self, lines: Iterable[str], prefix: str = "", **settings: Any) -> Iterator[PivotTranslation]:
        """`translate` for a stream of lines."""
        firsts, again = tee(self.first.translate_lines(lines, **settings | {"n_best": 1}))
        seconds = self.second.translate_lines((one.text for one in again), prefix, **settings)
        for first, second in zip(firsts, seconds, strict=True):
            yield _joined(first, second)


def links_of(model: Any, sources: Sequence[str], translations: Sequence[Translation]) -> list[Links | None]:
    """The word links of translations by a model, or by a `PivotTranslator`, which are composed of those of its models.

    None for a text that was translated in parts, and for all texts if the model has no cross-attention.
    """
    whole = [one.parts == 1 for one in translations]
    texts = [list(sources), [one.text for one in translations]]
    models = [model]
    if isinstance(model, PivotTranslator):
        models = [model.first, model.second]
        texts.insert(1, [one.between for one in translations if isinstance(one, PivotTranslation)])
    texts = [[text if is_whole else "" for text, is_whole in zip(side, whole, strict=True)] for side in texts]
    try:
        steps = [one.align(*sides) for one, sides in zip(models, pairwise(texts), strict=True)]
    except (UserError, ImportError, AttributeError):  # without cross-attention, or without torch
        return [None] * len(whole)
    return [reduce(compose_links, links) if is_whole else None for is_whole, *links in zip(whole, *steps, strict=True)]


def _joined(first: Translation, second: Translation) -> PivotTranslation:
    return PivotTranslation(
        text=second.text,
        score=first.score + second.score,
        log_prob=first.log_prob + second.log_prob,
        pieces=second.pieces,
        token_log_probs=second.token_log_probs,
        source_pieces=first.source_pieces,
        parts=max(first.parts, second.parts),
        alternatives=tuple(_joined(first, other) for other in second.alternatives),
        between=first.text,
    )
