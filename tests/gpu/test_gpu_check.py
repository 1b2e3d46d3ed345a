"""A rehearsal of `make gpu-check` on a CPU, so that it keeps up with the code."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu.checking import Checks
from gpu.run import CAPTURE, CHECKS, ON_CUDA, PROOFS, allowed, run, speed, write_results

SLOW = (speed.compilation,)  # compiling takes longer than all others together


def test_a_rehearsal(tmp_path: Path) -> None:
    names = [function.__name__ for function in CHECKS if function not in SLOW]
    c = Checks(torch.device("cpu"), tmp_path)
    run(c, names)
    assert [one for one in c.results if one["status"] == "FAIL"] == []
    assert write_results(c, tmp_path / "results/found.json")["PASS"] > 30
    skipped = {one["check"] for one in c.results if one["status"] == "SKIP"}
    assert skipped - {"peer", "varlen_kernel"} == {function.__name__ for function in ON_CUDA}
    written = json.loads((tmp_path / "results/found.json").read_text(encoding="utf-8"))
    assert written["results"] and [*written["against"]] == [*PROOFS] and all(written["against"].values())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"threads": "FAIL"}, ["threads FAIL"]),
        ({"captured_decoding": "SKIP", "failed_capture": "FAIL"}, ["captured_decoding SKIP", "failed_capture FAIL"]),
        ({"threads": ""}, ["threads missing"]),
    ],
)
def test_what_the_results_allow(change: dict[str, str], expected: list[str]) -> None:
    statuses = {**dict.fromkeys(PROOFS[CAPTURE], "PASS"), **change}
    results: list[dict[str, Any]] = [{"check": name, "status": status} for name, status in statuses.items() if status]
    results += [{"check": "throughput.toy", "status": "INFO"}, {"check": "threads.seconds", "status": "TIME"}]
    assert allowed(results)[CAPTURE] == expected
    assert all(allowed(results).values()) is bool(expected)
