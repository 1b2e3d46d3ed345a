"""Translation of the untranslated units of a document, with inline codes preserved and with quality warnings.

`segments.py` translates the sentences. If no method preserves the codes of a sentence, its unit loses its markup, or
stays untranslated where a missing or additional code would break programs (`%s`).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from headwise.documents.markup.markers import supports_markers
from headwise.documents.markup.placeholders import is_icu_choice, with_codes
from headwise.documents.pivot import links_of
from headwise.documents.quality_checks import quality_warnings
from headwise.documents.segment_memory import (
    BestMatch,
    MemoryMatch,
    SegmentMemory,
    merge_known,
    recall,
    segment_keys,
)
from headwise.documents.segments import (
    CODES_CHANGED,
    SentenceRequest,
    SentenceTranslation,
    TranslatedSentence,
    translate_segments,
)
from headwise.documents.sentences import SentenceSpan, split_into_sentences
from headwise.documents.unit import Code, Document, Parts, Unit, UnitState, join_parts, without_inline_codes
from headwise.runtime.search.translator import Translation
from headwise.text.tokens.tokenizer import Tokenizer

TOO_LONG = "left untranslated: longer than the file allows"
ICU_CHOICE = "left untranslated: chooses among texts (ICU)"


@runtime_checkable
class TranslatingModel(Protocol):
    """The methods of a translation model that `translate_units` needs; with `align`, codes find their words."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def translate(self, texts: Sequence[str], **overrides: Any) -> Sequence[Translation]: ...


@dataclass(frozen=True)
class TranslatedUnit:
    """A unit with its translation."""

    number: int
    unit: Unit
    target: Parts  # empty if not translated
    log_prob: float = 0.0  # mean natural log per token
    warnings: tuple[str, ...] = ()
    segments: tuple[Parts, ...] = ()  # source segments that were translated or found in a memory


TranslationSteps = Generator[SentenceRequest, list[SentenceTranslation], list[TranslatedUnit]]


def translate_units(
    document: Document,
    model: TranslatingModel,
    language: str = "",
    again: bool = False,
    memory: SegmentMemory | None = None,
    **overrides: Any,
) -> list[TranslatedUnit]:
    """Translate the untranslated units of a document.

    Args:
        document: not changed; see `targets_of`.
        model: a translation model for both languages.
        language: code of the source language, for sentence splitting; "" = rules of English.
        again: also translate units that are fuzzy or translated.
        memory: a translation memory, whose exact matches are used.
        **overrides: settings of `SearchSettings`.
    """
    steps = translation_steps(document, language, supports_markers(model.tokenizer), again, memory is not None)
    try:
        request = next(steps)
        while True:
            if request.is_lookup and memory:
                request = steps.send(look_up(request.texts, memory))
            else:
                request = steps.send(_translate(request, model, overrides))
    except StopIteration as end:
        return end.value


def _translate(
    request: SentenceRequest, model: TranslatingModel, overrides: Mapping[str, Any]
) -> list[SentenceTranslation]:
    outputs = model.translate(request.texts, **overrides)
    links = links_of(model, request.texts, outputs) if request.aligned else [None] * len(outputs)
    pairs = zip(outputs, links, strict=True)
    return [
        SentenceTranslation(one.text, log_prob=one.log_prob, n_tokens=(0, len(one.pieces)), links=alignment)
        for one, alignment in pairs
    ]


def look_up(keys: Sequence[str], memory: SegmentMemory) -> list[SentenceTranslation]:
    """The answer to a request with `is_lookup`."""
    known = memory.known(keys)
    return [SentenceTranslation(known.get(key, "")) for key in keys]


def translation_steps(
    document: Document, language: str, markers: bool, again: bool = False, has_memory: bool = False
) -> TranslationSteps:
    """`translate_units` as a generator: it yields sentences to translate, and the caller sends the translations.

    Args:
        document: as for `translate_units`, like `language` and `again`.
        markers: whether the model was trained on markers (`supports_markers`).
        has_memory: first yield a request with the keys of all segments (`SentenceRequest.is_lookup`).
    """
    units = [(n, unit) for n, unit in enumerate(document.units) if _needs_translation(unit, again)]
    split = [_split(unit, language) for _, unit in units]
    known: dict[str, str] = {}
    if has_memory:
        keys = list(dict.fromkeys(key for _, spans in split for key in segment_keys(spans)))
        found = yield SentenceRequest(keys, is_lookup=True)
        known = {key: output.text for key, output in zip(keys, found, strict=True) if output.text}
    recalled = partial(recall, known=known)
    split = [(before, merge_known(spans, recalled) if known else spans) for before, spans in split]
    sentences = [(span.parts, u.markup) for (_, u), (_, spans) in zip(units, split, strict=True) for span in spans]
    with_parts = [sentence for sentence in sentences if sentence[0]]
    translated = iter((yield from translate_segments(with_parts, markers, recalled)))
    return [_join_unit(n, unit, *spans, translated) for (n, unit), spans in zip(units, split, strict=True)]


def memory_matches(one: TranslatedUnit, best_match: BestMatch) -> list[MemoryMatch]:
    """The best match of a whole unit, or else those of its segments."""
    whole, *segments = matchable_segments(one)
    found = best_match(whole)
    return [found] if found else [match for match in map(best_match, segments) if match]


def matchable_segments(one: TranslatedUnit) -> list[Parts]:
    """The texts of a unit whose matches are of interest: the whole, and its segments."""
    return [with_codes(one.unit.source, one.unit.markup), *one.segments]


def targets_of(units: Sequence[TranslatedUnit]) -> Mapping[int, Parts]:
    """The translations in the form that `Document.filled` takes."""
    return {one.number: one.target for one in units if one.target}


def _needs_translation(unit: Unit, again: bool) -> bool:
    return unit.state is UnitState.UNTRANSLATED or (again and unit.state is not UnitState.KEPT)


def _split(unit: Unit, language: str) -> tuple[str, list[SentenceSpan]]:
    """The sentences of a unit with their codes; none for ICU messages with alternatives."""
    if is_icu_choice(unit.source, unit.markup):
        return "", []
    return split_into_sentences(with_codes(unit.source, unit.markup), language)


def _join_unit(
    number: int, unit: Unit, before: str, spans: Sequence[SentenceSpan], translated: Iterator[TranslatedSentence]
) -> TranslatedUnit:
    if not spans:
        return TranslatedUnit(
            number, unit, (), warnings=(ICU_CHOICE,) if is_icu_choice(unit.source, unit.markup) else ()
        )
    sentences = [next(translated) if span.parts else TranslatedSentence(()) for span in spans]
    parts: list[str | Code] = [before]
    for one, span in zip(sentences, spans, strict=True):
        parts += [*one.parts, span.behind_translation(without_inline_codes(one.parts))]
    target, segments = join_parts(parts), tuple(span.parts for span in spans if span.parts)
    warnings = dict.fromkeys(one.warning for one in sentences if one.warning)
    if CODES_CHANGED in warnings:
        return TranslatedUnit(number, unit, (), warnings=(CODES_CHANGED,), segments=segments)
    if unit.max_length and len(without_inline_codes(target)) > unit.max_length:
        return TranslatedUnit(number, unit, (), warnings=(TOO_LONG,), segments=segments)
    log_prob = sum(one.log_prob for one in sentences) / max(1, sum(one.n_tokens for one in sentences))
    source = join_parts([before, *(part for span in spans for part in (*span.parts, span.behind))])
    quality = quality_warnings(source, target, log_prob)
    return TranslatedUnit(number, unit, target, log_prob, (*warnings, *quality), segments)
