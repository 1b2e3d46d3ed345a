"""Each kind of model is a class with the methods that it has."""

import inspect
import runpy
from pathlib import Path
from pydoc import plaintext, render_doc
from typing import Any, get_type_hints

import pytest
from tiny_families import write_tiny

import headwise
from headwise.errors import UserError
from headwise.models import kinds
from headwise.models.kinds import KINDS, TRAINED
from headwise.models.load import load_translator, load_translators
from headwise.models.model import METHODS, Model
from headwise.models.pretrained import PretrainedNetwork
from headwise.models.translation.ensemble import Ensemble
from headwise.models.translation.translator import Translator
from headwise.pytorch.tasks.train import train

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


@pytest.mark.parametrize("kind", DOES)
def test_a_notebook_shows_family_and_size(kind: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "it", kind)
    model = headwise.load(tmp_path / "it", "cpu")
    shown = repr(model)
    assert shown.startswith(f"{type(model).__name__}(it: {model.info()['family']}, ") and " layers, d_model " in shown
    assert shown.endswith(f", {model.info()['parameters']:,} parameters)")


def test_an_unknown_name_is_an_ordinary_attribute_error(tmp_path: Path) -> None:
    write_tiny(tmp_path, "bert")
    with pytest.raises(AttributeError, match="has no attribute 'fil_mask'") as refused:
        _ = headwise.load(tmp_path, "cpu").fil_mask
    assert not isinstance(refused.value, UserError)


ALL_KINDS = [
    *(Translator if kind is PretrainedNetwork else kind for kind in KINDS.values()),
    *TRAINED.values(),
    Ensemble,
]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_class_has_ordinary_methods_with_documentation(kind: type[Model]) -> None:
    own = [name for name in METHODS if hasattr(kind, name)]
    text = render_doc(kind, renderer=plaintext)
    for name in own:
        assert inspect.isfunction(getattr(kind, name)) and inspect.getdoc(getattr(kind, name)), name
        assert f" {name}(" in text
    others = [function for name, function in inspect.getmembers(kind, inspect.isfunction) if name not in METHODS]
    assert all(inspect.getdoc(one) for one in others if not one.__name__.startswith("_"))


def test_every_method_belongs_to_a_kind() -> None:
    assert {name for kind in ALL_KINDS for name in METHODS if hasattr(kind, name)} == {*METHODS}


def test_the_type_checker_sees_the_methods_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typing.TYPE_CHECKING", True)
    every: Any = runpy.run_path(kinds.__file__)["AnyModel"]
    for kind in ALL_KINDS:
        assert [name for name in METHODS if hasattr(kind, name) and not hasattr(every, name)] == []
    assert all(inspect.getdoc(getattr(every, name)) for name in METHODS)
    assert inspect.signature(every.mask_heads).parameters.keys() == {"self", "heads"}


def test_whatever_loads_returns_a_model() -> None:
    assert {get_type_hints(load)["return"] for load in (headwise.load, load_translator, load_translators, train)} == {
        Model
    }
    assert headwise.Model is Model
