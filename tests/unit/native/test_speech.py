"""Whisper in the library: compared with torch, and with itself in other builds, ways and memory."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from headwise.config.network import NetworkConfig, StackConfig
from headwise.contract import Limits, SearchCancelled, SearchOptions, TimestampRules
from headwise.core.build import build as build_network
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.models.speech.speech_model import LibrarySpeech
from headwise.pytorch.models.speech import TorchSpeech
from headwise.pytorch.search.compiled import pack_network
from headwise.runtime.checkpoint.compiled import compiled, library_shape
from headwise.runtime.checkpoint.shapes import parameter_shapes
from headwise.runtime.native import library as c
from headwise.runtime.native.linear import NUMBERS
from headwise.runtime.native.network import Decoding
from headwise.runtime.native.search import Search
from headwise.runtime.native.speech import CompiledSpeech
from headwise.runtime.search.cancellation import Cancellation

pytestmark = pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")

VOCAB, END, FIRST = 60, 40, 45  # ids from FIRST on are timestamps, those below END text
ENCODER = StackConfig(16, 2, 2, 24, 8, attention_bias="qvo", max_len=20)
DECODER = replace(ENCODER, positions="learned", max_len=24)
SIZES = {
    "whole registers": {},
    "any width": {"d_model": 13, "d_head": 5, "d_ff": 19},
    "uneven stacks": {"n_layers": 1},
}
RULES = TimestampRules(FIRST, END + 2, latest_first=5)
GREEDY = SearchOptions(beam_size=1, eos_id=END, suppressed=(3, END + 1), early_stopping="no", length_penalty=1.0)


def config(**encoder: Any) -> NetworkConfig:
    decoder = {name: value for name, value in encoder.items() if name in ("d_model", "d_head", "d_ff")}
    stacks = replace(ENCODER, **encoder), replace(DECODER, **decoder)
    return NetworkConfig("whisper", VOCAB, *stacks, front="audio", n_mels=5)


def build(of: NetworkConfig, peak: float = 2.0) -> Transformer:
    """Every parameter random; `peak` multiplies the logits."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        made = build_network(of).eval()
        for name, parameter in made.named_parameters():
            drawn = torch.randn_like(parameter)
            wide = drawn / parameter[0].numel() ** 0.5
            parameter.data.copy_(1 + drawn / 4 if name.endswith("norm.weight") else wide)
        made.tgt_embeddings.tokens.weight.data.mul_(peak)
    return made


def native(of: NetworkConfig | None = None, compute: str = "float32") -> CompiledSpeech:
    arrays = {name: value.detach().numpy() for name, value in build(of or config()).named_parameters()}
    made = compiled(of or config(), arrays, compute)
    assert isinstance(made, CompiledSpeech)
    return made


def spectrogram(frames: int = 40, number: int = 1) -> Any:
    return np.random.default_rng(number).standard_normal((5, frames), np.float32)


def limits(longest: int = 12, **changes: Any) -> Limits:
    return replace(Limits(np.zeros(1, int), np.full(1, longest), np.zeros((1, 0), np.int64)), **changes)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("frames", [40, 33, 2, 1])
def test_states_equal_torch(sizes: dict[str, Any], frames: int) -> None:
    """In float64; rounding errors of 6e-8 add up over the sums of four layers, with states of size 1."""
    of, prompt = config(**sizes), [41, 7, 50, 3]
    exact, mel = build(of).double(), spectrogram(frames)
    with torch.inference_mode():
        memory = exact.encode(torch.from_numpy(mel)[None].double())
        wanted = exact.decode(torch.tensor([prompt]), memory)[0]
        logits = exact.logits(wanted)
    network = native(of)
    found = network.encode(mel).read_prompt(prompt)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(network.output(found), logits.numpy(), rtol=0, atol=1e-4)  # sums of 16 of them


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_both_ways_of_packing(sizes: dict[str, Any]) -> None:
    """A module of torch, and arrays."""
    of = config(**sizes)
    assert library_shape(of) is not None
    module = build(of)
    assert parameter_shapes(of) == {name: tuple(value.shape) for name, value in module.named_parameters()}
    from_module, from_arrays = pack_network(module, "float32"), native(of)
    assert isinstance(from_module, CompiledSpeech)
    states = [made.encode(spectrogram()).read_prompt([41, 7]) for made in (from_module, from_arrays)]
    np.testing.assert_array_equal(states[0], states[1])


