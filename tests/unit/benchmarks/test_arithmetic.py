"""The arithmetic of the benchmarks: whatever it gets wrong, every published figure gets wrong."""

import doctest
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headwise.core.batches import collate
from headwise.pytorch.architectures.transformer import build_model

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
NAMES = (
    "turns",
    "work",
    "workers",
    "figures",
    "exports",
    "decoders",
    "growth",
    "machine",
    "bench",
    "lexical_aligner",
    "monolingual",
    "scaling",
    "baselines",
    "tasks",
)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the source distribution")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts as modules; they stand in no package and import each other by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in [*NAMES, "decoding", "training", "training_contenders"]:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings_hold(scripts: dict[str, ModuleType], name: str) -> None:
    assert doctest.testmod(scripts[name], optionflags=doctest.ELLIPSIS).failed == 0


def test_every_contender_goes_first_and_last_equally_often(scripts: dict[str, ModuleType]) -> None:
    names = ["a", "b", "c", "d"]
    rounds = [scripts["turns"].order(names, turn) for turn in range(8)]
    assert all(sorted(order) == names for order in rounds)
    assert {name: sum(order[0] == name for order in rounds) for name in names} == dict.fromkeys(names, 2)
    assert {name: sum(order[-1] == name for order in rounds) for name in names} == dict.fromkeys(names, 2)


def test_warm_up_turns_are_run_and_not_counted(scripts: dict[str, ModuleType]) -> None:
    seen: list[int] = []

    def contender(turn: int) -> float:
        seen.append(turn)
        return float(turn)

    seconds = scripts["turns"].take_turns({"a": contender}, turns=3, warm_up=2, show=False)
    assert seen == [-2, -1, 0, 1, 2]
    assert seconds == {"a": [0.0, 1.0, 2.0]}


def test_the_lexical_aligner_finds_words_by_the_company_they_keep(scripts: dict[str, ModuleType]) -> None:
    """The target says every pair of words the other way round, against the diagonal."""
    aligner = scripts["lexical_aligner"]
    words = ["a", "b", "c", "d"]
    texts = [[x, y] for x in words for y in words if x != y] + 6 * [[x] for x in words]
    src, tgt = aligner.number(texts, 1), aligner.number([[word.upper() for word in text[::-1]] for text in texts], 0)
    cells = aligner.cells_of(src, tgt)
    found = list(aligner.links(cells, aligner.posteriors(cells, 5), tgt))
    assert set(found[:12]) == {"1-0 0-1"}
    assert set(found[12:]) == {"0-0"}


def test_a_ratio_is_taken_within_a_turn(scripts: dict[str, ModuleType]) -> None:
    """A slow moment hits both, so that every turn says 2, whatever the medians say."""
    ratio = scripts["turns"].speed_ratio([1.0, 50.0, 1.0, 1.0], [2.0, 100.0, 2.0, 2.0])
    assert (ratio.low, ratio.median, ratio.high) == (2.0, 2.0, 2.0)


def test_slope_of_a_power_law(scripts: dict[str, ModuleType]) -> None:
    assert scripts["growth"].slope([10, 20, 80], [5 * x**1.5 for x in (10, 20, 80)]) == pytest.approx(1.5)


def test_operations_are_those_torch_counts(scripts: dict[str, ModuleType]) -> None:
    """Against torch's own counter on our model, whose attention does the masked half too, hence the added term."""
    work = scripts["work"]
    size = work.Size(d_model=32, n_layers=2, d_ff=64, n_heads=4, vocab_size=50)
    s, t, pairs = 9, 7, 3
    batch = collate([([5] * (s - 1), [6] * (t - 1))] * pairs, work.PAD, work.BOS, work.EOS)
    model = build_model(size.config()).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad(), nn.attention.sdpa_kernel(MATH):
        model.logits(model.states(batch.src, batch.tgt_in, batch.src_mask))
    masked_half = 2 * pairs * size.n_layers * t * (t - 1) * size.d_model
    assert 3 * (counter.get_total_flops() - masked_half) == work.training_operations(size, batch)


MATH = nn.attention.SDPBackend.MATH  # plain products, which the counter sees


def test_operations_do_not_count_padding(scripts: dict[str, ModuleType]) -> None:
    work = scripts["work"]
    size = work.SIZES["tiny"]
    pairs = [([5] * 4, [6] * 9), ([7] * 20, [8] * 3)]
    together = work.training_operations(size, collate(pairs, work.PAD, work.BOS, work.EOS))
    apart = sum(work.training_operations(size, collate([pair], work.PAD, work.BOS, work.EOS)) for pair in pairs)
    assert together == pytest.approx(apart)


