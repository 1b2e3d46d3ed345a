"""A document filled by a model: every unit that nobody has translated, its codes kept, with a word for a reviewer.

A sentence with codes goes through the model up to three times, until one way keeps all of them: with marks, if the
model has learnt those; as it is written; without codes, which are then put beside the words they stood at. A unit for
which no way does is left untranslated where a lost code would break what reads the file (`%s`), and else loses its
markup.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from sightline.localisation.placeholders import chooses, with_codes
from sightline.localisation.sentences import CutSentence, sentences
from sightline.localisation.unit import Document, Parts, Unit, UnitState, joined, plain

PLACED = "placeholders put beside words by alignment"
STRIPPED = "markup lost"
LEFT = "left untranslated: a placeholder was lost"
CHOOSING = "left untranslated: chooses among texts (ICU)"


@runtime_checkable
class TranslatingModel(Protocol):
    """What fills a document: a translator of any origin."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def translate(self, texts: Sequence[str], **overrides: Any) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> Sequence[Any]: ...


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


def fill(
    document: Document, model: TranslatingModel, language: str = "", again: bool = False, **overrides: Any
) -> list[Filled]:
    """Translations for the units of a document that have none.

    Args:
        document: is not changed; see `targets_of`.
        model: of the two languages.
        language: code of the source, by which sentences are cut; "" = English's rules.
        again: units that have a translation, and fuzzy ones, are translated too.
        **overrides: settings of `DecodeConfig`.
    """
    wanted = [(n, unit) for n, unit in enumerate(document.units) if _is_open(unit, again)]
    cut = [_cut(unit, language) for _, unit in wanted]
    waiting = [sentence.parts for _, found in cut for sentence in found if sentence.parts]
    done = iter(_translated(waiting, model, overrides))
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
    texts = [piece for one, sentence in zip(carried, cut, strict=True) for piece in (*one.parts, sentence.behind)]
    target = joined([before, *texts])
    found = dict.fromkeys(one.doubt for one in carried if one.doubt)
    if LEFT in found:
        return Filled(number, unit, (), doubts=(LEFT,))
    log_prob = sum(one.log_prob for one in carried) / max(1, sum(one.n_pieces for one in carried))
    return Filled(
        number, unit, target, log_prob, (*found, *doubts(with_codes(unit.source, unit.markup), target, log_prob))
    )


def _translated(waiting: Sequence[Parts], model: TranslatingModel, overrides: Mapping[str, Any]) -> list[_Carried]:
    """Each sentence, by the first way that keeps its codes."""
    found: dict[int, _Carried] = {n: _Carried(parts, 0.0, 0) for n, parts in enumerate(waiting) if not uncoded(parts)}
    for way in (_with_marks, _as_written, _beside_words):
        left = [n for n in range(len(waiting)) if n not in found]
        carried = way([waiting[n] for n in left], model, overrides)
        found |= {n: one for n, one in zip(left, carried, strict=True) if one}
    return [found[n] for n in range(len(waiting))]


def _with_marks(texts: Sequence[Parts], model: TranslatingModel, overrides: Mapping[str, Any]) -> list[_Carried | None]:
    """A mark for every code; not for a model that has no pieces for them, nor for texts without codes."""
    known = knows_marks(model.tokenizer)
    found = _some([marked(parts) if known and codes_of(parts) else None for parts in texts], model, overrides)
    return [t and _carried(unmarked(t.text, codes_of(parts)), t) for parts, t in zip(texts, found, strict=True)]


def _some(
    texts: Sequence[str | None], model: TranslatingModel, overrides: Mapping[str, Any]
) -> list[Translation | None]:
    """Translations of those that are texts."""
    found = iter(model.translate([text for text in texts if text is not None], **overrides))
    return [None if text is None else next(found) for text in texts]


def knows_marks(tokenizer: Tokenizer) -> bool:
    """Whether a model has learnt marks: the first, which is the most frequent, is a piece of its own.

    A mark that is unknown to the tokenizer, or spelt in bytes, was in few texts that the model saw or in none.
    """
    pieces = tokenizer.encode(f"a {MARKS[0]}")[len(tokenizer.encode("a")) :]
    return len(pieces) == 1 and pieces[0] != tokenizer.unk_id and MARKS[0] in tokenizer.decode(pieces)


def _as_written(texts: Sequence[Parts], model: TranslatingModel, overrides: Mapping[str, Any]) -> list[_Carried | None]:
    """The text as it is, where its codes are text: many models copy what they do not know."""
    taken = [None if any(code.inline for code in codes_of(parts)) else plain(parts) for parts in texts]
    carried: list[_Carried | None] = []
    for parts, t in zip(texts, _some(taken, model, overrides), strict=True):
        codes = codes_of(parts)
        carried.append(t and _carried(copied(t.text, codes) if codes else (t.text,), t))
    return carried


def _beside_words(texts: Sequence[Parts], model: TranslatingModel, overrides: Mapping[str, Any]) -> list[_Carried]:
    """The text without its codes, and each of them at the word it stood at."""
    bare = [uncoded(parts) for parts in texts]
    found = model.translate(bare, **overrides)
    links: Sequence[Links] | None
    try:
        links = model.align(bare, [translation.text for translation in found]) if bare else []
    except (UserError, AttributeError):  # a model without attention from words to words
        links = None
    carried = []
    for n, (parts, translation) in enumerate(zip(texts, found, strict=True)):
        if links is not None:
            one = _carried(placed(parts, translation.text, links[n]), translation)
            carried.append(replace(one, doubt=PLACED) if one else one)
        else:
            inline = all(code.inline for code in codes_of(parts))
            carried.append(
                _Carried(
                    (translation.text,), translation.log_prob, len(translation.pieces), STRIPPED if inline else LEFT
                )
            )
    return carried


def _carried(parts: Parts | None, translation: Translation) -> _Carried | None:
    return None if parts is None else _Carried(parts, translation.log_prob, len(translation.pieces) + 1)
