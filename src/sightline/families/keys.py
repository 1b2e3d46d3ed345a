"""A `config.json` in the Hugging Face layout, read key by key, so that none goes unnoticed.

What changes the network is taken by the family's `config_from_hf`; what does not is listed here, or by the family. Any
other key is refused: a checkpoint that is not understood must not be loaded half right.
"""

from collections.abc import Mapping
from typing import Any

from sightline.errors import UserError
from sightline.model.family_config import RotaryConfig

# Of no consequence for what the network computes: how it was trained, saved, is called or generated with.
IGNORED = """
architectures model_type transformers_version dtype torch_dtype use_cache tie_encoder_decoder is_encoder_decoder
bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
bad_words_ids begin_suppress_tokens suppress_tokens max_length min_length max_new_tokens num_beams num_beam_groups
diversity_penalty early_stopping length_penalty repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
do_sample temperature top_k top_p typical_p num_return_sequences exponential_decay_length_penalty remove_invalid_values
return_dict return_dict_in_generate torchscript use_bfloat16 gradient_checkpointing chunk_size_feed_forward
tokenizer_class prefix task_specific_params finetuning_task problem_type id2label label2id num_labels tf_legacy_loss
initializer_range initializer_factor init_std dropout attention_dropout activation_dropout classifier_dropout
classif_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob encoder_layerdrop decoder_layerdrop
dropout_rate layerdrop cross_attention_hidden_size
"""
IGNORED_STARTS = ("_", "output_", "summary_")

ACTIVATIONS = {  # their names of activations: ours
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_REQUIRED = object()


class Keys:
    """The keys of one configuration; each one asked for counts as handled."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self._handled: set[str] = set()

    def __call__(self, *names: str, default: Any = _REQUIRED) -> Any:
        """The value of the first of `names` that is there and not null, or `default`."""
        self._handled.update(names)
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        if default is _REQUIRED:
            raise UserError(f"config.json: has no '{names[0]}'")
        return default

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a value that asks for what we do not have; the first of `allowed` is what an absent key means."""
        value = self(name, default=allowed[0])
        if value not in allowed:
            wanted = " or ".join(repr(one) for one in allowed)
            raise UserError(f"config.json: {name} = {value!r} is not supported, only {wanted}")

    def choice(self, name: str, table: Mapping[str, str], default: str) -> str:
        """The value of `name` in our words."""
        value = self(name, default=default)
        if value not in table:
            raise UserError(f"config.json: {name} = {value!r} is not supported, only {', '.join(table)}")
        return table[value]

    def activation(self, name: str, default: str) -> str:
        """The activation called `name`, in our words."""
        return self.choice(name, ACTIVATIONS, default)

    def head(self, heads: Mapping[str, str]) -> str:
        """The head for the class the checkpoint was saved from; without one, the first of `heads`."""
        saved = (self.values.get("architectures") or [next(iter(heads))])[0]
        if saved not in heads:
            raise UserError(f"config.json: architectures = {saved} is not supported, only {', '.join(heads)}")
        return heads[saved]

    def n_classes(self) -> int:
        """Classes of a classifier, by default two."""
        return len(self.values.get("id2label") or {}) or self.values.get("num_labels") or 2

    def rotary(self, d_head: int, part: float = 1.0) -> RotaryConfig:
        """Rotary positions, as `rope_parameters` of newer files or as the scattered keys of older ones.

        `part` is the share of a head that is turned where nothing is said about it.
        """
        rope = Keys({**(self("rope_scaling", default={})), **(self("rope_parameters", default={}))})
        base = rope("rope_theta", default=None) or self("rope_theta", "rotary_emb_base", default=10000.0)
        share = rope("partial_rotary_factor", default=None) or self("partial_rotary_factor", "rotary_pct", default=part)
        kind = rope("rope_type", "type", default="default")
        if kind not in ("default", "linear", "llama3"):
            raise UserError(f"config.json: rope_type = {kind!r} is not supported, only default, linear and llama3")
        scaling = RotaryConfig(
            width=int(d_head * share),
            base=float(base),
            scaling="none" if kind == "default" else kind,
            factor=float(rope("factor", default=1.0)),
            low=float(rope("low_freq_factor", default=1.0)),
            high=float(rope("high_freq_factor", default=4.0)),
            trained_len=rope("original_max_position_embeddings", default=8192),
        )
        rope.done("rope_parameters.")
        return scaling

    def done(self, place: str = "", ignored: str = "") -> None:
        """Refuse the keys nobody has asked for; `ignored` are those the family knows to be of no consequence."""
        known = self._handled | {*IGNORED.split(), *ignored.split()}
        left = [name for name in self.values if name not in known and not name.startswith(IGNORED_STARTS)]
        if left:
            names = ", ".join(f"{place}{name} = {self.values[name]!r}" for name in sorted(left))
            raise UserError(f"config.json: not understood: {names}; a network that ignored it might be another one")
