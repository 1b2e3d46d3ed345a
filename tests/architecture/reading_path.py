"""What a reader opens to follow `sightline train` of a translator and `sightline translate`, and how much that is.

    python tests/architecture/reading_path.py      every file of it with its lines, the total, and the C beside it

Counted are lines of code: no blank lines, no comments, no docstrings. The path begins at the two commands and the verbs
behind them (`START`) and follows every import that runs with its module. An import inside a function is followed where
every such run comes by it: those modules are named in `ASKED_FOR`. What only another verb, task or architecture or an
option brings in is not the path's. `test_reading_path.py` holds the number, and `ASKED_FOR` to what a training and a
translation really load. Imports for the type checker are none.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
START = ("sightline.cli.train", "sightline.cli.translate", "sightline.tasks.run", "sightline.models.load")
ASKED_FOR = (
    "sightline.architectures.registry",
    "sightline.data.words",
    "sightline.decode.steps",
    "sightline.checkpoint.hub",
    "sightline.checkpoint.layout",
    "sightline.families.sightline",
    "sightline.network.parameters",
    "sightline.tasks.translation",
)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def reading_path(start: Sequence[str] = (*START, *ASKED_FOR)) -> dict[str, int]:
    """Lines of code of every module that importing those of `start` brings along, by the module's name."""
    lines: dict[str, int] = {}
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if file is None or module in lines:
            continue
        text = file.read_text(encoding="utf-8")
        lines[module] = lines_of_code(text)
        waiting += imports_at_once(ast.parse(text))
    return lines


def file_of(module: str) -> Path | None:
    """The file of a module or package of ours; None for others, and for the names that a module holds."""
    if module.partition(".")[0] != "sightline":
        return None
    stem = SOURCES.joinpath(*module.split("."))
    return next((path for path in (stem / "__init__.py", stem.with_suffix(".py")) if path.is_file()), None)


def imports_at_once(tree: ast.AST) -> Iterator[str]:
    """Names imported when the module is: not inside a function, not for the type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports_at_once(ast.Module(node.orelse, []))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports_at_once(node)


def lines_of_code(text: str) -> int:
    """Lines of a Python source that hold code.

    >>> lines_of_code('''def f():
    ...     "What it does."
    ...     # why
    ...
    ...     return (1,
    ...             2)''')
    3
    """
    return len(code_lines(text))


def code_lines(text: str) -> set[int]:
    """Their numbers, from 1."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = (range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in NO_CODE)
    return {line for span in spans for line in span} - set(docstring_lines(ast.parse(text)))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Numbers of the lines that docstrings take."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def lines_of_c(text: str) -> int:
    """The same of a C source.

    >>> lines_of_c("/* what\\n * it does */\\nint one(void) {  // why\\n\\n    return 1;\\n}\\n")
    3
    """
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return sum(bool(line.strip()) for line in code.split("\n"))


def c_beside_it() -> dict[str, int]:
    """Lines of code of every file of the compiled library, by its name."""
    return {path.name: lines_of_c(path.read_text(encoding="utf-8")) for path in sorted(native().glob("*.[ch]"))}


def native() -> Path:
    return SOURCES / "sightline" / "native"


def table(lines: dict[str, int], what: str) -> str:
    """A line for each file, and their sum."""
    rows = [f"{count:6,}  {name}" for name, count in sorted(lines.items())]
    return "\n".join([*rows, f"{sum(lines.values()):6,}  {what} in {len(lines)} files", ""])


if __name__ == "__main__":
    print(table(reading_path(), "lines of Python"))
    print(table(c_beside_it(), "lines of C"))
