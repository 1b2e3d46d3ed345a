"""Recordings with transcripts as datasets for training.

Before training only headers of sound files are read. Spectrograms are computed when their batch comes, in every epoch
again, so memory does not grow. Masking is a function of (seed, epoch, row). Every recording is padded with silence to
the length of the encoder's position table, because Whisper has no padding mask. Lists of recordings are in
`recordings.py`, spectrograms in `audio.py`, batches in `conditional_generation.py`, training in
`headwise.pytorch.tasks.transcription`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import UserError
from headwise.pytorch.data.conditional_generation import ConditionalDataset, SampleSeed, encode_texts
from headwise.pytorch.data.spec_augment import SpecAugment
from headwise.text.files.audio import HOP, RATE, log_mel, read_audio
from headwise.text.files.recordings import Recording, read_recordings, recording_seconds
from headwise.text.prepared.file_hashes import short_hash


def spectrogram_window(recording: Recording, n_mels: int, frames: int) -> Float[Tensor, "n_mels frames"]:
    """The spectrogram of a recording, padded with silence to `frames`; a `UserError` names the line that lists it."""
    try:
        samples = read_audio(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    return torch.from_numpy(log_mel(samples, n_mels, -(-frames * HOP // RATE))[:, :frames])


@dataclass(frozen=True)
class SpeechDataset(ConditionalDataset):
    """Recordings with tokenised transcripts, as spectrograms."""

    recordings: tuple[Recording, ...]
    seconds: float  # total duration
    n_mels: int
    frames: int  # of a window
    masks: SpecAugment | None = None  # for training

    @property
    def key(self) -> str:
        """A hash of the tokens of the transcripts and the sizes of the sound files."""
        sizes = [os.path.getsize(one.sound) for one in self.recordings]
        return short_hash(list(self.tokens), sizes, self.prompt, self.end, self.n_mels, self.frames)

    def values(self, row: int, seed: SampleSeed | None) -> Float[Tensor, "n_mels frames"]:
        """The spectrogram of a recording, read from its file; masked if there are `masks` and a `seed`."""
        mel = spectrogram_window(self.recordings[row], self.n_mels, self.frames)
        return self.masks(mel, np.random.default_rng(seed)) if self.masks and seed else mel


def speech_dataset(
    paths: Sequence[str],
    encode: Callable[[str], list[int]],
    prompt: Sequence[int],
    end: int,
    n_mels: int,
    frames: int,
    max_len: int,
) -> SpeechDataset:
    """Read lists of recordings and check each.

    Raises:
        UserError: a sound file is invalid or too long, or a transcript is longer than `max_len` with the `prompt`.
    """
    recordings = [recording for path in paths for recording in read_recordings(path)]
    seconds = sum(recording_seconds(recording, frames * HOP / RATE) for recording in recordings)
    texts = ((recording.text, recording.origin) for recording in recordings)
    tokens = encode_texts(texts, encode, max_len - len(prompt), "transcript", "split it and the recording")
    return SpeechDataset(tokens, tuple(prompt), end, tuple(recordings), seconds, n_mels, frames)
