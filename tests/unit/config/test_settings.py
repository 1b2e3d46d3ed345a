"""Configuration: parsing, validation, and error messages with hints."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from headwise.config.data import PictureData
from headwise.config.setting import POSITIVE, RATE, SHARE, Setting
from headwise.config.settings import (
    SETTINGS,
    TYPES,
    RunConfig,
    apply_settings,
    check,
    flatten,
    from_dict,
    load_recipe,
    meaningful,
    recipe_names,
)
from headwise.errors import UserError
from headwise.runtime.checkpoint.model_card import USAGE

ANOTHER_VALUE = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v / 2 + 0.2, str: lambda v: v + "x"}


def value_of(config: RunConfig, key: str) -> Any:
    return flatten(config)[key]


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


# --- recipes


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_is_valid(name: str) -> None:
    config = load_recipe(name)
    assert check(config) is config
    assert config.train.keep_last >= config.train.average


def test_recipes_in_the_documentation_exist() -> None:
    assert {"tiny", "small", "base", "big", "demo"} <= {*recipe_names()}
    assert {"rnn", "lstm", "gru", "bahdanau", "luong", "conv"} <= {*recipe_names()}
    assert {"classify", "classify-lstm", "forecast", "forecast-lstm", "gpt", "llama"} <= {*recipe_names()}


PAPER = {
    "model.d_model": 512,  # Table 3, base
    "model.d_ff": 2048,
    "model.n_heads": 8,
    "model.d_k": 0,  # that is d_model / n_heads = 64
    "model.d_v": 0,
    "model.n_encoder_layers": 6,
    "model.n_decoder_layers": 6,
    "model.dropout": 0.1,
    "model.norm_position": "post",
    "model.positions": "sinusoidal",
    "model.tied_embeddings": "all",
    "data.vocab_size": 37_000,  # section 5.1
    "train.tokens_per_batch": 25_000,
    "train.max_steps": 100_000,  # section 5.2
    "train.learning_rate": 0.0,  # section 5.3: by the formula
    "train.warmup_steps": 4000,
    "train.schedule": "inverse_sqrt",
    "train.betas": (0.9, 0.98),
    "train.eps": 1e-9,
    "train.weight_decay": 0.0,
    "train.clip_norm": 0.0,
    "train.label_smoothing": 0.1,  # section 5.4
    "train.r_drop": 0.0,
    "train.ema": 0.0,
    "data.bpe_dropout": 0.0,
    "train.average": 5,  # section 6.1
    "decode.beam_size": 4,
    "decode.length_penalty": 0.6,
    "decode.max_length_factor": 1.0,  # input length + 50
    "decode.max_length_extra": 50,
}
BIG = {  # last row of Table 3, sections 5.2 and 6.1
    "model.d_model": 1024,
    "model.d_ff": 4096,
    "model.n_heads": 16,
    "model.dropout": 0.3,
    "train.max_steps": 300_000,
    "train.average": 20,
}


@pytest.mark.parametrize(("name", "paper"), [("base", PAPER), ("big", PAPER | BIG)])
def test_recipe_is_the_papers(name: str, paper: dict[str, Any]) -> None:
    values = flatten(load_recipe(name))
    assert {key: values[key] for key in paper} == paper


def test_recipe_at_a_path(recipe_file: Path) -> None:
    recipe_file.write_text("[model]\nd_model = 64  # narrow\n[train]\neps = 1e-8\nbetas = [0.9, 0.999]\n")
    expected = apply_settings(RunConfig(), ["model.d_model=64", "train.eps=1e-8", "train.betas=[0.9,0.999]"])
    assert load_recipe(str(recipe_file)) == expected


def test_recipe_may_be_empty(recipe_file: Path) -> None:
    recipe_file.touch()
    assert load_recipe(str(recipe_file)) == RunConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modle]\nd_model = 8", "unknown section 'modle'; did you mean 'model'?"),
        ("[model]\nd_modle = 8", "unknown key in [model] 'd_modle'; did you mean 'd_model'?"),
        ("d_model = 8", "unknown section 'd_model'"),
        ("model = 8", "'model' must be a table, write [model] and its keys below it"),
        ("[model]\nd_model = '8'", "model.d_model = '8': must be of type int"),
        ("[model]\nd_model = 8.5", "model.d_model = 8.5: must be of type int"),
        ("[model]\nd_model = true", "model.d_model = True: must be of type int"),
        ("[model]\ndropout = true", "model.dropout = True: must be of type float"),
        ("[model]\npositions = 1", "model.positions = 1: must be of type str"),
        ("[data]\nlowercase = 1", "data.lowercase = 1: must be of type bool"),
        ("[train]\nbetas = [0.9]", "train.betas = [0.9]: must be two numbers, for example [0.9, 0.98]"),
        ("[train]\nbetas = [0.9, 'x']", "train.betas = 'x': must be of type float"),
        ("[model\n", "not valid TOML: "),
        ("[model]\nd_model = 8\nd_model = 9", "not valid TOML: "),
    ],
    ids=lambda text: text.replace("\n", " ")[:30],
)
def test_bad_recipe_names_file_key_and_fix(recipe_file: Path, text: str, message: str) -> None:
    recipe_file.write_text(text)
    with pytest.raises(UserError) as error:
        load_recipe(str(recipe_file))
    assert str(error.value).startswith(f"{recipe_file}: {message}")
    assert "\n" not in str(error.value)


def test_recipe_in_another_encoding(recipe_file: Path) -> None:
    recipe_file.write_bytes("[model] # schmäler".encode("latin-1"))
    with pytest.raises(UserError, match=r"mine\.toml: not valid TOML: .*utf-8"):
        load_recipe(str(recipe_file))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tinny", "unknown recipe 'tinny'; did you mean 'tiny'? (valid: "),
        ("absent/mine.toml", "absent/mine.toml: no such recipe file; check the path or use one of: "),
    ],
)
def test_missing_recipe(name: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(name)
    assert str(error.value).startswith(message)
    assert str(error.value).count("tiny") >= 1


# --- settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("train.max_steps=10", 10),
        ("train.max_steps=1_000", 1000),
        ("train.max_steps=1e3", 1000),
        (" train.max_steps = 10 ", 10),
        ("train.seed=7", 7),
        ("model.dropout=0.25", 0.25),
        ("model.dropout=0", 0.0),
        ("train.eps=1e-6", 1e-6),
        ("train.compile=true", True),
        ("train.betas=[0.8, 1e-1]", (0.8, 0.1)),
        ("train.betas=[0, 0]", (0.0, 0.0)),
        ("model.norm_position=pre", "pre"),
        ("model.norm_position='pre'", "pre"),
        ("data.tokenizer=some folder/tokenizer.json", "some folder/tokenizer.json"),
        ("data.tokenizer=a=b", "a=b"),
        ("data.tokenizer=", ""),
    ],
)
def test_setting_is_parsed(setting: str, value: Any) -> None:
    key = setting.partition("=")[0].strip()
    changed = value_of(apply_settings(RunConfig(), [setting]), key)
    assert (changed, type(changed)) == (value, type(value))


def test_later_setting_wins_and_the_rest_stays() -> None:
    config = load_recipe("tiny")
    changed = apply_settings(config, ["train.max_steps=10", "train.max_steps=20", "model.d_model=64"])
    assert flatten(changed) == flatten(config) | {"train.max_steps": 20, "model.d_model": 64}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("max_steps=10", "--set: unknown key 'max_steps'; did you mean 'train.max_steps'?"),
        ("model.max_steps=10", "--set: unknown key 'model.max_steps'; did you mean 'train.max_steps'?"),
        ("train.max_step=10", "--set: unknown key 'train.max_step'; did you mean 'train.max_steps'?"),
        ("zzz.qqqqqqq=10", "--set: unknown key 'zzz.qqqqqqq'"),
        (
            "train.max_steps",
            "--set train.max_steps: write it as section.key=value, for example train.max_steps=1000",
        ),
        ("train.max_steps=", "--set train.max_steps=: train.max_steps = '': must be of type int"),
        ("train.max_steps=many", "--set train.max_steps=many: train.max_steps = 'many': must be of type int"),
        ("train.compile=yes", "--set train.compile=yes: train.compile = 'yes': must be of type bool"),
    ],
)
def test_bad_setting_gets_a_hint(setting: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        apply_settings(RunConfig(), [setting])
    assert str(error.value) == message


# --- declarations


def test_every_field_has_help_and_a_valid_default() -> None:
    values = {key: value for config in EVERY_CONFIG for key, value in flatten(config).items()}
    assert SETTINGS.keys() == values.keys()
    for key, setting in SETTINGS.items():
        assert setting.help and "%" not in setting.help, key  # argparse reads % as a format
        assert setting.default == values[key] or key in ("model.architecture", "model.task")
        setting.check(key, values[key])


def test_every_task_has_a_card() -> None:
    cards = {path.stem for path in USAGE.glob("*.md")}
    assert cards == {*SETTINGS["model.task"].choices, "restore"}  # of published denoisers


def of(other: str, place: str) -> RunConfig:
    """The defaults of an architecture or a task."""
    return from_dict({"model": {other: place}}, "test")


EVERY_CONFIG = [of(other, name) for other in ("architecture", "task") for name in SETTINGS[f"model.{other}"].choices]


def another(key: str) -> Any:
    """A valid value that is not the default."""
    setting = SETTINGS[key]
    if setting.choices:
        return setting.choices[1]
    near = setting.default
    return two_numbers(key) if isinstance(near, tuple) else ANOTHER_VALUE[type(near)](near)


def another_value(key: str, value: Any) -> Any:
    return two_numbers(key) if isinstance(value, tuple) else ANOTHER_VALUE[type(value)](value)


def two_numbers(key: str) -> tuple[Any, ...]:
    """An element of the setting's type."""
    number, *_ = get_args(TYPES[key])
    return number(3), number(2)


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if setting.only_for])
def test_unused_settings_are_refused_and_left_out(key: str) -> None:
    """For every architecture and task; `meaningful` and `check` agree."""
    for other, readers in SETTINGS[key].only_for.items():
        places = SETTINGS[f"model.{other}"].choices
        assert {*readers} < {*places}
        for place in {*places} - {*readers}:
            config = of(other, place)
            section, name = key.split(".")
            assert name not in meaningful(config).get(section, {})
            with pytest.raises(UserError, match=f"{key} = .* is not used by model"):
                check(from_dict({section: {name: another(key)}}, "test", config))
            as_in_older_files = {section: {name: SETTINGS[key].default}}
            assert from_dict(as_in_older_files, "test", config) == config


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        (Setting(1, "a count", POSITIVE), 0, "a.b = 0: must be greater than 0"),
        (Setting(0.1, "a rate", RATE), 1.0, "a.b = 1.0: must be at least 0 and less than 1"),
        (Setting(1.0, "a share", SHARE), 1.5, "a.b = 1.5: must be greater than 0 and at most 1"),
        (Setting(0.0, "a weight"), -0.5, "a.b = -0.5: must be at least 0"),
        (Setting(0.0, "a weight"), math.inf, "a.b = inf: must be a finite number"),
        (
            Setting((0.9, 0.98), "two rates", RATE),
            (0.9, 1.0),
            "a.b = [0.9, 1.0]: each must be at least 0 and less than",
        ),
        (Setting("x", "a word", choices=("x", "yes")), "yess", "unknown value for a.b 'yess'; did you mean 'yes'?"),
    ],
    ids=lambda x: str(x)[:20],
)
def test_a_value_outside_its_range(setting: Setting, value: Any, message: str) -> None:
    setting.check("a.b", setting.default)
    with pytest.raises(UserError) as error:
        setting.check("a.b", value)
    assert str(error.value).startswith(message)