def test_decoding_needs_a_third_of_training(scripts: dict[str, ModuleType]) -> None:
    """One sentence, forward only."""
    work = scripts["work"]
    batch = collate([([5] * 11, [6] * 9)], work.PAD, work.BOS, work.EOS)
    size = work.SIZES["base"]
    assert 3 * work.decoding_operations(size, 12, 10) == work.training_operations(size, batch)


def test_batches_are_the_same_each_time_and_within_their_size(scripts: dict[str, ModuleType]) -> None:
    first, second = (scripts["work"].training_batches(5) for _ in range(2))
    both = zip(first, second, strict=True)
    assert all(torch.equal(a.src, b.src) and torch.equal(a.tgt_out, b.tgt_out) for a, b in both)
    assert all(max(b.src.numel(), b.tgt_out.numel()) <= 2048 for b in first)
    assert 14 < sum(b.n_source_tokens for b in first) / sum(len(b.src) for b in first) < 17


def test_parameters_of_the_papers_models(scripts: dict[str, ModuleType]) -> None:
    """By hand: embeddings V d; a layer 4 (d^2 + d) an attention, 2 d f + f + d a feed-forward network, 2 d a norm."""

    def by_hand(d: int, f: int) -> int:
        attention, network, norm = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
        return 37_000 * d + 6 * (attention + network + 2 * norm) + 6 * (2 * attention + network + 3 * norm)

    scaling = scripts["scaling"]
    counted = [scaling.parameters(model) for model in scaling.shapes().values()]
    assert counted[:2] == [by_hand(512, 2048), by_hand(1024, 4096)] == [63_082_496, 214_245_376]  # 65 and 213 million
    assert counted[2:] == [pytest.approx(1e9, rel=0.02), pytest.approx(7e9, rel=0.05)]


def test_an_update_needs_six_operations_a_parameter_and_piece(scripts: dict[str, ModuleType]) -> None:
    """And somewhat more, for attention (arXiv:2001.08361, 2.1)."""
    scaling = scripts["scaling"]
    alone = scaling.Plan(devices=1, peak=1.0, share=1.0)
    for model in scaling.shapes().values():
        six = 6 * 25_000 * scaling.parameters(model)
        assert six < scaling.operations(model, alone) < 1.05 * six
        assert scaling.hours(model, 3600, alone) == pytest.approx(six / 1e12, rel=0.05)


def test_recomputed_layers_keep_their_inputs(scripts: dict[str, ModuleType]) -> None:
    """An encoder and a decoder layer 4 bytes each, in float32; the other states are not kept, whatever their number."""
    _, layer = scripts["scaling"].kept(True)
    assert layer == 8.0
    assert scripts["scaling"].kept(False)[1] > 8 * layer


def test_what_a_device_holds(scripts: dict[str, ModuleType]) -> None:
    """The base model: 1.14 GB of state, 1.3 of activations, 0.7 with recomputation; by 8: 0.3 of state."""
    scaling = scripts["scaling"]
    model = scaling.shapes()["base"]
    ways = {memory: scaling.fits(model, scaling.Plan(memory=memory)) for memory in (2.5, 2.0, 1.7, 1.2, 0.5)}
    assert list(ways.values()) == ["DDP", "DDP, recompute", "FSDP", "FSDP, recompute", "more devices"]
    judged = scaling.Plan(memory=39.0, devices=16)  # of 7 billion a part, and a whole copy while it is judged
    assert scaling.fits(scaling.shapes()["7 billion"], judged).startswith("FSDP")
    assert scaling.fits(scaling.shapes()["7 billion"], replace(judged, memory=33.0)) == "more devices"


def test_the_tables_in_the_documentation_are_those_of_the_script(scripts: dict[str, ModuleType]) -> None:
    page = (FOLDER.parent / "docs" / "how-to" / "scaling.md").read_text(encoding="utf-8")
    scaling, unwrapped = scripts["scaling"], page.replace("\n", " ")
    lines = scaling.report(scaling.Plan()).splitlines()
    assert [line for line in lines if line not in (page if line.startswith("|") else unwrapped)] == []


def test_lines_of_the_bench(scripts: dict[str, ModuleType]) -> None:
    lines = scripts["bench"].lines({"train-base": 1.3}, cores=2)
    assert "bench: train-base 1.30 goal 4 threads 2" in lines
    assert "bench: decode-natural - goal 1.5 threads 2" in lines
    assert all(re.fullmatch(r"bench: \S+ (\d+\.\d+|-) goal [\d.]+ threads [12]", line) for line in lines)


@pytest.mark.thorough
def test_a_worker_answers_and_its_failure_is_told(scripts: dict[str, ModuleType]) -> None:
    worker = scripts["workers"].Worker(scripts["machine"].matrix_product)
    assert worker(1).value > 1e8
    with pytest.raises(RuntimeError, match="a contender failed"):
        worker("not a number")
    worker.close()
