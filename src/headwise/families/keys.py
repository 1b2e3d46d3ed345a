"""Reads a `config.json` in the Hugging Face layout key by key, and refuses unknown keys.

The family's `config_from_hf` reads keys that change the network; keys that do not are listed here or by the family. Any
other key is refused unless it is null, so that a checkpoint is never loaded with an unsupported feature. Types and
ranges of values are checked when they are read.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from headwise.config.network import RotaryConfig
from headwise.errors import UserError

# Keys that do not change the network: training, saving, naming and generation.
IGNORED = """
architectures model_type transformers_version dtype torch_dtype use_cache tie_encoder_decoder is_encoder_decoder
bos_token_id eos_token_id eos_token_ids pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id
forced_eos_token_id forced_decoder_ids force_bos_token_to_be_generated bad_words_ids begin_suppress_tokens
suppress_tokens max_length min_length max_new_tokens num_beams num_beam_groups diversity_penalty early_stopping
length_penalty repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size do_sample temperature top_k top_p
typical_p num_return_sequences exponential_decay_length_penalty remove_invalid_values return_dict
return_dict_in_generate torchscript use_bfloat16 xla_device gradient_checkpointing chunk_size_feed_forward
tokenizer_class model_max_length max_sequence_length prefix task_specific_params finetuning_task problem_type id2label
label2id num_labels tf_legacy_loss initializer_range initializer_factor init_std dropout attention_dropout
activation_dropout classifier_dropout classif_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob
encoder_layerdrop decoder_layerdrop dropout_rate layerdrop cross_attention_hidden_size language name save_step
directionality author kobart_version transformers.js_config seed dataset datasets max_seq_length model_name
sentence_transformers sbert_ce_default_activation_function learning_rate weight_decay warmup_steps batch_size epochs
"""
IGNORED_STARTS = ("_", "output_", "summary_", "pooler_", "unsloth_")
IGNORED_ENDS = ("_token_id", "_token_ids")
REASONS = {  # keys of unsupported networks
    "auto_map": "it needs custom code, which is never run",
    "dual_chunk_attention_config": "attention in chunks is not supported",
}

ACTIVATIONS = {  # Hugging Face's names: ours
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
ACTIVATIONS_TO_HF = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}  # the first name of each
SCALINGS = {"default": "none", "linear": "linear", "llama3": "llama3"}  # of rotary positions
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id")
LARGEST = 1 << 24  # upper limit of all sizes
WIDEST = 1 << 17  # d_model, number and width of heads
DEEPEST = 1 << 10  # layers
TALLEST = 1 << 15  # a side of an image, pixels
LAYER_KINDS = ("full_attention", "sliding_attention")


class UnknownKeys(UserError):
    """Unknown keys, or keys that request something unsupported; `names` lists them."""

    def __init__(self, message: str, names: Collection[str]) -> None:
        super().__init__(message)
        self.names = names


class Keys:
    """The keys of a configuration; keys that were read count as handled.

    Methods with names return the value of the first key that is present and not null, or `default`. They raise a
    `UserError` that names the key if the value is invalid, or if there is neither a value nor a default.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values = values
        self.prefix = prefix  # of keys in messages, with a dot
        self._handled: set[str] = set()

    # --- One value ---

    def size(self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """An integer."""
        wanted = f"a whole number from {least:,} to {most:,}"
        return self._checked(names, default, lambda x: type(x) is int and least <= x <= most, wanted)

    def number(self, *names: str, default: float | None = None, above: float = -math.inf) -> float:
        """A finite number."""
        wanted = "a finite number" if above == -math.inf else f"a finite number above {above:g}"
        return float(self._checked(names, default, lambda x: _is_number(x) and x > above, wanted))

    def fraction(self, *names: str, default: float) -> float:
        """A number from 0 to below 1: a probability, or the epsilon of a norm."""
        return float(
            self._checked(names, default, lambda x: _is_number(x) and 0 <= x < 1, "a number from 0 to below 1")
        )

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """True or false."""
        return self._checked(names, default, lambda x: isinstance(x, bool), "true or false")

    def word(self, *names: str, default: str | None = None) -> str:
        """A string."""
        return self._checked(names, default, lambda x: isinstance(x, str), "a string")

    def table(self, *names: str) -> Mapping[str, Any]:
        """An object; empty if missing."""
        return self._checked(names, {}, lambda x: isinstance(x, Mapping), "an object")

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse unsupported values; the first of `allowed` is the default."""
        value = self._first([name])[1]
        if (allowed[0] if value is None else value) not in allowed:
            raise self._not_supported(name, value, [repr(one) for one in allowed])

    def choice(self, *names: str, table: Mapping[str, str], default: str) -> str:
        """A string, converted by `table`."""
        value = self.word(*names, default=default)
        if value not in table:
            raise self._not_supported(self._first(names)[0], value, table)
        return table[value]

    def activation(self, name: str, default: str) -> str:
        """The activation, by our name."""
        return self.choice(name, table=ACTIVATIONS, default=default)

    # --- Several values that must agree ---

    def heads(self, width: str, heads: str, d_head: str = "") -> tuple[int, int, int]:
        """d_model, number of heads, and d_head (default: d_model / number of heads)."""
        d_model, n_heads = self.size(width, most=WIDEST), self.size(heads, most=WIDEST)
        own = self.size(d_head, default=0, most=WIDEST) if d_head else 0
        if not own:
            self.refuse(d_model % n_heads != 0, f"{width} = {d_model} is not a multiple of {heads} = {n_heads}")
        return d_model, n_heads, own or d_model // n_heads

    def layers(self, *names: str, default: int | None = None) -> int:
        """The number of layers of a stack."""
        return self.size(*names, default=default, most=DEEPEST)

    def sides(self, name: str, default: int) -> tuple[int, int]:
        """Height and width of an image, from two numbers or one."""
        wanted = f"a whole number from 1 to {TALLEST:,}, or two of them"

        def fits(value: Any) -> bool:
            sides = value if isinstance(value, list | tuple) and len(value) == 2 else [value]
            return all(type(side) is int and 1 <= side <= TALLEST for side in sides)

        value = self._checked([name], default, fits, wanted)
        return (value, value) if isinstance(value, int) else (value[0], value[1])

    def layer_kinds(self, n_layers: int, default: Sequence[str]) -> Sequence[str]:
        """The kind of attention of each layer, one of `LAYER_KINDS`."""
        wanted = f"a list of {n_layers} times {' or '.join(LAYER_KINDS)}"
        return self._checked(
            ["layer_types"],
            default,
            lambda x: isinstance(x, list) and len(x) == n_layers and all(kind in LAYER_KINDS for kind in x),
            wanted,
        )

    def head(self, heads: Mapping[str, str]) -> str:
        """The head for the class in `architectures`; without one, the first of `heads`."""
        first = next(iter(heads))
        saved = self._checked(
            ["architectures"],
            [first],
            lambda x: isinstance(x, list) and all(isinstance(name, str) for name in x),
            "a list of names",
        )
        name = (saved or [first])[0]
        if name not in heads:
            raise UserError(f"config.json: architectures = {name[:60]} is not supported, only {', '.join(heads)}")
        return heads[name]

    def n_classes(self) -> int:
        """The number of classes of a classifier (default 2)."""
        labels = self._checked(
            ["id2label"], {}, lambda x: isinstance(x, Mapping) and all(map(_is_id, x)), "an object with numbers as keys"
        )
        return len(labels) or self.size("num_labels", default=2)

    def rotary(self, d_head: int, part: float = 1.0) -> RotaryConfig:
        """Rotary positions, from `rope_parameters` of newer files or the separate keys of older ones.

        `part` is the default share of a head that is rotated.
        """
        older, newer = self.table("rope_scaling"), self.table("rope_parameters")
        rope = Keys({**older, **newer}, "rope_parameters." if newer else "rope_scaling.")
        base = self.number("rope_theta", "rotary_emb_base", default=10000.0, above=0.0)
        base = rope.number("rope_theta", default=base, above=0.0)
        share = self.number("partial_rotary_factor", "rotary_pct", default=part, above=0.0)
        share = rope.number("partial_rotary_factor", default=share, above=0.0)
        width = int(d_head * min(share, 2.0))
        self.refuse(
            not 2 <= width <= d_head or width % 2 != 0,
            f"rotary positions need an even number of components, not {share:g} of a head of width {d_head}",
        )
        scaling = RotaryConfig(
            width=width,
            base=base,
            scaling=rope.choice("rope_type", "type", table=SCALINGS, default="default"),
            factor=rope.number("factor", default=1.0, above=0.0),
            low=rope.number("low_freq_factor", default=1.0),
            high=rope.number("high_freq_factor", default=4.0),
            trained_len=rope.size("original_max_position_embeddings", default=8192),
        )
        rope.refuse(scaling.low >= scaling.high, f"low_freq_factor = {scaling.low:g} is not below high_freq_factor")
        rope.done()
        return scaling

    # --- All of it ---

    def refuse(self, wrong: bool, problem: str) -> None:
        """Raise a `UserError` if `wrong`."""
        if wrong:
            raise UserError(f"config.json: {self.prefix}{problem}")

    def done(self, ignored: str = "") -> None:
        """Refuse keys that were not read; `ignored` are further keys that do not change the network."""
        self.only("pruned_heads", {})
        for name in IDS:
            self._checked([name], 0, _is_token, "the id of a token")
        known = self._handled | {*IGNORED.split(), *ignored.split()}
        left = [name for name in self.values if name not in known and not name.startswith(IGNORED_STARTS)]
        left = [name for name in left if self.values[name] is not None and not name.endswith(IGNORED_ENDS)]
        names = ", ".join(f"{self.prefix}{name} = {short_value(self.values[name])}" for name in sorted(left))
        problem = f"not supported: {names}; ignoring it could load a different network"
        for name in left:
            problem = f"{self.prefix}{name}: {REASONS[name]}" if name in REASONS else problem
        if left:
            raise UnknownKeys(f"config.json: {problem}", [self.prefix + name for name in left])

    # --- How ---

    def _first(self, names: Sequence[str]) -> tuple[str, Any]:
        """The first of `names` that is present and not null, with its value or None."""
        self._handled.update(names)
        return next(
            ((name, self.values[name]) for name in names if self.values.get(name) is not None), (names[0], None)
        )

    def _checked(self, names: Sequence[str], default: Any, fits: Callable[[Any], bool], wanted: str) -> Any:
        name, value = self._first(names)
        if value is None:
            if default is None:
                raise UserError(f"config.json: has no '{self.prefix}{name}'")
            return default
        self.refuse(not fits(value), f"{name} = {short_value(value)}: must be {wanted}")
        return value

    def _not_supported(self, name: str, value: Any, allowed: Iterable[str]) -> UserError:
        wanted = [*allowed]
        joined = " or ".join(wanted) if len(wanted) < 3 else ", ".join(wanted)
        return UserError(f"config.json: {self.prefix}{name} = {short_value(value)} is not supported, only {joined}")


def _is_number(value: Any) -> bool:
    """Whether it is a finite float."""
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _is_token(value: Any) -> bool:
    """Whether it is a token id or a list of them; -1 means none in the first LLaMA."""
    return all(
        type(token) is int and -1 <= token < LARGEST for token in (value if isinstance(value, list) else [value])
    )


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 9


def short_value(value: Any) -> str:
    """A shortened value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
