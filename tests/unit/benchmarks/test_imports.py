"""How the scripts import each other."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
SCRIPTS = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")}

pytestmark = pytest.mark.skipif(not SCRIPTS, reason="benchmarks are not part of the source distribution")


def imported(tree: ast.AST) -> set[str]:
    """The modules of all import statements, also of those inside functions."""
    nodes = [*ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_scripts_import_each_other_in_no_circle() -> None:
    order = [*TopologicalSorter({name: imported(tree) & {*SCRIPTS} for name, tree in SCRIPTS.items()}).static_order()]
    assert order.index("machine") < order.index("bench")
