"""Networks of the families in the library compared with torch, step by step; and which are supported."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from unit.native.stepping import Steps

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.contract import NEVER, Hypothesis, SpecialIds
from headwise.core.build import build as build_network
from headwise.core.layers import ACTIVATIONS
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.compiled import native_available, unsupported_module
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.compiled import compiled as compile_arrays
from headwise.runtime.checkpoint.compiled import library_shape
from headwise.runtime.checkpoint.generation_config import DEFAULTS, GenerationConfig
from headwise.runtime.checkpoint.shapes import parameter_shapes
from headwise.runtime.native.library import library
from headwise.runtime.native.network import ACTIVATIONS as COMPILED_ACTIVATIONS
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.engine import decode_tokens

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

VOCAB, PAD, END, START = 24, 1, 2, 3
STACK = StackConfig(16, 2, 2, 24, 8, activation="relu", norm_position="post", positions="sinusoidal", max_len=40)
CONFIG = NetworkConfig("none", VOCAB)
SOURCES = [[7, 5, 10, 3, 8, 2], [4, 2], [6, 6, PAD, 9, PAD, 11, 5, 10, 2], [5, 4, 2]]
STACKS: dict[str, dict[str, Any]] = {
    "Marian": {"activation": "silu", "embedding_scale": 4.0},
    "M2M-100": {"norm_position": "pre", "positions": "sinusoidal_tensor2tensor", "position_offset": 2, "count_from": 1},
    "BART": {"activation": "gelu", "positions": "learned", "position_offset": 2, "embedding_norm": True},
    "mBART": {"activation": "gelu", "positions": "learned", "embedding_norm": True, "norm_position": "pre"},
    "other activations": {"activation": "gelu_tanh", "d_ff": 21},
    "quick GELU": {"activation": "quick_gelu"},
    "RMSNorm": {"norm": "rms", "norm_position": "pre", "norm_eps": 1e-3},
    "shifted RMSNorm": {"norm": "rms_shifted", "norm_position": "pre"},
    "norms without bias": {"norm": "layer_unbiased", "norm_eps": 0.1},
    "SwiGLU": {"activation": "silu", "gated": True, "ffn_bias": False, "d_ff": 21},
    "GEGLU": {"activation": "gelu", "gated": True},
    "ReGLU": {"activation": "relu", "gated": True},
    "no positions": {"positions": "none"},
    "Marian of width 12": {"activation": "silu", "d_model": 12, "d_ff": 33},
    "BART of width 13": {"d_model": 13, "d_head": 5, "positions": "learned", "embedding_norm": True},
    "T5's norms, of width 18": {
        "d_model": 18,
        "norm": "rms",
        "norm_position": "pre",
        "activation": "gelu",
        "gated": True,
    },
    "M2M-100 of width 10": {"d_model": 10, "norm_position": "pre", "position_offset": 2, "count_from": 1},
    "rotary positions": {"positions": "none", "rotary": RotaryConfig(8)},
    "rotary positions in a part of a head": {"positions": "none", "d_head": 20, "rotary": RotaryConfig(6, 50.0)},
    "slower rotary positions": {"rotary": RotaryConfig(12, scaling="linear", factor=3.0), "d_head": 12},
    "one head of keys and values": {"n_kv_heads": 1, "d_head": 5},
    "grouped heads, turned": {"n_heads": 4, "n_kv_heads": 2, "positions": "none", "rotary": RotaryConfig(8)},
    "other scores": {"score_scale": 1.0, "attention_bias": "qv", "d_head": 12},
}
NETWORKS: dict[str, dict[str, Any]] = {
    "a bias on the logits": {"head_bias": True},
    "two vocabularies": {"share_embeddings": False, "tgt_vocab_size": 31, "head_bias": True},
    "T5's factor on logits": {"logit_scale": 0.25},
    "a head of its own": {"tie_head": False},
}
ALIEN: dict[str, tuple[dict[str, Any], str]] = {
    "relative positions": ({"relative_buckets": 8}, "relative_buckets"),
    "a window": ({"windows": (3, 3)}, "windows"),
    "a cap": ({"score_cap": 5.0}, "score_cap"),
    "normalised heads": ({"normalise_heads": True}, "normalise_heads"),
    "a sandwich": ({"norm_position": "sandwich"}, "norm_position"),
    "narrow embeddings": ({"d_embedding": 8}, "d_embedding"),
    "memory of another width": ({"d_memory": 8}, "d_memory"),
    "groups of layers": ({"layer_groups": 1}, "layer_groups"),
    "segments": ({"n_types": 2}, "n_types"),
    "tanh": ({"activation": "tanh"}, "activation = tanh"),
}


def build(stack: dict[str, Any] | None = None, **network: Any) -> Transformer:
    """Every parameter random."""
    both = replace(STACK, **(stack or {}))
    with torch.random.fork_rng():
        torch.manual_seed(6)
        made = build_network(NetworkConfig("none", VOCAB, encoder=both, decoder=both, **network))
        for name, parameter in made.named_parameters():
            drawn = torch.randn_like(parameter)
            wide = drawn / parameter.size(-1) ** 0.5
            parameter.data.copy_(1 + drawn / 4 if name.endswith("norm.weight") else wide)
    assert isinstance(made, Transformer)
    return made


def compiled(network: nn.Module, compute: str = "float32") -> CompiledNetwork:
    prepared = prepare_for_inference(network, compute)
    assert isinstance(prepared, CompiledNetwork), unsupported_module(network)
    return prepared


BIASES = (((7,), 1.5), ((START, 8), 2.0), ((9, 10), -math.inf), ((11, 11), 3.0))


def configured(
    settings: dict[str, Any] | None = None, ends: tuple[int, ...] = (END,), start: int = START, **ids: Any
) -> GenerationConfig:
    """Settings and special ids; sources of these tests include their end tokens."""
    end, *others = ends or (NEVER,)
    special = SpecialIds(0, start, end, NEVER, other_ends=tuple(others), source_end=(), suppressed=())
    chosen = DEFAULTS.changed({"max_new_tokens": 10, **(settings or {})})
    return GenerationConfig(chosen, replace(special, **ids))


def searched(network: Any, config: GenerationConfig, sources: Any = None, **how: Any) -> list[list[Hypothesis]]:
    """The hypotheses for sources, by default `SOURCES`."""
    sources = SOURCES if sources is None else sources
    return decode_tokens(engine_of(network), sources, config.settings, config.special, **how)


def logits(model: Any, tgt_in: Tensor) -> Tensor:
    """After every position, step by step; the first two at once, like a forced prefix."""
    src = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in SOURCES], batch_first=True)
    mask = torch.arange(src.size(1)) < torch.tensor([len(row) for row in SOURCES]).unsqueeze(1)
    with torch.inference_mode():
        cache = model.start_cache(model.encode(src, mask), mask)
        parts = [tgt_in[:, :2], *tgt_in[:, 2:].split(1, dim=1)]
        return torch.cat([model.logits(model.decode(part, cache.memory, mask, cache)) for part in parts], 1)


@pytest.mark.few(15)
@pytest.mark.parametrize(
    ("stack", "network"),
    [*((changes, {}) for changes in STACKS.values()), *(({}, changes) for changes in NETWORKS.values())],
    ids=[*STACKS, *NETWORKS],
)
def test_step_by_step(stack: dict[str, Any], network: dict[str, Any]) -> None:
    """Padding inside a text is unusual, but possible."""
    model, tgt_in = build(stack, **network), torch.randint(1, VOCAB, (4, 9))
    wanted = logits(copy.deepcopy(model).double(), tgt_in)
    torch.testing.assert_close(logits(Steps(compiled(model)), tgt_in).double(), wanted, rtol=0, atol=2e-5)
    assert (logits(Steps(compiled(model, "int8")), tgt_in) - wanted).abs().mean() < 0.05 * wanted.std()


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("name", ["Marian", "M2M-100", "BART", "SwiGLU"])
def test_outputs_are_bit_identical_in_any_batch(name: str, compute: str) -> None:
    form = compiled(build(STACKS[name], tie_head=False), compute)
    config = configured({"beam_size": 3, "n_best": 3}, (END, 6, 7), forced=(9,))
    together = searched(form, config)
    assert together == [searched(form, config, [source])[0] for source in SOURCES]
    assert together == searched(form, config.changed({"batch_size": 3}))
    assert len({tuple(one.tokens) for ranked in together for one in ranked}) > 3, "all write the same"


@pytest.mark.parametrize("name", ["Marian", "M2M-100", "BART", "mBART"])
@pytest.mark.parametrize(
    ("settings", "ids", "prefix"),
    [
        ({"beam_size": 1}, {}, []),
        ({"min_new_tokens": 6}, {"forced": (9,)}, []),
        ({"length_penalty": -0.5, "early_stopping": True}, {"forced_end": END}, []),
        ({"early_stopping": "never", "length_penalty": 2.0}, {"forced": (9,)}, []),
        ({}, {"ends": (END, 6, 7), "suppressed": tuple(range(8, 19)), "suppressed_first": (20, 21)}, []),
        ({}, {"ends": ()}, []),
        ({"max_new_tokens": 1}, {"forced": (9,), "forced_end": 5}, []),
        ({"no_repeat_ngram": 1}, {}, [START, 5]),
        ({"no_repeat_ngram": 2}, {"forced": (9,)}, []),
        ({"sample": True, "temperature": 2.0, "top_k": 0, "seed": 2**32 - 3}, {"forced": (9,)}, []),
        ({"sample": True, "top_k": 5, "no_repeat_ngram": 1}, {}, []),
        ({"repetition_penalty": 1.7}, {"forced": (9,), "sequence_bias": BIASES}, []),
        ({"repetition_penalty": 0.6, "beam_size": 1}, {"sequence_bias": BIASES}, [START, 5]),
        ({"repetition_penalty": 2.0, "sample": True}, {"forced": (9,), "sequence_bias": BIASES}, []),
    ],
    ids=str,
)
def test_searches_equal_torch(name: str, settings: dict[str, Any], ids: dict[str, Any], prefix: list[int]) -> None:
    network, n_best = build(STACKS[name]), settings.get("beam_size", 4)
    config = configured({"beam_size": n_best, "n_best": n_best, **settings}, **ids)
    how: dict[str, Any] = {"prefixes": [prefix] * len(SOURCES), "max_len": 9}
    pairs = zip(searched(compiled(network), config, **how), searched(network, config, **how), strict=True)
    for found, wanted in pairs:
        assert [one.tokens for one in found] == [one.tokens for one in wanted]
        for ours, theirs in zip(found, wanted, strict=True):
            assert [ours.score, ours.log_prob] == pytest.approx([theirs.score, theirs.log_prob], abs=1e-4)
            assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-4)


@pytest.mark.parametrize(("stack", "part"), ALIEN.values(), ids=ALIEN)
def test_unsupported_modules_are_detected(stack: dict[str, Any], part: str) -> None:
    network = build(stack)
    assert not native_available(network) and part in unsupported_module(network)
    assert prepare_for_inference(network) is network
    with pytest.raises(UserError, match="compute = int8"):
        prepare_for_inference(network, "int8")


@pytest.mark.parametrize(
    ("stack", "network"), [*((stack, {}) for stack in STACKS.values()), *(({}, one) for one in NETWORKS.values())]
)
def test_axes_and_arrays_make_the_network_that_the_torch_module_makes(
    stack: dict[str, Any], network: dict[str, Any]
) -> None:
    """Pretrained models are read without torch."""
    config = replace(CONFIG, encoder=replace(STACK, **stack), decoder=replace(STACK, **stack), **network)
    built = build(stack, **network)
    assert parameter_shapes(config) == {name: tuple(value.shape) for name, value in built.named_parameters()}
    arrays = {name: value.detach().numpy() for name, value in built.named_parameters()}
    ours = compile_arrays(config, arrays, "float32")
    assert searched(ours, configured()) == searched(compiled(built), configured())


@pytest.mark.parametrize("stack", [stack for stack, _ in ALIEN.values()], ids=ALIEN)
def test_axes_of_what_the_library_lacks(stack: dict[str, Any]) -> None:
    both = replace(STACK, **stack)
    assert library_shape(replace(CONFIG, encoder=both, decoder=both)) is None


def test_different_sides_and_dtypes() -> None:
    other = replace(STACK, activation="silu")
    network = build_network(NetworkConfig("none", VOCAB, encoder=STACK, decoder=other))
    assert unsupported_module(network) == "different activation in encoder and decoder"
    assert "torch.float16" in unsupported_module(build().half())
    network = build()
    network.decoder.layers[0].ffn.activation = lambda x: x
    assert "another activation of decoder.layers.0.ffn" in unsupported_module(network)
    network = build()
    network.get_submodule("encoder.layers.0").extra = nn.Linear(2, 2)  # type: ignore[assignment]
    assert "encoder.layers.0.extra" in unsupported_module(network)


def test_the_limit_of_learned_positions() -> None:
    form = compiled(build(STACKS["BART"]))
    config = configured({"max_new_tokens": 50}, ())
    assert len(searched(form, config, [[5] * 40], max_len=40)[0][0].tokens) == 40
    with pytest.raises(UserError, match=r"41 tokens.*model's 40"):
        searched(form, config, [[5] * 41], max_len=40)


def test_non_finite_numbers() -> None:
    network = build(STACKS["BART"])
    network.get_parameter("encoder.layers.0.ffn.up_proj.weight").data[3, 3] = torch.nan
    for beam_size in (1, 3):
        for compute in ("float32", "int8", "bfloat16"):
            with pytest.raises(UserError, match="not finite"):
                searched(compiled(network, compute), configured({"beam_size": beam_size}))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "quick_gelu", "silu"])
def test_activations_of_large_inputs(name: str) -> None:
    """Equal to torch to six digits, also for large inputs."""
    loaded, x = library(), np.concatenate([-np.logspace(-6, 3, 203), np.logspace(-6, 3, 200)]).astype(np.float32)
    assert loaded is not None
    wanted = ACTIVATIONS[name](torch.from_numpy(x).double()).numpy()
    loaded.headwise_activate(COMPILED_ACTIVATIONS.index(name), x.ctypes.data, len(x))
    np.testing.assert_allclose(x, wanted, rtol=2e-6, atol=3e-7)


def test_the_logarithm_is_correctly_rounded() -> None:
    """Unlike those of C libraries. The sum of n exponentials of 0 is n."""
    loaded, found = library(), np.empty(1, np.float32)
    assert loaded is not None
    for n in (*range(1, 1000), 32000, 1 << 20):
        zeros = np.zeros(n, np.float32)
        assert not loaded.headwise_softmax(zeros.ctypes.data, 0, 1, n, found.ctypes.data, 1)
        assert found[0] == np.float32(math.log(n)), n
