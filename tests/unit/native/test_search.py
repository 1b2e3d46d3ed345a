"""The library's search compared with `core.search` on the library's steps, and on the torch model."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from unit.native.stepping import by_steps

from headwise.config.settings import SearchSettings
from headwise.contract import Limits, SearchOptions, SpecialIds, TimestampRules
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native import library as c
from headwise.runtime.native.library import Ids, Options, library
from headwise.runtime.native.network import CompiledEnsemble, CompiledNetwork
from headwise.runtime.native.search import Search, filled, options_of
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import begin, decode_tokens, greedy_steps, watch
from headwise.runtime.search.request import SearchRequest

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

Build = Callable[..., Transformer]
Sentences = Callable[..., list[list[int]]]
LENGTHS = (1, 5, 4, 0, 5, 2, 3, 6)
SHORT = SearchSettings(max_length_factor=1.0, max_length_extra=3)


def native(model: Transformer, compute: str = "float32") -> Any:
    prepared = prepare_for_inference(model, compute)
    assert isinstance(prepared, CompiledNetwork)
    return prepared


def same(found: list[list[Any]], wanted: list[list[Any]], tolerance: float = 1e-4) -> None:
    tokens = [[[h.tokens for h in ranked] for ranked in each] for each in (found, wanted)]
    assert tokens[0] == tokens[1]
    for ours, theirs in zip(chain(*found), chain(*wanted), strict=True):
        assert type(ours) is type(theirs)
        assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=tolerance)
        assert (ours.log_prob, ours.score) == pytest.approx((theirs.log_prob, theirs.score), abs=tolerance)


def compare(model: Any, sources: list[list[int]], config: SearchSettings, **how: Any) -> list[list[Any]]:
    found = decode_tokens(engine_of(model), sources, config, **how)
    same(found, decode_tokens(engine_of(by_steps(model)), sources, config, **how))
    return found


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each search of the library: its sentences, and the slots in use at its end."""
    seen: list[tuple[int, int]] = []
    run = Search.run

    def recorded(self: Search) -> Any:
        found, decoding = run(self), self._decodings[0]
        seen.append((decoding.sentences, decoding.slots))
        return found

    monkeypatch.setattr(Search, "run", recorded)
    return seen


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("vocab", [12, 203])
@pytest.mark.parametrize("peak", [0.5, 4.0])
@pytest.mark.parametrize("beam_size", [1, 2, 4, 5])
def test_equals_the_torch_search(build: Build, sentences: Sentences, beam_size: int, peak: float, vocab: int) -> None:
    """Flat and peaked models, with and without a length penalty, all hypotheses or one."""
    model = native(build(peak, vocab_size=vocab, tied_embeddings="none"))
    sources, lengths = sentences(*LENGTHS, vocab=vocab), set()
    for penalty, n_best in ((0.0, beam_size), (0.6, 1), (1.0, beam_size)):
        config = replace(SHORT, beam_size=beam_size, length_penalty=penalty, n_best=n_best)
        found = compare(model, sources, config)
        lengths |= {len(h.tokens) for ranked in found for h in ranked}
        assert [len(ranked) for ranked in found] == [1 if not source else n_best for source in sources]
    assert len(lengths) > 3


@pytest.mark.parametrize("beam_size", [2, 4])
def test_a_late_hypothesis_may_be_the_best(build: Build, sentences: Sentences, beam_size: int) -> None:
    """With a large length penalty, a search must not stop at the first finished output."""
    config = SearchSettings(beam_size=beam_size, length_penalty=1.5, max_length_factor=0.0, max_length_extra=25)
    for _ in range(3):
        model = native(build(3.0, tied_embeddings="none", d_model=8))
        found = compare(model, sentences(*range(1, 7)), config)
        assert max(len(ranked[0].tokens) for ranked in found) > 10


