"""Configuration: frozen dataclasses, strict TOML, and overrides of the form `section.key=value`.

A run is described by four flat tables, `[model] [data] [train] [decode]`. The resolved configuration is saved with
every run, so a model directory says how it was made. Nothing here knows modules, files of text or devices.

"The paper" is Vaswani et al. 2017, arXiv:1706.03762; defaults are its base model.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from sightline.errors import UserError, unknown

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the network. Symbols of the paper's Table 3 in brackets."""

    architecture: str = "transformer"  # "transformer", "recurrent" or "conv" (ConvS2S)
    task: str = "translate"  # "translate", "denoise" (a first stage), "classify" (text to label), "forecast" (series)
    vocab_size: int = 0  # pieces; 0 until a tokenizer is known
    pad_id: int = 0  # id of the padding piece
    n_inputs: int = 0  # forecast: columns of the series; 0 until the data are known
    n_outputs: int = 0  # classify: classes; forecast: steps ahead; 0 until the data are known
    pooling: str = "mean"  # classify, forecast: the encoder's "mean", "first" or "last" state stands for the whole
    d_model: int = 512  # width of the residual stream, of embeddings and of recurrent states [d_model]
    d_ff: int = 2048  # inner width of the feed-forward network [d_ff]
    n_heads: int = 8  # attention heads [h]
    d_k: int = 0  # width of a query or key per head [d_k]; 0 = d_model / n_heads
    d_v: int = 0  # width of a value per head [d_v]; 0 = d_model / n_heads
    encoder_heads: tuple[int, ...] = ()  # heads left in each layer by `sightline prune`; () = n_heads in all
    decoder_heads: tuple[int, ...] = ()  # the same of the decoder's attention to itself
    cross_heads: tuple[int, ...] = ()  # the same of the decoder's attention to the source
    n_encoder_layers: int = 6  # [N]
    n_decoder_layers: int = 6  # [N]
    dropout: float = 0.1  # on every sub-layer output and on embeddings [P_drop], 0 <= p < 1
    norm_position: str = "post"  # "post" (the paper): norm(x + f(x)); "pre": x + f(norm(x)) and a final norm
    positions: str = "sinusoidal"  # or "learned" (Table 3, row E; ConvS2S has these only)
    max_len: int = 1024  # longest sequence learned positions can address, pieces
    tied_embeddings: str = "all"  # "all" (source, target, output: the paper), "target" (target, output) or "none"
    cell: str = "gru"  # recurrent: "rnn" (tanh), "lstm" or "gru"
    attention: str = "additive"  # recurrent: "additive" (Bahdanau), "dot" or "general" (Luong) or "none" (Sutskever)
    bidirectional: bool = True  # recurrent: the encoder reads in both directions
    input_feeding: bool = False  # recurrent with "dot" or "general": the last attention joins the next input
    reverse_source: bool = False  # recurrent: the encoder reads back to front
    kernel_width: int = 3  # conv: places a layer sees, odd


@dataclass(frozen=True)
class DataConfig:
    """From files to token ids."""

    tokenizer: str = ""  # path of an existing tokenizer.json; "" = learn one on the training text
    subword: str = "bpe"  # "bpe" or "unigram"
    vocab_size: int = 8000  # pieces to learn, both languages together
    normalization: str = "nfc"  # Unicode normalisation: "none", "nfc" or "nfkc"
    lowercase: bool = False  # fold case before anything else
    max_length: int = 256  # longer training pairs are dropped, pieces a side with the end mark
    max_length_ratio: float = 9.0  # more uneven training pairs are dropped, longer side / shorter side in pieces
    bpe_dropout: float = 0.0  # probability that a merge is skipped in training (arXiv:1910.13267)
    target: str = ""  # forecast: the column to forecast; "" = the last
    window: int = 96  # forecast: rows the network reads
    horizon: int = 24  # forecast: rows ahead
    season: int = 24  # forecast: rows after which the naive baseline expects the same again, at most `window`
    valid_share: float = 0.2  # forecast: share of the rows, the latest, that validate where no file is given for it


