"""The heat map in the terminal: aligned whatever the script, never wider than the terminal."""

import numpy as np
import pytest

from headwise.view.labels import width_of
from headwise.view.terminal import cells, heat_map

KEYS = ["▁日本", "▁Hund", "▁été", "▁", "</s>"]


def weights(queries: int, keys: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(keys), size=queries).astype(np.float32)


def test_every_row_of_cells_begins_in_the_same_column() -> None:
    lines = heat_map(np.eye(5, dtype=np.float32), ["▁狗", "▁Dog", "▁Ё", "▁שלום", "</s>"], KEYS).splitlines()
    starts = [width_of(line[: line.index("█")]) for line in lines if "██" in line]
    assert starts == [5, 7, 9, 11, 13]


def test_wide_and_combining_letters_stand_upright_in_their_own_cells() -> None:
    text = heat_map(np.ones((1, 3), np.float32), ["▁a"], ["▁日本", "▁e\u0301a", "▁bc"])
    assert text.splitlines()[:2] == ["  日e\u0301".replace("e", " e") + " b", "  本 a c"]


@pytest.mark.parametrize("width", [24, 40, 80])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    keys = [f"▁w{i}" for i in range(50)]
    lines = heat_map(weights(3, 50), ["▁a", "▁Donaudampfschiff", "▁c"], keys, width).splitlines()
    assert all(width_of(line) <= width for line in lines if not line.startswith("  0"))
    assert sum("columns" in line for line in lines) == -(-50 // ((width - 15) // 2))


def test_stretches_show_every_column_once() -> None:
    keys = [f"▁{letter}" for letter in "abcdefghijklmnopqrst"]
    whole = heat_map(np.eye(20, dtype=np.float32), keys, keys, 200)
    parts = heat_map(np.eye(20, dtype=np.float32), keys, keys, 16)
    assert whole.count("██") == parts.count("██") == 20


def test_darker_is_more() -> None:
    assert cells(np.array([0.0, 0.04, 0.16, 0.36, 0.64, 1.0], np.float32)) == "  ··░░▒▒▓▓██"


def test_one_narrow_terminal_still_shows_a_column_at_a_time() -> None:
    assert heat_map(weights(1, 2), ["▁long"], ["▁a", "▁b"], 1).count("columns") == 2
