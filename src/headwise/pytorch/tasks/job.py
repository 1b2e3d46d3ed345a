"""The request to train, the interface of a task's job, and helpers for files and tokenizers."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from headwise.config.settings import RunConfig
from headwise.core.batches import Stream
from headwise.core.train import Objective
from headwise.errors import UserError
from headwise.evaluate.baselines import Baseline
from headwise.pytorch.data.stream import BatchShare
from headwise.pytorch.training.callbacks import Callback
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint import trained
from headwise.runtime.checkpoint.trained import TOKENIZER
from headwise.text.files.corpus import Corpus, PlainText
from headwise.text.files.sources import names_of
from headwise.text.files.split import Split, parse_validation_size, split_corpora
from headwise.text.language_codes import LanguagePair, document_language
from headwise.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of a training run."""

    recipe: str  # name or path of a .toml file; "" with `init` = that model's settings
    train: Sequence[str]  # all training files, as `headwise.text.files.corpus.parse_corpora` takes them
    valid: Sequence[str]  # the same, or "1%" or "500pairs" of the training files
    out: str
    settings: Sequence[str] = ()  # "section.key=value"
    resume: bool = False
    device: str = "auto"
    special: Sequence[str] = ()  # strings that are always a single token, such as "<2de>"
    show: bool = True
    callbacks: Sequence[Callback] = ()
    init: str = ""  # model to start from, with its weights, shape and tokenizer
    alignments: str = ""  # word links of the training pairs, for `train.alignment_weight`
    task: str = ""  # one of `config.TASKS`; "" = the recipe's
    source_language: str = ""  # codes of a multilingual `init` model
    target_language: str = ""
    devices: int = 1  # processes on this machine, one device each
    workers: int = 1  # processes that tokenize large files; 0 = one per core
    languages: Sequence[str] = ("", "")  # of source and target texts; the model keeps them
    started: float = field(default_factory=time.monotonic, compare=False)  # for `train.minutes`
    add: Sequence[str] = ()  # the last files of `train`, which a run did not have before it was resumed

    @property
    def first_files(self) -> Sequence[str]:
        """The training files without those of `add`."""
        return self.train[: len(self.train) - len(self.add)]

    @property
    def languages_of_files(self) -> LanguagePair:
        """Codes of source and target texts: those given, or else those of the multilingual model; "" = unknown."""
        source, target = self.languages
        return source or document_language(self.source_language), target or document_language(self.target_language)


@runtime_checkable
class FolderLayout(Protocol):
    """Writes the files of a model folder; `runtime.checkpoint.trained` is the layout of models trained from scratch."""

    def write_settings(self, folder: Path, config: RunConfig, tokenizer: Any, about: Mapping[str, Any]) -> None: ...
    def write_weights(self, folder: Path, parameters: Mapping[str, Any], card: str) -> None: ...


TRAINED_LAYOUT: FolderLayout = trained


@dataclass(frozen=True)
class Job(ABC):
    """A task with its data; the trainer validates with it (`pytorch.training.validation.Validation`)."""

    config: RunConfig  # with the settings that depend on the data
    tokenizer: Any  # a `PairTokenizer`, or what `layout` saves; None: there are no texts
    about: dict[str, Any]  # for config.json: "corpus" (files, sizes, keys) and more
    train: Any  # the data
    valid: Any
    layout: FolderLayout = field(default=TRAINED_LAYOUT, kw_only=True)  # of the model folder

    @property
    def signature(self) -> str:
        """How the validation metrics are computed, for the model card."""
        return ""

    @property
    @abstractmethod
    def baseline(self) -> Mapping[str, float]:
        """Metrics of guessing, such as "loss"; {} = none."""

    def simple_baseline(self) -> Baseline | None:
        """The metrics of a cheap model on the same data; None: there is none for the task."""
        return None

    @abstractmethod
    def network(self) -> nn.Module:
        """The network to train, initialized or pretrained."""

    @abstractmethod
    def objective(self, network: nn.Module) -> Objective:
        """The training objective."""

    @abstractmethod
    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> Stream:
        """An endless stream of this process's training batches, from `state` on."""

    @abstractmethod
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The outputs of the network, in evaluation mode, for this process's share of the validation data."""

    @abstractmethod
    def figures(self, outputs: Outputs) -> dict[str, float]:
        """ "loss" and other metrics, from the outputs of all processes."""


MakeJob = Callable[[TrainRequest, RunConfig, Path], Job]  # from request, settings and model folder


def notify(request: TrainRequest, message: str) -> None:
    """Print a message to stderr if `request.show`."""
    if request.show:
        print(message, file=sys.stderr)


def hold_out(
    request: TrainRequest, train: Sequence[Corpus], labelled: bool = False, added: Sequence[Corpus] = ()
) -> Split | None:
    """The training files split for `--valid 1%`, with the rest of those `added`; None if `--valid` names files."""
    amount = parse_validation_size(request.valid)
    if amount is None:
        return None
    parts = split_corpora(train, amount, labelled, added=added)
    single = labelled or all(isinstance(one, PlainText) for one in train)
    what, others = ("texts", "texts that equal one of") if single else ("pairs", "pairs that share a sentence with")
    notify(
        request,
        f"validating on {parts.taken:,} {what} held out of the training files ({amount.text}); dropped "
        f"{parts.dropped:,} other {others} them",
    )
    return parts


def held_out_entry(parts: Split | None) -> dict[str, Any]:
    """The entry "held_out" of "corpus" in config.json, if pairs were held out of the training files."""
    return {"held_out": {"taken": parts.taken, "dropped": parts.dropped}} if parts else {}


def choose_tokenizer(
    request: TrainRequest, config: RunConfig, folder: Path, train: Callable[[], Tokenizer]
) -> Tokenizer:
    """The tokenizer of the resumed run, the one in `text.tokens.tokenizer`, or a new one from `train`."""
    if request.resume and (folder / TOKENIZER).is_file():
        return check_special(request.special, Tokenizer.load(folder / TOKENIZER), f"of --resume {folder}")
    if config.data.tokenizer:
        tokenizer = Tokenizer.load(config.data.tokenizer)
        return check_special(request.special, tokenizer, f"data.tokenizer = {config.data.tokenizer}")
    kind = config.data.subword
    size = "" if kind == "characters" else f" with {config.data.vocab_size:,} tokens"
    notify(request, f"training a tokenizer: {kind}{size}")
    return train()


def check_special(special: Sequence[str], tokenizer: Tokenizer, origin: str) -> Tokenizer:
    """The tokenizer itself, if it has all `special` tokens; none can be added to an existing tokenizer."""
    missing = [token for token in special if token not in tokenizer.declared.values()]
    if missing:
        there = ", ".join(tokenizer.declared.values()) or "none"
        raise UserError(
            f"--special {missing[0]}: cannot be added to the tokenizer {origin}, whose special tokens are: {there}; "
            "leave it out, or train a model with a new tokenizer"
        )
    return tokenizer


def base_names(paths: Sequence[str]) -> list[str]:
    """File names without folders: a model folder must not depend on other paths."""
    return [Path(name).name for path in paths for name in names_of(path)]
