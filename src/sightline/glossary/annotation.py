"""Terms with their translations written beside them in the source, for a model that has learnt to heed them.

After Dinu et al. (arXiv:1906.01105), their "append": there factors say which words of a source are a term and which
its translation; here three marks do, so that any network and any search takes the text: `a ⟦ dog ⇒ Hund ⟧ runs`.
A model learns from a corpus that is annotated for some of its lines (`annotate`), and its tokenizer, which has the
marks for pieces, then says that it knows them. Not here: terms in texts (`terms`), and translating (`translating`).
"""

import random
from collections.abc import Iterable, Iterator, Sequence

from sightline.data.rows import Pair
from sightline.data.tokenizer import Tokenizer
from sightline.glossary.terms import Glossary, Match, Term, holds

MARKS = BEGIN, TRANSLATED, END = "⟦", "⇒", "⟧"


def annotate(pairs: Iterable[Pair], terms: Iterable[Term], share: float, seed: int = 1) -> Iterator[Pair]:
    """Pairs of which some have annotated sources: every term whose translation stands in the target.

    Args:
        pairs: source and target.
        terms: they may have several translations, of which the first that stands in the target is taken.
        share: how probable it is, from 0 to 1, that a pair is looked at; the others stay as they are.
        seed: what decides which, with the order of the pairs.

    Raises:
        UserError: a term without words.

    >>> list(annotate([("A dog runs .", "Hunde rennen ."), ("A dog .", "Ein Tier .")], [Term("dog", "Hund")], 1.0))
    [('A ⟦ dog ⇒ Hund ⟧ runs .', 'Hunde rennen .'), ('A dog .', 'Ein Tier .')]
    """
    translations: dict[tuple[str, ...], list[Term]] = {}
    for term in terms:
        translations.setdefault(term.words, []).append(term)
    glossary, draw = Glossary(several[0] for several in translations.values()), random.Random(seed)
    for source, target in pairs:
        matches: list[Match] = []
        for match in glossary.matches(source) if draw.random() < share else ():
            term = next((one for one in translations[match.term.words] if holds(target, one.target)), None)
            matches += [Match(match.start, match.end, term)] if term else []
        yield annotated(source, matches), target


def annotated(text: str, matches: Sequence[Match]) -> str:
    """A text with the translation of each match behind it, between marks; as it is if it has such marks already."""
    if any(mark in text for mark in MARKS):
        return text
    pieces, at = [], 0
    for match in matches:
        term = text[match.start : match.end]
        pieces += [text[at : match.start], f"{BEGIN} {term} {TRANSLATED} {match.term.target} {END}"]
        at = match.end
    return "".join([*pieces, text[at:]])


def knows_annotations(tokenizer: Tokenizer) -> bool:
    """Whether a model has learnt from annotated sources: each mark is one piece, which only a frequent one is."""
    return all(len(tokenizer.encode(mark)) == 1 and tokenizer.unk_id not in tokenizer.encode(mark) for mark in MARKS)