@pytest.mark.few(5)
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    "shape",
    [
        {"norm_position": "pre"},
        {"norm_position": "post"},
        {"d_model": 20, "n_heads": 4, "d_ff": 33, "vocab_size": 101},  # heads of 5
        {"d_model": 18, "n_heads": 2, "d_ff": 1, "vocab_size": 41, "norm_position": "pre"},  # heads of 9
        {"d_model": 3, "n_heads": 1, "d_ff": 5, "vocab_size": 17, "positions": "learned", "max_len": 30},
    ],
    ids=str,
)
def test_equals_a_search_with_the_torch_model(
    build: Build, sentences: Sentences, shape: dict[str, Any], beam_size: int
) -> None:
    """For any width: rows in C are padded."""
    model = build(2.0, **{"vocab_size": 40, "tied_embeddings": "none", **shape})
    exact, sources = copy.deepcopy(model).double(), sentences(*LENGTHS, vocab=shape.get("vocab_size", 40))
    for n_best in {1, beam_size}:
        config = replace(SHORT, beam_size=beam_size, n_best=n_best)
        same(decode_tokens(engine_of(native(model)), sources, config), decode_tokens(engine_of(exact), sources, config))


@pytest.mark.parametrize("beam_size", [1, 3, 7])
def test_ties_are_broken_the_same_way(build: Build, sentences: Sentences, beam_size: int) -> None:
    """All or half of the tokens are equally probable: the earlier token, beam and hypothesis wins."""
    model = build(0.0, vocab_size=30, tied_embeddings="none")
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size, length_penalty=0.0)
    compare(native(model), sentences(*LENGTHS), config)
    with torch.no_grad():
        model.output.weight[::2, 0] = 1
    for penalty in (0.0, 1.0):
        compare(native(model), sentences(*LENGTHS), replace(config, length_penalty=penalty))


@pytest.mark.parametrize("beam_size", [1, 2, 5, 8])
@pytest.mark.parametrize("vocab", [5, 6])
def test_a_vocabulary_smaller_than_the_beam(build: Build, sentences: Sentences, vocab: int, beam_size: int) -> None:
    """Three of five tokens are suppressed, so there are two, one of which ends."""
    model = native(build(vocab_size=vocab, tied_embeddings="none"))
    found = compare(model, sentences(3, 1, 5, vocab=5), replace(SHORT, beam_size=beam_size, n_best=beam_size))
    assert all(token not in (0, 1, 2, 3) for ranked in found for h in ranked for token in h.tokens)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_minimum_and_maximum_length(build: Build, sentences: Sentences, beam_size: int) -> None:
    model, sources = native(build(2.0, tied_embeddings="none")), sentences(*LENGTHS)
    config = SearchSettings(beam_size=beam_size, n_best=beam_size, max_length_extra=2, max_length_factor=1.0)
    for least in (0.5, 1.0):
        found = compare(model, sources, replace(config, min_length_factor=least))
        bounds = [(int(least * (len(source) + 1)), len(source) + 3) for source in sources]
        lengths = [[len(h.tokens) for h in ranked] for ranked in found]
        assert all(low <= n <= high for (low, high), of in zip(bounds, lengths, strict=True) for n in of if n)
    found = compare(model, sources, config, max_len=1)
    assert all(
        len(h.token_log_probs) == 1 for ranked, source in zip(found, sources, strict=True) if source for h in ranked
    )


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_forced_prefixes(build: Build, sentences: Sentences, beam_size: int) -> None:
    """Prefixes of several lengths; suppressed tokens may be forced."""
    model, sources = native(build(tied_embeddings="none")), sentences(*LENGTHS)
    prefixes = [[5, 6, 7], [], [3, 9], [4], [11] * 9, [], [8], [0, 4]]
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size, min_length_factor=0.5)
    found = compare(model, sources, config, prefixes=prefixes)
    for source, ranked, prefix in zip(sources, found, prefixes, strict=True):
        assert all(h.tokens[: len(prefix)] == prefix for h in ranked if source)


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16", "int4"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_shortlist(build: Build, sentences: Sentences, beam_size: int, compute: str) -> None:
    """Sentences have different candidates, one of them hardly any."""
    vocab = 300
    model = native(build(1.5, vocab_size=vocab, tied_embeddings="none"), compute)
    sources = sentences(*LENGTHS, vocab=vocab)
    table = CandidateTable(np.array([7, 8]), torch.randint(4, vocab, (vocab, 4)).numpy())
    prefixes = [[]] * 4 + [[299, 9]] + [[]] * 3
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    found = compare(model, sources, config, prefixes=prefixes, shortlist=table)
    for i, source in enumerate(sources):
        offered = {7, 8, *source, *prefixes[i], *table.likely[[*source, 2]].ravel().tolist()}
        assert all(set(h.tokens) <= offered for h in found[i])
        same(
            decode_tokens(engine_of(model), [source], config, prefixes=[prefixes[i]], shortlist=table), [found[i]], 1e-5
        )
    assert found != decode_tokens(engine_of(model), sources, config, prefixes=prefixes)


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16", "int4"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_results_do_not_depend_on_the_batch(build: Build, sentences: Sentences, beam_size: int, compute: str) -> None:
    """Bit-identical in batches of any size and order, and on several threads."""
    model, sources = native(build(d_model=32, vocab_size=50), compute), sentences(*LENGTHS, 12, 7, vocab=50)
    config = SearchSettings(beam_size=beam_size, n_best=beam_size, max_length_extra=20, min_length_factor=1.0)
    together = decode_tokens(engine_of(model), sources, config)
    assert [decode_tokens(engine_of(model), [source], config)[0] for source in sources] == together
    for batch_tokens in (1, 60, 200):
        smaller = replace(config, batch_tokens=batch_tokens)
        assert decode_tokens(engine_of(model), sources, smaller) == together
        assert decode_tokens(engine_of(model), sources[::-1], smaller)[::-1] == together


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"n_best": 3}, {"sample": True, "n_best": 2}], ids=str)
def test_a_source_that_occurs_again_is_searched_once(
    build: Build, sentences: Sentences, searches: list[tuple[int, int]], settings: dict[str, Any]
) -> None:
    """With the same bits as alone, also where outputs are sampled."""
    engine, (one, other) = engine_of(native(build(2.0))), sentences(4, 6)
    config = replace(SHORT, beam_size=4, temperature=2.0).changed(settings)
    found = decode_tokens(engine, [one, other, one, one], config)
    assert sum(count for count, _ in searches) == 2
    assert found == [decode_tokens(engine, [source], config)[0] for source in (one, other, one, one)]


