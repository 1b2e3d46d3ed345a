"""What the model thought at each position, against the network cut short, and the beam against the search itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_readers import read_pair_tensors, trace_with_torch

from headwise.contract import length_penalty
from headwise.errors import UserError
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.translator import TextTranslator
from headwise.view.record import BeamNode, Candidate, Trace

TranslatorOf = Callable[[str], TextTranslator]
SOURCE, TARGET = "Der Hund sieht", "A dog runs"
EVERY = ["post", "pre", "bahdanau", "luong", "conv", "summary"]


def hidden_states(translator: TextTranslator) -> torch.Tensor:
    network: Any = translator.model
    network.eval()
    with torch.no_grad():
        return network.logits(read_pair_tensors(translator, SOURCE, TARGET, "", translator.config).read_by(network))[0]


def assert_likeliest(candidates: list[Candidate], logits: torch.Tensor, translator: TextTranslator) -> None:
    values, ids = logits.log_softmax(-1).topk(len(candidates))
    assert [candidate.log_prob for candidate in candidates] == pytest.approx(values.tolist(), abs=1e-5)
    assert [candidate.piece for candidate in candidates] == translator.tokenizer.pieces(ids.tolist())


@pytest.mark.parametrize("variant", EVERY)
def test_candidates_are_the_likeliest_pieces(variant: str, translator_of: TranslatorOf) -> None:
    translator = translator_of(variant)
    found = trace_with_torch(translator, SOURCE, TARGET)
    assert [position.piece for position in found.positions] == ["▁A", "▁dog", "▁runs", "</s>"]
    for position, logits in zip(found.positions, hidden_states(translator), strict=True):
        assert len(position.candidates) == 10
        assert_likeliest(position.candidates, logits, translator)
        assert position.layers[-1] == position.candidates
    assert found.beam == []


@pytest.mark.parametrize("variant", ["post", "pre"])
def test_a_layer_is_read_as_if_it_were_the_last(variant: str, translator_of: TranslatorOf) -> None:
    """The oracle is a network that has no more layers."""
    translator = translator_of(variant)
    decoder: Any = translator.model.decoder
    found, layers = trace_with_torch(translator, SOURCE, TARGET), decoder.layers
    for count in range(1, len(layers) + 1):
        decoder.layers = nn.ModuleList(layers[:count])
        try:
            cut_short = hidden_states(translator)
        finally:
            decoder.layers = layers
        for position, logits in zip(found.positions, cut_short, strict=True):
            assert len(position.layers) == len(layers)
            assert_likeliest(position.layers[count - 1], logits, translator)


def test_residual_stream(translator_of: TranslatorOf) -> None:
    translator = translator_of("post")
    network: Any = translator.model
    network.eval()
    found = trace_with_torch(translator, SOURCE, TARGET)
    with torch.no_grad():
        embedded = network.tgt_embeddings(torch.tensor([[1, *translator.tokenizer.encode(TARGET)]]))[0]
        last = read_pair_tensors(translator, SOURCE, TARGET, "", translator.config).read_by(network)[0]
    assert [len(position.residual) for position in found.positions] == [4] * 4
    assert [position.residual[0] for position in found.positions] == pytest.approx(embedded.norm(dim=-1).tolist())
    assert [position.residual[-1] for position in found.positions] == pytest.approx(last.norm(dim=-1).tolist())


def test_other_architectures_have_no_residual_stream(translator_of: TranslatorOf) -> None:
    (first, *_) = trace_with_torch(translator_of("conv"), SOURCE, TARGET).positions
    assert (first.residual, len(first.layers)) == ([], 1)


# --- The beam


def path(nodes: list[BeamNode], node: BeamNode) -> list[BeamNode]:
    return [*(path(nodes, nodes[node.parent]) if node.parent >= 0 else []), node]


def chosen(found: Trace) -> list[BeamNode]:
    return [node for node in found.beam if node.status == "chosen"]


@pytest.mark.parametrize("variant", EVERY)
@pytest.mark.parametrize("beam_size", [2, 4])
def test_the_search_is_the_ordinary_one(variant: str, beam_size: int, translator_of: TranslatorOf) -> None:
    translator = translator_of(variant)
    (best,) = translator.translate([SOURCE], beam_size=beam_size)
    found = trace_with_torch(translator, SOURCE, beam_size=beam_size)
    written = [position.piece for position in found.positions]
    assert written[: len(best.pieces)] == best.pieces
    last = chosen(found)[-1]
    assert [node.piece for node in path(list(found.beam), last)] == [node.piece for node in chosen(found)] == written
    assert (last.log_prob, last.score) == pytest.approx((best.log_prob, best.score), abs=1e-5)


def test_every_node_continues_its_parent(translator_of: TranslatorOf) -> None:
    """Log-probabilities of every path anew, by reading it in one pass."""
    translator = translator_of("pre")
    network: Any = translator.model
    nodes = list(trace_with_torch(translator, SOURCE, beam_size=3).beam)
    vocab = {piece: i for i, piece in enumerate(translator.tokenizer.pieces(range(translator.tokenizer.vocab_size)))}
    src = torch.tensor([[*translator.tokenizer.encode(SOURCE), 2]])
    for node in nodes[::7]:
        tokens = [vocab[step.piece] for step in path(nodes, node)]
        with torch.no_grad():
            hidden = network.eval().states(src, torch.tensor([[1, *tokens[:-1]]]), src > 0)
            log_probs = network.logits(hidden)[0].log_softmax(-1)[range(len(tokens)), tokens]
        assert node.step == len(tokens) - 1
        assert node.log_prob == pytest.approx(log_probs.sum().item(), abs=1e-4)
        assert node.score == pytest.approx(node.log_prob / length_penalty(len(tokens), 0.6), abs=1e-4)


def test_what_became_of_a_branch(translator_of: TranslatorOf) -> None:
    found = trace_with_torch(translator_of("post"), SOURCE, beam_size=3)
    assert all(node.parent < i for i, node in enumerate(found.beam))
    end = chosen(found)[-1]
    for step in range(found.beam[-1].step + 1):
        ranked = [node for node in found.beam if node.step == step]
        ended = [node for node in ranked if node.status == "finished" or node is end]
        pruned = [node.log_prob for node in ranked if node.status == "pruned"]
        kept = [node.log_prob for node in ranked if node not in ended and node.status != "pruned"]
        assert len(ranked) <= 6 and len(kept) <= 3
        assert all(node.piece == "</s>" or step == end.step for node in ended)
        assert not pruned or min(kept) >= max(pruned)
    assert {node.status for node in found.beam} == {"kept", "pruned", "finished", "chosen"}


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"sample": True, "seed": 3}], ids=str)
def test_searches_without_a_beam_have_one_path(settings: dict[str, Any], translator_of: TranslatorOf) -> None:
    found = trace_with_torch(translator_of("pre"), SOURCE, **settings)
    assert [node.piece for node in found.beam] == [position.piece for position in found.positions]
    assert [node.parent for node in found.beam] == list(range(-1, len(found.beam) - 1))
    assert all(node.status == "chosen" for node in found.beam)
    (translation,) = translator_of("pre").translate([SOURCE], **settings)
    assert found.beam[-1].score == pytest.approx(translation.score, abs=1e-4)


def test_a_forced_prefix_has_no_rivals(translator_of: TranslatorOf) -> None:
    found = trace_with_torch(translator_of("pre"), SOURCE, prefix="A dog", beam_size=3)
    assert [node.piece for node in found.beam if node.step < 2] == ["▁A", "▁dog"]
    assert found.positions[0].candidates[0].piece != "▁A"  # candidates are the model's own


def test_a_shortlist_is_in_pieces(translator_of: TranslatorOf) -> None:
    translator = translator_of("pre")
    few = translator.tokenizer.encode("A dog runs across")
    table = CandidateTable(np.array(few), np.array([few[:1]] * translator.tokenizer.vocab_size))
    engine = engine_of(translator.model)
    narrow = TextTranslator(engine, translator.tokenizer, translator.config, shortlist=lambda: table)
    found = trace_with_torch(narrow, SOURCE, shortlist=True, beam_size=3)
    offered = {*translator.tokenizer.pieces([*few, *translator.tokenizer.encode(SOURCE)]), "</s>"}
    assert {node.piece for node in found.beam} <= offered
    (translation,) = narrow.translate([SOURCE], shortlist=True, beam_size=3)
    assert [node.piece for node in chosen(found)][: len(translation.pieces)] == translation.pieces


def test_top(translator_of: TranslatorOf) -> None:
    translator = translator_of("pre")
    assert len(trace_with_torch(translator, SOURCE, TARGET, top=1).positions[0].candidates) == 1
    everything = trace_with_torch(translator, SOURCE, TARGET, top=10**6).positions[0].candidates
    assert len(everything) == translator.tokenizer.vocab_size
    with pytest.raises(UserError, match="top = 0"):
        trace_with_torch(translator, SOURCE, top=0)
