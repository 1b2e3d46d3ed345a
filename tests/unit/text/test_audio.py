"""Features compared with Whisper's on generated sounds; the resampler compared with the formula of a tone."""

import math
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.text.files.audio import RATE, hz, log_mel, mel, mel_filters, read_audio, resample


def tone(frequency: float, seconds: float, rate: int = RATE) -> np.ndarray:
    return np.sin(2 * math.pi * frequency * np.arange(int(seconds * rate)) / rate).astype(np.float32)


def noise(seconds: int) -> np.ndarray:
    return np.random.default_rng(seconds).standard_normal(seconds * RATE, np.float32)


def sounds() -> dict[str, np.ndarray]:
    sweep = np.sin(np.linspace(0, 300, 5 * RATE) ** 2).astype(np.float32)
    return {
        "tone": 0.3 * tone(440, 2.5),
        "sweep": sweep,
        "noise": 0.1 * noise(3),
        "faint": 1e-4 * noise(1),
        "silence": np.zeros(RATE, np.float32),
        "long": 0.5 * tone(1234, 31) + 0.01 * noise(31),
    }


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("name", sounds())
def test_features_match_whisper(name: str, n_mels: int) -> None:
    """`transformers` computes in float32, whose rounding errors show in the faintest bands, 80 dB down."""
    transformers = pytest.importorskip("transformers")
    extract = transformers.WhisperFeatureExtractor(feature_size=n_mels)
    samples = sounds()[name]
    wanted = extract(samples, sampling_rate=RATE, return_tensors="np").input_features[0]
    found = log_mel(samples, n_mels)
    assert found.shape == (n_mels, 3000)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(mel_filters(n_mels), extract.mel_filters.T, atol=1e-8)


@pytest.mark.parametrize("name", sounds())
def test_features_are_rounded_once(name: str) -> None:
    """Beside the definition in float64: two roundings to float32 (2^-24), of each value and of the loudest."""
    samples = sounds()[name].astype(np.float64)
    padded = np.pad(np.pad(samples, (0, max(0, 30 * RATE - len(samples))))[: 30 * RATE], 200, "reflect")
    angle = -2j * math.pi * np.outer(np.arange(201), np.arange(400)) / 400
    hann = np.sin(math.pi * np.arange(400) / 400) ** 2
    frames = range(0, 3000, 20)
    power = [np.abs(np.exp(angle) @ (hann * padded[160 * at : 160 * at + 400])) ** 2 for at in frames]
    found = log_mel(sounds()[name])
    loudness = np.log10(np.maximum(mel_filters(80) @ np.transpose(power), 1e-10))
    loudest = 4 * found.max() - 4  # of all frames
    wanted = (np.maximum(loudness, loudest - 8) + 4) / 4
    assert np.abs(found[:, frames] - wanted).max() <= 2 * 2**-24 * np.abs(found).max()


def test_long_recordings_are_cut_into_blocks_without_traces() -> None:
    sound = noise(17)
    whole, part = log_mel(sound, seconds=0), log_mel(sound[: 6 * RATE], seconds=0)
    assert whole.shape == (80, 1700)
    np.testing.assert_array_equal(whole[:, :598], part[:, :598])  # the last frames reach beyond the sound


def test_mel_scale_round_trip() -> None:
    frequencies = [0.0, 440.0, 1000.0, 4321.0, 8000.0]
    there = np.array([mel(frequency) for frequency in frequencies])
    np.testing.assert_allclose(hz(there), frequencies, rtol=1e-12)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_a_resampled_tone_is_unchanged(rate: int) -> None:
    found = resample(tone(1000, 0.5, rate), rate)
    assert len(found) == pytest.approx(RATE / 2, abs=1)
    middle = slice(1000, 7000)
    np.testing.assert_allclose(found[middle], tone(1000, 0.5)[: len(found)][middle], atol=2e-3, rtol=0)


def test_resampling_removes_frequencies_above_the_new_limit() -> None:
    assert np.abs(resample(tone(9000, 0.5, 48000), 48000)[1000:7000]).max() < 2e-3


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_files_are_read(kind: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    both = np.stack([0.5 * tone(300, 0.2), 0.25 * tone(300, 0.2)], 1)
    soundfile.write(tmp_path / f"a.{kind}", both, RATE, subtype="PCM_16")
    np.testing.assert_allclose(read_audio(tmp_path / f"a.{kind}"), both.mean(1), atol=1e-4, rtol=0)
    soundfile.write(tmp_path / f"b.{kind}", tone(300, 0.2, 8000), 8000, subtype="PCM_16")
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


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate", [RATE, 8000])
def test_samples_that_are_no_finite_numbers(tmp_path: Path, value: float, rate: int) -> None:
    soundfile = pytest.importorskip("soundfile")
    samples = np.zeros((rate, 2), np.float32)
    samples[rate // 2, 1] = value
    soundfile.write(tmp_path / "bad.wav", samples, rate, subtype="FLOAT")
    with pytest.raises(UserError, match=r"bad\.wav: samples are not finite numbers \(1 of .*, the first at 0\.500 s\)"):
        read_audio(tmp_path / "bad.wav")