@pytest.mark.usefixtures("four_threads")
def test_threads_search_side_by_side(build: Build, sentences: Sentences, searches: list[tuple[int, int]]) -> None:
    """Position tables grow during searches; batches are smaller, since they share memory."""
    model, sources = build(d_model=32, vocab_size=50), sentences(*range(1, 60), vocab=50)
    config = SearchSettings(beam_size=2, batch_tokens=2000, max_length_factor=1.0)
    found = decode_tokens(engine_of(native(model)), sources, config)
    threaded = [size for size, _ in searches]
    searches.clear()
    torch.set_num_threads(1)
    assert decode_tokens(engine_of(native(model)), sources, config) == found
    in_turn = [size for size, _ in searches]
    assert len(threaded) > len(in_turn) > 1 and sum(threaded) == sum(in_turn) == len(sources)


@pytest.mark.usefixtures("four_threads")
def test_an_error_in_a_thread_is_raised(build: Build, sentences: Sentences) -> None:
    model = build()
    with torch.no_grad():
        model.get_parameter("decoder.layers.0.ffn.down_proj.weight")[0, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(engine_of(native(model)), sentences(*range(1, 40)), replace(SHORT, batch_tokens=50))


def test_slots_of_dead_hypotheses_are_freed(
    build: Build, sentences: Sentences, searches: list[tuple[int, int]]
) -> None:
    """Long outputs of beams with a common history; results equal a step-by-step search."""
    model, sources = native(build(3.0, tied_embeddings="none")), sentences(14, 15)
    config = SearchSettings(beam_size=4, max_length_factor=0.0, max_length_extra=100, min_length_factor=6.0)
    found = compare(model, sources, config)
    made = 2 + 4 * sum(len(ranked[0].token_log_probs) - 1 for ranked in found)
    [(_, places)] = searches
    assert made > 700 and places < 0.7 * made


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    [
        "src_embeddings.tokens.weight",
        "encoder.layers.1.self_attn.k_proj.weight",
        "encoder.layers.0.ffn.up_proj.weight",
        "encoder.layers.0.ffn.down_proj.bias",
        "decoder.layers.0.self_attn.q_proj.weight",
        "decoder.layers.0.cross_attn.v_proj.bias",
        "decoder.layers.1.ffn.up_proj.bias",
        "decoder.layers.1.ffn_sublayer.norm.weight",
        "output.weight",
    ],
)
def test_non_finite_weights(build: Build, name: str, compute: str) -> None:
    """A single one is enough for an error."""
    model = build(vocab_size=20, tied_embeddings="none", positions="learned", max_len=30)
    parameter = model.get_parameter(name)
    with torch.no_grad():
        parameter[(7, 3)[: parameter.dim()]] = torch.nan
    for beam_size in (1, 4):
        with pytest.raises(UserError, match="not finite"):
            decode_tokens(engine_of(native(model, compute)), [[7, 8, 9]], replace(SHORT, beam_size=beam_size))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_twice(build: Build, sentences: Sentences, n: int, beam_size: int) -> None:
    """Without other tokens an output may end, even if it is short."""
    model, sources = native(build(3.0, vocab_size=9, tied_embeddings="none")), sentences(*LENGTHS, vocab=9)
    config = SearchSettings(beam_size=beam_size, n_best=beam_size, max_length_extra=20, min_length_factor=4.0)
    prefixes = [[5], [5, 5, 5], *[[]] * 6]
    found = compare(model, sources, replace(config, no_repeat_ngram=n), prefixes=prefixes)
    assert found != decode_tokens(engine_of(model), sources, config, prefixes=prefixes)
    for hypothesis in chain(*found[3:]):
        ngrams = list(zip(*(hypothesis.tokens[i:] for i in range(n)), strict=False))
        assert len(ngrams) == len(set(ngrams))
    assert n > 1 or min(len(ranked[0].tokens) for ranked in found if ranked[0].tokens) < 8, "none was stuck"


DRAWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.4},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 1000},
    {"top_p": 0.2},
    {"top_p": 0.9},
    {"top_k": 20, "top_p": 0.7, "temperature": 1.5},
    {"seed": 2**32 - 1, "no_repeat_ngram": 1},
    {"min_length_factor": 1.0, "length_penalty": 1.0},
]


@pytest.mark.parametrize("changes", DRAWS, ids=str)
def test_samples_equal_those_of_torch(build: Build, sentences: Sentences, changes: dict[str, Any]) -> None:
    """From the same random streams; prefixes of several lengths, several samples of each source."""
    model, sources = native(build(2.0, vocab_size=203, tied_embeddings="none")), sentences(*LENGTHS, vocab=203)
    config = replace(SHORT, sample=True, n_best=3, max_length_extra=12, **changes)
    prefixes = [[5, 6, 7], [], [3, 9], *[[]] * 5]
    found = compare(model, sources, config, prefixes=prefixes)
    outputs = {tuple(h.tokens) for h in chain(*found)}
    sharp = changes in ({"top_k": 1}, {"top_p": 0.2})
    assert sharp or len(outputs) > 8
    assert [decode_tokens(engine_of(model), [source], config)[0] for source in sources[3:]] == found[3:]
    if not sharp:
        assert found != decode_tokens(
            model, sources, replace(config, seed=7), prefixes=[[5, 6, 7], [], [3, 9], *[[]] * 5]
        )


