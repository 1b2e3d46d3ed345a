"""Errors a user can cause: one line, with the nearest valid name when there is one."""

import pytest

from headwise.errors import UserError, unknown


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tinny", "; did you mean 'tiny'?"),
        ("bsae", "; did you mean 'base'?"),
        ("BIGG", "; did you mean 'big'?"),
        ("quite another", ""),
        ("", ""),
    ],
)
def test_unknown_names_the_nearest(name: str, hint: str) -> None:
    error = unknown("recipe", name, {"tiny": 1, "base": 2, "big": 3})
    assert str(error) == f"unknown recipe '{name}'{hint} (valid: base, big, tiny)"


def test_user_error_is_a_value_error() -> None:
    """So that a program that calls the library need not know ours."""
    assert issubclass(UserError, ValueError)
