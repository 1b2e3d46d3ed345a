"""Which installed fonts a figure needs, and which to install for characters that none of them has.

matplotlib ships DejaVu Sans, which has Latin, Greek, Cyrillic and many signs. Since 3.11 it also ships a font that has
every character as the same box; that one must not count as covering a text.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

OWN_FONT = "DejaVu Sans"  # comes with matplotlib
PLACEHOLDERS = ("Last Resort", "Adobe Blank")  # beginnings of the names of fonts that have all characters, as boxes
LAST_OF_EUROPE = 0x52F  # Latin, Greek, Cyrillic: in matplotlib's own font
MOST_SHOWN = 12  # characters that a message lists

# Fonts for all of East Asia have a variant for each region; by the beginnings of the names of characters:
REGIONS = {"HIRAGANA": "JP", "KATAKANA": "JP", "HANGUL": "KR", "CJK": "SC"}
EAST_ASIA = (*REGIONS, "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH", "BOPOMOFO")


class Fonts(NamedTuple):
    """Names of fonts for matplotlib, its own first, and the characters that none of them has."""

    names: list[str]
    missing: list[str]


def fonts_for(texts: Iterable[str]) -> Fonts:
    """matplotlib's own font, and for characters that it lacks installed ones with as many of them as possible."""
    letters = {letter for text in texts for letter in text if ord(letter) > LAST_OF_EUROPE}
    wanted = {ord(letter) for letter in letters if letter.isprintable()}  # others are invisible
    names, missing = _chosen(_charmaps(wanted), wanted)
    if missing and _known_since():
        names, missing = _chosen(_charmaps(wanted), wanted)
    return Fonts([OWN_FONT, *(name for name in names if name != OWN_FONT)], [chr(code) for code in sorted(missing)])


def missing_font_warning(missing: Sequence[str]) -> str:
    """One line about characters that no font has, with the package to install; "" if there are none.

    >>> missing_font_warning(["年", "日"])
    'no installed font has 年 日, drawn as boxes: install one, such as the package fonts-noto-cjk (Debian, Ubuntu)'
    """
    if not missing:
        return ""
    shown = " ".join(missing[:MOST_SHOWN])
    more = f" and {len(missing) - MOST_SHOWN} more" if len(missing) > MOST_SHOWN else ""
    packages = " and ".join(sorted({_package(letter) for letter in missing}))
    advice = f"install one, such as the package {packages} (Debian, Ubuntu)"
    return f"no installed font has {shown}{more}, drawn as boxes: {advice}"


def _package(letter: str) -> str:
    if unicodedata.name(letter, "").startswith(EAST_ASIA):
        return "fonts-noto-cjk"
    return "fonts-symbola" if unicodedata.category(letter).startswith("S") else "fonts-noto-core"


def _chosen(charmaps: dict[str, set[int]], wanted: set[int]) -> tuple[list[str], set[int]]:
    """Names of fonts, those with most of the remaining characters first; and the characters that none has.

    >>> _chosen({"A": {1}, "B": {1, 2}, "C": {3}}, {1, 2, 3, 4})
    (['B', 'C'], {4})
    """
    names: list[str] = []
    while charmaps and wanted:
        best = max(charmaps, key=lambda name: len(charmaps[name] & wanted))
        if not charmaps[best] & wanted:
            break
        names.append(best)
        wanted = wanted - charmaps[best]
    return names, wanted


def _charmaps(wanted: set[int]) -> dict[str, set[int]]:
    """Which of the characters each font has, preferred fonts first."""
    from matplotlib.font_manager import fontManager

    region = _region(wanted)
    entries = [entry for entry in fontManager.ttflist if wanted and not entry.name.startswith(PLACEHOLDERS)]
    found: dict[str, set[int]] = {}
    for entry in sorted(entries, key=lambda entry: _preference(entry, region)):
        if entry.name not in found:
            found[entry.name] = _characters(entry) & wanted
            if found[entry.name] == wanted:
                break
    return found


def _preference(entry: "FontEntry", region: str) -> tuple[bool, bool, bool, bool, str]:
    """Sort key: matplotlib's own font, the region of the text, sans serif, upright, neither light nor bold."""
    plain = entry.style == "normal" and entry.weight in (400, "normal", "regular")
    words = entry.name.split()
    return entry.name != OWN_FONT, region not in words, not {"Sans", "Gothic"} & set(words), not plain, entry.name


def _region(wanted: set[int]) -> str:
    """Kana mean Japanese, Hangul Korean; Chinese characters alone do not tell."""
    names = [unicodedata.name(chr(code), "") for code in wanted]
    return next((region for script, region in REGIONS.items() if any(name.startswith(script) for name in names)), "")


def _known_since() -> bool:
    """Add fonts to matplotlib that were installed after it made its list; returns whether there were any."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    before = len(fontManager.ttflist)
    for path in sorted(set(findSystemFonts()) - {entry.fname for entry in fontManager.ttflist}):
        with suppress(OSError, RuntimeError, NotImplementedError, UnicodeError):  # files that it cannot draw
            fontManager.addfont(path)
    return len(fontManager.ttflist) > before


def _characters(entry: "FontEntry") -> set[int]:
    from matplotlib.ft2font import FT2Font

    index = getattr(entry, "index", 0)  # of a collection's faces; since matplotlib 3.11
    try:
        font = FT2Font(entry.fname, face_index=index) if index else FT2Font(entry.fname)
    except (OSError, RuntimeError):  # removed since the list was made
        return set()
    return set(font.get_charmap())
