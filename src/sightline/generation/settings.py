"""How a checkpoint wants to be generated with: its `generation_config.json`, or what its `config.json` says of it.

Lengths count what is written anew, end mark included. What such a file may ask for and we do not have is kept in
`unused`, by name, so that it can be said. Not here: the search (`sightline.decode`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from sightline.checkpoint.layout import read_json
from sightline.config.setting import ANY, POSITIVE, SEED, SHARE, check_values, choice, setting
from sightline.contract import Rule, SearchOptions, Stop, with_room
from sightline.errors import UserError, unknown

FILE = "generation_config.json"


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of one call. What says its range and what it is for may be given to `generate` and its kin."""

    max_new_tokens: int = setting(128, "longest output", POSITIVE)
    min_new_tokens: int = setting(0, "shortest output")
    beam_size: int = setting(1, "hypotheses kept; 1 is greedy", POSITIVE)
    length_penalty: float = setting(1.0, "alpha of a beam's score, log-probability / length^alpha", ANY)
    early_stopping: bool | str = choice((False, True, "never"), "when a beam ends, see `decode.ending.PoolFilled`")
    n_best: int = setting(1, "outputs for each input, at most beam_size when searching", POSITIVE)
    no_repeat_ngram: int = setting(0, "no n-gram of this size twice in an output; 0 is off")
    sample: bool = setting(False, "draw at random instead of searching, or search where the model would draw")
    temperature: float = setting(1.0, "of sampling", POSITIVE)
    top_k: int = setting(50, "sample from the k likeliest tokens; 0 is all")
    top_p: float = setting(1.0, "sample from the likeliest tokens with this total probability", SHARE)
    seed: int = setting(1, "of sampling", SEED)
    stop: tuple[str, ...] = setting((), "end before this string; may be given several times")
    batch_size: int = setting(16, "inputs computed with at once; with the compiled library in each thread", POSITIVE)
    compute: str = choice(("float32", "int8", "bfloat16"), "numbers of weights; float32: or those it was loaded in")
    start_id: int | None = None  # what a decoder with an encoder begins with
    forced_start_id: int | None = None  # what it writes first, whatever it thinks: a language code
    forced_end_id: int | None = None  # what it writes last where it runs out of length
    begins: tuple[int, ...] = ()  # what it must begin with behind that: the ids of a text, of one call
    end_ids: tuple[int, ...] = ()
    pad_id: int = 0
    suppressed: tuple[int, ...] = ()  # never written
    suppressed_first: tuple[int, ...] = ()  # not written at the beginning
    unused: tuple[str, ...] = ()  # what the file asks for and we do not have

    def changed(self, given: Mapping[str, Any], computes: Sequence[str] = ("float32",)) -> "GenerationSettings":
        """With what a caller says; `UserError` for what is unknown or makes no sense.

        The beam is as wide as `n_best` asks unless the caller says how wide. `computes` are the numbers that the model
        can decode with.
        """
        given = with_room(given, self.beam_size)
        for name in given:
            if name not in GIVEN:
                raise unknown("setting", name, GIVEN)
        stop = given.get("stop", self.stop)
        settings = replace(self, **{**given, "stop": (stop,) if isinstance(stop, str) else tuple(stop)})
        settings.check()
        if settings.compute not in computes:
            raise unknown("this model's compute", settings.compute, computes)
        return settings

    def check(self) -> None:
        """Raise a `UserError` for what has no meaning."""
        check_values("", self)
        if self.min_new_tokens > self.max_new_tokens:
            raise UserError(
                f"min_new_tokens = {self.min_new_tokens} is more than max_new_tokens = {self.max_new_tokens}"
            )
        if self.n_best > self.beam_size and not self.sample:
            raise UserError(f"n_best = {self.n_best} is more than beam_size = {self.beam_size}: search with more beams")
        if any(not text for text in self.stop):
            raise UserError("stop: an empty string would end every output before it begins")

    def options(self, begun: int = 0, rules: tuple[Rule, ...] = (), stop: Stop | None = None) -> SearchOptions:
        """For the search; `begun` tokens of each output were given to the model before it."""
        end, *other_ends = self.end_ids or (NEVER,)
        return SearchOptions(
            beam_size=self.beam_size,
            length_penalty=self.length_penalty,
            n_best=self.n_best,
            no_repeat_ngram=self.no_repeat_ngram,
            eos_id=end,
            suppressed=self.suppressed,
            suppressed_first=self.suppressed_first,
            other_ends=tuple(other_ends),
            ending={True: "pool_filled_early", "never": "pool_filled_patient"}.get(self.early_stopping, "pool_filled"),
            begun=begun,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            rules=rules,
            stop=stop,
        )


