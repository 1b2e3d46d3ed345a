"""The structure of the package: layers, cycles, the wall, the tables. `structure.py` computes what is tested here."""

import ast
import re
from collections.abc import Mapping
from typing import Any

import pytest
from architecture.structure import (
    FREE,
    LAYERS,
    OTHER_NAMES,
    ROOT,
    TABLES,
    TORCH,
    Import,
    cycles,
    defining,
    doors,
    importing_torch,
    imports,
    layer,
    modules,
    named_modules,
    needing_torch,
    rows,
    subclasses,
    upward,
)

import headwise
from headwise.cli import BY_NAME, NEEDS
from headwise.config.tasks import TASKS
from headwise.documents.reading import READERS
from headwise.families.registry import FAMILIES
from headwise.importing import named
from headwise.models.kinds import KINDS, TRAINED
from headwise.pytorch.tasks.table import JOBS
from headwise.runtime.checkpoint.read import LAYOUTS

TREES = modules()


def top(module: str) -> str:
    return module.partition(".")[0]


FOUND = imports(TREES, "headwise")
NEEDING = needing_torch(TREES, FOUND)
MOST_ROOT_MODULES = 8
DOORS = {  # imports inside functions that keep torch out, by the modules that have them
    "cli.commands.demo": {"lab.demo.run"},
    "cli.commands.download": {"pytorch.checkpoint.argos", "pytorch.checkpoint.imported"},
    "cli.commands.explore": {"pytorch.inspect.page_models"},
    "cli.commands.export": {"pytorch.export.run"},
    "cli.commands.import_checkpoint": {
        "pytorch.checkpoint.argos",
        "pytorch.checkpoint.ctranslate2_families",
        "pytorch.checkpoint.ctranslate2_folder",
        "pytorch.checkpoint.imported",
        "pytorch.checkpoint.marian",
    },
    "cli.commands.join": {"pytorch.checkpoint.compose"},
    "cli.commands.prune": {"pytorch.inspect.heads", "pytorch.inspect.importance", "pytorch.models.pruning"},
    "cli.commands.study": {"lab.study.run"},
    "cli.commands.sweep": {"pytorch.tasks.run"},
    "cli.commands.train": {"pytorch.tasks.run", "pytorch.tasks.train", "pytorch.training.trackers"},
    "runtime.checkpoint.pretrained_folder": {"pytorch.checkpoint.with_torch"},
    "runtime.checkpoint.read": {"pytorch.checkpoint.with_torch"},
    "runtime.checkpoint.stored_network": {
        "pytorch.architectures.registry",
        "pytorch.search.stepwise",
        "pytorch.search.compiled",
    },
    "models.encoding.classifier": {"pytorch.models.classifier"},
    "models.encoding.encoder": {"pytorch.models.encoder"},
    "models.encoding.encoder_network": {"pytorch.checkpoint.adapters", "pytorch.search.encoder"},
    "models.translation.ensemble": {"pytorch.checkpoint.with_torch"},
    "models.introspection": {"pytorch.models.model"},
    "models.language.language_model": {"pytorch.models.language_model"},
    "models.translation.pair_inspector": {"pytorch.inspect.reader"},
    "models.speech.speech_model": {"pytorch.models.speech"},
    "models.translation.translator": {"pytorch.models.translator"},
}
LATE = {  # what the start of a translation would wait for
    ("models.translation.translator", other)
    for other in (
        *("documents.glossary.translation", "documents.memory", "evaluate.report"),
        "models.translation.pair_inspector",
    )
}


def test_every_package_is_in_one_layer() -> None:
    names = {name.partition(".")[0] for name in TREES} - {"", "__main__"}
    assert sorted(name for names_of_layer in LAYERS for name in names_of_layer) == sorted(names)


