"""A document filled by a model: every unit that nobody has translated, its codes kept, with a word for a reviewer.

A sentence goes through the model up to three times, until one way keeps all its codes and adds none: with marks, if the
model has learnt those; as it is written; without codes, which are then put beside the words they stood at. A unit for
which no way does is left untranslated where a code lost or added would break what reads the file (`%s`), and else loses
its markup.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from sightline.data.links import Links
from sightline.data.tokenizer import Tokenizer
from sightline.decode.translator import Translation
from sightline.errors import UserError
from sightline.localisation.carrying import (
    MARKS,
    codes_of,
    copied,
    marked,
    placed,
    uncoded,
    unmarked,
)
from sightline.localisation.doubts import doubts
from sightline.localisation.placeholders import adds_codes, chooses, with_codes
from sightline.localisation.sentences import CutSentence, sentences
from sightline.localisation.unit import Document, Parts, Unit, UnitState, joined, plain, words

PLACED = "placeholders put beside words by alignment"
STRIPPED = "markup lost"
LEFT = "left untranslated: a placeholder was lost or added"
CHOOSING = "left untranslated: chooses among texts (ICU)"


@runtime_checkable
class TranslatingModel(Protocol):
    """What fills a document: a translator of any origin."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def translate(self, texts: Sequence[str], **overrides: Any) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> Sequence[Links]: ...


@dataclass(frozen=True)
class ToTranslate:
    """Sentences of a document, for whoever translates them; where their codes are put beside words, with links."""

    texts: Sequence[str]
    aligned: bool = False


@dataclass(frozen=True)
class SentenceAnswer:
    """A translation of one."""

    text: str
    log_prob: float  # natural log
    n_pieces: int  # with the end mark
    links: Links | None = None  # where they were asked for and the model has any


@dataclass(frozen=True)
class Filled:
    """What became of a unit."""

    number: int
    unit: Unit
    target: Parts  # empty where it was left as it is
    log_prob: float = 0.0  # natural log, of a piece, on average
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Carried:
    """A sentence that has come through."""

    parts: Parts
    log_prob: float
    n_pieces: int
    doubt: str = ""


FillingSteps = Generator[ToTranslate, list[SentenceAnswer], list[Filled]]


def fill(
    document: Document, model: TranslatingModel, language: str = "", again: bool = False, **overrides: Any
) -> list[Filled]:
    """Translations for the units of a document that have none.

    Args:
        document: is not changed; see `targets_of`.
        model: of the two languages.
        language: code of the source, by which sentences are cut; "" = English's rules.
        again: units that have a translation, and fuzzy ones, are translated too.
        **overrides: settings of `SearchSettings`.
    """
    steps = filling(document, language, knows_marks(model.tokenizer), again)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(_translated(wanted, model, overrides))
    except StopIteration as end:
        return end.value


def _translated(wanted: ToTranslate, model: TranslatingModel, overrides: Mapping[str, Any]) -> list[SentenceAnswer]:
    found = model.translate(wanted.texts, **overrides)
    links: Sequence[Links | None] = [None] * len(found)
    if wanted.aligned and found:
        with suppress(UserError, AttributeError):  # a model without attention from words to words
            links = model.align(wanted.texts, [translation.text for translation in found])
    return [SentenceAnswer(t.text, t.log_prob, len(t.pieces) + 1, pairs) for t, pairs in zip(found, links, strict=True)]


def filling(document: Document, language: str, marks: bool, again: bool = False) -> FillingSteps:
    """`fill`, which leaves it to others how sentences are translated: it yields them, and is sent their translations.

    Args:
        document: as for `fill`; so are `language` and `again`.
        marks: whether the model has learnt marks (`knows_marks`).
    """
    wanted = [(n, unit) for n, unit in enumerate(document.units) if _is_open(unit, again)]
    cut = [_cut(unit, language) for _, unit in wanted]
    markups = [unit.markup for (_, unit), (_, found) in zip(wanted, cut, strict=True) for one in found if one.parts]
    waiting = [sentence.parts for _, found in cut for sentence in found if sentence.parts]
    done = iter((yield from _carried_over(waiting, markups, marks)))
    return [_put_together(n, unit, *pieces, done) for (n, unit), pieces in zip(wanted, cut, strict=True)]


def targets_of(filled: Sequence[Filled]) -> Mapping[int, Parts]:
    """What `Document.filled` takes."""
    return {one.number: one.target for one in filled if one.target}


