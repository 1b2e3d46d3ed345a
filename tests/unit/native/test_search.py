"""The library's search against `decode.search` over the library's own steps, and over the readable model."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from sightline.config import DecodeConfig
from sightline.decode.candidates import CandidateTable
from sightline.decode.engine import decode_tokens
from sightline.decode.ensemble import AveragedNetworks
from sightline.errors import UserError
from sightline.native.library import library
from sightline.native.network import CompiledEnsemble, Decoding
from sightline.network.native_inference import NativeTransformer
from sightline.network.prepared import prepare_for_inference
from sightline.network.transformer import Transformer

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is not here")

Build = Callable[..., Transformer]
Sentences = Callable[..., list[list[int]]]
LENGTHS = (1, 5, 4, 0, 5, 2, 3, 6)
SHORT = DecodeConfig(max_length_factor=1.0, max_length_extra=3)


class Steps:
    """A prepared model whose own search nobody sees."""

    def __init__(self, model: Any) -> None:
        self.training = False
        for name in ("train", "parameters", "encode", "decode", "logits", "start_cache", "output_rows"):
            setattr(self, name, getattr(model, name))


def by_steps(model: Any) -> Any:
    return Steps(model)


def native(model: Transformer, compute: str = "float32") -> Any:
    prepared = prepare_for_inference(model, compute)
    assert isinstance(prepared, NativeTransformer)
    return prepared


def same(found: list[list[Any]], wanted: list[list[Any]], tolerance: float = 1e-4) -> None:
    tokens = [[[h.tokens for h in ranked] for ranked in each] for each in (found, wanted)]
    assert tokens[0] == tokens[1]
    for ours, theirs in zip(chain(*found), chain(*wanted), strict=True):
        assert type(ours) is type(theirs)
        assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=tolerance)
        assert (ours.log_prob, ours.score) == pytest.approx((theirs.log_prob, theirs.score), abs=tolerance)


def compare(model: Any, sources: list[list[int]], config: DecodeConfig, **how: Any) -> list[list[Any]]:
    found = decode_tokens(model, sources, config, **how)
    same(found, decode_tokens(by_steps(model), sources, config, **how))
    return found


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each search of the library: its sentences, and the places that are in use at its end."""
    seen: list[tuple[int, int]] = []
    search = Decoding.search

    def watched(self: Decoding, *args: Any) -> Any:
        found = search(self, *args)
        seen.append((self.sentences, self.places))
        return found

    monkeypatch.setattr(Decoding, "search", watched)
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
def test_finds_what_the_other_search_finds(
    build: Build, sentences: Sentences, beam_size: int, peak: float, vocab: int
) -> None:
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
def test_what_ends_late_may_be_the_best(build: Build, sentences: Sentences, beam_size: int) -> None:
    """Where length is worth much, a search must not stop with the first output that has ended."""
    config = DecodeConfig(beam_size=beam_size, length_penalty=1.5, max_length_factor=0.0, max_length_extra=25)
    for _ in range(3):
        model = native(build(3.0, tied_embeddings="none", d_model=8))
        found = compare(model, sentences(*range(1, 7)), config)
        assert max(len(ranked[0].tokens) for ranked in found) > 10


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
def test_finds_what_a_search_over_the_readable_model_finds(
    build: Build, sentences: Sentences, shape: dict[str, Any], beam_size: int
) -> None:
    """Widths of any size: rows in C end with zeros."""
    model = build(2.0, **{"vocab_size": 40, "tied_embeddings": "none", **shape})
    exact, sources = copy.deepcopy(model).double(), sentences(*LENGTHS, vocab=shape.get("vocab_size", 40))
    for n_best in {1, beam_size}:
        config = replace(SHORT, beam_size=beam_size, n_best=n_best)
        same(decode_tokens(native(model), sources, config), decode_tokens(exact, sources, config))


