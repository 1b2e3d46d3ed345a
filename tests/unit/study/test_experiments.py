"""Every experiment runs at a toy scale, is the same for the same seed, and its verdict follows its numbers."""

import copy
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch

from headwise.study import (
    distance,
    gradients,
    inference,
    layer_cost,
    order,
    receptive_field,
    scaling_laws,
    sequential,
    translation,
)
from headwise.study import scaled_dot_product as scaled
from headwise.study.claim import Claim, Plan, Row, select_rows
from headwise.study.claims import CLAIMS
from headwise.study.contenders import ALL, TOLERANCE, matched, size, width_for
from headwise.study.run import Unit, measure_unit

TOY = Plan("toy")
ROWS: dict[str, list[Row]] = {}
SLOW = {"sequential", "inference", "translation", "distance"}  # many networks: the rest is enough to repeat
FEW = ("lstm", "transformer", "bahdanau")
CORNERS = {  # a subset of conditions for slow claims
    "sequential": lambda condition: condition.network in FEW,
    "inference": lambda condition: condition.network in FEW,
    "translation": lambda condition: condition.network in FEW,
    "distance": lambda condition: condition.task == "recall",
}


def toy_rows(name: str) -> list[Row]:
    """The rows of a claim, measured once for all tests."""
    if name not in ROWS:
        claim, keep = CLAIMS[name], CORNERS.get(name, lambda condition: True)
        units = [Unit(claim, condition, 1) for condition in claim.conditions(TOY) if keep(condition)]
        ROWS[name] = [row for unit in units for row in measure_unit(unit)["rows"]]
    return copy.deepcopy(ROWS[name])


def judged(claim: Claim, rows: list[Row]) -> str:
    return claim.judge(rows).held


def with_values(rows: list[Row], key: str, value: Callable[[Row], float]) -> list[Row]:
    return [{**row, key: value(row)} for row in rows]


@pytest.mark.parametrize("name", CLAIMS)
def test_experiment_figure_and_verdict(name: str) -> None:
    rows, claim = toy_rows(name), CLAIMS[name]
    assert all({"seed", *asdict(claim.conditions(TOY)[0])} <= set(row) for row in rows)
    for figure in claim.figures(rows):
        assert figure.caption and figure.alt
        assert all(panel.x_label and panel.y_label and panel.series for panel in figure.panels)
    verdict = claim.judge(rows)
    assert verdict.held in ("held", "held in part", "not held")
    assert verdict.reason.endswith(".") and "nan" not in verdict.reason


@pytest.mark.parametrize("name", sorted(set(CLAIMS) - SLOW - {"layer-cost"}))
def test_same_seed_same_numbers(name: str) -> None:
    claim = CLAIMS[name]
    condition = claim.conditions(TOY)[-1]
    first, again, other = (measure_unit(Unit(claim, condition, seed))["rows"] for seed in (1, 1, 2))
    assert first == again
    if name != "receptive-field":
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


def test_verdict_of_sequential() -> None:
    rows = toy_rows("sequential")
    level = with_values(rows, "milliseconds", lambda row: 5.0 + 0.001 * row["length"])
    told = with_values(rows, "milliseconds", lambda row: 5.0 if row["network"] == "transformer" else row["length"])
    assert judged(sequential.CLAIM, told) == "held"
    assert judged(sequential.CLAIM, level) == "held in part"
    assert judged(sequential.CLAIM, with_values(level, "milliseconds", lambda row: row["length"] ** 0.14)) != "held"


def test_verdict_of_distance() -> None:
    rows = toy_rows("distance")
    fades = with_values(rows, "accuracy", lambda row: 0.9 if row["network"] != "lstm" or row["distance"] < 10 else 0.1)
    assert judged(distance.CLAIM, fades) == "held"
    assert judged(distance.CLAIM, with_values(rows, "accuracy", lambda row: 0.1)) == "not held"
    only_one = with_values(rows, "accuracy", lambda row: 0.9 if row["network"] == "transformer" else 0.1)
    assert judged(distance.CLAIM, only_one) == "held in part"


def test_verdict_of_gradients() -> None:
    rows = toy_rows("gradients")
    level = with_values(rows, "gradient", lambda row: 1.0)
    level = [{**row, "accuracy": 0.5, "largest_update": 1.0} if row["cell"] else row for row in level]
    assert judged(gradients.CLAIM, level) == "not held"
    assert judged(gradients.CLAIM, with_values(level, "gradient", lambda row: 10.0 ** -row["distance"])) != "not held"