@dataclass(frozen=True)
class TrainConfig:
    """The training procedure; section 5 of the paper."""

    seed: int = 1  # of everything random: parameters, dropout, batches
    max_steps: int = 100_000  # optimiser updates (section 5.2)
    tokens_per_batch: int = 25_000  # pieces: rows x longest side (section 5.1), or target pieces if drawn at random
    batching: str = "auto"  # "random", "bucketed" (by length) or "auto": random where padding costs nothing (CPU)
    accumulate: int = 1  # batches per update
    learning_rate: float = 0.0  # peak; 0 = the paper's, (d_model * warmup_steps) ** -0.5 (section 5.3)
    warmup_steps: int = 4000  # updates of linear rise
    schedule: str = "inverse_sqrt"  # after warm-up: "inverse_sqrt" (the paper), "cosine" or "linear" to 0, "constant"
    optimizer: str = "adam"  # or "muon": orthogonalised momentum on the hidden matrices, Adam on the rest
    betas: tuple[float, float] = (0.9, 0.98)  # Adam
    eps: float = 1e-9  # Adam
    weight_decay: float = 0.0  # decoupled (AdamW); 0 = Adam as in the paper
    clip_norm: float = 0.0  # largest gradient norm; 0 = no clipping
    label_smoothing: float = 0.1  # epsilon_ls (section 5.4)
    r_drop: float = 0.0  # weight alpha of R-Drop's divergence (arXiv:2106.14448); 0 = off
    alignment_weight: float = 0.0  # of links given for training (arXiv:1909.02074) against the translation; 0 = off
    alignment_layer: int = 0  # decoder layer whose first head learns these links, from 1; 0 = the last but one
    ema: float = 0.0  # decay of an exponential moving average of the parameters; 0 = off
    average: int = 5  # checkpoints averaged into the final model (section 6.1); 1 = the last alone
    precision: str = "auto"  # "auto" (bf16 autocast on CUDA, float32 elsewhere), "float32" or "bf16"
    compile: bool = False  # torch.compile the model
    recompute: bool = False  # keep no activations inside layers, compute them again: less memory, a third more time
    threads: int = 0  # CPU threads; 0 = all. Part of the result on CPU: sums are split by it
    log_every: int = 100  # updates
    validate_every: int = 1000  # updates
    validate_bleu: int = 1000  # validation sentences decoded for BLEU; 0 = loss only
    checkpoint_every: int = 1000  # updates
    keep_last: int = 5  # checkpoints kept on disk beside the best; at least `average`
    best_metric: str = "loss"  # what "best" and patience look at: "loss", "bleu"; classify: "accuracy", "macro_f1"
    patience: int = 0  # validations without a better `best_metric` before the run ends early; 0 = never


@dataclass(frozen=True)
class DecodeConfig:
    """Search; section 6.1 of the paper."""

    beam_size: int = 4  # hypotheses kept; 1 = greedy
    length_penalty: float = 0.6  # alpha of GNMT's length penalty (arXiv:1609.08144, eq. 14)
    max_length_factor: float = 2.0  # longest output = factor * source pieces + extra
    max_length_extra: int = 50  # pieces (section 6.1)
    min_length_factor: float = 0.0  # shortest output = factor * source pieces
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice in an output; 0 = off
    n_best: int = 1  # hypotheses returned, at most beam_size when searching
    sample: bool = False  # draw from the distribution instead of searching
    temperature: float = 1.0  # of the distribution drawn from, > 0
    top_k: int = 0  # draw from the k likeliest pieces only; 0 = all
    top_p: float = 1.0  # draw from the smallest set of pieces with this mass, 0 < p <= 1
    seed: int = 1  # of sampling
    batch_tokens: int = 4096  # source pieces decoded at once
    max_source_length: int = 256  # longer inputs are translated in parts, pieces
    shortlist: bool = False  # write only what the model's lexical shortlist offers for the source; faster
    draft_length: int = 6  # pieces guessed ahead where a draft is given
    compute: str = "float32"  # numbers to decode with: "float32", "int8" (CPU only), "bfloat16" or "float16" (for CUDA)


