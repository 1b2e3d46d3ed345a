"""The structure of the package in figures, from its sources alone: layers, imports, cycles, names, lines.

    python tests/architecture/structure.py                    the package in src/
    python tests/architecture/structure.py src/NAME           another one, such as that of an older commit
    python tests/architecture/structure.py --run              also the files that a translation and a training execute

`test_structure.py` holds what can be held. An import counts wherever it stands: at module level, inside a function, or
for the type checker.
"""

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headwise"

LAYERS = (  # from the bottom up: a module imports from its own package and from the layers below
    ("errors", "version"),
    ("config", "contract", "device", "importing"),
    ("native",),
    ("data", "network"),
    ("architectures", "decode", "families", "report", "training"),
    ("checkpoint", "corpora", "evaluate", "localisation"),
    ("generation", "glossary", "inspect"),
    ("models",),
    ("export", "results", "serve", "tasks"),
    ("cluster", "demo", "study", "tutorial"),
    ("cli",),
)
ENTRY_POINTS = ("", "__main__")  # the package's own names, and `python -m`
DOORS = (  # what may import inside functions: the requested command, the kind of model found, and what needs torch
    *("cli", "models.load", "importing", "models.ensemble"),
    *(f"checkpoint.{name}" for name in ("pretrained_folder", "read", "stored_network")),
)

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Import:
    """One import of a module of ours."""

    importer: str  # dotted names without that of the package; "" is the package itself
    imported: str
    line: int
    late: bool  # inside a function


def modules(package: Path = PACKAGE) -> dict[str, ast.Module]:
    """The syntax trees of all modules by their dotted names."""
    trees = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imports(trees: Mapping[str, ast.Module], package: str) -> list[Import]:
    """Every import of one module of the package by another, absolute imports only (`test_imports` holds that)."""
    return [
        Import(name, target, line, late)
        for name, tree in trees.items()
        for target, line, late in _imports_of(tree, trees, package)
        if target != name
    ]


def _imports_of(tree: ast.Module, trees: Mapping[str, ast.Module], package: str) -> Iterator[tuple[str, int, bool]]:
    waiting: list[tuple[ast.AST, bool]] = [(node, False) for node in tree.body]
    while waiting:
        node, late = waiting.pop()
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for full in _imported_names(node):
            if full == package or full.startswith(package + "."):
                short = full[len(package) + 1 :]
                yield (short if short in trees else short.rpartition(".")[0]), getattr(node, "lineno", 0), late
        waiting += [(child, late) for child in ast.iter_child_nodes(node)]


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def layer(module: str, layers: Sequence[Sequence[str]] = LAYERS) -> int:
    """The number of a module's layer; `KeyError` if its package is in none."""
    if module in ENTRY_POINTS:
        return len(layers)
    return {name: number for number, names in enumerate(layers) for name in names}[module.partition(".")[0]]


def upward(found: Sequence[Import], layers: Sequence[Sequence[str]] = LAYERS) -> list[str]:
    """Imports of another package that is not in a lower layer."""
    return [
        f"{one.importer}:{one.line} imports {one.imported or 'the package itself'}"
        for one in found
        if one.importer.partition(".")[0] != one.imported.partition(".")[0]
        and one.importer not in ENTRY_POINTS
        and layer(one.imported, layers) >= layer(one.importer, layers)
    ]


def late(found: Sequence[Import]) -> list[str]:
    """Imports inside functions, but for those of the two doors."""
    return [
        f"{one.importer}:{one.line} imports {one.imported}" for one in found if one.late and one.importer not in DOORS
    ]


def cycles(found: Sequence[Import]) -> list[list[str]]:
    """Modules that import each other, however indirectly, in groups (Tarjan's strongly connected components)."""
    graph: dict[str, set[str]] = {}
    for one in found:
        graph.setdefault(one.importer, set()).add(one.imported)
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {tuple(sorted(other for other in reach[name] if name in reach.get(other, ()))) for name in graph}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = graph.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached


