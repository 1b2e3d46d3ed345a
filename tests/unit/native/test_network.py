"""The library's Transformer compared with torch's, step by step; rows are independent."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from unit.native.stepping import Steps

from headwise.core.build import load_parameters
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.inspect.heads import Head, heads_left, parameters_without
from headwise.pytorch.search.compiled import pack_network
from headwise.pytorch.search.inference import PrecisionVariants, prepare_for_inference
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

Build = Callable[..., Transformer]
SOURCES = [[7, 5, 10, 3, 8, 2], [4, 2], [6, 6, 4, 9, 9, 11, 5, 10, 2], [5, 4, 2]]
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "norms first": {"norm_position": "pre"},
    "learned positions": {"positions": "learned", "max_len": 20},
    "three embeddings": {"tied_embeddings": "none"},
    "one embedding": {"tied_embeddings": "all"},
    "heads of 3 and 5": {"d_k": 3, "d_v": 5},
    "heads of 12 and 20": {"d_k": 12, "d_v": 20},
    "one wide head": {"n_heads": 1, "d_model": 24},
    "d_model 8": {"d_model": 8, "n_heads": 4, "d_ff": 9},
    "d_model 64": {"d_model": 64, "n_heads": 4, "d_ff": 130, "n_decoder_layers": 1},
    "d_model 20": {"d_model": 20, "n_heads": 4, "d_ff": 33},  # heads of 5
    "d_model 6, norms first": {"d_model": 6, "d_ff": 7, "norm_position": "pre", "tied_embeddings": "all"},
    "d_model 13": {"d_model": 13, "n_heads": 1, "d_ff": 1, "positions": "learned", "max_len": 30, "vocab_size": 13},
    "uneven stacks": {"n_encoder_layers": 1, "n_decoder_layers": 3, "norm_position": "pre"},
}
REMOVED = {
    Head("encoder", 0, 1),
    Head("encoder", 0, 2),
    Head("decoder", 1, 0),
    Head("cross", 0, 2),
    Head("cross", 1, 1),
}


def close(ours: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(ours.double(), wanted, rtol=0, atol=2e-5)


def native(model: Transformer, compute: str = "float32") -> Steps:
    prepared = prepare_for_inference(model, compute)
    assert isinstance(prepared, CompiledNetwork)
    return Steps(prepared)


@torch.no_grad()
def start(model: Any, src: Tensor, mask: Tensor) -> Any:
    return model.start_cache(model.encode(src, mask), mask)


@torch.no_grad()
def steps(model: Any, cache: Any, tokens: Tensor) -> Tensor:
    """Hidden states of tokens, one at a time."""
    fed = [model.decode(token, cache.memory, cache.src_mask, cache) for token in tokens.split(1, dim=1)]
    return torch.cat(fed, dim=1)


def compare(model: Transformer, src: Tensor, mask: Tensor, length: int = 20) -> None:
    tgt_in = torch.randint(1, 12, (len(src), length))
    prepared, exact = native(model), copy.deepcopy(model).double()
    hidden = steps(prepared, start(prepared, src, mask), tgt_in)
    with torch.no_grad():
        wanted = exact.states(src, tgt_in, mask)
        close(hidden, wanted)
        close(prepared.logits(hidden), exact.logits(wanted))
        few, rows = [9, 2, 2, 11], hidden.flatten(0, 1)
        chosen = prepared.network.output.rows(np.array(few))(rows.numpy())
        np.testing.assert_array_equal(chosen, prepared.logits(rows)[:, few].numpy())


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_steps_equal_the_torch_model(build: Build, padded: Any, changes: dict[str, Any]) -> None:
    compare(build(**changes), *padded(SOURCES))


@pytest.mark.parametrize("widths", [{}, {"d_k": 3, "d_v": 9}], ids=str)
def test_pruned_heads(build: Build, padded: Any, widths: dict[str, int]) -> None:
    """Different numbers of heads in each attention module."""
    shape = {"d_model": 24, "n_heads": 3, **widths}
    whole = build(**shape)
    left = heads_left(whole, REMOVED)
    assert left == {"encoder": (1, 3), "decoder": (3, 2), "cross": (2, 2)}
    pruned = build(**shape, **{f"{part}_heads": counts for part, counts in left.items()})
    load_parameters(pruned, parameters_without(whole, REMOVED), "the parameters")
    compare(pruned, *padded(SOURCES))


def test_many_long_sentences(build: Build, padded: Any, sentences: Any) -> None:
    """More than are encoded at once, and longer than the initial tables of positions."""
    src, mask = padded([[*source, 2] for source in sentences(530, 300, 1, 299, 200, 30)])
    compare(build(n_encoder_layers=1, n_decoder_layers=1), src, mask, length=40)


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
def test_a_sentence_does_not_depend_on_others(build: Build, padded: Any, compute: str) -> None:
    """Bit-identical, for any order and number of hypotheses."""
    model, tgt_in = native(build(d_model=64, n_heads=4), compute), torch.randint(1, 12, (4, 12))
    together = steps(model, start(model, *padded(SOURCES)), tgt_in)
    turned = steps(model, start(model, *padded(SOURCES[::-1])), tgt_in.flip(0)).flip(0)
    cache = start(model, *padded(SOURCES))
    cache.select(torch.arange(4).repeat_interleave(3))
    threefold = steps(model, cache, tgt_in.repeat_interleave(3, 0))
    assert torch.equal(turned, together)
    assert torch.equal(threefold, together.repeat_interleave(3, 0))
    for i, source in enumerate(SOURCES):
        alone = steps(model, start(model, *padded([source])), tgt_in[i : i + 1])
        assert torch.equal(alone[0], together[i])
    assert torch.equal(model.logits(together)[2, 3], model.logits(together[2, 3]))


def test_int8_is_near_float32(build: Build, padded: Any) -> None:
    model, tgt_in = build(d_model=64, n_heads=4, d_ff=128), torch.randint(1, 12, (4, 12))
    exact, rough = native(model), native(model, "int8")
    wanted, ours = (m.logits(steps(m, start(m, *padded(SOURCES)), tgt_in)) for m in (exact, rough))
    assert 1e-4 < (ours - wanted).std() / wanted.std() < 0.05


def test_several_positions_at_once_and_truncation(build: Build, padded: Any) -> None:
    """As in checking guesses: removed positions leave no trace."""
    model, source = native(build()), padded(SOURCES[:1])
    tgt_in = torch.randint(1, 12, (1, 60))
    wanted = steps(model, start(model, *source), tgt_in)
    cache = start(model, *source)
    for first in range(0, 60, 6):
        guessed = torch.randint(1, 12, (1, 5))
        model.decode(guessed, cache.memory, cache.src_mask, cache)
        cache.truncate(first)
        right = model.decode(tgt_in[:, first : first + 6], cache.memory, cache.src_mask, cache)
        assert torch.equal(right, wanted[:, first : first + 6])
    cache.truncate(70)
    assert cache.length == 60


def test_slots_of_dead_hypotheses_are_reused(build: Build, padded: Any) -> None:
    """Beams with a common history keep its slots and their newest ones."""
    model = build()
    prepared, exact = native(model), copy.deepcopy(model).double()
    caches = [start(m, *padded(SOURCES[:3])) for m in (prepared, exact)]
    for cache in caches:
        cache.select(torch.arange(3).repeat_interleave(4))
    places, closed = 0, 0
    for length, token in enumerate(torch.randint(1, 12, (12, 100)).split(1, dim=1)):
        ours, wanted = (steps(m, cache, token) for m, cache in zip((prepared, exact), caches, strict=True))
        close(ours, wanted)
        now = caches[0].memory.slots
        closed += now < places + 12
        places = now
        assert places >= 3 * length + 12
        for cache in caches:
            cache.reorder(torch.arange(3).repeat_interleave(4) * 4 + length % 4)
    assert closed >= 3 and places < 800


def test_slots_of_live_hypotheses_are_kept(build: Build, padded: Any) -> None:
    """Beams without a common history keep all their slots."""
    model, tgt_in = native(build()), torch.randint(1, 12, (4, 50))
    cache = start(model, *padded(SOURCES[:1]))
    cache.select(torch.zeros(4, dtype=torch.long))
    steps(model, cache, tgt_in)
    assert cache.memory.slots == 200


def test_positions_have_a_limit(build: Build, padded: Any) -> None:
    model = build(positions="learned", max_len=12)
    for form in (model, native(model)):
        cache = start(form, *padded([[5] * 12]))
        steps(form, cache, torch.ones(1, 12, dtype=torch.long))
        with pytest.raises(UserError, match=r"13 tokens.*model's 12"):
            steps(form, cache, torch.ones(1, 1, dtype=torch.long))
        with pytest.raises(UserError, match=r"13 tokens.*model's 12"):
            start(form, *padded([[5] * 13]))


def test_only_supported_models_use_the_library(build: Build) -> None:
    for model in (build().double(), build().half()):
        assert prepare_for_inference(model) is model
    assert not isinstance(prepare_for_inference(build(), "float16"), CompiledNetwork)


def test_a_changed_model_is_packed_again(build: Build, padded: Any) -> None:
    model = build()
    forms = PrecisionVariants(model)
    before = forms("float32")
    assert isinstance(before, CompiledNetwork) and forms("float32") is before
    with torch.no_grad():
        model.get_parameter("encoder.layers.0.ffn.up_proj.weight").mul_(2)
    after, tgt_in = forms("float32"), torch.randint(1, 12, (4, 3))
    forms_of = Steps(after), Steps(before)
    ours, old = (steps(form, start(form, *padded(SOURCES)), tgt_in) for form in forms_of)
    assert not torch.equal(ours, old)
    with torch.no_grad():
        close(ours, copy.deepcopy(model).double().states(padded(SOURCES)[0], tgt_in, padded(SOURCES)[1]))


@pytest.mark.parametrize("strange", [12, -1])
def test_ids_beyond_the_vocabulary_are_refused(build: Build, strange: int) -> None:
    """C would read beyond the table."""
    network = pack_network(build(), "float32")
    with pytest.raises(UserError, match=f"{strange}.*12"):
        network.start([[5, strange, 2]])
    decoding, zeros = network.start([[5, 2]]), np.zeros(1, np.int32)
    with pytest.raises(UserError, match=f"token {strange} is outside"):
        decoding.step(np.array([strange]), zeros, zeros, np.zeros((1, 8), np.int32))
