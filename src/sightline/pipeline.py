"""From files and a recipe to a model directory: where data, model and trainer are put together.

Every other module does one of these; this one only connects them, in the order in which data flows.
"""

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import sightline
from sightline.config import ModelConfig, RunConfig, apply_settings, check, flatten, load_recipe
from sightline.data.batching import BatchStream, validation_batches
from sightline.data.corpus import Corpus, parse_corpora
from sightline.data.prepared import PreparedCorpus, learn_tokenizer, prepare, spool
from sightline.data.tokenizer import Tokenizer
from sightline.decode.translator import Translator
from sightline.errors import UserError
from sightline.evaluate.bleu import bleu_signature, corpus_scores
from sightline.model.build import build_model, longest_sequence
from sightline.model.parameters import count_parameters, load_parameters, parameters_of
from sightline.model.transformer import Transformer
from sightline.model_card import model_card
from sightline.model_directory import (
    CONFIG,
    TOKENIZER,
    ModelDirectory,
    read_model_directory,
    read_settings,
    write_settings,
    write_weights,
)
from sightline.training.allocator import keep_freed_memory
from sightline.training.checkpoint import checkpoint_paths
from sightline.training.metrics import check_tensorboard
from sightline.training.step import validation_loss
from sightline.training.trainer import CHECKPOINTS, Trainer

# Settings a resumed run may change: they decide when something happens, not what is computed at a step.
MAY_CHANGE = {
    "train.max_steps",
    "train.log_every",
    "train.validate_every",
    "train.validate_bleu",
    "train.checkpoint_every",
    "train.keep_last",
    "train.patience",
    "train.average",
    "train.threads",
}


@dataclass(frozen=True)
class TrainRequest:
    """What to train, on what, and where to."""

    recipe: str  # name or path of a .toml file
    train: Sequence[str]  # files, as `sightline.data.corpus.parse_corpora` takes them
    valid: Sequence[str]
    out: str
    settings: Sequence[str] = ()  # "section.key=value"
    resume: bool = False
    device: str = "auto"
    special: Sequence[str] = ()  # strings that are one piece wherever a text contains them, such as "<2de>"
    show: bool = True
    tensorboard: bool = False
    init: str = ""  # model directory to start from: its weights, shape and tokenizer


@dataclass(frozen=True)
class Material:
    """Tokenizer and tokenised corpora of a run."""

    tokenizer: Tokenizer
    train: PreparedCorpus
    valid: PreparedCorpus


def train_model(request: TrainRequest) -> str:
    """Train as asked and return how it ended: "finished", "patience" or the name of a signal.

    The model directory is `request.out`; from the first validation on it holds the best model so far.
    """
    config = check(apply_settings(load_recipe(request.recipe), request.settings))
    start = read_model_directory(request.init) if request.init else None
    if start:
        config = _continuing(config, start.config)
    folder, device = Path(request.out), choose_device(request.device)
    _refuse_to_overwrite(folder, request.resume)
    if request.tensorboard:
        check_tensorboard()
    torch.set_num_threads(config.train.threads or torch.get_num_threads())
    keep_freed_memory()

    material = _material(request, config, folder, start)
    _check_material(request, config, material)
    config = replace(config, model=_with_vocabulary(config.model, material.tokenizer))
    about = _about(request, material)
    if request.resume and (folder / CONFIG).is_file():
        _check_same_run(folder, config, about)
        _warn_of_another_schedule(request, config, folder)

    with torch.random.fork_rng():  # the caller's random state is his own
        torch.manual_seed(config.train.seed)
        trainer = _trainer(request, config, material, about, device)
        if start:
            load_parameters(trainer.model, parameters_of(start.network), request.init)
        write_settings(folder, config, material.tokenizer, about)  # nothing before this leaves a trace
        _say(request, f"{count_parameters(trainer.model):,} parameters, on {device}, into {folder}")
        if request.resume:
            restored = trainer.restore(lambda message: _say(request, message))
            step = trainer.progress.step
            _say(request, f"resuming after step {step}" if restored else "no checkpoint yet: starting anew")
        reason = trainer.run()
    _say(request, _farewell(reason, trainer.progress.step, folder))
    return reason


def choose_device(name: str) -> torch.device:
    """ "auto" is the first CUDA device if there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name != "cpu" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device(name)


def _continuing(config: RunConfig, start: RunConfig) -> RunConfig:
    """`config` for a model that exists: its shape and its tokenizer's settings are given, dropout is not."""
    model = replace(start.model, dropout=config.model.dropout)
    tokenizer = ("subword", "vocab_size", "normalization", "lowercase")
    data = replace(config.data, tokenizer="", **{name: getattr(start.data, name) for name in tokenizer})
    return replace(config, model=model, data=data)


def _material(request: TrainRequest, config: RunConfig, folder: Path, start: ModelDirectory | None) -> Material:
    train, valid = spool(parse_corpora(request.train)), spool(parse_corpora(request.valid))
    tokenizer = start.tokenizer if start else _tokenizer(request, config, folder, train)
    prepared = prepare(train, tokenizer, config.data, progress=request.show)
    reasons = "".join(f"; dropped {count:,} for {reason}" for reason, count in prepared.dropped.items())
    _say(request, f"training on {len(prepared):,} of {prepared.read:,} pairs{reasons}")
    return Material(tokenizer, prepared, prepare(valid, tokenizer, config.data, progress=request.show, clean=False))


