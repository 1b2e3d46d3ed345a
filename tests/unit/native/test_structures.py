"""Every structure of the library has the fields of its header: the same names and types, in the same order."""

import ctypes
import re
from collections.abc import Iterator
from ctypes import Structure

import pytest

from headwise.runtime.native import library
from headwise.runtime.native.build import FOLDER

SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.h")))
STRUCTURES = {kind.__name__: kind for kind in Structure.__subclasses__() if kind.__module__ == library.__name__}
ENUMS = {*re.findall(r"enum \w*\s*\{[^}]*\} (\w+);", SOURCE)}
NUMBERS = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}


def fields_in_c(name: str, source: str = SOURCE) -> list[tuple[str, str]]:
    """Names and types of the fields of a structure; "*" for all addresses.

    >>> fields_in_c("A", "typedef struct A {\\n int a, b[2]; /* c; */ const float *x, *y; int (*f)(int g); B z;\\n} A;")
    [('a', 'int'), ('b', 'int[2]'), ('x', '*'), ('y', '*'), ('f', '*'), ('z', 'B')]
    """
    (body,) = re.findall(rf"typedef struct {name} \{{(.*?)\}} {name};", source, re.DOTALL)
    return [field for line in re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split(";") for field in declared(line)]


def declared(line: str) -> Iterator[tuple[str, str]]:
    """The fields of one declaration."""
    if function := re.search(r"\(\*(\w+)\)\(", line):
        yield function[1], "*"
    elif found := re.match(r"\s*(?:const\s+)?(\w+)\s+(.*\S)\s*$", line, re.DOTALL):
        for one in found[2].split(","):
            name, size = re.fullmatch(r"[\s*]*(?:const\s*\*?\s*)*(\w+)(\[\d+\])?", one.strip()).groups("")  # pyright: ignore
            yield name, "*" if "*" in one else found[1] + size


def expected(name: str) -> type:
    """The type in ctypes for one of a header that is no address."""
    return ctypes.c_int if name in ENUMS else NUMBERS.get(name) or STRUCTURES[name]


def is_address(kind: type) -> bool:
    return kind is ctypes.c_void_p or issubclass(kind, ctypes._Pointer | ctypes._CFuncPtr)  # pyright: ignore


@pytest.mark.parametrize("name", STRUCTURES)
def test_fields_are_those_of_the_header(name: str) -> None:
    kinds = [(one[0].rstrip("_"), one[1]) for one in STRUCTURES[name]._fields_]
    in_c = fields_in_c(name)
    assert [field for field, _ in kinds] == [field for field, _ in in_c]
    for (field, kind), (_, given) in zip(kinds, in_c, strict=True):
        assert is_address(kind) if given == "*" else kind is expected(given), field


def test_all_structures_are_compared() -> None:
    listed = re.findall(r"STRUCT\((\w+)\)", (FOLDER / "layout.c").read_text(encoding="utf-8"))
    assert {*listed} - {"NAME"} == {*STRUCTURES}
