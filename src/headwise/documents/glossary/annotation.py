"""Terms annotated with their translations in the source, for models trained on annotated sources.

After Dinu et al. (arXiv:1906.01105), the "append" variant. There, source factors mark a term and its translation; here
three special tokens do, so that any network and any search can use the text: `a ⟦ dog ⇒ Hund ⟧ runs`. A model is
trained on a corpus with some annotated lines (`annotate_pairs`), and its vocabulary then has the special tokens. Not
here: terms in texts (`terms`), and translation (`translation`).
"""

import random
from collections.abc import Iterable, Iterator, Sequence

from headwise.documents.glossary.terms import Glossary, Match, Term, contains_term
from headwise.text.files.sources import Pair
from headwise.text.tokens.pair_tokenizer import PairTokenizer

ANNOTATION_TOKENS = BEGIN, TRANSLATED, END = "⟦", "⇒", "⟧"


def annotate_pairs(pairs: Iterable[Pair], terms: Iterable[Term], share: float, seed: int = 1) -> Iterator[Pair]:
    """Pairs of which some have annotated sources: every term whose translation is in the target.

    Args:
        pairs: source and target.
        terms: a term may have several translations; the first one in the target is used.
        share: probability, from 0 to 1, that a pair is annotated.
        seed: random seed for the choice of pairs.

    Raises:
        UserError: a term without words.

    >>> pairs = [("A dog runs .", "Hunde rennen ."), ("A dog .", "Ein Tier .")]
    >>> list(annotate_pairs(pairs, [Term("dog", "Hund")], 1.0))
    [('A ⟦ dog ⇒ Hund ⟧ runs .', 'Hunde rennen .'), ('A dog .', 'Ein Tier .')]
    """
    translations: dict[tuple[str, ...], list[Term]] = {}
    for term in terms:
        translations.setdefault(term.words, []).append(term)
    glossary, rng = Glossary(several[0] for several in translations.values()), random.Random(seed)
    for source, target in pairs:
        matches: list[Match] = []
        for match in glossary.matches(source) if rng.random() < share else ():
            term = next((one for one in translations[match.term.words] if contains_term(target, one.target)), None)
            matches += [Match(match.start, match.end, term)] if term else []
        yield annotate_source(source, matches), target


def annotate_source(text: str, matches: Sequence[Match]) -> str:
    """A text with the translation after each match, between special tokens; unchanged if it has such tokens."""
    if any(token in text for token in ANNOTATION_TOKENS):
        return text
    pieces, at = [], 0
    for match in matches:
        term = text[match.start : match.end]
        pieces += [text[at : match.start], f"{BEGIN} {term} {TRANSLATED} {match.term.target} {END}"]
        at = match.end
    return "".join([*pieces, text[at:]])


def supports_annotations(tokenizer: PairTokenizer) -> bool:
    """Whether a model was trained on annotated sources: each special token is one known token."""
    ids = [tokenizer.encode(token) for token in ANNOTATION_TOKENS]
    return all(len(one) == 1 and tokenizer.unk_id not in one for one in ids)
