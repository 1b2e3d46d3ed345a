"""The search settings of a pretrained model, from `generation_config.json` or, without it, `config.json`.

This is the second file format of `SearchSettings`, besides `[decode]` of a run; it also has ids. Lengths count output
tokens with the end token, whatever the source. Not here: the search (`headwise.decode`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.checkpoint.layout import read_json
from headwise.config.settings import SearchSettings
from headwise.contract import NEVER, SpecialIds
from headwise.errors import UserError

FILE = "generation_config.json"
# The values of settings that the file does not have.
DEFAULTS = SearchSettings(
    beam_size=1,
    length_penalty=1.0,
    early_stopping="no",
    max_length_factor=0.0,
    max_length_extra=128,
    top_k=50,
    batch_size=16,
    max_source_length=0,
)


@dataclass(frozen=True)
class GenerationConfig:
    """The content of the file."""

    settings: SearchSettings
    special: SpecialIds
    unused: tuple[str, ...] = ()  # names of unsupported settings in the file

    def changed(self, given: Mapping[str, Any], computes: Sequence[str] = ("float32",)) -> "GenerationConfig":
        """With the settings of a call; see `SearchSettings.changed`."""
        return replace(self, settings=self.settings.changed(given, computes))

    def streamed(self, given: Mapping[str, Any], computes: Sequence[str] = ("float32",)) -> "GenerationConfig":
        """`changed` for streaming; `UserError` for beam search."""
        chosen = self.changed({"beam_size": 1, "n_best": 1, **given}, computes)
        if chosen.settings.beam_size > 1 or chosen.settings.n_best > 1:
            raise UserError("a stream is written by greedy search or sampled: leave out beam_size and n_best")
        return chosen

    @property
    def can_end(self) -> bool:
        """Whether there is an end token."""
        return self.special.eos_id != NEVER


NAMES = {  # of settings, in `transformers` and here
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "num_return_sequences": "n_best",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "do_sample": "sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "max_new_tokens": "max_length_extra",
    "min_new_tokens": "min_length_extra",
}
EARLY = {True: "yes", False: "no", "never": "never"}
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# Unsupported settings, with their values that have no effect.
UNSUPPORTED = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "typical_p": 1.0,
    "min_p": 0.0,
    "top_h": None,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "guidance_scale": 1.0,
    "renormalize_logits": False,
    "penalty_alpha": None,
    "watermarking_config": None,
}


def read_generation_config(folder: Path, hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationConfig:
    """The settings of the model in `folder`; `UserError` for invalid ones."""
    path = folder / FILE
    values = read_json(path) if path.is_file() else dict(hf_config)
    try:
        return generation_config(values, hf_config, has_encoder)
    except (UserError, TypeError, ValueError) as error:
        raise UserError(f"{path if path.is_file() else folder / 'config.json'}: {error}") from None


def generation_config(values: Mapping[str, Any], hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationConfig:
    """From the values of `generation_config.json`; missing ids are those of config.json."""
    ids = {name: hf_config.get(name) for name in IDS}
    values = ids | {name: value for name, value in values.items() if value is not None}
    own: dict[str, Any] = {key: values[name] for name, key in NAMES.items() if values.get(name) is not None}
    if (early := values.get("early_stopping")) is not None:
        own["early_stopping"] = EARLY.get(early, early)
    settings = replace(DEFAULTS, **own | (_lengths(values) if has_encoder else {}))
    settings.check("")
    special = _special_ids(values)
    if not has_encoder:
        special = replace(special, forced=(), forced_end=None)  # the prompt has the start tokens
    return GenerationConfig(settings, special, _unsupported(values))


def _special_ids(values: Mapping[str, Any]) -> SpecialIds:
    ends, bad = _listed(values.get("eos_token_id")), values.get("bad_words_ids") or []
    end, *others = ends or (NEVER,)
    pad, start, forced = (values.get(f"{name}_token_id") for name in ("pad", "decoder_start", "forced_bos"))
    if values.get("force_bos_token_to_be_generated"):  # of older files of BART
        forced = values.get("bos_token_id")
    start = values.get("bos_token_id") if start is None else start
    return SpecialIds(
        pad_id=pad if pad is not None and pad >= 0 else max(end, 0),  # the first LLaMA has -1 for none
        bos_id=NEVER if start is None else start,
        eos_id=end,
        unk_id=NEVER,
        forced=() if forced is None else (forced,),
        forced_end=values.get("forced_eos_token_id"),
        other_ends=tuple(others),
        suppressed=(*_listed(values.get("suppress_tokens")), *(words[0] for words in bad if len(words) == 1)),
        suppressed_first=_listed(values.get("begin_suppress_tokens")),
    )


def _unsupported(values: Mapping[str, Any]) -> tuple[str, ...]:
    absent = [name for name, usual in UNSUPPORTED.items() if values.get(name) not in (None, usual)]
    several = any(len(words) > 1 for words in values.get("bad_words_ids") or [])
    return (*absent, *(["bad_words_ids"] if several else []))


def _lengths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths that count the start token. For a decoder-only model they would count the prompt, and are unused."""
    both = ("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")
    counted = {f"{name}_extra": values[name] - 1 for name, new in both if values.get(name) and values.get(new) is None}
    return {name: max(0, length) for name, length in counted.items()}


def _listed(value: Any) -> tuple[int, ...]:
    return () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
