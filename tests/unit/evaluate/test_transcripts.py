"""Word error rates by hand; how texts are normalised is compared in tests/parity/test_speech.py."""

import sys

import pytest

from headwise.errors import UserError
from headwise.evaluate.transcripts import normalizer_of, transcript_report


def test_errors_by_hand() -> None:
    pytest.importorskip("jiwer")
    report = transcript_report(["one two three four", "Five."], ["one too four", "five six"])
    assert (report.substitutions, report.deletions, report.insertions, report.words) == (1, 1, 1, 5)
    assert report.wer == pytest.approx(3 / 5)
    assert report.wer_as_written == pytest.approx(4 / 5)
    assert report.recordings == 2 and report.as_json()["wer"] == report.wer
    assert report.render().startswith("WER 60.00% (1 substituted, 1 deleted, 1 inserted; 80.00% as written), CER ")
    characters = transcript_report(["abcd"], ["abce"])
    assert (characters.cer, characters.wer) == (0.25, 1.0)


def test_a_reference_without_words_is_refused() -> None:
    pytest.importorskip("jiwer")
    with pytest.raises(UserError, match=r"no word left to compare: '\[noise\]'; remove that recording"):
        transcript_report(["a", "[noise]"], ["a", ""])


def test_without_jiwer_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(UserError, match=r'counted by jiwer: pip install "headwise\[speech\]"'):
        transcript_report(["a"], ["a"])


def test_english_makes_numbers_and_spellings_one() -> None:
    pytest.importorskip("jiwer")
    pytest.importorskip("whisper_normalizer")
    report = transcript_report(["Seven colours, won't it?"], ["7 colors will not it"], "english")
    assert report.wer == 0 and report.as_json()["normalizer"] == "english"
    assert report.render().split(" over ")[0].endswith("English normalised")
    assert transcript_report(["Seven colours"], ["7 colors"]).wer == 1


def test_a_normaliser_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "whisper_normalizer.english", None)
    with pytest.raises(UserError, match=r'needs whisper-normalizer: pip install "headwise\[speech-english\]"'):
        normalizer_of("english")
    with pytest.raises(UserError, match="normalizer"):
        normalizer_of("french")
