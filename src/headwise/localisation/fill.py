"""Translation of the untranslated units of a document, with inline codes preserved and with quality warnings.

A sentence is translated by up to three methods, until one preserves exactly its codes: with markers, if the model was
trained on them; as it is; and without codes, which are then placed by word alignment. If none does, the unit loses its
markup, or stays untranslated where a missing or additional code would break programs (`%s`).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from headwise.data.links import Links
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.tokenizer import Tokenizer
from headwise.decode.translator import Translation
from headwise.errors import UserError
from headwise.localisation.code_transfer import (
    MARKERS,
    codes_of,
    place_codes,
    restore_copies,
    restore_markers,
    with_markers,
    without_codes,
)
from headwise.localisation.placeholders import adds_codes, is_icu_choice, with_codes
from headwise.localisation.quality_checks import quality_warnings
from headwise.localisation.sentences import SentenceSpan, split_into_sentences
from headwise.localisation.unit import Code, Document, Parts, Unit, UnitState, join_parts, plain, without_inline_codes

PLACED_BY_ALIGNMENT = "placeholders put beside words by alignment"
MARKUP_LOST = "markup lost"
CODES_CHANGED = "left untranslated: a placeholder was lost or added"
ICU_CHOICE = "left untranslated: chooses among texts (ICU)"


@runtime_checkable
class TranslatingModel(Protocol):
    """The methods of a translation model that `translate_units` needs."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def translate(self, texts: Sequence[str], **overrides: Any) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> Sequence[Links]: ...


@dataclass(frozen=True)
class SentenceRequest:
    """Sentences to translate; `aligned` if word alignments are needed."""

    texts: Sequence[str]
    aligned: bool = False


@dataclass(frozen=True)
class SentenceOutput:
    """The translation of a sentence."""

    text: str
    log_prob: float  # natural log
    n_tokens: int  # with the end-of-sequence token
    links: Links | None = None  # word alignment, if requested and available


@dataclass(frozen=True)
class TranslatedUnit:
    """A unit with its translation."""

    number: int
    unit: Unit
    target: Parts  # empty if not translated
    log_prob: float = 0.0  # mean natural log per token
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Transferred:
    """A translated sentence with its codes."""

    parts: Parts
    log_prob: float
    n_tokens: int
    warning: str = ""


TranslationSteps = Generator[SentenceRequest, list[SentenceOutput], list[TranslatedUnit]]


def translate_units(
    document: Document, model: TranslatingModel, language: str = "", again: bool = False, **overrides: Any
) -> list[TranslatedUnit]:
    """Translate the untranslated units of a document.

    Args:
        document: not changed; see `targets_of`.
        model: a translation model for both languages.
        language: code of the source language, for sentence splitting; "" = rules of English.
        again: also translate units that are fuzzy or translated.
        **overrides: settings of `SearchSettings`.
    """
    steps = translation_steps(document, language, supports_markers(model.tokenizer), again)
    try:
        request = next(steps)
        while True:
            request = steps.send(_translate(request, model, overrides))
    except StopIteration as end:
        return end.value


def _translate(request: SentenceRequest, model: TranslatingModel, overrides: Mapping[str, Any]) -> list[SentenceOutput]:
    outputs = model.translate(request.texts, **overrides)
    links: Sequence[Links | None] = [None] * len(outputs)
    if request.aligned and outputs:
        with suppress(UserError, AttributeError):  # a model without cross-attention
            links = model.align(request.texts, [output.text for output in outputs])
    pairs = zip(outputs, links, strict=True)
    return [SentenceOutput(one.text, one.log_prob, len(one.pieces) + 1, alignment) for one, alignment in pairs]


def translation_steps(document: Document, language: str, markers: bool, again: bool = False) -> TranslationSteps:
    """`translate_units` as a generator: it yields sentences to translate, and the caller sends the translations.

    Args:
        document: as for `translate_units`, like `language` and `again`.
        markers: whether the model was trained on markers (`supports_markers`).
    """
    units = [(n, unit) for n, unit in enumerate(document.units) if _needs_translation(unit, again)]
    split = [_split(unit, language) for _, unit in units]
    sentences = [(span.parts, u.markup) for (_, u), (_, spans) in zip(units, split, strict=True) for span in spans]
    translated = iter((yield from _transfer_all([sentence for sentence in sentences if sentence[0]], markers)))
    return [_join_unit(n, unit, *spans, translated) for (n, unit), spans in zip(units, split, strict=True)]


def targets_of(units: Sequence[TranslatedUnit]) -> Mapping[int, Parts]:
    """The translations in the form that `Document.filled` takes."""
    return {one.number: one.target for one in units if one.target}


