"""Every experiment runs at a toy scale, is the same for the same seed, and its verdicts follow its numbers."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headwise.errors import UserError
from headwise.evaluate.alignment import score_alignment
from headwise.lab.study import characters, distance, gradients, learning, links, order, scaled_training, translators
from headwise.lab.study import scaled_dot_product as scaled
from headwise.lab.study.claim import Plan, select_rows
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.contenders import ALL, TOLERANCE, matched, size, width_for
from headwise.lab.study.finding import rows_of_units
from headwise.lab.study.statement import PRIMARY, VERDICTS, Row
from headwise.lab.study.units import Unit, measure_unit
from headwise.text.files.links import GoldLinks, read_gold

TOY = Plan("quick")
ROWS: dict[str, list[Row]] = {}
TRANSLATORS = {"translation", "interpretability", "heads", "warmup", "regularisation"}
SLOW = {"sequential", "inference", "distance", *TRANSLATORS}
FEW = ("lstm", "transformer", "bahdanau")
CORNERS = {  # a subset of conditions for slow claims
    "sequential": lambda condition: condition.network in FEW,
    "inference": lambda condition: condition.network in FEW,
    "translation": lambda condition: condition.network in FEW,
    "distance": lambda condition: condition.task == "recall",
    "warmup": lambda condition: not any("norm" in change for change in condition.changes),
}


def units(name: str) -> list[Unit]:
    """One seed of a claim."""
    claim, keep = CLAIMS[name], CORNERS.get(name, lambda condition: True)
    return [Unit(claim, condition, 1) for condition in claim.conditions(TOY) if keep(condition)]


def toy_rows(name: str) -> list[Row]:
    """The rows of a claim, measured once for all tests."""
    if name not in ROWS:
        ROWS[name] = CLAIMS[name].view(rows_of_units([measure_unit(unit) for unit in units(name)]))
    return copy.deepcopy(ROWS[name])


def some_seeds(name: str, rows: list[Row]) -> list[Row]:
    """The rows with as many seeds as the claim begins with, which say the same, so that intervals are narrow."""
    return [{**row, "seed": seed} for seed in range(1, CLAIMS[name].looks.first + 1) for row in rows]


def judged(name: str, rows: list[Row]) -> dict[str, str]:
    """The verdict of each statement."""
    return {result.statement.name: result.verdict for result in CLAIMS[name].judge(some_seeds(name, rows))}


def with_values(rows: list[Row], key: str, value: Callable[[Row], float]) -> list[Row]:
    return [{**row, key: value(row)} for row in rows]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CLAIMS)
def test_experiment_figures_and_statements(name: str) -> None:
    rows, claim = toy_rows(name), CLAIMS[name]
    if any(getattr(unit.condition, "rate", 0.0) for unit in units(name)):
        assert all("validation" in row and "diverged" in row for row in rows)
    for figure in claim.figures(rows):
        assert figure.caption and figure.alt
        assert all(panel.x_label and panel.y_label and panel.series for panel in figure.panels)
    assert len({statement.name for statement in claim.statements}) == len(claim.statements)
    for result in claim.judge(rows):
        assert result.statement.text.endswith(".") and result.statement.threshold
        assert result.verdict in VERDICTS and result.statement.text in result.sentence


@pytest.mark.parametrize("name", sorted(set(CLAIMS) - SLOW - {"layer-cost"}))
def test_same_seed_same_numbers(name: str) -> None:
    claim = CLAIMS[name]
    condition = claim.conditions(TOY)[-1]
    first, again, other = (measure_unit(Unit(claim, condition, seed))["rows"] for seed in (1, 1, 2))
    assert first == again
    if name not in ("receptive-field", "operations"):
        assert [{**row, "seed": 1} for row in other] != first


@pytest.mark.parametrize("name", ALL)
def test_parameters_agree(name: str) -> None:
    shape = (64, 2, 256, 128)
    assert size(matched(name, *shape)) == pytest.approx(size(matched("transformer", *shape)), rel=TOLERANCE)


def test_impossible_widths() -> None:
    assert width_for(101, lambda width: 10 * width, 50) == 10
    with pytest.raises(ValueError, match="within 5%"):
        width_for(15, lambda width: 10 * width, 50)


# --- verdicts flip when the numbers do


@pytest.mark.thorough
def test_statements_of_sequential() -> None:
    rows = toy_rows("sequential")
    assert judged("sequential", rows)["chain-lstm"] == judged("sequential", rows)["chain-transformer"] == "supported"
    level = with_values(with_values(rows, "milliseconds", lambda row: 5.0), "chain", lambda row: 5.0)
    assert judged("sequential", level)["chain-lstm"] == "refuted"
    slow = with_values(rows, "milliseconds", lambda row: 5.0 if row["network"] == "transformer" else row["length"])
    assert judged("sequential", slow)["faster"] == "supported"


def test_statements_of_operations() -> None:
    rows = toy_rows("operations")
    assert set(judged("operations", rows).values()) == {"supported"}
    wrong = with_values(rows, "path", lambda row: row["n"] if row["kind"] == "self-attention" else 1)
    verdicts = judged("operations", with_values(wrong, "chain", lambda row: row["n"]))
    kinds = ("chain-attention", "chain-convolution", "path-attention", "path-recurrent", "path-dilated", "path-kernel")
    assert {verdicts[kind] for kind in kinds} == {"refuted"}


def test_statements_of_distance() -> None:
    rows = with_values(toy_rows("distance"), "solved", lambda row: True)
    fades = with_values(rows, "accuracy", lambda row: 0.9 if row["network"] != "lstm" or row["distance"] < 10 else 0.1)
    verdicts = {name: verdict for name, verdict in judged("distance", fades).items() if name.startswith("recall")}
    assert set(verdicts.values()) == {"supported"}
    level = judged("distance", with_values(rows, "accuracy", lambda row: 0.9))
    assert level["recall-lstm-fades"] == level["recall-conv-leads"] == "refuted"
    assert level["recall-conv-level"] == "supported"
    unlearned = with_values(rows, "accuracy", lambda row: 0.1)  # in the second stage
    assert set(judged("distance", unlearned).values()) == {"undecided"}
    unsolved = with_values(fades, "solved", lambda row: row["network"] != "lstm")
    verdicts = judged("distance", unsolved)
    assert verdicts["recall-lstm-fades"] == verdicts["recall-conv-leads"] == "undecided"
    assert verdicts["recall-conv-level"] == "supported"


def test_statements_of_gradients() -> None:
    level = with_values(toy_rows("gradients"), "gradient", lambda row: 1.0)
    level = [{**row, "accuracy": 0.5, "largest_update": 1.0} if row["cell"] else row for row in level]
    gates = {"gates-lstm", "gates-gru"}  # nothing vanishes
    assert {name for name, verdict in judged("gradients", level).items() if verdict == "supported"} == gates
    steep = judged("gradients", with_values(level, "gradient", lambda row: 10.0 ** -row["distance"]))
    assert steep["vanishes"] == "supported" and steep["gates-lstm"] == "refuted"


def test_statements_of_receptive_field() -> None:
    rows = toy_rows("receptive-field")
    assert set(judged("receptive-field", rows).values()) == {"supported"}
    wrong = judged("receptive-field", with_values(rows, "seen", lambda row: row["formula"] - 1))
    assert wrong["formula"] == wrong["attention"] == "refuted"


def test_statements_of_scaled_dot_product() -> None:
    rows = toy_rows("scaled-dot-product")
    assert set(judged("scaled-dot-product", rows).values()) == {"supported"}
    for key in ("entropy", "gradient"):
        rows = with_values(rows, key, lambda row: 0.5 if row["factor"] == scaled.WITHOUT else 1 / row["d_k"])
    assert set(judged("scaled-dot-product", rows).values()) == {"refuted"}


def test_statements_of_scaled_training() -> None:
    rows = with_values(toy_rows("scaled-training"), "learned", lambda row: True)

    def slow(factor: str) -> dict[str, str]:
        chosen = with_values(
            rows, "updates", lambda row: 300.0 if row["factor"] == factor and row["d_k"] > 10 else 100.0
        )
        return judged("scaled-training", chosen)

    assert slow("without")["large"] == slow("without")["small"] == "supported"
    assert slow(scaled_training.WITH)["large"] == "refuted"
    for factor, verdict in (("without", "supported"), (scaled_training.WITH, "undecided")):
        slower = with_values(rows, "updates", lambda row: 300.0 if row["factor"] == "without" else 100.0)
        failed = with_values(slower, "learned", lambda row, factor=factor: row["factor"] != factor)
        verdicts = judged("scaled-training", failed)
        assert verdicts["large"] == verdict and verdicts["small"] == "undecided"


def test_statements_of_layer_cost() -> None:
    rows = toy_rows("layer-cost")
    for key in ("milliseconds", "megabytes"):
        rows = with_values(rows, key, lambda row: float(row["n"]) ** (2 if "attention" in row["layer"] else 1))
    verdicts = judged("layer-cost", rows)
    assert verdicts["time-attention"] == verdicts["time-recurrent"] == verdicts["memory-fused"] == "supported"
    assert verdicts["dearer-long"] == "supported" and verdicts["cheaper-short"] == "refuted"


def test_statements_of_order() -> None:
    rows = with_values(toy_rows("order"), "bag", lambda row: 0.1)
    lost = with_values(rows, "accuracy", lambda row: 0.1 if "none" in row["positions"] else 0.9)
    assert set(judged("order", lost).values()) == {"supported"}
    causal = judged("order", with_values(rows, "accuracy", lambda row: 0.1 if row["positions"] == "none" else 0.9))
    assert causal["lost"] == "supported" and causal["lost-causal"] == "refuted"


def test_beyond_the_training_only_unseen_positions_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that knows the order up to the longest trained length alone is right nowhere beyond."""

    class UpToTrained(order.Reader):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            right = torch.nn.functional.one_hot(tokens.roll(1, 1), order.SYMBOLS).float()
            return torch.where((torch.arange(tokens.size(1)) < condition.length)[:, None], right, -right)

    condition = next(c for c in order.conditions(TOY) if c.positions == "learned")
    monkeypatch.setattr(order, "Reader", UpToTrained)
    monkeypatch.setattr(order, "train_network", lambda *given: learning.Training(0, 0, True))
    by_length = {row["tested"]: row["accuracy"] for row in order.measure(condition, 1)}
    assert by_length[condition.length] == 1.0
    assert by_length[2 * condition.length] == by_length[8 * condition.length] == 0.0


