"""The page of stable names has all of them, as the code has them.

After an intended change, `python tests/unit/documentation/test_stable_names.py` prints the tables anew.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import headwise
import headwise.core
import headwise.lab.tutorial
import headwise.pytorch.inspect
import headwise.view
from headwise.models.model import METHODS, Model

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "stable-names.md"
ROW = re.compile(r"^\| `(?P<name>[\w.]+)` \| (?P<parameters>.*?) \| (?P<meaning>.*) \|$", re.MULTILINE)
PACKAGES: dict[str, tuple[str, ...]] = {
    "headwise": tuple(name for name in headwise.__all__ if name != "__version__"),
    "headwise.core": headwise.core.STABLE,
    "headwise.config.network": ("NetworkConfig", "StackConfig", "RotaryConfig"),
    "headwise.view": headwise.view.STABLE,
    "headwise.pytorch.inspect": headwise.pytorch.inspect.STABLE,
    "headwise.lab.tutorial": tuple(headwise.lab.tutorial.__all__),
}
DECLARED = [f"{package}.{name}" for package, names in PACKAGES.items() for name in names]


def found(name: str) -> Any:
    """What a dotted name stands for."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n:]:
            value = getattr(value, attribute)
        return value
    raise AssertionError(name)


def parameters(value: Any) -> list[str]:
    """Of a function or of the constructor of a class; the fields of a record, the methods of `Kernel`."""
    if isinstance(value, property) or value is Model:  # `load` makes a model
        return []
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if getattr(value, "_is_protocol", False):
        return [name for name in ("__call__", "weights") if name in vars(value)]
    if hasattr(value, "_fields"):
        return list(value._fields)
    if isinstance(value, type) and not getattr(value.__init__, "__module__", "").startswith("headwise."):
        return []
    names = inspect.signature(value).parameters.values()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(one.kind, "") + one.name for one in names if one.name != "self"]


def meaning(value: Any) -> str:
    """The first sentence of the documentation."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text.replace("|", "\\|"))[0]


def rows(package: str) -> Iterator[str]:
    for name in PACKAGES[package]:
        value = found(f"{package}.{name}")
        listed = ", ".join(f"`{one}`" for one in parameters(value))
        yield f"| `{package}.{name}` | {listed} | {meaning(value)} |"


def on_page() -> dict[str, tuple[str, str]]:
    return {row["name"]: (row["parameters"].strip(), row["meaning"]) for row in ROW.finditer(PAGE.read_text("utf-8"))}


def test_the_page_lists_the_declared_names() -> None:
    assert list(on_page()) == DECLARED


@pytest.mark.parametrize("name", DECLARED)
def test_a_name_is_as_the_page_says(name: str) -> None:
    """Its parameters or fields, in order; and documented."""
    listed, described = on_page()[name]
    value = found(name)
    assert re.findall(r"`([^`]+)`", listed) == parameters(value)
    assert meaning(value) and described == meaning(value)


def test_the_methods_of_models_are_listed() -> None:
    text = PAGE.read_text("utf-8")
    (line,) = re.findall(r"^Methods of `headwise\.Model`: ((?:.+\n)+)", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", line) == sorted(METHODS)


if __name__ == "__main__":
    for package in PACKAGES:
        print(f"\n## {package}\n\n| name | parameters or fields | meaning |\n|---|---|---|")
        print("\n".join(rows(package)))
    print(f"\nMethods of `headwise.Model`: {', '.join(f'`{name}`' for name in sorted(METHODS))}.")
