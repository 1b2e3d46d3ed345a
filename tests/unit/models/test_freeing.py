"""`del model` frees a model at once: nothing of it waits for the cyclic garbage collector."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_families import write_tiny
from unit.checkpoint.test_compiled import TEXTS, small_model

import headwise


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model")


def trained(model: Any) -> list[Any]:
    """What the compiled library has, then the torch module with its forms."""
    model.translate(TEXTS)
    library = model._loaded.stored._compiled.get("float32")
    model.score(TEXTS, TEXTS)
    model.translate(TEXTS)
    with model.mask_heads({"cross": {0: [0]}}):
        model.translate(TEXTS)
    return [
        part for part in (library, model._loaded.stored, model.network, model._loaded.stored._forms) if part is not None
    ]


def test_a_trained_model(folder: Path, uncollected: None) -> None:
    model: Any = headwise.load(folder, "cpu")
    parts = [weakref.ref(part) for part in (model, *trained(model))]
    del model
    assert [part() for part in parts] == [None] * len(parts)


def test_an_ensemble(folder: Path, uncollected: None) -> None:
    model: Any = headwise.load([folder, folder], "cpu")
    model.translate(TEXTS)
    parts = [weakref.ref(part) for part in (model, *model.models, *(each.network for each in model.models))]
    del model
    assert [part() for part in parts] == [None] * len(parts)


USES = {
    "m2m": lambda model: model.generate(["ab"], max_new_tokens=2),
    "gpt2": lambda model: (model.generate(["ab"], max_new_tokens=2), model.perplexity("abcd")),
    "bert": lambda model: model.embed(["ab"]),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", USES)
def test_a_published_model(kind: str, tmp_path: Path, uncollected: None) -> None:
    write_tiny(tmp_path, kind)
    model: Any = headwise.load(tmp_path, "cpu")
    USES[kind](model)
    parts = [weakref.ref(part) for part in (model, model.network)]
    del model
    assert [part() for part in parts] == [None] * len(parts)
