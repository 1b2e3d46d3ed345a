"""Tasks whose job is a published model's, from scratch: the folder that they start from is begun here.

It lies in the folder of the run (`bert-begun`, `vit-gpt2-begun`), with random weights and a vocabulary learnt from the
training texts, and all that follows is what it is for a published one: head, files, figures, layout. A run that goes on
begins with it again. Not here: what such a folder holds (`checkpoint/from_scratch.py`), and how two become one
(`compose.py`).
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from headwise.architectures.language import body_axes, language_axes
from headwise.architectures.pictures import picture_axes
from headwise.checkpoint.compose import write_composed
from headwise.checkpoint.from_scratch import ScratchLayout, check_axes, picture_layout, text_layout
from headwise.checkpoint.layout import CONFIG, WEIGHTS, read_json
from headwise.config.settings import RunConfig
from headwise.data.documents import train_on_documents
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError
from headwise.network.build import build
from headwise.network.parameters import parameters_of
from headwise.tasks.job import TrainRequest, choose_tokenizer
from headwise.tasks.language_modelling import once_readable
from headwise.tasks.masked_modelling import MARKS, with_marks
from headwise.tasks.pictures import begin_positions

Tuned = Callable[[TrainRequest, RunConfig, Path], Any]  # the job of a published model
TrainingTexts = Callable[[TrainRequest], Iterable[str]]  # of the training files, to learn pieces from
BODY, CAPTIONER = "bert-begun", "vit-gpt2-begun"


def encoder_from_scratch(
    tuned: Tuned, texts: TrainingTexts, request: TrainRequest, config: RunConfig, folder: Path
) -> Any:
    """The job `tuned` of an encoder that begins here, in BERT's layout, as [model] has it."""
    length, request = _positions_of(config), once_readable(request)
    check_axes(body_axes(replace(config.model, vocab_size=1), length))
    with begun(folder / BODY, request.resume) as (base, new):
        tokenizer = _pieces(replace(request, resume=not new), config, base, texts)
        model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
        if new:
            axes = body_axes(model, length)
            write_body(base, lambda: build(axes), text_layout(axes, length, tokenizer), tokenizer, config.train.seed)
        return tuned(replace(request, init=str(base)), replace(config, model=model), folder)


def captioner_from_scratch(
    tuned: Tuned, texts: TrainingTexts, request: TrainRequest, config: RunConfig, folder: Path
) -> Any:
    """The job `tuned` of a ViT and a GPT-2 that begin here, both as [model] has it."""
    model = config.model
    check_axes(picture_axes(replace(model, n_outputs=2)))
    check_axes(language_axes(replace(model, vocab_size=1), model.max_len))
    with begun(folder / CAPTIONER, request.resume) as (base, new):
        if new:
            with TemporaryDirectory(dir=folder) as parts:
                _write_captioner(request, config, texts, Path(parts), base)
        size = read_json(base / CONFIG)["decoder"]["vocab_size"]
        config = replace(config, model=replace(model, vocab_size=size))
        return tuned(replace(request, init=str(base)), config, folder)


def _write_captioner(request: TrainRequest, config: RunConfig, texts: TrainingTexts, parts: Path, base: Path) -> None:
    """Both of its parts, joined as published ones are."""
    model, seed = config.model, config.train.seed
    tokenizer = choose_tokenizer(
        request, config, parts, lambda: train_on_documents(texts(request), config.data, request.special)
    )
    looks = replace(picture_axes(model), head="none")
    writes = language_axes(replace(model, vocab_size=tokenizer.vocab_size), model.max_len)
    write_body(parts / "vit", lambda: begin_positions(build(looks)), picture_layout(looks, []), None, seed)
    write_body(parts / "gpt2", lambda: build(writes), text_layout(writes, model.max_len, tokenizer), tokenizer, seed)
    write_composed(parts / "vit", parts / "gpt2", base, seed)


def write_body(
    folder: Path, make: Callable[[], nn.Module], layout: ScratchLayout, tokenizer: Tokenizer | None, seed: int
) -> None:
    """A network that nobody has trained, as a published one lies in its folder; the weights last."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = make()
    layout.write_companions(folder, tokenizer)
    layout.write_tensors(folder, parameters_of(network))


@contextmanager
def begun(base: Path, resume: bool) -> Iterator[tuple[Path, bool]]:
    """The folder to begin with, and whether it is still to be written; of one that is refused nothing stays."""
    new = not (resume and (base / WEIGHTS).is_file())
    if new:
        shutil.rmtree(base, ignore_errors=True)
    try:
        yield base, new
    except UserError:
        if new:
            shutil.rmtree(base, ignore_errors=True)
        raise


def _pieces(request: TrainRequest, config: RunConfig, base: Path, texts: TrainingTexts) -> Tokenizer:
    """That of a run that goes on, the one asked for, or one learnt from the texts."""

    def learn_them() -> Tokenizer:
        return train_on_documents(texts(request), config.data, request.special, MARKS)

    return with_marks(choose_tokenizer(request, config, base, learn_them), config)


def _positions_of(config: RunConfig) -> int:
    """As many as the longest text has tokens; `UserError` where another number is asked for."""
    length, asked = config.data.max_length, config.model.max_len
    if asked not in (type(config.model)().max_len, length):
        raise UserError(
            f"model.max_len = {asked}: an encoder has as many positions as data.max_length = {length}; leave it out"
        )
    return length
