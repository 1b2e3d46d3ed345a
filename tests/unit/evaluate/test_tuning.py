"""The search for a length penalty, on a model whose output is known for each."""

from collections.abc import Sequence
from typing import Any

import pytest

from headwise.config.settings import SearchSettings
from headwise.errors import UserError
from headwise.evaluate.tuning import tune_length_penalty
from headwise.runtime.search.translator import Translation

REFERENCE = [" ".join(f"w{line}{n}" for n in range(20)) for line in range(3)]


class Stretching:
    """Writes the reference to `ideal` words at that penalty: too few below, too many above."""

    def __init__(self, ideal: float, config: SearchSettings | None = None) -> None:
        self.ideal = ideal
        self.decode_config = config or SearchSettings()
        self.tried: list[float] = []

    def settings(self, **overrides: Any) -> SearchSettings:
        return self.decode_config.changed(overrides)

    def translate(self, texts: Sequence[str], prefix: str = "", **overrides: Any) -> list[Translation]:
        assert overrides.pop("beam_size", 4) == 4
        alpha = overrides.pop("length_penalty")
        assert not overrides
        self.tried.append(alpha)
        words = round(20 * (1 + alpha - self.ideal))
        lines = [" ".join([*line.split()[:words], *["x"] * (words - 20)]) for line in REFERENCE]
        return [Translation(line, 0.0, 0.0, [], [], [], 1) for line in lines]


@pytest.mark.parametrize("ideal", [0.0, 0.3, 0.6, 1.1, 2.0])
def test_the_best_is_found_and_no_value_is_searched_twice(ideal: float) -> None:
    model = Stretching(ideal)
    tuning = tune_length_penalty(model, ["a"] * 3, [REFERENCE])
    assert tuning.best == ideal
    assert tuning.scores[ideal].score == pytest.approx(100.0)
    assert len(set(model.tried)) == len(model.tried) <= 11
    assert list(tuning.scores) == sorted(model.tried)
    assert tuning.decoding == SearchSettings(length_penalty=ideal)
    assert 0.6 in model.tried  # the model's own is among them


def test_without_a_difference_the_models_own_value_stays() -> None:
    class Deaf(Stretching):
        def translate(self, texts: Sequence[str], prefix: str = "", **overrides: Any) -> list[Translation]:
            return super().translate(texts, **{**overrides, "length_penalty": self.ideal})

    assert tune_length_penalty(Deaf(1.0, SearchSettings(length_penalty=0.7)), ["a"] * 3, [REFERENCE]).best == 0.7


def test_the_table_names_the_best_and_the_models_own() -> None:
    tuning = tune_length_penalty(Stretching(1.0), ["a"] * 3, [REFERENCE])
    head, *rows, last = tuning.render().splitlines()
    assert head == "length penalty     BLEU   length ratio   brevity penalty"
    assert rows[0] == "             0     0.00          0.000             0.000"
    assert [row for row in rows if row.endswith("best")] == [
        "             1   100.00          1.000             1.000   best"
    ]
    assert next(row for row in rows if row.endswith("the model's own")).startswith("           0.6")
    assert last.startswith("beam 4, nrefs:1|")
    assert tuning.as_json()["length_penalty"] == {"best": 1.0, "before": 0.6}
    assert tuning.describe(["v.en", "v.de"]).startswith(
        f"length penalty 1.0, the best of {len(rows)} on v.en, v.de: BLEU 100.00"
    )


@pytest.mark.parametrize("config", [SearchSettings(beam_size=1), SearchSettings(sample=True)])
def test_without_a_beam_there_is_nothing_to_tune(config: SearchSettings) -> None:
    with pytest.raises(UserError, match="nothing to tune without one"):
        tune_length_penalty(Stretching(1.0, config), ["a"] * 3, [REFERENCE])
    beam = {} if config.sample else {"beam_size": 4}
    if beam:
        tune_length_penalty(Stretching(1.0, config), ["a"] * 3, [REFERENCE], overrides=beam)
