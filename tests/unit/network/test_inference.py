"""What `prepare_for_inference` returns: the model itself, a copy in half precision, or the packed network."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.native.library import library
from headwise.native.network import CompiledNetwork
from headwise.network.inference import PrecisionVariants, prepare_for_inference
from headwise.network.transformer import Transformer

SRC = torch.tensor([[7, 5, 10, 3, 8, 2], [4, 9, 2, 0, 0, 0], [6, 6, 4, 2, 0, 0]])
SRC_MASK = SRC != 0
Build = Callable[..., Transformer]
needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is missing")


def logits(model: Any, tokens: Tensor) -> Tensor:
    """Logits after the last of `tokens`, decoded one at a time."""
    with torch.no_grad():
        cache = model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)
        steps = [model.decode(token, cache.memory, cache.src_mask, cache) for token in tokens.split(1, dim=1)]
        return model.logits(steps[-1])


@needs_library
def test_preparing_leaves_the_model_alone(build_small: Build) -> None:
    model = build_small().float().train()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    assert isinstance(prepare_for_inference(model), CompiledNetwork)
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_without_the_library_the_model_decodes_itself(build_small: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """int8 is a `UserError`."""
    monkeypatch.setattr("headwise.network.inference.native_available", lambda model: False)
    model = build_small().float()
    assert prepare_for_inference(model) is model
    with pytest.raises(UserError, match=r"int8 is computed by the compiled library, which .+; leave it out"):
        prepare_for_inference(model, "int8")


@pytest.mark.parametrize(("compute", "computed"), [("bfloat16", torch.float32), ("float16", torch.float16)])
def test_half_precision_is_a_copy(
    build_small: Build, compute: str, computed: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the library; bfloat16 rounds weights only."""
    monkeypatch.setattr("headwise.network.inference.native_available", lambda model: False)
    model = build_small().float()
    half = prepare_for_inference(model, compute)
    tokens = torch.randint(3, 11, (3, 3))
    wanted, got = logits(model, tokens), logits(half, tokens)
    assert got.dtype == computed and not torch.equal(got, wanted)
    assert (got.float() - wanted).abs().max() < 0.1 * wanted.std()
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@needs_library
def test_prepared_networks_are_cached_until_the_model_changes(build_small: Build) -> None:
    forms = PrecisionVariants(model := build_small().float())
    first, other = forms("float32"), forms("int8")
    assert forms("float32") is first and forms("int8") is other and first is not other
    with torch.no_grad():
        model.output.weight.mul_(2)
    assert forms("float32") is not first
