"""Decoders alone in the library: compared with torch; prompts in one pass have the bits of token by token."""

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.contract import Limits, SearchCancelled, SearchOptions
from headwise.core.build import build as build_network
from headwise.core.transformer import DecoderOnly
from headwise.errors import UserError
from headwise.models.language.language_model import LibraryText
from headwise.pytorch.models.language_model import TorchText
from headwise.runtime.checkpoint.compiled import compiled, library_shape
from headwise.runtime.checkpoint.shapes import parameter_shapes
from headwise.runtime.native import library as c
from headwise.runtime.native.linear import NUMBERS
from headwise.runtime.native.network import CompiledNetwork, Decoding
from headwise.runtime.native.reading import token_log_probs

pytestmark = pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")

VOCAB = 50
LLAMA = StackConfig(
    d_model=16,
    n_layers=2,
    n_heads=2,
    d_ff=24,
    d_head=8,
    activation="silu",
    norm="rms",
    gated=True,
    attention_bias="",
    ffn_bias=False,
    rotary=RotaryConfig(8),
)
STACKS: dict[str, dict[str, Any]] = {
    "LLaMA": {},
    "GPT-2": {
        "rotary": None,
        "positions": "learned",
        "max_len": 60,
        "norm": "layer",
        "attention_bias": "qkvo",
        "ffn_bias": True,
        "gated": False,
        "activation": "gelu_tanh",
    },
    "GPT of width 13": {"d_model": 13, "d_head": 5, "rotary": None, "positions": "sinusoidal", "norm": "layer"},
    "two heads share keys": {"n_heads": 4, "n_kv_heads": 2},
    "three heads share keys of width 10": {"n_heads": 3, "n_kv_heads": 1, "d_head": 10, "rotary": RotaryConfig(10)},
    "Mistral": {"windows": (5, 5), "n_heads": 4, "n_kv_heads": 2},
    "windows in some layers": {"windows": (0, 1)},
    "Qwen 2": {"attention_bias": "qkv"},
    "Qwen 3": {"normalise_heads": True, "n_heads": 4, "n_kv_heads": 2, "d_head": 10, "rotary": RotaryConfig(6)},
    "Gemma": {
        "norm": "rms_shifted",
        "activation": "gelu_tanh",
        "embedding_scale": 4.0,
        "n_kv_heads": 1,
        "d_head": 64,
        "rotary": RotaryConfig(64),
    },
    "wide heads": {"d_head": 104, "rotary": RotaryConfig(16)},
    "LLaMA 3.1": {"rotary": RotaryConfig(8, scaling="llama3", factor=8.0, trained_len=16)},
    "LLaMA 2, longer": {"rotary": RotaryConfig(8, scaling="linear", factor=4.0)},
    "post-norm": {"norm_position": "post", "norm": "layer", "embedding_norm": True},
}
ALIEN: dict[str, dict[str, Any]] = {
    "capped scores": {"score_cap": 5.0},
    "norms on both sides": {"norm_position": "sandwich"},
    "parallel sub-layers": {"parallel": "one_norm"},
    "heads with LayerNorm": {"normalise_heads": True, "norm": "layer"},
    "a second rotation": {"window_rotary": RotaryConfig(8, 100.0), "windows": (3, 0)},
}


def config(stack: dict[str, Any] | None = None, **network: Any) -> NetworkConfig:
    return NetworkConfig("none", VOCAB, decoder=replace(LLAMA, **(stack or {})), **network)


def build(of: NetworkConfig) -> DecoderOnly:
    """Every parameter random."""
    with torch.random.fork_rng():
        torch.manual_seed(6)
        made = build_network(of).eval()
        for name, parameter in made.named_parameters():
            drawn = torch.randn_like(parameter)
            wide = drawn / parameter.size(-1) ** 0.5
            parameter.data.copy_(1 + drawn / 4 if name.endswith("norm.weight") else wide)
    return made


def native(of: NetworkConfig, compute: str = "float32") -> CompiledNetwork:
    return compiled(of, {name: value.detach().numpy() for name, value in build(of).named_parameters()}, compute)


