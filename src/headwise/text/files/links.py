"""Read and write word alignments.

A link (i, j) aligns source word i with target word j, counted from 0; words are separated by spaces. A file has one
line per pair, `0-0 1-2 2-1` (the Pharaoh format of fast_align, Marian and Moses). Gold files also have `ipj` for
possible links, in contrast to sure ones (Och and Ney 2003, section 6, https://aclanthology.org/J03-1002). Alignment
error rate is in `evaluate/alignment.py`, alignment by a model in `view/alignment.py`, token alignment in
`alignment.py`.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from headwise.errors import UserError
from headwise.text.files.corpus import read_lines
from headwise.text.files.sources import count_of, display_name

Link = tuple[int, int]
Links = frozenset[Link]

LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True)
class GoldLinks:
    """Gold links of a pair; `possible` includes `sure`."""

    sure: Links
    possible: Links


def read_links(path: str) -> list[Links]:
    """The links of every pair of a Pharaoh file; a pair without links is an empty line.

    Raises:
        UserError: a link is malformed.
    """
    return [gold.sure for gold in _read(path, "-", "only gold files have possible links (ipj); write i-j")]


def read_gold(path: str) -> list[GoldLinks]:
    """The links of every pair of a gold file, in which `ipj` is a possible link."""
    return list(_read(path, "-p", "write i-j for a sure link, ipj for a possible one"))


def _read(path: str, kinds: str, advice: str) -> Iterator[GoldLinks]:
    for number, line in enumerate(read_lines(path), start=1):
        links_by_kind: dict[str, set[Link]] = {"-": set(), "p": set()}
        for text in line.split():
            match = LINK.fullmatch(text)
            if match is None or match[2] not in kinds:
                raise UserError(f"{display_name(path)}: line {number}: '{text}' is not a link; {advice}, from 0")
            links_by_kind[match[2]].add((int(match[1]), int(match[3])))
        yield GoldLinks(frozenset(links_by_kind["-"]), frozenset(links_by_kind["-"] | links_by_kind["p"]))


def format_links(links: Collection[Link]) -> str:
    """Format links as a line of a Pharaoh file.

    >>> format_links({(1, 2), (0, 0), (1, 1)})
    '0-0 1-1 1-2'
    """
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def compose_links(first: Collection[Link], second: Collection[Link]) -> Links:
    """Links from a text to another through a third one, in which the first links end and the second begin.

    >>> sorted(compose_links({(0, 1), (1, 0)}, {(0, 2), (1, 3)}))
    [(0, 3), (1, 2)]
    """
    targets: dict[int, list[int]] = defaultdict(list)
    for between, target in second:
        targets[between].append(target)
    return frozenset((source, target) for source, between in first for target in targets[between])


def check_links(path: str, links: Sequence[Collection[Link]], sources: Sequence[str], targets: Sequence[str]) -> None:
    """`UserError` if links do not match the texts: wrong number of pairs, or a word number out of range."""
    if len(links) != len(sources):
        raise UserError(
            f"{display_name(path)} has {count_of(len(links), 'line')}, but there are {len(sources):,} pairs; "
            "line n must belong to pair n, and a pair without links is an empty line"
        )
    for number, (pair, src, tgt) in enumerate(zip(links, sources, targets, strict=True), start=1):
        words = len(src.split()), len(tgt.split())
        beyond = next((f"{i}-{j}" for i, j in sorted(pair) if i >= words[0] or j >= words[1]), None)
        if beyond:
            raise UserError(
                f"{display_name(path)}: line {number}: link {beyond} is out of range: the pair has {words[0]} source "
                f"and {words[1]} target words; words are counted from 0, source first"
            )
