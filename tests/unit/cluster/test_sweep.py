"""Which trials a sweep has."""

import pytest

from headwise.errors import UserError
from headwise.serve.cluster.sweep import trials_from


def test_every_combination_is_a_trial() -> None:
    found = trials_from(["train.seed=1,2", "train.learning_rate=1e-3, 3e-3", "train.betas=[0.9, 0.98]", "data.x='a/b'"])
    assert len(found) == 4
    assert found["learning_rate-3e-3_seed-1"] == [
        "train.learning_rate=3e-3",
        "train.seed=1",
        "train.betas=[0.9, 0.98]",
        "data.x='a/b'",
    ]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [(["train.seed=1"], "several values"), ([], "several values"), (["train.seed=1,1"], "a value is repeated")],
)
def test_what_is_no_sweep(settings: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        trials_from(settings)