def texts(*lengths: int) -> list[list[int]]:
    return [torch.randint(0, VOCAB, (length,)).tolist() for length in lengths]


def read(network: CompiledNetwork, prompts: list[list[int]]) -> list[Any]:
    """The states after every token of each prompt, in one pass."""
    hidden = np.empty((sum(map(len, prompts)), network.d_model), np.float32)
    Decoding(network, prompts, hidden=hidden)
    return np.split(hidden, np.cumsum([len(prompt) for prompt in prompts])[:-1])


def fed(decoding: Decoding, tokens: list[int]) -> Any:
    """The states after more tokens of its only text, one at a time."""
    paths, states = np.zeros((1, len(tokens)), np.int32), []
    before = int(decoding.prompt_lengths[0])
    for i, token in enumerate(tokens):
        decoding.make_room(1, paths, i)
        paths[0, i] = decoding.slots
        states.append(decoding.step(np.array([token]), np.array([before + i]), np.array([0]), paths)[0])
    return np.array(states)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_states_equal_torch(stack: dict[str, Any]) -> None:
    """In float64; rounding errors of 6e-8 add up over the sums of two layers, with states of size 1."""
    of = config(stack)
    network, exact, prompts = native(of), build(of).double(), texts(1, 7, 30, 4, 59)
    for found, prompt in zip(read(network, prompts), prompts, strict=True):
        with torch.inference_mode():
            wanted = exact.decode(torch.tensor([prompt]))[0].numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("compute", NUMBERS)
