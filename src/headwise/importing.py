"""Imports that wait until they are needed: of PyTorch, which is optional, and of the rows of a table."""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from headwise.errors import INSTALL_TORCH, UserError

Row = TypeVar("Row")


@contextmanager
def torch_needed(by: str = "this") -> Iterator[None]:
    """Around an import of what needs PyTorch: `UserError` if PyTorch is not installed.

    `by` is what needs it, in the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(f"{by} needs PyTorch, which is not installed: {INSTALL_TORCH}") from None


def named(name: str, by: str = "this") -> Any:
    """Import what a row of a table names: "module", or "module:NAME" for something in it.

    Names in strings are for tables alone; a test imports every row of each. Anything else is an ordinary import, inside
    a function if it needs PyTorch or another optional dependency.

    Raises:
        UserError: it needs PyTorch, which is not installed; `by` as in `torch_needed`.

    >>> named("headwise.errors:UserError").__name__
    'UserError'
    """
    module, _, attribute = name.partition(":")
    with torch_needed(by):
        found = import_module(module)
    return getattr(found, attribute) if attribute else found


class Table(MutableMapping[str, Row]):
    """Rows by their names, each imported when it is looked up; a row may also be set to a value.

    >>> errors: Table[type] = Table({"user": "headwise.errors:UserError"})
    >>> "user" in errors, errors["user"].__name__
    (True, 'UserError')
    """

    def __init__(self, rows: Mapping[str, str]) -> None:
        """`rows` are names as for `named`."""
        self._rows: dict[str, Any] = dict(rows)

    def __getitem__(self, key: str) -> Row:
        row = self._rows[key]
        return named(row) if isinstance(row, str) else row

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __setitem__(self, key: str, row: Row) -> None:
        self._rows[key] = row

    def __delitem__(self, key: str) -> None:
        del self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