GIVEN = {f.name: f.metadata["setting"] for f in fields(GenerationSettings) if f.metadata}  # what a call may say
NEVER = -1  # an end mark nobody writes

# Their names of what we have.
NAMES = {
    "num_beams": "beam_size",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "num_return_sequences": "n_best",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "do_sample": "sample",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_new_tokens",
    "decoder_start_token_id": "start_id",
    "forced_bos_token_id": "forced_start_id",
    "forced_eos_token_id": "forced_end_id",
    "pad_token_id": "pad_id",
}
IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# What changes an output and is not here, with the value that changes nothing.
ABSENT = {
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


def read_settings(folder: Path, hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationSettings:
    """The settings of the checkpoint in `folder`; `UserError` where they make no sense."""
    path = folder / FILE
    values = read_json(path) if path.is_file() else dict(hf_config)
    try:
        settings = settings_from(values, hf_config, has_encoder)
        settings.check()
    except (UserError, TypeError, ValueError) as error:
        raise UserError(f"{path if path.is_file() else folder / 'config.json'}: {error}") from None
    return settings


def settings_from(values: Mapping[str, Any], hf_config: Mapping[str, Any], has_encoder: bool) -> GenerationSettings:
    """Settings from the words of `generation_config.json`; ids it does not name are those of config.json."""
    ids = {name: hf_config.get(name) for name in IDS}
    values = ids | {name: value for name, value in values.items() if value is not None}
    own: dict[str, Any] = {ours: values[name] for name, ours in NAMES.items() if values.get(name) is not None}
    ends, bad = _listed(values.get("eos_token_id")), values.get("bad_words_ids") or []
    absent = [name for name, usual in ABSENT.items() if values.get(name) not in (None, usual)]
    absent += ["bad_words_ids"] if any(len(words) > 1 for words in bad) else []
    if own.get("pad_id", -1) < 0:  # -1 is the first LLaMA's way to say that there is none
        own["pad_id"] = ends[0] if ends else 0
    if values.get("force_bos_token_to_be_generated"):  # of older files of BART
        own["forced_start_id"] = values.get("bos_token_id")
    if own.get("start_id") is None:
        own["start_id"] = values.get("bos_token_id")
    return GenerationSettings(
        **own | (_lengths(values) if has_encoder else {}),
        end_ids=ends,
        suppressed=(*_listed(values.get("suppress_tokens")), *(words[0] for words in bad if len(words) == 1)),
        suppressed_first=_listed(values.get("begin_suppress_tokens")),
        unused=tuple(absent),
    )


def _lengths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lengths that count the start mark as well. Those of a decoder alone would count the prompt, and go unused."""
    both = (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens"))
    counted = {ours: values[name] - 1 for name, ours in both if values.get(name) and values.get(ours) is None}
    return {name: max(0, length) for name, length in counted.items()}


def _listed(value: Any) -> tuple[int, ...]:
    return () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)


def _streamed(
    usual: GenerationSettings, given: dict[str, Any], computes: Sequence[str] = ("float32",)
) -> GenerationSettings:
    chosen = usual.changed({"beam_size": 1, "n_best": 1, **given}, computes)
    if chosen.beam_size > 1 or chosen.n_best > 1:
        raise UserError("a stream is written by greedy search or drawn: leave out beam_size and n_best")
    return chosen
