"""Terms, and their occurrences in a text.

A term is a sequence of words, compared word by word whatever blanks are between them: first exactly, then ignoring
case, unless the term is in capitals (`IT` does not match `it`). Longer matches take precedence, and matches do not
overlap. In scripts without blanks every letter is a word. See `files` for glossary files and `translation` for
translating with terms.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from headwise.errors import UserError
from headwise.text.files.scripts import UNSPACED, combining_marks, word_pattern


@dataclass(frozen=True)
class Term:
    """A term and its translation; text that stays unchanged has itself as its target."""

    source: str
    target: str
    where: str = ""  # file and line, for error messages

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the source."""
        return tuple(word_pattern().findall(self.source))

    @property
    def is_kept(self) -> bool:
        """Whether it stays unchanged."""
        return self.source == self.target


@dataclass(frozen=True)
class Match:
    """An occurrence of a term, with its character span."""

    start: int
    end: int
    term: Term


class TermTree:
    """A trie of terms by their words: one pass over a text finds all terms."""

    __slots__ = ("next", "term")

    def __init__(self) -> None:
        self.next: dict[str, TermTree] = {}
        self.term: Term | None = None  # the term that ends here

    def add(self, words: Sequence[str], term: Term) -> Term:
        """Add a term; returns it, or the one that is there already."""
        tree = self
        for word in words:
            tree = tree.next.setdefault(word, TermTree())
        tree.term = tree.term or term
        return tree.term


NO_TERMS = TermTree()


class Glossary:
    """A set of terms, with search in texts."""

    def __init__(self, terms: Iterable[Term]) -> None:
        """`UserError` for a term without words or with two translations; repeated terms are merged."""
        self.terms: tuple[Term, ...] = tuple(dict.fromkeys(terms))
        self._exact, self._folded = TermTree(), TermTree()
        for term in self.terms:
            self._add(term)

    def _add(self, term: Term) -> None:
        if not (term.words and term.target.strip()):
            raise UserError(f"{_location(term)}source and target need words: '{term.source}', '{term.target}'")
        known = self._exact.add(term.words, term)
        if known.target != term.target:
            both = f"'{known.target}' and '{term.target}'"
            raise UserError(f"{_location(term)}'{term.source}' has two translations, {both}; remove one")
        if not term.source.isupper():
            self._folded.add(tuple(word.casefold() for word in term.words), term)

    def matches(self, text: str) -> list[Match]:
        """The matches in a text, in order.

        >>> glossary = Glossary([Term("dog", "Hund"), Term("hot dog", "Hotdog"), Term("IT", "EDV")])
        >>> [match.term.target for match in glossary.matches("It is a Hot dog, no dog; IT.")]
        ['Hotdog', 'Hund', 'EDV']
        """
        words = list(word_pattern().finditer(text))
        forms = [(word[0], word[0].casefold()) for word in words]
        waiting = [(first - last, first) for first in range(len(forms)) if (last := self._longest(forms, first)[0])]
        heapify(waiting)
        taken: set[int] = set()
        chosen = []
        while waiting:
            length, first = heappop(waiting)
            free = next((i for i in range(first, first - length) if i in taken), first - length)
            last, term = self._longest(forms, first, free)
            if term and last - first == -length:
                taken.update(range(first, last))
                chosen.append(Match(words[first].start(), words[last - 1].end(), term))
            elif term:
                heappush(waiting, (first - last, first))
        return sorted(chosen, key=lambda match: match.start)

    def note(self, source: str, translation: str) -> None:
        """Called with every translated text, for statistics of subclasses."""

    def _longest(self, words: Sequence[tuple[str, str]], first: int, end: int = sys.maxsize) -> tuple[int, Term | None]:
        """The longest term from word `first` on that ends before `end`: the index after its last word, and the term.

        0 and None without any. `words` are pairs: as written, and case-folded.
        """
        exact, folds, found = self._exact, self._folded, (0, None)
        for at in range(first, min(end, len(words))):
            exact, folds = exact.next.get(words[at][0], NO_TERMS), folds.next.get(words[at][1], NO_TERMS)
            if exact is NO_TERMS and folds is NO_TERMS:
                break
            if term := exact.term or folds.term:
                found = at + 1, term
        return found

    def missing(self, source: str, translation: str) -> list[Term]:
        """The terms of a source that are not in its translation.

        >>> [term.target for term in Glossary([Term("dog", "Hund")]).missing("a dog", "ein Köter")]
        ['Hund']
        """
        wanted = dict.fromkeys(match.term for match in self.matches(source))
        return [term for term in wanted if not contains_term(translation, term.target)]


def contains_term(text: str, target: str) -> bool:
    """Whether a text contains a term at the start of a word; the word may have an ending.

    >>> contains_term("zwei Hunde", "Hund"), contains_term("ein Schäferhund", "hund")
    (True, False)
    """
    begins = rf"(?<![\w{combining_marks()}])" if target[:1].isalnum() and not re.match(rf"[{UNSPACED}]", target) else ""
    return re.search(begins + r"\s+".join(map(re.escape, target.split())), text) is not None


def _location(term: Term) -> str:
    return f"{term.where}: " if term.where else ""
