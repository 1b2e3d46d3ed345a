"""bfloat16 weights give the same results as rounded weights in float32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from unit.native.test_families import NETWORKS, STACKS, configured, searched
from unit.native.test_families import build as build_family
from unit.native.test_families import logits as family_logits

from headwise.config.data import TranslationData
from headwise.config.settings import SearchSettings
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.compiled import pack_network
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.library import library
from headwise.runtime.native.linear import Linear, to_bfloat16
from headwise.runtime.native.network import CompiledEnsemble, CompiledNetwork
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import decode_tokens
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.tokenizer import Tokenizer

needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is missing")
Build = Callable[..., Transformer]
SIZES: dict[str, dict[str, Any]] = {
    "of whole registers": {"d_model": 64, "n_heads": 2},  # heads of 32, whose root is no power of 2
    "of any size": {"d_model": 20, "d_ff": 33, "n_heads": 4},
    "norms first, positions learned": {"norm_position": "pre", "positions": "learned", "max_len": 80},
    "three tables": {"tied_embeddings": "none"},
}
# Between two neighbours, at their middle, beyond the largest, and none.
HARD = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 3 * 2**-9, 1e-40, -0.0, 3.4e38, np.inf, -np.inf]


def by_torch(array: Any) -> Any:
    """Rounded to bfloat16, as float32."""
    return torch.from_numpy(np.asarray(array, np.float32)).bfloat16().float().numpy()


@torch.no_grad()
def with_rounded_matrices(model: Transformer) -> Transformer:
    """The model with all matrices rounded, in place, except position encodings."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "positions" not in name:
            parameter.copy_(parameter.bfloat16())
    return model


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@needs_library
def test_rounding_to_nearest(instructions: str) -> None:
    numbers = np.concatenate([np.float32(HARD), drawn(5000), 1e30 * drawn(777)])
    found = (to_bfloat16(numbers).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, by_torch(numbers))
    assert np.isnan((to_bfloat16(np.float32([np.nan, -np.nan])).astype(np.uint32) << 16).view(np.float32)).all()


@needs_library
@pytest.mark.parametrize("d_out", [1, 16, 17, 100])
@pytest.mark.parametrize("d_in", [1, 8, 36, 512])
def test_products_use_rounded_weights(instructions: str, d_out: int, d_in: int) -> None:
    """Bit-identical: inputs, sums and bias are float32."""
    weight, bias = drawn(d_out, d_in), drawn(d_out)
    layer, wanted = Linear(weight, bias, "bfloat16"), Linear(by_torch(weight), bias)
    for rows in (1, 2, 5, 30):
        x = drawn(rows, d_in)
        np.testing.assert_array_equal(layer(x), wanted(x))
    assert d_in < 8 or np.abs(wanted(x) - Linear(weight, bias)(x)).max() > 1e-4


@needs_library
def test_a_layer_takes_half_the_memory() -> None:
    loaded = library()
    assert loaded is not None
    whole, half = (loaded.headwise_linear_size(512, 512, kind) for kind in (0, 2))
    assert whole - half == 2 * 512 * 512


@needs_library
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_search_uses_rounded_weights(build: Build, sentences: Any, sizes: dict[str, Any], beam_size: int) -> None:
    """Bit-identical ids and scores: in batches, alone, with a shortlist, and as an ensemble."""
    model, sources = build(2.0, vocab_size=60, **sizes), sentences(7, 1, 12, 5, 30, vocab=60)
    config = SearchSettings(beam_size=beam_size, n_best=beam_size, max_length_extra=10)
    few = CandidateTable(np.array([7, 8]), np.random.default_rng(0).integers(4, 60, (60, 4)))
    exact, form = pack_network(model, "float32"), pack_network(model, "bfloat16")
    wanted = pack_network(with_rounded_matrices(model), "float32")
    found = decode_tokens(engine_of(form), sources, config)
    assert (
        found == decode_tokens(engine_of(wanted), sources, config) != decode_tokens(engine_of(exact), sources, config)
    )
    assert found == [decode_tokens(engine_of(form), [source], config)[0] for source in sources]
    assert decode_tokens(engine_of(form), sources, config, shortlist=few) == decode_tokens(
        engine_of(wanted), sources, config, shortlist=few
    )
    assert decode_tokens(engine_of(CompiledEnsemble((form, form))), sources, config) == found


@needs_library
@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_networks_of_the_families(stack: dict[str, Any]) -> None:
    model = build_family(stack, **NETWORKS["two vocabularies"])
    form, config = pack_network(model, "bfloat16"), configured({"beam_size": 3, "n_best": 3})
    wanted = pack_network(with_rounded_matrices(model), "float32")
    assert searched(form, config) == searched(wanted, config)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_torch_gives_the_same_results(stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library: rounded weights in float32."""
    model, tgt_in = build_family(stack), torch.randint(1, 24, (4, 9))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    monkeypatch.setattr("headwise.pytorch.search.inference.native_available", lambda model: False)
    found = family_logits(prepare_for_inference(model, "bfloat16"), tgt_in)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    wanted = family_logits(with_rounded_matrices(model), tgt_in)
    assert torch.equal(found, wanted)


@needs_library
def test_bfloat16_parameters_are_packed_in_bfloat16() -> None:
    model = build_family().bfloat16()
    form = prepare_for_inference(model)
    assert isinstance(form, CompiledNetwork) and form.output.numbers == "bfloat16"
    assert searched(form, configured()) == searched(pack_network(model.float(), "float32"), configured())


def test_stop_strings_are_refused() -> None:
    tokenizer = Tokenizer.train(["A dog runs."] * 3, TranslationData(vocab_size=270))
    translator = TextTranslator(engine_of(build_family()), tokenizer)
    with pytest.raises(UserError, match=r"compute = bfloat16.*not.*`stop`"):
        translator.engine(SearchSettings(stop=("x",), compute="bfloat16"))
