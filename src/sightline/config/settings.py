"""Configuration: frozen dataclasses, strict TOML, and overrides of the form `section.key=value`.

A run is described by four flat tables, `[model] [data] [train] [decode]`. The resolved configuration is saved with
every run, so a model directory says how it was made. What a field means, which values it takes and where it means
anything stands beside its name, and nowhere else. Nothing here knows modules, files of text or devices.

"The paper" is Vaswani et al. 2017, arXiv:1706.03762; defaults are its base model.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from sightline.config.tasks import TASKS, tasks_with
from sightline.errors import UserError, unknown

RECIPES = Path(__file__).parents[1] / "recipes"

# Where a setting means something: keys of [model], with the values that read it. `|` asks for both.
OnlyFor = dict[str, tuple[str, ...]]
TRANSFORMER: OnlyFor = {"architecture": ("transformer",)}
RECURRENT: OnlyFor = {"architecture": ("recurrent",)}
CONV: OnlyFor = {"architecture": ("conv",)}
PARALLEL: OnlyFor = {"architecture": ("transformer", "conv")}
_METRICS = {metric for task in TASKS.values() for metric in task.metrics}  # what only some tasks have
WITH_DECODER = tasks_with("decoder")  # what a denoiser itself leaves unread it keeps for the next stage


Range = tuple[str, Callable[[float], bool]]  # in words after "must be", and as a test
ANY: Range = "a number", lambda x: True
NOT_NEGATIVE: Range = "at least 0", lambda x: x >= 0
POSITIVE: Range = "greater than 0", lambda x: x > 0
SHARE: Range = "greater than 0 and at most 1", lambda x: 0 < x <= 1
RATE: Range = "at least 0 and less than 1", lambda x: 0 <= x < 1
SEED: Range = "from 0 to 4294967295", lambda x: 0 <= x < 2**32
THREADS: Range = "from 0 to 1024", lambda x: 0 <= x <= 1024
A_CHARACTER: Range = "at least 8", lambda x: x >= 8  # any, in bytes, with its end mark and what is declared before it


@dataclass(frozen=True)
class Setting:
    """What a field of a section says of itself."""

    default: Any
    help: str  # with its unit, and what 0 stands for; the paper's symbols and sections in brackets
    range: Range = NOT_NEGATIVE  # of a number, or of each in a tuple
    choices: tuple[Any, ...] = ()
    only_for: OnlyFor = field(default_factory=dict)
    derived: bool = False  # follows from the data, so that nobody sets it

    def check(self, key: str, value: Any) -> None:
        """Raise a `UserError` for a value, of the right type, that is none of the setting's."""
        if self.choices and value not in self.choices:
            raise unknown(f"value for {key}", str(value), map(str, self.choices))
        if isinstance(value, str) and not (self.choices or isinstance(self.default, str)):
            raise UserError(f"{key} = {value!r}: must be of type {type(self.default).__name__}")
        words, holds = self.range
        many, shown = ("each ", list(value)) if isinstance(value, tuple) else ("", value)
        for number in value if many else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise UserError(f"{key} = {shown}: {many}must be a finite number")
            if isinstance(number, int | float) and not holds(number):
                raise UserError(f"{key} = {shown}: {many}must be {words}")

    def unread_by(self, model: "ModelConfig") -> str:
        """The key of [model] by whose value this setting means nothing; "" where it means something."""
        return next((key for key, values in self.only_for.items() if getattr(model, key) not in values), "")


def setting(
    default: Any, help: str, range: Range = NOT_NEGATIVE, only_for: Mapping[str, Any] = {}, task: str = "", **says: Any
) -> Any:
    """A field of a section, read by the tasks that have the word `task` (`config.tasks`); "" = by all.

    `says` are the other fields of a `Setting`.
    """
    said = Setting(default, help, range, only_for=dict(only_for) | ({"task": tasks_with(task)} if task else {}), **says)
    return field(default=default, metadata={"setting": said})


def choice(choices: tuple[Any, ...], help: str, **says: Any) -> Any:
    """A field that is one of a few words, by default the first."""
    return setting(choices[0], help, choices=choices, **says)


POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "none")


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the network. Symbols of the paper's Table 3 in brackets."""

    architecture: str = choice(("transformer", "recurrent", "conv"), "the kind of network; conv is ConvS2S")
    task: str = choice(tuple(TASKS), "denoise: a first stage; mlm: BERT; label: pictures")
    vocab_size: int = setting(0, "pieces; 0 until a tokenizer is known", derived=True)
    pad_id: int = setting(0, "id of the padding piece", derived=True)
    n_inputs: int = setting(0, "columns of the series; 0 until the data are known", derived=True, task="forecast")
    n_outputs: int = setting(0, "classes, or steps ahead; 0 until the data are known", derived=True, task="classes")
    image_size: int = setting(224, "pixels a side of a picture as it is read", POSITIVE, task="pictures")
    patch_size: int = setting(16, "pixels a side of a patch, the token of a picture", POSITIVE, task="pictures")
    pooling: str = choice(("mean", "first", "last"), "the encoder's state that stands for the whole", task="pooled")
    d_model: int = setting(512, "width of the residual stream, embeddings and recurrent states [d_model]", POSITIVE)
    d_ff: int = setting(2048, "inner width of the feed-forward network [d_ff]", POSITIVE, only_for=TRANSFORMER)
    n_heads: int = setting(8, "attention heads [h]", POSITIVE, only_for=TRANSFORMER)
    d_k: int = setting(0, "width of a query or key per head [d_k]; 0 = d_model / n_heads", only_for=TRANSFORMER)
    d_v: int = setting(0, "width of a value per head [d_v]; 0 = d_model / n_heads", only_for=TRANSFORMER)
    encoder_heads: tuple[int, ...] = setting((), "left by pruning; () = n_heads", only_for=TRANSFORMER, task="encoder")
    decoder_heads: tuple[int, ...] = setting((), "of its attention to itself", only_for=TRANSFORMER, task="decoder")
    cross_heads: tuple[int, ...] = setting((), "of its attention to the source", only_for=TRANSFORMER, task="decoder")
    n_encoder_layers: int = setting(6, "layers that read [N]", POSITIVE, task="encoder")
    n_decoder_layers: int = setting(6, "layers that write [N]", POSITIVE, task="writes")
    dropout: float = setting(0.1, "on every sub-layer output and on embeddings [P_drop]", RATE)
    norm_position: str = choice(("post", "pre"), "norm(x + f(x)), the paper's, or x + f(norm(x))", only_for=TRANSFORMER)
    norm: str = choice(("layer", "rms"), "rms: without mean and bias (arXiv:1910.07467)", only_for=TRANSFORMER)
    activation: str = choice(("relu", "gelu", "silu"), "of the feed-forward network", only_for=TRANSFORMER)
    gated: bool = setting(False, "feed-forward networks have a gate (arXiv:2002.05202)", only_for=TRANSFORMER)
    biases: bool = setting(True, "linear layers have biases", only_for=TRANSFORMER)
    n_kv_heads: int = setting(0, "heads of keys and values; 0 = n_heads (arXiv:2305.13245)", only_for=TRANSFORMER)
    normalise_heads: bool = setting(False, "a norm on every head's queries and keys", only_for=TRANSFORMER)
    positions: str = choice(POSITIONS, "learned: Table 3, row E; rotary, relative: in attention", only_for=PARALLEL)
    max_len: int = setting(1024, "longest sequence learned positions address, pieces", POSITIVE, only_for=PARALLEL)
    tied_embeddings: str = choice(("all", "target", "none"), "target: all but the source's", task="writes")
    cell: str = choice(("gru", "lstm", "rnn"), "of the layers; rnn has a tanh alone", only_for=RECURRENT)
    attention: str = choice(("additive", "dot", "general", "none"), "Bahdanau's", only_for=RECURRENT, task="decoder")
    bidirectional: bool = setting(True, "the encoder reads in both directions", only_for=RECURRENT)
    input_feeding: bool = setting(False, "the last attention joins the next input", only_for=RECURRENT, task="decoder")
    reverse_source: bool = setting(False, "the encoder reads back to front", only_for=RECURRENT, task="decoder")
    kernel_width: int = setting(3, "places a layer sees, odd", POSITIVE, only_for=CONV)