def subclasses(trees: Mapping[str, ast.Module], root: str = "Model") -> list[str]:
    """Classes that derive from `root`, directly or not."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {root}
    while more := {name for name, own in bases.items() if own & known} - known:
        known |= more
    return sorted(known - {root})


def defining(trees: Mapping[str, ast.Module], method: str, kinds: Sequence[str]) -> list[str]:
    """The classes among `kinds` that define a method themselves."""
    return [
        f"{name}.{node.name}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in kinds
        if any(isinstance(part, ast.FunctionDef) and part.name == method for part in node.body)
    ]


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


def read_for(commands: Sequence[str], trees: Mapping[str, ast.Module], found: Sequence[Import]) -> set[str]:
    """Modules that the modules of some commands import at module level, however indirectly."""
    graph: dict[str, set[str]] = {}
    for one in found:
        if not one.late and one.importer:
            graph.setdefault(one.importer, set()).add(one.imported)
    return {name for command in commands for name in (command, *_reachable(command, graph)) if name in trees}


EXECUTED = """
import sys
from pathlib import Path
package, step, folder = sys.argv[1:4]
seen = set()
def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and frame.f_code.co_flags & 1 and name not in seen:  # 1: a function, not the body of a class
        while frame and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(package)):
            frame = frame.f_back
        if not frame:  # not called by a module that is being imported
            seen.add(name)
sys.path.insert(0, str(Path(package).parent))
name = Path(package).name
cli = __import__(name + ".cli", fromlist=["main"])
train = ["train", "--recipe", "tiny", "--train", f"{folder}/a.en", f"{folder}/a.de", "--valid", f"{folder}/a.en",
         f"{folder}/a.de", "--out", f"{folder}/run", "--device", "cpu"]
settings = ("train.max_steps=2", "train.validate_every=1", "train.warmup_steps=1", "data.vocab_size=300")
train += [part for setting in settings for part in ("--set", setting)]
translate = ["translate", f"{folder}/run", f"{folder}/a.en", "-o", f"{folder}/out", "--device", "cpu"]
sys.setprofile(profile)
try:
    failed = cli.main(train if step == "train" else translate)
except SystemExit as end:
    failed = end.code
sys.setprofile(None)
assert not failed, failed
print(len({file for file in seen if file.startswith(str(Path(package)))}))
"""


def executed(package: Path) -> dict[str, int]:
    """Files of which a `train` and then a `translate` command execute at least one function.

    Functions called while a module is imported do not count.
    """
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for language, text in (("en", "a dog runs {} times\n"), ("de", "ein Hund rennt {} mal\n")):
            Path(folder, f"a.{language}").write_text("".join(text.format(n) for n in range(60)), encoding="utf-8")
        for step in ("train", "translate"):
            command = [sys.executable, "-c", EXECUTED, str(package.resolve()), step, folder]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
            assert ran.returncode == 0, ran.stderr
            counts[step] = int(ran.stdout.split()[-1])
    return counts


def figures(package: Path, run: bool) -> Iterator[tuple[str, object]]:
    """The rows of the table, each with its value."""
    trees = modules(package)
    found = imports(trees, package.name)
    kinds = subclasses(trees)
    if package == PACKAGE:
        yield "layers", len(LAYERS)
        yield "imports that point upwards", len(upward(found))
    groups = cycles(found)
    yield "import cycles, with those inside functions and for the type checker", (len(groups), [*map(len, groups)])
    yield "imports of our own modules inside functions", sum(one.late for one in found)
    by = Counter(one.importer for one in found if one.late)
    yield "... outside the doors", len(late(found)) if package == PACKAGE else by.most_common(3)
    yield "modules in the package root", sum("." not in name and not _is_package(package, name) for name in trees) + 1
    yield "subclasses of Model", (len(kinds), kinds)
    yield "classes of models with a `translate` of their own", defining(trees, "translate", kinds)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py"))
    yield "lines of Python", f"{lines:,}"
    for name in ("train", "translate"):
        command = next(module for module in (f"cli.commands.{name}", f"cli.{name}") if module in trees)
        read = read_for((command, "models.load") if name == "translate" else (command,), trees, found)
        code = sum(lines_of_code(_file(package, name).read_text(encoding="utf-8")) for name in read)
        yield f"modules that {command} imports", f"{len(read)}, {code:,} lines of code"
    if run:
        yield "files executed by one command", executed(package)


def _file(package: Path, name: str) -> Path:
    stem = package.joinpath(*name.split(".")) if name else package
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _is_package(package: Path, name: str) -> bool:
    return not name or (package / name).is_dir()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the structure of the package in figures")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="folder of the package")
    parser.add_argument("--run", action="store_true", help="also count the files that two commands execute")
    options = parser.parse_args()
    for row, value in figures(options.package.resolve(), options.run):
        print(f"{row}: {value}")
