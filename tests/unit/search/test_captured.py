"""Captured steps give the results of others, tested with a stand-in for CUDA graphs that runs on a CPU."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.config.settings import SearchSettings
from headwise.contract import Hypothesis, Limits, SearchOptions
from headwise.core.attention import Windowed
from headwise.core.build import build
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.models.language_model import TorchText
from headwise.pytorch.search import captured
from headwise.pytorch.search.captured import CapturedStep, CapturedSteps, capturable, has_fixed_shapes
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.engine import decode_tokens

READING = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero")
VARIANTS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm_position": "pre"},
    "learned": {"positions": "learned", "max_len": 40},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "grouped": {"n_kv_heads": 1, "norm": "rms", "gated": True},
}


class Recorder(TorchDispatchMode):
    """Records the operations of torch inside; `replay` runs them again on the same memory, as a CUDA graph does.

    Python between them is not repeated, so a number that Python knew is the same in every replay. Reading a number
    from the device is an error, as in a capture.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in READING:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():  # no view, and not in place
                    old.copy_(new)


class StandIn:
    """`cuda_graph` on a CPU, which counts."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        function()
        with Recorder() as recorder:
            output = function()
        self.recorded += 1
        output.fill_(torch.nan)  # a capture computes nothing

        def replay() -> None:
            self.replayed += 1
            recorder.replay()

        return replay, output


def small(**changes: Any) -> Transformer:
    """A model whose outputs end at different lengths."""
    sizes = {"vocab_size": 12, "d_model": 8, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2}
    return random_parameters(build_model(TransformerConfig(**{**sizes, "dropout": 0.0, **changes})))


def random_parameters(model: Any) -> Any:
    """The model in float64 with large parameters."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Steps are captured with it."""
    made = StandIn()
    monkeypatch.setattr(captured, "capturable", has_fixed_shapes)
    monkeypatch.setattr(captured, "_barred", Event())
    monkeypatch.setattr(captured, "CapturedSteps", lambda model, step: CapturedSteps(model, step, made))
    return made


SOURCES = [[5, 6, 7, 8, 9, 10, 11, 4], [4, 9], [6, 6, 4], [5], [9, 8, 7, 6], [10, 11]]
LONG = SearchSettings(max_length_factor=0.0, max_length_extra=36, min_length_extra=20, batch_size=3)


def decoded(model: Transformer, settings: SearchSettings) -> list[list[Hypothesis]]:
    prefixes = [[], [7, 5], [], [4], [], []]
    return decode_tokens(engine_of(model), SOURCES, settings, prefixes=prefixes)


def assert_same(found: Sequence[Sequence[Hypothesis]], wanted: Sequence[Sequence[Hypothesis]]) -> None:
    assert [[h.tokens for h in ranked] for ranked in found] == [[h.tokens for h in ranked] for ranked in wanted]
    for h, expected in zip(chain.from_iterable(found), chain.from_iterable(wanted), strict=True):
        assert h.token_log_probs == pytest.approx(expected.token_log_probs, rel=1e-6)


SEARCHES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"beam_size": 4, "n_best": 4}) for name in VARIANTS),
    ("relative", {"beam_size": 1}),
    ("rotary", {"sample": True, "n_best": 2, "seed": 3}),
    ("post", {"beam_size": 3, "no_repeat_ngram": 3}),
    ("learned", {"beam_size": 2, "batch_size": 1}),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("variant", "settings"), SEARCHES, ids=str)
