"""One class of models: the verbs that a kind lacks are refused in one line, and all of them have a signature."""

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest
from tiny_families import write_tiny

import sightline
from sightline.errors import UserError
from sightline.models.kinds import kind_of
from sightline.models.load import load_translator, load_translators
from sightline.models.model import VERBS, Model
from sightline.signatures import Verbs
from sightline.tasks.train import train

DOES = {  # kind of checkpoint: what it reads and writes, two verbs that it has, two that it has not
    "bert": ("reads texts", ("embed", "fill_mask"), ("translate", "transcribe")),
    "gpt2": ("writes texts on", ("generate", "perplexity"), ("translate", "forecast")),
    "t5": ("reads a text and writes another", ("translate", "align"), ("fill_mask", "classify")),
    "vit": ("reads pictures", ("label",), ("embed", "generate")),
    "captions": ("looks at a picture and writes a caption", ("caption", "attend"), ("label", "generate")),
    "whisper": ("hears speech", ("transcribe",), ("translate", "restore")),
}


@pytest.mark.parametrize("kind", DOES)
def test_what_a_model_cannot_do_is_said_in_one_line(kind: str, tmp_path: Path) -> None:
    write_tiny(tmp_path, kind)
    model, (does, able, unable) = sightline.load(tmp_path, "cpu"), DOES[kind]
    assert isinstance(model, sightline.Model)
    for verb in able:
        assert callable(getattr(model, verb))
    for verb in unable:
        assert not hasattr(model, verb)
        assert verb not in dir(model)
        with pytest.raises(UserError, match=f"this {model.info()['family']} {does}") as refused:
            getattr(model, verb)(["a dog"])
        said = str(refused.value)
        assert said.startswith(str(tmp_path)) and said.endswith(f"and not {verb}") and "\n" not in said
        assert all(word in said for word in able)


def test_a_name_that_is_no_verb_is_none(tmp_path: Path) -> None:
    write_tiny(tmp_path, "bert")
    with pytest.raises(AttributeError, match="has no attribute 'fil_mask'") as refused:
        _ = sightline.load(tmp_path, "cpu").fil_mask
    assert not isinstance(refused.value, UserError)


def test_every_verb_has_a_signature() -> None:
    declared = {name for name, _ in inspect.getmembers(Verbs, inspect.isfunction)}
    assert declared - {"settings"} == set(VERBS)


def test_whatever_loads_says_that_it_is_a_model() -> None:
    assert {get_type_hints(load)["return"] for load in (sightline.load, load_translator, load_translators, train)} == {
        Model
    }
    assert sightline.Model is Model
    assert issubclass(get_type_hints(kind_of)["return"].__args__[0], Model)