@pytest.mark.parametrize("file", ["docs/project/structure.md", "docs/architecture.svg"])
def test_the_documentation_shows_every_package(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = text[text.index("```text") :] if file.endswith(".md") else text
    shown = set(re.findall(r"\b(\w+)(?:/|\.py)", tree))
    assert {name for names in LAYERS for name in names} - shown == set()


def test_imports_point_downwards() -> None:
    assert upward(FOUND) == []


def test_imports_form_no_cycle() -> None:
    """With those inside functions and the rows of tables; those for the type checker never run."""
    assert cycles([*FOUND, *rows(TREES, "headwise")]) == []


def test_the_wall_stands() -> None:
    """The rooms in front of it import no torch, not even through others; `test_without_torch` runs them."""
    assert {name for name in importing_torch(TREES) if name.partition(".")[0] not in TORCH} == {"device"}
    assert [name for name in sorted(NEEDING) if name.partition(".")[0] in FREE] == []
    assert {"core.attention", "pytorch.models.model"} <= NEEDING and "models.encoding.encoder" not in NEEDING


def test_the_core_stands_alone() -> None:
    """It is read without the rest; the C library is attached from outside."""
    rooms = {top(one.imported) for one in FOUND if top(one.importer) == "core"} - {"core"}
    assert rooms == {"config", "contract", "errors", "text"}


def test_imports_inside_functions_keep_torch_out() -> None:
    """A module that needs no torch imports one that does in a function: the doors. Nothing else is imported late."""
    listed = {(importer, imported) for importer, those in DOORS.items() for imported in those}
    assert doors(FOUND, NEEDING) == listed
    assert not {importer for importer, _ in listed} & NEEDING
    late = {(one.importer, one.imported) for one in FOUND if one.late and not one.typed}
    assert late - listed == LATE


def test_modules_are_named_in_tables_alone() -> None:
    found = [(name, value) for name, value in named_modules(TREES, "headwise") if name not in TABLES]
    assert sorted(found) == [*OTHER_NAMES]
    by_name = {"import_module", "resolve_name", "__import__"}
    callers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in by_name
        if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "datasets")
    }
    assert callers == {"importing"}
    users = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "headwise.importing"
        if {"named", "Table"} & {alias.name for alias in node.names}
    }
    assert users == {*TABLES}


@pytest.mark.parametrize(
    "row",
    [
        *(f"{home}:{name}" for name, home in headwise._HOMES.items()),
        *(f"headwise.cli.commands.{command.module}:run" for command in BY_NAME.values()),
        *(f"headwise.cli.{module}" for module in NEEDS),
    ],
)
def test_a_row_of_names_is_imported(row: str) -> None:
    assert named(row)


@pytest.mark.parametrize(
    ("table", "row"),
    [(table, name) for table in (FAMILIES, JOBS, KINDS, LAYOUTS, READERS, TRAINED) for name in table],
)
def test_a_row_of_a_table_is_imported(table: Mapping[str, Any], row: str) -> None:
    assert table[row]


def test_every_task_has_a_row() -> None:
    assert [*JOBS] == [*TASKS]


def test_one_class_translates() -> None:
    kinds = subclasses(TREES)
    assert {"Translator", "Ensemble", "Forecaster"} <= {*kinds}
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
    trees = {
        "text.rows": ast.parse(source),
        "models": ast.parse(""),
        "models.load": ast.parse(""),
        "": ast.parse(""),
    }
    found = imports(trees, "headwise")
    assert [(one.importer, one.imported, one.late) for one in found] == [("text.rows", target, inside)]
    assert len(upward(found)) == (not inside and "TYPE_CHECKING" not in source)


def test_what_is_wrong_is_found() -> None:
    loop = [
        Import("a", "b", 1, False),
        Import("b", "c", 1, True),
        Import("c", "a", 1, False),
        Import("c", "d", 1, False),
        Import("d", "c", 1, False, typed=True),
    ]
    assert cycles(loop) == [["a", "b", "c"]]
    assert [layer(name) for name in ("errors", "runtime.native.network", "", "cli.train")] == [
        0,
        4,
        len(LAYERS),
        len(LAYERS) - 1,
    ]
    assert upward([Import("cli.train", "models.load", 1, False), Import("text.rows", "core.masks", 1, False)]) == [
        "text.rows:1 imports core.masks"
    ]
    trees = {
        "a": ast.parse("class Model: ...\nclass B(Model): ..."),
        "b": ast.parse("class C(a.B): ..."),
    }
    assert subclasses(trees) == ["B", "C"]
    wall = {
        "a": ast.parse("import torch"),
        "b": ast.parse("from p.a import x"),
        "c": ast.parse("def f():\n    from p import b"),
        "d": ast.parse("if TYPE_CHECKING:\n    import torch\n    import p.a"),
        "e": ast.parse("x = 'p.a:x'\ny = files('p.a')\nz = 'p.other'"),
    }
    found = imports(wall, "p")
    assert needing_torch(wall, found) == {"a", "b"}
    assert doors(found, {"a", "b"}) == {("c", "b")}
    assert named_modules(wall, "p") == [("e", "p.a:x")] and rows(wall, "p") == []
