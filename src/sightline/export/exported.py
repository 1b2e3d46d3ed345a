"""What an export is made of: a trained Transformer with its tokenizer, and texts to compare translations on.

Not here: formats, and where they are written.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.checkpoint.folder import Folder
from sightline.config.settings import ModelConfig, SearchSettings
from sightline.data.tokenizer import Tokenizer
from sightline.decode.engine import SpecialIds, decode_tokens
from sightline.errors import UserError
from sightline.families.sightline import axes
from sightline.network.axes import NetworkConfig
from sightline.network.positions import LearnedPositions
from sightline.network.transformer import Transformer

N_POSITIONS = 1024  # exported; formats need a number
N_TEXTS, N_WORDS, MAX_NEW_TOKENS = 8, 6, 48  # of the check: texts, words each, pieces of a translation


@runtime_checkable
class Exportable(Protocol):
    """What a format needs to know of a model: `ExportedModel`, and a published one (`family.PublishedModel`)."""

    @property
    def network(self) -> Transformer: ...
    @property
    def origin(self) -> str: ...  # where it was read
    @property
    def axes(self) -> NetworkConfig: ...
    @property
    def special(self) -> SpecialIds: ...
    @property
    def forced(self) -> Sequence[int]: ...  # what an output begins with behind the start mark
    @property
    def pieces(self) -> list[str]: ...  # the name of every id, each different
    @property
    def read_pieces(self) -> list[str]: ...  # the same of what is read
    @property
    def suppressed(self) -> Sequence[int]: ...  # ids that our search never writes
    def sources(self, texts: Sequence[str]) -> list[list[int]]: ...  # with all their marks
    def greedy(self, texts: Sequence[str]) -> list[list[int]]: ...
    def parameters(self) -> dict[str, Tensor]: ...
    def texts(self) -> list[str]: ...  # to compare translations on
    def write_tokenizer(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class ExportedModel:
    """A model that `sightline train` made, to export."""

    network: Transformer
    tokenizer: Tokenizer
    config: ModelConfig
    decode: SearchSettings  # how it searches, as it says
    origin: str  # where it was read

    @property
    def pieces(self) -> list[str]:
        """The name of every id, each different."""
        backend = self.tokenizer.backend
        return [backend.id_to_token(i) or f"<unused {i}>" for i in range(self.tokenizer.vocab_size)]

    @property
    def read_pieces(self) -> list[str]:
        """The same of what is read."""
        return self.pieces

    @property
    def axes(self) -> NetworkConfig:
        """Of the network."""
        return axes(self.config)

    @property
    def special(self) -> SpecialIds:
        """The tokenizer's ids that mean something to a search."""
        return SpecialIds(*(getattr(self.tokenizer, f"{name}_id") for name in ("pad", "bos", "eos", "unk")))

    @property
    def forced(self) -> tuple[int, ...]:
        """What an output begins with behind the start mark: nothing."""
        return ()

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that our search never writes."""
        return self.tokenizer.pad_id, self.tokenizer.bos_id, self.tokenizer.unk_id

    def greedy(self, texts: Sequence[str]) -> list[list[int]]:
        """Our greedy translations, in ids without end marks, at most LENGTH steps; what others must give as well."""
        config = SearchSettings(beam_size=1, max_length_factor=0.0, max_length_extra=MAX_NEW_TOKENS)
        found = decode_tokens(self.network, self.tokenizer.encode_batch(texts), config, self.special)
        return [hypotheses[0].tokens for hypotheses in found]

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with the end mark."""
        return [[*tokens, self.tokenizer.eos_id] for tokens in self.tokenizer.encode_batch(texts)]

    def parameters(self) -> dict[str, Tensor]:
        """The parameters under all their names: a shared one is there several times."""
        return all_parameters(self.network)

    def texts(self) -> list[str]:
        """Of the model's own words."""
        return sample_texts(self.tokenizer)

    def write_tokenizer(self, folder: Path) -> None:
        """The file of the tokenizers library."""
        self.tokenizer.save(folder / "tokenizer.json")


def all_parameters(network: Transformer) -> dict[str, Tensor]:
    """The parameters of a network under all their names: a shared one is there several times."""
    return {name: parameter.detach() for name, parameter in network.named_parameters(remove_duplicate=False)}


def exported_model(folder: Folder) -> ExportedModel:
    """A translation model that we have trained; `UserError` for one of another task, or that is no Transformer."""
    config = folder.config.model
    if config.task != "translate":
        raise UserError(f"{folder.path}: was trained to {config.task}, and only models that translate are exported")
    if not isinstance(folder.network, Transformer):
        raise UserError(f"{folder.path}: is a {config.architecture} model; only Transformers are exported")
    return ExportedModel(folder.network, folder.tokenizer, config, folder.config.decode, str(folder.path))


def check_supported(exported: Exportable, target: str, *reasons: tuple[bool, str]) -> None:
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
    length = min(N_POSITIONS, positions.max_len) if isinstance(positions, LearnedPositions) else N_POSITIONS
    with torch.no_grad():
        return positions(torch.arange(length).unsqueeze(0), length)[0].clone()


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Texts of the model's own words, in no order that means anything; the same ones every time."""
    return sample_sentences(tokenizer.decode([i]) for i in range(tokenizer.vocab_size))


def sample_sentences(vocabulary: Iterable[str], count: int = N_TEXTS, seed: int = 1) -> list[str]:
    """The same of the texts of all pieces."""
    words = [word for word in vocabulary if word.isalpha()] or ["a"]
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randint(1, N_WORDS))) for _ in range(count)]
