"""The model to export: a trained Transformer with its tokenizer, and texts for comparing translations.

See `hf`, `ctranslate2` and `onnx` for the formats.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.core.positions import LearnedPositions
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.search.engine import decode_tokens
from headwise.text.tokens.tokenizer import Tokenizer

N_POSITIONS = 1024  # exported positions; formats need a fixed number
N_TEXTS, N_WORDS, MAX_NEW_TOKENS = 8, 6, 48  # of the comparison: texts, words per text, tokens per translation


@runtime_checkable
class Exportable(Protocol):
    """The interface of a model to be exported: `ExportedModel`, or a pretrained one (`family.PretrainedExport`)."""

    @property
    def network(self) -> Transformer: ...
    @property
    def origin(self) -> str: ...  # folder
    @property
    def axes(self) -> NetworkConfig: ...
    @property
    def special(self) -> SpecialIds: ...
    @property
    def forced(self) -> Sequence[int]: ...  # forced tokens after the start token
    @property
    def pieces(self) -> list[str]: ...  # the token of every id, all different
    @property
    def read_pieces(self) -> list[str]: ...  # source tokens, likewise
    @property
    def suppressed(self) -> Sequence[int]: ...  # ids that our search never generates
    def sources(self, texts: Sequence[str]) -> list[list[int]]: ...  # with all special tokens
    def greedy(self, texts: Sequence[str]) -> list[list[int]]: ...
    def parameters(self) -> dict[str, Tensor]: ...
    def texts(self) -> list[str]: ...  # for comparing translations
    def write_tokenizer(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class ExportedModel:
    """A model trained by `headwise train`."""

    network: Transformer
    tokenizer: Tokenizer
    config: TransformerConfig
    decode: SearchSettings  # its search settings
    origin: str  # folder

    @property
    def pieces(self) -> list[str]:
        """The token of every id, all different."""
        backend = self.tokenizer.backend
        return [backend.id_to_token(i) or f"<unused {i}>" for i in range(self.tokenizer.vocab_size)]

    @property
    def read_pieces(self) -> list[str]:
        """The source tokens, likewise."""
        return self.pieces

    @property
    def axes(self) -> NetworkConfig:
        """The settings of the network."""
        return transformer_config(self.config)

    @property
    def special(self) -> SpecialIds:
        """The special token ids of the search."""
        return self.tokenizer.special

    @property
    def forced(self) -> tuple[int, ...]:
        """Forced tokens after the start token: none."""
        return ()

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that our search never generates."""
        return self.special.never_generated

    def greedy(self, texts: Sequence[str]) -> list[list[int]]:
        """Our greedy translations: ids without EOS, at most MAX_NEW_TOKENS; the reference for exports."""
        config = SearchSettings(beam_size=1, max_length_factor=0.0, max_length_extra=MAX_NEW_TOKENS)
        found = decode_tokens(engine_of(self.network), self.tokenizer.encode_batch(texts), config, self.special)
        return [hypotheses[0].tokens for hypotheses in found]

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, with EOS."""
        return [[*tokens, self.tokenizer.eos_id] for tokens in self.tokenizer.encode_batch(texts)]

    def parameters(self) -> dict[str, Tensor]:
        """All parameters by name; shared ones under each name."""
        return all_parameters(self.network)

    def texts(self) -> list[str]:
        """Sample texts from the vocabulary."""
        return sample_texts(self.tokenizer)

    def write_tokenizer(self, folder: Path) -> None:
        """Write the file of the tokenizers library."""
        self.tokenizer.save(folder / "tokenizer.json")


def all_parameters(network: Transformer) -> dict[str, Tensor]:
    """All parameters of a network by name; shared ones under each name."""
    return {name: parameter.detach() for name, parameter in network.named_parameters(remove_duplicate=False)}


def exported_model(folder: Folder) -> ExportedModel:
    """The translation model of a folder; `UserError` for other tasks and architectures."""
    config = folder.config.model
    if config.task != "translate":
        raise UserError(f"{folder.path}: trained for the task {config.task}; only translation models can be exported")
    if not isinstance(folder.network, Transformer):
        raise UserError(f"{folder.path}: a {config.architecture} model; only Transformers can be exported")
    return ExportedModel(folder.network, folder.tokenizer, config, folder.config.decode, str(folder.path))


def check_supported(exported: Exportable, target: str, *reasons: tuple[bool, str]) -> None:
    """One `UserError` with everything that a format cannot represent; each reason with whether it applies."""
    found = [reason for holds, reason in reasons if holds]
    if found:
        raise UserError(f"{exported.origin}: {target} cannot represent {' and '.join(found)}")


def has_uneven_heads(config: TransformerConfig) -> bool:
    """Whether heads are not d_model / n_heads wide, or differ in number between layers."""
    d_head = config.d_model // config.n_heads
    pruned = any((config.encoder_heads, config.decoder_heads, config.cross_heads))
    return pruned or {config.d_k or d_head, config.d_v or d_head} != {d_head}


def position_table(embeddings: Any) -> Float[Tensor, "positions d_model"]:
    """The position encodings of one side: N_POSITIONS, or fewer if the model has fewer learned ones."""
    positions = embeddings.positions
    length = min(N_POSITIONS, positions.max_len) if isinstance(positions, LearnedPositions) else N_POSITIONS
    with torch.no_grad():
        return positions(torch.arange(length).unsqueeze(0), length)[0].clone()


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Texts of random words of the vocabulary, the same every time."""
    return sample_sentences(tokenizer.decode([i]) for i in range(tokenizer.vocab_size))


def sample_sentences(vocabulary: Iterable[str], count: int = N_TEXTS, seed: int = 1) -> list[str]:
    """Texts of random words among these tokens, the same every time."""
    words = [word for word in vocabulary if word.isalpha()] or ["a"]
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randint(1, N_WORDS))) for _ in range(count)]