@pytest.mark.parametrize("beam_size", [1, 3, 7])
def test_ties_are_broken_alike(build: Build, sentences: Sentences, beam_size: int) -> None:
    """Everything is equally likely, or one half of it: the earlier wins, among pieces, beams and hypotheses."""
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
    """Three pieces of five are never written, so there are two, one of which ends."""
    model = native(build(vocab_size=vocab, tied_embeddings="none"))
    found = compare(model, sentences(3, 1, 5, vocab=5), replace(SHORT, beam_size=beam_size, n_best=beam_size))
    assert all(token not in (0, 1, 2, 3) for ranked in found for h in ranked for token in h.tokens)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_of_a_least_and_a_greatest_length(build: Build, sentences: Sentences, beam_size: int) -> None:
    model, sources = native(build(2.0, tied_embeddings="none")), sentences(*LENGTHS)
    config = DecodeConfig(beam_size=beam_size, n_best=beam_size, max_length_extra=2, max_length_factor=1.0)
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
def test_outputs_that_begin_as_they_must(build: Build, sentences: Sentences, beam_size: int) -> None:
    """Prefixes of several lengths side by side; what is never written otherwise may be forced."""
    model, sources = native(build(tied_embeddings="none")), sentences(*LENGTHS)
    prefixes = [[5, 6, 7], [], [3, 9], [4], [11] * 9, [], [8], [0, 4]]
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size, min_length_factor=0.5)
    found = compare(model, sources, config, prefixes=prefixes)
    for source, ranked, prefix in zip(sources, found, prefixes, strict=True):
        assert all(h.tokens[: len(prefix)] == prefix for h in ranked if source)


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_shortlist(build: Build, sentences: Sentences, beam_size: int, compute: str) -> None:
    """Sentences may write different pieces, one of them hardly any."""
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
        same(decode_tokens(model, [source], config, prefixes=[prefixes[i]], shortlist=table), [found[i]], 1e-5)
    assert found != decode_tokens(model, sources, config, prefixes=prefixes)


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_yields_the_same_alone(build: Build, sentences: Sentences, beam_size: int, compute: str) -> None:
    """To the last bit; in batches of any size, in any order, and on several threads."""
    model, sources = native(build(d_model=32, vocab_size=50), compute), sentences(*LENGTHS, 12, 7, vocab=50)
    config = DecodeConfig(beam_size=beam_size, n_best=beam_size, max_length_extra=20, min_length_factor=1.0)
    together = decode_tokens(model, sources, config)
    assert [decode_tokens(model, [source], config)[0] for source in sources] == together
    for batch_tokens in (1, 60, 200):
        smaller = replace(config, batch_tokens=batch_tokens)
        assert decode_tokens(model, sources, smaller) == together
        assert decode_tokens(model, sources[::-1], smaller)[::-1] == together


@pytest.mark.usefixtures("four_threads")
def test_threads_search_side_by_side(build: Build, sentences: Sentences, searches: list[tuple[int, int]]) -> None:
    """Positions become known while others search; batches get smaller, for they take their memory together."""
    model, sources = build(d_model=32, vocab_size=50), sentences(*range(1, 60), vocab=50)
    config = DecodeConfig(beam_size=2, batch_tokens=2000, max_length_factor=1.0)
    found = decode_tokens(native(model), sources, config)
    in_threads = [size for size, _ in searches]
    searches.clear()
    torch.set_num_threads(1)
    assert decode_tokens(native(model), sources, config) == found
    in_turn = [size for size, _ in searches]
    assert len(in_threads) > len(in_turn) > 1 and sum(in_threads) == sum(in_turn) == len(sources)


