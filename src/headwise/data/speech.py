"""Recordings with transcripts: `sound file TAB transcript` per line, or JSON lines with "audio" and "text".

File names are relative to the folder of the list. Before training only headers are read. Spectrograms are computed when
their batch comes, in every epoch again, so memory does not grow. Masking is a function of (seed, epoch, row). Every
recording is padded with silence to the length of the encoder's position table, because Whisper has no padding mask.
Spectrograms are in `audio.py`, batches in `conditional_generation.py`, training in `headwise.tasks.transcription`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.data.audio import HOP, RATE, log_mel, read_audio, sound_seconds
from headwise.data.conditional_generation import ConditionalDataset, SampleSeed, encode_texts, file_and_text
from headwise.data.corpus import json_object, read_lines
from headwise.data.file_hashes import short_hash
from headwise.data.sources import text_field
from headwise.data.spec_augment import SpecAugment
from headwise.errors import UserError

FORMAT = "write 'sound file TAB transcript' on every line"
OBJECT = '{"audio": "...", "text": "..."}'


@dataclass(frozen=True)
class Recording:
    """A sound file and its transcript."""

    sound: str  # path
    text: str
    origin: str  # "train.tsv: line 3"


def read_recordings(path: str) -> Iterator[Recording]:
    """The recordings of a .tsv or .jsonl file, which may be .gz; transcripts are stripped.

    Raises:
        UserError: a line is malformed, a transcript is empty, or as `read_lines`.
    """
    stem = path.removesuffix(".gz")
    if not stem.endswith((".tsv", ".jsonl")):
        raise UserError(f"{path}: recordings must be listed in .tsv or .jsonl files; {FORMAT}")
    is_json = stem.endswith(".jsonl")
    for number, line in enumerate(read_lines(path), start=1):
        origin = f"{path}: line {number}"
        sound, text = _parse_json(line, origin) if is_json else file_and_text(line, origin, FORMAT)
        if not (sound and text):
            raise UserError(f"{origin} names no sound file" if text else f"{origin} has an empty transcript; remove it")
        yield Recording(str(Path(path).parent / sound), text, origin)


def _parse_json(line: str, origin: str) -> tuple[str, str]:
    record = json_object(line, origin, OBJECT)
    return text_field(record, "audio", origin).strip(), text_field(record, "text", origin).strip()


def recording_seconds(recording: Recording, longest: float) -> float:
    """The duration of a recording; `UserError` if it is missing, empty, invalid, or longer than `longest` seconds."""
    try:
        seconds = sound_seconds(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    if seconds > longest:
        raise UserError(
            f"{recording.origin}: {recording.sound} is {seconds:.1f} s long, but the model takes at "
            f"most {longest:g} s: split it and its transcript"
        )
    return seconds


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
