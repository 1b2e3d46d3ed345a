"""Every change to a network is noticed: the compiled library does not run a network that `build` would not make."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.core.build import build
from headwise.pytorch.search.changes import NOT_COMPARED, change_of
from headwise.pytorch.search.inference import PrecisionVariants, prepare_for_inference
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

STACK = StackConfig(8, 1, 2, 8, 4, positions="sinusoidal", activation="relu", max_len=9)
TEXT = StackConfig(
    8, 1, 2, 8, 4, norm="rms", gated=True, normalise_heads=True, windows=(3,), score_scale=1.0, rotary=RotaryConfig(4)
)
NETWORKS = {
    "encoder-decoder": NetworkConfig("none", 9, STACK, STACK, head_bias=True),
    "decoder": NetworkConfig("none", 9, decoder=TEXT, logit_scale=0.5),
    "speech": NetworkConfig("none", 9, STACK, STACK, front="audio", n_mels=2),
}
Changes = Iterator[Callable[[], Any]]  # functions that each make one change to a module


def hooks(module: nn.Module) -> Changes:
    yield lambda: module.register_forward_hook(lambda *_: None)
    yield lambda: module.register_forward_pre_hook(lambda *_: None)


def methods(module: nn.Module) -> Changes:
    for name in ("forward", "queries", "logits", "finish"):
        yield lambda name=name: setattr(module, name, lambda *_: None)


def subclasses(module: nn.Module) -> Changes:
    yield lambda: setattr(module, "__class__", type("Own", (type(module),), {}))


def attributes(module: nn.Module) -> Changes:
    for name, value in vars(module).items():
        if name not in NOT_COMPARED:
            other = value + 1 if isinstance(value, int | float) else object()
            yield lambda name=name, other=other: setattr(module, name, other)
            yield lambda name=name: delattr(module, name)


def settings_of_kernels(module: nn.Module) -> Changes:
    if hasattr(module, "kernel"):
        kernel: Any = copy.deepcopy(module.kernel)
        getattr(kernel, "kernel", kernel).scale += 1
        yield lambda: setattr(module, "kernel", kernel)


def parameters(module: nn.Module) -> Changes:
    yield lambda: module.register_parameter("another", nn.Parameter(torch.zeros(1)))
    for name, parameter in module._parameters.items():
        other = nn.Parameter(torch.zeros(9) if parameter is None else parameter.detach()[1:])
        yield lambda name=name, other=other: setattr(module, name, other)
        if parameter is not None:
            yield lambda name=name: setattr(module, name, None)


def modules(module: nn.Module) -> Changes:
    yield lambda: module.register_module("another", nn.Identity())
    for name in module._modules:
        yield lambda name=name: module.register_module(name, nn.Flatten())
        yield lambda name=name: delattr(module, name)


@contextmanager
def undone(module: nn.Module) -> Iterator[None]:
    """At the end the module has its class and its attributes again, with their items."""
    kind = type(module)
    before = {name: value.copy() if isinstance(value, dict) else value for name, value in vars(module).items()}
    yield
    module.__class__ = kind
    vars(module).clear()
    vars(module).update(before)


@pytest.mark.parametrize(
    "kind", [hooks, methods, subclasses, attributes, settings_of_kernels, parameters, modules], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("config", NETWORKS.values(), ids=NETWORKS)
def test_torch_decodes_whatever_was_changed(config: NetworkConfig, kind: Callable[[nn.Module], Changes]) -> None:
    """One change after another, in every module."""
    network = build(config)
    variants = PrecisionVariants(network)
    assert isinstance(variants("float32"), CompiledNetwork)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path, module in list(network.named_modules()):
            for n, change in enumerate([*kind(module)]):
                with undone(module):
                    change()
                    assert variants("float32") is network, (path, n)
    assert isinstance(variants("float32"), CompiledNetwork), "undone"


def test_a_hook_on_every_module_counts() -> None:
    network = build(NETWORKS["decoder"])
    handle = nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    try:
        assert prepare_for_inference(network) is network
    finally:
        handle.remove()
    assert isinstance(prepare_for_inference(network), CompiledNetwork)


@pytest.mark.parametrize("config", NETWORKS.values(), ids=NETWORKS)
def test_what_computes_the_same_is_no_change(config: NetworkConfig) -> None:
    """Other values of parameters, copies, parameters no longer shared, another rate of dropout."""
    network = build(config)
    for parameter in network.parameters():
        parameter.data.mul_(2)
    network.head.output.weight = nn.Parameter(network.head.output.weight.detach().clone())
    for module in network.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    assert change_of(network) == change_of(copy.deepcopy(network).bfloat16().train()) == ""


def test_a_network_that_build_did_not_make_is_for_torch() -> None:
    made = build(NETWORKS["decoder"])
    network = type(made)(made.embeddings, made.decoder, made.head)
    assert prepare_for_inference(network) is network
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PrecisionVariants(network)("float32") is network
