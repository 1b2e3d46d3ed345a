"""The structure of the package: layers, imports, names. `structure.py` computes and prints what is tested here."""

import ast
import re

import pytest
from architecture.structure import (
    DOORS,
    LAYERS,
    ROOT,
    Import,
    cycles,
    defining,
    imports,
    late,
    layer,
    modules,
    subclasses,
    upward,
)

TREES = modules()
FOUND = imports(TREES, "headwise")
MOST_ROOT_MODULES = 7


def test_every_package_is_in_one_layer() -> None:
    names = {name.partition(".")[0] for name in TREES} - {"", "__main__"}
    assert sorted(name for names_of_layer in LAYERS for name in names_of_layer) == sorted(names)


@pytest.mark.parametrize("file", ["docs/project/reading-order.md", "docs/architecture.svg"])
def test_the_documentation_shows_every_package(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = text[text.index("```text") :] if file.endswith(".md") else text
    shown = set(re.findall(r"\b(\w+)(?:/|\.py)", tree))
    assert {name for names in LAYERS for name in names} - shown == ({"version"} if file.endswith(".md") else set())


def test_imports_point_downwards() -> None:
    assert upward(FOUND) == []


def test_imports_form_no_cycle() -> None:
    """With those inside functions and those for the type checker."""
    assert cycles(FOUND) == []


def test_own_modules_are_imported_at_module_level() -> None:
    """But for two doors: the command line imports the requested command, `load` the kind of model that it finds."""
    assert late(FOUND) == []


def test_imports_by_name_are_for_the_doors() -> None:
    by_name = {"import_module", "resolve_name", "__import__"}
    callers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in by_name
        if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "datasets")
    }
    assert callers <= {"", *DOORS}


def test_one_class_for_each_kind_of_model() -> None:
    kinds = subclasses(TREES)
    modules_of_kinds = [name for name in TREES if any(f"class {kind}(" in ast.unparse(TREES[name]) for kind in kinds)]
    assert len(modules_of_kinds) == len(kinds) <= 10
    assert len(defining(TREES, "translate", kinds)) == 1


def test_the_root_holds_few_modules() -> None:
    packages = {name.partition(".")[0] for name in TREES if "." in name}
    assert len([name for name in TREES if "." not in name and name not in packages]) <= MOST_ROOT_MODULES


@pytest.mark.parametrize(
    ("source", "target", "inside"),
    [
        ("import headwise.models.load", "models.load", False),
        ("from headwise.models import load", "models.load", False),
        ("from headwise.models.load import load", "models.load", False),
        ("def f():\n    from headwise.models.load import load", "models.load", True),
        ("class A:\n    def f(self):\n        import headwise.models.load", "models.load", True),
        ("if TYPE_CHECKING:\n    from headwise.models.load import load", "models.load", False),
        ("from headwise import __version__", "", False),
    ],
)
def test_imports_are_found(source: str, target: str, inside: bool) -> None:
    trees = {"data.batch": ast.parse(source), "models": ast.parse(""), "models.load": ast.parse(""), "": ast.parse("")}
    found = imports(trees, "headwise")
    assert [(one.importer, one.imported, one.late) for one in found] == [("data.batch", target, inside)]
    assert len(upward(found)) == 1
    assert len(late(found)) == inside


def test_what_is_wrong_is_found() -> None:
    loop = [
        Import("a", "b", 1, False),
        Import("b", "c", 1, True),
        Import("c", "a", 1, False),
        Import("c", "d", 1, False),
    ]
    assert cycles(loop) == [["a", "b", "c"]]
    assert [layer(name) for name in ("errors", "native.network", "", "cli.train")] == [
        0,
        2,
        len(LAYERS),
        len(LAYERS) - 1,
    ]
    assert upward([Import("cli.train", "models.load", 1, False), Import("data.rows", "network.masks", 1, False)]) == [
        "data.rows:1 imports network.masks"
    ]
    assert late([Import("cli", "models.load", 1, True), Import("cli.train", "models.load", 1, True)]) == [
        "cli.train:1 imports models.load"
    ]
    trees = {
        "a": ast.parse("class Model: ...\nclass B(Model): ..."),
        "b": ast.parse("class C(a.B): ..."),
    }
    assert subclasses(trees) == ["B", "C"]