@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_prompts_have_the_bits_of_token_by_token(stack: dict[str, Any], compute: str) -> None:
    """In any batch, and from any position on."""
    network, prompts = native(config(stack), compute), texts(1, 7, 30, 4, 56)
    together = read(network, prompts)
    for found, prompt in zip(together, prompts, strict=True):
        np.testing.assert_array_equal(read(network, [prompt])[0], found)
        for begun in {1, len(prompt) // 2} - {0}:
            after = fed(Decoding(network, [prompt[:begun]]), prompt[begun:])
            np.testing.assert_array_equal(after, found[begun:].reshape(after.shape))


def test_prompts_longer_than_a_batch() -> None:
    """Of 512 positions; with other prompts that begin and end in it."""
    network, prompts = native(config(STACKS["Mistral"])), texts(500, 3, 9, 530, 512, 40)
    for found, prompt in zip(read(network, prompts), prompts, strict=True):
        np.testing.assert_array_equal(read(network, [prompt])[0], found)


@pytest.mark.parametrize("compute", NUMBERS)
def test_all_builds_have_the_same_bits(compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Qwen 3", "Mistral", "GPT-2"):
        prompts, found = texts(3, 40, 17), []
        for build_name in c.usable_builds():
            monkeypatch.setattr(c, "library", lambda name=build_name: c.opened(name))
            found.append(np.concatenate(read(native(config(STACKS[name]), compute), prompts)))
        assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_shapes_of_parameters(stack: dict[str, Any]) -> None:
    for network in ({}, {"tie_head": False}, {"head_bias": True}):
        of = config(stack, **network)
        assert library_shape(of) is not None
        shapes = {name: tuple(value.shape) for name, value in build(of).named_parameters()}
        assert parameter_shapes(of) == shapes


@pytest.mark.parametrize("stack", ALIEN.values(), ids=ALIEN)
def test_networks_that_the_library_lacks(stack: dict[str, Any]) -> None:
    assert library_shape(config(stack)) is None
    assert library_shape(config(logit_cap=30.0)) is None


@pytest.mark.parametrize("network", [{}, {"tie_head": False, "head_bias": True}, {"logit_scale": 0.25}], ids=str)
def test_log_probabilities(network: dict[str, Any]) -> None:
    """Of every token but the first; sums of 50 exponentials are exact to 1e-6."""
    of = config(**network)
    exact, ours, text = build(of).double(), native(of), texts(40)[0]
    with torch.inference_mode():
        wanted = exact.logits(exact.decode(torch.tensor([text[:-1]]))).log_softmax(-1)[0]
    chosen = wanted[torch.arange(39), torch.tensor(text[1:])]
    np.testing.assert_allclose(token_log_probs(ours, text), chosen.numpy(), rtol=0, atol=2e-5)
    np.testing.assert_array_equal(token_log_probs(ours, text, first=30), token_log_probs(ours, text)[29:])


# --- Searches ---


def limits(n: int, longest: int = 8, **changes: Any) -> Limits:
    nothing = np.zeros((n, 0), np.int64)
    return replace(Limits(np.zeros(n, int), np.full(n, longest), nothing), **changes)


OPTIONS = SearchOptions(beam_size=1, bos_id=0, suppressed=(), eos_id=3, early_stopping="no", length_penalty=1.0)


@pytest.mark.parametrize("stack", ["LLaMA", "GPT-2", "Mistral", "Qwen 3"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_continuation_has_the_log_probabilities_of_a_score(stack: str, beam_size: int) -> None:
    """Bit by bit: of every hypothesis, wherever its path has gone."""
    network, prompts = native(config(STACKS[stack])), texts(5, 1, 20)
    options = replace(OPTIONS, beam_size=beam_size, n_best=beam_size)
    found = network.search(prompts, limits(3, 20), options, None)
    for prompt, ranked in zip(prompts, found, strict=True):
        assert len(ranked) == beam_size
        for one in ranked:
            ended = [3] if len(one.token_log_probs) > len(one.tokens) else []
            scored = token_log_probs(network, [*prompt, *one.tokens, *ended], first=len(prompt))
            assert scored.tolist() == one.token_log_probs
        if beam_size == 1:
            best = network.output(read(network, [prompt])[0][-1:]).argmax()
            assert [*ranked[0].tokens, 3][0] == best


@pytest.mark.parametrize("compute", NUMBERS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_searches_are_bit_identical_in_any_batch(beam_size: int, compute: str) -> None:
    network, prompts = native(config(STACKS["Qwen 3"], tie_head=False), compute), texts(5, 1, 20, 33)
    options = replace(OPTIONS, beam_size=beam_size, n_best=beam_size, no_repeat_ngram=2)
    for streams in (None, np.arange(4)):
        bounds = limits(4, 26, streams=streams)
        together = network.search(prompts, bounds, options, None)
        for i, prompt in enumerate(prompts):
            own = limits(1, 26, streams=None if streams is None else streams[i : i + 1])
            assert network.search([prompt], own, options, None) == [together[i]]
            if beam_size == 1:
                search = network.begin([prompt], own, options, None)
                while search.advance():
                    pass
                assert search.hypotheses() == [together[i]]


def test_learned_positions_have_an_end() -> None:
    network, prompts = native(config(STACKS["GPT-2"])), texts(50)
    options = replace(OPTIONS, eos_id=-1)
    assert len(network.search(prompts, limits(1, 11), options, None)[0][0].tokens) == 11
    with pytest.raises(UserError, match=r"61 tokens.*model's 60"):
        network.search(prompts, limits(1, 12), options, None)
    with pytest.raises(UserError, match="61 tokens is longer"):
        Decoding(network, texts(61))


@pytest.mark.parametrize("settings", [{}, {"beam_size": 3, "n_best": 3}, {"n_best": 3, "top_k": 9}], ids=str)
def test_stop_functions(settings: dict[str, Any]) -> None:
    """As in torch: an output ends with its first token that is a multiple of 7, and never at the start."""
    of = config(STACKS["Mistral"])
    stop = lambda outputs: [tokens[-1] % 7 == 0 and len(tokens) > 1 for tokens in outputs]  # noqa: E731
    options, prompts = replace(OPTIONS, **settings, stop_function=stop), texts(5, 1, 20)
    bounds = limits(3, 20, streams=np.arange(3) if "top_k" in settings else None)
    found, wanted = (text.search(prompts, bounds, options) for text in (LibraryText(native(of)), TorchText(build(of))))
    assert [[one.tokens for one in ranked] for ranked in found] == [[one.tokens for one in ranked] for ranked in wanted]
    assert any(one.tokens[-1] % 7 == 0 and len(one.tokens) < 20 for ranked in found for one in ranked)


def test_an_exception_of_a_stop_function_ends_the_search() -> None:
    def stop(outputs: Any) -> list[bool]:
        calls.append(outputs)
        raise ZeroDivisionError

    calls: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        LibraryText(native(config())).search(texts(3), limits(1, 20), replace(OPTIONS, beam_size=3, stop_function=stop))
    assert len(calls) == 1


MISUSES: dict[str, Callable[[CompiledNetwork], object]] = {
    "no prompts": lambda n: n.start([]),
    "an empty prompt": lambda n: n.start([[5], []]),
    "room for other states": lambda n: Decoding(n, [[5, 6]], hidden=np.empty((1, 16), np.float32)),
    "states in float64": lambda n: Decoding(n, [[5, 6]], hidden=np.empty((2, 16))),
    "a position in the prompt": lambda n: fed_at(n, 1),
    "a position beyond the path": lambda n: fed_at(n, 6),
    "freed prompts": lambda n: n.start([[5, 6]]).truncate(1),
    "a score of one token": lambda n: token_log_probs(n, [5]),
    "a score from the first token": lambda n: token_log_probs(n, [5, 6], first=0),
}


def fed_at(network: CompiledNetwork, position: int) -> None:
    decoding, paths = network.start([[5, 6]]), np.full((1, 4), 2, np.int32)
    decoding.make_room(1, paths, 0)
    decoding.step(np.array([5]), np.array([position]), np.array([0]), paths)


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
def test_misuse(misuse: Callable[[CompiledNetwork], object]) -> None:
    with pytest.raises((AssertionError, TypeCheckError)):  # checked types find some of it first
        misuse(native(config()))


def test_tokens_outside_the_vocabulary() -> None:
    for tokens in ([5, VOCAB], [-1]):
        with pytest.raises(UserError, match="outside the vocabulary"):
            native(config()).start([tokens])
    with pytest.raises(UserError, match="outside the vocabulary"):
        token_log_probs(native(config()), [5, VOCAB])


def test_non_finite_numbers() -> None:
    of = config()
    arrays = {name: value.detach().numpy().copy() for name, value in build(of).named_parameters()}
    arrays["decoder.layers.0.ffn.up_proj.weight"][3, 3] = np.nan
    network = compiled(of, arrays, "float32")
    assert not np.isfinite(token_log_probs(network, [5, 6, 7])).any()
    assert network.search([[5, 6]], limits(1), OPTIONS, None) == [[]]


def test_a_long_prompt_is_cancelled_soon() -> None:
    """Compared with a tenth of the work."""
    of = config({"d_model": 256, "n_heads": 8, "d_head": 32, "d_ff": 1024, "rotary": RotaryConfig(32), "n_layers": 4})
    network, stop = native(of), np.zeros(1, np.int32)
    started = time.thread_time()
    Decoding(network, texts(1000))
    tenth = time.thread_time() - started
    threading.Timer(tenth / 2, lambda: stop.fill(1)).start()
    started = time.thread_time()
    with pytest.raises(SearchCancelled):
        Decoding(network, texts(10_000), stop)
    assert time.thread_time() - started < 5 * tenth
    with pytest.raises(SearchCancelled):
        network.search([[5, 6]], limits(1), OPTIONS, None, np.ones(1, np.int32))


def test_the_torch_network_is_left_as_it_is() -> None:
    """Its parameters are packed, not shared."""
    of = config()
    made = build(of)
    arrays = {name: value.detach().numpy() for name, value in made.named_parameters()}
    network = compiled(of, copy.copy(arrays), "float32")
    before = read(network, [[5, 6]])[0]
    made.decoder.layers[0].ffn.up_proj.weight.data.zero_()  # pyright: ignore
    np.testing.assert_array_equal(read(network, [[5, 6]])[0], before)
