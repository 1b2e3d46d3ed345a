"""What an export is made of: a trained Transformer with its tokenizer, and texts to compare translations on.

Not here: formats, and where they are written.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.checkpoint.trained import read_model_directory
from sightline.config import DecodeConfig, ModelConfig
from sightline.data.tokenizer import Tokenizer
from sightline.decode.engine import SpecialIds, decode_tokens
from sightline.errors import UserError
from sightline.network.positions import LearnedPositions
from sightline.network.transformer import Transformer

POSITIONS = 1024  # exported; formats need a number
TEXTS, WORDS, LENGTH = 8, 6, 48  # of the check: texts, words each, pieces of a translation


@dataclass(frozen=True)
class Exported:
    """A model to export."""

    network: Transformer
    tokenizer: Tokenizer
    config: ModelConfig
    origin: str  # where it was read

    @property
    def pieces(self) -> list[str]:
        """The name of every id, each different."""
        backend = self.tokenizer.backend
        return [backend.id_to_token(i) or f"<unused {i}>" for i in range(self.tokenizer.vocab_size)]

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that our search never writes."""
        return self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.unk_id

    def greedy(self, texts: Sequence[str]) -> list[list[int]]:
        """Our greedy translations, in ids without end marks, at most LENGTH steps; what others must give as well."""
        config = DecodeConfig(beam_size=1, max_length_factor=0.0, max_length_extra=LENGTH)
        special = SpecialIds(*(getattr(self.tokenizer, f"{name}_id") for name in ("pad", "bos", "eos", "unk")))
        found = decode_tokens(self.network, self.tokenizer.encode_batch(texts), config, special)
        return [hypotheses[0].tokens for hypotheses in found]

    def parameters(self) -> dict[str, Tensor]:
        """The parameters under all their names: a shared one is there several times."""
        named = self.network.named_parameters(remove_duplicate=False)
        return {name: parameter.detach() for name, parameter in named}


def read_exported(path: str | Path) -> Exported:
    """The translation model in `path`; `UserError` where there is none, or one that is no Transformer."""
    directory = read_model_directory(path)
    if not isinstance(directory.network, Transformer):
        architecture = directory.config.model.architecture
        raise UserError(f"{path}: is a {architecture} model; only Transformers are exported")
    return Exported(directory.network, directory.tokenizer, directory.config.model, str(path))


def refuse(exported: Exported, target: str, *reasons: tuple[bool, str]) -> None:
    """One `UserError` with everything that a format cannot hold; the pairs are: whether it is so, and what it is."""
    found = [reason for holds, reason in reasons if holds]
    if found:
        raise UserError(f"{exported.origin}: {target} cannot hold {' and '.join(found)}")


def has_uneven_heads(config: ModelConfig) -> bool:
    """Whether heads are not d_model / n_heads wide, or not as many in all layers."""
    d_head = config.d_model // config.n_heads
    pruned = any((config.encoder_heads, config.decoder_heads, config.cross_heads))
    return pruned or {config.d_k or d_head, config.d_v or d_head} != {d_head}


def position_table(embeddings: Any) -> Float[Tensor, "positions d_model"]:
    """The positions of one side, POSITIONS of them; fewer where the model has learnt fewer."""
    positions = embeddings.positions
    length = min(POSITIONS, positions.max_len) if isinstance(positions, LearnedPositions) else POSITIONS
    with torch.no_grad():
        return positions(torch.arange(length).unsqueeze(0), length)[0].clone()


def sample_texts(tokenizer: Tokenizer, count: int = TEXTS, seed: int = 1) -> list[str]:
    """Texts of the model's own words, in no order that means anything; the same ones every time."""
    vocabulary = [tokenizer.decode([i]) for i in range(tokenizer.vocab_size)]
    words = [word for word in vocabulary if word.isalpha()] or ["a"]
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randint(1, WORDS))) for _ in range(count)]
