"""Whisper's windows and special tokens; tests/parity/test_generation.py compares its rules for timestamps."""

import numpy as np
import pytest
import tokenizers
import torch

from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.core.extensions.timestamps import constrain_timestamps
from headwise.errors import UserError
from headwise.models.speech.transcribe import (
    WhisperTokens,
    segments,
    start_tokens,
    whisper_tokens,
    windows,
)
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.tokenizers.vocabulary import Vocabulary

MARKS = WhisperTokens(13, 12, 16, {"en": 14, "de": 15}, {"transcribe": 10, "translate": 11}, None)
SILENT = Vocabulary(lambda text: [], lambda ids: "", {"<|notimestamps|>": 16, "<|transcribe|>": 10}.get)


def test_start_tokens() -> None:
    assert start_tokens(MARKS, "de", "translate", timestamps=True) == [13, 15, 11]
    assert start_tokens(MARKS, "en", "transcribe", timestamps=False) == [13, 14, 10, 16]
    english = WhisperTokens(13, 12, 16, {}, {}, None)
    assert start_tokens(english, "", "transcribe", timestamps=False) == [13, 16]
    for marks, language, task, message in [
        (MARKS, "fr", "transcribe", "language 'fr': this model knows de, en"),
        (MARKS, "en", "sing", "task 'sing': must be"),
        (english, "en", "transcribe", "is for English only"),
    ]:
        with pytest.raises(UserError, match=message):
            start_tokens(marks, language, task, timestamps=True)


def test_special_tokens_of_new_and_old_files() -> None:
    settings = GenerationConfig(SearchSettings(), SpecialIds(bos_id=13, eos_id=12))
    values = {"no_timestamps_token_id": 7, "lang_to_id": {"<|en|>": 14}, "task_to_id": {"transcribe": 9}}
    assert whisper_tokens(settings, values, SILENT) == WhisperTokens(13, 12, 7, {"en": 14}, {"transcribe": 9}, None)
    assert whisper_tokens(settings, {"max_initial_timestamp_index": 50}, SILENT) == WhisperTokens(
        13, 12, 16, {}, {}, 50
    )
    with pytest.raises(UserError, match="has no no_timestamps_token_id"):
        whisper_tokens(settings, {}, Vocabulary(SILENT.encode, SILENT.decode, {}.get))


def vocabulary_with(*pieces: str) -> Vocabulary:
    """A vocabulary with these pieces, numbered from 0."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    tokenizer.add_special_tokens(list(pieces))
    return Vocabulary(tokenizer.encode, tokenizer.decode, tokenizer.token_to_id, tokenizer.get_vocab)


def test_languages_from_the_vocabulary() -> None:
    """For fine-tuned models; English-only models have them in the vocabulary, too."""
    marks = [
        "<|startoftranscript|>",
        "<|en|>",
        "<|yue|>",
        "<|translate|>",
        "<|transcribe|>",
        "<|notimestamps|>",
        "<|0.00|>",
    ]
    vocabulary = vocabulary_with(*marks)
    several, english = (GenerationConfig(SearchSettings(), SpecialIds(bos_id=1, eos_id=end)) for end in (50257, 50256))
    found = whisper_tokens(several, {}, vocabulary)
    assert (found.languages, found.tasks) == ({"en": 2, "yue": 3}, {"transcribe": 5, "translate": 4})
    assert start_tokens(found, "yue", "translate", timestamps=True) == [1, 3, 4]
    assert whisper_tokens(english, {}, vocabulary).languages == {}
    assert whisper_tokens(several, {"is_multilingual": False}, vocabulary).languages == {}
    assert whisper_tokens(several, {"lang_to_id": {"<|en|>": 2}}, vocabulary).languages == {"en": 2}


def test_timestamps_never_decrease() -> None:
    """After 17 + 3 comes text; after text, any later timestamp."""
    histories = torch.tensor([[20, 5, 21], [20, 5, 6]])
    found = constrain_timestamps(torch.zeros(2, 30).log_softmax(-1), histories, MARKS.timestamps, MARKS.end)
    allowed = [row.isfinite().nonzero().squeeze(1).tolist() for row in found]
    assert allowed == [list(range(21, 30))] * 2  # all timestamps together are more probable than the end
    certain = torch.full((1, 30), -9.0)
    certain[0, 5] = 0.0
    found = constrain_timestamps(certain, histories[1:], MARKS.timestamps, MARKS.end)
    assert found[0, [5, 16, 20, 21]].isfinite().tolist() == [True, False, False, True]


def test_segments() -> None:
    assert segments([100, 7, 8, 115, 115, 9, 120], 100, 60) == ([(0.0, 0.3, [7, 8]), (0.3, 0.4, [9])], 60)
    assert segments([100, 7, 115, 115, 9, 9], 100, 60) == ([(0.0, 0.3, [7])], 30)
    assert segments([100, 7, 115], 100, 60) == ([(0.0, 0.3, [7])], 60)
    assert segments([7, 8], 100, 60) == ([(0.0, 0.6, [7, 8])], 60)
    assert segments([], 100, 60) == ([], 60)
    assert segments([100, 100], 100, 60) == ([], 60)  # without progress, skip the window


def test_windows_start_after_the_last_complete_segment() -> None:
    written = iter([[17, 5, 22, 22, 6], [17, 6, 27], [17, 7, 18]])
    heard: list[np.ndarray] = []

    def listen(mel: np.ndarray) -> list[int]:
        heard.append(mel)
        return next(written)

    mel = np.arange(60, dtype=np.float32)[None]
    found = list(windows(listen, mel, frames=34, window=20, first_timestamp=17))
    assert [(round(start, 2), round(end, 2), text) for start, end, text in found] == [
        (0.0, 0.1, [5]),
        (0.1, 0.3, [6]),
        (0.3, 0.32, [7]),
    ]
    assert [int(part[0, 0]) for part in heard] == [0, 10, 30]
    assert all(part.shape[1] == 20 for part in heard)


def test_no_segment_ends_after_the_recording() -> None:
    """A window has 20 frames, 0.2 s; the model hears text in the padding of the last one."""
    mel = np.zeros((2, 26), np.float32)
    outputs = iter([[17, 5, 27], [17, 6, 19, 19, 7, 27]])
    found = list(windows(lambda window: next(outputs), mel, frames=26, window=20, first_timestamp=17))
    assert found == [(0.0, pytest.approx(0.2), [5]), (pytest.approx(0.2), pytest.approx(0.24), [6]),
                     (pytest.approx(0.24), pytest.approx(0.26), [7])]  # fmt: skip
