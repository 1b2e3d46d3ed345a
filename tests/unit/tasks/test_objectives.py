"""The losses of classifiers and forecasters, against explicit formulas."""

import pytest
import torch
from torch import nn

from headwise.config.settings import apply_settings, load_recipe
from headwise.core.loss import label_loss, squared_loss
from headwise.pytorch.data.labelled import collate_labelled
from headwise.pytorch.data.time_series import WindowBatch, Windows
from headwise.pytorch.tasks.classification import label_figures, label_outputs
from headwise.pytorch.tasks.forecasting import ForecastJob
from headwise.pytorch.training.validation import Shard

CPU = torch.device("cpu")


def test_label_smoothed_cross_entropy_is_a_sum_over_texts() -> None:
    logits, labels = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
    target = torch.full((4, 3), 0.1 / 3, dtype=torch.float64)
    target[range(4), labels] += 0.9
    expected = -(target * (logits - logits.exp().sum(1, keepdim=True).log())).sum()
    loss = label_loss(logits, labels, 0.1)
    torch.testing.assert_close(loss.objective.double(), expected, rtol=1e-6, atol=0)
    assert loss.figures["accuracy"] == (logits.argmax(1) == labels).sum()


def test_squared_error_is_a_mean_over_steps_and_a_sum_over_windows() -> None:
    loss = squared_loss(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 4.0], [3.0, 1.0]]))
    assert (loss.objective.item(), loss.figures["mae"].item()) == (4 / 2 + 10 / 2, 2 / 2 + 4 / 2)


class Constant(nn.Module):
    """Has the same output for every row."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, src: torch.Tensor, src_mask: torch.Tensor) -> torch.Tensor:
        return self.values.expand(len(src), -1)


def test_means_over_batches_of_different_sizes() -> None:
    batches = [collate_labelled([[5]] * n, [0] * n, pad_id=0, eos_id=2) for n in (1, 3)]
    batches.append(collate_labelled([[5], [6]], [1, 1], pad_id=0, eos_id=2))
    network = Constant(1.0, 0.0)
    figures = label_figures(("a", "b"), label_outputs((network(*batch.inputs), batch.labels) for batch in batches))
    assert figures["accuracy"] == pytest.approx(4 / 6)
    right, wrong = (-torch.tensor([1.0, 0.0]).log_softmax(0)).tolist()
    assert figures["loss"] == pytest.approx((4 * right + 2 * wrong) / 6)


def test_forecasting_metrics_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = WindowBatch(
        torch.zeros(2, 3, 1), torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 2), torch.zeros(2, 3), torch.ones(2, 1)
    )
    monkeypatch.setattr(Windows, "in_order", lambda self, tokens: [batch])
    windows = object.__new__(Windows)
    job = ForecastJob(apply_settings(load_recipe("forecast"), []), None, {}, windows, windows)
    figures = job.figures(job.outputs(Constant(1.0, 3.0), CPU, Shard()))
    assert figures == {"loss": 2.0, "mae": 1.0}
