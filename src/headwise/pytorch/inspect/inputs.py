"""Single inputs of a network, with names for their positions: a text, a picture, a sound.

Each is a `pair_tensors.InspectedInput`; `headwise.pytorch.models.inputs` makes them from texts and files. See
`recording` for attention and `predictions` for predictions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.pytorch.inspect.pair_tensors import device_of
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.view.record import NEXT, Axis, Times, Word
from headwise.view.words import words_spelled

SILENCE = "<silence>"  # the rest of the encoder's window behind a sound
Names = Callable[[Sequence[int]], list[str]]  # of the outputs of a head


@dataclass(frozen=True)
class EncodedInput:
    """The input of an encoder alone: a text or a picture."""

    text: str
    values: Tensor  # (1, ...): ids, or pixels
    axis: Axis
    written: list[str]
    names: Names

    @property
    def described(self) -> dict[str, Any]:
        """The fields of a record."""
        return {"text": self.text, "translation": "", "src": self.axis, "tgt": Axis()}

    @property
    def read(self) -> list[str]:
        """There is no decoder."""
        return []

    def read_by(self, network: Any) -> Float[Tensor, "1 positions d_model"]:
        """The last hidden states."""
        return network.encode(self.values.to(device_of(network)))

    def as_shown(self, stack: str, weights: Tensor) -> Tensor:
        """Every position is shown."""
        return weights


@dataclass(frozen=True)
class ContinuedText:
    """The input of a decoder alone: each token predicts the next one."""

    text: str
    values: Tensor  # (1, length): ids
    axis: Axis
    written: list[str]
    names: Names

    @property
    def described(self) -> dict[str, Any]:
        """The fields of a record. Rows are named by what they predict, so words are one position further left."""
        spans = [Word(word.text, max(0, word.start - 1), word.stop - 1) for word in self.axis.words if word.stop > 1]
        return {"text": self.text, "translation": "", "src": Axis(), "tgt": Axis([*self.read[1:], NEXT], spans)}

    @property
    def read(self) -> list[str]:
        """The tokens of the text."""
        return list(self.axis.labels)

    def read_by(self, network: Any) -> Float[Tensor, "1 length d_model"]:
        """The last hidden states."""
        return network.decode(self.values.to(device_of(network)))

    def as_shown(self, stack: str, weights: Tensor) -> Tensor:
        """Every token is shown."""
        return weights


@dataclass(frozen=True)
class DescribedInput:
    """A picture or a sound, and its description."""

    text: str
    values: Float[Tensor, "1 *any"]  # pixels, or a spectrogram
    prompt: list[int]  # the start tokens of the decoder
    tgt: list[int]  # the tokens after them, end token included
    tokenizer: PairTokenizer

    @property
    def along(self) -> Axis:
        """The positions of the encoder."""
        raise NotImplementedError

    @property
    def described(self) -> dict[str, Any]:
        """The fields of a record."""
        ids = [*self.prompt[1:], *self.tgt]
        translation = self.tokenizer.decode(ids).strip()
        return {
            "text": self.text,
            "translation": translation,
            "src": self.along,
            "tgt": Axis(self.written, words_spelled(self.tokenizer, ids)),
        }

    @property
    def read(self) -> list[str]:
        """The input of the decoder, start token first."""
        return self.names([*self.prompt, *self.tgt[:-1]])

    @property
    def written(self) -> list[str]:
        """The output of the decoder, tokens of language and task included."""
        return self.names([*self.prompt[1:], *self.tgt])

    def names(self, ids: Sequence[int]) -> list[str]:
        """The tokens with these ids."""
        return self.tokenizer.pieces(ids)

    def read_by(self, network: Any) -> Float[Tensor, "1 tgt_len d_model"]:
        """The last hidden states of the decoder."""
        tokens = torch.tensor([[*self.prompt, *self.tgt[:-1]]], device=device_of(network))
        return network.decode(tokens, network.encode(self.values.to(next(network.parameters()))))


@dataclass(frozen=True)
class CaptionedPicture(DescribedInput):
    """A picture and its caption."""

    patches: Axis

    @property
    def along(self) -> Axis:
        """The patches, with the tokens before them."""
        return self.patches

    def as_shown(self, stack: str, weights: Tensor) -> Tensor:
        """Every position is shown."""
        return weights


@dataclass(frozen=True)
class TranscribedSound(DescribedInput):
    """A sound and its transcript.

    The positions of the encoder are grouped into at most `n_times` stretches of the sound and one of silence behind it.
    Attention to a stretch is the sum over its positions, attention from it their mean, so rows still sum to one.
    """

    n_sound: int  # positions of the encoder that hold sound
    seconds: float  # of a position
    n_times: int  # 0 = a stretch for every position

    @property
    def along(self) -> Axis:
        """The stretches, named by their start in seconds."""
        step = self.width * self.seconds
        labels = [f"{i * step:.{1 if step >= 0.1 else 2}f} s" for i in range(ceil(self.n_sound / self.width))]
        spoken = self.values[0].mean(0).unflatten(0, (-1, 2)).mean(1)  # of each position, two frames
        loudness = (self.stretches.T @ spoken / self.stretches.sum(0))[: len(labels)]
        loudness = (loudness - loudness.min()) / (loudness.max() - loudness.min()).clamp_min(1e-6)
        behind = [SILENCE] if self.stretches.size(1) > len(labels) else []
        return Axis([*labels, *behind], of=Times(step, loudness.float().numpy()))

    @property
    def width(self) -> int:
        """Positions of a stretch."""
        return ceil(self.n_sound / self.n_times) if self.n_times else 1

    @cached_property
    def stretches(self) -> Float[Tensor, "positions stretches"]:
        """1 where a position belongs to a stretch; the last one is the silence."""
        positions = torch.arange(self.values.size(2) // 2)
        n_times = ceil(self.n_sound / self.width)
        owner = torch.where(positions < self.n_sound, positions // self.width, n_times)
        return torch.nn.functional.one_hot(owner).float()

    def as_shown(
        self, stack: str, weights: Float[Tensor, "heads queries keys"]
    ) -> Float[Tensor, "heads shown shown_keys"]:
        """The encoder's positions as stretches."""
        if stack == "decoder":
            return weights
        stretches = self.stretches.to(weights.device)
        summed = weights @ stretches
        return (stretches / stretches.sum(0)).T @ summed if stack == "encoder" else summed