def test_ties_in_sampling(build: Build, sentences: Sentences) -> None:
    """Ties with the last of `top_k` may be sampled, too; for `top_p` the first of equal probabilities count."""
    model = build(0.0, vocab_size=30, tied_embeddings="none")
    with torch.no_grad():
        model.output.weight[5::2, 0] = 1
    for changes in ({"top_k": 3}, {"top_p": 0.3}, {"top_k": 3, "top_p": 0.3}):
        config = replace(SHORT, sample=True, n_best=9, max_length_extra=9, **changes)
        found = compare(native(model), sentences(6, 5, 4, vocab=30), config)
        drawn = {token for h in chain(*found) for token in h.tokens}
        assert len(drawn) > (2 if "top_p" in changes else 9)


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, {"sample": True, "n_best": 3}])
@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_with_a_shortlist_no_bit_depends_on_the_batch(
    build: Build, sentences: Sentences, settings: dict[str, Any], compute: str
) -> None:
    """Random batches of random sentences with any number of candidates: each scores as it does alone."""
    draw = np.random.default_rng(0)
    model, vocab = native(build(2.0, vocab_size=300), compute), 300
    config = SearchSettings(max_length_factor=1.0, max_length_extra=2, **settings)
    table = CandidateTable(np.arange(4, 40), draw.integers(4, vocab, (vocab, 25)))
    sources = sentences(*draw.integers(1, 8, 24), vocab=vocab)
    alone = [decode_tokens(engine_of(model), [source], config, shortlist=table)[0] for source in sources]
    for _ in range(10):
        batch = draw.permutation(len(sources))[: draw.integers(2, len(sources))]
        assert decode_tokens(engine_of(model), [sources[i] for i in batch], config, shortlist=table) == [
            alone[i] for i in batch
        ]


def test_sampling_from_a_shortlist(build: Build, sentences: Sentences) -> None:
    model, sources = native(build(1.5, vocab_size=300, tied_embeddings="none")), sentences(*LENGTHS, vocab=300)
    table = CandidateTable(np.array([7, 8]), torch.randint(4, 300, (300, 4)).numpy())
    for changes in ({}, {"top_k": 9}, {"top_p": 0.6}):
        config = replace(SHORT, sample=True, n_best=2, max_length_extra=9, **changes)
        assert compare(model, sources, config, shortlist=table) != decode_tokens(engine_of(model), sources, config)


FLIPPED: dict[str, Any] = {
    "timestamps": TimestampRules(5, 4),
    "among_allowed": True,
    "beam_size": 2, "length_penalty": 0.3, "n_best": 2, "bos_id": 5, "eos_id": 6, "suppressed": (3,),
    "suppressed_first": (4,), "other_ends": (7,), "early_stopping": "no", "forced": (9,), "forced_end": 0, "end_at": 3,
    "temperature": 0.5, "top_k": 2, "top_p": 0.5, "seed": 2, "no_repeat_ngram": 2, "bos_in_ngrams": True,
    "repetition_penalty": 1.5, "sequence_bias": (((4, 5), 1.0),), "pad_id": 8, "unk_id": 8, "sample": True,
}  # fmt: skip


# What requests, limits and batches are made of, before a search.
BEFORE = (
    "max_length_factor", "max_length_extra", "min_length_factor", "min_length_extra", "stop", "batch_size",
    "batch_tokens", "max_source_length", "shortlist", "draft_length", "compute", "source_end",
)  # fmt: skip
TORCH_ONLY: dict[str, Any] = {"ngram_context": (1,), "rules": (max,)}


@pytest.mark.parametrize("name", [field.name for field in fields(SearchOptions) if field.name not in BEFORE])
def test_every_option_is_passed_or_refused(name: str) -> None:
    """Every option reaches C, or is refused."""
    usual = SearchOptions(forced_end=1, end_at=2)
    if name == "seed":
        return  # goes with the random streams: see `test_samples_equal_those_of_torch`
    if name == "stop_function":
        return  # a function: see test_decoders.py
    if name in TORCH_ONLY:
        with pytest.raises(AssertionError, match="compiled library"):
            options_of(replace(usual, **{name: TORCH_ONLY[name]}), False)
        return
    told = [options_of(each, False) for each in (usual, replace(usual, **{name: FLIPPED[name]}))]
    assert str(numbers_of(*told[0])) != str(numbers_of(*told[1]))


