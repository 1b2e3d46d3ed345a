"""`make mutants` changes what runs, one thing at a time, and nothing else: `tests/mutants/sites.py`."""

import ast
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from mutants import switch
from mutants.run import planned
from mutants.sites import KINDS, Site, c_sites, chosen, python_sites, with_mutants

SOURCE = '''"""A module."""
LIMIT = 3


def f(items: list[int], found: list[int], *, more: int = 2) -> int:
    """Not a statement that does anything: 1 < 2."""
    assert len(items) < 9
    for item in items:
        if item < LIMIT:
            found.append(item * more)
        else:
            continue
    return sum(found, len(f"é {len(items) + 1}"))
'''
C = """#include "a.h"

static int f(int n, int *x) {
    int sum = n * 2; /* i < 3 */
    for (int i = 0; i < n; i++) {
        if (x[i] == 0) return n - 1;
        record(x, i);
    }
    return sum;
}
"""


def run_with(monkeypatch: pytest.MonkeyPatch, source: str) -> Callable[[int | None], Any]:
    """Calls `f` of a file with mutants, with one of them."""
    names: dict[str, Any] = {}
    exec(compile(source.replace("from mutant_switch import", "from mutants.switch import"), "mutants", "exec"), names)

    def call(number: int | None) -> Any:
        if number is None:
            monkeypatch.delenv("HEADWISE_MUTANT", raising=False)
        else:
            monkeypatch.setenv("HEADWISE_MUTANT", str(number))
        found: list[int] = []
        return names["f"]([1, 2, 3, 4], found), found

    return call


def test_each_mutation_changes_what_runs_when_it_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = list(python_sites("src/headwise/a.py", SOURCE))
    alone = [site for n, site in enumerate(sites) if not any(_overlap(site, other) for other in sites[:n])]
    changed = with_mutants(SOURCE, [*enumerate(alone)])
    assert len(changed.splitlines()) == len(SOURCE.splitlines())
    assert (ast.get_docstring(ast.parse(changed)), ast.get_docstring(ast.parse(SOURCE))) == ("A module.", "A module.")
    call = run_with(monkeypatch, changed)
    assert call(None) == (9, [2, 4])
    for number, site in enumerate(alone):
        if site.original != "continue":  # the last statement of its loop
            with suppress(TypeError):  # of swapped arguments
                assert call(number) != (9, [2, 4]), site


def _overlap(one: Site, other: Site) -> bool:
    return one.at[0] < other.at[1] and other.at[0] < one.at[1]


def test_every_kind_is_found_and_what_never_runs_is_left_alone() -> None:
    sites = list(python_sites("src/headwise/a.py", SOURCE))
    assert {site.kind for site in sites} == set(KINDS)
    assert {(site.kind, site.original, site.changed) for site in sites if site.line > 7} == {
        ("comparison", "item < LIMIT", "not (item < LIMIT)"),
        ("comparison", "item < LIMIT", "item >= LIMIT"),
        ("boundary", "item < LIMIT", "item <= LIMIT"),
        ("removed statement", "found.append(item * more)", ""),
        ("arithmetic", "item * more", "(item) / (more)"),
        ("removed statement", "continue", ""),
        ("swapped arguments", 'sum(found, len(f"é {len(items) + 1}"))', 'sum(len(f"é {len(items) + 1}"), found)'),
    }
    assert min(site.line for site in sites) == 9, "defaults, tables, docstrings and asserts"


def test_mutations_of_c() -> None:
    sites = list(c_sites("src/headwise/native/a.c", C))
    assert {(site.line, site.original, site.changed) for site in sites} == {
        (4, "n * 2", "n + 2"),
        (5, "i < n", "i >= n"),
        (5, "i < n", "i <= n"),
        (7, "record(x, i)", "(void)0"),
    }
    changed = with_mutants(C, [(3, next(site for site in sites if site.original == "record(x, i)"))])
    assert "        if (!headwise_mutant(3)) record(x, i);\n" in changed
    assert '#include "a.h"\nint headwise_mutant(int);\n' in changed


def test_the_choice_is_stable() -> None:
    """An edit elsewhere changes nothing; each package has a share."""
    sites = [site for name in "abc" for site in python_sites(f"src/headwise/{name}/x.py", SOURCE)]
    first = chosen(sites, 9, 0)
    edited = SOURCE.replace("LIMIT = 3", "LIMIT = 3\nMORE = 4")
    sites = [site for name in "abc" for site in python_sites(f"src/headwise/{name}/x.py", edited)]
    again = chosen(sites, 9, 0)
    assert [(one.file, one.original, one.changed) for one in first] == [
        (one.file, one.original, one.changed) for one in again
    ]
    assert {one.group for one in first} == {"a", "b", "c"} and first != chosen(sites, 9, 1)


def test_reached_mutations_are_recorded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWISE_MUTANT", raising=False)
    monkeypatch.setenv("HEADWISE_MUTANTS_REACHED", str(tmp_path / "reached"))
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    for _ in range(2):
        assert not switch.mutant(7000)
    assert (tmp_path / "reached").read_text() == f"7000\t{test}\n"


def test_the_fastest_tests_are_planned_with_their_module() -> None:
    tests = {"b.py::slow": 9.0, "a.py::x": 1.0, "b.py::y": 0.5, "a.py::z": 2.0}
    assert list(planned(tests, 4.0)) == ["b.py::y", "a.py::x", "a.py::z"]
    assert list(planned({"a.py::only": 99.0}, 4.0)) == ["a.py::only"]
