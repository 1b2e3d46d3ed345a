"""The request to train, the interface of a task's job, and what all jobs do with files and tokenizers."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from headwise.checkpoint import trained
from headwise.checkpoint.trained import TOKENIZER
from headwise.config.settings import RunConfig
from headwise.data.batch import Stream
from headwise.data.corpus import Corpus
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.sources import names_of
from headwise.data.split import Split, parse_validation_size, split_corpora
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard


@dataclass(frozen=True)
class TrainRequest:
    """What to train, on what, and where to."""

    recipe: str  # name or path of a .toml file; "" with `init` = the settings of that model
    train: Sequence[str]  # files, as `headwise.data.corpus.parse_corpora` takes them
    valid: Sequence[str]  # the same, or one word such as "1%" or "500pairs": of the training files
    out: str
    settings: Sequence[str] = ()  # "section.key=value"
    resume: bool = False
    device: str = "auto"
    special: Sequence[str] = ()  # strings that are one piece wherever a text contains them, such as "<2de>"
    show: bool = True
    tensorboard: bool = False
    init: str = ""  # model directory to start from: its weights, shape and tokenizer
    alignments: str = ""  # word links of the training pairs, for `train.alignment_weight`
    task: str = ""  # one of `config.TASKS`; "" = the recipe's
    source_language: str = ""  # to a model of many that is started from: codes as it has them
    target_language: str = ""
    devices: int = 1  # processes that train one model on this machine, each on a device of its own
    workers: int = 1  # processes that cut large files into pieces; 0 = one for each core
    languages: Sequence[str] = ("", "")  # source and target of the translation memories among the files


@runtime_checkable
class FolderLayout(Protocol):
    """The files that a run writes into its folder; `checkpoint.trained` is the layout of models trained here."""

    def write_settings(self, folder: Path, config: RunConfig, tokenizer: Any, about: Mapping[str, Any]) -> None: ...
    def write_weights(self, folder: Path, parameters: Mapping[str, Any], card: str) -> None: ...


OURS: FolderLayout = trained


@runtime_checkable
class Job(Protocol):
    """A task with its data."""

    @property
    def config(self) -> RunConfig: ...  # complete: it has what follows from the data
    @property
    def tokenizer(self) -> PairTokenizer | None: ...
    @property
    def layout(self) -> FolderLayout: ...  # of the folder that it is written to
    @property
    def about(
        self,
    ) -> dict[str, Any]: ...  # for config.json: "corpus" (files, sizes, keys), and what must be remembered
    @property
    def signature(self) -> str: ...  # of the validation's figures, for the model card
    @property
    def baseline(self) -> Mapping[str, float]: ...  # baseline figures of guessing, such as "loss"; {} = none

    def network(self) -> nn.Module:
        """The network with fresh parameters, or those to start from."""
        ...

    def objective(self, network: nn.Module) -> Objective:
        """What is minimised."""
        ...

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> Stream:
        """Training batches without end, from `state` on."""
        ...

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """What the network, in evaluation mode, makes of this process's share of the validation data."""
        ...

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """ "loss" and other figures of the network, from the outputs of all processes."""
        ...


MakeJob = Callable[[TrainRequest, RunConfig, Path], Job]  # from the request, the settings and the model directory


def notify(request: TrainRequest, message: str) -> None:
    """Print a line for the user, unless the request is quiet."""
    if request.show:
        print(message, file=sys.stderr)


def hold_out(request: TrainRequest, train: Sequence[Corpus], labelled: bool = False) -> Split | None:
    """The training files split as `--valid 1%` asks; None if `--valid` names files."""
    amount = parse_validation_size(request.valid)
    if amount is None:
        return None
    parts = split_corpora(train, amount, labelled)
    notify(
        request,
        f"validating on {parts.taken:,} pairs taken out of the training files ({amount.text}); dropped "
        f"{parts.dropped:,} others that share a sentence with them",
    )
    return parts


def held_out_row(parts: Split | None) -> dict[str, Any]:
    """The entry of "corpus" in config.json for pairs that were held out of the training files."""
    return {"held_out": {"taken": parts.taken, "dropped": parts.dropped}} if parts else {}


def choose_tokenizer(
    request: TrainRequest, config: RunConfig, folder: Path, learn: Callable[[], Tokenizer]
) -> Tokenizer:
    """The tokenizer of the resumed run, the requested one, or one trained by `learn` on the training texts."""
    if request.resume and (folder / TOKENIZER).is_file():
        return check_special(request.special, Tokenizer.load(folder / TOKENIZER), f"of --resume {folder}")
    if config.data.tokenizer:
        tokenizer = Tokenizer.load(config.data.tokenizer)
        return check_special(request.special, tokenizer, f"data.tokenizer = {config.data.tokenizer}")
    kind = config.data.subword
    notify(request, f"learning {f'{config.data.vocab_size:,} {kind} pieces' if kind != 'characters' else kind}")
    return learn()


def check_special(special: Sequence[str], tokenizer: Tokenizer, origin: str) -> Tokenizer:
    """The tokenizer itself if all of `special` are pieces of it; nothing can be added to one that exists."""
    missing = [token for token in special if token not in tokenizer.declared.values()]
    if missing:
        there = ", ".join(tokenizer.declared.values()) or "none"
        raise UserError(
            f"--special {missing[0]}: cannot be added to the tokenizer {origin}, whose declared pieces are: {there}; "
            "leave it out, or train a model with a tokenizer of its own"
        )
    return tokenizer


def base_names(paths: Sequence[str]) -> list[str]:
    """Names, not paths: a model directory points nowhere else."""
    return [Path(name).name for path in paths for name in names_of(path)]
