"""What `prepare_for_inference` returns: the model itself, a copy in half precision, or the packed network."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.config.settings import SearchSettings
from headwise.contract import Limits, SearchOptions
from headwise.core.search import allowed_log_probs
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.inference import PrecisionVariants, prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.engine import decode_tokens

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
    monkeypatch.setattr("headwise.pytorch.search.inference.native_available", lambda model: False)
    model = build_small().float()
    assert prepare_for_inference(model) is model
    with pytest.raises(UserError, match=r"int8 is computed by the compiled library, which .+; leave it out"):
        prepare_for_inference(model, "int8")


@pytest.mark.parametrize(("compute", "computed"), [("bfloat16", torch.float32), ("float16", torch.float16)])
def test_half_precision_is_a_copy(
    build_small: Build, compute: str, computed: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the library; bfloat16 rounds weights only."""
    monkeypatch.setattr("headwise.pytorch.search.inference.native_available", lambda model: False)
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


@pytest.mark.parametrize("automatic", ["float16", "bfloat16", "float32"])
def test_auto_is_the_precision_of_the_device(build_small: Build, automatic: str) -> None:
    """A choice of the user counts more; stop strings need the model itself."""
    forms = PrecisionVariants(model := build_small().float(), automatic)
    assert forms.automatic == automatic and forms("auto") is forms(automatic)
    assert forms("float32") is not forms("float16") and forms("torch") is model


def test_auto_keeps_half_precision_of_a_file(build_small: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.pytorch.search.inference.native_available", lambda model: False)
    model = build_small().bfloat16()
    assert PrecisionVariants(model, "float16")("auto") is model


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_in_half_precision_are_float32(build_small: Build, dtype: torch.dtype) -> None:
    """The log-softmax of logits in half precision is computed in float32, and so is the sum of an output."""
    model = build_small().to(dtype).eval()
    sources = [[7, 5, 10, 3, 8], [4, 9]]
    for beam_size in (1, 3):
        settings = SearchSettings(beam_size=beam_size, max_length_factor=1.0, max_length_extra=4)
        for [best, *_] in decode_tokens(engine_of(model), sources, settings):
            scores = torch.tensor(best.token_log_probs, dtype=torch.float64)
            assert not torch.equal(scores.to(dtype).double(), scores)  # would be rounded otherwise
            assert best.log_prob == pytest.approx(float(scores.sum()), rel=1e-6)
    logits = torch.randn(2, 11).to(dtype)
    limits = Limits(torch.zeros(2).long(), torch.full((2,), 9), torch.empty(2, 0).long())
    found = allowed_log_probs(logits, torch.empty(2, 0).long(), limits, SearchOptions(suppressed=()))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[:, 4:].double(), logits.double().log_softmax(-1)[:, 4:], rtol=1e-6, atol=0)
