"""Terms and where they stand in a text.

A term is a row of words, compared word by word whatever blanks lie between them: first as it is written, then without
regard to case unless it is written in capitals (`IT`, not `it`). Longer matches come first, and no two overlap. A
letter of a script without blanks is a word of its own. Not here: files (`reading`), and translating (`translating`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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


class Glossary:
    """Terms, to be found in texts."""

    def __init__(self, terms: Iterable[Term]) -> None:
        """`UserError` for a term without words, or one with two translations; the same line twice is one."""
        self.terms: tuple[Term, ...] = tuple(dict.fromkeys(terms))
        self._exact: dict[tuple[str, ...], Term] = {}
        self._folded: dict[tuple[str, ...], Term] = {}
        for term in self.terms:
            self._add(term)
        self._longest = max((len(words) for words in self._exact), default=0)

    def _add(self, term: Term) -> None:
        if not (term.words and term.target.strip()):
            raise UserError(f"{_at(term)}a term needs a word on either side: '{term.source}', '{term.target}'")
        known = self._exact.setdefault(term.words, term)
        if known.target != term.target:
            both = f"'{known.target}' and '{term.target}'"
            raise UserError(f"{_at(term)}'{term.source}' has two translations, {both}: leave one of them out")
        if not term.source.isupper():
            self._folded.setdefault(folded(term.words), term)

    def matches(self, text: str) -> list[Match]:
        """The terms in a text, in its order.

        >>> glossary = Glossary([Term("dog", "Hund"), Term("hot dog", "Hotdog"), Term("IT", "EDV")])
        >>> [match.term.target for match in glossary.matches("It is a Hot dog, no dog; IT.")]
        ['Hotdog', 'Hund', 'EDV']
        """
        words = list(word_pattern().finditer(text))
        found = sorted(self._found(words), key=lambda one: (one[0] - one[1], one[0]))
        taken: set[int] = set()
        chosen = []
        for first, last, term in found:
            if taken.isdisjoint(range(first, last)):
                taken.update(range(first, last))
                chosen.append(Match(words[first].start(), words[last - 1].end(), term))
        return sorted(chosen, key=lambda match: match.start)

    def note(self, source: str, translation: str) -> None:
        """Called with every text that was translated, for whoever counts."""

    def _found(self, words: Sequence[re.Match[str]]) -> Iterator[tuple[int, int, Term]]:
        """Every term among words, from one to before another."""
        for first in range(len(words)):
            for last in range(first + 1, min(first + self._longest, len(words)) + 1):
                key = tuple(word[0] for word in words[first:last])
                term = self._exact.get(key) or self._folded.get(folded(key))
                if term:
                    yield first, last, term

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


def folded(words: Sequence[str]) -> tuple[str, ...]:
    """Without case."""
    return tuple(word.casefold() for word in words)


def _at(term: Term) -> str:
    return f"{term.where}: " if term.where else ""