def test_statements_of_scaling_laws() -> None:
    rows = toy_rows("scaling-laws")
    falls = with_values(
        rows, "loss", lambda row: (row["parameters"] * row["read"]) ** (-0.1 if row["network"] == "lstm" else -0.3)
    )
    assert set(judged("scaling-laws", falls).values()) == {"supported"}
    rises = with_values(rows, "loss", lambda row: row["parameters"] * row["read"])
    assert judged("scaling-laws", rises)["transformer-parameters"] == "refuted"


def test_statements_of_translation() -> None:
    rows = with_values(toy_rows("translation"), "floor", lambda row: 2.0)
    fades = with_values(rows, "bleu", lambda row: 50 - row["words"] if row["network"] == "lstm" else 50.0)
    assert set(judged("translation", fades).values()) == {"supported"}
    level = judged("translation", with_values(rows, "bleu", lambda row: 50.0))
    assert level["bahdanau-leads"] == level["bahdanau-grows"] == "refuted"
    unlearned = with_values(rows, "bleu", lambda row: 2.5 if row["network"] == "lstm" else 50.0)
    assert set(judged("translation", unlearned).values()) == {"not comparable"}


@pytest.mark.parametrize(
    ("claim", "statement", "better"),
    [("heads", "multi", "4 heads"), ("warmup", "post", "post-norm"), ("regularisation", "dropout", "dropout 0.1")],
)
def test_statements_of_variants(claim: str, statement: str, better: str) -> None:
    """The better variant must have learned something; the worse one need not."""
    rows = with_values(toy_rows(claim), "floor", lambda row: 10.0)
    scores = with_values(rows, "bleu", lambda row: 20.0 if row["variant"] == better else 10.0)
    assert judged(claim, scores)[statement] == "supported"
    assert judged(claim, with_values(scores, "bleu", lambda row: 40 - row["bleu"]))[statement] == "refuted"
    assert judged(claim, with_values(scores, "floor", lambda row: 20.0))[statement] == "not comparable"


