"""The served models: their languages, loading on the first request, and unloading when idle.

Each model has one thread (`batching`), in which it is loaded, translates and is unloaded. See `translation` for texts
of several sentences.
"""

import gc
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headwise.documents.glossary.terms import Glossary, Term
from headwise.documents.glossary.translation import MIN_BEAM_SIZE
from headwise.documents.markup.markers import supports_markers
from headwise.documents.pivot import links_of
from headwise.documents.segments import SentenceTranslation
from headwise.errors import UserError
from headwise.models.translation.target_language import language_arguments
from headwise.runtime.search.translator import Translation, clean_text
from headwise.serve.batching import Batcher, BatchSettings, estimate_tokens
from headwise.serve.cache import SentenceCache
from headwise.text.files.links import Links
from headwise.text.language_codes import LanguagePair, language_pair_of

MAX_PREFIX_TOKENS = 200  # every sentence of a request gets the prefix


@dataclass(frozen=True)
class SentenceOptions:
    """The options of a sentence; the sentences of a batch share them."""

    source: str
    target: str
    prefix: str = ""  # forced start of the translation
    n_best: int = 1
    aligned: bool = False  # with word alignment
    terms: tuple[tuple[str, str], ...] = ()  # glossary: sources and targets


@runtime_checkable
class PairModel(Protocol):
    """A model for a language pair, or two models that translate through a third language (`pivot`)."""

    @property
    def is_loaded(self) -> bool: ...  # whether it is in memory

    @property
    def supports_markers(self) -> bool: ...  # whether it was trained on markers for placeholders

    @property
    def most_waiting(self) -> int: ...  # queued sentences beyond which new requests are rejected

    def answers(  # in order, each as soon as it is ready
        self, sentences: Sequence[str], options: SentenceOptions
    ) -> AsyncGenerator[SentenceTranslation, None]: ...

    async def ask(  # all at once; `answered` is called for each as soon as it and those before it are ready
        self, sentences: Sequence[str], options: SentenceOptions, answered: Callable[[], None] = lambda: None
    ) -> list[SentenceTranslation]: ...


