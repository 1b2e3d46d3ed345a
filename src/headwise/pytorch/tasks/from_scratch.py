"""Training from scratch for tasks that fine-tune: first write an untrained model folder, then fine-tune it.

The folder is part of the run (`bert-begun`, `vit-gpt2-begun`). It has random weights and a vocabulary trained on the
training texts; head, files, metrics and layout are those of fine-tuning. A resumed run uses it again. See
`pytorch/checkpoint/from_scratch.py` for the files of the folder and `pytorch/checkpoint/compose.py` for
vision-encoder-decoders.
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

from headwise.config.settings import RunConfig
from headwise.core.build import build, parameters_of
from headwise.errors import UserError
from headwise.pytorch.architectures.hf_layouts import encoder_config, language_model_config, vit_config
from headwise.pytorch.checkpoint.compose import write_composed
from headwise.pytorch.checkpoint.from_scratch import ScratchLayout, check_layout, picture_layout, text_layout
from headwise.pytorch.tasks.job import TrainRequest, choose_tokenizer
from headwise.pytorch.tasks.language_modelling import with_spooled_files
from headwise.pytorch.tasks.masked_modelling import SPECIAL_TOKENS, add_template
from headwise.pytorch.tasks.pictures import init_patch_positions
from headwise.runtime.checkpoint.layout import CONFIG, WEIGHTS, read_json
from headwise.text.files.documents import train_on_documents
from headwise.text.tokens.tokenizer import Tokenizer

MakeFineTuningJob = Callable[[TrainRequest, RunConfig, Path], Any]
TrainingTexts = Callable[[TrainRequest], Iterable[str]]  # texts of the training files, for the tokenizer
BODY, CAPTIONER = "bert-begun", "vit-gpt2-begun"


def encoder_from_scratch(
    make_job: MakeFineTuningJob, texts: TrainingTexts, request: TrainRequest, config: RunConfig, folder: Path
) -> Any:
    """The fine-tuning job of an untrained encoder with the shape in [model], in BERT's layout."""
    length, request = _encoder_length(config), with_spooled_files(request)
    check_layout(encoder_config(replace(config.model, vocab_size=1), length))
    with scratch_folder(folder / BODY, request.resume) as (base, new):
        tokenizer = _encoder_tokenizer(replace(request, resume=not new), config, base, texts)
        model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
        if new:
            axes = encoder_config(model, length)
            write_untrained(
                base, lambda: build(axes), text_layout(axes, length, tokenizer), tokenizer, config.train.seed
            )
        return make_job(replace(request, init=str(base)), replace(config, model=model), folder)


def captioner_from_scratch(
    make_job: MakeFineTuningJob, texts: TrainingTexts, request: TrainRequest, config: RunConfig, folder: Path
) -> Any:
    """The fine-tuning job of an untrained ViT with an untrained GPT-2, both with the shape in [model]."""
    model = config.model
    check_layout(vit_config(replace(model, n_outputs=2)))
    check_layout(language_model_config(replace(model, vocab_size=1), model.max_len))
    with scratch_folder(folder / CAPTIONER, request.resume) as (base, new):
        if new:
            with TemporaryDirectory(dir=folder) as parts:
                _write_captioner(request, config, texts, Path(parts), base)
        size = read_json(base / CONFIG)["decoder"]["vocab_size"]
        config = replace(config, model=replace(model, vocab_size=size))
        return make_job(replace(request, init=str(base)), config, folder)


def _write_captioner(request: TrainRequest, config: RunConfig, texts: TrainingTexts, parts: Path, base: Path) -> None:
    model, seed = config.model, config.train.seed
    tokenizer = choose_tokenizer(
        request, config, parts, lambda: train_on_documents(texts(request), config.data, request.special)
    )
    encoder = replace(vit_config(model), head="none")
    decoder = language_model_config(replace(model, vocab_size=tokenizer.vocab_size), model.max_len)
    write_untrained(
        parts / "vit", lambda: init_patch_positions(build(encoder)), picture_layout(encoder, []), None, seed
    )
    write_untrained(
        parts / "gpt2", lambda: build(decoder), text_layout(decoder, model.max_len, tokenizer), tokenizer, seed
    )
    write_composed(parts / "vit", parts / "gpt2", base, seed)


def write_untrained(
    folder: Path, make: Callable[[], nn.Module], layout: ScratchLayout, tokenizer: Tokenizer | None, seed: int
) -> None:
    """Write a folder with an untrained network; the weights are written last."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
    layout.write_companions(folder, tokenizer)
    layout.write_tensors(folder, parameters_of(network))


@contextmanager
def scratch_folder(base: Path, resume: bool) -> Iterator[tuple[Path, bool]]:
    """The folder to start from, and whether it must be written; a new one is deleted on a `UserError`."""
    new = not (resume and (base / WEIGHTS).is_file())
    if new:
        shutil.rmtree(base, ignore_errors=True)
    try:
        yield base, new
    except UserError:
        if new:
            shutil.rmtree(base, ignore_errors=True)
        raise


def _encoder_tokenizer(request: TrainRequest, config: RunConfig, base: Path, texts: TrainingTexts) -> Tokenizer:
    def train() -> Tokenizer:
        return train_on_documents(texts(request), config.data, request.special, SPECIAL_TOKENS)

    return add_template(choose_tokenizer(request, config, base, train), config)


def _encoder_length(config: RunConfig) -> int:
    """The number of positions, `data.max_length`; `UserError` if `model.max_len` differs."""
    length, requested = config.data.max_length, config.model.max_len
    if requested not in (type(config.model)().max_len, length):
        raise UserError(
            f"model.max_len = {requested}: an encoder has data.max_length = {length} positions; leave it out"
        )
    return length