@pytest.mark.thorough
def test_statements_of_interpretability() -> None:
    measured = {"error": 0.2, "diagonal_error": 0.4, "deletion": 0.5, "bleu": 20.0, "floor": 2.0}
    rows = [{**row, **measured} for row in toy_rows("interpretability")]
    verdicts = judged("interpretability", rows)
    assert {verdict for name, verdict in verdicts.items() if "multi30k" not in name} == {"supported"}
    assert {verdict for name, verdict in verdicts.items() if "multi30k" in name} == {"not measured yet"}
    wrong = judged("interpretability", [{**row, "error": 0.8, "deletion": -0.5} for row in rows])
    assert {verdict for name, verdict in wrong.items() if "multi30k" not in name} == {"refuted"}
    untrained = judged("interpretability", [{**row, "bleu": 2.5} for row in rows])
    assert {verdict for name, verdict in untrained.items() if "multi30k" not in name} == {"not comparable"}


def test_statements_of_ablation_and_transfer() -> None:
    rows = with_values(toy_rows("ablation"), "loss", lambda row: 1.0 if row["network"] == "transformer" else 2.0)
    assert set(judged("ablation", rows).values()) == {"supported"}
    assert set(judged("ablation", with_values(rows, "loss", lambda row: 1.0)).values()) == {"refuted"}
    rows = with_values(toy_rows("transfer"), "loss", lambda row: 3.0 if row["variant"] == "fresh" else 2.0)
    assert judged("transfer", rows) == {"gains": "supported", "less": "refuted"}