@pytest.mark.usefixtures("four_threads")
def test_an_error_in_a_thread_is_raised(build: Build, sentences: Sentences) -> None:
    model = build()
    with torch.no_grad():
        model.get_parameter("decoder.layers.0.ffn.down_proj.weight")[0, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(native(model), sentences(*range(1, 40)), replace(SHORT, batch_tokens=50))


def test_places_of_the_dead_are_given_up(build: Build, sentences: Sentences, searches: list[tuple[int, int]]) -> None:
    """Long outputs of beams that have most of their past in common; the result is that of a search by steps."""
    model, sources = native(build(3.0, tied_embeddings="none")), sentences(14, 15)
    config = DecodeConfig(beam_size=4, max_length_factor=0.0, max_length_extra=100, min_length_factor=6.0)
    found = compare(model, sources, config)
    made = 2 + 4 * sum(len(ranked[0].token_log_probs) - 1 for ranked in found)
    [(_, places)] = searches
    assert made > 700 and places < 0.7 * made


@pytest.mark.parametrize("compute", ["float32", "int8"])
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
def test_weights_that_are_no_numbers(build: Build, name: str, compute: str) -> None:
    """One of them is enough, and an error is what comes of it: never a translation."""
    model = build(vocab_size=20, tied_embeddings="none", positions="learned", max_len=30)
    parameter = model.get_parameter(name)
    with torch.no_grad():
        parameter[(7, 3)[: parameter.dim()]] = torch.nan
    for beam_size in (1, 4):
        with pytest.raises(UserError, match="not finite"):
            decode_tokens(native(model, compute), [[7, 8, 9]], replace(SHORT, beam_size=beam_size))


def test_sampling_and_ngrams_go_by_steps(build: Build, sentences: Sentences) -> None:
    """What the library does not know of is searched as ever."""
    model, sources = native(build()), sentences(*LENGTHS)
    for config in (replace(SHORT, sample=True, n_best=3), replace(SHORT, no_repeat_ngram=2)):
        assert decode_tokens(model, sources, config) == decode_tokens(by_steps(model), sources, config)
    repeats = decode_tokens(model, sources, replace(SHORT, no_repeat_ngram=1, n_best=2))
    assert all(len(set(h.tokens)) == len(h.tokens) for ranked in repeats for h in ranked)


# Several models in one search -----------------------------------------------------------------------------------------


class Together(AveragedNetworks):
    """Prepared models that search together in the library, and step by step where nobody sees that they can."""

    def search(self, sources: Any, limits: Any, options: Any, few: Any, stop: Any = None) -> Any:
        members: list[Any] = list(self.members)
        networks = tuple(member.network for member in members)
        return CompiledEnsemble(networks).search(sources, limits, options, few, stop)


def several(build: Build, count: int, compute: str = "float32", vocab: int = 60) -> Together:
    """Models of different widths, depths, heads and norms."""
    shapes: list[dict[str, Any]] = [
        {"tied_embeddings": "none"},
        {"d_model": 40, "n_heads": 5, "n_decoder_layers": 3, "norm_position": "pre", "tied_embeddings": "none"},
        {"d_model": 24, "n_heads": 3, "n_encoder_layers": 1, "positions": "learned", "max_len": 300},
    ]
    return Together([native(build(3.0, vocab_size=vocab, **shape), compute) for shape in shapes[:count]])


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("count", [2, 3])
def test_an_ensemble(build: Build, sentences: Sentences, count: int, beam_size: int, compute: str) -> None:
    """All hypotheses of a list, with prefixes and least lengths, and with a shortlist; alone as in a batch."""
    models, sources = several(build, count, compute), sentences(*LENGTHS, vocab=60)
    prefixes = [[5, 6, 7], [], [3, 9], [], [11] * 9, [], [8], [0, 4]]
    table = CandidateTable(np.array([7, 8]), torch.randint(4, 60, (60, 4)).numpy())
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    found = compare(models, sources, config)
    assert found != decode_tokens(models.members[0], sources, config)
    assert [decode_tokens(models, [source], config)[0] for source in sources] == found
    compare(models, sources, replace(config, min_length_factor=0.5), prefixes=prefixes)
    compare(models, sources, config, prefixes=prefixes, shortlist=table)


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_model_with_itself(build: Build, sentences: Sentences, beam_size: int, compute: str) -> None:
    """Is that model, to the last bit."""
    model, sources = native(build(2.0, vocab_size=60, tied_embeddings="none"), compute), sentences(*LENGTHS, vocab=60)
    config = replace(SHORT, beam_size=beam_size, n_best=beam_size)
    assert decode_tokens(Together([model] * 2), sources, config) == decode_tokens(model, sources, config)


def test_an_ensemble_gives_up_places_together(
    build: Build, sentences: Sentences, searches: list[tuple[int, int]]
) -> None:
    config = DecodeConfig(beam_size=4, max_length_factor=0.0, max_length_extra=100, min_length_factor=6.0)
    found = compare(several(build, 3), sentences(14, 15), config)
    made = 2 + 4 * sum(len(ranked[0].token_log_probs) - 1 for ranked in found)
    [(_, places)] = searches
    assert made > 700 and places < 0.8 * made


def test_an_ensemble_with_a_member_that_gives_no_numbers(build: Build, sentences: Sentences) -> None:
    models = [build(), build()]
    with torch.no_grad():
        models[1].get_parameter("decoder.layers.0.ffn.down_proj.weight")[0, 0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(Together([native(model) for model in models]), sentences(3, 4), SHORT)


def test_longer_than_the_positions_there_are(build: Build) -> None:
    model = native(build(positions="learned", max_len=12))
    with pytest.raises(UserError, match=r"longer than the model's 12 learned positions"):
        decode_tokens(model, [[5] * 12], SHORT, max_len=12)
    assert len(decode_tokens(model, [[5] * 11], SHORT, max_len=12)[0][0].tokens) <= 12
