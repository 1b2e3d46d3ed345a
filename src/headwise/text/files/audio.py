"""Sound files to log-mel spectrograms for Whisper (arXiv:2212.04356, section 2.2).

Reads every format and sampling rate that libsndfile supports (WAV, FLAC, OGG, MP3 ...). Channels are averaged, and
other rates are resampled to 16 kHz.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64
from numpy.lib.stride_tricks import sliding_window_view

from headwise.errors import UserError
from headwise.text.files.sources import unreadable

RATE = 16_000  # samples per second
WINDOW, HOP = 400, 160  # samples: 25 and 10 ms
SECONDS = 30  # of a spectrogram
INSTALL = 'pip install "headwise[audio]"'

# Slaney's mel scale (Auditory Toolbox, 1998): linear up to 1 kHz, then logarithmic, 27 mels for a factor of 6.4.
LINEAR_HZ, BREAK_HZ, PER_FACTOR, FACTOR = 200 / 3, 1000.0, 27, 6.4
ZERO_CROSSINGS, KEPT_BAND = 32, 0.97  # of the resampler: on each side; share of the band that is kept
BLOCK = 512  # frames, or outputs of the resampler, computed at once: they fit into the cache, and memory is bounded


def read_audio(path: str | Path) -> Float32[np.ndarray, " samples"]:
    """The samples of a sound file, between -1 and 1, at 16 kHz.

    Raises:
        UserError: the file is missing or not a sound file, its samples are not finite, or `soundfile` is not installed.
    """
    with _open_sound(path) as sound:
        samples, rate = sound.read(dtype="float32", always_2d=True), sound.samplerate
    if not len(samples):
        raise UserError(f"{path}: contains no sound")
    if len(wrong := np.flatnonzero(~np.isfinite(samples).all(1))):
        where = f"{len(wrong):,} of {len(samples):,}, the first at {wrong[0] / rate:.3f} s"
        raise UserError(f"{path}: samples are not finite numbers ({where}); convert the file again")
    return resample(samples.mean(1), rate)


def sound_seconds(path: str | Path) -> float:
    """The duration of a sound file, from its header; `UserError` as `read_audio`."""
    with _open_sound(path) as sound:
        seconds = sound.frames / sound.samplerate
    if not seconds:
        raise UserError(f"{path}: contains no sound")
    return seconds


@contextmanager
def _open_sound(path: str | Path) -> Iterator[Any]:
    """A `soundfile.SoundFile`."""
    try:
        import soundfile
    except ImportError:
        raise UserError(f"{path}: reading sound needs soundfile: {INSTALL}") from None
    try:
        with open(path, "rb") as file, soundfile.SoundFile(file) as sound:
            yield sound
    except OSError as error:
        raise unreadable(str(path), error) from error
    except soundfile.SoundFileError as error:
        raise UserError(f"{path}: is not a readable sound file, such as WAV or FLAC ({error})") from None


def log_mel(
    samples: Float[np.ndarray, " samples"], n_mels: int = 80, seconds: int = SECONDS
) -> Float32[np.ndarray, "n_mels frames"]:
    """The log-mel spectrogram of the first `seconds`, padded with silence; 100 frames per second.

    log10 of the power in each band, clipped at 8 below the maximum; then 4 is added, and the sum is divided by 4.
    Computed in float64 and rounded once: within 6e-8 of the exact values for each unit of their size.

    Args:
        samples: at 16 kHz.
        n_mels: number of bands: 80, or 128 for Whisper large-v3.
        seconds: length of the result; 0 = that of the sound.
    """
    length = seconds * RATE or len(samples)
    samples = np.pad(samples[:length].astype(np.float64), (0, max(length - len(samples), 0)))
    frames = sliding_window_view(np.pad(samples, WINDOW // 2, "reflect"), WINDOW)[::HOP][: length // HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)  # Hann, periodic
    power = [mel_filters(n_mels) @ _power(part * window).T for part in _blocks(frames)]
    loudness = np.log10(np.concatenate(power, 1).clip(1e-10))
    return ((loudness.clip(loudness.max() - 8) + 4) / 4).astype(np.float32)


def _power(frames: Float64[np.ndarray, "frames window"]) -> Float64[np.ndarray, "frames frequencies"]:
    spectrum = np.fft.rfft(frames)
    return spectrum.real**2 + spectrum.imag**2


def _blocks(rows: Float[np.ndarray, "rows width"]) -> list[Float[np.ndarray, "_ width"]]:
    return [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]


@cache
def mel_filters(n_mels: int) -> Float64[np.ndarray, "n_mels frequencies"]:
    """Triangular filters over the frequencies of the spectrum, 0 to 8 kHz, each of area 1 over Hz.

    Band i rises from the centre of band i - 1 and falls to that of band i + 1; centres are equally spaced in mels.
    """
    edges = hz(np.linspace(0, mel(RATE / 2), n_mels + 2))
    low, centre, high = (edges[i : len(edges) - 2 + i, None] for i in range(3))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    return np.minimum(rising, falling).clip(0) * 2 / (high - low)


def mel(frequency: float) -> float:
    """Convert Hz to Slaney's mel scale.

    >>> round(mel(500.0), 6), round(mel(6400.0), 6)
    (7.5, 42.0)
    """
    if frequency < BREAK_HZ:
        return frequency / LINEAR_HZ
    return BREAK_HZ / LINEAR_HZ + PER_FACTOR * math.log(frequency / BREAK_HZ) / math.log(FACTOR)


def hz(mels: Float64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    """Convert mels to Hz, the inverse of `mel`."""
    above = (mels - BREAK_HZ / LINEAR_HZ).clip(0)
    return np.where(above > 0, BREAK_HZ * FACTOR ** (above / PER_FACTOR), mels * LINEAR_HZ)


def resample(samples: Float32[np.ndarray, " samples"], rate: int) -> Float32[np.ndarray, " resampled"]:
    """Resample to 16 kHz by sinc interpolation (J. O. Smith, Digital Audio Resampling).

    The sinc has ZERO_CROSSINGS crossings on each side and a squared-cosine window. Its cutoff is slightly below half
    the lower rate, against aliasing.
    """
    if rate == RATE:
        return samples
    shared = math.gcd(rate, RATE)
    old, new = rate // shared, RATE // shared  # `new` samples for every `old`, at `new` different phases
    band = KEPT_BAND * min(1, new / old)  # share of the old band
    reach = math.ceil(ZERO_CROSSINGS / band)
    offset, phase = np.arange(-reach, reach + old), np.arange(new)[:, None] * old / new
    t = ((offset - phase) * band).clip(-ZERO_CROSSINGS, ZERO_CROSSINGS)
    kernels = (band * np.sinc(t) * np.cos(t * math.pi / (2 * ZERO_CROSSINGS)) ** 2).astype(np.float32)
    padded = np.pad(samples, (reach, reach + old))
    windows = sliding_window_view(padded, len(offset))[::old]
    resampled = np.concatenate([part @ kernels.T for part in _blocks(windows)])
    return resampled.reshape(-1)[: math.ceil(len(samples) * new / old)]