def _needs_translation(unit: Unit, again: bool) -> bool:
    return unit.state is UnitState.UNTRANSLATED or (again and unit.state is not UnitState.KEPT)


def _split(unit: Unit, language: str) -> tuple[str, list[SentenceSpan]]:
    """The sentences of a unit with their codes; none for ICU messages with alternatives."""
    if is_icu_choice(unit.source):
        return "", []
    return split_into_sentences(with_codes(unit.source, unit.markup), language)


def _join_unit(
    number: int, unit: Unit, before: str, spans: Sequence[SentenceSpan], translated: Iterator[_Transferred]
) -> TranslatedUnit:
    if not spans:
        return TranslatedUnit(number, unit, (), warnings=(ICU_CHOICE,) if is_icu_choice(unit.source) else ())
    sentences = [next(translated) if span.parts else _Transferred((), 0.0, 0) for span in spans]
    parts: list[str | Code] = [before]
    for one, span in zip(sentences, spans, strict=True):
        parts += [*one.parts, span.behind_translation(without_inline_codes(one.parts))]
    target = join_parts(parts)
    warnings = dict.fromkeys(one.warning for one in sentences if one.warning)
    if CODES_CHANGED in warnings:
        return TranslatedUnit(number, unit, (), warnings=(CODES_CHANGED,))
    log_prob = sum(one.log_prob for one in sentences) / max(1, sum(one.n_tokens for one in sentences))
    quality = quality_warnings(with_codes(unit.source, unit.markup), target, log_prob)
    return TranslatedUnit(number, unit, target, log_prob, (*warnings, *quality))


def _transfer_all(
    sentences: Sequence[tuple[Parts, str]], markers: bool
) -> Generator[SentenceRequest, list[SentenceOutput], list[_Transferred]]:
    """Translate each sentence, given with its markup, by the first method that preserves its codes."""
    done = {n: _Transferred(parts, 0.0, 0) for n, (parts, _) in enumerate(sentences) if not without_codes(parts)}
    for to_text, to_parts, aligned in (
        (with_markers if markers else _no_markers, _from_markers, False),
        (_as_written, _from_written, False),
        (without_codes, _beside_words, True),
    ):
        rest = {n: to_text(parts) for n, (parts, _) in enumerate(sentences) if n not in done}
        texts = {n: text for n, text in rest.items() if text is not None}
        if texts:
            outputs = yield SentenceRequest(list(texts.values()), aligned)
            for n, output in zip(texts, outputs, strict=True):
                source, markup = sentences[n]
                sentence = to_parts(source, output)
                if sentence and not adds_codes(source, sentence.parts, markup):
                    done[n] = sentence
    return [done.get(n) or _Transferred((), 0.0, 0, CODES_CHANGED) for n in range(len(sentences))]


def _no_markers(parts: Parts) -> None:
    """For a model without markers in its vocabulary."""


def _from_markers(parts: Parts, output: SentenceOutput) -> _Transferred | None:
    return _transferred(restore_markers(output.text, codes_of(parts)), output)


def _as_written(parts: Parts) -> str | None:
    """The text as it is, if its codes are text: many models copy unknown words."""
    return None if any(code.inline for code in codes_of(parts)) else plain(parts)


def _from_written(parts: Parts, output: SentenceOutput) -> _Transferred | None:
    codes = codes_of(parts)
    return _transferred(restore_copies(output.text, codes) if codes else (output.text,), output)


def _beside_words(parts: Parts, output: SentenceOutput) -> _Transferred:
    """The text translated without codes, and with each code placed by word alignment."""
    if output.links is not None:
        return _Transferred(
            place_codes(parts, output.text, output.links), output.log_prob, output.n_tokens, PLACED_BY_ALIGNMENT
        )
    inline = all(code.inline for code in codes_of(parts))
    return _Transferred((output.text,), output.log_prob, output.n_tokens, MARKUP_LOST if inline else CODES_CHANGED)


def _transferred(parts: Parts | None, output: SentenceOutput) -> _Transferred | None:
    return None if parts is None else _Transferred(parts, output.log_prob, output.n_tokens)


def supports_markers(tokenizer: PairTokenizer) -> bool:
    """Whether a model was trained on markers: the first and most frequent one is a token of the vocabulary.

    A marker that is unknown, or split into bytes, was rare or absent in the training data.
    """
    tokens = tokenizer.encode(f"a {MARKERS[0]}")[len(tokenizer.encode("a")) :]
    return len(tokens) == 1 and tokens[0] != tokenizer.unk_id and MARKERS[0] in tokenizer.decode(tokens)