# --- validation


CHOICES = {key: setting.choices for key, setting in SETTINGS.items() if setting.choices}


def test_no_recipe_mirrors_pictures() -> None:
    """A mirrored digit or letter is another one or none, and a caption may say "left"."""
    data = {name: load_recipe(name).data for name in recipe_names()}
    pictures = {name: table for name, table in data.items() if isinstance(table, PictureData)}
    assert {"vit", "tune-pictures", "caption", "tune-captions"} <= {*pictures}
    assert not [name for name, table in pictures.items() if table.flip]


@pytest.mark.parametrize("key", CHOICES)
def test_choice_is_checked_with_a_suggestion(key: str) -> None:
    nearest = CHOICES[key][0]
    with pytest.raises(UserError, match=f"{key} '{nearest}x'.*'{nearest}'"):
        check(apply_settings(RunConfig(), [f"{key}={nearest}x"]))


COMPANIONS = {  # settings that a choice needs
    "model.cell": ["model.architecture=recurrent"],
    "model.attention": ["model.architecture=recurrent", "model.bidirectional=false"],
    "model.architecture=conv": ["model.positions=learned"],
    "model.pooling": ["model.task=classify"],
    "data.subword=characters": ["model.task=lm"],
    "data.problem_type": ["model.task=classify"],
    "data.inputs": ["model.task=forecast"],
    "data.reading": ["model.task=mlm"],
    "train.best_metric=accuracy": ["model.task=classify"],
    "train.best_metric=macro_f1": ["model.task=classify"],
    "train.best_metric=exact_match": ["model.task=answer"],
    "train.best_metric=f1": ["model.task=tag"],
    "train.best_metric=mrr": ["model.task=embed"],
    "train.best_metric=wer": ["model.task=transcribe"],
}


