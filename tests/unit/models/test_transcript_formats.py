"""Transcripts as text, subtitles and JSON."""

import json

import pytest

from headwise.documents.formats.subtitles import read_subtitles
from headwise.models.speech.transcript_formats import FORMATS, Segment, Transcript

FOUND = Transcript("A --> b & <c>. Ja.", "de", (Segment(0.0, 2.5, "A --> b & <c>."), Segment(3599.999, 3661.04, "Ja.")))
SRT = """1
00:00:00,000 --> 00:00:02,500
A -> b & <c>.

2
00:59:59,999 --> 01:01:01,040
Ja.
"""
VTT = """WEBVTT

00:00:00.000 --> 00:00:02.500
A --&gt; b &amp; &lt;c&gt;.

00:59:59.999 --> 01:01:01.040
Ja.
"""


def test_formats() -> None:
    assert FORMATS["text"][1](FOUND) == "A --> b & <c>. Ja.\n"
    assert (FORMATS["srt"][1](FOUND), FORMATS["vtt"][1](FOUND)) == (SRT, VTT)
    found = json.loads(FORMATS["json"][1](FOUND))
    assert (found["text"], found["language"]) == (FOUND.text, "de")
    assert found["segments"][1] == {"start": 3599.999, "end": 3661.04, "text": "Ja."}


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_subtitles_can_be_translated(name: str) -> None:
    """They are read as `translate` reads them."""
    ending, written = FORMATS[name]
    found = read_subtitles(f"talk{ending}", written(FOUND).encode(), ())
    assert len(found.units) == 2
    assert FORMATS[name][1](Transcript("", "", ())) in ("", "WEBVTT\n")
