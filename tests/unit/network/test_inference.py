"""The prepared model computes what the simple one computes, however its cache is moved: in both of its forms."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.native.library import library
from sightline.network.inference import InferenceTransformer
from sightline.network.masks import padding_mask
from sightline.network.native_inference import NativeTransformer
from sightline.network.prepared import PreparedForms, prepare_for_inference
from sightline.network.transformer import Transformer

SRC = torch.tensor([[7, 5, 10, 3, 8, 2], [4, 9, 2, 0, 0, 0], [6, 6, 4, 2, 0, 0]])
SRC_MASK = padding_mask(SRC, 0)
TIGHT: dict[str, Any] = {"rtol": 0, "atol": 1e-11}

Build = Callable[..., Transformer]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm_position": "pre"},
    {"positions": "learned", "max_len": 40},
    {"tied_embeddings": "none"},
    {"d_k": 3, "d_v": 5},
    {"n_encoder_layers": 1, "n_decoder_layers": 3, "n_heads": 4},
]


@dataclass
class Form:
    """Of a prepared model: for torch in the numbers of the simple one, for the library in float32."""

    kind: type[InferenceTransformer | NativeTransformer]

    def of(self, model: Transformer, compute: str = "float32") -> Any:
        """A model made ready."""
        prepared = prepare_for_inference(self.taken(model), compute)
        assert isinstance(prepared, self.kind)
        return prepared

    def taken(self, model: Transformer) -> Transformer:
        """The model itself, or what the library takes of it."""
        return model if self.kind is InferenceTransformer else copy.deepcopy(model).float()

    def check(self, ours: Tensor, wanted: Tensor) -> None:
        """What a form yields is what the simple model yields."""
        tolerance = 1e-11 if self.kind is InferenceTransformer else 1e-4
        torch.testing.assert_close(ours, wanted, check_dtype=False, rtol=0, atol=tolerance)


FORMS = {"torch": InferenceTransformer, "native": NativeTransformer}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Form:
    if request.param == "native" and library() is None:
        pytest.skip("the compiled library is not here")
    if request.param == "torch":
        monkeypatch.setattr("sightline.network.prepared.native_available", lambda model: False)
    return Form(FORMS[request.param])


def targets(rows: int, length: int) -> Tensor:
    return torch.randint(3, 11, (rows, length))


def steps(model: Any, cache: Any, tokens: Tensor) -> Tensor:
    """Hidden states of the last of `tokens`, fed one at a time."""
    with torch.no_grad():
        return [model.decode(token, cache.memory, cache.src_mask, cache) for token in tokens.split(1, dim=1)][-1]


def start(model: Any) -> Any:
    with torch.no_grad():
        return model.start_cache(model.encode(SRC, SRC_MASK), SRC_MASK)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_prepared_equals_simple(build_small: Build, form: Form, changes: dict[str, Any]) -> None:
    """Forty positions, so that the buffers grow on the way."""
    model = build_small(**changes)
    prepared = form.of(model)
    tgt_in = targets(3, 40)
    with torch.no_grad():
        hidden = model.states(SRC, tgt_in, SRC_MASK)
        cache = start(prepared)
        ours = torch.cat([steps(prepared, cache, token) for token in tgt_in.split(1, dim=1)], dim=1)
        form.check(ours, hidden)
        form.check(prepared.logits(ours), model.logits(hidden))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_sources_are_encoded_as_by_the_simple_model(build_small: Build, changes: dict[str, Any]) -> None:
    """The library shows nobody what it makes of them but in its steps."""
    model = build_small(**changes)
    prepared = prepare_for_inference(model)
    assert isinstance(prepared, InferenceTransformer)
    with torch.no_grad():
        memory, real = model.encode(SRC, SRC_MASK), SRC_MASK.unsqueeze(-1)
        torch.testing.assert_close(prepared.encode(SRC, SRC_MASK) * real, memory * real, **TIGHT)


def moved(model: Any, moves: list[tuple[str, list[int]]], tokens: list[Tensor]) -> Tensor:
    cache = start(model)
    for (verb, index), new in zip(moves, tokens, strict=True):
        getattr(cache, verb)(torch.tensor(index))
        hidden = steps(model, cache, new)
    return hidden


MOVES: dict[str, list[tuple[str, list[int]]]] = {
    "multiply": [("select", [0, 0, 1, 1, 2, 2])],
    "multiply after a step": [("reorder", [0, 1, 2]), ("select", [0, 0, 1, 1, 2, 2]), ("reorder", [1, 1, 2, 2, 5, 4])],
    "wider again": [("select", [0, 0, 1, 1, 2, 2]), ("select", [1, 1, 0, 2, 3, 2, 5, 5, 4])],
    "sentences leave": [
        ("select", [0, 0, 1, 1, 2, 2]),
        ("reorder", [1, 0, 2, 2, 5, 4]),
        ("select", [1, 0, 5, 5]),
        ("reorder", [1, 1, 2, 2]),
        ("select", [2, 3]),
    ],
    "the last sentence takes the place of another": [
        ("select", [0, 0, 1, 1, 2, 2]),
        ("select", [5, 4, 2, 3]),
        ("reorder", [0, 0, 3, 3]),
        ("reorder", [1, 1, 2, 3]),
        ("select", [2, 2]),
    ],
    "rows leave": [
        ("select", [0, 0, 1, 1, 2, 2]),
        ("select", [1, 2, 3, 5]),
        ("select", [3, 0, 0]),
        ("reorder", [0, 2, 1]),
    ],
    "order changes": [("reorder", [0, 1, 2]), ("select", [2, 0, 1]), ("select", [2, 2, 0])],
    "other widths": [("select", [1, 1, 1]), ("reorder", [2, 0, 0]), ("select", [0]), ("select", [0, 0])],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_rows_move_as_in_the_simple_cache(model: Transformer, form: Form, moves: list[tuple[str, list[int]]]) -> None:
    """Many steps between moves, so that most slots belong to hypotheses that died."""
    tokens = [targets(len(index), 9) for _, index in moves]
    form.check(moved(form.of(model), moves, tokens), moved(model, moves, tokens))


def test_long_search_with_random_parents(model: Transformer, form: Form) -> None:
    """Three beams that change places at each of 60 steps."""
    moves = [("select", [0, 0, 0, 1, 1, 1, 2, 2, 2])]
    base = torch.tensor([0, 0, 0, 3, 3, 3, 6, 6, 6])
    moves += [("reorder", (base + torch.randint(0, 3, (9,))).tolist()) for _ in range(60)]
    tokens = [targets(9, 1) for _ in moves]
    form.check(moved(form.of(model), moves, tokens), moved(model, moves, tokens))


def test_steps_are_taken_back(build_small: Build, form: Form) -> None:
    """Guesses of one hypothesis, several at once, that were wrong."""
    model, tokens = build_small(), targets(1, 12)
    prepared, caches = form.of(model), []
    for each in (prepared, model):
        with torch.no_grad():
            memory = each.encode(SRC[:1], SRC_MASK[:1])
            caches.append(each.start_cache(memory, SRC_MASK[:1]))
    for first in (0, 4, 8):
        for each, cache in zip((prepared, model), caches, strict=True):
            steps(each, cache, tokens[:, first : first + 2])
            with torch.no_grad():
                each.decode(targets(1, 5), cache.memory, cache.src_mask, cache)
            cache.truncate(first + 2)
            assert cache.length == first + 2
        ours, wanted = (
            steps(m, c, tokens[:, first + 2 : first + 4]) for m, c in zip((prepared, model), caches, strict=True)
        )
        form.check(ours, wanted)


def test_dead_slots_are_forgotten(model: Transformer) -> None:
    """Beams that keep coming from one hypothesis need one slot a position and their own newest ones, not all."""
    prepared = prepare_for_inference(model)
    cache = start(prepared)
    cache.select(torch.arange(3).repeat_interleave(4))
    for token in targets(12, 100).split(1, dim=1):
        cache.reorder(torch.arange(3).repeat_interleave(4) * 4 + 2)
        steps(prepared, cache, token)
    assert cache.length == 100 and cache.self_k.size(3) <= 256


def test_everything_is_recorded_as_a_graph(model: Transformer) -> None:
    """Or one sentence at a time would take twice as long."""
    prepared = prepare_for_inference(model)
    prepared.logits(steps(prepared, start(prepared), targets(3, 1)))
    for part in (prepared.encoder, prepared.step, prepared.output):
        assert isinstance(part._graph, torch.jit.ScriptModule)


def test_the_cache_itself_stays_where_it_is(model: Transformer) -> None:
    """The point of it all: beams change places and no key or value is copied."""
    prepared = prepare_for_inference(model)
    cache = start(prepared)
    cache.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    steps(prepared, cache, targets(6, 1))
    before = [t.data_ptr() for t in (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)]
    cache.reorder(torch.tensor([1, 0, 2, 2, 5, 4]))
    steps(prepared, cache, targets(6, 1))
    assert [t.data_ptr() for t in (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)] == before


def test_a_sentence_that_leaves_moves_one_other(model: Transformer) -> None:
    """Nor are all sentences copied when one has ended: the last takes its place."""
    prepared = prepare_for_inference(model)
    cache = start(prepared)
    steps(prepared, cache, targets(3, 1))
    buffers = [t for t in (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)]
    last = [t[:, 2].clone() for t in buffers]
    cache.select(torch.tensor([2, 1]))
    after = (cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)
    for before, moved_to, kept in zip(buffers, after, last, strict=True):
        assert moved_to.data_ptr() == before.data_ptr() and moved_to.size(1) == 2
        assert torch.equal(moved_to[:, 0].nan_to_num(), kept.nan_to_num())


def test_sources_are_encoded_some_at_a_time(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_for_inference(model)
    whole, lots = prepared.encode(SRC, SRC_MASK), []
    encoder = prepared.encoder
    monkeypatch.setattr(encoder, "forward", lambda x, bias, f=encoder.forward: lots.append(len(x)) or f(x, bias))
    monkeypatch.setattr("sightline.network.inference._AT_ONCE", 2 * SRC.size(1))
    torch.testing.assert_close(prepared.encode(SRC, SRC_MASK), whole, **TIGHT)
    assert lots == [2, 1]


def test_preparing_leaves_the_model_alone(model: Transformer, form: Form) -> None:
    model = form.taken(model).train()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    prepared = prepare_for_inference(model)
    assert isinstance(prepared, form.kind)
    start(prepared)
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert not any(parameter.requires_grad for parameter in prepared.parameters())


def test_int8_is_close_to_float32(build_small: Build, form: Form) -> None:
    model = build_small(d_model=64, d_ff=128, n_heads=4).float()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.125) if parameter.dim() > 1 else nn.init.ones_(parameter)
    exact, rough = form.of(model), form.of(model, "int8")
    tokens = targets(3, 5)
    wanted, got = (m.logits(steps(m, start(m), tokens)) for m in (exact, rough))
    assert 0 < (got - wanted).std() / wanted.std() < 0.05


def test_without_int8_products_float32_is_used(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.network.quantized.int8_available", lambda: False)
    with pytest.warns(UserWarning, match="float32 is used"):
        prepared = prepare_for_inference(model, "int8")
    assert isinstance(prepared, InferenceTransformer)
    tokens = targets(3, 2)
    torch.testing.assert_close(steps(prepared, start(prepared), tokens), steps(model, start(model), tokens), **TIGHT)


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_half_precision_is_a_copy(build_small: Build, compute: str) -> None:
    model = build_small().float()
    half = prepare_for_inference(model, compute)
    tokens = targets(3, 3)
    wanted, got = (m.logits(steps(m, start(m), tokens)) for m in (model, half))
    assert got.dtype == getattr(torch, compute)
    assert (got.float() - wanted).abs().max() < 0.1 * wanted.std()
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.usefixtures("form")
def test_forms_are_kept_until_the_model_changes(build_small: Build) -> None:
    model = build_small().float()
    forms = PreparedForms(model)
    first, other = forms("float32"), forms("int8")
    assert forms("float32") is first and forms("int8") is other and first is not other
    with torch.no_grad():
        model.output.weight.mul_(2)
    assert forms("float32") is not first
    tokens = targets(3, 2)
    hidden = steps(model, start(model), tokens)
    torch.testing.assert_close(forms("float32").logits(hidden), model.logits(hidden))