def test_every_field_of_a_struct_is_known() -> None:
    limits = Limits(*np.zeros((3, 1, 1), np.int32))
    sizes = {"prefix_length": 1, "n_phrases": 0, "phrase_length": 0, "context_length": 0}
    assert filled(c.Limits, sizes, limits.each(lambda array: array.size)).min_length == 1
    with pytest.raises(AssertionError, match="unknown"):
        filled(c.Limits, sizes | {"longest": 1}, limits)
    with pytest.raises(AttributeError):
        filled(c.Limits, {}, limits)


def numbers_of(options: Options, lists: dict[str, Any]) -> list[Any]:
    """All values that C reads, except addresses of lists."""
    known = [getattr(options, field[0]) for field in Options._fields_ if field[1] is not Ids]
    return [*known, *(ids.tolist() for ids in lists.values())]


# A step at a time ----------------------------------------------------------------------------------------------------


def begun(model: Any, source: list[int], config: SearchSettings, prefix: Sequence[int] = (), table: Any = None) -> Any:
    return begin(engine_of(model), SearchRequest([source], [prefix], config, SpecialIds(), shortlist=table))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_stepwise_search_equals_torch(build: Build, sentences: Sentences, count: int, beam_size: int) -> None:
    """Ranked continuations and results equal those of torch, with a shortlist and a prefix."""
    model, table = several(build, count), CandidateTable(np.array([7, 8]), torch.randint(4, 60, (60, 4)).numpy())
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    for source in sentences(5, 2, 9, vocab=60):
        for how in ({}, {"prefixes": [[9, 30]]}, {"shortlist": table}):
            search = begun(model, source, config, *how.get("prefixes", [()]), how.get("shortlist"))
            shown: list[Any] = []
            while steps := search.advance():
                shown += steps
            assert search.advance() == [], "it is over"
            assert search.hypotheses() == decode_tokens(engine_of(model), [source], config, **how)
            wanted: list[Any] = []
            prefix, few = how.get("prefixes", [()])[0], how.get("shortlist")
            if beam_size > 1:
                watch(begun(by_steps(model), source, config, prefix, few), wanted.append)
                assert [[(one.token, one.parent, one.ended) for one in step] for step in shown] == [
                    [(one.token, one.parent, one.ended) for one in step] for step in wanted
                ]
            for ours, theirs in zip(chain(*shown), chain(*wanted), strict=beam_size > 1):
                assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
                assert ours.token_log_prob == pytest.approx(theirs.token_log_prob, abs=1e-4)


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("count", [1, 2])
def test_guesses_change_only_the_number_of_steps(build: Build, sentences: Sentences, count: int, compute: str) -> None:
    """Bit-identical for correct, wrong and too many guesses."""
    model = several(build, count, compute)
    config = replace(SHORT, beam_size=1, max_length_extra=25, min_length_factor=3.0, no_repeat_ngram=2)
    for source in sentences(5, 7, vocab=60):
        for prefix in ([], [9, 30, 9]):
            wanted = decode_tokens(engine_of(model), [source], config, prefixes=[prefix])
            right = [*wanted[0][0].tokens, 2]
            for every, most in ((1, 1), (1, 4), (1, 99), (3, 5), (100, 6)):
                search, written, calls = begun(model, source, config, prefix), [], 0
                guesses = [(token if i % every else 5) if every > 1 else token for i, token in enumerate(right)]
                while steps := search.advance(guesses[len(written) : len(written) + most]):
                    written += [best.token for (best,) in steps]
                    calls += 1
                assert written[: len(right)] == right[: len(written)]
                assert search.hypotheses() == wanted
                assert search._decodings[0].slots == len(written), "wrong guesses have freed their slots"
                assert every > 1 or calls <= len(written) / (most + 1) + 1


def test_stepwise_sampling(build: Build, sentences: Sentences) -> None:
    model, config = native(build(2.0, vocab_size=60, tied_embeddings="none")), replace(SHORT, sample=True)
    for source in sentences(5, 2, 9, vocab=60):
        search = begun(model, source, config)
        written = [best.token for best in greedy_steps(search)]
        assert search.hypotheses() == decode_tokens(engine_of(model), [source], config)
        assert written[: len(search.hypotheses()[0][0].tokens)] == search.hypotheses()[0][0].tokens