@pytest.mark.parametrize("n_characters", [26, 40, 65, 90, 138, 256])
def test_networks_of_character_models_have_one_size_with_any_text(n_characters: int) -> None:
    """As the full study builds them; a network that cannot be made as large as the others is an error."""
    shapes = {
        (condition.network, condition.width, condition.layers)
        for claim in CLAIMS.values()
        for condition in claim.conditions(Plan("full"))
        if isinstance(condition, characters.Condition)
    }
    assert len(shapes) > 10
    for network, width, layers in shapes:
        characters.build_character_network(network, n_characters, width, layers)


def test_ablated_networks_have_the_size_of_the_whole_one_and_lack_the_part() -> None:
    whole, flat, thin = (
        characters.build_character_network(name, 30, 32, 2)
        for name in (characters.TRANSFORMER, characters.NO_RESIDUAL, characters.NO_FEED_FORWARD)
    )
    sizes = [sum(parameter.numel() for parameter in network.parameters()) for network in (whole, flat, thin)]
    assert sizes == pytest.approx([sizes[0]] * 3, rel=TOLERANCE)
    assert not any("ffn." in name for name, _ in thin.named_parameters())
    layer = flat.get_submodule("layers.0")
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        assert layer(torch.ones(1, 3, 32), None).abs().max() == 0  # without residual connections nothing gets through


def test_a_pretrained_network_begins_with_what_it_has_read() -> None:
    fresh, pretrained = CLAIMS["transfer"].conditions(TOY)[:2]
    losses = [characters.measure(condition, 1)[0]["loss"] for condition in (fresh, pretrained)]
    assert (fresh.pretraining, pretrained.pretraining) == (0, 2) and losses[0] != losses[1]


def test_ten_statements_are_primary() -> None:
    assert sum(statement.primary for claim in CLAIMS.values() for statement in claim.statements) == PRIMARY


def test_statements_of_inference() -> None:
    found = judged("inference", with_values(toy_rows("inference"), "ratio", lambda row: 3.0))
    assert found["generating"] == found["scoring-recurrent"] == "refuted"  # counted, without chance
    assert found["scoring"] == found["scoring-lstm"] == "supported"


# --- diverged updates


def test_diverged_updates_are_counted_and_change_nothing() -> None:
    layer = torch.nn.Linear(2, 1)
    losses = iter([1.0, float("inf"), 1.0, float("nan")])
    before = [parameter.clone() for parameter in layer.parameters()]
    training = learning.train_network(layer, lambda: layer.forward(torch.ones(1, 2)).sum() * next(losses), 4, 0.01)
    assert (training.updates, training.diverged, training.finished) == (4, 2, True)
    assert all(parameter.isfinite().all() for parameter in layer.parameters())
    assert any((a != b).any() for a, b in zip(before, layer.parameters(), strict=True))


def test_training_ends_when_the_task_is_solved() -> None:
    layer, tried = torch.nn.Linear(2, 1), []

    def solved() -> bool:
        tried.append(1)
        return len(tried) == 2

    training = learning.train_network(layer, lambda: layer.forward(torch.ones(1, 2)).sum(), 400, 0.01, until=solved)
    assert (training.updates, training.finished) == (2 * learning.CHECK_EVERY, True)
    never = learning.train_network(layer, lambda: layer.forward(torch.ones(1, 2)).sum(), 60, 0.01, until=lambda: False)
    assert (never.updates, never.finished) == (60, False)


def test_a_translator_that_diverges_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(request: object) -> str:
        raise UserError("step 12: the loss has not been finite for 10 updates; lower train.learning_rate")

    monkeypatch.setattr(translators, "train_model", diverges)
    rows = translators.measure(translators.on_generated(TOY, "lstm"), 1)
    assert rows and all(row["bleu"] == 0 and row["diverged"] == 10 for row in rows)
    assert all(row["validation"] == translators.HOPELESS for row in rows)


