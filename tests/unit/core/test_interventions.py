"""Hooks and replaced modules affect decoding, too."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from unit.checkpoint.test_compiled import SMALL, TEXTS, TOKENIZER, network, small_model

import headwise
from headwise.core.attention import DotProduct
from headwise.errors import UserError
from headwise.pytorch.search.changes import change_of
from headwise.pytorch.search.inference import PrecisionVariants
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.translator import TextTranslator

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model")


class Sharper(DotProduct):
    def __call__(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return super().__call__(3 * q, k, v, mask)


def doubled(*given: Any) -> Any:
    return 2 * given[-1]


def kernels(model: Any) -> None:
    for layer in model.decoder.layers:
        layer.cross_attn.kernel = Sharper()


def scaled(model: Any) -> None:
    """The kernel stays the same object."""
    for layer in model.decoder.layers:
        layer.cross_attn.kernel.scale = 3.0


def norms_first(model: Any) -> None:
    """The library would support it only if all layers had it."""
    for module in model.modules():
        if hasattr(module, "norm_first"):
            module.norm_first = not module.norm_first


def bypassed(model: Any) -> None:
    model.encoder.layers[0].ffn.forward = lambda x: x


def replaced(model: Any) -> None:
    model.encoder.layers[0].ffn = nn.Identity()


def gone(model: Any) -> None:
    del model.decoder.layers[-1]


def another_activation(model: Any) -> None:
    for layer in model.decoder.layers:
        layer.ffn.activation = torch.tanh


INTERVENTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "hook": (
        lambda model: model.encoder.layers[0].ffn.register_forward_hook(doubled),
        "a hook on encoder.layers.0.ffn",
    ),
    "pre-hook": (
        lambda model: model.decoder.layers[0].register_forward_pre_hook(lambda _, given: (2 * given[0], *given[1:])),
        "a hook on decoder.layers.0",
    ),
    "kernel": (kernels, "another kernel of decoder.layers.0.cross_attn"),
    "scale": (scaled, "another kernel.scale of decoder.layers.0.cross_attn"),
    "norm_first": (norms_first, "another norm_first of encoder.layers.0.self_attn_sublayer"),
    "forward": (bypassed, "another forward of encoder.layers.0.ffn"),
    "module": (replaced, "another module encoder.layers.0.ffn"),
    "layer": (gone, "another module decoder.layers"),
    "activation": (another_activation, "another activation of decoder.layers.0.ffn"),
}


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("name", "first"), [*((name, False) for name in INTERVENTIONS), ("hook", True), ("scale", True)]
)
def test_translate_applies_it(folder: Path, name: str, first: bool) -> None:
    """Before and after the first translation, with one warning."""
    model: Any = headwise.load(folder, "cpu")
    change, told = INTERVENTIONS[name]
    usual = None if first else model.translate(TEXTS)
    change(model.network)
    with pytest.warns(UserWarning, match="torch decodes from now on") as warned:
        found = model.translate(TEXTS)
        assert model.translate(TEXTS) == found
    assert len(warned) == 1 and str(warned[0].message).startswith(told)
    assert found == TextTranslator(engine_of(model.network), TOKENIZER, model.decode_config).translate(TEXTS), (
        "as torch computes it"
    )
    assert found != (usual or headwise.load(folder, "cpu").translate(TEXTS))
    assert model._loaded.changed, "other processes would read the folder"
    with pytest.raises(UserError, match=f"int8.*not.*{told}"):
        model.translate(TEXTS, compute="int8")


def test_an_undone_intervention_has_no_effect(folder: Path) -> None:
    model: Any = headwise.load(folder, "cpu")
    before, wanted = model.network, model.translate(TEXTS)
    handle = before.encoder.register_forward_hook(doubled)
    with pytest.warns(UserWarning, match="a hook on encoder:"):
        assert model.translate(TEXTS) != wanted
    handle.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.translate(TEXTS, compute="int8") and model.translate(TEXTS) == wanted
    assert not model._loaded.changed


def test_hooks_on_all_modules_count(folder: Path) -> None:
    model: Any = headwise.load(folder, "cpu")
    _ = model.network
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.warns(UserWarning, match="a hook on every module"):
            model.translate(TEXTS)
    finally:
        handle.remove()


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_copies_in_other_precisions_include_it(folder: Path, compute: str) -> None:
    model: Any = headwise.load(folder, "cpu")
    forms = PrecisionVariants(model.network)
    usual = forms(compute)
    model.network.encoder.register_forward_hook(doubled)
    with pytest.warns(UserWarning, match="a hook on encoder"):
        form: Any = forms(compute)
    assert form is not usual and not isinstance(form, CompiledNetwork)
    assert len(form.encoder._forward_hooks) == 1


def test_changed_parameters_are_no_intervention(folder: Path) -> None:
    """Changed in place, and replaced by another tensor."""
    model: Any = headwise.load(folder, "cpu")
    forms = PrecisionVariants(model.network)
    first = forms("float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad():
            model.network.encoder.layers[0].ffn.up_proj.weight.mul_(2)
        second = forms("float32")
        weight = model.network.encoder.layers[0].ffn.down_proj.weight
        weight.data = weight.data.clone() * 2
        third = forms("float32")
    assert all(isinstance(form, CompiledNetwork) for form in (first, second, third))
    assert first is not second and second is not third and forms("float32") is third
    assert forms.changed


def test_a_forward_pass_is_no_intervention() -> None:
    """Buffers such as tables of positions are not compared."""
    model = network(SMALL)
    ids, mask = torch.tensor([[5, 6, 2]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad():
        model.decode(ids, model.encode(ids, mask), mask)
    assert change_of(model) == ""
    model.train()  # decoding uses no dropout in either mode
    assert change_of(model) == ""