def test_a_search_with_captured_steps_finds_the_same(
    variant: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, stand_in: StandIn
) -> None:
    """The cache grows meanwhile, hypotheses move between rows, and rows leave."""
    model = small(**VARIANTS[variant])
    found = decoded(model, replace(LONG, **settings))
    monkeypatch.setattr(captured, "capturable", lambda model: False)
    assert_same(found, decoded(model, replace(LONG, **settings)))
    assert stand_in.replayed > 20 * (6 // settings.get("batch_size", 3)) / 2
    assert 1 < stand_in.recorded < stand_in.replayed / 3


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_states_with_fixed_shapes_are_those_without(changes: dict[str, Any]) -> None:
    """In float64: the unused part of the buffers, here up to 16 and 32 positions, counts for nothing."""
    model = small(**changes)
    src = torch.tensor([SOURCES[0], [4, 9, 0, 0, 0, 0, 0, 0]])
    tgt_in, memory = torch.randint(3, 12, (2, 30)), model.encode(src, src != 0)
    usual, fixed = model.start_cache(memory, src != 0), model.start_cache(memory, src != 0)
    with torch.inference_mode():
        for length, token in enumerate(tgt_in.split(1, 1)):
            wanted = model.decode(token, memory, usual.src_mask, usual)
            if length >= fixed.capacity:  # the first, and where it grows
                model.decode(token, memory, fixed.src_mask, fixed)
                continue
            with fixed.fixed(torch.tensor([length]), min(fixed.capacity, 40)):
                got = model.decode(token, memory, fixed.src_mask, fixed)
            assert fixed.length == length  # counted by `advance`
            fixed.advance()
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
    assert usual.length == fixed.length == 30


TEXT = StackConfig(d_model=16, n_layers=2, n_heads=4, d_ff=24, d_head=4, n_kv_heads=2, score_cap=5.0)
STACKS: dict[str, dict[str, Any]] = {
    "rotary": {"rotary": RotaryConfig(4), "norm": "rms", "gated": True},
    "learned": {"positions": "learned", "max_len": 60},
    "sinusoidal": {"positions": "sinusoidal", "parallel": "one_norm"},
}


@pytest.mark.few(4)
@pytest.mark.parametrize("changes", STACKS.values(), ids=STACKS.keys())
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("prompts", [[[5, 6, 7], [8], [4, 9, 10, 11, 5]], [[5, 6]]], ids=["padded", "one"])
def test_texts_continue_as_without_captured_steps(
    changes: dict[str, Any],
    beam_size: int,
    prompts: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    stand_in: StandIn,
) -> None:
    network = random_parameters(build(NetworkConfig("gpt2", 12, decoder=replace(TEXT, **changes), head="language")))
    n = len(prompts)
    limits = Limits(np.full(n, 18), np.full(n, 40), np.full((n, 0), -1))
    options = SearchOptions(beam_size=beam_size, n_best=beam_size, suppressed=())
    found = TorchText(network).search(prompts, limits, options)
    monkeypatch.setattr(captured, "capturable", lambda model: False)
    assert_same(found, TorchText(network).search(prompts, limits, options))
    assert stand_in.replayed > 3 * stand_in.recorded > 3


def test_a_captured_step_reads_its_inputs_anew_each_time() -> None:
    stand_in, total = StandIn(), torch.zeros(2)
    step = CapturedStep(lambda x, y: total.add_(x) * y, torch.ones(2), torch.ones(2), record=stand_in)
    total.zero_()
    assert step(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 1.0])).tolist() == [10.0, 2.0]
    assert step(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 5.0])).tolist() == [4.0, 10.0]
    assert (stand_in.recorded, stand_in.replayed) == (1, 2)


def test_a_step_that_cannot_be_captured_is_computed(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    """One that reads a number from the device, for example."""
    model, usual = small(), Transformer.logits
    monkeypatch.setattr(captured, "capturable", lambda model: False)
    wanted = decoded(model, LONG)
    monkeypatch.setattr(captured, "capturable", has_fixed_shapes)

    def logits(self: Transformer, hidden: Tensor) -> Tensor:
        return usual(self, hidden) if hidden.max().item() < 1e9 else hidden

    monkeypatch.setattr(Transformer, "logits", logits)
    with pytest.warns(UserWarning, match="without CUDA graphs, .* not permitted when stream is capturing"):
        found = decoded(model, LONG)
    assert_same(found, wanted)
    assert stand_in.recorded == 0


@pytest.mark.parametrize("right", [0, 1])
def test_a_wrong_replay_is_noticed(right: int, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    """Also the second one, and after it no more steps are captured."""
    model, usual = small(), Recorder.replay
    monkeypatch.setattr(captured, "capturable", lambda model: False)
    wanted = decoded(model, LONG)
    monkeypatch.setattr(captured, "capturable", has_fixed_shapes)
    monkeypatch.setattr(Recorder, "replay", lambda self: stand_in.replayed <= right and usual(self))  # no logits
    with pytest.warns(UserWarning, match="without CUDA graphs, .* replay gave other numbers"):
        found = decoded(model, LONG)
    assert_same(found, wanted)
    assert (stand_in.recorded, stand_in.replayed) == (1, right + 1)
    assert_same(decoded(model, LONG), wanted)
    assert stand_in.recorded == 1


def test_no_step_is_captured_in_training(stand_in: StandIn) -> None:
    model = small()
    with captured.without_captures():
        decoded(model, LONG)
    assert stand_in.recorded == 0
    decoded(model, LONG)
    assert stand_in.recorded > 0


def test_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on CUDA, if it is switched on, without hooks or sliding windows."""
    monkeypatch.setenv("HEADWISE_CAPTURE", "1")
    model = small()
    assert has_fixed_shapes(model) and not capturable(model)
    handle = model.decoder.layers[0].register_forward_hook(lambda *_: None)
    assert not has_fixed_shapes(model)
    handle.remove()
    attention: Any = model.decoder.layers[1].self_attn
    attention.kernel, usual = Windowed(attention.kernel, 4), attention.kernel
    assert not has_fixed_shapes(model)
    attention.kernel = usual
    assert not capturable(model)
    monkeypatch.setattr(Transformer, "parameters", lambda self: iter([_OnCuda()]))
    assert capturable(model)
    monkeypatch.delenv("HEADWISE_CAPTURE")
    assert not capturable(model)


class _OnCuda:
    """A parameter on CUDA, as far as its device is asked."""

    device = torch.device("cuda")
