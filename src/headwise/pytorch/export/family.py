"""Export of pretrained models: back to the layout of transformers, or to CTranslate2.

Writing back works tensor by tensor for any network; CTranslate2 needs an encoder-decoder. See `hf` for models trained
here and `ctranslate2` for the format of CTranslate2.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headwise.config.network import NetworkConfig
from headwise.config.settings import SearchSettings
from headwise.contract import NEVER, SpecialIds
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.models.load import pretrained_model
from headwise.models.translation.translator import Translator
from headwise.pytorch.checkpoint.published import read_checkpoint, unread_tensors
from headwise.pytorch.checkpoint.write import write_checkpoint
from headwise.pytorch.export.exported import MAX_NEW_TOKENS, all_parameters, sample_sentences
from headwise.pytorch.search.stepwise import TorchEngine
from headwise.runtime.checkpoint.companions import copy_companions
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.search.engine import decode_tokens
from headwise.runtime.tokenizers.vocabulary import Vocabulary

CONVERTER = "optimum-cli export onnx --model FOLDER OUT"
UNKNOWN_TOKENS = ("<unk>", "[UNK]")


def write_pretrained(found: Folder, folder: Path) -> str:
    """Write the layout of transformers to `folder`, read it again and compare; returns one line."""
    unread = unread_tensors(found.path)
    write_checkpoint(folder, found.network, found.config, found.about, unread)
    copy_companions(found.path, folder)
    seal(folder)
    again = read_checkpoint(folder)
    kept = dict(again.network.named_parameters())
    own = dict(found.network.named_parameters())
    if again.config != found.config or not all(torch.equal(kept[name], own[name]) for name in own):
        raise UserError(f"{found.path}: reading it back gave different tensors; this is a bug: please report it")
    return f"{len(own)} tensors are the same when read back"


@dataclass(frozen=True)
class PretrainedExport:
    """See `exported.Exportable`. Languages do not matter: nothing here depends on them."""

    model: Translator

    @property
    def network(self) -> Transformer:
        """The torch module."""
        return self.model.network

    @property
    def origin(self) -> str:
        """The folder."""
        return str(self.model.path)

    @property
    def axes(self) -> NetworkConfig:
        """The settings of the network."""
        return self.model.config

    @property
    def own(self) -> SpecialIds:
        """The ids that its generation_config.json has."""
        return self.model.generation.special

    @property
    def special(self) -> SpecialIds:
        """The special token ids of the search; CTranslate2 needs an unknown token even if there is none."""
        written = self.model.vocabulary.written or self.model.vocabulary
        unknown = next((i for name in UNKNOWN_TOKENS if (i := written.id_of(name)) is not None), self.own.pad_id)
        return SpecialIds(self.own.pad_id, self.own.bos_id, self.own.eos_id, unknown)

    @property
    def forced(self) -> list[int]:
        """The forced tokens of its generation_config.json."""
        return [*self.own.forced]

    @property
    def pieces(self) -> list[str]:
        """The token of every target id."""
        config, tokenizer = self.model.config, self.model.vocabulary
        return _names(tokenizer.written or tokenizer, config.tgt_vocab_size or config.vocab_size)

    @property
    def read_pieces(self) -> list[str]:
        """The token of every source id."""
        return _names(self.model.vocabulary, self.model.config.vocab_size)

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that our search never generates."""
        return self.own.never_generated

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with special tokens."""
        return [self.model.languages.encode(text, "", "") for text in texts]

    def greedy(self, texts: Sequence[str]) -> list[list[int]]:
        """Our greedy outputs: ids with forced tokens, without EOS, at most MAX_NEW_TOKENS."""
        greedy = SearchSettings(beam_size=1, max_length_factor=0.0, max_length_extra=MAX_NEW_TOKENS)
        special = replace(self.own, source_end=(), forced_end=None, sequence_bias=())
        found = decode_tokens(TorchEngine(self.network), self.sources(texts), greedy, special)
        return [[*self.forced, *ranked[0].tokens] for ranked in found]

    def parameters(self) -> dict[str, Tensor]:
        """All parameters by name."""
        return all_parameters(self.network)

    def texts(self) -> list[str]:
        """Sample texts from the vocabulary."""
        size = self.model.config.vocab_size
        return sample_sentences(self.model.vocabulary.decode([i]).strip() for i in range(size))

    def write_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer files."""
        copy_companions(self.model.path, folder)


def _names(vocabulary: Vocabulary, size: int) -> list[str]:
    """The token of every id, made unique: repeated and missing ones are numbered."""
    found = [vocabulary.piece_of(i) or f"<unused {i}>" for i in range(size)]
    often = {name for name, count in Counter(found).items() if count > 1}
    first = {name: found.index(name) for name in often}
    return [name if first.get(name, i) == i else f"{name} {i}" for i, name in enumerate(found)]


def pretrained_export(folder: Folder, to: str) -> PretrainedExport:
    """The pretrained model of a folder; `UserError` for a format or a network that is not supported."""
    model = pretrained_model(folder)
    if to != "ctranslate2":
        raise UserError(
            f"{model.path}: --to {to} is for models trained here, not for a pretrained {model.config.family} model; "
            f"use `{CONVERTER}` (for an imported model after `headwise export --to hf`)"
        )
    model.network.float()
    if not isinstance(model, Translator):
        family = model.info().get("family", "another kind")
        raise UserError(f"{folder.path}: is a model of {family}; this needs an encoder-decoder of text")
    if NEVER in (model.generation.special.bos_id, model.generation.special.eos_id):
        raise UserError(f"{folder.path}: its generation_config.json defines no start token or no end token")
    return PretrainedExport(model)
