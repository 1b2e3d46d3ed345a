"""Configuration: frozen dataclasses, strict TOML, and overrides `section.key=value`.

A run has four sections. [model] depends on the architecture (`config.model`), [data] on the task (`config.data`);
[train] and [decode] are the same for all. The resolved configuration is saved with every model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from headwise.config.model import MODELS, ModelConfig, TransformerConfig
from headwise.config.setting import (
    A_CHARACTER,
    ANY,
    POSITIVE,
    SEED,
    SHARE,
    Setting,
    check_values,
    choice,
    converted,
    setting,
)
from headwise.config.tasks import TASKS, tasks_with
from headwise.config.training import METRICS, TrainConfig
from headwise.errors import UserError, unknown

RECIPES = Path(__file__).parents[1] / "recipes"
WITH_DECODER = tasks_with("decoder")  # denoisers, too, for translators that start from them
EARLY_STOPPING = ("exact", "no", "yes", "never")  # as in search.h; the last three as in generation_config.json
INTEGERS = ("int8", "int4")  # precisions of weights in which only the compiled library computes


@dataclass(frozen=True)
class SearchSettings:
    """Settings of search and sampling (section 6.1 of the paper)."""

    beam_size: int = setting(4, "hypotheses kept in beam search; 1 is greedy search", POSITIVE)
    length_penalty: float = setting(0.6, "higher favours longer output: alpha of arXiv:1609.08144, eq. 14", ANY)
    early_stopping: str = choice(
        EARLY_STOPPING,
        "when a beam search ends; all but exact work as in transformers, by log P / length^alpha",
    )
    max_length_factor: float = setting(2.0, "longest output = this * source tokens + max_length_extra")
    max_length_extra: int = setting(50, "tokens, see max_length_factor; section 6.1 of the paper")
    min_length_factor: float = setting(0.0, "shortest output = this * source tokens + min_length_extra")
    min_length_extra: int = setting(0, "tokens, see min_length_factor")
    no_repeat_ngram: int = setting(0, "allow no n-gram of this size twice in an output; 0 is off")
    repetition_penalty: float = setting(1.0, "higher makes tokens that occurred less probable; 1 is off", POSITIVE)
    n_best: int = setting(1, "outputs per input, at most beam_size unless sampling", POSITIVE)
    sample: bool = setting(False, "sample tokens at random instead of searching")
    temperature: float = setting(1.0, "sampling temperature; lower is less random", POSITIVE)
    top_k: int = setting(0, "sample from the k most probable tokens; 0 is all")
    top_p: float = setting(1.0, "sample from the most probable tokens that together have this probability", SHARE)
    seed: int = setting(1, "random seed for sampling", SEED)
    stop: tuple[str, ...] = setting((), "end an output before this string; may be repeated")
    batch_size: int = setting(0, "texts per batch; 0 = as many as batch_tokens allows")
    batch_tokens: int = setting(4096, "source tokens times hypotheses per batch", POSITIVE)
    max_source_length: int = setting(256, "split texts that have more tokens than this; 0 = no limit", A_CHARACTER)
    shortlist: bool = setting(False, "allow only tokens of the shortlist made by `headwise shortlist`; faster on a CPU")
    draft_length: int = setting(6, "tokens drafted per step of speculative decoding", POSITIVE)
    compute: str = choice(
        ("auto", "float32", "int8", "bfloat16", "float16", "int4"),
        "weight precision; auto: float32 on a CPU, float16 or bfloat16 on CUDA; int8 and int4 need a CPU",
    )

    def changed(self, given: Mapping[str, Any], computes: Sequence[str] = ()) -> "SearchSettings":
        """The settings of one call; `UserError` for unknown or invalid ones.

        The beam size is at least `n_best`, unless `given` has a beam size. `computes` are the supported precisions.

        >>> SearchSettings().changed({"n_best": 9}).beam_size
        9
        >>> SearchSettings().changed({"max_new_tokens": 5}).max_length_extra
        5
        """
        values = _absolute(given)
        n_best = values.get("n_best")
        if isinstance(n_best, int) and n_best > self.beam_size:
            values = {"beam_size": n_best, **values}
        types = get_type_hints(SearchSettings)
        for name in values:
            if name not in types:
                raise unknown("setting", name, [*types, *ABSOLUTE])
        settings = replace(self, **{name: _coerce(value, types[name], name) for name, value in values.items()})
        settings.check("")
        if computes and settings.compute not in ("auto", *computes):
            raise unknown("this model's compute", settings.compute, computes)
        return settings

    def check(self, section: str = "decode") -> None:
        """Raise a `UserError` for invalid settings."""
        check_values(section, self)
        name = f"{section}.".lstrip(".")
        if not self.sample and self.n_best > self.beam_size:
            raise UserError(
                f"{name}n_best = {self.n_best} is more than {name}beam_size = {self.beam_size}: "
                "request fewer hypotheses or use a larger beam"
            )
        if self.early_stopping == "exact" and self.length_penalty < 0:
            raise UserError(
                f"{name}length_penalty = {self.length_penalty}: must be at least 0 for early_stopping = exact"
            )
        if not self.max_length_factor and not self.min_length_factor and self.min_length_extra > self.max_length_extra:
            raise UserError(
                f"min_new_tokens = {self.min_length_extra} is more than max_new_tokens = {self.max_length_extra}"
            )
        if any(not text for text in self.stop):
            raise UserError("stop: an empty string would end every output at once")


# Lengths independent of the source: `max_new_tokens=5` means max_length_factor=0 and max_length_extra=5.
ABSOLUTE = {
    "max_new_tokens": Setting(128, "longest output in tokens", POSITIVE),
    "min_new_tokens": Setting(0, "shortest output in tokens"),
}


def _absolute(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a call, converted to the names and types of `SearchSettings`."""
    values = {name: value for name, value in given.items() if name not in ABSOLUTE}
    for name in given.keys() & ABSOLUTE.keys():
        ABSOLUTE[name].check(name, given[name])
        values |= {f"{name[:3]}_length_factor": 0.0, f"{name[:3]}_length_extra": given[name]}
    if isinstance(values.get("early_stopping"), bool):
        values["early_stopping"] = "yes" if values["early_stopping"] else "no"
    if isinstance(values.get("stop"), str):
        values["stop"] = (values["stop"],)
    return values