@pytest.mark.parametrize(("key", "valid"), CHOICES.items())
def test_every_choice_passes(key: str, valid: tuple[str, ...]) -> None:
    for value in valid:
        others = COMPANIONS.get(f"{key}={value}", COMPANIONS.get(key, []))
        check(apply_settings(RunConfig(), [*others, f"{key}={value}"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.d_model=0"], "model.d_model = 0: must be greater than 0"),
        (["train.max_steps=-5"], "train.max_steps = -5: must be greater than 0"),
        (["decode.temperature=0"], "decode.temperature = 0.0: must be greater than 0"),
        (["model.dropout=1"], "model.dropout = 1.0: must be at least 0 and less than 1"),
        (["data.bpe_dropout=-0.1"], "data.bpe_dropout = -0.1: must be at least 0 and less than 1"),
        (["data.source_dropout=1"], "data.source_dropout = 1.0: must be at least 0 and less than 1"),
        (
            ["model.task=denoise", "data.source_dropout=0.1"],
            "data.source_dropout = 0.1 is not used by model.task = d",
        ),
        (["data.both_directions=1"], "data.both_directions = 1.0: must be at least 0 and less than 1"),
        (["train.clip_norm=-1"], "train.clip_norm = -1.0: must be at least 0"),
        (["train.seed=-1"], "train.seed = -1: must be from 0 to 4294967295"),
        (["model.n_heads=7"], "model.d_model = 512 is not a multiple of model.n_heads = 7"),
        (["model.n_heads=7", "model.d_k=64"], "model.d_model = 512 is not a multiple of model.n_heads = 7"),
        (["model.cell=lstm"], "model.cell = lstm is not used by model.architecture = transformer: leave it out"),
        (["model.d_model=9", "model.n_heads=3"], "model.d_model = 9: sinusoidal positions need an even width"),
        (["model.pooling=last"], "model.pooling = last is not used by model.task = translate: leave it out"),
        (["data.window=9"], "data.window = 9 is not used by model.task = translate"),
        (["model.task=classify", "decode.beam_size=9"], "decode.beam_size = 9 is not used by model.task = classify"),
        (["model.task=classify", "model.n_decoder_layers=2"], "model.n_decoder_layers = 2 is not used by model.task"),
        (["model.task=classify", "train.best_metric=bleu"], "train.best_metric = bleu is not measured by model.task ="),
        (["model.task=forecast", "data.vocab_size=999"], "data.vocab_size = 999 is not used by model.task"),
        (["model.task=forecast", "data.window=12"], "data.season = 24 is more than data.window = 12"),
        (["model.task=forecast", "data.horizon=0"], "data.horizon = 0: must be greater than 0"),
        (["model.task=forecast", "data.valid_share=1"], "data.valid_share = 1.0: must be at least 0 and less than 1"),
    ],
    ids=str,
)
def test_invalid_values_name_their_key(settings: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        check(apply_settings(RunConfig(), settings))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["model.n_heads=7", "model.d_k=64", "model.d_v=64"],
        ["model.d_model=9", "model.n_heads=3", "model.positions=learned"],
        ["model.dropout=0"],
        ["model.architecture=recurrent", "model.d_model=9"],
        ["train.seed=0"],
    ],
    ids=str,
)
def test_valid_values_pass(settings: list[str]) -> None:
    config = apply_settings(RunConfig(), settings)
    assert check(config) is config


# --- saved and read back


def test_round_trip_through_json_keeps_every_field() -> None:
    """With non-default values of every field of every architecture and task."""
    for default in EVERY_CONFIG:
        config = default
        for part in fields(RunConfig):
            table = getattr(default, part.name)
            names = [field.name for field in fields(table) if field.name not in ("architecture", "task")]
            changes = {name: another_value(f"{part.name}.{name}", getattr(table, name)) for name in names}
            config = replace(config, **{part.name: replace(table, **changes)})
        there = flatten(config)
        same = [key for key, value in flatten(default).items() if there[key] == value]
        assert same == ["model.architecture", "model.task"]
        assert from_dict(json.loads(json.dumps(config.as_dict())), "config.json") == config


def test_tables_on_top_of_a_base() -> None:
    tiny = load_recipe("tiny")
    changed = from_dict({"model": {"d_ff": 99}}, "here", tiny)
    assert flatten(changed) == flatten(tiny) | {"model.d_ff": 99}
    assert tiny == load_recipe("tiny")


def test_a_string_is_not_a_number() -> None:
    """Values of other libraries' files have no types."""
    with pytest.raises(UserError, match="beam_size = '4': must be of type int"):
        SETTINGS["decode.beam_size"].check("beam_size", "4")