@dataclass(frozen=True)
class RunConfig:
    """Everything one training run depends on but its files."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)


def longest_sequence(config: ModelConfig) -> int | None:
    """The longest sequence the network can take, pieces; None where there is no limit."""
    return config.max_len if config.positions == "learned" else None


DERIVED = ("model.vocab_size", "model.pad_id", "model.n_inputs", "model.n_outputs")  # they follow from the data
CHOICES: dict[str, tuple[str, ...]] = {
    "model.architecture": ("transformer", "recurrent", "conv"),
    "model.task": ("translate", "denoise", "classify", "forecast"),
    "model.pooling": ("mean", "first", "last"),
    "model.norm_position": ("post", "pre"),
    "model.positions": ("sinusoidal", "learned"),
    "model.tied_embeddings": ("all", "target", "none"),
    "model.cell": ("rnn", "lstm", "gru"),
    "model.attention": ("none", "additive", "dot", "general"),
    "data.subword": ("bpe", "unigram"),
    "data.normalization": ("none", "nfc", "nfkc"),
    "train.schedule": ("inverse_sqrt", "cosine", "linear", "constant"),
    "train.precision": ("auto", "float32", "bf16"),
    "train.optimizer": ("adam", "muon"),
    "train.batching": ("auto", "random", "bucketed"),
    "train.best_metric": ("loss", "bleu", "accuracy", "macro_f1"),
    "decode.compute": ("float32", "int8", "bfloat16", "float16"),
}
_POSITIVE = {
    "model": ("d_model", "d_ff", "n_heads", "n_encoder_layers", "n_decoder_layers", "max_len", "kernel_width"),
    "data": ("vocab_size", "max_length", "window", "horizon", "season"),
    "train": (
        "max_steps",
        "tokens_per_batch",
        "accumulate",
        "warmup_steps",
        "eps",
        "average",
        "log_every",
        "validate_every",
        "checkpoint_every",
        "keep_last",
    ),
    "decode": ("beam_size", "n_best", "batch_tokens", "max_source_length", "draft_length", "temperature", "top_p"),
}
_MEANT_FOR = {  # settings of [model] that mean something to these architectures only
    ("d_ff", "n_heads", "d_k", "d_v", "norm_position"): ("transformer",),
    ("encoder_heads", "decoder_heads", "cross_heads"): ("transformer",),
    ("positions", "max_len"): ("transformer", "conv"),
    ("cell", "attention", "bidirectional", "input_feeding", "reverse_source"): ("recurrent",),
    ("kernel_width",): ("conv",),
}
WITH_DECODER = ("translate", "denoise")  # tasks; what a denoiser itself leaves unread it keeps for the next stage
_TASKS = {  # settings that mean something to these tasks only; "decode." stands for all of that section
    ("model.pooling", "model.n_outputs"): ("classify", "forecast"),
    ("model.n_inputs",): ("forecast",),
    ("model.n_decoder_layers", "model.attention", "model.input_feeding", "model.reverse_source"): WITH_DECODER,
    ("model.decoder_heads", "model.cross_heads"): WITH_DECODER,
    ("model.tied_embeddings", "data.max_length_ratio", "data.bpe_dropout"): WITH_DECODER,
    ("train.r_drop", "train.batching", "train.validate_bleu", "decode."): WITH_DECODER,
    ("train.alignment_weight", "train.alignment_layer"): ("translate",),
    ("data.tokenizer", "data.subword", "data.vocab_size", "data.normalization"): (*WITH_DECODER, "classify"),
    ("data.lowercase", "data.max_length", "train.label_smoothing"): (*WITH_DECODER, "classify"),
    ("data.target", "data.window", "data.horizon", "data.season", "data.valid_share"): ("forecast",),
}
_METRICS = {"bleu": WITH_DECODER, "accuracy": ("classify",), "macro_f1": ("classify",)}
_PROBABILITIES = ("model.dropout", "data.bpe_dropout", "data.valid_share", "train.label_smoothing", "train.ema")


def check(config: RunConfig) -> RunConfig:
    """`config` itself when every value makes sense; `UserError` naming the first key that does not."""
    values = flatten(config)
    for key, valid in CHOICES.items():
        if values[key] not in valid:
            raise unknown(f"value for {key}", str(values[key]), valid)
    for key, value in values.items():
        section, name = key.split(".")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key} = {value}: must be a finite number")
        if name in _POSITIVE[section] and value <= 0:
            raise UserError(f"{key} = {value}: must be greater than 0")
        if key in _PROBABILITIES and not 0 <= value < 1:
            raise UserError(f"{key} = {value}: must be at least 0 and less than 1")
        if isinstance(value, int | float) and value < 0 and key != "train.seed":
            raise UserError(f"{key} = {value}: must not be negative")
    if not all(0 <= beta < 1 for beta in config.train.betas):
        raise UserError(f"train.betas = {list(config.train.betas)}: both must be at least 0 and less than 1")
    if config.decode.top_p > 1:
        raise UserError(f"decode.top_p = {config.decode.top_p}: must be at most 1")
    _check_task(config)
    _check_meaning(config.model)
    _check_alignment(config)
    _CHECKS[config.model.architecture](config)
    return config


def _check_meaning(model: ModelConfig) -> None:
    """Refuse what an architecture would silently ignore."""
    default = ModelConfig()
    for names, architectures in _MEANT_FOR.items():
        for name in names if model.architecture not in architectures else ():
            if getattr(model, name) != getattr(default, name):
                raise UserError(
                    f"model.{name} = {getattr(model, name)} means nothing to model.architecture = "
                    f"{model.architecture}: leave it out or start from a recipe of that architecture"
                )


def _check_task(config: RunConfig) -> None:
    """Refuse what a task would silently ignore."""
    task, values, default = config.model.task, flatten(config), flatten(RunConfig())
    for names, tasks in _TASKS.items():
        for key in values if task not in tasks else ():
            if key.startswith(names) and values[key] != default[key]:
                raise UserError(
                    f"{key} = {values[key]} means nothing to model.task = {task}: "
                    "leave it out or start from a recipe of that task"
                )
    if task not in _METRICS.get(config.train.best_metric, (task,)):
        raise UserError(f"train.best_metric = {config.train.best_metric} is not measured by model.task = {task}")
    if task == "forecast" and config.data.season > config.data.window:
        raise UserError(
            f"data.season = {config.data.season} is more than data.window = {config.data.window}: "
            "the naive baseline would look at what the network is not shown"
        )


def _check_alignment(config: RunConfig) -> None:
    """Refuse what does not go with an attention head that learns links."""
    others = {
        "model.architecture": config.model.architecture != "transformer",
        "data.bpe_dropout": bool(config.data.bpe_dropout),
        "train.compile": config.train.compile,
        "train.recompute": config.train.recompute,
    }
    for key in others if config.train.alignment_weight else ():
        if others[key]:
            raise UserError(f"train.alignment_weight does not go with {key} = {flatten(config)[key]}: leave out one")


def _check_transformer(config: RunConfig) -> None:
    model = config.model
    if model.d_model % model.n_heads and not (model.d_k and model.d_v):
        raise UserError(
            f"model.d_model = {model.d_model} is not a multiple of model.n_heads = {model.n_heads}: "
            "change one of them or set model.d_k and model.d_v"
        )
    if model.positions == "sinusoidal" and model.d_model % 2:
        raise UserError(f"model.d_model = {model.d_model}: sinusoidal positions need an even width")
    if config.train.alignment_layer > model.n_decoder_layers:
        raise UserError(
            f"train.alignment_layer = {config.train.alignment_layer}: the decoder has {model.n_decoder_layers} layers"
        )
    _check_heads("encoder_heads", model.encoder_heads, model.n_encoder_layers, model.n_heads)
    _check_heads("decoder_heads", model.decoder_heads, model.n_decoder_layers, model.n_heads)
    _check_heads("cross_heads", model.cross_heads, model.n_decoder_layers, model.n_heads)


def _check_heads(name: str, counts: tuple[int, ...], n_layers: int, n_heads: int) -> None:
    if counts and not (len(counts) == n_layers and all(1 <= count <= n_heads for count in counts)):
        raise UserError(
            f"model.{name} = {list(counts)}: must be a number from 1 to model.n_heads = {n_heads} for each of "
            f"{n_layers} layers"
        )


def _check_recurrent(config: RunConfig) -> None:
    model = config.model
    if model.attention == "dot" and model.bidirectional:
        raise UserError(
            "model.attention = dot compares states of one width, and two directions are twice as wide: "
            "set model.bidirectional=false or model.attention=general"
        )
    if model.input_feeding and model.attention not in ("dot", "general"):
        raise UserError(f"model.input_feeding is for model.attention = dot or general, not {model.attention}")
    if config.train.recompute:
        raise UserError("train.recompute is for networks of layers, not for model.architecture = recurrent")


def _check_conv(config: RunConfig) -> None:
    model = config.model
    if model.kernel_width % 2 == 0:
        raise UserError(f"model.kernel_width = {model.kernel_width}: must be odd, to see as far left as right")
    if model.positions != "learned":
        raise UserError("model.architecture = conv learns its positions: set model.positions=learned and model.max_len")


_CHECKS = {"transformer": _check_transformer, "recurrent": _check_recurrent, "conv": _check_conv}


def flatten(config: RunConfig) -> dict[str, Any]:
    """`{"section.key": value}` in the order of declaration."""
    return {f"{part}.{key}": value for part, table in config.as_dict().items() for key, value in table.items()}


def meaningful(config: RunConfig) -> dict[str, dict[str, Any]]:
    """`config.as_dict()` without the settings that mean nothing to its architecture or its task.

    >>> sorted(meaningful(apply_settings(RunConfig(), ["model.task=forecast"])))
    ['data', 'model', 'train']
    """
    model, idle = config.model, []
    for names, architectures in _MEANT_FOR.items():
        idle += [f"model.{name}" for name in names if model.architecture not in architectures]
    for names, tasks in _TASKS.items():
        idle += names if model.task not in tasks else ()
    said = {
        section: {key: value for key, value in table.items() if not f"{section}.{key}".startswith(tuple(idle))}
        for section, table in config.as_dict().items()
    }
    return {section: table for section, table in said.items() if table}


def from_dict(tables: Mapping[str, Any], origin: str, base: RunConfig | None = None) -> RunConfig:
    """The configuration of nested tables on top of `base`; `origin` is named in errors."""
    config = base or RunConfig()
    sections = [f.name for f in fields(RunConfig)]
    for name, table in tables.items():
        if name not in sections:
            raise UserError(f"{origin}: {unknown('section', name, sections)}")
        if not isinstance(table, Mapping):
            raise UserError(f"{origin}: '{name}' must be a table, write [{name}] and its keys below it")
        config = replace(config, **{name: _replace(getattr(config, name), name, table, origin)})
    return config


def load_recipe(name: str, base: RunConfig | None = None) -> RunConfig:
    """The recipe of that name, or the one in the TOML file at that path; what it does not say is as in `base`."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UserError(f"{name}: no such recipe file; check the path or use one of: {', '.join(recipe_names())}")
        raise unknown("recipe", name, recipe_names())
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None
    return from_dict(tables, name, base)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def apply_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """`config` with `section.key=value` settings applied in order.

    >>> apply_settings(RunConfig(), ["train.max_steps=10", "model.norm_position=pre"]).model.norm_position
    'pre'
    """
    valid = [key for key in flatten(config) if key not in DERIVED]
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals:
            raise UserError(f"--set {setting}: write it as section.key=value, for example train.max_steps=1000")
        if key not in valid:
            raise UserError(f"--set: {_nearest_key(key, valid)}")
        section, name = key.split(".")
        config = from_dict({section: {name: _parse(text.strip())}}, f"--set {setting}", config)
    return config