@dataclass(frozen=True)
class RunConfig:
    """The complete configuration of a training run."""

    model: Any = field(default_factory=TransformerConfig)  # a `ModelConfig`
    data: Any = None  # a `DataConfig`; None = the defaults of the task
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: SearchSettings = field(default_factory=SearchSettings)

    def __post_init__(self) -> None:
        if self.data is None:
            object.__setattr__(self, "data", TASKS[self.model.task].data())

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)


def _sections() -> dict[str, dict[str, type]]:
    """The classes of all sections: [model] by architecture, [data] by task."""
    return {
        "model": dict(MODELS),
        "data": {name: task.data for name, task in TASKS.items()},
        "train": {"": TrainConfig},
        "decode": {"": SearchSettings},
    }


SELECTED_BY = {"model": "architecture", "data": "task"}  # the key of [model] that selects the class of a section
APPLIED_FIRST = ("model.architecture", "model.task")


def _declared() -> Iterator[tuple[str, Setting, Any]]:
    """Every setting with its key and type, in the order of declaration; the first declaration of a key counts."""
    for section, choices in _sections().items():
        hints = {name: get_type_hints(table) for name, table in choices.items()}
        for key in dict.fromkeys(own.name for table in choices.values() for own in fields(table)):
            owners = [name for name, table in choices.items() if key in hints[name]]
            declared: Setting = choices[owners[0]].__dataclass_fields__[key].metadata["setting"]
            only_for = dict(declared.only_for)
            if len(owners) < len(choices):
                only_for[SELECTED_BY[section]] = tuple(owners)
            if section == "decode":
                only_for["task"] = WITH_DECODER
            if declared.task:
                only_for["task"] = tasks_with(declared.task)
            yield f"{section}.{key}", replace(declared, only_for=only_for), hints[owners[0]][key]


SETTINGS = {key: declared for key, declared, _ in _declared()}  # by "section.key", in the order of declaration
TYPES = {key: kind for key, _, kind in _declared()}


def check(config: RunConfig) -> RunConfig:
    """`config` if it is valid; `UserError` for the first invalid key."""
    for part in fields(config):
        check_values(part.name, getattr(config, part.name))
    config.decode.check()
    _check_unused(config)
    _check_task(config)
    _check_alignment(config)
    config.model.check()
    config.data.check()
    assert type(config.model) is MODELS[config.model.architecture]
    assert type(config.data) is TASKS[config.model.task].data
    return config


