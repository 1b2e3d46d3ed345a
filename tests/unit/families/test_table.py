"""Tables of names are reversible and complete."""

from typing import Any

import pytest
import torch

from headwise.core.build import build
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.families.table import Entry, entries
from headwise.pytorch.checkpoint.tensors import file_tensor

Configs = dict[str, dict[str, Any]]


@pytest.mark.parametrize(
    ("marks", "names", "shape"),
    [
        ("", ["a"], (4, 3)),
        ("", ["a", "b", "c"], (4, 3)),
        ("^", ["a"], (4, 3)),
        ("^", ["a", "b"], (4, 3)),
        ("^", ["a", "b"], (4,)),
        ("%", ["a", "b", "c"], (4, 3)),
        ("%", ["a", "b", "c"], (4,)),
        ("+", ["a"], (4,)),
        ("+", ["a"], (4, 3)),
    ],
)
def test_round_trip(marks: str, names: list[str], shape: tuple[int, ...]) -> None:
    entry = Entry("key", names, marks, n_heads=2)
    own = {name: torch.randn(shape) for name in names}
    tensor = file_tensor(entry, own)
    assert tuple(tensor.shape) == entry.file_shape({name: shape for name in names})
    again = entry.to_own(tensor)
    assert all(torch.equal(again[name], own[name]) for name in names)


def test_prefixes() -> None:
    own = {"q": torch.tensor([0, 1, 2, 3]), "k": torch.tensor([10, 11, 12, 13])}
    assert file_tensor(Entry("key", ["q", "k"], "", 2), own).tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert file_tensor(Entry("key", ["q", "k"], "%", 2), own).tolist() == [0, 1, 10, 11, 2, 3, 12, 13]
    assert file_tensor(Entry("key", ["q"], "+", 2), own).tolist() == [[0, 1, 2, 3]]
    matrix = torch.arange(6).view(2, 3)
    assert file_tensor(Entry("key", ["m"], "^", 2), {"m": matrix}).tolist() == matrix.T.tolist()


@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox", "llama", "bart"])
def test_every_parameter_is_covered(family: str, configs: Configs) -> None:
    config = FAMILIES[family].config_from_hf(configs[family])
    shapes = {name: tuple(p.shape) for name, p in build(config).named_parameters()}
    table = FAMILIES[family].table(config)
    assert len({entry.key for entry in entries(table, config, shapes)}) > 5
    with pytest.raises(AssertionError, match="the table misses"):
        entries(dict(list(table.items())[1:]), config, shapes)


def test_families_have_their_own_name(configs: Configs) -> None:
    """So that a model directory finds its table for export."""
    for family, values in configs.items():
        assert FAMILIES[family].config_from_hf(values).family == family


def test_every_layer_is_covered() -> None:
    values: dict[str, Any] = {"model_type": "gpt2", "n_embd": 8, "n_layer": 3, "n_head": 2, "vocab_size": 5}
    config = FAMILIES["gpt2"].config_from_hf(values)
    shapes = {name: tuple(p.shape) for name, p in build(config).named_parameters()}
    keys = [entry.key for entry in entries(FAMILIES["gpt2"].table(config), config, shapes)]
    assert sum("ln_1.weight" in key for key in keys) == 3
    with pytest.raises(UserError, match="has no 'n_layer'"):
        FAMILIES["gpt2"].config_from_hf({key: value for key, value in values.items() if key != "n_layer"})
