"""Runs that start from a model (`--init`): which settings are the model's, and which may change."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.checkpoint.adapter_folders import home_of
from headwise.checkpoint.growing import write_grown
from headwise.checkpoint.layout import CONFIG, adapters_in, is_family, read_json
from headwise.checkpoint.trained import read_settings, settings_for
from headwise.checkpoint.vocabulary import read_vocabulary
from headwise.checkpoint.with_torch import read_any
from headwise.config.model import ModelConfig, TransformerConfig, longest_sequence
from headwise.config.setting import converted
from headwise.config.settings import (
    SETTINGS,
    WITH_DECODER,
    RunConfig,
    apply_settings,
    check,
    flatten,
    from_dict,
    load_recipe,
    recipe_tables,
)
from headwise.config.tasks import TASKS
from headwise.errors import UserError
from headwise.models.load import pretrained_model
from headwise.network.config import NetworkConfig, StackConfig
from headwise.tasks.job import TrainRequest, notify
from headwise.tasks.pretrained import NONE_BY_DEFAULT
from headwise.tasks.table import fine_tuning_of

OF_THE_TOKENIZER = ("tokenizer", "subword", "vocab_size", "normalization", "lowercase")  # settings in [data]


SUMMARISING = ("bart", "pegasus", "t5", "mt5")  # families that write short outputs for long inputs
FIXED = (
    "data.bpe_dropout",
    "data.source_dropout",
    "data.both_directions",
    "train.alignment_weight",
)  # not for pretrained


def starting(request: TrainRequest) -> RunConfig:
    """The configuration of a run that starts from the model in `request.init`.

    Raises:
        UserError: it is none that can be trained for the task, or a setting asks for another shape or tokenizer.
    """
    try:
        if is_family(request.init):
            return _tuning(request)
        if request.task not in ("", "translate"):
            wanted = fine_tuning_of(request.task).folders
            raise UserError(f"{request.init}: --task {request.task} starts from {wanted}, and this is none")
        start, _ = settings_for(WITH_DECODER, request.init)
    except UserError as error:
        raise error if str(error).startswith("--") else UserError(f"--init {error}") from None
    if request.source_language or request.target_language:
        raise UserError(
            f"--source-language and --target-language are for published models; --init {request.init} is none"
        )
    return continuing(request, from_dict({"model": {"task": "translate"}}, request.init, start))  # also of a denoiser


def recipe_of(init: str, task: str) -> str:
    """The name of the recipe whose settings count where only the model to start from is named."""
    if not is_family(init):
        return read_settings(Path(init))[1].get("recipe", "")
    return TASKS[task].tuning


def _tuning(request: TrainRequest) -> RunConfig:
    """`continuing` for a pretrained model, whose files define its shape, its dropout and its search."""
    asked = request.task or (load_recipe(request.recipe).model.task if request.recipe else "")
    model = model_section(request.init, asked)
    start = fine_tuning_of(model.task)
    recipe = load_recipe(TASKS[model.task].tuning)
    own = replace(recipe, model=model, data=converted(recipe.data, TASKS[model.task].data))
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
    for key, value in flatten(config).items():
        if value != SETTINGS[key].default and (key in FIXED or key.startswith("decode.")):
            why = "searches as its generation_config.json says" if key not in FIXED else "has a vocabulary of its own"
            raise UserError(f"{key} = {value}: a published model {why}; leave it out")
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
    given = {name: getattr(start.data, name) for name in OF_THE_TOKENIZER if hasattr(start.data, name)}
    base = RunConfig(model=start.model, data=type(start.data)(**given))
    _check_recipe(request, start)
    auto = replace(start.train, batching="auto", precision="auto")  # they were decided for the machine of that time
    own = replace(start, train=auto)
    config = load_recipe(request.recipe, base) if request.recipe else own
    for key, wanted, there in _differences(config, start):
        if key.startswith("model."):
            raise _another_shape(request, key, wanted, there)
        notify(request, f"{key} = {wanted} of {request.recipe} does not apply: the tokenizer is that of {request.init}")
    config = apply_settings(replace(config, data=replace(config.data, **given)), request.settings)
    for key, wanted, _ in _differences(config, start):
        what = "shape" if key.startswith("model.") else "tokenizer"
        raise UserError(f"--set {key}={wanted}: the {what} is that of --init {request.init}; leave one of the two out")
    return config


def _check_recipe(request: TrainRequest, start: RunConfig) -> None:
    """`UserError` for a recipe of another architecture or task."""
    tables = recipe_tables(request.recipe) if request.recipe else {}
    for key in ("architecture", "task"):
        there = getattr(start.model, key)
        wanted = tables.get("model", {}).get(key, there)
        if wanted != there:
            raise _another_shape(request, f"model.{key}", wanted, there)


def _another_shape(request: TrainRequest, key: str, wanted: Any, there: Any) -> UserError:
    return UserError(
        f"--recipe {request.recipe}: {key} = {wanted}, but the model in --init {request.init} has {there}; "
        "leave --recipe out for the model's own settings, which --set changes, or give a recipe that agrees"
    )


def _differences(config: RunConfig, start: RunConfig) -> list[tuple[str, Any, Any]]:
    """Settings that come with a model and are others in `config`: key, value there, value of the model."""
    fixed = ("model.", *(f"data.{name}" for name in OF_THE_TOKENIZER))
    wanted, there = flatten(config), flatten(start)
    keys = [key for key in wanted if key.startswith(fixed) and key != "model.dropout"]
    return [(key, wanted[key], there[key]) for key in keys if wanted[key] != there[key]]


def with_pieces(request: TrainRequest) -> tuple[TrainRequest, RunConfig]:
    """The request with a copy of the initial model that has the tokens of `request.special`, and its configuration.

    The copy stays in the folder of the run: a resumed run, and adapters, start from it again.
    """
    base = Path(request.init)
    if adapters_in(base) or "family" in read_json(base / CONFIG):
        raise UserError(f"--special {request.special[0]}: {base} is no whole folder in the Hugging Face layout")
    out = Path(request.out) / f"{base.absolute().name}-grown"
    asked = [one.rpartition("=") if "=" in one.strip("=") else (one, "", "") for one in request.special]
    pieces = {piece: origin for piece, _, origin in asked}
    if request.resume and out.is_dir():
        _check(out, pieces)
    else:
        ids = write_grown(base, pieces, out)
        rows = ", ".join(f"{piece} ({ids[piece]}, begun as {pieces[piece] or 'the mean'})" for piece in pieces)
        notify(request, f"added to the vocabulary: {rows}")
    request = replace(request, init=str(out), special=())
    return request, check(starting(request))


def _check(out: Path, pieces: dict[str, str]) -> None:
    vocabulary = read_vocabulary(out, read_json(out / CONFIG))
    for piece in pieces:
        if vocabulary.id_of(piece) is None:
            raise UserError(
                f"--special {piece}: the run in {out.parent} was begun without it; train into another folder"
            )


# How configurations call the paper's.
DROPOUT = ("dropout", "dropout_rate", "resid_pdrop", "hidden_dropout", "hidden_dropout_prob")


def model_section(path: str, task: str) -> ModelConfig:
    """A published network in the words of a recipe, as far as they go, with the dropout that its config.json says.

    `task` is what it is to be trained for, "" = what it is for; `UserError` where that is another thing.
    """
    model = pretrained_model(read_any(path, dtype="float32"))
    task = task or model.usual_task
    start = fine_tuning_of(task)
    model = start.fit(model, path)
    if isinstance(model.config, NetworkConfig):
        return _described(model, task)
    assert start.words
    return start.words(model, task)


def _described(model: Any, task: str) -> ModelConfig:
    config, encoder, decoder = model.config, model.config.encoder, model.config.decoder
    stack = encoder or decoder
    assert stack
    tied = "all" if config.share_embeddings or not (encoder and decoder) else "target"
    pad_id = model.generation.special.pad_id if decoder else int(model.hf_config.get("pad_token_id") or 0)
    return TransformerConfig(
        task=task,
        vocab_size=config.tgt_vocab_size or config.vocab_size,
        pad_id=pad_id,
        d_model=stack.d_model,
        d_ff=stack.d_ff,
        n_heads=stack.n_heads,
        d_k=stack.d_head,
        d_v=stack.d_v or stack.d_head,
        n_encoder_layers=encoder.n_layers if encoder else TransformerConfig.n_encoder_layers,
        n_decoder_layers=decoder.n_layers if decoder else TransformerConfig.n_decoder_layers,
        dropout=_dropout(model.hf_config.get("decoder") or model.hf_config),  # a captioner has two
        norm_position=stack.norm_position,
        norm="rms" if stack.norm.startswith("rms") else "layer",
        activation=stack.activation.partition("_")[0],
        gated=stack.gated,
        biases=stack.ffn_bias,
        positions=_positions(stack) if config.front != "patches" else "learned",
        **_of_pictures(config),
        max_len=stack.max_len or TransformerConfig.max_len,
        tied_embeddings=tied if config.tie_head or not decoder else "none",
    )


def _of_pictures(config: NetworkConfig) -> dict[str, Any]:
    if config.front != "patches":
        return {}
    height, width = config.image_size
    if height != width:
        raise UserError(f"--init: reads pictures of {height} x {width} pixels; squares alone are trained on")
    return {"image_size": height, "patch_size": config.patch_size}


def _dropout(hf_config: Mapping[str, Any]) -> float:
    """The paper's: on embeddings and on what sub-layers put out."""
    named = next((hf_config[name] for name in DROPOUT if hf_config.get(name) is not None), None)
    embeddings = hf_config.get("embd_pdrop", named)  # GPT-2's
    if named is not None and embeddings not in (named, None):
        raise UserError(
            f"config.json drops embeddings at {embeddings} (embd_pdrop) and what sub-layers put out at {named} "
            "(resid_pdrop): one rate is trained with, write the same one in both"
        )
    if named is not None:
        return float(named)
    return 0.0 if hf_config.get("model_type") in NONE_BY_DEFAULT else 0.1


def _positions(stack: StackConfig) -> str:
    if stack.rotary:
        return "rotary"
    return "relative" if stack.relative_buckets else stack.positions.partition("_")[0]
