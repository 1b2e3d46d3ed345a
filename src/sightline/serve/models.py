"""The models that are served: for which languages, loaded when first asked and given up when nobody asks any more.

Each has one thread (`batching`), in which it is loaded, translates and is given up. Not here: texts of more than a
sentence (`answering`).
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.config.settings import SearchSettings
from sightline.errors import UserError
from sightline.generation.languages import CODED
from sightline.glossary.translation import MIN_BEAM_SIZE
from sightline.localisation.fill import supports_markers
from sightline.serve.batching import Batcher, BatchSettings
from sightline.serve.languages import LanguagePair, language_name, language_pair_of


@dataclass(frozen=True)
class SentenceOptions:
    """What is asked of a sentence beside its translation; sentences of one batch agree in it."""

    source: str
    target: str
    prefix: str = ""  # what the translation must begin with
    n_best: int = 1
    aligned: bool = False  # which word came from which
    terms: tuple[tuple[str, str], ...] = ()  # a glossary: how they are translated


@dataclass(frozen=True)
class SentenceTranslation:
    """One sentence, translated."""

    source: str
    text: str
    score: float  # as `Translation.score`
    log_prob: float
    n_pieces: tuple[int, int]  # read and written
    alternatives: tuple[tuple[str, float], ...] = ()  # texts and their scores
    alignment: tuple[tuple[int, int], ...] | None = None  # words by their numbers, where it was asked for


@dataclass
class ServedModel:
    """One model and its line."""

    path: Path
    directions: tuple[LanguagePair, ...]
    load: Callable[[str], Any]  # a model from its path
    settings: Mapping[str, Any] = field(default_factory=dict)  # of decoding
    model: Any = None
    line: Batcher | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self.model is not None

    @property
    def knows_marks(self) -> bool:
        """Whether it has learnt the marks that stand for placeholders; not while it is not in memory."""
        return self.model is not None and supports_markers(self.model.tokenizer)

    def open(self, pace: BatchSettings, done: Callable[[int, float], None]) -> None:
        """Begin to take sentences; to be called on the event loop, and `close` in the end."""
        self.line = Batcher(self.translate, pace, done, self.give_up)

    async def close(self) -> None:
        """No more sentences."""
        if self.line:
            await self.line.close()

    def give_up(self) -> None:
        """Out of memory with it, until somebody asks."""
        self.model = None
        gc.collect()

    def hypotheses(self, wish: SentenceOptions) -> int:
        """How many are searched at once for a sentence, as far as that is known before the model is loaded."""
        usual = getattr(getattr(self.model, "decode_config", None), "beam_size", 1)
        return max(wish.n_best, int(self.settings.get("beam_size", usual)), MIN_BEAM_SIZE if wish.terms else 1)

    def translate(self, sentences: list[str], wish: SentenceOptions) -> list[SentenceTranslation]:
        """In the model's thread."""
        model = self.model = self.model or self._load()
        said, mark = language_arguments(model, wish.source, wish.target)
        settings = {**self.settings, **({"n_best": wish.n_best} if wish.n_best > 1 else {}), **said}
        if wish.terms:
            settings["glossary"] = _check_glossary_support(model, wish.terms)
        found = model.translate([mark + text for text in sentences], prefix=wish.prefix, **settings)
        links = self._links(model, sentences, found, said) if wish.aligned else [None] * len(found)
        return [
            SentenceTranslation(
                source=text,
                text=one.text,
                score=one.score,
                log_prob=one.log_prob,
                n_pieces=(len(one.source_pieces), len(one.pieces)),
                alternatives=tuple((other.text, other.score) for other in one.alternatives),
                alignment=pairs,
            )
            for text, one, pairs in zip(sentences, found, links, strict=True)
        ]

    def _links(self, model: Any, sentences: Sequence[str], found: Sequence[Any], said: Mapping[str, str]) -> list[Any]:
        """None where a sentence was translated in parts, which no attention sees whole, or the model has none."""
        asked = model.between(**said) if said else model
        whole = [one.parts == 1 for one in found]
        sources = [text if all_of_it else "" for text, all_of_it in zip(sentences, whole, strict=True)]
        targets = [one.text if all_of_it else "" for one, all_of_it in zip(found, whole, strict=True)]
        try:
            links = asked.align(sources, targets)
        except (UserError, ImportError, AttributeError):  # of a model without such attention, or without torch
            return [None] * len(found)
        return [tuple(sorted(pairs)) if all_of_it else None for pairs, all_of_it in zip(links, whole, strict=True)]

    def _load(self) -> Any:
        try:
            return self.load(str(self.path))
        except UserError as error:
            raise ModelUnavailable(f"{self.path}: {error}") from error


