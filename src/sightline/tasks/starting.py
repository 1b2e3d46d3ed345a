"""A run that starts from a model: which of its settings stay, and which may change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.checkpoint.adapters import home_of
from sightline.checkpoint.layout import CONFIG, is_family, read_json
from sightline.checkpoint.trained import read_settings, settings_for
from sightline.config.settings import WITH_DECODER, RunConfig, apply_settings, flatten, load_recipe, longest_sequence
from sightline.errors import UserError
from sightline.tasks.job import TrainRequest, say

OF_THE_TOKENIZER = ("tokenizer", "subword", "vocab_size", "normalization", "lowercase")  # settings in [data]


SUMMARISING = ("bart", "pegasus", "t5", "mt5")  # families whose outputs may be a small part of what they read
FIXED = ("data.bpe_dropout", "data.source_dropout", "data.both_directions", "train.alignment_weight")  # need ours


def starting(request: TrainRequest) -> RunConfig:
    """The configuration of a run that starts from the model in `request.init`.

    Raises:
        UserError: it is none that can be trained for the task, or a setting asks for another shape or tokenizer.
    """
    try:
        if is_family(request.init):
            return _tuning(request)
        if request.task not in ("", "translate"):
            raise UserError(
                f"{request.init}: --task {request.task} starts from {_folders(request.task)}, and this is none"
            )
        start, _ = settings_for(WITH_DECODER, request.init)
    except UserError as error:
        raise error if str(error).startswith("--") else UserError(f"--init {error}") from None
    if request.source_language or request.target_language:
        raise UserError(
            f"--source-language and --target-language are for published models; --init {request.init} is none"
        )
    return continuing(request, replace(start, model=replace(start.model, task="translate")))  # of a denoiser, too


def recipe_of(init: str, task: str) -> str:
    """The name of the recipe whose settings count where only the model to start from is named."""
    if not is_family(init):
        return read_settings(Path(init))[1].get("recipe", "")
    from sightline.tasks.trainable import start_of

    return start_of(task).recipe


def _folders(task: str) -> str:
    from sightline.tasks.trainable import start_of  # which what starts from a model of ours does without

    return start_of(task).folders


def _tuning(request: TrainRequest) -> RunConfig:
    """`continuing` for a published model, whose files say its shape, its dropout, and how it is searched with."""
    from sightline.tasks.trainable import described, start_of

    asked = request.task or (load_recipe(request.recipe).model.task if request.recipe else "")
    model = described(request.init, asked)
    start = start_of(model.task)
    own = replace(load_recipe(start.recipe), model=model)
    if model.task == "translate" and _family_of(request.init) in SUMMARISING:
        own = replace(own, data=replace(own.data, max_length_ratio=0.0))
    config, limit = continuing(request, own), longest_sequence(model)
    if (
        limit
        and start.longest
        and not any(setting.startswith(f"data.{start.longest}=") for setting in request.settings)
    ):
        config = replace(
            config, data=replace(config.data, **{start.longest: min(limit, getattr(config.data, start.longest))})
        )
    values, usual = flatten(config), flatten(RunConfig())
    for key in values:
        if values[key] != usual[key] and (key in FIXED or key.startswith("decode.")):
            why = "searches as its generation_config.json says" if key not in FIXED else "has a vocabulary of its own"
            raise UserError(f"{key} = {values[key]}: a published model {why}; leave it out")
    return config


def _family_of(init: str) -> str:
    values = read_json(home_of(Path(init)) / CONFIG)
    return str(values.get("hf", values).get("model_type"))


def continuing(request: TrainRequest, start: RunConfig) -> RunConfig:
    """The configuration of a run that starts from a model: recipe and settings, as far as the model allows.

    Shape and tokenizer are the model's, dropout is not. Without a recipe everything else is the model's too.

    Raises:
        UserError: a setting, or [model] of the recipe, asks for another shape or tokenizer.
    """
    given = {name: getattr(start.data, name) for name in OF_THE_TOKENIZER}
    base = RunConfig(model=start.model, data=replace(RunConfig().data, **given))
    auto = replace(start.train, batching="auto", precision="auto")  # they were decided for the machine of that time
    own = replace(start, train=auto)
    config = load_recipe(request.recipe, base) if request.recipe else own
    for key, wanted, there in _differences(config, start):
        if key.startswith("model."):
            raise UserError(
                f"--recipe {request.recipe}: {key} = {wanted}, but the model in --init {request.init} has {there}; "
                "leave --recipe out for the model's own settings, which --set changes, or give a recipe that agrees"
            )
        say(request, f"{key} = {wanted} of {request.recipe} does not apply: the tokenizer is that of {request.init}")
    config = apply_settings(replace(config, data=replace(config.data, **given)), request.settings)
    for key, wanted, _ in _differences(config, start):
        what = "shape" if key.startswith("model.") else "tokenizer"
        raise UserError(f"--set {key}={wanted}: the {what} is that of --init {request.init}; leave one of the two out")
    return config


def _differences(config: RunConfig, start: RunConfig) -> list[tuple[str, Any, Any]]:
    """Settings that come with a model and are others in `config`: key, value there, value of the model."""
    fixed = ("model.", *(f"data.{name}" for name in OF_THE_TOKENIZER))
    wanted, there = flatten(config), flatten(start)
    keys = [key for key in wanted if key.startswith(fixed) and key != "model.dropout"]
    return [(key, wanted[key], there[key]) for key in keys if wanted[key] != there[key]]
