"""Warnings about small data: thresholds and recommendations."""

import re
import shlex
from pathlib import Path

import pytest

from headwise.cli import parse
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.parallel_text import MEASURED, few_training_pairs, few_validation_pairs, large_vocabulary
from headwise.text.files.sources import count_of

ROOT = Path(__file__).resolve().parents[3]


def request(*files: str) -> TrainRequest:
    return TrainRequest("tiny", files, ["5%"], "runs/m", languages=("en", "de"))


@pytest.mark.parametrize(
    ("pairs", "warns"), [(0, True), (22, True), (4_000, True), (9_604, False), (10_000, False), (29_000, False)]
)
def test_training_pairs(pairs: int, warns: bool) -> None:
    found = list(few_training_pairs(request("my corpus.tsv"), pairs))
    assert len(found) == warns
    for line in found:
        assert f"--train has {pairs:,} pairs" in line
        options = parse(shlex.split(line.partition("compare: ")[2])[1:])
        assert (options.command, options.train, options.valid) == ("tune", ["my corpus.tsv"], ["5%"])
        assert options.languages == ("en", "de") and options.out != "runs/m"


def test_the_warning_gives_the_figures_of_the_documentation() -> None:
    """And wherever the table says that tuning is better, there is a warning, and nowhere else."""
    text = (ROOT / "docs" / "how-to" / "fine-tune.md").read_text(encoding="utf-8")
    figures = re.compile(r"\[([\d.]+)\]\[few\]")
    rows = re.findall(r"^\| ([\d,]+) \|(.*)\|(.*)\|$", text, re.MULTILINE)
    table = {
        int(n.replace(",", "")): [max(map(float, figures.findall(x)), default=0.0) for x in rest] for n, *rest in rows
    }
    assert {n: (scratch, tuned) for n, (scratch, tuned) in table.items() if tuned} == MEASURED
    for pairs, (scratch, tuned) in table.items():
        found = list(few_training_pairs(request("corpus.en", "corpus.de"), pairs))
        assert len(found) == (tuned > scratch)
        assert all(f"{pairs:,} pairs" in line and str(scratch) in line and str(tuned) in line for line in found)


@pytest.mark.parametrize(("pairs", "warns"), [(1, True), (199, True), (200, False), (1_014, False)])
def test_validation_pairs(pairs: int, warns: bool) -> None:
    found = list(few_validation_pairs(pairs))
    assert len(found) == warns
    assert all(
        f"--valid has {count_of(pairs, 'pair')}, too few" in line and "--valid 10% of 2,000 pairs or more" in line
        for line in found
    )


@pytest.mark.parametrize(
    ("vocab_size", "tokens", "recommended"),
    [
        (10_000, 800_000, ""),  # Multi30k with the recipe `tiny`
        (10_000, 200_000, ""),
        (10_000, 199_999, "data.vocab_size=3900"),
        (700, 660, "data.vocab_size=300"),  # 22 pairs
        (300, 660, ""),  # the smallest recommended size
    ],
)
def test_vocabulary(vocab_size: int, tokens: int, recommended: str) -> None:
    found = list(large_vocabulary(vocab_size, tokens))
    assert [line.partition(": add --set ")[2] for line in found] == ([recommended] if recommended else [])