@dataclass(frozen=True)
class DataConfig:
    """From files to token ids."""

    tokenizer: str = setting("", 'path of a tokenizer.json; "" = learn one on the training text', task="text")
    subword: str = choice(("bpe", "unigram", "characters"), "of learning pieces; the last: running text", task="text")
    vocab_size: int = setting(8000, "pieces to learn at most, both languages together", POSITIVE, task="text")
    normalization: str = choice(("nfc", "nfkc", "none"), "of Unicode", task="text")
    lowercase: bool = setting(False, "fold case before anything else", task="text")
    max_length: int = setting(256, "longer training pairs are dropped, pieces with end mark", POSITIVE, task="lines")
    overlap: int = setting(128, "tokens that two passages of a long context share", task="answer")
    block_length: int = setting(256, "tokens read at once of running text", POSITIVE, task="blocks")
    mask_share: float = setting(0.15, "of the pieces of a block, that are to be told", SHARE, task="masks")
    whole_words: bool = setting(False, "words are masked, not pieces of them", task="masks")
    flip: bool = setting(False, "pictures are seen from either side, at random", task="pictures")
    shift: float = setting(0.0, "pictures are moved by up to this share of a side, at random", RATE, task="pictures")
    max_length_ratio: float = setting(9.0, "of the sides of a training pair; beyond: dropped; 0 = off", task="decoder")
    bpe_dropout: float = setting(0.0, "chance that a merge is skipped (arXiv:1910.13267)", RATE, task="decoder")
    bpe_dropout_sides: str = choice(("both", "source"), "of a pair, that are cut otherwise", task="decoder")
    source_dropout: float = setting(0.0, "chance that a source piece is read as unknown", RATE, task="translate")
    both_directions: float = setting(0.0, "the first share of updates, both ways: BiT", RATE, task="translate")
    weights: tuple[float, ...] = setting((), "how often pairs of each corpus come; () = 1", POSITIVE, task="translate")
    temperature: float = setting(1.0, "T: n pairs count n ** (1/T) (arXiv:1907.05019)", POSITIVE, task="translate")
    mix: str = setting("", "files of general pairs between the own, against forgetting", task="translate")
    mix_share: float = setting(0.5, "of the pairs of an epoch, that are of data.mix", RATE, task="translate")
    target: str = setting("", 'the column to forecast; "" = the last', task="forecast")
    window: int = setting(96, "rows the network reads", POSITIVE, task="forecast")
    horizon: int = setting(24, "rows ahead", POSITIVE, task="forecast")
    season: int = setting(24, "rows after which the naive baseline expects the same again", POSITIVE, task="forecast")
    valid_share: float = setting(0.2, "the latest rows, which validate where no file does", RATE, task="forecast")


@dataclass(frozen=True)
class TrainConfig:
    """The training procedure; section 5 of the paper."""

    seed: int = setting(1, "of everything random: parameters, dropout, batches", SEED)
    max_steps: int = setting(100_000, "optimiser updates (section 5.2)", POSITIVE)
    tokens_per_batch: int = setting(25_000, "rows x longest side (5.1); target pieces if drawn at random", POSITIVE)
    batching: str = choice(("auto", "random", "bucketed"), "auto: random if a CPU needs no padding", task="decoder")
    accumulate: int = setting(1, "batches per update; by several processes of each", POSITIVE)
    learning_rate: float = setting(0.0, "peak; 0 = the paper's, (d_model * warmup_steps) ** -0.5 (section 5.3)")
    warmup_steps: int = setting(4000, "updates of linear rise", POSITIVE)
    schedule: str = choice(("inverse_sqrt", "cosine", "linear", "constant"), "after warm-up; cosine, linear: to 0")
    optimizer: str = choice(("adam", "muon"), "muon: orthogonalised momentum on hidden matrices, Adam on the rest")
    betas: tuple[float, float] = setting((0.9, 0.98), "of Adam", RATE)
    eps: float = setting(1e-9, "of Adam", POSITIVE)
    weight_decay: float = setting(0.0, "of matrices, decoupled (AdamW); 0 = Adam as in the paper")
    clip_norm: float = setting(0.0, "largest gradient norm; 0 = no clipping")
    label_smoothing: float = setting(0.1, "epsilon_ls (section 5.4)", RATE, task="tokens")
    lora_rank: int = setting(0, "of adapters, trained instead of a published model (arXiv:2106.09685); 0 = off")
    lora_alpha: float = setting(16.0, "what adapters add counts lora_alpha / lora_rank times", POSITIVE)
    lora_dropout: float = setting(0.0, "of what adapters read", RATE)
    lora_layers: str = setting("q_proj,v_proj", "that have adapters: ends of names, ours or those of the file")
    r_drop: float = setting(0.0, "weight alpha of R-Drop's divergence (arXiv:2106.14448); 0 = off", task="decoder")
    alignment_weight: float = setting(0.0, "of links (arXiv:1909.02074)", only_for=TRANSFORMER, task="translate")
    alignment_layer: int = setting(
        -2, "of the decoder, whose first head aligns; from 0, -1 = last", ANY, only_for=TRANSFORMER, task="translate"
    )
    ema: float = setting(0.0, "decay of an exponential moving average of the parameters; 0 = off", RATE)
    average: int = setting(5, "checkpoints averaged into the final model (6.1); 1 = the last alone", POSITIVE)
    precision: str = choice(("auto", "float32", "bf16"), "auto: bf16 on CUDA and where a CPU is faster by it")
    compile: bool = setting(False, "torch.compile the model")
    recompute: bool = setting(False, "keep no activations in layers: less memory, a third more time", only_for=PARALLEL)
    threads: int = setting(0, "CPU threads; 0 = all. Part of the result on CPU: sums are split by it", THREADS)
    shard: str = choice(("none", "full", "offload"), "full: processes share one copy of all (FSDP2); offload: on CPUs")
    timeout: float = setting(600.0, "seconds that a process waits for the others it trains with", POSITIVE)
    log_every: int = setting(100, "updates", POSITIVE)
    validate_every: int = setting(1000, "updates", POSITIVE)
    validate_bleu: int = setting(1000, "validation sentences decoded for BLEU; 0 = loss only", task="decoder")
    checkpoint_every: int = setting(1000, "updates", POSITIVE)
    keep_last: int = setting(5, "checkpoints kept on disk beside the best; at least average", POSITIVE)
    best_metric: str = choice(("loss", *sorted(_METRICS)), "what 'best' and patience look at")
    patience: int = setting(0, "validations without a better best_metric before the run ends early; 0 = never")


