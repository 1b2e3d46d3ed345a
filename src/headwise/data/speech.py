"""Recordings with what is said in them: `sound file TAB transcript` a line, or JSON lines with "audio" and "text".

Sound files are named from the folder of the file that lists them. Before training only their headers are read; what is
heard of a batch is computed while those before it are trained on, anew in each epoch, so memory does not grow with the
recordings; what is masked of it follows from seed, epoch and recording. Every recording is a window as long as the
encoder's table of positions, silence behind it: the network has no mask for what it hears, so a shorter window would
not be the same. Not here: spectrograms (`audio.py`), batches (`told.py`), the pieces of transcripts and what is
learnt (`headwise.tasks.transcription`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headwise.data.audio import HOP, RATE, log_mel, read_audio, sound_seconds
from headwise.data.conditional_generation import ConditionalDataset, SampleSeed
from headwise.data.corpus import json_object, read_lines
from headwise.data.file_hashes import short_hash
from headwise.data.sources import text_field
from headwise.data.spec_augment import SpecAugment
from headwise.errors import UserError

FORMAT = "write 'sound file TAB transcript' on every line"
OBJECT = '{"audio": "...", "text": "..."}'


@dataclass(frozen=True)
class Recording:
    """A sound file and what is said in it."""

    sound: str  # path
    text: str
    origin: str  # "train.tsv: line 3"


def read_recordings(path: str) -> Iterator[Recording]:
    """The recordings of a .tsv or .jsonl file, which may be .gz; blanks around a transcript are no part of it.

    Raises:
        UserError: a line is not as it should be, a transcript is empty; or what `read_lines` raises.
    """
    stem = path.removesuffix(".gz")
    if not stem.endswith((".tsv", ".jsonl")):
        raise UserError(f"{path}: recordings come as .tsv or .jsonl files; {FORMAT}")
    columns = _of_object if stem.endswith(".jsonl") else _of_columns
    for number, line in enumerate(read_lines(path), start=1):
        origin = f"{path}: line {number}"
        sound, text = columns(line, origin)
        if not (sound and text):
            raise UserError(f"{origin} names no sound file" if text else f"{origin} has an empty transcript; remove it")
        yield Recording(str(Path(path).parent / sound), text, origin)


def _of_columns(line: str, origin: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        found = "no tab" if len(columns) < 2 else f"{len(columns) - 1} tabs"
        raise UserError(f"{origin} has {found}; {FORMAT}")
    return columns[0].strip(), columns[1].strip()


def _of_object(line: str, origin: str) -> tuple[str, str]:
    record = json_object(line, origin, OBJECT)
    return text_field(record, "audio", origin).strip(), text_field(record, "text", origin).strip()


def recording_seconds(recording: Recording, longest: float) -> float:
    """How long a recording is; `UserError` where it is missing, empty, no sound, or longer than `longest` seconds."""
    try:
        seconds = sound_seconds(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    if seconds > longest:
        raise UserError(
            f"{recording.origin}: {recording.sound} is {seconds:.1f} s long, and the model hears {longest:g} s at "
            "once: cut it, and its transcript"
        )
    return seconds


def spectrogram_window(recording: Recording, n_mels: int, frames: int) -> Float[Tensor, "n_mels frames"]:
    """The spectrogram of a recording, silence behind it up to `frames`; `UserError` names the line that lists it."""
    try:
        samples = read_audio(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    return log_mel(samples, n_mels, -(-frames * HOP // RATE))[:, :frames]


@dataclass(frozen=True)
class SpeechDataset(ConditionalDataset):
    """Recordings whose transcripts are ids, and how they are heard."""

    recordings: tuple[Recording, ...]
    seconds: float  # of all together
    n_mels: int
    frames: int  # of a window
    masks: SpecAugment | None = None  # of what is trained on

    @property
    def key(self) -> str:
        """Changes with the transcripts, with what they are cut into, and with the sound files' sizes."""
        sizes = [os.path.getsize(one.sound) for one in self.recordings]
        return short_hash(list(self.tokens), sizes, self.beginning, self.end, self.n_mels, self.frames)

    def values(self, row: int, drawn: SampleSeed | None) -> Float[Tensor, "n_mels frames"]:
        """The spectrogram of a recording, read from its file now; `drawn`: masked, where masks are asked for."""
        mel = spectrogram_window(self.recordings[row], self.n_mels, self.frames)
        return self.masks(mel, np.random.default_rng(drawn)) if self.masks and drawn else mel


def speech_dataset(
    paths: Sequence[str],
    encode: Callable[[str], list[int]],
    beginning: Sequence[int],
    end: int,
    n_mels: int,
    frames: int,
    max_len: int,
) -> SpeechDataset:
    """The recordings of some files, each looked at.

    Raises:
        UserError: a sound file is none that can be heard at once, or a transcript has more pieces than fit into
            `max_len` behind the `beginning`; it names file and line.
    """
    recordings = [recording for path in paths for recording in read_recordings(path)]
    seconds = sum(recording_seconds(recording, frames * HOP / RATE) for recording in recordings)
    tokens, room = [encode(recording.text) for recording in recordings], max_len - len(beginning)
    for recording, ids in zip(recordings, tokens, strict=True):
        if len(ids) > room:
            raise UserError(
                f"{recording.origin}: the transcript has {len(ids)} pieces, and the model writes {room} at most: cut "
                "it, and the recording"
            )
    return SpeechDataset(tuple(tokens), tuple(beginning), end, tuple(recordings), seconds, n_mels, frames)