@dataclass
class ServedModel:
    """A model and its queue."""

    path: Path
    language_pairs: tuple[LanguagePair, ...]
    load: Callable[[str], Any]  # loads a model from its path
    settings: Mapping[str, Any] = field(default_factory=dict)  # search settings
    model: Any = None
    glossaries: Mapping[LanguagePair, Glossary] = field(default_factory=dict)  # of all requests
    queue: Batcher | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether it is in memory."""
        return self.model is not None

    @property
    def supports_markers(self) -> bool:
        """Whether it was trained on markers for placeholders; False while it is not loaded."""
        return self.model is not None and supports_markers(self.model.tokenizer)

    @property
    def most_waiting(self) -> int:
        """The number of queued sentences beyond which new requests are rejected; 0 before the server has started."""
        return self.queue.most_waiting if self.queue else 0

    def answers(self, sentences: Sequence[str], options: SentenceOptions) -> AsyncGenerator[SentenceTranslation, None]:
        """The translations of sentences in order, each as soon as it is ready (`Batcher.answers`)."""
        return self._opened().answers(sentences, options, self.hypotheses(options))

    async def ask(
        self, sentences: Sequence[str], options: SentenceOptions, answered: Callable[[], None] = lambda: None
    ) -> list[SentenceTranslation]:
        """All translations at once (`Batcher.ask`)."""
        return await self._opened().ask(sentences, options, self.hypotheses(options), answered)

    def _opened(self) -> Batcher:
        assert self.queue, "the server has not started"
        return self.queue

    def caches(self, options: SentenceOptions) -> bool:
        """Whether sentences with these options are cached: not if sampled, or with glossaries, which can be large."""
        return not (options.terms or getattr(getattr(self.model, "decode_config", None), "sample", False))

    def open(
        self,
        batching: BatchSettings,
        done: Callable[[int, float], None],
        looked_up: Callable[[bool], None] = lambda is_hit: None,
    ) -> None:
        """Start accepting sentences; call on the event loop, and `close` at the end."""
        cache = SentenceCache(batching.cached, self.caches, looked_up)
        self.queue = Batcher(self.translate, batching, done, self.unload, cache, self.count_tokens)

    async def close(self) -> None:
        """Stop accepting sentences."""
        if self.queue:
            await self.queue.close()

    def unload(self) -> None:
        """Unload it until the next request."""
        self.model = None
        gc.collect()

    def hypotheses(self, options: SentenceOptions) -> int:
        """The number of hypotheses per sentence, as far as known before loading."""
        default = getattr(getattr(self.model, "decode_config", None), "beam_size", 1)
        return max(options.n_best, int(self.settings.get("beam_size", default)), MIN_BEAM_SIZE if options.terms else 1)

    def count_tokens(self, sentences: Sequence[str]) -> list[int]:
        """The source tokens of each sentence with its end; estimated while the model is not loaded."""
        model = self.model
        if model is None:
            return estimate_tokens(sentences)
        return [len(tokens) + 1 for tokens in model.tokenizer.source.encode_batch(list(map(clean_text, sentences)))]

    def translate(self, sentences: list[str], options: SentenceOptions) -> list[SentenceTranslation]:
        """Translate sentences, in the thread of the model."""
        model = self.model = self.model or self._load()
        _check_prefix(model, options.prefix)
        languages = language_arguments(model, options.source, options.target)
        settings = {**self.settings, **({"n_best": options.n_best} if options.n_best > 1 else {}), **languages}
        if terms := self._terms(sentences, options):
            settings["glossary"] = Glossary(terms)
        outputs = model.translate(sentences, prefix=options.prefix, **settings)
        links: list[Links | None] = [None] * len(outputs)
        if options.aligned:
            links = links_of(model.between(**languages) if languages else model, sentences, outputs)
        return [
            SentenceTranslation(
                one.text,
                one.score,
                one.log_prob,
                alternatives=tuple(Translation(other.text, other.score) for other in one.alternatives),
                source=text,
                n_tokens=(len(one.source_pieces), len(one.pieces)),
                links=found,
            )
            for text, one, found in zip(sentences, outputs, links, strict=True)
        ]

    def _terms(self, sentences: Sequence[str], options: SentenceOptions) -> list[Term]:
        """The terms of the request, and those of the stored glossary for other words of the sentences."""
        terms = [Term(source, target) for source, target in options.terms]
        if stored := self.glossaries.get((options.source, options.target)):
            requested = {term.source.casefold() for term in terms}
            found = dict.fromkeys(match.term for text in sentences for match in stored.matches(text))
            terms += [term for term in found if term.source.casefold() not in requested]
        return terms

    def _load(self) -> Any:
        try:
            return self.load(str(self.path))
        except UserError as error:
            raise ModelUnavailable(f"{self.path}: {error}") from error


def _check_prefix(model: Any, prefix: str) -> None:
    tokens = len(model.tokenizer.encode(prefix)) if prefix else 0
    if tokens > MAX_PREFIX_TOKENS:
        raise UserError(f"Invalid request: prefix has {tokens} tokens, {MAX_PREFIX_TOKENS} at most")


class ModelUnavailable(UserError):
    """A model can no longer be loaded; the message is for the operator."""


def load_served_models(
    paths: Sequence[str],
    language_pairs: Sequence[LanguagePair],
    load: Callable[[str], Any],
    settings: Mapping[str, Any],
    keep: bool,
) -> list[ServedModel]:
    """Load each model once to check it, and find its language pairs.

    Args:
        paths: folders.
        language_pairs: all pairs of a single model, or one pair for each of several; empty: from the folders.
        load: loads a model from its path.
        settings: search settings.
        keep: keep the models in memory.

    Raises:
        UserError: a model cannot be loaded or does not translate, or its languages are unknown.
    """
    if language_pairs and len(paths) > 1 and len(language_pairs) != len(paths):
        raise UserError(
            f"--languages has {len(language_pairs)} pairs for {len(paths)} models; give one for each, in the same order"
        )
    models: list[ServedModel] = []
    for number, path in enumerate(paths):
        model = load(path)
        known = _language_pairs(model, language_pairs if len(paths) == 1 else language_pairs[number : number + 1], path)
        for source, target in known:
            if language_arguments(model, source, target):
                model.between(source, target)  # a `UserError` for unknown languages
            _check_duplicate(models, source, target, path)
        models.append(ServedModel(Path(path), known, load, settings, model if keep else None))
    return models


def _language_pairs(model: Any, given: Sequence[LanguagePair], path: str) -> tuple[LanguagePair, ...]:
    own = language_pair_of(model) if not given else None
    if not (given or own):
        raise UserError(f"{path}: its languages are unknown; add --languages, such as --languages en-de")
    return (own,) if own else tuple(given)


def _check_duplicate(models: Sequence[ServedModel], source: str, target: str, path: str) -> None:
    for other in models:
        if (source, target) in other.language_pairs:
            raise UserError(f"{path}: {other.path} also translates {source}-{target}; serve only one of them")