def _check_unused(config: RunConfig) -> None:
    """Refuse settings that the architecture or task does not use."""
    for key, value in flatten(config).items():
        if value != SETTINGS[key].default and (other := SETTINGS[key].unused_by(config.model)):
            raise _unused_error(key, value, config.model, other)


def _unused_error(key: str, value: Any, model: ModelConfig, other: str) -> UserError:
    return UserError(
        f"{key} = {value} is not used by model.{other} = {getattr(model, other)}: "
        f"leave it out or start from a recipe of that {other}"
    )


def _check_task(config: RunConfig) -> None:
    task = config.model.task
    if config.train.best_metric in METRICS.difference(TASKS[task].metrics):
        raise UserError(f"train.best_metric = {config.train.best_metric} is not measured by model.task = {task}")
    if task in (*tasks_with("running"), *tasks_with("pictures")) and config.model.architecture != "transformer":
        raise UserError(f"model.architecture = {config.model.architecture}: model.task = {task} is for a transformer")
    if getattr(config.data, "subword", "") == "characters" and task not in tasks_with("running"):
        able = " or ".join(tasks_with("running"))
        raise UserError(f"data.subword = characters is for model.task = {able}, not for {task}: use bpe or unigram")


def _check_alignment(config: RunConfig) -> None:
    """Refuse settings that do not work with a trained alignment head."""
    values = flatten(config)
    required = {"data.bpe_dropout": 0.0, "data.both_directions": 0.0, "train.compile": False, "train.recompute": False}
    required |= {"model.biases": True, "model.n_kv_heads": 0, "model.normalise_heads": False}
    layer, depth = config.train.alignment_layer, config.model.n_decoder_layers
    if not -depth <= layer < depth and layer != TrainConfig.alignment_layer:
        raise UserError(f"train.alignment_layer = {layer}: the decoder has layers 0 to {depth - 1}, -1 is the last")
    for key in required if config.train.alignment_weight else ():
        if values[key] != required[key]:
            raise UserError(f"train.alignment_weight does not work with {key} = {values[key]}: leave out one")


def flatten(config: RunConfig) -> dict[str, Any]:
    """`{"section.key": value}` in the order of declaration."""
    return {f"{part}.{key}": value for part, table in config.as_dict().items() for key, value in table.items()}


def meaningful(config: RunConfig) -> dict[str, dict[str, Any]]:
    """`config.as_dict()` without settings that its architecture, its task or `train.minutes` leaves unused.

    >>> sorted(meaningful(apply_settings(RunConfig(), ["model.task=forecast"])))
    ['data', 'model', 'train']
    >>> "max_steps" in meaningful(apply_settings(RunConfig(), ["train.minutes=5"]))["train"]
    False
    """
    used: dict[str, dict[str, Any]] = {}
    for key, value in flatten(config).items():
        section, name = key.split(".")
        if not SETTINGS[key].unused_by(config.model):
            used.setdefault(section, {})[name] = value
    if config.train.minutes:
        del used["train"]["max_steps"]  # which follows from the speed of the machine
    return used


def from_dict(tables: Mapping[str, Any], origin: str, base: RunConfig | None = None) -> RunConfig:
    """The configuration from nested tables on top of `base`; `origin` is named in errors.

    Architecture and task in [model] determine the classes of the sections; settings that the new classes have are kept.
    """
    config = base or RunConfig()
    sections = [f.name for f in fields(RunConfig)]
    for name, table in sorted(tables.items(), key=lambda item: item[0] != "model"):
        if name not in sections:
            raise UserError(f"{origin}: {unknown('section', name, sections)}")
        if not isinstance(table, Mapping):
            raise UserError(f"{origin}: '{name}' must be a table, write [{name}] and its keys below it")
        values = _values(name, table, origin)
        if name == "model":
            config = _with_model(config, values)
            config = _with_task_data(config)
        else:
            config = replace(config, **{name: replace(getattr(config, name), **_existing(config, name, values))})
    return config


def _with_model(config: RunConfig, values: dict[str, Any]) -> RunConfig:
    """The configuration with [model] for the architecture in `values`, and these values."""
    model, architecture = config.model, values.get("architecture", config.model.architecture)
    lost = _lost("model", model, section := MODELS.get(architecture, type(model)))
    config = replace(config, model=replace(converted(model, section), architecture=architecture))
    for key, value in lost.items():
        raise _unused_error(key, value, config.model, "architecture")
    return replace(config, model=replace(config.model, **_existing(config, "model", values)))