MISUSES: dict[str, Callable[[Any], object]] = {
    "guesses for a beam": lambda model: begun(model, [5], replace(SHORT, beam_size=2)).advance([5]),
    "several samples": lambda model: begun(model, [5], replace(SHORT, sample=True, n_best=2)).advance(),
}


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
def test_unsupported_stepwise_searches(build: Build, misuse: Callable[[Any], object]) -> None:
    with pytest.raises(AssertionError):
        misuse(native(build()))


@pytest.mark.parametrize("strange", [12, -1])
def test_guesses_beyond_the_vocabulary(build: Build, strange: int) -> None:
    with pytest.raises(UserError, match=f"{strange}.*12"):
        begun(native(build()), [5], replace(SHORT, beam_size=1)).advance([strange])


# Several models in one search -----------------------------------------------------------------------------------------


def several(build: Build, count: int, compute: str = "float32", vocab: int = 60) -> CompiledEnsemble:
    """Models of different widths, depths, heads and norms."""
    shapes: list[dict[str, Any]] = [
        {"tied_embeddings": "none"},
        {"d_model": 40, "n_heads": 5, "n_decoder_layers": 3, "norm_position": "pre", "tied_embeddings": "none"},
        {"d_model": 24, "n_heads": 3, "n_encoder_layers": 1, "positions": "learned", "max_len": 300},
    ]
    return CompiledEnsemble(tuple(native(build(3.0, vocab_size=vocab, **shape), compute) for shape in shapes[:count]))


@pytest.mark.few(5)
@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("count", [2, 3])
def test_an_ensemble(build: Build, sentences: Sentences, count: int, beam_size: int, compute: str) -> None:
    """All n-best hypotheses, with prefixes, minimum lengths and a shortlist; alone and in a batch."""
    models, sources = several(build, count, compute), sentences(*LENGTHS, vocab=60)
    prefixes = [[5, 6, 7], [], [3, 9], [], [11] * 9, [], [8], [0, 4]]
    table = CandidateTable(np.array([7, 8]), torch.randint(4, 60, (60, 4)).numpy())
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    found = compare(models, sources, config)
    assert found != decode_tokens(models.members[0], sources, config)
    assert [decode_tokens(engine_of(models), [source], config)[0] for source in sources] == found
    compare(models, sources, replace(config, min_length_factor=0.5), prefixes=prefixes)
    compare(models, sources, config, prefixes=prefixes, shortlist=table)


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_ensemble_of_identical_models_is_that_model(
    build: Build, sentences: Sentences, beam_size: int, compute: str
) -> None:
    """Bit-identical."""
    model, sources = native(build(2.0, vocab_size=60, tied_embeddings="none"), compute), sentences(*LENGTHS, vocab=60)
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    assert decode_tokens(engine_of(CompiledEnsemble((model, model))), sources, config) == decode_tokens(
        engine_of(model), sources, config
    )


def test_an_ensemble_frees_slots_together(build: Build, sentences: Sentences, searches: list[tuple[int, int]]) -> None:
    config = SearchSettings(beam_size=4, max_length_factor=0.0, max_length_extra=100, min_length_factor=6.0)
    found = compare(several(build, 3), sentences(14, 15), config)
    made = 2 + 4 * sum(len(ranked[0].token_log_probs) - 1 for ranked in found)
    [(_, places)] = searches
    assert made > 700 and places < 0.8 * made


def test_an_ensemble_with_a_non_finite_member(build: Build, sentences: Sentences) -> None:
    models = [build(), build()]
    with torch.no_grad():
        models[1].get_parameter("decoder.layers.0.ffn.down_proj.weight")[0, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(CompiledEnsemble(tuple(native(model) for model in models)), sentences(3, 4), SHORT)


def test_positions_have_a_limit(build: Build) -> None:
    model = native(build(positions="learned", max_len=12))
    with pytest.raises(UserError, match=r"model's 12"):
        decode_tokens(engine_of(model), [[5] * 12], SHORT, max_len=12)
    assert len(decode_tokens(engine_of(model), [[5] * 11], SHORT, max_len=12)[0][0].tokens) <= 12