def _nearest_key(key: str, valid: Sequence[str]) -> UserError:
    same_name = [v for v in valid if v.split(".")[1] == key.split(".")[-1]]
    if same_name:
        return UserError(f"unknown key '{key}'; did you mean '{same_name[0]}'?")
    error = unknown("key", key, valid)
    return UserError(str(error).split(" (valid:")[0])


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _replace(table: Any, section: str, values: Mapping[str, Any], origin: str) -> Any:
    types = get_type_hints(type(table))
    for key in values:
        if key not in types:
            raise UserError(f"{origin}: {unknown(f'key in [{section}]', key, types)}")
    return replace(table, **{k: _coerce(v, types[k], f"{origin}: {section}.{k}") for k, v in values.items()})


def _coerce(value: Any, wanted: Any, where: str) -> Any:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted == tuple[float, float]:
        if isinstance(value, list | tuple) and len(value) == 2:
            return tuple(_coerce(v, float, where) for v in value)
        raise UserError(f"{where} = {value!r}: must be two numbers, for example [0.9, 0.98]")
    if wanted == tuple[int, ...]:
        if isinstance(value, list | tuple):
            return tuple(_coerce(v, int, where) for v in value)
        raise UserError(f"{where} = {value!r}: must be a list of whole numbers, for example [4, 4, 2, 3]")
    if type(value) is not wanted:
        raise UserError(f"{where} = {value!r}: must be of type {wanted.__name__}")
    return value
