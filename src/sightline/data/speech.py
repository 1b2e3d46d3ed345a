"""Recordings with what is said in them: `sound file TAB transcript` a line, or JSON lines with "audio" and "text".

Sound files are named from the folder of the file that lists them. Before training only their headers are read; what is
heard of a batch is computed while those before it are trained on, anew in each epoch, so memory does not grow with the
recordings; what is masked of it follows from seed, epoch and recording. Every recording is a window as long as the
encoder's table of positions, silence behind it: the network has no mask for what it hears, so a shorter window would
not be the same. Not here: spectrograms (`audio.py`), the pieces of transcripts and what is learnt
(`sightline.tasks.transcription`).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sightline.data.audio import HOP, RATE, log_mel, read_audio, sound_seconds
from sightline.data.batch import OnDevices
from sightline.data.batching import EndlessStream, Rows, walk_epochs
from sightline.data.corpus import json_object, read_lines, text_field
from sightline.data.prepared import digest
from sightline.data.spec_augment import SpecAugment
from sightline.errors import UserError

FORMAT = "write 'sound file TAB transcript' on every line"
OBJECT = '{"audio": "...", "text": "..."}'
NOT_PREDICTED = -100  # in `tgt_out`: padding, and what an output is given to begin with


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


def seconds_of(recording: Recording, longest: float) -> float:
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


def window_of(recording: Recording, n_mels: int, frames: int) -> Float[Tensor, "n_mels frames"]:
    """The spectrogram of a recording, silence behind it up to `frames`; `UserError` names the line that lists it."""
    try:
        samples = read_audio(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    return log_mel(samples, n_mels, -(-frames * HOP // RATE))[:, :frames]


@dataclass(frozen=True)
class SpeechBatch(OnDevices):
    """What is heard, and what is to be written, padded on the right."""

    mel: Float[Tensor, "batch n_mels frames"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]  # NOT_PREDICTED where nothing is learnt
    n_targets: int  # pieces of the transcripts, end marks included: what the loss is a sum over
    n_real: int  # cells of `tgt_in` that are no padding

    @property
    def n_tokens(self) -> int:
        """The pieces that are predicted: what speed is counted in."""
        return self.n_targets

    @property
    def n_cells(self) -> int:
        """Cells of `tgt_in`."""
        return self.tgt_in.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        return f"{len(self.mel)} recordings, {self.tgt_in.size(1)} pieces long"


def collate_speech(
    mels: Sequence[Float[Tensor, "n_mels frames"]], texts: Sequence[Sequence[int]], beginning: Sequence[int], end: int
) -> SpeechBatch:
    """Tensors of some recordings and the ids of their transcripts, which come without marks.

    >>> batch = collate_speech([torch.zeros(2, 4)] * 2, [[5, 6], [7]], beginning=[1, 2], end=3)
    >>> batch.tgt_in.tolist(), batch.tgt_out.tolist()
    ([[1, 2, 5, 6], [1, 2, 7, 3]], [[-100, 5, 6, 3], [-100, 7, 3, -100]])
    """
    read = [torch.tensor([*beginning, *text]) for text in texts]
    written = [torch.tensor([NOT_PREDICTED] * (len(beginning) - 1) + [*text, end]) for text in texts]
    tgt_in = pad_sequence(read, batch_first=True, padding_value=end)
    tgt_out = pad_sequence(written, batch_first=True, padding_value=NOT_PREDICTED)
    return SpeechBatch(torch.stack(list(mels)), tgt_in, tgt_out, sum(len(t) + 1 for t in texts), sum(map(len, read)))


@dataclass(frozen=True)
class SpokenCorpus:
    """Recordings whose transcripts are ids, and how they are heard."""

    recordings: tuple[Recording, ...]
    tokens: tuple[list[int], ...]  # of each transcript, without marks
    seconds: float  # of all together
    beginning: tuple[int, ...]  # what every output is given to begin with
    end: int  # the mark behind it
    n_mels: int
    frames: int  # of a window
    masks: SpecAugment | None = None  # of what is trained on

    def __len__(self) -> int:
        return len(self.recordings)

    @property
    def key(self) -> str:
        """Changes with the transcripts, with what they are cut into, and with the sound files' sizes."""
        sizes = [os.path.getsize(one.sound) for one in self.recordings]
        return digest(list(self.tokens), sizes, self.beginning, self.end, self.n_mels, self.frames)

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> SpeechBatch:
        """The batch of some recordings, read from their files now; those of an epoch before the first as they are."""
        mels = [window_of(self.recordings[i], self.n_mels, self.frames) for i in rows.tolist()]
        if self.masks and epoch >= 0:
            drawn = (np.random.default_rng([seed, epoch, i]) for i in rows.tolist())
            mels = [self.masks(mel, generator) for mel, generator in zip(mels, drawn, strict=True)]
        return collate_speech(mels, [self.tokens[i] for i in rows.tolist()], self.beginning, self.end)

    def stream(self, size: int, seed: int, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[SpeechBatch]:
        """Training batches of `size` recordings without end, from `state` on, in an order drawn from (seed, epoch)."""

        def plan(epoch: int) -> list[tuple[int, Rows]]:
            order = np.random.default_rng([seed, epoch]).permutation(len(self))
            return [(epoch, order[at : at + size]) for at in range(0, len(order), size)]

        def load(part: tuple[int, Rows]) -> SpeechBatch:
            return self.load(part[1], seed, part[0])

        return EndlessStream(lambda start: walk_epochs(plan, load, start), state, prefetch=2, pin=pin)

    def in_order(self, size: int) -> Iterator[SpeechBatch]:
        """Every recording once."""
        for at in range(0, len(self), size):
            yield self.load(np.arange(at, min(at + size, len(self))))


def spoken_corpus(
    paths: Sequence[str],
    encode: Callable[[str], list[int]],
    beginning: Sequence[int],
    end: int,
    n_mels: int,
    frames: int,
    max_len: int,
) -> SpokenCorpus:
    """The recordings of some files, each looked at.

    Raises:
        UserError: a sound file is none that can be heard at once, or a transcript has more pieces than fit into
            `max_len` behind the `beginning`; it names file and line.
    """
    recordings = [recording for path in paths for recording in read_recordings(path)]
    seconds = sum(seconds_of(recording, frames * HOP / RATE) for recording in recordings)
    tokens, room = [encode(recording.text) for recording in recordings], max_len - len(beginning)
    for recording, ids in zip(recordings, tokens, strict=True):
        if len(ids) > room:
            raise UserError(
                f"{recording.origin}: the transcript has {len(ids)} pieces, and the model writes {room} at most: cut "
                "it, and the recording"
            )
    return SpokenCorpus(tuple(recordings), tuple(tokens), seconds, tuple(beginning), end, n_mels, frames)