@dataclass(frozen=True)
class SearchSettings:
    """Search; section 6.1 of the paper."""

    beam_size: int = setting(4, "hypotheses kept; 1 is greedy", POSITIVE)
    length_penalty: float = setting(0.6, "alpha of GNMT (arXiv:1609.08144, eq. 14); higher favours longer output")
    max_length_factor: float = setting(2.0, "longest output = this * source pieces + max_length_extra")
    max_length_extra: int = setting(50, "pieces, see max_length_factor (section 6.1)")
    min_length_factor: float = setting(0.0, "shortest output = this * source pieces")
    no_repeat_ngram: int = setting(0, "no n-gram of this size twice in an output; 0 is off")
    n_best: int = setting(1, "hypotheses returned, at most beam_size when searching", POSITIVE)
    sample: bool = setting(False, "draw at random instead of searching")
    temperature: float = setting(1.0, "of the distribution drawn from", POSITIVE)
    top_k: int = setting(0, "draw from the k likeliest pieces only; 0 is all")
    top_p: float = setting(1.0, "draw from the likeliest pieces with this total probability", SHARE)
    seed: int = setting(1, "of sampling", SEED)
    batch_tokens: int = setting(4096, "source pieces decoded at once", POSITIVE)
    max_source_length: int = setting(256, "longer texts are translated in parts, pieces", A_CHARACTER)
    shortlist: bool = setting(False, "write only what `sightline shortlist` found likely; faster on a CPU")
    draft_length: int = setting(6, "pieces guessed ahead where a draft is given", POSITIVE)
    compute: str = choice(("float32", "int8", "bfloat16", "float16"), "numbers of weights; int8: CPU, float16: CUDA")


@dataclass(frozen=True)
class RunConfig:
    """Everything one training run depends on but its files."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: SearchSettings = field(default_factory=SearchSettings, metadata={"only_for": {"task": WITH_DECODER}})

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)


def longest_sequence(config: ModelConfig) -> int | None:
    """The longest sequence the network can take, pieces; None where there is no limit."""
    return config.max_len if config.positions == "learned" else None


def heads_of_layers(config: ModelConfig, part: str) -> tuple[int, ...]:
    """The heads of each layer of "encoder", "decoder" or "cross": those that pruning has left, or all."""
    n_layers = config.n_encoder_layers if part == "encoder" else config.n_decoder_layers
    return getattr(config, f"{part}_heads") or (config.n_heads,) * n_layers


def _settings() -> Iterator[tuple[str, Setting]]:
    for part in fields(RunConfig):
        for own in fields(get_type_hints(RunConfig)[part.name]):
            said = own.metadata["setting"]
            yield f"{part.name}.{own.name}", replace(said, only_for=part.metadata.get("only_for", {}) | said.only_for)


SETTINGS = dict(_settings())  # by "section.key", in the order of declaration


def check(config: RunConfig) -> RunConfig:
    """`config` itself when every value makes sense; `UserError` naming the first key that does not."""
    for part in fields(config):
        check_values(part.name, getattr(config, part.name))
    _check_meaning(config)
    _check_task(config)
    _check_alignment(config)
    _CHECKS[config.model.architecture](config)
    return config


def check_values(section: str, table: Any) -> None:
    """Raise a `UserError` naming the first value of a section ("" is none) that is none of its setting's."""
    for own in fields(table):
        if said := own.metadata.get("setting"):
            said.check(f"{section}.{own.name}".lstrip("."), getattr(table, own.name))


