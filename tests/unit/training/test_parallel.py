"""Training with several processes gives the losses and parameters of a single process."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from together import all_end_well, group
from unit.training import ranks_program
from unit.training.ranks_program import CASES, stopped_and_resumed, told, train

from headwise.pytorch.training.trainer import Trainer

pytestmark = pytest.mark.distributed
PROGRAM = Path(ranks_program.__file__)
Told = list[dict[str, Any]]  # of each rank


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by one process, stopped after three updates."""
    out = tmp_path_factory.mktemp("one")
    train(out / "stopped" / "copies", Trainer, dtype=torch.float64, max_steps=3)
    return out


@pytest.fixture(scope="module")
def folder_of_two(one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by(2, tmp_path_factory.mktemp("two"), one)


@pytest.fixture(scope="module")
def folder_of_four(folder_of_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by(4, tmp_path_factory.mktemp("four"), folder_of_two)


def by(size: int, folder: Path, before: Path) -> Path:
    """The results of this many processes in each case; they also resume runs of another number of processes."""
    with group(size, [PROGRAM, folder, before]) as programs:
        all_end_well(programs)
    return folder


@pytest.fixture(scope="module")
def two(folder_of_two: Path) -> dict[str, Told]:
    return results(2, folder_of_two)


@pytest.fixture(scope="module")
def four(folder_of_four: Path) -> dict[str, Told]:
    return results(4, folder_of_four)


def results(size: int, folder: Path) -> dict[str, Told]:
    cases = (*CASES, "resumed", "diverged", "changed")
    return {case: [json.loads((folder / f"{case}.{rank}.json").read_text()) for rank in range(size)] for case in cases}


def alone(folder: Path, case: str) -> dict[str, Any]:
    return told(train(folder, Trainer, **CASES[case]))


def assert_close(ours: dict[str, Any], theirs: dict[str, Any], accuracy: float) -> None:
    """Losses and all parameters; keys' biases have no gradient but rounding, which Adam divides by eps = 1e-9."""
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=accuracy)
    [judged], [expected] = ours["judged"], theirs["judged"]
    assert judged == pytest.approx(expected, rel=accuracy)  # a validation, which is shared
    for what in ("parameters", "average"):
        for name, values in ours[what].items():
            if not name.endswith("k_proj.bias"):
                left, right = (torch.tensor(table, dtype=torch.float64) for table in (values, theirs[what][name]))
                torch.testing.assert_close(left, right, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize(
    ("case", "accuracy"),
    [
        ("float64", 1e-10),
        ("uneven", 1e-10),
        ("float32", 2e-4),
        ("muon", 2e-4),
        ("reduced", 2e-2),  # bfloat16 has 8 bits
        ("sharded", 1e-10),
        ("offloaded", 1e-10),
    ],
)
@pytest.mark.parametrize("size", [2, 4])
def test_as_one_process(request: Any, size: int, case: str, accuracy: float, tmp_path: Path) -> None:
    ranks = request.getfixturevalue({2: "two", 4: "four"}[size])[case]
    one = alone(tmp_path, case)
    assert len(one["losses"]) == 5
    assert_close(ranks[0], one, accuracy)
    for name in ("tokens", "operations"):  # of all ranks
        assert ranks[0][name] == one[name]
    for rank in ranks[1:]:
        assert rank["parameters"] == ranks[0]["parameters"]  # bit for bit
        assert rank["losses"] == []  # one log


def test_gradients_in_bfloat16_are_less_accurate(two: dict[str, Told]) -> None:
    """Apart from these bits the run is that of "float32", so they are the difference."""
    assert two["reduced"][0]["parameters"] != two["float32"][0]["parameters"]


@pytest.mark.parametrize("case", ["float64", "muon", "sharded", "offloaded"])
def test_an_update_waits_for_one_sum_besides_that_of_the_gradients(two: dict[str, Told], case: str) -> None:
    for rank in two[case]:
        first, *others = rank["waits"]
        assert first[-1] == "the sum of the losses"
        assert others == [["the sum of the losses"]] * 4


def test_every_batch_belongs_to_one_rank(two: dict[str, Told], four: dict[str, Told], tmp_path: Path) -> None:
    for case in ("float32", "uneven"):
        one = alone(tmp_path / case, case)["seen"]
        for ranks in (two[case], four[case]):
            for step, update in enumerate(one):
                parts = [rank["seen"][step] for rank in ranks]
                assert [parts[i % len(ranks)][i // len(ranks)] for i in range(len(update))] == update


def test_ranks_have_different_dropout(two: dict[str, Told]) -> None:
    first, second = two["dropout"]
    assert first["draws"] != second["draws"]
    assert first["parameters"] == second["parameters"]


@pytest.mark.parametrize("size", [2, 4])
def test_all_ranks_skip_a_checkpoint_that_one_finds_damaged(request: Any, size: int) -> None:
    for rank in request.getfixturevalue({2: "two", 4: "four"}[size])["resumed"]:
        assert rank["steps"] == ["step-00000002", "step-00000004", "step-00000005"]
        (warning,) = rank["warnings"]
        assert warning.startswith("checkpoint damaged, using the one before it: ")
        assert warning.endswith(f"step-00000005/model-00002-of-{size:05d}.safetensors: checksum does not match")
        assert rank["step"] == 4
        assert rank["parameters"] == rank["before"]  # bit for bit


@pytest.mark.parametrize("size", [2, 4])
def test_all_ranks_end_a_run_that_one_finds_diverged(request: Any, size: int) -> None:
    for rank in request.getfixturevalue({2: "two", 4: "four"}[size])["diverged"]:
        assert rank["left"] == ["step-00000002", "step-00000004"]
        assert "step 5" in rank["error"] and rank["left"][-1] in rank["error"]


@pytest.mark.parametrize(("before", "size", "runs"), [(1, 2, 2), (2, 4, 4), (4, 1, 2)])
def test_any_processes_resume_a_run_of_any_others(
    before: int, size: int, runs: int, request: Any, folder_of_four: Path, tmp_path: Path
) -> None:
    """With or without shards, before and after; the losses and the parameters are those of one process."""
    if size == 1:
        ranks = [stopped_and_resumed(tmp_path, folder_of_four, Trainer)]
        ranks = [{name: result for name, result in ranks[0].items() if name.endswith("to copies")}]
    else:
        ranks = request.getfixturevalue({2: "two", 4: "four"}[size])["changed"]
    expected = told(train(tmp_path / "whole", Trainer, dtype=torch.float64))
    assert len(ranks[0]) == runs
    for name, result in ranks[0].items():
        [warning] = result["warnings"]
        assert warning == f"resuming with {size} ranks a run of {before}: rounding and dropout will differ", name
        assert_close({**result, "judged": result["judged"][-1:]}, expected, 1e-10)
    for rank in ranks[1:]:
        assert [rank[name]["parameters"] for name in rank] == [ranks[0][name]["parameters"] for name in rank]
