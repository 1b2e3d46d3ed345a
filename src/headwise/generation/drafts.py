"""Sources of draft tokens for speculative decoding."""

from collections.abc import Callable
from pathlib import Path

from headwise.contract import Draft
from headwise.data.corpus import parse_corpora, read_pairs
from headwise.decode.drafts import CopyDraft, MemoryDraft
from headwise.decode.translator import clean_text

Encode = Callable[[str], list[int]]


def draft_from(origin: str, source: Encode, target: Encode, small: Callable[[str], Draft]) -> Draft:
    """The draft for `origin`: "input" (copies the source), a translation memory, or `small(origin)` for a model folder.

    `source` and `target` encode texts of the memory with the tokenizer of the main model.
    """
    if origin == "input":
        return CopyDraft()
    if Path(origin).is_dir():
        return small(origin)
    pairs = read_pairs(parse_corpora([origin]))
    return MemoryDraft((source(clean_text(src)), target(clean_text(tgt))) for src, tgt in pairs)
