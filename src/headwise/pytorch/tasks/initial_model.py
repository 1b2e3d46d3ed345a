"""Runs that start from a model (`--init`): its fixed settings, and those that may change."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.config.model import ModelConfig, TransformerConfig, longest_sequence
from headwise.config.network import NetworkConfig, StackConfig
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
from headwise.core.optimizer import peak_learning_rate
from headwise.errors import UserError
from headwise.families.registry import traits_of
from headwise.models.load import pretrained_model
from headwise.pytorch.checkpoint.added_tokens import write_with_added_tokens
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.tasks.table import fine_tuning_of
from headwise.runtime.checkpoint.adapter_folders import home_of
from headwise.runtime.checkpoint.layout import CONFIG, adapters_in, is_family, read_json
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.trained import read_settings, settings_for
from headwise.runtime.tokenizers.vocabulary import read_vocabulary

TOKENIZER_SETTINGS = ("tokenizer", "subword", "vocab_size", "normalization", "lowercase")  # settings in [data]
TUNING_RATE = 0.25  # of the highest learning rate that the model was trained with (benchmarks/results, few-pairs)
# Settings that need a tokenizer trained here.
UNSUPPORTED = ("data.bpe_dropout", "data.source_dropout", "data.both_directions", "train.alignment_weight")


def config_from_model(request: TrainRequest) -> RunConfig:
    """The configuration of a run that starts from the model in `request.init`.

    Raises:
        UserError: the model does not fit the task, or a setting needs another shape or tokenizer.
    """
    try:
        if is_family(request.init):
            return _fine_tuning_config(request)
        if request.task not in ("", "translate"):
            expected = fine_tuning_of(request.task).expected
            raise UserError(f"{request.init}: --task {request.task} starts from {expected}, which this is not")
        start, _ = settings_for(WITH_DECODER, request.init)
    except UserError as error:
        raise error if str(error).startswith("--") else UserError(f"--init {error}") from None
    if request.source_language or request.target_language:
        raise UserError(
            f"--source-language and --target-language are for pretrained models; --init {request.init} was trained here"
        )
    start = from_dict({"model": {"task": "translate"}}, request.init, start)  # a denoiser becomes a translator
    if request.recipe == TASKS["translate"].tuning:  # whose rate is that of large pretrained models
        request = replace(request, settings=[f"train.learning_rate={_tuning_rate(request, start)}", *request.settings])
    return merged_config(request, start)


def _tuning_rate(request: TrainRequest, start: RunConfig) -> float:
    """The learning rate to fine-tune a model with that was trained here: a part of its own, once."""
    peak = peak_learning_rate(start.train, start.model.d_model)
    tuned_before = recipe_name(request.init, "translate") == request.recipe
    return peak if tuned_before else TUNING_RATE * peak


def recipe_name(init: str, task: str) -> str:
    """The name of the recipe that is used if only the initial model is named."""
    if not is_family(init):
        return read_settings(Path(init))[1].get("recipe", "")
    return TASKS[task].tuning


def _fine_tuning_config(request: TrainRequest) -> RunConfig:
    """`merged_config` for a pretrained model, whose files define its shape, its dropout and its search."""
    requested = request.task or (load_recipe(request.recipe).model.task if request.recipe else "")
    model = model_settings(request.init, requested)
    start = fine_tuning_of(model.task)
    recipe = load_recipe(TASKS[model.task].tuning)
    own = replace(recipe, model=model, data=converted(recipe.data, TASKS[model.task].data))
    if model.task == "translate" and traits_of(_family_of(request.init)).summarizes:
        own = replace(own, data=replace(own.data, max_length_ratio=0.0))
    config, limit = merged_config(request, own), longest_sequence(model)
    key = start.length_setting
    if limit and key and not any(setting.startswith(f"data.{key}=") for setting in request.settings):
        config = replace(config, data=replace(config.data, **{key: min(limit, getattr(config.data, key))}))
    for key, value in flatten(config).items():
        if value != SETTINGS[key].default and (key in UNSUPPORTED or key.startswith("decode.")):
            why = "keeps its vocabulary" if key in UNSUPPORTED else "uses the search settings of generation_config.json"
            raise UserError(f"{key} = {value}: a pretrained model {why}; leave it out")
    return config


def _family_of(init: str) -> str:
    values = read_json(home_of(Path(init)) / CONFIG)
    return str(values.get("hf", values).get("model_type"))


def merged_config(request: TrainRequest, start: RunConfig) -> RunConfig:
    """The configuration of the initial model, changed by recipe and settings.

    Shape and tokenizer are fixed, dropout is not. Search settings are the model's, unless the recipe or the user sets
    them. Without a recipe the other settings are the model's, too.

    Raises:
        UserError: a setting, or [model] of the recipe, needs another shape or tokenizer.
    """
    given = {name: getattr(start.data, name) for name in TOKENIZER_SETTINGS if hasattr(start.data, name)}
    base = RunConfig(model=start.model, data=type(start.data)(**given), decode=start.decode)
    _check_recipe(request, start)
    auto = replace(start.train, batching="auto", precision="auto")  # the values were chosen for another machine
    own = replace(start, train=auto)
    config = load_recipe(request.recipe, base) if request.recipe else own
    for key, value, fixed in _differences(config, start):
        if key.startswith("model."):
            raise _shape_error(request, key, value, fixed)
        notify(request, f"{key} = {value} of {request.recipe} is ignored: the tokenizer is that of {request.init}")
    config = apply_settings(replace(config, data=replace(config.data, **given)), request.settings)
    for key, value, _ in _differences(config, start):
        what = "shape" if key.startswith("model.") else "tokenizer"
        raise UserError(f"--set {key}={value}: the {what} is that of --init {request.init}; leave one of the two out")
    return config


def _check_recipe(request: TrainRequest, start: RunConfig) -> None:
    """`UserError` for a recipe of another architecture or task."""
    tables = recipe_tables(request.recipe) if request.recipe else {}
    for key in ("architecture", "task"):
        fixed = getattr(start.model, key)
        value = tables.get("model", {}).get(key, fixed)
        if value != fixed:
            raise _shape_error(request, f"model.{key}", value, fixed)


def _shape_error(request: TrainRequest, key: str, value: Any, fixed: Any) -> UserError:
    return UserError(
        f"--recipe {request.recipe}: {key} = {value}, but the model in --init {request.init} has {fixed}; "
        "leave --recipe out and change the model's settings with --set, or use a recipe that agrees"
    )


def _differences(config: RunConfig, start: RunConfig) -> list[tuple[str, Any, Any]]:
    """The fixed settings that differ in `config`: key, value there, value of the model."""
    prefixes = ("model.", *(f"data.{name}" for name in TOKENIZER_SETTINGS))
    values, fixed = flatten(config), flatten(start)
    keys = [key for key in values if key.startswith(prefixes) and key != "model.dropout"]
    return [(key, values[key], fixed[key]) for key in keys if values[key] != fixed[key]]


def with_added_tokens(request: TrainRequest) -> tuple[TrainRequest, RunConfig]:
    """Start from a copy of the initial model with the tokens in `request.special` added.

    The copy stays in the folder of the run, because resumed runs and adapters need it.
    """
    base = Path(request.init)
    if adapters_in(base) or "family" in read_json(base / CONFIG):
        raise UserError(f"--special {request.special[0]}: {base} is not a complete folder in the Hugging Face layout")
    out = Path(request.out) / f"{base.absolute().name}-grown"
    parsed = [one.rpartition("=") if "=" in one.strip("=") else (one, "", "") for one in request.special]
    tokens = {token: origin for token, _, origin in parsed}
    if request.resume and out.is_dir():
        _check_added(out, tokens)
    else:
        ids = write_with_added_tokens(base, tokens, out)
        rows = ", ".join(f"{token} ({ids[token]}, a copy of {tokens[token] or 'the mean'})" for token in tokens)
        notify(request, f"added to the vocabulary: {rows}")
    request = replace(request, init=str(out), special=())
    return request, check(config_from_model(request))


def _check_added(out: Path, tokens: dict[str, str]) -> None:
    vocabulary = read_vocabulary(out, read_json(out / CONFIG))
    for token in tokens:
        if vocabulary.id_of(token) is None:
            raise UserError(
                f"--special {token}: the run in {out.parent} was started without it; train into another folder"
            )


def _refuse_partial_dropout(hf_config: Mapping[str, Any]) -> None:
    """`UserError` if only some outputs are dropped (ModernBERT, which is published without)."""
    for name in ("embedding_dropout", "attention_dropout"):
        if hf_config.get(name):
            raise UserError(
                f"config.json has {name} = {hf_config[name]}: only 0 is supported for ModernBERT; set it to 0"
            )


# The paper's dropout in config.json.
DROPOUT = ("dropout", "dropout_rate", "resid_pdrop", "hidden_dropout", "hidden_dropout_prob")


def model_settings(path: str, task: str) -> ModelConfig:
    """[model] of a recipe for a pretrained network, with the dropout of its config.json.

    `task` is the task to train for, "" the usual one; `UserError` if the model does not support it.
    """
    model = pretrained_model(read_folder(path, dtype="float32"))
    task = task or model.usual_task
    start = fine_tuning_of(task)
    model = start.fit(model, path)
    if isinstance(model.config, NetworkConfig):
        return _transformer_settings(model, task)
    assert start.settings_of
    return start.settings_of(model, task)


def _transformer_settings(model: Any, task: str) -> ModelConfig:
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
        dropout=_dropout(model.hf_config.get("decoder") or model.hf_config),  # a captioner has two parts
        norm_position=stack.norm_position,
        norm="rms" if stack.norm.startswith("rms") else "layer",
        activation=stack.activation.partition("_")[0],
        gated=stack.gated,
        biases=stack.ffn_bias,
        positions=_positions(stack) if config.front != "patches" else "learned",
        **_picture_settings(config),
        max_len=stack.max_len or TransformerConfig.max_len,
        tied_embeddings=tied if config.tie_head or not decoder else "none",
    )


def _picture_settings(config: NetworkConfig) -> dict[str, Any]:
    if config.front != "patches":
        return {}
    height, width = config.image_size
    if height != width:
        raise UserError(f"--init: reads images of {height} x {width} pixels; only square images are supported")
    return {"image_size": height, "patch_size": config.patch_size}


def _dropout(hf_config: Mapping[str, Any]) -> float:
    """The paper's dropout, on embeddings and on the output of sub-layers."""
    if hf_config.get("model_type") == "modernbert":
        _refuse_partial_dropout(hf_config)
    named = next((hf_config[name] for name in DROPOUT if hf_config.get(name) is not None), None)
    embeddings = hf_config.get("embd_pdrop", named)  # GPT-2's
    if named is not None and embeddings not in (named, None):
        raise UserError(
            f"config.json has embd_pdrop = {embeddings} and resid_pdrop = {named}: only one dropout rate is supported; "
            "set both to the same value"
        )
    if named is not None:
        return float(named)
    return traits_of(hf_config.get("model_type")).dropout.paper


def _positions(stack: StackConfig) -> str:
    if stack.rotary:
        return "rotary"
    return "relative" if stack.relative_buckets else stack.positions.partition("_")[0]