def _check_meaning(config: RunConfig) -> None:
    """Refuse what an architecture or a task would silently ignore."""
    for key, value in flatten(config).items():
        other = SETTINGS[key].unread_by(config.model)
        if other and value != SETTINGS[key].default:
            raise UserError(
                f"{key} = {value} means nothing to model.{other} = {getattr(config.model, other)}: "
                f"leave it out or start from a recipe of that {other}"
            )


def _check_task(config: RunConfig) -> None:
    task = config.model.task
    if config.train.best_metric in _METRICS.difference(TASKS[task].metrics):
        raise UserError(f"train.best_metric = {config.train.best_metric} is not measured by model.task = {task}")
    if task in (*tasks_with("running"), *tasks_with("pictures")) and config.model.architecture != "transformer":
        raise UserError(f"model.architecture = {config.model.architecture}: model.task = {task} is for a transformer")
    if config.data.subword == "characters" and task not in tasks_with("running"):
        able = " or ".join(tasks_with("running"))
        raise UserError(f"data.subword = characters is for model.task = {able}, not for {task}: use bpe or unigram")
    if task == "forecast" and config.data.season > config.data.window:
        raise UserError(
            f"data.season = {config.data.season} is more than data.window = {config.data.window}: "
            "the naive baseline would look at what the network is not shown"
        )


def _check_alignment(config: RunConfig) -> None:
    """Refuse what does not go with an attention head that learns links."""
    values = flatten(config)
    others = {"data.bpe_dropout": 0.0, "data.both_directions": 0.0, "train.compile": False, "train.recompute": False}
    others |= {"model.biases": True, "model.n_kv_heads": 0, "model.normalise_heads": False}
    for key in others if config.train.alignment_weight else ():
        if values[key] != others[key]:
            raise UserError(f"train.alignment_weight does not go with {key} = {values[key]}: leave out one")


def _check_transformer(config: RunConfig) -> None:
    model = config.model
    if model.d_model % model.n_heads and not (model.d_k and model.d_v):
        raise UserError(
            f"model.d_model = {model.d_model} is not a multiple of model.n_heads = {model.n_heads}: "
            "change one of them or set model.d_k and model.d_v"
        )
    if model.positions == "sinusoidal" and model.d_model % 2:
        raise UserError(f"model.d_model = {model.d_model}: sinusoidal positions need an even width")
    if model.positions == "rotary" and (model.d_k or model.d_model // model.n_heads) % 2:
        raise UserError("model.positions = rotary turns pairs of a head's components: set an even model.d_k")
    if model.n_kv_heads and (model.n_heads % model.n_kv_heads or model.encoder_heads or model.cross_heads):
        raise UserError(
            f"model.n_kv_heads = {model.n_kv_heads}: model.n_heads = {model.n_heads} must be a multiple of it, and no "
            "head pruned"
        )
    layer, depth = config.train.alignment_layer, model.n_decoder_layers
    if not -depth <= layer < depth and layer != TrainConfig.alignment_layer:
        raise UserError(f"train.alignment_layer = {layer}: the decoder has layers 0 to {depth - 1}, -1 is the last")
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
    said: dict[str, dict[str, Any]] = {}
    for key, value in flatten(config).items():
        section, name = key.split(".")
        if not SETTINGS[key].unread_by(config.model):
            said.setdefault(section, {})[name] = value
    return said


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
    import tomllib

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
    valid = [key for key, known in SETTINGS.items() if not known.derived]
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
    import tomllib

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
    if wanted in (tuple[int, ...], tuple[float, ...]):
        if isinstance(value, list | tuple):
            return tuple(_coerce(v, get_args(wanted)[0], where) for v in value)
        raise UserError(f"{where} = {value!r}: must be a list of numbers, for example [4, 4, 2, 3]")
    if type(value) is not wanted:
        raise UserError(f"{where} = {value!r}: must be of type {wanted.__name__}")
    return value
