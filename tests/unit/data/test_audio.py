"""Features compared with Whisper's on generated sounds; the resampler compared with the formula of a tone."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.data.audio import RATE, hz, log_mel, mel, mel_filters, read_audio, resample
from headwise.errors import UserError


def tone(frequency: float, seconds: float, rate: int = RATE) -> Tensor:
    return torch.sin(2 * math.pi * frequency * torch.arange(int(seconds * rate), dtype=torch.float64) / rate).float()


def sounds() -> dict[str, Tensor]:
    sweep = torch.sin(torch.linspace(0, 300, 5 * RATE).square())
    return {
        "tone": 0.3 * tone(440, 2.5),
        "sweep": sweep,
        "noise": 0.1 * torch.randn(3 * RATE),
        "faint": 1e-4 * torch.randn(RATE),
        "silence": torch.zeros(RATE),
        "long": 0.5 * tone(1234, 31) + 0.01 * torch.randn(31 * RATE),
    }


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("name", sounds())
def test_features_match_whisper(name: str, n_mels: int) -> None:
    transformers = pytest.importorskip("transformers")
    extract = transformers.WhisperFeatureExtractor(feature_size=n_mels)
    samples = sounds()[name]
    wanted = extract(samples.numpy(), sampling_rate=RATE, return_tensors="np").input_features[0]
    found = log_mel(samples, n_mels)
    assert found.shape == (n_mels, 3000)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(mel_filters(n_mels).numpy(), extract.mel_filters.T, atol=1e-8)


def test_mel_scale_round_trip() -> None:
    frequencies = [0.0, 440.0, 1000.0, 4321.0, 8000.0]
    there = torch.tensor([mel(frequency) for frequency in frequencies], dtype=torch.float64)
    torch.testing.assert_close(hz(there), torch.tensor(frequencies, dtype=torch.float64))


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_a_resampled_tone_is_unchanged(rate: int) -> None:
    found = resample(tone(1000, 0.5, rate), rate)
    assert len(found) == pytest.approx(RATE / 2, abs=1)
    middle = slice(1000, 7000)
    torch.testing.assert_close(found[middle], tone(1000, 0.5)[: len(found)][middle], atol=2e-3, rtol=0)


def test_resampling_removes_frequencies_above_the_new_limit() -> None:
    assert resample(tone(9000, 0.5, 48000), 48000)[1000:7000].abs().max() < 2e-3


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_files_are_read(kind: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    both = torch.stack([0.5 * tone(300, 0.2), 0.25 * tone(300, 0.2)], 1)
    soundfile.write(tmp_path / f"a.{kind}", both.numpy(), RATE, subtype="PCM_16")
    torch.testing.assert_close(read_audio(tmp_path / f"a.{kind}"), both.mean(1), atol=1e-4, rtol=0)
    soundfile.write(tmp_path / f"b.{kind}", tone(300, 0.2, 8000).numpy(), 8000, subtype="PCM_16")
    assert len(read_audio(tmp_path / f"b.{kind}")) == int(0.2 * RATE)


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "text.wav").write_text("no sound")
    soundfile.write(tmp_path / "empty.wav", np.zeros((0, 1), np.float32), RATE)
    for name, message in [
        ("text.wav", "text.wav: is not a readable sound file, such as WAV or FLAC"),
        ("empty.wav", "empty.wav: contains no sound"),
        ("nothing.wav", "nothing.wav: no such file"),
        ("", "is a folder"),
    ]:
        with pytest.raises(UserError, match=message):
            read_audio(tmp_path / name)
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(UserError, match=r'needs soundfile: pip install "headwise\[audio\]"'):
        read_audio(tmp_path / "text.wav")
