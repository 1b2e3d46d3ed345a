"""A family's folder for other programs: back into the layout of transformers, or what CTranslate2 is made of.

The way back is tensor by tensor and takes any network; CTranslate2 gets one that reads a text and writes another. Not
here: models that `sightline train` made (`hf`), and the format of CTranslate2 (`ctranslate2`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sightline.checkpoint.companions import copy_companions
from sightline.checkpoint.folder import Folder
from sightline.checkpoint.manifest import seal
from sightline.checkpoint.published import read_checkpoint, unread_tensors
from sightline.checkpoint.vocabulary import Vocabulary
from sightline.checkpoint.write import write_checkpoint
from sightline.contract import SpecialIds
from sightline.errors import UserError
from sightline.export.exported import MAX_NEW_TOKENS, all_parameters, sample_sentences
from sightline.generation.rewrite import beginning_of, rewrite
from sightline.generation.settings import GenerationSettings
from sightline.models.kinds import with_verbs
from sightline.models.rewriting import RewritingModel, rewriting
from sightline.network.axes import NetworkConfig
from sightline.network.transformer import Transformer

CONVERTER = "optimum-cli export onnx --model FOLDER OUT"
UNKNOWN_TOKENS = ("<unk>", "[UNK]")


def write_pretrained(found: Folder, folder: Path) -> str:
    """Write the layout of transformers into `folder`, read it again and compare; what was compared, one line."""
    unread = unread_tensors(found.path)
    write_checkpoint(folder, found.network, found.config, found.about, unread)
    copy_companions(found.path, folder)
    seal(folder)
    again = read_checkpoint(folder)
    kept = dict(again.network.named_parameters())
    own = dict(found.network.named_parameters())
    if again.config != found.config or not all(torch.equal(kept[name], own[name]) for name in own):
        raise UserError(f"{found.path}: was read back otherwise than it was written. Please report this mistake")
    return f"{len(own)} tensors are the same when read back"


@dataclass(frozen=True)
class PretrainedExport:
    """See `exported.Exportable`. Languages are for whoever translates to say: nothing here depends on which."""

    model: RewritingModel

    @property
    def network(self) -> Transformer:
        """The torch module."""
        return self.model.network

    @property
    def origin(self) -> str:
        """Its folder."""
        return str(self.model.path)

    @property
    def axes(self) -> NetworkConfig:
        """Of the network."""
        return self.model.config

    @cached_property
    def settings(self) -> GenerationSettings:
        """Greedy, by the rules that the format has, too."""
        plain = {"beam_size": 1, "n_best": 1, "sample": False, "no_repeat_ngram": 0, "min_new_tokens": 0}
        return replace(self.model.generation, **plain, max_new_tokens=MAX_NEW_TOKENS, forced_end_id=None, stop=())

    @property
    def special(self) -> SpecialIds:
        """The ids that mean something to a search; CTranslate2 wants an unknown piece even where there is none."""
        written = self.model.tokenizer.written or self.model.tokenizer
        unknown = next((i for name in UNKNOWN_TOKENS if (i := written.id_of(name)) is not None), self.settings.pad_id)
        return SpecialIds(self.settings.pad_id, beginning_of(self.settings)[0], self.settings.end_ids[0], unknown)

    @property
    def forced(self) -> list[int]:
        """What its generation_config.json has an output begin with."""
        return beginning_of(self.settings)[1:]

    @property
    def pieces(self) -> list[str]:
        """The name of every id that is written."""
        config, tokenizer = self.model.config, self.model.tokenizer
        return _names(tokenizer.written or tokenizer, config.tgt_vocab_size or config.vocab_size)

    @property
    def read_pieces(self) -> list[str]:
        """The name of every id that is read."""
        return _names(self.model.tokenizer, self.model.config.vocab_size)

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Ids that our search never writes."""
        return self.settings.suppressed

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with the marks of the family."""
        return [self.model.languages.encode(text, "", "") for text in texts]

    def greedy(self, texts: Sequence[str]) -> list[list[int]]:
        """Our greedy outputs in ids, with what they begin with and without end marks, at most LENGTH steps."""
        found = rewrite(self.network, self.sources(texts), self.settings)
        return [[*self.forced, *ranked[0].tokens] for ranked in found]

    def parameters(self) -> dict[str, Tensor]:
        """The parameters under all their names."""
        return all_parameters(self.network)

    def texts(self) -> list[str]:
        """Of the model's own words."""
        return sample_sentences(self.model.tokenizer.decode([i]).strip() for i in range(self.model.config.vocab_size))

    def write_tokenizer(self, folder: Path) -> None:
        """The files of the tokenizer as they are."""
        copy_companions(self.model.path, folder)


def _names(vocabulary: Vocabulary, size: int) -> list[str]:
    """The name of every id, each different: those that the vocabulary repeats or lacks are numbered."""
    found = [vocabulary.piece_of(i) or f"<unused {i}>" for i in range(size)]
    often = {name for name, count in Counter(found).items() if count > 1}
    first = {name: found.index(name) for name in often}
    return [name if first.get(name, i) == i else f"{name} {i}" for i, name in enumerate(found)]


def pretrained_export(folder: Folder, to: str) -> PretrainedExport:
    """A family's model; `UserError` for a format it is not written in, or a network that no format holds."""
    model = with_verbs(folder)
    if to != "ctranslate2":
        raise UserError(
            f"{model.path}: is a checkpoint of a family ({model.config.family}), and this needs a model that "
            "`sightline train` made; "
            f"`{CONVERTER}` takes such a folder, where it was imported after `sightline export --to hf`"
        )
    model.network.float()
    found = rewriting(model, folder.path)
    if found.generation.start_id is None or not found.generation.end_ids:
        raise UserError(f"{folder.path}: its files name no mark that an output begins with, or none that it ends with")
    return PretrainedExport(found)
