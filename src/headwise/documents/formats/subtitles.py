"""Subtitles: SubRip (.srt) and WebVTT (.vtt, https://www.w3.org/TR/webvtt1/).

The lines of a cue are one unit, except that a line with a dash starts another speaker's. This dash, with the tags
before it, is no part of the unit. A translation gets as many lines, of similar lengths. A cue ends at an empty line or
where the next one starts. Numbers, times, settings, styles and tags stay, as do notes, which are counted. Deviation: a
sentence over two cues is translated as two, because its words must keep their times.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from html import escape

from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, Skipped, join_parts, unescape_html
from headwise.errors import UserError
from headwise.text.files.scripts import HAN, KANA, join_sentences

TIME = r"(?:\d+:)?\d{1,2}:\d{1,2}[,.]\d{1,3}"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?$")
LIKE_TIMES = re.compile(r"\s*\d[\d:.,]*\s*-->")
TAG = re.compile(r"(<[^<>]*>|\{\\[^{}]*\})")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
WORD = re.compile(r"(?:<[^<>]*>|\{\\[^{}]*\}|[^\s<]|<)+")
CLOSING = "\u3001\u3002\u300d\u300f\uff01\uff09\uff0c\uff1a\uff1b\uff1f"  # Chinese and Japanese punctuation
SMALL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー"  # Japanese kana that cannot start a line
INSIDE = re.compile(f"(?<=[{HAN}{KANA}{CLOSING}])(?=[{HAN}{KANA}])(?![{SMALL}])")  # between characters of words
SPEAKER_DASHES = tuple("-\u2010\u2011\u2012\u2013\u2014\u2015")
SPEAKER = re.compile(rf"(?:\s|{TAG.pattern})*+[{''.join(SPEAKER_DASHES)}]++(?:</[^<>]*>)*+\s*+(?=\S)")
NOT_A_CUE = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")
LineSpans = list[tuple[int, int]]  # start and end of each line


def read_subtitles(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read subtitles of either format; `languages` are ignored."""
    characters = Characters(path, data)
    is_vtt = path.lower().endswith(".vtt")
    if is_vtt and not re.match(r"WEBVTT(?:\s|$)", characters.text):
        raise UserError(f"{path}: line 1: not a WebVTT file; the first line must be WEBVTT")
    notes: list[Skipped] = []
    passages = list(_passages(characters, is_vtt, notes))
    return Passages(characters, passages, skipped=notes)


def _passages(characters: Characters, is_vtt: bool, notes: list[Skipped]) -> Iterator[TextPassage]:
    """The texts of the cues; appends notes to `notes`."""
    text, timed = characters.text, False
    for block in _blocks(text, is_vtt):
        start, end = block[0][0], block[-1][1]
        head = next((n for n, span in enumerate(block[:2]) if TIMES.match(text[slice(*span)])), -1)
        if is_vtt and head < 0 and NOT_A_CUE.match(text[slice(*block[0])]):
            if text.startswith("NOTE", start):
                notes.append(characters.skipped("note", start, end))
            continue
        wrong = [block[0][0]] if head < 0 and (not timed or any("-->" in text[slice(*span)] for span in block)) else []
        wrong += [at for at, stop in block[head + 1 :] if LIKE_TIMES.match(text[at:stop])]
        if wrong:
            expected = "00:00:01.000 --> 00:00:02.000" if is_vtt else "a number, then 00:00:01,000 --> 00:00:02,000"
            raise UserError(f"{characters.path}: line {characters.line(wrong[0])}: a cue must start with {expected}")
        timed = True
        if head >= 0 or not is_vtt:  # cues of SubRip may contain empty lines
            for lines in _speakers(text, block[head + 1 :]):
                yield _passage(text, lines, is_vtt)


def _blocks(text: str, is_vtt: bool) -> Iterator[LineSpans]:
    """Spans of lines without an empty line or the start of another cue between them."""
    block: LineSpans = []
    timed = False  # whether the block has its times
    for found in LINE.finditer(text):
        line = found[0].rstrip("\r\n")
        is_time = TIMES.match(line) is not None
        if block and is_time and (timed or len(block) > 1 or (is_vtt and block[0][0] == 0)):
            number = block[-1:] if len(block) > 1 and text[slice(*block[-1])].strip().isdecimal() else []
            yield block[: len(block) - len(number)]
            block, timed = number, False
        if line.strip():
            block.append((found.start(), found.start() + len(line)))
            timed |= is_time
        elif block:
            yield block
            block, timed = [], False
    if block:
        yield block


def _speakers(text: str, lines: LineSpans) -> Iterator[LineSpans]:
    """Groups of lines that are one unit."""
    group: LineSpans = []
    for start, end in lines:
        if TAG.sub("", text[start:end]).lstrip().startswith(SPEAKER_DASHES):
            if group:
                yield group
            group = []
            dash = SPEAKER.match(text, start, end)
            start = dash.end() if dash else start
        group.append((start, end))
    if group:
        yield group


def _passage(text: str, lines: LineSpans, is_vtt: bool) -> TextPassage:
    start, end = lines[0][0], lines[-1][1]
    between = text[lines[0][1] : lines[1][0]] if len(lines) > 1 else ""
    pieces = TAG.split(join_sentences(text[slice(*span)].strip() for span in lines))
    source = join_parts(
        [Code(p, inline=True) if i % 2 else unescape_html(p) if is_vtt else p for i, p in enumerate(pieces)]
    )
    return TextPassage(start, end, source, lambda parts: between.join(_wrapped(_to_cue(parts, is_vtt), len(lines))))


def _to_cue(parts: Parts, is_vtt: bool) -> str:
    texts = [part if isinstance(part, str) else part.text for part in parts]
    raw = [(isinstance(part, Code) and part.inline) or not is_vtt for part in parts]
    return "".join(text if is_raw else escape(text, quote=False) for text, is_raw in zip(texts, raw, strict=True))


def _wrapped(text: str, n_lines: int) -> list[str]:
    """A text in at most `n_lines` balanced lines, broken at blanks and between Chinese characters.

    No line but the first starts with a dash, which would suggest another speaker.

    >>> _wrapped("a dog runs and a cat sleeps", 2), _wrapped("一只狗在跑。一只猫在睡。", 2)
    (['a dog runs and', 'a cat sleeps'], ['一只狗在跑。', '一只猫在睡。'])
    """
    words = [(" " * (not n), piece) for word in WORD.findall(text) for n, piece in enumerate(INSIDE.split(word))]
    widths = range(max(1, len(text) // n_lines), len(text) + 1)
    narrowest = bisect_left(widths, True, key=lambda width: len(_lines(words, width)) <= n_lines)
    return _lines(words, widths[narrowest]) if narrowest < len(widths) else [text]


def _lines(words: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Words, each with the blank before it, in lines of at most `width` characters where they fit."""
    lines, length = [list[str]()], 0
    for blank, word in words:
        if length and length + len(blank + word) > width and not word.startswith(SPEAKER_DASHES):
            lines.append([])
            length = 0
        lines[-1] += [blank * (length > 0), word]
        length += len(blank) * (length > 0) + len(word)
    return ["".join(line) for line in lines]
