"""Datasets for text generation from sounds or images: a decoder gets a prompt and learns the text that follows.

Files are inputs when their batch comes, so memory does not grow with them. Recordings are in `speech.py`, captioned
images in `captions.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.core.batches import DeviceBatch
from headwise.errors import UserError
from headwise.pytorch.data.stream import LazyDataset
from headwise.text.prepared.batch_planning import Rows

NOT_PREDICTED = -100  # in `tgt_out`: padding and the prompt
SampleSeed = tuple[int, int, int]  # (seed, epoch, row), which determine the augmentation of an example


@dataclass(frozen=True)
class ConditionalBatch(DeviceBatch):
    """Inputs of an encoder, and texts for the decoder, padded on the right."""

    values: Float[Tensor, "batch *any"]  # spectrograms, or pixels
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]  # NOT_PREDICTED where there is no loss
    n_targets: int  # tokens of the texts, with EOS
    n_real: int  # positions of `tgt_in` without padding

    @property
    def n_tokens(self) -> int:
        return self.n_targets

    @property
    def n_cells(self) -> int:
        return self.tgt_in.numel()

    @property
    def extent(self) -> str:
        return f"{len(self.values)} recordings or images, {self.tgt_in.size(1)} tokens long"


def collate_conditional(
    values: Sequence[Float[Tensor, "*any"]], texts: Sequence[Sequence[int]], prompt: Sequence[int], end: int
) -> ConditionalBatch:
    """Build the tensors of a batch from inputs and the token ids of their texts, without special tokens.

    >>> batch = collate_conditional([torch.zeros(2, 4)] * 2, [[5, 6], [7]], prompt=[1, 2], end=3)
    >>> batch.tgt_in.tolist(), batch.tgt_out.tolist()
    ([[1, 2, 5, 6], [1, 2, 7, 3]], [[-100, 5, 6, 3], [-100, 7, 3, -100]])
    """
    inputs = [torch.tensor([*prompt, *text]) for text in texts]
    outputs = [torch.tensor([NOT_PREDICTED] * (len(prompt) - 1) + [*text, end]) for text in texts]
    tgt_in = pad_sequence(inputs, batch_first=True, padding_value=end)
    tgt_out = pad_sequence(outputs, batch_first=True, padding_value=NOT_PREDICTED)
    return ConditionalBatch(
        torch.stack(list(values)), tgt_in, tgt_out, sum(len(t) + 1 for t in texts), sum(map(len, inputs))
    )


@dataclass(frozen=True)
class ConditionalDataset(LazyDataset[ConditionalBatch]):
    """Sounds or images with tokenised texts."""

    tokens: tuple[list[int], ...]  # of each text, without special tokens
    prompt: tuple[int, ...]  # first decoder inputs of every text
    end: int  # EOS

    def __len__(self) -> int:
        return len(self.tokens)

    def values(self, row: int, seed: SampleSeed | None) -> Float[Tensor, "*any"]:
        """The input of the encoder, inputs from its file; augmented if there is a `seed`."""
        raise NotImplementedError

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> ConditionalBatch:
        inputs = [self.values(row, None if epoch < 0 else (seed, epoch, row)) for row in rows.tolist()]
        return collate_conditional(inputs, [self.tokens[row] for row in rows.tolist()], self.prompt, self.end)


def encode_texts(
    texts: Iterable[tuple[str, str]], encode: Callable[[str], list[int]], limit: int, kind: str, advice: str
) -> tuple[list[int], ...]:
    """The token ids of texts, each with its location; `UserError` for a text of more than `limit` tokens."""
    tokens = []
    for text, location in texts:
        tokens.append(encode(text))
        if len(tokens[-1]) > limit:
            length = f"{len(tokens[-1])} tokens, but the model writes at most {limit}"
            raise UserError(f"{location}: the {kind} has {length}: {advice}")
    return tuple(tokens)
