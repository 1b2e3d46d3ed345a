"""Translation through a third language (pivoting): the first of two models translates for the second.

See `serve.pivot` for pivoting on the server, which queues sentences for each model.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import tee
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.data.links import Links, compose_links
from headwise.data.tokenizer import Tokenizer
from headwise.decode.translator import Translation
from headwise.localisation.markers import supports_markers


class PivotTranslator:
    """Two translation models as one."""

    def __init__(self, first: Any, second: Any) -> None:
        """Both as `models.translator.Translator`; the second reads the language that the first writes."""
        self.first, self.second = first, second
        self._between: dict[str, str] = {}

    @property
    def decode_config(self) -> SearchSettings:
        """How the second model translates unless a call says otherwise."""
        return self.second.decode_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a model without placeholder markers if there is one, because markers must pass both."""
        return min((self.first.tokenizer, self.second.tokenizer), key=supports_markers)

    def translate(self, texts: Sequence[str], prefix: str = "", **settings: Any) -> list[Translation]:
        """Translate each text; `settings` as for `Translator.translate`, for both models.

        The prefix and the number of alternatives are those of the second model. Log-probabilities and scores are sums.
        """
        firsts = self.first.translate(texts, **settings | {"n_best": 1})
        self._between = {text: one.text for text, one in zip(texts, firsts, strict=True)}
        seconds = self.second.translate([one.text for one in firsts], prefix, **settings)
        return [_joined(*both) for both in zip(firsts, seconds, strict=True)]

    def translate_lines(self, lines: Iterable[str], prefix: str = "", **settings: Any) -> Iterator[Translation]:
        """`translate` for a stream of lines."""
        firsts, again = tee(self.first.translate_lines(lines, **settings | {"n_best": 1}))
        seconds = self.second.translate_lines((one.text for one in again), prefix, **settings)
        for first, second in zip(firsts, seconds, strict=True):
            yield _joined(first, second)

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
        """The word links of translations, composed of those of both models; for texts of the last `translate`."""
        between = [self._between[text] for text in sources]
        links = zip(self.first.align(sources, between), self.second.align(between, targets), strict=True)
        return [compose_links(*both) for both in links]


def _joined(first: Translation, second: Translation) -> Translation:
    alternatives = tuple(_joined(first, other) for other in second.alternatives)
    return replace(
        second,
        score=first.score + second.score,
        log_prob=first.log_prob + second.log_prob,
        source_pieces=first.source_pieces,
        parts=first.parts,
        alternatives=alternatives,
    )
