"""Transcripts, and their files: plain text, subtitles (SubRip and WebVTT, https://www.w3.org/TR/webvtt1/) and JSON.

See `headwise.documents.formats.subtitles` for the translation of subtitles.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape


@dataclass(frozen=True)
class Segment:
    """The text between two times, in seconds from the start of the recording."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """The transcript of a recording."""

    text: str
    language: str  # code; "" for English-only models
    segments: tuple[Segment, ...]  # without timestamps one for each window


def as_text(found: Transcript) -> str:
    """The text in one line."""
    return f"{found.text}\n"


def as_json(found: Transcript) -> str:
    """One object with text, language and segments."""
    return json.dumps(asdict(found), ensure_ascii=False) + "\n"


def as_srt(found: Transcript) -> str:
    """Numbered subtitles, one per segment."""
    cues = [
        f"{number}\n{_time(one.start, ',')} --> {_time(one.end, ',')}\n{one.text.replace('-->', '->')}\n"
        for number, one in enumerate(found.segments, 1)
    ]
    return "\n".join(cues)


def as_vtt(found: Transcript) -> str:
    """Subtitles for web pages, one cue per segment."""
    cues = [
        f"{_time(one.start, '.')} --> {_time(one.end, '.')}\n{escape(one.text, quote=False)}\n"
        for one in found.segments
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _time(seconds: float, point: str) -> str:
    """A time as subtitles have it.

    >>> _time(3661.5, ",")
    '01:01:01,500'
    """
    whole, milliseconds = divmod(round(1000 * seconds), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"


FORMATS: dict[str, tuple[str, Callable[[Transcript], str]]] = {  # ending of the file, and how it is written
    "text": (".txt", as_text),
    "srt": (".srt", as_srt),
    "vtt": (".vtt", as_vtt),
    "json": (".json", as_json),
}
