"""A translation memory as a source of draft tokens."""

from collections.abc import Callable
from pathlib import Path

from headwise.contract import Draft
from headwise.data.corpus import parse_corpora, read_pairs
from headwise.decode.drafts import CopyDraft, MemoryDraft
from headwise.decode.translator import clean_text

Encode = Callable[[str], list[int]]


def draft_from(origin: str, source: Encode, target: Encode, small: Callable[[str], Draft]) -> Draft:
    """What guesses: "input" (what is copied), a translation memory, or what `small` makes of a model's directory.

    `source` and `target` give the ids of the memory's texts, as the model that checks the guesses has them.
    """
    if origin == "input":
        return CopyDraft()
    if Path(origin).is_dir():
        return small(origin)
    pairs = read_pairs(parse_corpora([origin]))
    return MemoryDraft((source(clean_text(src)), target(clean_text(tgt))) for src, tgt in pairs)