def test_the_generated_language_has_known_links(tmp_path: Path) -> None:
    _, _, (test,) = translators.write_language(tmp_path, 30)
    pairs = [line.split("\t") for line in Path(test).read_text(encoding="utf-8").splitlines()]
    word = dict[str, str]()
    for (src, tgt), gold in zip(pairs, read_gold(str(Path(test).with_suffix(".gold"))), strict=True):
        assert len(gold.sure) == len(src.split()) == len(tgt.split())
        for i, j in gold.sure:
            assert word.setdefault(src.split()[i], tgt.split()[j]) == tgt.split()[j]


def test_error_rate_is_that_of_och_and_ney() -> None:
    gold = GoldLinks(sure=frozenset({(0, 0)}), possible=frozenset({(0, 0), (1, 1)}))
    found = frozenset({(0, 0), (1, 1), (2, 1)})
    assert 100 * links.error_rate([found], [gold]) == pytest.approx(score_alignment([found], [gold]).aer)


# --- the tasks are what they say


@pytest.mark.parametrize("far", [4, 16])
def test_copy_distance(far: int) -> None:
    examples = distance.sample_copy(5, far)
    assert examples.src.shape == (5, far) and torch.equal(examples.src, examples.answer)
    assert torch.equal(examples.tgt_in[:, 1:], examples.src[:, :-1]) and (examples.tgt_in[:, 0] == distance.BOS).all()


@pytest.mark.parametrize("far", [4, 16])
def test_recall_distance(far: int) -> None:
    examples = distance.sample_recall(50, far)
    key, symbol = (examples.src[:, 0] - distance.ITEM).div(distance.SYMBOLS, rounding_mode="floor"), examples.src[:, 0]
    assert torch.equal(examples.tgt_in[:, 0], distance.KEY + key)
    assert torch.equal(examples.answer[:, 0], distance.FIRST + (symbol - distance.ITEM) % distance.SYMBOLS)
    items = examples.src >= distance.ITEM
    assert (items.sum(1) == distance.PAIRS).all()
    keys = (examples.src - distance.ITEM).div(distance.SYMBOLS, rounding_mode="floor")[items].view(50, -1)
    assert all(len(set(row.tolist())) == distance.PAIRS for row in keys)


def test_gradient_through_time_is_that_of_a_linear_recurrence() -> None:
    """h_t = W h_(t-1) + x_t with W = 0.5 I, so d h_T / d x_(T-d) is 0.5^d: the tanh of small inputs is linear."""
    network = gradients.Rememberer("rnn", 8, 1.0)
    with torch.no_grad():
        network.embedding.weight.mul_(1e-4)
        network.cell.weight_hh_l0.copy_(0.5 * torch.eye(8))
        network.cell.weight_ih_l0.copy_(torch.eye(8))
        network.cell.bias_ih_l0.zero_()
        network.cell.bias_hh_l0.zero_()
    norms = dict(gradients.time_gradients(network, gradients.sample_sequences(4, 10)[0]))
    assert norms == pytest.approx({1: 0.5, 2: 0.25, 4: 0.5**4, 8: 0.5**8, 9: 0.5**9}, rel=1e-3)


def test_softmax_gradient_equals_autograd() -> None:
    torch.manual_seed(1)
    condition = scaled.Condition(d_k=8, keys=5, queries=3, device="cpu")
    torch.manual_seed(1)
    q, k, v, direction = (torch.randn(1, 1, rows, 8) for rows in (3, 5, 5, 3))
    scores = (q @ k.transpose(-2, -1) / 8**0.5).requires_grad_()
    direction = direction / direction.norm(dim=-1, keepdim=True)
    (scores.softmax(-1) @ v * direction).sum().backward()
    torch.manual_seed(1)
    row = select_rows(scaled.measure(condition, 1), factor=scaled.WITH)[0]
    assert scores.grad is not None
    assert row["gradient"] == pytest.approx(scores.grad.norm(dim=-1).mean().item(), rel=1e-5)


def test_buckets_of_length_partition_the_sentences() -> None:
    pairs = [("a", "x"), ("a b", "x y z w"), ("a b c", "x y z w")]
    rows = translators.bleu_by_length(pairs, ["x", "x y z w", "x y z w v u"], ends=(2, 5, 9))
    assert [(row["bucket"], row["sentences"], row["words"]) for row in rows] == [(0, 3, 2.0), (2, 2, 1.5), (5, 1, 3.0)]
    assert rows[2]["bleu"] < 100


def test_the_floor_is_the_best_constant_output(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("a\tp q r s\nb\tx y z w\n", encoding="utf-8")
    valid.write_text("c\tx y z w v\nd\tx y z w\n", encoding="utf-8")
    assert translators.best_constant([str(train)], [str(valid)]) == "x y z w"