@pytest.mark.parametrize("compute", NUMBERS)
def test_prompts_have_the_bits_of_token_by_token(compute: str) -> None:
    network, prompt = native(compute=compute), [41, 7, 50, 3, 9, 9, 12]
    decoding = network.encode(spectrogram())
    whole, begun = decoding.read_prompt(prompt), decoding.read_prompt(prompt[:2])
    np.testing.assert_array_equal(begun, whole[:2])
    paths = np.zeros((1, 5), np.int32)
    for i, token in enumerate(prompt[2:]):
        decoding.make_room(1, paths, i)
        paths[0, i] = decoding.slots
        state = decoding.step(np.array([token]), np.array([2 + i]), np.array([0]), paths)
        np.testing.assert_array_equal(state[0], whole[2 + i])


CONTEXT: dict[str, Any] = {"context": np.array([[-1, 5, 41, 7]])}  # tokens before the output
BIASES = (((41, 7, 6), 2.0), ((9,), 1.0), ((6, 8), 2.0))
SEARCHES: dict[str, tuple[SearchOptions, dict[str, Any]]] = {
    "greedy": (GREEDY, {}),
    "beam": (replace(GREEDY, beam_size=4, n_best=4), {}),
    "exact beam": (replace(GREEDY, beam_size=3, n_best=2, early_stopping="exact", length_penalty=0.6), {}),
    "no first token": (replace(GREEDY, suppressed_first=(5, 6, 7, FIRST)), {}),
    "no repetition": (replace(GREEDY, no_repeat_ngram=2, beam_size=2), {}),
    "at least": (GREEDY, {"min_length": np.array([8])}),
    "samples": (replace(GREEDY, n_best=5, temperature=0.7), {"streams": np.array([3])}),
    "penalties": (replace(GREEDY, repetition_penalty=1.6, beam_size=2), CONTEXT),
    "penalties of logits": (replace(GREEDY, repetition_penalty=1.6, sequence_bias=BIASES), CONTEXT),
    "hot samples": (replace(GREEDY, n_best=3, top_k=9, top_p=0.8), {"streams": np.array([0])}),
}
SPEECH: dict[str, dict[str, Any]] = {
    "plain": {},
    "timestamps": {"timestamps": RULES},
    "any first timestamp": {"timestamps": replace(RULES, latest_first=None)},
    "among the allowed": {"among_allowed": True},
    "timestamps among the allowed": {"timestamps": RULES, "among_allowed": True},
}


@pytest.mark.parametrize(("options", "changes"), SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("rules", SPEECH.values(), ids=SPEECH)
def test_searches_equal_torch(options: SearchOptions, changes: dict[str, Any], rules: dict[str, Any]) -> None:
    """The same tokens; log-probabilities are sums of up to 12, with the rounding errors of the logits."""
    options, module, kinds = replace(options, **rules), build(config(), 3.0), set[bool]()
    ours, theirs = LibrarySpeech(native_of(module)), TorchSpeech(module)
    for number, prompt in enumerate([[41], [41, 7, 5], [44, 1, 2, 3, 41, 7]]):
        mel = spectrogram(number=number)
        found = ours.search(ours.encode(mel), prompt, limits(**changes), options)
        wanted = theirs.search(theirs.encode(mel), prompt, limits(**changes), options)
        assert [one.tokens for one in found] == [one.tokens for one in wanted]
        assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in wanted], abs=2e-4)
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=2e-4)
        kinds |= {token >= FIRST for one in found for token in one.tokens}
    assert not rules.get("timestamps") or kinds == {True, False}


def native_of(module: Transformer) -> CompiledSpeech:
    made = pack_network(module, "float32")
    assert isinstance(made, CompiledSpeech)
    return made


def test_a_window_is_encoded_once_for_all_searches() -> None:
    """What was searched before leaves no trace."""
    network = LibrarySpeech(native())
    window = network.encode(spectrogram())
    sampled = replace(GREEDY, n_best=4), limits(streams=np.array([0]))
    first = network.search(window, [41, 7], limits(), GREEDY)
    samples = network.search(window, [41, 7], sampled[1], sampled[0])
    logits = network.logits(window, [41])
    assert network.search(window, [41, 7], limits(), GREEDY) == first
    assert network.search(window, [41, 7], sampled[1], sampled[0]) == samples
    np.testing.assert_array_equal(network.logits(window, [41]), logits)
    assert network.search(network.encode(spectrogram()), [41, 7], limits(), GREEDY) == first


