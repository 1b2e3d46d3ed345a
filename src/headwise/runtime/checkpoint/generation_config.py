"""The search settings of a pretrained model, from `generation_config.json` or, without it, `config.json`.

This is the second file format of `SearchSettings`, besides `[decode]` of a run; it also has ids. Lengths count output
tokens with the end token, whatever the source. See `headwise.runtime.search` for the search.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.contract import NEVER, SpecialIds
from headwise.errors import UserError
from headwise.families.keys import short_value
from headwise.runtime.checkpoint.layout import read_json

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
        """A copy with the settings of a call; see `SearchSettings.changed`."""
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
    "repetition_penalty": "repetition_penalty",
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
    "guidance_scale": 1.0,
    "renormalize_logits": False,
    "penalty_alpha": None,
    "watermarking_config": None,
    "constraints": None,
    "force_words_ids": None,
    "stop_strings": None,
    "max_time": None,
    "token_healing": False,
    "dola_layers": None,
    "language": None,  # from here on: Whisper
    "task": "transcribe",
    "return_timestamps": False,
}
# Settings that change no output: of caches, of speculative decoding, and of what `transformers` returns besides it.
HARMLESS = """
transformers_version _from_model_config _commit_hash use_cache cache_implementation cache_config max_cache_len
prefill_chunk_size low_memory disable_compile compile_config continuous_batching_config remove_invalid_values
output_attentions output_hidden_states output_scores output_logits return_dict_in_generate is_assistant
num_assistant_tokens num_assistant_tokens_schedule max_matching_ngram_size prompt_lookup_num_tokens speculation_type
use_mtp assistant_confidence_threshold assistant_early_exit assistant_ensemble_weight assistant_lookbehind
target_lookbehind forced_decoder_ids alignment_heads median_filter_width prev_sot_token_id
"""
WIDEST = 1 << 14  # number of hypotheses
# Ids that must exist, unlike those that are only compared with a token.
NEEDED = (
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "no_timestamps_token_id",
    "lang_to_id",
    "task_to_id",
    "max_initial_timestamp_index",
    "sequence_bias",
)
SAMPLING = ("temperature", "top_k", "top_p")  # without effect in a search


def _is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30 and math.isfinite(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_id(value: Any) -> bool:
    """Whether it is the id of a token, also alone in a list; -1 is none in the first LLaMA."""
    return _is_whole(value[0] if isinstance(value, list) and len(value) == 1 else value, -1)


def _are_ids(value: Any) -> bool:
    return all(_is_whole(one, -1) for one in (value if isinstance(value, list) else [value]))


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, list) and word and _are_ids(word) for word in value)


def _are_biases(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return (
        pairs
        and all(_are_words([ids]) and -1 not in ids for ids, _ in value)
        and all(_is_number(bias) or bias == -math.inf for _, bias in value)
    )


def _are_named_ids(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_whole, value.values()))


# The values of each key that is read, in code and in words.
Check = tuple[Callable[[Any], bool], str]
ANY: Check = (lambda _: True, "anything")
COUNT: Check = (_is_whole, "a whole number from 0")
POSITIVE: Check = (lambda value: _is_whole(value, 1), "a whole number from 1")
NUMBER: Check = (_is_number, "a number")
ABOVE: Check = (lambda value: _is_number(value) and value > 0, "a number above 0")
FLAG: Check = (_is_flag, "true or false")
ID: Check = (_is_id, "the id of a token")
TOKENS: Check = (_are_ids, "the id of a token, or a list of ids")
CHECKS: dict[str, Check] = {
    "num_beams": (lambda value: _is_whole(value, 1) and value <= WIDEST, f"a whole number from 1 to {WIDEST:,}"),
    "num_return_sequences": POSITIVE,
    "no_repeat_ngram_size": COUNT,
    "max_length": COUNT,
    "max_new_tokens": POSITIVE,
    "min_length": COUNT,
    "min_new_tokens": COUNT,
    "length_penalty": NUMBER,
    "early_stopping": (lambda value: value in (True, False, "never"), "true, false or 'never'"),
    "do_sample": FLAG,
    "repetition_penalty": ABOVE,
    "temperature": ABOVE,
    "top_k": COUNT,
    "top_p": (lambda value: _is_number(value) and 0 < value <= 1, "a number above 0 and at most 1"),
    "force_bos_token_to_be_generated": FLAG,
    "bos_token_id": ID,
    "pad_token_id": ID,
    "decoder_start_token_id": ID,
    "forced_bos_token_id": ID,
    "eos_token_id": TOKENS,
    "forced_eos_token_id": TOKENS,
    "suppress_tokens": TOKENS,
    "begin_suppress_tokens": TOKENS,
    "bad_words_ids": (_are_words, "a list of lists of ids"),
    "sequence_bias": (_are_biases, "a list of pairs [[ids], number]"),
    "no_timestamps_token_id": COUNT,  # from here on: Whisper
    "lang_to_id": (_are_named_ids, "an object of ids by name"),
    "task_to_id": (_are_named_ids, "an object of ids by name"),
    "max_initial_timestamp_index": COUNT,
    "is_multilingual": FLAG,
}


def read_generation_config(folder: Path, hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationConfig:
    """The settings of the model in `folder`; `UserError` for invalid ones."""
    path = folder / FILE
    values = read_json(path) if path.is_file() else dict(hf_config)
    try:
        found = generation_config(values, hf_config, has_encoder)
        return replace(found, unused=(*found.unused, *(_unknown(values) if path.is_file() else ())))
    except UserError as error:
        raise UserError(f"{path if path.is_file() else folder / 'config.json'}: {error}") from None


def generation_config(values: Mapping[str, Any], hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationConfig:
    """The settings in the values of `generation_config.json`; missing ids are those of config.json."""
    ids = {name: hf_config.get(name) for name in IDS}
    values = _checked(
        ids | {name: value for name, value in values.items() if value is not None}, _vocab_size(hf_config)
    )
    own: dict[str, Any] = {key: values[name] for name, key in NAMES.items() if values.get(name) is not None}
    if (early := values.get("early_stopping")) is not None:
        own["early_stopping"] = EARLY.get(early, early)
    settings = replace(DEFAULTS, **own | (_lengths(values) if has_encoder else {}))
    settings.check("")
    special = _special_ids(values)
    if not has_encoder:
        special = replace(special, forced=(), forced_end=None)  # the prompt has the start tokens
    return GenerationConfig(settings, special, _unsupported(values))


def _vocab_size(hf_config: Mapping[str, Any]) -> int:
    """The number of tokens of outputs; a large number if it is unknown."""
    decoder = hf_config.get("decoder")
    within = decoder.get("vocab_size") if isinstance(decoder, dict) else None
    known = (hf_config.get("decoder_vocab_size"), hf_config.get("vocab_size"), within)
    return next((int(size) for size in known if size and _is_whole(size)), sys.maxsize)


def _checked(values: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """The values that have an effect; `UserError` for the first invalid one.

    As in `transformers`, settings of sampling have none in a search.
    """
    search = values.get("do_sample") is not True
    unused = {
        name for name in SAMPLING if search and _is_number(values.get(name)) and not CHECKS[name][0](values[name])
    }
    found = {name: _existing(name, value, vocab_size) for name, value in values.items() if name not in unused}
    n_best, beams = found.get("num_return_sequences") or 1, found.get("num_beams") or 1
    if search and n_best > beams:
        raise UserError(f"num_return_sequences = {n_best}: must be at most num_beams = {beams}")
    times, end = found.get("no_timestamps_token_id"), max(_listed(found.get("eos_token_id")), default=NEVER)
    if times is not None and times < end:
        raise UserError(f"no_timestamps_token_id = {times}: must be above eos_token_id = {end}")
    return found


def _existing(name: str, value: Any, vocab_size: int) -> Any:
    """A value without ids that do not exist, such as -1 and, as in `transformers`, those above the vocabulary.

    Raises:
        UserError: it is of the wrong type, or one of its ids is needed.
    """
    holds, words = check = CHECKS.get(name, ANY)
    if value is None or check is ANY:
        return value
    if not holds(value):
        raise UserError(f"{name} = {short_value(value)}: must be {words}")
    ids = [*value.values()] if isinstance(value, dict) else _listed(value)
    if name == "sequence_bias":
        ids = [one for sequence, _ in value for one in sequence]
    if name in NEEDED and any(one >= vocab_size for one in ids):
        raise UserError(f"{name} = {short_value(value)}: the model has {vocab_size} tokens")
    if name == "bad_words_ids":
        return [word for word in value if all(0 <= one < vocab_size for one in word)]
    exist = [one for one in ids if 0 <= one < vocab_size] if check in (ID, TOKENS) else []
    return exist if check is TOKENS else next(iter(exist), None) if check is ID else value


def _special_ids(values: Mapping[str, Any]) -> SpecialIds:
    ends, bad = _listed(values.get("eos_token_id")), values.get("bad_words_ids") or []
    end, *others = ends or (NEVER,)
    pad, start, forced = (values.get(f"{name}_token_id") for name in ("pad", "decoder_start", "forced_bos"))
    if values.get("force_bos_token_to_be_generated"):  # of older files of BART
        forced = values.get("bos_token_id")
    if forced is not None and forced in ends:
        raise UserError(f"forced_bos_token_id = {forced} is the end token, so that every output would be empty")
    start = values.get("bos_token_id") if start is None else start
    banned = (words[0] for words in bad if len(words) == 1 and words[0] not in ends)
    biases = {tuple(words): float(bias) for words, bias in values.get("sequence_bias") or []}
    biases |= {tuple(words): -math.inf for words in bad if len(words) > 1}
    return SpecialIds(
        pad_id=max(end, 0) if pad is None else pad,
        bos_id=NEVER if start is None else start,
        eos_id=end,
        unk_id=NEVER,
        forced=() if forced is None else (forced,),
        forced_end=min(_listed(values.get("forced_eos_token_id")), default=None),  # of equal choices, the first
        other_ends=tuple(others),
        suppressed=(*_listed(values.get("suppress_tokens")), *banned),
        suppressed_first=_listed(values.get("begin_suppress_tokens")),
        sequence_bias=tuple(biases.items()),
    )


def _unsupported(values: Mapping[str, Any]) -> tuple[str, ...]:
    absent = [name for name, usual in UNSUPPORTED.items() if values.get(name) not in (None, usual)]
    return (*absent, *(["forced_decoder_ids"] if _forces(values) else []))


def _unknown(values: Mapping[str, Any]) -> list[str]:
    """The settings that are known neither here nor to `transformers` 5, unless they are off."""
    known = {*NAMES, *CHECKS, *UNSUPPORTED, *HARMLESS.split()}
    return [name for name, value in values.items() if name not in known and value not in (None, False, "", [], {})]


def _forces(values: Mapping[str, Any]) -> bool:
    """Whether `forced_decoder_ids` asks for something other than what is chosen without it: those of Whisper usually
    say that speech is transcribed, without timestamps.
    """
    tasks, pairs = values.get("task_to_id"), values.get("forced_decoder_ids")
    usual = [tasks.get("transcribe") if isinstance(tasks, dict) else None, values.get("no_timestamps_token_id"), None]
    pairs = pairs if isinstance(pairs, list) else [] if pairs is None else [pairs]
    return any(not isinstance(pair, list) or (pair and pair[-1] not in usual) for pair in pairs)


def _lengths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths that count the start token. For a decoder-only model they would count the prompt, and are unused."""
    both = ("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")
    counted = {f"{name}_extra": values[name] - 1 for name, new in both if values.get(name) and values.get(new) is None}
    return {name: max(0, length) for name, length in counted.items()}


def _listed(value: Any) -> tuple[int, ...]:
    return () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