def test_verdict_of_receptive_field() -> None:
    rows = toy_rows("receptive-field")
    assert judged(receptive_field.CLAIM, rows) != "not held"
    assert judged(receptive_field.CLAIM, with_values(rows, "seen", lambda row: row["formula"] + 1)) == "not held"


def test_verdict_of_scaled_dot_product() -> None:
    rows = toy_rows("scaled-dot-product")
    assert judged(scaled.CLAIM, rows) == "held"
    flipped = with_values(rows, "entropy", lambda row: 0.5 if row["factor"] == scaled.WITHOUT else 1 / row["d_k"])
    flipped = with_values(flipped, "gradient", lambda row: 0.5 if row["factor"] == scaled.WITHOUT else 1 / row["d_k"])
    assert judged(scaled.CLAIM, flipped) == "not held"


def test_verdict_of_layer_cost() -> None:
    rows = toy_rows("layer-cost")

    def grows(row: Row, cured: bool) -> float:
        quadratic = row["layer"] == layer_cost.EXPLICIT or (row["layer"] == layer_cost.FUSED and not cured)
        return float(row["n"]) ** (2 if quadratic else 1)

    def costs(cured: bool) -> list[Row]:
        return with_values(
            with_values(rows, "milliseconds", lambda row: grows(row, False)), "megabytes", lambda row: grows(row, cured)
        )

    assert judged(layer_cost.CLAIM, costs(cured=False)) == "held"
    assert judged(layer_cost.CLAIM, costs(cured=True)) == "held in part"
    assert layer_cost.crossings(costs(cured=True)) == {16: 16.0}


def test_verdict_of_order() -> None:
    rows = with_values(toy_rows("order"), "bag", lambda row: 0.1)
    lost = with_values(rows, "accuracy", lambda row: 0.1 if "none" in row["positions"] else 0.9)
    assert judged(order.CLAIM, lost) == "held"
    assert (
        judged(order.CLAIM, with_values(rows, "accuracy", lambda row: 0.1 if row["positions"] == "none" else 0.9))
        == "held in part"
    )
    assert judged(order.CLAIM, with_values(rows, "accuracy", lambda row: 0.9)) == "not held"


def test_verdict_of_scaling_laws() -> None:
    rows = toy_rows("scaling-laws")
    falls = with_values(
        rows, "loss", lambda row: (row["parameters"] * row["read"]) ** (-0.1 if row["network"] == "lstm" else -0.3)
    )
    assert judged(scaling_laws.CLAIM, falls) == "held"
    assert (
        judged(scaling_laws.CLAIM, with_values(rows, "loss", lambda row: row["parameters"] * row["read"])) == "not held"
    )


def test_verdict_of_translation() -> None:
    rows = toy_rows("translation")
    fades = with_values(rows, "bleu", lambda row: 50 - row["words"] if row["network"] == "lstm" else 50.0)
    assert judged(translation.CLAIM, fades) == "held"
    assert judged(translation.CLAIM, with_values(rows, "bleu", lambda row: 50.0)) == "not held"
    assert (
        judged(translation.CLAIM, with_values(fades, "bleu", lambda row: 30.0 if row["network"] == "lstm" else 40.0))
        == "held in part"
    )


def test_verdict_of_inference() -> None:
    rows = toy_rows("inference")
    rows = with_values(rows, "scoring", lambda row: 100 / row["length"])
    assert judged(inference.CLAIM, with_values(rows, "writing", lambda row: 100.0)) == "held in part"
    assert judged(inference.CLAIM, with_values(rows, "writing", lambda row: 100 / row["length"])) == "held"
    rows = with_values(rows, "scoring", lambda row: 100.0)
    assert judged(inference.CLAIM, with_values(rows, "writing", lambda row: 100.0)) == "not held"


# --- the tasks are what they say


@pytest.mark.parametrize("far", [4, 16])
def test_copy_distance(far: int) -> None:
    examples = distance.sample_copy(5, far)
    assert examples.src.shape == (5, far + 1)
    assert torch.equal(examples.src[:, : distance.COPIED], examples.answer)
    assert (examples.src[:, distance.COPIED :] >= distance.NOISE).all()


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
    rows = translation.bleu_by_length(pairs, ["x", "x y z w", "x y z w v u"], ends=(2, 5, 9))
    assert [(row["bucket"], row["sentences"], row["words"]) for row in rows] == [(2, 2, 1.5), (5, 1, 3.0)]
    assert rows[1]["bleu"] < 100
