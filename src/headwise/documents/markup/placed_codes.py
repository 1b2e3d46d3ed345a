"""Positions of inline codes in a translation, by word alignment (as in Bergamot's `html.cpp` and in Moses).

A translation has the tree of its source (`inline_tree.py`): every span has the same parent, is beside the same other
spans in any order, and contains the words that its words are aligned to; points go to the words beside them, and each
code occurs once. Words of a span that would lie inside another span are given up, the fewest. Where neighbouring words
remain neighbours, the codes and blanks between them remain as they are; so a translation that is the source gets its
parts. Links between words are refined to links between atoms (`_atom_links`).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from headwise.documents.markup.inline_tree import (
    BEFORE_WORDS,
    BEHIND_WORDS,
    INSIDE_WORDS,
    Atom,
    Gap,
    InlineSpan,
    Sentence,
    tokens,
)
from headwise.documents.unit import CLOSES, OPENS, POINT, Code, Parts, join_parts
from headwise.text.files.links import Link
from headwise.text.files.scripts import space_after

MIN_LETTERS = 5  # of a word that is probably the same in both languages
OPENING = frozenset("([{\u00bf\u00a1")  # signs that no sign behind a word replaces
AtomRange = tuple[int, int]  # first atom, and the atom after the last one


@dataclass(frozen=True)
class PlacedCodes:
    """A translation with its codes."""

    parts: Parts
    is_guess: bool = False  # whether the position of a code depends on the alignment
    is_emptied: bool = False  # whether a span that had words has none


def place_codes(source: Parts, text: str, links: Collection[Link]) -> PlacedCodes:
    """A translation of `bare_text(source)` with the codes of the source.

    Args:
        source: a sentence whose codes have their kinds.
        text: the translation.
        links: alignment of the words of both, separated by blanks.

    >>> source = ("a ", Code("<b>", kind=OPENS), "black", Code("</b>", kind=CLOSES), " dog")
    >>> placed = place_codes(source, "un chien noir", [(0, 0), (1, 2), (2, 1)])
    >>> "".join(part if isinstance(part, str) else part.text for part in placed.parts)
    'un chien <b>noir</b>'
    """
    sentence = Sentence(source)
    if text == sentence.bare():
        return PlacedCodes(source)
    if text.strip() and sentence.has_only_outer_codes:
        return PlacedCodes(sentence.around(text))
    placement = _Placement(sentence, text, links)
    order = placement.order()
    return PlacedCodes(placement.written(order), placement.is_guess, placement.is_emptied)


class _Placement:
    """The positions of the codes of a sentence in a translation."""

    def __init__(self, sentence: Sentence, text: str, links: Collection[Link]) -> None:
        self._sentence, self._text = sentence, text
        self._targets = _target_atoms(sentence.atoms, text, links)
        self._links = _atom_links(sentence.atoms, self._targets, links)
        self._sources: dict[int, list[int]] = defaultdict(list)  # source atoms of each target atom
        for atom, linked in enumerate(self._links):
            for at in linked:
                self._sources[at].append(atom)
        self.is_guess = self.is_emptied = False

    @cached_property
    def _sides(self) -> "dict[int, _Side]":
        return _sides(self._sentence)

    # --- positions

    def order(self) -> list[int]:
        """The atoms of the translation, and its codes (`~number`), in order."""
        found: list[int] = []
        waiting: list[int | tuple[InlineSpan, int, int]] = [(self._sentence.root, 0, len(self._targets))]
        while waiting:
            one = waiting.pop()
            if isinstance(one, int):
                found.append(one)
            else:
                waiting += reversed(self._inside(*one))
        return found

    def _inside(self, span: InlineSpan, low: int, high: int) -> list[int | tuple[InlineSpan, int, int]]:
        """The codes, atoms and children of a span that contains the atoms `low` to `high`."""
        inner = [child for child in span.children if not child.points]
        intervals = self._intervals(span, inner, low, high)
        placed = [(*interval, child) for child, interval in zip(inner, intervals, strict=True)]
        taken = sorted(interval for interval in intervals if interval[0] < interval[1])
        first = max((end for _, end, child in placed if child.opening < 0), default=low)
        last = min((start for start, _, child in placed if child.closing < 0), default=high)
        for child in span.children:
            if child.points:
                at = min(max(_outside(self._point(span, child, low, high), taken), first), last)
                placed.append((at, at, child))
        placed.sort(key=lambda one: (one[0], one[0] < one[1], one[2].points or (one[2].opening,)))
        found: list[int | tuple[InlineSpan, int, int]] = [~span.opening] * (span.opening >= 0)
        at = low
        for start, end, child in placed:
            found += range(at, start)
            found += [~number for number in child.points] if child.points else [(child, start, end)]
            at = end
        return [*found, *range(at, high), *[~span.closing] * (span.closing >= 0)]

    def _intervals(self, span: InlineSpan, children: Sequence[InlineSpan], low: int, high: int) -> list[AtomRange]:
        """Disjoint intervals for the children of a span that have words."""
        if len(children) == 1 and (children[0].start, children[0].end) == (span.start, span.end):
            self.is_emptied |= low == high
            return [(low, high)]
        self.is_guess |= bool(children)
        limit = high
        owners = self._owners(span, children, low, high)
        found: dict[int, AtomRange] = {}
        for n, child in enumerate(children):
            if child.opening < 0 or child.closing < 0:
                cut = self._cut(span, child, n, owners, low, high)
                found[n] = (low, cut) if child.opening < 0 else (cut, high)
                low, high = (cut, high) if child.opening < 0 else (low, cut)
        inner = {at: owner for at, owner in owners.items() if low <= at < high and owner not in found}
        found |= {n: interval for n, interval in _longest_runs(inner).items() if n >= 0}
        for n in range(len(children)):
            if n not in found:
                found[n] = self._beside(span, children[n], low, high, found)
        starts = [*sorted(start for start, _ in found.values()), limit]
        return [self._with_marks(span, child, found[n], starts) for n, child in enumerate(children)]

    def _with_marks(self, span: InlineSpan, child: InlineSpan, interval: AtomRange, starts: Sequence[int]) -> AtomRange:
        """An interval with the new punctuation at the end of the sentence if the child is at its end."""
        start, end = interval
        limit = starts[bisect_left(starts, end)]
        while start < end < limit and child.end == span.end and not (self._targets[end].is_word or self._sources[end]):
            end += 1
        return start, end

    def _owners(self, span: InlineSpan, children: Sequence[InlineSpan], low: int, high: int) -> dict[int, int]:
        """The child that each target atom belongs to, by most links; -1 for atoms of the span itself."""
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        for n, child in enumerate(children):
            signs = self._has_only_signs(child)
            for atom in range(child.start, child.end):
                for at in self._linked(atom, low, high):
                    if not (signs and self._targets[at].is_word):
                        counts[at][n] += 1
        own = set(range(span.start, span.end)).difference(*(range(child.start, child.end) for child in children))
        for at in {at for atom in own for at in self._linked(atom, low, high)} - counts.keys():
            counts[at][-1] += 1
        return {at: counts[at].most_common(1)[0][0] for at in sorted(counts)}

    def _cut(
        self, span: InlineSpan, child: InlineSpan, number: int, owners: Mapping[int, int], low: int, high: int
    ) -> int:
        """Where a child ends that begins with the sentence, or begins that ends with it: most atoms on their side."""
        signs = {at: 1 if (owner == number) == (child.opening < 0) else -1 for at, owner in owners.items()}
        cut, score, most = low, 0, 0
        for at in range(low, high):
            score += signs.get(at, 0)
            if score > most:
                cut, most = at + 1, score
        if not signs:
            cut = self._proportional(span, child.end if child.opening < 0 else child.start, low, high)
        words = [at for at in range(low, high) if self._targets[at].is_word]
        if self._has_only_signs(child):
            return min([cut, *words[:1]]) if child.opening < 0 else max([cut, *(at + 1 for at in words[-1:])])
        self.is_emptied |= not words
        if words:
            cut = max(cut, words[0] + 1) if child.opening < 0 else min(cut, words[-1])
        return cut

    def _beside(
        self, span: InlineSpan, child: InlineSpan, low: int, high: int, others: Mapping[int, AtomRange]
    ) -> AtomRange:
        """The interval of a child whose words have no links: a free word near it, if possible without links.

        Of a child with signs only, such as a bold question mark, it is a sign, or empty.
        """
        at = self._gap(span, child.start, child.end, True, False, low, high)
        taken = sorted(interval for interval in others.values() if interval[0] < interval[1])
        signs = self._has_only_signs(child)
        old = {self._sentence.atoms[n].text for n in range(child.start, child.end)}
        free = [n for n in range(low, high) if self._targets[n].is_word != signs and not _is_taken(n, taken)]
        if signs:
            free = [n for n in free if self._targets[n].text in old or self._may_replace(old, n)]
        if not free:
            self.is_emptied |= not signs
            at = min(max(_outside(at, taken), low), high)
            return at, at
        is_other = {n: self._targets[n].text not in old if signs else bool(self._sources[n]) for n in free}
        nearest = min(free, key=lambda n: (is_other[n], abs(2 * n + 1 - 2 * at)))
        return nearest, nearest + 1

    def _has_only_signs(self, span: InlineSpan) -> bool:
        return not any(self._sentence.atoms[n].is_word for n in range(span.start, span.end))

    def _may_replace(self, signs: set[str], at: int) -> bool:
        """Whether a sign of the translation that has no links may stand for others, such as 。 for a full stop."""
        return not self._sources[at] and (self._targets[at].text in OPENING) == (not signs.isdisjoint(OPENING))

    def _point(self, span: InlineSpan, child: InlineSpan, low: int, high: int) -> int:
        """The target gap of points."""
        at = child.start
        if at in (span.start, span.end):
            return low if at == span.start else high
        self.is_guess = True
        gap = self._sentence.gaps[at]
        first, last = child.points[0] - gap.codes[0], child.points[-1] - gap.codes[0]
        return self._gap(span, at, at, not any(gap.blanks[: first + 1]), not any(gap.blanks[last + 1 :]), low, high)

    def _gap(
        self, span: InlineSpan, start: int, end: int, touches_left: bool, touches_right: bool, low: int, high: int
    ) -> int:
        """The target gap for what is between the source atoms `start - 1` and `end`."""
        left = self._linked(start - 1, low, high) if start > span.start else []
        right = self._linked(end, low, high) if end < span.end else []
        if (between := next((at + 1 for at in left if at + 1 in right), None)) is not None:
            return between
        if left and touches_left and not (touches_right and right):
            return left[-1] + 1
        if right:
            return right[0]
        for distance in range(1, span.end - span.start + 1):
            for atom, is_before in ((start - distance, True), (end + distance - 1, False)):
                if span.start <= atom < span.end and (linked := self._linked(atom, low, high)):
                    return linked[-1] + 1 if is_before else linked[0]
        return self._proportional(span, start, low, high)

    def _proportional(self, span: InlineSpan, at: int, low: int, high: int) -> int:
        """The beginning of a word, as far from the beginning of the span as in the source."""
        there = low + round((high - low) * (at - span.start) / max(1, span.end - span.start))
        while low < there < high and self._targets[there].word == self._targets[there - 1].word:
            there += 1
        return there

    def _linked(self, atom: int, low: int, high: int) -> Sequence[int]:
        """The target atoms from `low` to `high` that a source atom is linked to."""
        linked = self._links[atom]
        return linked[bisect_left(linked, low) : bisect_left(linked, high)]

    # --- blanks

    def written(self, order: Sequence[int]) -> Parts:
        """The parts of the translation."""
        pieces: list[str | Code] = []
        codes: list[int] = []
        before = -1
        for one in [*order, len(self._targets)]:
            if one < 0:
                codes.append(~one)
                continue
            pieces += self._between(before, one, codes)
            pieces.append(self._targets[one].text if one < len(self._targets) else "")
            before, codes = one, []
        return join_parts(pieces)

    def _between(self, before: int, after: int, codes: Sequence[int]) -> Iterator[str | Code]:
        """Codes between two target atoms, with blanks."""
        left, right = (self._targets[n].text if 0 <= n < len(self._targets) else "" for n in (before, after))
        start = self._targets[before].start + len(left) if left else 0
        text = self._text[start : self._targets[after].start if right else len(self._text)]
        blanks = self._kept_blanks(before, after, codes, text) or self._new_blanks(left, right, codes, text)
        for n, blank in enumerate(blanks):
            yield blank
            if n < len(codes):
                yield self._sentence.codes[codes[n]]

    def _kept_blanks(self, before: int, after: int, codes: Sequence[int], text: str) -> Sequence[str]:
        """The blanks of the source if both atoms were neighbours there, with these codes between them."""
        if before < 0 or after == len(self._targets):
            sources = [0] if before < 0 else [len(self._sentence.atoms)]
        else:
            sources = [atom + 1 for atom in self._sources[before] if atom + 1 in self._sources[after]]
        for at in sources:
            gap = self._sentence.gaps[at]
            if gap.codes == codes and text == " " * gap.is_blank:
                return gap.blanks
        return ()

    def _new_blanks(self, left: str, right: str, codes: Sequence[int], text: str) -> list[str]:
        """Blanks around codes that are at a new place: that of the translation, and those that points have."""
        sides = [self._sides[number] for number in codes]
        first = max((n + 1 for n, side in enumerate(sides) if side.kind == CLOSES and not side.blank_before), default=0)
        slot = next((n for n in range(first, len(sides)) if not sides[n].belongs_left), len(sides))
        found = list[str]()
        for n in range(len(codes) + 1):
            before, after = sides[n - 1] if n else None, sides[n] if n < len(sides) else None
            if n == slot and text:
                found.append(text)
            elif before and after and before.gap == after.gap and codes[n - 1] + 1 == codes[n]:
                found.append(after.gap.blanks[codes[n] - after.gap.codes[0]])
            else:
                kinds = before.kind if before else "", after.kind if after else ""
                wanted = bool(after and after.blank_before) and kinds[1] == POINT and kinds[0] != OPENS
                wanted |= bool(before and before.blank_after) and kinds[0] == POINT and kinds[1] != CLOSES
                if text or not (left[-1:].isalnum() and right[:1].isalnum()):  # not inside a word
                    # A word does not touch a code that had a sign there, such as a quotation mark.
                    wanted |= before is None and after is not None and after.sign_before and left[-1:].isalnum()
                    wanted |= after is None and before is not None and before.sign_after and right[:1].isalnum()
                is_apart = (before or _is_spaced(left[-1:])) and (after or _is_spaced(right[:1]))
                found.append(" " if wanted and is_apart and (after or right not in BEHIND_WORDS) else "")
        return found


@dataclass(frozen=True)
class _Side:
    """The surroundings of a code in the source."""

    gap: Gap
    kind: str  # as `Code.kind`; `POINT` for the ends of a span without words
    blank_before: bool  # a blank or the beginning of the sentence, perhaps before ends of spans
    blank_after: bool
    sign_before: bool  # of a point that a reader sees
    sign_after: bool

    @property
    def belongs_left(self) -> bool:
        """Whether a blank goes behind the code rather than before it."""
        return not self.blank_before and (self.kind == CLOSES or self.blank_after)


def _sides(sentence: Sentence) -> dict[int, _Side]:
    points = _points(sentence.root)
    found: dict[int, _Side] = {}
    for at, gap in enumerate(sentence.gaps):
        is_edge = [number not in points for number in gap.codes]
        before, after = (
            _runs_of_blanks(gap.blanks, is_edge, at == 0),
            _runs_of_blanks(gap.blanks[::-1], is_edge[::-1], at == len(sentence.atoms)),
        )
        for n, number in enumerate(gap.codes):
            kind = sentence.codes[number].kind if is_edge[n] else POINT
            seen = kind == POINT and not INSIDE_WORDS.match(sentence.codes[number].text)
            signs = (
                seen and atom in range(len(sentence.atoms)) and not sentence.atoms[atom].is_word
                for atom in (at - 1, at)
            )
            found[number] = _Side(gap, kind, before[n], after[-1 - n], *signs)
    return found


def _runs_of_blanks(blanks: Sequence[str], is_edge: Sequence[bool], at_end: bool) -> list[bool]:
    """For each code of a gap, whether a blank or the end of the sentence precedes it, perhaps before ends of spans."""
    found, is_blank = list[bool](), at_end
    for blank, edge in zip(blanks, is_edge, strict=False):
        is_blank |= bool(blank)
        found.append(is_blank)
        is_blank &= edge
    return found


def _points(root: InlineSpan) -> set[int]:
    """The codes of points."""
    found, waiting = set[int](), [root]
    while waiting:
        span = waiting.pop()
        found.update(span.points)
        waiting += span.children
    return found


def _is_spaced(character: str) -> bool:
    """Whether a blank belongs beside a character: not in Chinese and Japanese, at an end of a text, or in brackets."""
    return bool(character) and bool(space_after(character)) and character not in BEFORE_WORDS


# --- atoms


def _target_atoms(sources: Sequence[Atom], text: str, links: Collection[Link]) -> list[Atom]:
    """The atoms of a translation; a word that is like one that it is linked to has the same atoms."""
    by_word = _atoms_by_word(sources)
    words = ["".join(sources[n].text for n in word) for word in by_word]
    linked: dict[int, list[int]] = defaultdict(list)
    for i, j in sorted(links):
        if i < len(words):
            linked[j].append(i)
    found: list[Atom] = []
    for number, word in enumerate(re.finditer(r"\S+", text)):
        like = next((i for i in linked[number] if words[i].casefold() == word[0].casefold()), -1)
        if like >= 0 and len(words[like]) == len(word[0]):
            ends = list(accumulate(len(sources[n].text) for n in by_word[like]))
            own = [word[0][start:end] for start, end in pairwise([0, *ends])]
        else:
            own = list(tokens(word[0]))
        at = word.start()
        for one in own:
            found.append(Atom(one, number, at))
            at += len(one)
    return found


def _atom_links(sources: Sequence[Atom], targets: Sequence[Atom], links: Collection[Link]) -> list[list[int]]:
    """The target atoms that each source atom is linked to, in order, from links between words.

    Words of the same form are linked atom by atom. In others, the same punctuation marks are linked, and the letters
    one by one if there are as many of them, otherwise all with all. A number or a long word that both texts have once
    is linked to itself alone.
    """
    of_source, of_target = _atoms_by_word(sources), _atoms_by_word(targets)
    found = [set[int]() for _ in sources]
    for i, j in links:
        if i < len(of_source) and j < len(of_target):
            for own, others in _pairs([sources[n] for n in of_source[i]], [targets[n] for n in of_target[j]]):
                found[of_source[i][own]].update(of_target[j][other] for other in others)
    own, others = _rare_words(sources), _rare_words(targets)
    for text in own.keys() & others.keys():
        for one in found:
            one.discard(others[text])
        found[own[text]] = {others[text]}
    return [sorted(one) for one in found]


def _rare_words(atoms: Sequence[Atom]) -> dict[str, int]:
    """The numbers and long words that occur once."""
    texts = [atom.text.casefold() for atom in atoms]
    many = Counter(texts)
    return {
        text: n
        for n, text in enumerate(texts)
        if many[text] == 1 and (len(text) >= MIN_LETTERS or any(map(str.isdigit, text)))
    }


def _pairs(source: Sequence[Atom], target: Sequence[Atom]) -> Iterator[tuple[int, Sequence[int]]]:
    """Which atoms of two linked words belong together."""
    forms = [["" if atom.is_word else atom.text for atom in word] for word in (source, target)]
    if forms[0] == forms[1]:
        yield from ((n, [n]) for n in range(len(source)))
        return
    for form in dict.fromkeys(forms[0]):
        own, others = ([n for n, one in enumerate(side) if one == form] for side in forms)
        if form or len(own) == len(others):
            yield from ((n, [other]) for n, other in zip(own, others, strict=False))
        else:
            yield from ((n, others) for n in own)


def _atoms_by_word(atoms: Sequence[Atom]) -> list[list[int]]:
    """The numbers of the atoms of each word."""
    found: list[list[int]] = []
    for n, atom in enumerate(atoms):
        if atom.word == len(found):
            found.append([])
        found[-1].append(n)
    return found


# --- intervals


def _longest_runs(owners: Mapping[int, int]) -> dict[int, AtomRange]:
    """One interval for each owner, such that they are disjoint: the shortest runs of others in between are given up."""
    runs: list[list[int]] = []  # owner, first atom, last atom, number of atoms
    for at, owner in sorted(owners.items()):
        if owner >= 0:
            runs.append([owner, at, at, 1])
    while True:
        runs = _merged(runs)
        several = Counter(run[0] for run in runs)
        longest = {run[0]: run for run in sorted(reversed(runs), key=lambda run: run[3])}  # the first of equal ones
        spare = [run for run in runs if several[run[0]] > 1 and run is not longest[run[0]]]
        if not spare:
            return {owner: (first, last + 1) for owner, first, last, _ in runs}
        runs.remove(min(spare, key=lambda run: run[3]))


def _merged(runs: Sequence[list[int]]) -> list[list[int]]:
    """Neighbouring runs of the same owner as one."""
    found: list[list[int]] = []
    for owner, first, last, count in runs:
        if found and found[-1][0] == owner:
            found[-1][2:] = [last, found[-1][3] + count]
        else:
            found.append([owner, first, last, count])
    return found


def _outside(at: int, intervals: Sequence[AtomRange]) -> int:
    """The nearest gap that is inside none of these disjoint sorted intervals."""
    n = bisect_left(intervals, (at, 0)) - 1
    first, end = intervals[n] if n >= 0 else (at, at)
    if not first < at < end:
        return at
    return first if at - first < end - at else end


def _is_taken(atom: int, intervals: Sequence[AtomRange]) -> bool:
    return any(first <= atom < end for first, end in intervals)
