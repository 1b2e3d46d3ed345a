"""Tasks whose job is a published model's, from scratch: the folder that they start from is begun here.

It lies in the folder of the run (`bert-begun`), with random weights and a vocabulary learnt from the training texts,
and all that follows is what it is for a published one: head, files, figures, layout. A run that goes on begins with it
again. Not here: what such a folder holds (`checkpoint/begun.py`), and a captioner's (`captioning.py`).
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sightline.checkpoint.begun import BegunLayout, begun_text, check_axes
from sightline.checkpoint.layout import WEIGHTS
from sightline.config import RunConfig
from sightline.data.documents import learn
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError
from sightline.families.language import body_axes
from sightline.network.axes import NetworkConfig
from sightline.network.build import build
from sightline.network.parameters import parameters_of
from sightline.tasks.job import TrainRequest, choose_tokenizer
from sightline.tasks.language_modelling import once_readable
from sightline.tasks.masked_modelling import MARKS, with_marks

Tuned = Callable[[TrainRequest, RunConfig, Path], Any]  # the job of a published model
TrainingTexts = Callable[[TrainRequest], Iterable[str]]  # of the training files, to learn pieces from
BODY = "bert-begun"


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
            write_body(base, axes, begun_text(axes, length, tokenizer), tokenizer, config.train.seed)
        return tuned(replace(request, init=str(base)), replace(config, model=model), folder)


def write_body(folder: Path, axes: NetworkConfig, layout: BegunLayout, tokenizer: Tokenizer | None, seed: int) -> None:
    """A network that nobody has trained, as a published one lies in its folder; the weights last."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build(axes)
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
        return learn(texts(request), config.data, request.special, MARKS)

    return with_marks(choose_tokenizer(request, config, base, learn_them), config)


def _positions_of(config: RunConfig) -> int:
    """As many as the longest text has tokens; `UserError` where another number is asked for."""
    length, asked = config.data.max_length, config.model.max_len
    if asked not in (type(config.model)().max_len, length):
        raise UserError(
            f"model.max_len = {asked}: an encoder has as many positions as data.max_length = {length}; leave it out"
        )
    return length
