"""`generation_config.json`: what `transformers` accepts is accepted, other values are one line that names the key."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tiny_families import write_tiny

import headwise
from headwise.errors import UserError
from headwise.runtime.checkpoint.generation_config import (
    ABOVE,
    CHECKS,
    HARMLESS,
    NAMES,
    NUMBER,
    UNSUPPORTED,
    GenerationConfig,
    generation_config,
    read_generation_config,
)

CONFIG = {"vocab_size": 40, "decoder_start_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def read(**values: Any) -> GenerationConfig:
    """The settings of an encoder-decoder with 40 tokens."""
    return generation_config(values, CONFIG, has_encoder=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in CHECKS for value in ("x", {"a": "b"}, [["a"]], math.nan)),
        *((name, 2.0) for name in CHECKS if CHECKS[name] not in (NUMBER, ABOVE) and name != "top_p"),
        ("num_beams", 0),
        ("num_beams", True),
        ("num_beams", 10**9),
        ("num_return_sequences", 2),
        ("max_new_tokens", 0),
        ("length_penalty", math.inf),
        ("do_sample", 1.0),
        ("early_stopping", [True]),
        ("decoder_start_token_id", [1, 1]),
        ("decoder_start_token_id", 40),
        ("forced_bos_token_id", [3, 4]),
        ("forced_bos_token_id", 2),
        ("forced_eos_token_id", [2, 40]),
        ("eos_token_id", [2, "3"]),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [3]),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", True),
        ("sequence_bias", {"(3, 4)": -1.0}),
        ("sequence_bias", [[3], -1.0]),
        ("sequence_bias", [[[3, 4]]]),
        ("sequence_bias", [[[], -1.0]]),
        ("sequence_bias", [[[-1], -1.0]]),
        ("sequence_bias", [[[3, 40], -1.0]]),
        ("sequence_bias", [[[3], "1"]]),
        ("sequence_bias", [[[3], math.inf]]),
        ("no_timestamps_token_id", 1),
        ("task_to_id", {"transcribe": 40}),
        ("lang_to_id", {"<|en|>": None}),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, name: str, value: Any) -> None:
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"do_sample": name in ("temperature", "top_k", "top_p"), name: value})
    )
    with pytest.raises(UserError) as caught:
        read_generation_config(tmp_path, CONFIG, has_encoder=True)
    assert name in str(caught.value) and "generation_config.json" in str(caught.value)


def test_values_that_transformers_accepts() -> None:
    special = read(
        decoder_start_token_id=[5], forced_bos_token_id=[7], forced_eos_token_id=[9, 2], eos_token_id=[2, 3]
    ).special
    assert (special.bos_id, special.forced, special.forced_end, special.other_ends) == (5, (7,), 2, (3,))
    assert read(forced_eos_token_id=None, num_beams=None).special.forced_end is None
    assert read(temperature=0, top_k=-1, top_p=0.0).settings.temperature == 1.0  # unused in a search


def test_ids_that_do_not_exist_have_no_effect() -> None:
    special = read(
        eos_token_id=[50, 2], pad_token_id=40, suppress_tokens=[-1, 3, 99], bad_words_ids=[[99], [4]]
    ).special
    assert (special.eos_id, special.other_ends, special.pad_id, special.suppressed) == (2, (), 2, (3, 4))


def test_the_end_is_no_bad_word() -> None:
    assert read(bad_words_ids=[[2], [5]], eos_token_id=[2, 3]).special.suppressed == (5,)
    assert read(suppress_tokens=[2, 5]).special.suppressed == (2, 5)  # as in transformers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_strings", ["."]),
        ("force_words_ids", [[5]]),
        ("constraints", [{}]),
        ("max_time", 2.0),
        ("token_healing", True),
        ("dola_layers", "low"),
        ("forced_decoder_ids", [[1, 7]]),
        ("forced_decoder_ids", [[1, None], [2, 8]]),
        ("forced_decoder_ids", 5),
    ],
)
def test_settings_without_effect_are_reported(name: str, value: Any) -> None:
    assert read(**{name: value}).unused == (name,)
    assert read(**{name: None}).unused == ()


def test_unknown_settings_are_reported(tmp_path: Path) -> None:
    """Those that are off, and those of transformers that change no output, are not."""
    write = (tmp_path / "generation_config.json").write_text
    write(json.dumps({"eos_token_id": 2, "top_z": 0.5, "beam_width": None, "greedy": False, "use_cache": True}))
    assert read_generation_config(tmp_path, {}, has_encoder=True).unused == ("top_z",)
    write(json.dumps({"eos_token_id": 2, "language": "german", "task": "transcribe", "return_timestamps": False}))
    assert read_generation_config(tmp_path, {}, has_encoder=True).unused == ("language",)
    assert read(d_model=8).unused == (), "of a config.json"


def test_every_setting_of_transformers_is_known() -> None:
    transformers = pytest.importorskip("transformers")
    known = {*NAMES, *CHECKS, *UNSUPPORTED, *HARMLESS.split()}
    assert {*vars(transformers.GenerationConfig())} <= known


def test_biases_of_sequences() -> None:
    """The last bias of a sequence counts, and several words that are not wanted have the bias -inf."""
    found = read(sequence_bias=[[[3, 4], 1], [[5], -2.5], [[3, 4], -math.inf]], bad_words_ids=[[6], [7, 8]])
    assert found.special.sequence_bias == (((3, 4), -math.inf), ((5,), -2.5), ((7, 8), -math.inf))
    assert (found.special.suppressed, found.unused) == ((6,), ())
    assert read(sequence_bias=[]).special.sequence_bias == read(sequence_bias=None).special.sequence_bias == ()
    assert read(repetition_penalty=2).settings.repetition_penalty == 2


def test_the_usual_start_of_whisper_is_no_report() -> None:
    usual = {"task_to_id": {"transcribe": 8, "translate": 9}, "no_timestamps_token_id": 11}
    for pairs in ([[1, None], [2, 8]], [[1, None], [2, 8], [3, 11]], [], [[]]):
        assert read(**usual, forced_decoder_ids=pairs).unused == ()
    assert read(**usual, forced_decoder_ids=[[1, None], [2, 9]]).unused == ("forced_decoder_ids",)


def test_a_model_translates_with_lists_of_ids(tmp_path: Path) -> None:
    write_tiny(tmp_path, "marian")
    texts = []
    for forced in (None, 2, [2], [2, 2]):
        settings = {"max_length": 6, "forced_eos_token_id": forced, "decoder_start_token_id": [1]}
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        texts.append(headwise.load(tmp_path, "cpu").translate(["ab"])[0].text)
    assert texts[1] == texts[2] == texts[3] != texts[0]
