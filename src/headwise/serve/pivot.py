"""Translation through a third language (pivoting), for language pairs without a model of their own.

The glossaries of the server apply in each of the two steps. See `router` for the language pairs that are served.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwise.documents.segments import SentenceTranslation
from headwise.errors import UserError
from headwise.serve.models import SentenceOptions, ServedModel
from headwise.text.files.links import compose_links
from headwise.text.language_codes import LanguagePair, base_language


@dataclass(frozen=True)
class PivotModel:
    """Two models as one: the second translates what the first has translated into a third language."""

    first: ServedModel
    second: ServedModel
    pair: LanguagePair  # of source and target
    pivots: LanguagePair  # codes of the third language: of the first model, and of the second

    @property
    def is_loaded(self) -> bool:
        """Whether both models are in memory."""
        return self.first.is_loaded and self.second.is_loaded

    @property
    def supports_markers(self) -> bool:
        """Whether both were trained on markers for placeholders."""
        return self.first.supports_markers and self.second.supports_markers

    @property
    def most_waiting(self) -> int:
        """The number of queued sentences beyond which new requests are rejected."""
        return min(self.first.most_waiting, self.second.most_waiting)

    async def ask(
        self, sentences: Sequence[str], options: SentenceOptions, answered: Callable[[], None] = lambda: None
    ) -> list[SentenceTranslation]:
        """Translate sentences; `answered` is called for each when it has its final translation."""
        before, after = self._steps(options)
        between = await self.first.ask(sentences, before)
        found = await self.second.ask([one.text for one in between], after, answered)
        return [_joined(*both) for both in zip(between, found, strict=True)]

    async def answers(
        self, sentences: Sequence[str], options: SentenceOptions
    ) -> AsyncGenerator[SentenceTranslation, None]:
        """The translations of sentences in order, after all of them are translated."""
        for one in await self.ask(sentences, options):
            yield one

    def _steps(self, options: SentenceOptions) -> tuple[SentenceOptions, SentenceOptions]:
        """The options of both models; `UserError` for terms of a request that the third language would need, too."""
        if term := next((term for term in options.terms if term[0] != term[1]), None):
            raise UserError(
                f"Invalid request: glossary: {'-'.join(self.pair)} is translated through {self.pivots[0]}, where "
                f"'{term[0]}' has no translation; use keep, or translate in two requests"
            )
        source, target = self.pair
        before = replace(options, source=source, target=self.pivots[0], prefix="", n_best=1)
        return before, replace(options, source=self.pivots[1], target=target)


def pivot_models(models: Mapping[LanguagePair, ServedModel], language: str) -> dict[LanguagePair, PivotModel]:
    """The further pairs that are possible through a language.

    Args:
        models: of pairs that are translated directly.
        language: code of the third language; regions and scripts are ignored.

    Raises:
        UserError: no pair of models meets in this language.
    """
    wanted = base_language(language)
    into = [pair for pair in models if base_language(pair[1]) == wanted]
    from_ = [pair for pair in models if base_language(pair[0]) == wanted]
    found = {
        (first[0], second[1]): PivotModel(models[first], models[second], (first[0], second[1]), (first[1], second[0]))
        for first in into
        for second in from_
        if base_language(first[0]) != base_language(second[1]) and (first[0], second[1]) not in models
    }
    if not found:
        raise UserError(
            f"--pivot {language}: no pair is translated through it; serve one model into {language} and one from it"
        )
    return found


def _joined(first: SentenceTranslation, second: SentenceTranslation) -> SentenceTranslation:
    """Probabilities are those of both steps, so the log-probability is a lower bound."""
    return replace(
        second,
        source=first.source,
        score=first.score + second.score,
        log_prob=first.log_prob + second.log_prob,
        n_tokens=(first.n_tokens[0], second.n_tokens[1]),
        alternatives=tuple(replace(other, score=first.score + other.score) for other in second.alternatives),
        links=None if first.links is None or second.links is None else compose_links(first.links, second.links),
    )
