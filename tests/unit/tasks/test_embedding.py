"""The contrastive loss, by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.evaluate.retrieval import retrieval_report
from headwise.pytorch.data.contrastive import ContrastiveDataset
from headwise.pytorch.tasks.embedding import contrastive_loss
from headwise.text.files.contrastive_texts import read_contrastive

NONE = torch.eye(2, dtype=torch.bool)


def test_loss_by_hand() -> None:
    """Cosines of line 1: 1 and 0.6; of line 2: 0 and 0.8; times 20."""
    queries = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    others = torch.tensor([[1.0, 0.0], [0.3, 0.4]])
    loss = contrastive_loss(queries, others, NONE)
    expected = math.log(1 + math.exp(12 - 20)) + math.log(1 + math.exp(0 - 16))
    assert loss.objective.item() == pytest.approx(expected, rel=1e-5)
    assert loss.figures["accuracy"] == 2


def test_duplicates_are_not_negatives() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert contrastive_loss(vectors, vectors, NONE).objective.item() == pytest.approx(2 * math.log(2))
    assert contrastive_loss(vectors, vectors, torch.ones(2, 2, dtype=torch.bool)).objective.item() == 0.0


def test_third_texts_are_negatives_of_every_line() -> None:
    queries = torch.eye(2)
    others = torch.cat([torch.eye(2), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])])
    same = torch.cat([NONE, torch.zeros(2, 2, dtype=torch.bool)], 1)
    expected = math.log(2 + math.exp(-20) + math.exp(-40)) + math.log(1 + 3 * math.exp(-20))
    assert contrastive_loss(queries, others, same).objective.item() == pytest.approx(expected, rel=1e-5)


def test_batches_concatenate_columns() -> None:
    lines = [("a", "b", "b"), ("c", "d", "e")]
    texts = ContrastiveDataset(lines, [[[5, 6], [7], [7]], [[8], [9, 9, 9], [4]]], pad_id=0)
    batch = texts.load(np.array([1, 0]))
    assert batch.src.tolist() == [[8, 0, 0], [5, 6, 0], [9, 9, 9], [7, 0, 0], [4, 0, 0], [7, 0, 0]]
    assert batch.src_mask.sum(1).tolist() == [1, 2, 3, 1, 1, 1]
    assert batch.same.tolist() == [[True, False, False, False], [False, True, False, True]]
    assert (batch.n_targets, batch.n_real, batch.n_cells) == (2, 9, 18)


def test_ties_get_the_worst_rank() -> None:
    report = retrieval_report(np.ones((3, 2)), np.ones((3, 2)), [0, 1, 2])
    assert (report.accuracy, report.recall_at_10, report.mrr) == (0.0, 1.0, pytest.approx(1 / 3))
    assert retrieval_report(np.eye(3) * 5, np.eye(3), [0, 1, 2]).accuracy == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\n", r"line 2 has 1 columns where the first has 2; write 'text TAB"),
        ("a\n", r"line 1 has 1 columns; write"),
        ("a\tb\tc\td\n", r"line 1 has 4 columns; write"),
        ("a\tb\nc\t \n", r"line 2 has an empty column; write"),
        ("", r"is empty|has no line"),
        (
            "a\tb\t4.25\nc\td\t-1\n",
            r"the third column has numbers, such as 4.25; write .*; scores are for --task classify",
        ),
        ("sentence1\tsentence2\na\tb\n", r"line 1 looks like a header; remove it"),
        ("anchor\tpositive\tnegative\na\tb\tc\n", r"line 1 looks like a header; remove it"),
    ],
)
def test_bad_lines(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_contrastive([str(tmp_path / "a.tsv")])
