"""The settings of adapters (LoRA) in `adapter_config.json`, by an allow-list; needs no torch.

A key changes what is merged, changes nothing after training, or is an error that names it. Keys that switch off what
they name (null, false, empty) change nothing. See `adapters` for the matrices.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headwise.errors import UserError
from headwise.families.keys import short_value
from headwise.runtime.checkpoint.layout import ADAPTER, read_json

# Keys that change nothing after training, or whose effect is in the names of the matrices.
HARMLESS = """
peft_type peft_version task_type auto_mapping base_model_name_or_path revision inference_mode
target_modules exclude_modules layers_to_transform layers_pattern lora_dropout fan_in_fan_out megatron_config
megatron_core loftq_config eva_config corda_config lora_ga_config velora_config qalora_group_size runtime_config
"""
# Initial values that leave the weights of the model as they are.
INITIAL_VALUES = (True, False, None, "gaussian", "orthogonal", "eva", "mica")
REASONS = {
    "alora_invocation_tokens": "such adapters act from certain tokens on, so they cannot be merged",
    "init_lora_weights": "training started from changed weights of the model; convert the adapters to ordinary ones",
}

T = TypeVar("T")


@dataclass(frozen=True)
class AdapterSettings:
    """The settings of `adapter_config.json` that merging needs."""

    alpha: float
    default_rank: int = 8
    ranks: Mapping[str, int] = field(default_factory=dict)  # by pattern of the name of a layer
    alphas: Mapping[str, float] = field(default_factory=dict)  # by pattern of the name of a layer
    root: bool = False  # divide by the root of the rank
    dora: bool = False  # the rows of a merged matrix are scaled to trained lengths
    biased: bool = False  # the product of the matrices has a bias
    whole: tuple[str, ...] = ()  # ends of the names of modules that were trained in full, separately
    tokens: Mapping[str, Sequence[int]] | Sequence[int] = ()  # whose embeddings were trained; by end of a name
    tied: bool = False  # what is tied in the model stays tied

    def rank(self, layer: str) -> int:
        """The number of rows of the matrix A of a layer, by its name in peft."""
        return _matching(self.ranks, layer, self.default_rank)

    def scale(self, layer: str) -> float:
        """The factor of the product of the matrices of a layer, by its name in peft."""
        rank = self.rank(layer)
        return _matching(self.alphas, layer, self.alpha) / (rank**0.5 if self.root else rank)

    def tokens_of(self, layer: str) -> Sequence[int]:
        """The ids of the tokens that were trained in an embedding, by its name in peft."""
        if not isinstance(self.tokens, Mapping):
            return self.tokens
        return next((ids for name, ids in self.tokens.items() if layer.endswith(name)), ())

    def is_separate(self, tensor: str) -> bool:
        """Whether a tensor of that name in peft belongs to a module that was copied and trained in full."""
        words = tensor.split(".")
        modules = [".".join(words[:end]) for end in range(1, len(words))]
        return not self.tied and any(module.endswith(self.whole) for module in modules)


def read_adapter_settings(folder: Path) -> AdapterSettings:
    """The settings of the adapters in `folder`; `UserError` for unsupported ones."""
    path, values = folder / ADAPTER, read_json(folder / ADAPTER)
    kind = values.get("peft_type")
    if kind != "LORA" or not _is_number(values.get("lora_alpha")):
        raise UserError(f"{path}: peft_type = {kind}: only LORA, with its lora_alpha, is understood")
    handled = {name for name, (fits, _) in CHECKS.items() if fits(values.get(name))}
    for name, value in values.items():
        if name in CHECKS and name not in handled:
            problem = REASONS.get(name) if name == "init_lora_weights" else f"must be {CHECKS[name][1]}"
            raise UserError(f"{path}: {name} = {short_value(value)}: {problem}")
        if name not in CHECKS and name not in HARMLESS.split() and value not in (None, False, "", [], {}):
            problem = REASONS.get(name, "is not understood; merge it with peft")
            raise UserError(f"{path}: {name} = {short_value(value)}: {problem}")
    tokens = values.get("trainable_token_indices") or ()
    return AdapterSettings(
        alpha=float(values["lora_alpha"]),
        default_rank=values.get("r") or 8,
        ranks=values.get("rank_pattern") or {},
        alphas={name: float(alpha) for name, alpha in (values.get("alpha_pattern") or {}).items()},
        root=bool(values.get("use_rslora")),
        dora=bool(values.get("use_dora")),
        biased=bool(values.get("lora_bias")),
        whole=tuple(values.get("modules_to_save") or ()),
        tokens=tokens,
        tied=bool(values.get("ensure_weight_tying")),
    )


def _matching(patterns: Mapping[str, T], layer: str, default: T) -> T:
    """The value of the first pattern that matches the end of a layer's name."""
    return next((value for one, value in patterns.items() if re.match(rf"(.*\.)?({one})$", layer)), default)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_rank(value: Any) -> bool:
    return value is None or (type(value) is int and value > 0)


def _by_pattern(value: Any) -> bool:
    """Whether it is numbers by regular expressions."""
    if not isinstance(value, dict | None) or not all(map(_is_number, (value or {}).values())):
        return False
    try:
        return all(re.compile(pattern) for pattern in value or {})
    except re.error:
        return False


def _are_words(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(word, str) for word in value))


def _are_tokens(value: Any) -> bool:
    lists = [*value.values()] if isinstance(value, dict) else [value or []]
    return all(isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids) for ids in lists)


CHECKS = {  # keys that change what is merged: which values are read, in code and in words
    "lora_alpha": (_is_number, "a number"),
    "r": (_is_rank, "a positive number"),
    "rank_pattern": (_by_pattern, "numbers by pattern"),
    "alpha_pattern": (_by_pattern, "numbers by pattern"),
    "use_rslora": (_is_flag, "true or false"),
    "use_dora": (_is_flag, "true or false"),
    "lora_bias": (_is_flag, "true or false"),
    "ensure_weight_tying": (_is_flag, "true or false"),
    "bias": (lambda value: value in (None, "none", "all", "lora_only"), "none, all or lora_only"),
    "init_lora_weights": (lambda value: value in INITIAL_VALUES, "an initial value"),
    "modules_to_save": (_are_words, "a list of names"),
    "trainable_token_indices": (_are_tokens, "a list of ids, or such lists by name"),
}