def _is_open(unit: Unit, again: bool) -> bool:
    return unit.state is UnitState.UNTRANSLATED or (again and unit.state is not UnitState.KEPT)


def _cut(unit: Unit, language: str) -> tuple[str, list[CutSentence]]:
    """Sentences with their codes; none of a text that is not for a machine."""
    return ("", []) if chooses(unit.source) else sentences(with_codes(unit.source, unit.markup), language)


def _put_together(number: int, unit: Unit, before: str, cut: Sequence[CutSentence], done: Iterator[_Carried]) -> Filled:
    if not cut:
        return Filled(number, unit, (), doubts=(CHOOSING,) if chooses(unit.source) else ())
    carried = [next(done) if sentence.parts else _Carried((), 0.0, 0) for sentence in cut]
    pairs = zip(carried, cut, strict=True)
    texts = [piece for one, sentence in pairs for piece in (*one.parts, sentence.behind_translation(words(one.parts)))]
    target = joined([before, *texts])
    found = dict.fromkeys(one.doubt for one in carried if one.doubt)
    if LEFT in found:
        return Filled(number, unit, (), doubts=(LEFT,))
    log_prob = sum(one.log_prob for one in carried) / max(1, sum(one.n_pieces for one in carried))
    return Filled(
        number, unit, target, log_prob, (*found, *doubts(with_codes(unit.source, unit.markup), target, log_prob))
    )


def _carried_over(
    waiting: Sequence[Parts], markups: Sequence[str], marks: bool
) -> Generator[ToTranslate, list[SentenceAnswer], list[_Carried]]:
    """Each sentence, by the first way that keeps its codes and adds none."""
    found: dict[int, _Carried] = {n: _Carried(parts, 0.0, 0) for n, parts in enumerate(waiting) if not uncoded(parts)}
    for said, back, aligned in (
        (marked if marks else _nothing, _from_marks, False),
        (_as_written, _from_written, False),
        (uncoded, _beside_words, True),
    ):
        texts = {n: text for n, parts in enumerate(waiting) if n not in found and (text := said(parts)) is not None}
        if texts:
            answers = yield ToTranslate(list(texts.values()), aligned)
            carried = {n: back(waiting[n], answer) for n, answer in zip(texts, answers, strict=True)}
            found |= {n: c for n, c in carried.items() if c and not adds_codes(waiting[n], c.parts, markups[n])}
    return [found.get(n) or _Carried((), 0.0, 0, LEFT) for n in range(len(waiting))]


def _nothing(parts: Parts) -> None:
    """For a model that has no pieces for marks."""


def _from_marks(parts: Parts, answer: SentenceAnswer) -> _Carried | None:
    return _carried(unmarked(answer.text, codes_of(parts)), answer)


def _as_written(parts: Parts) -> str | None:
    """The text as it is, where its codes are text: many models copy what they do not know."""
    return None if any(code.inline for code in codes_of(parts)) else plain(parts)


def _from_written(parts: Parts, answer: SentenceAnswer) -> _Carried | None:
    codes = codes_of(parts)
    return _carried(copied(answer.text, codes) if codes else (answer.text,), answer)


def _beside_words(parts: Parts, answer: SentenceAnswer) -> _Carried:
    """The text that was translated without its codes, and each of them at the word it stood at."""
    if answer.links is not None:
        return _Carried(placed(parts, answer.text, answer.links), answer.log_prob, answer.n_pieces, PLACED)
    inline = all(code.inline for code in codes_of(parts))
    return _Carried((answer.text,), answer.log_prob, answer.n_pieces, STRIPPED if inline else LEFT)


def _carried(parts: Parts | None, answer: SentenceAnswer) -> _Carried | None:
    return None if parts is None else _Carried(parts, answer.log_prob, answer.n_pieces)


def knows_marks(tokenizer: Tokenizer) -> bool:
    """Whether a model has learnt marks: the first, which is the most frequent, is a piece of its own.

    A mark that is unknown to the tokenizer, or spelt in bytes, was in few texts that the model saw or in none.
    """
    pieces = tokenizer.encode(f"a {MARKS[0]}")[len(tokenizer.encode("a")) :]
    return len(pieces) == 1 and pieces[0] != tokenizer.unk_id and MARKS[0] in tokenizer.decode(pieces)