def _check_glossary_support(model: Any, terms: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Terms, if the model can keep to them."""
    if not isinstance(model.decode_config, SearchSettings):
        raise UserError("glossary and keep are for models that were trained here, and this is a published one")
    return terms


class ModelUnavailable(UserError):
    """A model can no longer be loaded; the message is for the operator."""


def language_arguments(model: Any, source: str, target: str) -> tuple[dict[str, str], str]:
    """How a model of many languages is told which: arguments of its verbs, and what stands before a text.

    A model of one pair is told nothing. One of ours that was trained with tokens such as `<2de>` gets that one.
    """
    if hasattr(model, "between"):
        both = {"source_language": source, "target_language": target}
        if model.languages.family in CODED:
            return both, ""
        try:
            model.languages.encode("", source, target)
        except UserError:  # it has no words for it, as a model of one pair
            return {}, ""
        return both, ""
    tag = f"<2{target}>"
    return {}, f"{tag} " if tag in getattr(model.tokenizer, "declared", {}).values() else ""


def load_served_models(
    paths: Sequence[str],
    said: Sequence[LanguagePair],
    load: Callable[[str], Any],
    settings: Mapping[str, Any],
    keep: bool,
) -> list[ServedModel]:
    """Models with their directions; each is loaded once to see that it can be, and stays so to `keep`.

    Args:
        paths: folders.
        said: for one model all that it translates, for several one each, in their order; empty: what their folders say.
        load: a model from its path.
        settings: of decoding.

    Raises:
        UserError: a model cannot be loaded, does not translate, or nobody knows which languages.
    """
    if said and len(paths) > 1 and len(said) != len(paths):
        raise UserError(f"--languages has {len(said)} pairs for {len(paths)} models: give one for each, in their order")
    found: list[ServedModel] = []
    for number, path in enumerate(paths):
        model = load(path)
        known = _language_pairs(model, said if len(paths) == 1 else said[number : number + 1], path)
        for source, target in known:
            if language_arguments(model, source, target)[0]:
                model.between(source, target)  # which refuses a language that it does not know
            _check_duplicate(found, source, target, path)
        found.append(ServedModel(Path(path), known, load, settings, model if keep else None))
    return found


def _language_pairs(model: Any, said: Sequence[LanguagePair], path: str) -> tuple[LanguagePair, ...]:
    own = language_pair_of(model) if not said else None
    if not (said or own):
        raise UserError(f"{path}: does not say which languages it translates; say so: --languages en-de")
    return (own,) if own else tuple(said)


def _check_duplicate(found: Sequence[ServedModel], source: str, target: str, path: str) -> None:
    for other in found:
        if (source, target) in other.directions:
            raise UserError(f"{path}: {other.path} translates {source}-{target} already; serve one of them")


class ModelRouter:
    """All that is served, by languages."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = tuple(models)
        self.by_direction = {direction: model for model in models for direction in model.directions}
        self.sources = tuple(dict.fromkeys(source for source, _ in self.by_direction))
        self.targets = tuple(dict.fromkeys(target for _, target in self.by_direction))
        self.codes = tuple(dict.fromkeys(code for direction in self.by_direction for code in direction))

    def find(self, source: str, target: str) -> ServedModel:
        """The model for a direction; `UserError` in LibreTranslate's words where there is none."""
        if (source, target) in self.by_direction:
            return self.by_direction[source, target]
        for code in (source, target):
            if code not in self.codes:
                raise UserError(f"{code} is not supported")
        named = f"{language_name(target)} ({target}) is not available as a target language"
        raise UserError(f"{named} from {language_name(source)} ({source})")

    def languages(self) -> list[dict[str, object]]:
        """As LibreTranslate lists them: every language, and what can be written of a text in it."""
        return [
            {
                "code": code,
                "name": language_name(code),
                "targets": [to for from_, to in self.by_direction if from_ == code],
            }
            for code in self.codes
        ]
