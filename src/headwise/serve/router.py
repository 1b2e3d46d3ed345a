"""The model for each language pair, and its translation memory.

See `models` for the models and `pivot` for translation through a third language.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headwise.documents.segment_memory import SegmentMemory
from headwise.errors import UserError
from headwise.serve.models import PairModel, SentenceOptions, ServedModel
from headwise.serve.pivot import pivot_models
from headwise.text.language_codes import LanguagePair, language_name


class ModelRouter:
    """All served models by language pair."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        memories: Mapping[LanguagePair, SegmentMemory] = MappingProxyType({}),
        pivot: str = "",
    ) -> None:
        """With `pivot`, a language, pairs without a model of their own are translated through it."""
        self.models, self.memories = tuple(models), memories
        direct = {pair: model for model in models for pair in model.language_pairs}
        pivots = pivot_models(direct, pivot) if pivot else {}
        self.by_pair: dict[LanguagePair, PairModel] = {**direct, **pivots}
        self.sources = tuple(dict.fromkeys(source for source, _ in self.by_pair))
        self.targets = tuple(dict.fromkeys(target for _, target in self.by_pair))
        self.codes = tuple(dict.fromkeys(code for pair in self.by_pair for code in pair))

    def find(self, source: str, target: str) -> PairModel:
        """The model for a language pair; `UserError` with LibreTranslate's message if there is none."""
        if (source, target) in self.by_pair:
            return self.by_pair[source, target]
        for code in (source, target):
            if code not in self.codes:
                raise UserError(f"{code} is not supported")
        named = f"{language_name(target)} ({target}) is not available as a target language"
        raise UserError(f"{named} from {language_name(source)} ({source})")

    def check_target(self, target: str) -> None:
        """`UserError` if no pair has this target language."""
        if target not in self.targets:
            raise UserError(f"{target} is not supported" if target not in self.codes else f"{target} is no target")

    def memory(self, options: SentenceOptions) -> SegmentMemory | None:
        """The translation memory of a language pair; none for a forced start, which it would ignore."""
        return None if options.prefix else self.memories.get((options.source, options.target))

    def languages(self) -> list[dict[str, object]]:
        """The languages in LibreTranslate's format: each with its possible targets."""
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": [to for from_, to in self.by_pair if from_ == code],
            }
            for code in self.codes
        ]
