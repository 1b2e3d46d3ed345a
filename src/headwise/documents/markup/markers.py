"""Markers: `⓵` to `⓾` stand for the codes of a sentence.

A model that was trained on translation memories (`memory.py`) has them in its vocabulary and copies them. Texts that
contain such characters already are not changed. See `placed_codes.py` for models without markers.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from headwise.documents.unit import Code, Parts, codes_of, join_parts, plain, without_inline_codes
from headwise.text.tokens.pair_tokenizer import PairTokenizer

MARKERS = "⓵⓶⓷⓸⓹⓺⓻⓼⓽⓾"
MARKER = re.compile(f"[{MARKERS}]")
MAX_COPIED_CODES = 100  # distinct codes of a sentence: each is searched for at every character


def supports_markers(tokenizer: PairTokenizer) -> bool:
    """Whether a model was trained on markers: the first and most frequent one is a token of the vocabulary.

    A marker that is unknown, or split into bytes, was rare or absent in the training data.
    """
    tokens = tokenizer.encode(f"a {MARKERS[0]}")[len(tokenizer.encode("a")) :]
    return len(tokens) == 1 and tokens[0] != tokenizer.unk_id and MARKERS[0] in tokenizer.decode(tokens)


def with_markers(parts: Parts) -> str | None:
    """The text with a marker for each code; None with more codes than markers, or with such characters in the text.

    >>> with_markers(("Delete ", Code("{n}"), " files?"))
    'Delete ⓵ files?'
    """
    codes = codes_of(parts)
    if len(codes) > len(MARKERS) or any(MARKER.search(part) for part in parts if isinstance(part, str)):
        return None
    markers = iter(MARKERS)
    return "".join(part if isinstance(part, str) else next(markers) for part in parts)


def restore_markers(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a translation with markers; None unless it has every code's marker once, and no other.

    >>> restore_markers("⓵ Dateien löschen?", [Code("{n}")])
    (Code(text='{n}', inline=False), ' Dateien löschen?')
    """
    if Counter(MARKER.findall(text)) != Counter(MARKERS[: len(codes)]):
        return None
    pieces = re.split(f"({MARKER.pattern})", text)
    return join_parts([codes[MARKERS.index(piece)] if i % 2 else piece for i, piece in enumerate(pieces)])


def pair_with_markers(source: Parts, target: Parts) -> tuple[str, str] | None:
    """Both sides with the same markers for the codes they share; codes of one side only are written as text.

    None if they share more codes than there are markers, or if one side contains such a character.

    >>> pair_with_markers((Code("%s"), ": ", Code("%d")), (Code("%d"), " - ", Code("%s")))
    ('⓵: ⓶', '⓶ - ⓵')
    """
    common = Counter(codes_of(source)) & Counter(codes_of(target))
    if common.total() > len(MARKERS) or MARKER.search(plain(source) + plain(target)):
        return None
    markers: dict[Code, list[str]] = defaultdict(list)
    free = iter(MARKERS)
    text = "".join(_marker_for(part, common, markers, free) for part in source)
    return text, "".join(_next_marker(part, markers) for part in target)


def _marker_for(part: str | Code, left: Counter[Code], markers: dict[Code, list[str]], free: Iterator[str]) -> str:
    """The next marker if the code is still in `left`; other parts as text."""
    if isinstance(part, str) or not left[part]:
        return without_inline_codes((part,))
    left[part] -= 1
    markers[part].append(next(free))
    return markers[part][-1]


def _next_marker(part: str | Code, markers: dict[Code, list[str]]) -> str:
    """The next marker of this code; other parts as text."""
    return markers[part].pop(0) if isinstance(part, Code) and markers.get(part) else without_inline_codes((part,))


def restore_copies(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a translation that copied every code; None if one is missing or repeated."""
    wanted = Counter(code.text for code in codes)
    if not wanted or len(wanted) > MAX_COPIED_CODES or any(code.inline for code in codes):
        return None
    return with_codes_of(text, codes)


def with_codes_of(text: str, codes: Sequence[Code]) -> Parts | None:
    """The parts of a text that contains every one of the codes once; None if one is missing or repeated.

    Of codes with the same text, the first ones come first.
    """
    waiting: dict[str, list[Code]] = defaultdict(list)
    for code in reversed(codes):
        waiting[code.text].append(code)
    pattern = "|".join(re.escape(code) for code in sorted(waiting, key=len, reverse=True))
    pieces = re.split(f"({pattern})", text) if pattern else [text]
    if Counter(pieces[1::2]) != Counter(code.text for code in codes):
        return None
    return join_parts([waiting[piece].pop() if i % 2 else piece for i, piece in enumerate(pieces)])