def _with_task_data(config: RunConfig) -> RunConfig:
    """The configuration with the [data] section of its task."""
    section = TASKS[config.model.task].data if config.model.task in TASKS else type(config.data)
    for key, value in _lost("data", config.data, section).items():
        raise _unused_error(key, value, config.model, "task")
    return replace(config, data=converted(config.data, section))


def _lost(name: str, table: Any, section: type) -> dict[str, Any]:
    """Settings that another section does not have, by "section.key", if they are not defaults."""
    kept = {own.name for own in fields(section)}
    values = {f"{name}.{own.name}": getattr(table, own.name) for own in fields(table) if own.name not in kept}
    return {key: value for key, value in values.items() if value != SETTINGS[key].default}


def _existing(config: RunConfig, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a section has; other settings must have their defaults, as in older files."""
    names = {own.name for own in fields(getattr(config, name))}
    for key, value in values.items():
        if key not in names and value != (known := SETTINGS[f"{name}.{key}"]).default:
            known.check(f"{name}.{key}", value)
            raise _unused_error(f"{name}.{key}", value, config.model, SELECTED_BY[name])
    return {key: value for key, value in values.items() if key in names}


def _values(section: str, table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values of a table, converted to the types of the settings."""
    known = [key.split(".")[1] for key in TYPES if key.startswith(f"{section}.")]
    for key in table:
        if key not in known:
            raise UserError(f"{origin}: {unknown(f'key in [{section}]', key, known)}")
    return {key: _coerce(v, TYPES[f"{section}.{key}"], f"{origin}: {section}.{key}") for key, v in table.items()}


def load_recipe(name: str, base: RunConfig | None = None) -> RunConfig:
    """The recipe with this name, or in a TOML file, on top of `base`."""
    return from_dict(recipe_tables(name), name, base)


def recipe_tables(name: str) -> dict[str, Any]:
    """The tables of a recipe, by its name or the path of a TOML file."""
    import tomllib  # not needed for translation

    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UserError(f"{name}: no such recipe file; check the path or use one of: {', '.join(recipe_names())}")
        raise unknown("recipe", name, recipe_names())
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`config` with `section.key=value` settings applied in order.

    >>> apply_settings(RunConfig(), ["train.max_steps=10", "model.norm_position=pre"]).model.norm_position
    'pre'
    """
    valid = [key for key, known in SETTINGS.items() if not known.derived]
    for given in sorted(settings, key=lambda given: given.partition("=")[0].strip() not in APPLIED_FIRST):
        key, equals, text = given.partition("=")
        key = key.strip()
        if not equals:
            raise UserError(f"--set {given}: write it as section.key=value, for example train.max_steps=1000")
        if key not in valid:
            raise UserError(f"--set: {_nearest_key(key, valid)}")
        section, name = key.split(".")
        config = from_dict({section: {name: _parse(text.strip())}}, f"--set {given}", config)
    return config


def _nearest_key(key: str, valid: Sequence[str]) -> UserError:
    same_name = [v for v in valid if v.split(".")[1] == key.split(".")[-1]]
    if same_name:
        return UserError(f"unknown key '{key}'; did you mean '{same_name[0]}'?")
    error = unknown("key", key, valid)
    return UserError(str(error).split(" (valid:")[0])


def _parse(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _coerce(value: Any, wanted: Any, where: str) -> Any:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted == tuple[float, float]:
        if isinstance(value, list | tuple) and len(value) == 2:
            return tuple(_coerce(v, float, where) for v in value)
        raise UserError(f"{where} = {value!r}: must be two numbers, for example [0.9, 0.98]")
    if wanted == tuple[str, ...]:
        if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            return tuple(value)
        raise UserError(f"{where} = {value!r}: must be a list of strings")
    if wanted in (tuple[int, ...], tuple[float, ...]):
        if isinstance(value, list | tuple):
            return tuple(_coerce(v, get_args(wanted)[0], where) for v in value)
        raise UserError(f"{where} = {value!r}: must be a list of numbers, for example [4, 4, 2, 3]")
    if type(value) is not wanted:
        raise UserError(f"{where} = {value!r}: must be of type {wanted.__name__}")
    return value
