"""One class of models: it declares every method, and a model has those that its network is for."""

import inspect
from pathlib import Path
from pydoc import plaintext, render_doc
from typing import get_type_hints

import pytest
from tiny_families import write_tiny

import headwise
from headwise.errors import UserError
from headwise.models.load import load_translator, load_translators
from headwise.models.model import METHODS, Model
from headwise.tasks.train import train

DOES = {  # kind of checkpoint: what it reads and writes, two methods that it has, two that it has not
    "bert": ("reads texts", ("embed", "fill_mask"), ("translate", "transcribe")),
    "gpt2": ("continues texts", ("generate", "perplexity"), ("translate", "fill_mask")),
    "t5": ("reads a text and writes another", ("translate", "align"), ("fill_mask", "classify")),
    "vit": ("reads pictures", ("label",), ("embed", "generate")),
    "captions": ("looks at a picture and writes a caption", ("caption", "attend"), ("label", "generate")),
    "whisper": ("hears speech and writes it down", ("transcribe",), ("translate", "restore")),
}


@pytest.mark.parametrize("kind", DOES)
def test_an_error_says_what_a_model_can_do(kind: str, tmp_path: Path) -> None:
    write_tiny(tmp_path, kind)
    model, (does, able, unable) = headwise.load(tmp_path, "cpu"), DOES[kind]
    assert isinstance(model, headwise.Model)
    for name in able:
        assert callable(getattr(model, name))
        assert name in dir(model) and name in model.methods
    for name in unable:
        assert not hasattr(model, name)
        assert name not in dir(model) and name not in model.methods
        with pytest.raises(UserError, match=f"this {model.info()['family']} {does}") as refused:
            getattr(model, name)(["a dog"])
        message = str(refused.value)
        assert message.startswith(str(tmp_path)) and message.endswith(f"and not {name}") and "\n" not in message
        assert all(word in message for word in able)


def test_an_unknown_name_is_an_ordinary_attribute_error(tmp_path: Path) -> None:
    write_tiny(tmp_path, "bert")
    with pytest.raises(AttributeError, match="has no attribute 'fil_mask'") as refused:
        _ = headwise.load(tmp_path, "cpu").fil_mask
    assert not isinstance(refused.value, UserError)


def test_every_method_is_documented_in_one_place() -> None:
    text = render_doc(Model, renderer=plaintext)
    for name in METHODS:
        function = getattr(Model, name)
        assert inspect.isfunction(function) and function.__doc__
        assert f" {name}(" in text


def test_whatever_loads_returns_a_model() -> None:
    assert {get_type_hints(load)["return"] for load in (headwise.load, load_translator, load_translators, train)} == {
        Model
    }
    assert headwise.Model is Model
