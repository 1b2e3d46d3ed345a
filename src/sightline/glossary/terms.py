"""Terms and where they stand in a text.

A term is a row of words, compared word by word whatever blanks lie between them: first as it is written, then without
regard to case unless it is written in capitals (`IT`, not `it`). Longer matches come first, and no two overlap. A
letter of a script without blanks is a word of its own. Not here: files (`reading`), and translating (`translating`).
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from sightline.data.marks import marks, word_pattern
from sightline.data.scripts import UNSPACED
from sightline.errors import UserError


@dataclass(frozen=True)
class Term:
    """How a term is translated; what is to stay as it is has itself for its target."""

    source: str
    target: str
    where: str = ""  # the line it is from, for errors

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Of the source."""
        return tuple(word_pattern().findall(self.source))

    @property
    def is_kept(self) -> bool:
        """Whether it stays as it is."""
        return self.source == self.target


@dataclass(frozen=True)
class Match:
    """A term in a text, from one character to another."""

    start: int
    end: int
    term: Term


class TermTree:
    """Terms by their words: a text is followed word by word, so that its terms are found in one pass."""

    __slots__ = ("next", "term")

    def __init__(self) -> None:
        self.next: dict[str, TermTree] = {}
        self.term: Term | None = None  # which ends here

    def add(self, words: Sequence[str], term: Term) -> Term:
        """The term of these words: this one, or the one that was there before."""
        tree = self
        for word in words:
            tree = tree.next.setdefault(word, TermTree())
        tree.term = tree.term or term
        return tree.term


NOWHERE = TermTree()


class Glossary:
    """Terms, to be found in texts."""

    def __init__(self, terms: Iterable[Term]) -> None:
        """`UserError` for a term without words, or one with two translations; the same line twice is one."""
        self.terms: tuple[Term, ...] = tuple(dict.fromkeys(terms))
        self._exact, self._folded = TermTree(), TermTree()
        for term in self.terms:
            self._add(term)

    def _add(self, term: Term) -> None:
        if not (term.words and term.target.strip()):
            raise UserError(f"{_at(term)}a term needs a word on either side: '{term.source}', '{term.target}'")
        known = self._exact.add(term.words, term)
        if known.target != term.target:
            both = f"'{known.target}' and '{term.target}'"
            raise UserError(f"{_at(term)}'{term.source}' has two translations, {both}: leave one of them out")
        if not term.source.isupper():
            self._folded.add(tuple(word.casefold() for word in term.words), term)

    def matches(self, text: str) -> list[Match]:
        """The terms in a text, in its order.

        >>> glossary = Glossary([Term("dog", "Hund"), Term("hot dog", "Hotdog"), Term("IT", "EDV")])
        >>> [match.term.target for match in glossary.matches("It is a Hot dog, no dog; IT.")]
        ['Hotdog', 'Hund', 'EDV']
        """
        words = list(word_pattern().finditer(text))
        said = [(word[0], word[0].casefold()) for word in words]
        waiting = [(first - last, first) for first in range(len(said)) if (last := self._longest(said, first)[0])]
        heapify(waiting)
        taken: set[int] = set()
        chosen = []
        while waiting:
            length, first = heappop(waiting)
            free = next((i for i in range(first, first - length) if i in taken), first - length)
            last, term = self._longest(said, first, free)
            if term and last - first == -length:
                taken.update(range(first, last))
                chosen.append(Match(words[first].start(), words[last - 1].end(), term))
            elif term:
                heappush(waiting, (first - last, first))
        return sorted(chosen, key=lambda match: match.start)

    def note(self, source: str, translation: str) -> None:
        """Called with every text that was translated, for whoever counts."""

    def _longest(self, words: Sequence[tuple[str, str]], first: int, end: int = sys.maxsize) -> tuple[int, Term | None]:
        """The longest term that begins with a word and ends before `end`: the number behind its last word.

        0 and None where there is none. `words` are as written, and without case.
        """
        exact, folds, found = self._exact, self._folded, (0, None)
        for at in range(first, min(end, len(words))):
            exact, folds = exact.next.get(words[at][0], NOWHERE), folds.next.get(words[at][1], NOWHERE)
            if exact is NOWHERE and folds is NOWHERE:
                break
            if term := exact.term or folds.term:
                found = at + 1, term
        return found

    def missing(self, source: str, translation: str) -> list[Term]:
        """The terms of a source that its translation does not hold.

        >>> [term.target for term in Glossary([Term("dog", "Hund")]).missing("a dog", "ein Köter")]
        ['Hund']
        """
        wanted = dict.fromkeys(match.term for match in self.matches(source))
        return [term for term in wanted if not holds(translation, term.target)]


def holds(text: str, target: str) -> bool:
    """Whether a term stands in a text where a word begins; what follows may be its ending.

    >>> holds("zwei Hunde", "Hund"), holds("ein Schäferhund", "hund")
    (True, False)
    """
    begins = rf"(?<![\w{marks()}])" if target[:1].isalnum() and not re.match(rf"[{UNSPACED}]", target) else ""
    return re.search(begins + r"\s+".join(map(re.escape, target.split())), text) is not None


def _at(term: Term) -> str:
    return f"{term.where}: " if term.where else ""