@pytest.mark.parametrize("compute", NUMBERS)
def test_all_builds_have_the_same_bits(compute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, found = replace(GREEDY, timestamps=RULES, among_allowed=True, beam_size=3), []
    for name in c.usable_builds():
        monkeypatch.setattr(c, "library", lambda name=name: c.opened(name))
        network = native(config(d_model=13, d_head=5), compute)
        decoding = network.encode(spectrogram(39))
        states = decoding.read_prompt([41, 7]).tobytes()
        found.append((states, Search([decoding], options, limits()).run()))
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("compute", ["int8", "bfloat16"])
def test_other_precisions_are_near(compute: str) -> None:
    """Weights have about two decimal places: the hidden states, of size 1, agree to a tenth."""
    exact, near = (native(compute=name).encode(spectrogram()).read_prompt([41, 7]) for name in ("float32", compute))
    assert 0 < np.abs(exact - near).max() < 0.3 and np.abs(exact - near).mean() < 0.05


def test_recordings_that_are_too_long() -> None:
    with pytest.raises(UserError, match=r"41.*model's 40"):
        native().encode(spectrogram(41))


def test_outputs_that_are_too_long() -> None:
    window, options = native().encode(spectrogram()), replace(GREEDY, eos_id=END)
    window.read_prompt([41] * 20)
    Search([window], options, limits(5)).run()  # the last token is not read
    window.read_prompt([41] * 20)
    with pytest.raises(UserError, match=r"25 tokens.*model's 24"):
        Search([window], options, limits(6))
    with pytest.raises(UserError, match="25 tokens is longer"):
        window.read_prompt([41] * 25)


MISUSES: dict[str, Callable[[CompiledSpeech], object]] = {
    "other bands": lambda n: n.encode(np.ones((4, 40), np.float32)),
    "no frames": lambda n: n.encode(np.ones((5, 0), np.float32)),
    "vectors of another width": lambda n: Decoding.of_vectors(n, np.ones((3, 15), np.float32)),
    "no vectors": lambda n: Decoding.of_vectors(n, np.ones((0, 16), np.float32)),
    "no prompt": lambda n: n.encode(spectrogram()).read_prompt([]),
    "timestamps from the first id on": lambda n: search(n, timestamps=replace(RULES, first=0)),
    "timestamps beyond the vocabulary": lambda n: search(n, timestamps=replace(RULES, first=VOCAB)),
    "a strange id for no timestamps": lambda n: search(n, timestamps=replace(RULES, never=VOCAB)),
    "a first timestamp below 0": lambda n: search(n, timestamps=replace(RULES, latest_first=-2)),
    "an end behind the timestamps": lambda n: search(n, timestamps=RULES, eos_id=FIRST + 1),
    "forced tokens": lambda n: search(n, among_allowed=True, forced_end=5, end_at=3),
}


def search(network: CompiledSpeech, **options: Any) -> object:
    window = network.encode(spectrogram())
    window.read_prompt([41])
    return Search([window], replace(GREEDY, **options), limits()).run()


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
def test_misuse(misuse: Callable[[CompiledSpeech], object]) -> None:
    with pytest.raises((AssertionError, TypeCheckError)):  # checked types find some of it first
        misuse(native())


def test_tokens_outside_the_vocabulary() -> None:
    for prompt in ([5, VOCAB], [-1]):
        with pytest.raises(UserError, match="outside the vocabulary"):
            native().encode(spectrogram()).read_prompt(prompt)


def test_non_finite_numbers() -> None:
    module = build(config())
    module.encoder.layers[0].ffn.up_proj.weight.data[3, 3] = torch.nan  # pyright: ignore
    assert search(native_of(module)) == [[]]


def test_a_search_can_be_cancelled() -> None:
    """Before it starts, and soon, compared with a tenth of the work."""
    stop = np.ones(1, np.int32)
    with pytest.raises(SearchCancelled):
        native().encode(spectrogram(), stop)
    wide = config(d_model=256, d_head=128, d_ff=1024, max_len=6000, n_layers=4)
    network, stop = native(wide), np.zeros(1, np.int32)
    started = time.thread_time()
    network.encode(spectrogram(1200))
    tenth = time.thread_time() - started
    threading.Timer(tenth / 2, lambda: stop.fill(1)).start()
    started = time.thread_time()
    with pytest.raises(SearchCancelled):
        network.encode(spectrogram(12_000), stop)
    assert time.thread_time() - started < 5 * tenth


def test_cancelled_contexts_do_not_transcribe() -> None:
    network, cancellation = LibrarySpeech(native()), Cancellation()
    window = network.encode(spectrogram())
    cancellation.cancel()
    with cancellation.context():
        for run in (
            lambda: network.encode(spectrogram()),
            lambda: network.search(window, [41], limits(), GREEDY),
        ):
            with pytest.raises(SearchCancelled):
                run()
    assert network.search(window, [41], limits(), GREEDY)  # afterwards
