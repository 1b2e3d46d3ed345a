"""Interventions: each against the same network changed by hand, in torch and in translations, and undone exactly."""

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from unit.checkpoint.test_compiled import SMALL, TEXTS, TOKENIZER, small_model

import headwise
from headwise.config.model import RecurrentConfig
from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.core.attention import DotProduct, MultiHeadAttention, NoRotation, Windowed, masked_softmax
from headwise.core.build import build
from headwise.core.layers import Sublayer
from headwise.core.masks import Everywhere
from headwise.core.positions import NoPositions
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.interventions import intervene
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.training.extra_dropout import DropoutRates, DroppingKernel, add_dropout
from headwise.pytorch.training.packed import attention_for
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.translator import TextTranslator

SRC = torch.tensor([[7, 5, 10, 3, 2], [4, 9, 2, 0, 0]])
SRC_MASK = SRC != 0
TGT_IN = torch.tensor([[1, 8, 8, 4], [1, 3, 6, 5]])
STACK = StackConfig(d_model=8, n_layers=2, n_heads=2, d_ff=12, d_head=4)


def network() -> Any:
    torch.manual_seed(1)
    model = build_model(SMALL).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(SRC, TGT_IN, SRC_MASK)


class Even:
    """Every visible position has the same weight."""

    def __call__(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return self.weights(q, k, mask) @ v

    def weights(self, q: Any, k: Any, mask: Any) -> Any:
        return masked_softmax(torch.zeros_like(q @ k.transpose(-2, -1)), mask)


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def attentions(model: Any) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def with_kernels(model: Any, kernel: Any) -> None:
    for attention in attentions(model):
        attention.kernel = kernel


def without_residuals(model: Any) -> None:
    sublayers: list[Any] = [module for module in model.modules() if isinstance(module, Sublayer)]
    for sublayer in sublayers:
        sublayer.forward = lambda x, f, *rest, norm=sublayer.norm: norm(f(x, *rest))  # post-norm, without dropout


def without_positions(model: Any) -> None:
    model.src_embeddings.positions = NoPositions()
    model.tgt_embeddings.positions = NoPositions()


def without_heads(model: Any) -> None:
    with torch.no_grad():
        model.encoder.layers[1].self_attn.o_proj.weight[:, 8:] = 0.0
        model.decoder.layers[0].cross_attn.o_proj.weight[:, :8] = 0.0


def not_causal(model: Any) -> None:
    model.decoder.reach = Everywhere()


def edited(model: Any) -> None:
    attention = model.decoder.layers[1].cross_attn
    model.encoder.layers[0].ffn = Function(lambda x: torch.zeros_like(x))
    attention.v_proj = Function(lambda x, v=attention.v_proj: 3 * v(x))


INTERVENTIONS: dict[str, tuple[dict[str, Any], Callable[[Any], None]]] = {
    "scale": ({"scale": 1.0}, lambda model: with_kernels(model, DotProduct(1.0))),
    "temperature": ({"temperature": 4.0}, lambda model: with_kernels(model, DotProduct(8**-0.5 / 4))),
    "kernel": ({"kernel": Even()}, lambda model: with_kernels(model, Even())),
    "residuals": ({"residuals": False}, without_residuals),
    "positions": ({"positions": False}, without_positions),
    "silence": ({"silence": {"encoder": {1: [1]}, "cross": {0: [0]}}}, without_heads),
    "causal": ({"causal": False}, not_causal),
    "outputs": (
        {"outputs": {"encoder.layers.0.ffn": 0.0, "decoder.layers.1.cross_attn.v_proj": lambda v: 3 * v}},
        edited,
    ),
}
each = pytest.mark.parametrize("name", INTERVENTIONS)


def by_hand(model: Any, name: str) -> Any:
    changed = copy.deepcopy(model)
    INTERVENTIONS[name][1](changed)
    return changed


@each
def test_an_intervention_is_the_network_changed_by_hand(name: str) -> None:
    """Up to the rounding of one product: a temperature divides the queries, a scale multiplies the scores."""
    model = network()
    before, wanted = logits(model), logits(by_hand(model, name))
    with intervene(model, **INTERVENTIONS[name][0]) as changed:
        assert changed is model
        torch.testing.assert_close(logits(model), wanted)
    assert not torch.allclose(wanted, before)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("name", sorted(INTERVENTIONS.keys() - {"causal"}))
def test_decoding_with_a_cache_includes_it(name: str) -> None:
    model = network()
    with intervene(model, **INTERVENTIONS[name][0]), torch.no_grad():
        wanted = logits(model)
        memory = model.encode(SRC, SRC_MASK)
        cache = model.start_cache(memory, SRC_MASK)
        steps = [model.decode(TGT_IN[:, i : i + 1], memory, SRC_MASK, cache) for i in range(TGT_IN.size(1))]
        torch.testing.assert_close(model.logits(torch.cat(steps, 1)), wanted)


def test_without_the_causal_mask_a_position_depends_on_later_ones() -> None:
    model = network()
    longer, other = logits(model), TGT_IN.clone()
    other[:, -1] += 1
    with torch.no_grad():
        assert torch.equal(model(SRC, other, SRC_MASK)[:, :-1], longer[:, :-1])
        with intervene(model, causal=False):
            assert not torch.allclose(model(SRC, other, SRC_MASK)[:, 0], logits(model)[:, 0])


@pytest.mark.few(4)
@each
def test_translations_include_it(tmp_path: Path, name: str) -> None:
    """As torch translates with the network changed by hand; without a warning, and afterwards as before."""
    model: Any = headwise.load(small_model(tmp_path / "model"), "cpu")
    arguments = {"beam_size": 2, "prefix": "A d"}  # several tokens at once, so that the mask matters
    usual = model.translate(TEXTS, **arguments)
    hand = TextTranslator(engine_of(by_hand(model.network, name)), TOKENIZER, model.decode_config)
    wanted = hand.translate(TEXTS, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with intervene(model, **INTERVENTIONS[name][0]):
            found = model.translate(TEXTS, **arguments)
            assert not isinstance(model._loaded.engine("float32"), CompiledNetwork) and model.engine == "torch"
            with pytest.raises(UserError, match="does not support an intervention; undo that"):
                model.translate(TEXTS, compute="int8")
            assert model.translate(TEXTS, compute="bfloat16", **arguments)
        assert model.translate(TEXTS, **arguments) == usual
    assert [one.text for one in found] == [one.text for one in wanted]
    scores = zip([one.score for one in found], [one.score for one in wanted], strict=True)
    assert all(math.isclose(*pair, rel_tol=1e-3) for pair in scores)  # float32 sums of a few dozen terms
    assert [one.score for one in found] != [one.score for one in usual]


@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
def test_afterwards_the_library_translates_again(tmp_path: Path) -> None:
    model: Any = headwise.load(small_model(tmp_path / "model"), "cpu")
    for arguments, _ in INTERVENTIONS.values():
        with intervene(model, **arguments):
            pass
    assert isinstance(model._loaded.engine("float32"), CompiledNetwork)


def test_they_nest_and_can_be_used_again() -> None:
    model = network()
    before, state = logits(model), {name: value.clone() for name, value in model.state_dict().items()}
    hot, bare = intervene(model, temperature=2.0), intervene(model, positions=False, silence={"cross": {0: [0]}})
    with hot:
        once = logits(model)
        with hot, bare, bare:
            assert not torch.allclose(logits(model), once)
            with intervene(model, silence={"cross": {0: [1]}}):
                logits(model)
        assert torch.equal(logits(model), once)
        with intervene(model, temperature=0.5):
            torch.testing.assert_close(logits(model), before)
    assert torch.equal(logits(model), before)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_an_exception_undoes_it() -> None:
    model = network()
    before, parts = logits(model), [name for name, _ in model.named_modules()]
    everything: dict[str, Any] = {}
    for arguments, _ in INTERVENTIONS.values():
        everything |= arguments
    del everything["scale"]  # the other kernel has none
    with pytest.raises(KeyError), intervene(model, **everything):
        raise KeyError
    assert torch.equal(logits(model), before) and [name for name, _ in model.named_modules()] == parts
    assert "intervened" not in vars(model)


def test_an_interrupted_start_undoes_it() -> None:
    model = network()
    before, change = logits(model), intervene(model, scale=1.0, outputs={"decoder.layers.1.ffn": 0.0})
    del model.decoder.layers[1]
    shorter = logits(model)
    with pytest.raises(AttributeError), change:
        pass
    assert torch.equal(logits(model), shorter) and not torch.equal(shorter, before)


def test_where_limits_it() -> None:
    model = network()
    for where, names in {
        "decoder.layers.0": {"decoder.layers.0.self_attn", "decoder.layers.0.cross_attn"},
        "*.cross_attn": {"decoder.layers.0.cross_attn", "decoder.layers.1.cross_attn"},
        "encoder": {"encoder.layers.0.self_attn", "encoder.layers.1.self_attn"},
    }.items():
        with intervene(model, scale=1.0, where=where):
            kernels: dict[str, Any] = {
                name: m.kernel for name, m in model.named_modules() if isinstance(m, MultiHeadAttention)
            }
            assert {name for name, kernel in kernels.items() if kernel.scale == 1.0} == names


def test_training_includes_it() -> None:
    """Packed batches would leave it out."""
    model = build_model(SMALL).train()
    packable = attention_for(model, SRC_MASK)
    with intervene(model, outputs={"encoder.layers.0.self_attn.q_proj": lambda q: q}):
        assert not attention_for(model, SRC_MASK)
    assert attention_for(model, SRC_MASK) == packable


def test_recorded_attention_is_of_the_changed_kernel(tmp_path: Path) -> None:
    model: Any = headwise.load(small_model(tmp_path / "model"), "cpu")
    with intervene(model, kernel=Even()):
        weights = model.attend("A dog runs.").cross[0]
    assert abs(weights - 1 / weights.shape[2]).max() < 1e-6  # one float32 division


@pytest.mark.parametrize("name", ["scale", "positions", "causal", "silence"])
def test_a_walk_follows_it(tmp_path: Path, name: str) -> None:
    """Its weights, which it computes itself, are those of the network; in float32, a softmax of few scores."""
    model: Any = headwise.load(small_model(tmp_path / "model"), "cpu")
    usual = model.walk("A dog runs.", "Ein Hund", stack="decoder", layer=1)[-1].values
    with intervene(model, **INTERVENTIONS[name][0]):
        walk = model.walk("A dog runs.", "Ein Hund", stack="decoder", layer=1)
        record = model.attend("A dog runs.", "Ein Hund")
        walks = model.walks("A dog runs.", "Ein Hund")
        assert walks.steps("decoder", 1, 0)
    for place, weights in (("self_attn", record.decoder[1]), ("cross_attn", record.cross[1])):
        assert abs(walk.step(f"{place}.softmax").values - weights[0]).max() < 1e-5
    assert not np.allclose(walk[-1].values, usual)
    with pytest.raises(UserError, match="an intervention began or ended since this walk was recorded"):
        walks.steps("decoder", 1, 0)


@pytest.mark.parametrize("name", ["temperature", "kernel", "residuals", "outputs"])
def test_a_walk_says_what_it_cannot_follow(tmp_path: Path, name: str) -> None:
    model: Any = headwise.load(small_model(tmp_path / "model"), "cpu")
    with (
        intervene(model, **INTERVENTIONS[name][0]),
        intervene(model, scale=None),
        pytest.raises(UserError, match=f"cannot follow an intervention with {name}"),
    ):
        model.walk("A dog runs.")
    assert model.walk("A dog runs.")


def test_rotations_relative_biases_and_parallel_layers() -> None:
    ids = torch.tensor([[3, 1, 2, 5]])
    rotary = RotaryConfig(width=4)
    for stack in (STACK, StackConfig(**{**vars(STACK), "parallel": "two_norms"})):
        model = build(NetworkConfig("test", 9, decoder=StackConfig(**{**vars(stack), "rotary": rotary}))).double()
        plain = build(NetworkConfig("test", 9, decoder=stack)).double()
        plain.load_state_dict(model.state_dict())
        with torch.no_grad(), intervene(model, positions=False):
            assert torch.equal(model(ids), plain(ids))
        assert not torch.equal(model(ids), plain(ids))
        assert not any(isinstance(attention.rotate, NoRotation) for attention in attentions(model))
    layer, x = model.decoder.layers[0], torch.randn(1, 4, 8).double()
    with torch.no_grad(), intervene(model, residuals=False):
        h = layer.self_attn_sublayer.norm(x)
        assert torch.equal(layer(x, None), layer.self_attn(h, None, None) + layer.ffn(layer.ffn_sublayer.norm(x)))
    assert "forward" not in vars(layer)
    biased = StackConfig(**{**vars(STACK), "relative_buckets": 4})
    model = build(NetworkConfig("test", 9, decoder=biased, encoder=biased)).double()
    plain = build(NetworkConfig("test", 9, decoder=STACK, encoder=STACK)).double()
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        with intervene(model, positions=False):
            assert torch.equal(model(ids, ids), plain(ids, ids))
        with intervene(model, temperature=1e9):  # even weights, whatever the biases; masked pairs stay masked
            hot = model.decode(ids, model.encode(ids))
            with intervene(model, kernel=Even(), positions=False):
                torch.testing.assert_close(hot, model.decode(ids, model.encode(ids)), atol=1e-6, rtol=0)  # e^(1/1e9)


def test_pictures_and_kernels_inside_others() -> None:
    picture = NetworkConfig(
        "vit", encoder=STACK, front="patches", image_size=(4, 4), patch_size=2, n_channels=3, n_prefix=1,
        head="image_class", n_classes=3,
    )  # fmt: skip
    model, pixels = build(picture).double(), torch.randn(1, 3, 4, 4).double()
    add_dropout(model, DropoutRates(attention=0.1))
    model.eval()
    with torch.no_grad():
        model.embeddings.positions.normal_()
        before, changed = model(pixels), copy.deepcopy(model)
        changed.embeddings.positions.zero_()
        with intervene(model, positions=False):
            assert torch.equal(model(pixels), changed(pixels))
        with intervene(model, temperature=3.0):
            assert not torch.equal(model(pixels), before)
        assert torch.equal(model(pixels), before)
    windowed = build(NetworkConfig("test", 9, decoder=StackConfig(**{**vars(STACK), "windows": (2, 2)})))
    inside: Any = windowed.decoder.layers[0].self_attn
    kernel = inside.kernel
    with intervene(windowed, scale=1.0):
        assert isinstance(inside.kernel, Windowed)
        assert vars(inside.kernel.kernel)["scale"] == 1.0
    with intervene(windowed, kernel=DroppingKernel(DotProduct(), 0.0)):  # a module replaces another object
        assert isinstance(inside.kernel, DroppingKernel)
    assert inside.kernel is kernel and kernel.kernel.scale != 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": {"encoder.layer.0": 0.0}}, "unknown module 'encoder.layer.0'; did you mean 'encoder.layers.0'?"),
        ({"outputs": {"": 0.0}}, "unknown module ''"),
        ({"outputs": {"zzz": 0.0}}, "unknown module 'zzz'; `dict("),
        ({"outputs": {"encoder.layers": 0.0}}, "module 'encoder.layers' is a list and has no output"),
        ({"scale": 1.0, "where": "decodr"}, "unknown module 'decodr'; did you mean 'decoder'?"),
        ({"scale": 1.0, "where": "head"}, "where = 'head': has no multi-head attention; 'encoder.layers.0.self"),
        ({"silence": {"cross": {5: [0]}}}, "cross has no layer 5"),
        ({"scale": 0.0}, "scale = 0.0: must be greater than 0"),
        ({"temperature": -1.0}, "temperature = -1.0: must be greater than 0"),
        ({"kernel": 3}, "kernel = 3: must be an attention function"),
        ({"kernel": Even(), "scale": 1.0}, "the attention function Even has no factor on its scores"),
    ],
)  # fmt: skip
def test_errors_are_one_line(arguments: dict[str, Any], message: str) -> None:
    model = network()
    with pytest.raises(UserError) as error:
        intervene(model, **arguments)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_other_architectures_have_outputs_only() -> None:
    shape = RecurrentConfig(vocab_size=11, d_model=8, n_encoder_layers=1, n_decoder_layers=1)
    model = build_network(shape).double().eval()
    for arguments, part in [
        ({"scale": 1.0}, "multi-head attention"),
        ({"residuals": False}, "residual connections"),
        ({"positions": False}, "positions"),
        ({"causal": False}, "causal mask"),
    ]:
        with pytest.raises(UserError, match=f"this network has no {part} to change"):
            intervene(model, **arguments)
    before = logits(model)
    with intervene(model, outputs={"encoder": lambda _: None}):
        assert torch.equal(logits(model), before)
    with intervene(model, outputs={"src_embeddings" if hasattr(model, "src_embeddings") else "encoder": 0.0}):
        assert not torch.equal(logits(model), before)