def _check_material(request: TrainRequest, config: RunConfig, material: Material) -> None:
    """Settings that turn out to be impossible once the text is cut into pieces."""
    if config.data.bpe_dropout:
        _ = material.tokenizer.merges  # a UserError if there is nothing to drop
    limit = longest_sequence(config.model)
    if limit is None:
        return
    way_out = "raise model.max_len or set model.positions=sinusoidal"
    if config.data.max_length > limit:
        raise UserError(f"model.max_len = {limit} is less than data.max_length = {config.data.max_length}; {way_out}")
    longest = max(material.valid.src_lengths.max(), material.valid.tgt_lengths.max())
    if longest > limit:
        files = " + ".join(request.valid)
        raise UserError(f"{files}: a text has {longest} pieces, more than model.max_len = {limit}; {way_out}")


def _tokenizer(request: TrainRequest, config: RunConfig, folder: Path, train: Sequence[Corpus]) -> Tokenizer:
    if request.resume and (folder / TOKENIZER).is_file():
        return Tokenizer.load(folder / TOKENIZER)
    if config.data.tokenizer:
        return Tokenizer.load(config.data.tokenizer)
    _say(request, f"learning {config.data.vocab_size:,} {config.data.subword} pieces")
    return learn_tokenizer(train, config.data, request.special)


def _with_vocabulary(model: ModelConfig, t: Tokenizer) -> ModelConfig:
    return replace(model, vocab_size=t.vocab_size, pad_id=t.pad_id)


def _trainer(
    request: TrainRequest, config: RunConfig, material: Material, about: Mapping[str, Any], device: torch.device
) -> Trainer:
    network = build_model(config.model)
    folder = Path(request.out)

    def export(parameters: Mapping[str, Tensor], figures: Mapping[str, float], what: str) -> None:
        card = model_card(config, about, count_parameters(network), figures, what, bleu_signature())
        write_weights(folder, parameters, card)

    def open_stream(state: Mapping[str, int] | None) -> BatchStream:
        train = config.train
        tokens = train.tokens_per_batch
        pin = device.type == "cuda"
        return BatchStream(material.train, material.tokenizer, config.data, tokens, train.seed, state, pin=pin)

    validate = _validation(network, material, config, device)
    return Trainer(network, config, open_stream, validate, export, folder, device, request.show, request.tensorboard)


def _validation(
    network: Transformer, material: Material, config: RunConfig, device: torch.device
) -> Callable[[], dict[str, float]]:
    """Loss over the validation set, and BLEU of real search output on its first `train.validate_bleu` pairs."""
    corpus, tokenizer = material.valid, material.tokenizer
    pairs = [corpus.text(row) for row in range(min(len(corpus), config.train.validate_bleu))]
    translator = Translator(network, tokenizer, config.decode, longest_sequence(config.model))

    def validate() -> dict[str, float]:
        batches = validation_batches(corpus, tokenizer, config.train.tokens_per_batch)
        figures = {"loss": validation_loss(network, batches, tokenizer.pad_id, device)}
        if pairs:
            hypotheses = [t.text for t in translator.translate([src for src, _ in pairs])]
            scores = corpus_scores(hypotheses, [tgt for _, tgt in pairs], metrics=["BLEU"])
            figures["bleu"] = scores["BLEU"].score
        return figures

    return validate


def _about(request: TrainRequest, material: Material) -> dict[str, Any]:
    """What config.json says beside the configuration: names, not paths, for the directory points nowhere else."""
    return {
        "sightline": sightline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "recipe": Path(request.recipe).stem,
        "init": Path(request.init).absolute().name if request.init else "",
        "corpus": {
            "train": [Path(name).name for name in request.train],
            "valid": [Path(name).name for name in request.valid],
            "pairs": len(material.train),
            "dropped": material.train.dropped,
            "key": material.train.key,
            "valid_key": material.valid.key,
        },
    }


def _refuse_to_overwrite(folder: Path, resume: bool) -> None:
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        what = "is not writable" if place.is_dir() else "is a file"
        raise UserError(f"--out {folder}: {place} {what}; name another folder")
    if not resume and (checkpoint_paths(folder / CHECKPOINTS) or (folder / CONFIG).exists()):
        raise UserError(f"--out {folder}: holds a model already; add --resume to go on with it or name another folder")


def _check_same_run(folder: Path, config: RunConfig, about: Mapping[str, Any]) -> None:
    """Refuse to resume a run as another one."""
    before, corpus = read_settings(folder)
    old, new = flatten(before), flatten(config)
    changed = [
        key
        for key in old
        if old[key] != new[key] and key not in MAY_CHANGE and not key.startswith("decode.") and key != "data.tokenizer"
    ]
    if changed:
        what = ", ".join(f"{key} was {old[key]!r}, now {new[key]!r}" for key in changed[:5])
        raise UserError(f"--resume {folder}: {what}; give the run's own settings or train into another folder")
    for key, files in (("key", "training"), ("valid_key", "validation")):
        if corpus["corpus"].get(key) != about["corpus"][key]:
            raise UserError(f"--resume {folder}: the {files} files are not those the run was started with")


def _warn_of_another_schedule(request: TrainRequest, config: RunConfig, folder: Path) -> None:
    before = read_settings(folder)[0].train.max_steps
    if config.train.schedule in ("linear", "cosine") and config.train.max_steps != before:
        _say(request, f"train.max_steps was {before:,}: from here on the learning rate follows the new end")


def _farewell(reason: str, step: int, folder: Path) -> str:
    if reason.startswith("SIG"):
        return f"stopped after step {step}; give the same command with --resume to go on"
    because = "no better validation for a while" if reason == "patience" else "all steps are done"
    return f"finished after step {step} ({because}): the model is in {folder}"


def _say(request: TrainRequest, message: str) -> None:
    if request.show:
        print(message, file=sys.stderr)
