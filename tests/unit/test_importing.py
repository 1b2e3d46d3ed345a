"""Imports that wait: one line where PyTorch is missing, and rows of tables."""

import pytest

from headwise.errors import UserError
from headwise.importing import Table, named, torch_needed


def test_a_missing_torch_is_one_line_that_names_what_needs_it() -> None:
    why = r'headwise train needs PyTorch.*pip install "headwise\[train\]"'
    with pytest.raises(UserError, match=why) as refused, torch_needed("headwise train"):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    assert "\n" not in str(refused.value)


def test_another_missing_module_is_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        named("headwise.no_such_module:X")
    with pytest.raises(AttributeError, match="NO_SUCH_NAME"):
        named("headwise.errors:NO_SUCH_NAME")


def test_a_row_is_imported_when_it_is_looked_up() -> None:
    table: Table[type] = Table({"right": "headwise.errors:UserError", "wrong": "headwise.no_such_module:X"})
    assert [*table] == ["right", "wrong"] and len(table) == 2 and "wrong" in table and "other" not in table
    assert table["right"] is UserError and table.get("other") is None
    with pytest.raises(KeyError):
        _ = table["other"]
    with pytest.raises(ModuleNotFoundError):
        _ = table["wrong"]
    table["wrong"] = ValueError
    assert [*table.values()] == [UserError, ValueError]
    del table["wrong"]
    assert [*table] == ["right"]
