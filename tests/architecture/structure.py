"""The structure of the package in figures, from its sources alone: layers, imports, cycles, the wall, the doors.

    python tests/architecture/structure.py                    the package in src/
    python tests/architecture/structure.py src/NAME           another one, such as that of an older commit
    python tests/architecture/structure.py --run              also the journeys: what a call imports and executes

`test_structure.py` holds what can be held. An import at module level runs when the module is imported; one inside a
function when the function is called; one for the type checker never.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headwise"

LAYERS = (  # from the bottom up: a room imports from itself and from the layers below, doors excepted
    ("errors", "version"),
    ("config", "device", "importing", "lock"),
    ("contract",),
    ("families", "text"),
    ("runtime",),
    ("documents", "evaluate"),
    ("view",),
    ("models",),
    ("serve",),
    ("core",),
    ("pytorch",),
    ("lab",),
    ("cli",),
)
ENTRY_POINTS = ("", "__main__")  # the package's own names, and `python -m`
TORCH = ("core", "pytorch", "lab")  # the rooms behind the wall: they alone import torch
FREE = tuple(name for names in LAYERS for name in names if name not in (*TORCH, "cli"))  # `cli` may import everything
TABLES = {  # modules whose rows name modules of ours in strings, which `importing.named` imports
    "": "the names of `import headwise`",
    "cli": "the commands",
    "pytorch.tasks.table": "the tasks",
    "families.registry": "the families",
    "models.kinds": "the kinds of models",
    "runtime.checkpoint.read": "the layouts of model folders",
    "documents.reading": "the formats of documents",
}
OTHER_NAMES = (  # a program, started in processes of its own; and packages whose files the page reads
    ("serve.cluster.sweep", "headwise.cli.trial"),
    ("serve.page", "headwise.serve"),
    ("serve.page", "headwise.serve.web"),
)


@dataclass(frozen=True)
class Import:
    """One import of a module of ours."""

    importer: str  # dotted names without that of the package; "" is the package itself
    imported: str
    line: int
    late: bool  # inside a function
    typed: bool = False  # for the type checker alone


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
        Import(name, target, line, late, typed)
        for name, tree in trees.items()
        for full, line, late, typed in _imports_of(tree)
        if (target := _module_of(full, trees, package)) is not None and target != name
    ]


def _module_of(full: str, trees: Mapping[str, ast.Module], package: str) -> str | None:
    """The module of an imported name, as in `trees`; None for other packages."""
    if full != package and not full.startswith(package + "."):
        return None
    short = full[len(package) + 1 :]
    return short if short in trees else short.rpartition(".")[0]


def _imports_of(tree: ast.Module) -> Iterator[tuple[str, int, bool, bool]]:
    waiting: list[tuple[ast.AST, bool, bool]] = [(node, False, False) for node in tree.body]
    while waiting:
        node, late, typed = waiting.pop()
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typed = typed or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        yield from ((full, getattr(node, "lineno", 0), late, typed) for full in _imported_names(node))
        waiting += [(child, late, typed) for child in ast.iter_child_nodes(node)]


def needing_torch(trees: Mapping[str, ast.Module], found: Sequence[Import]) -> set[str]:
    """Modules that import torch at module level, or another module that does, however indirectly."""
    direct = {
        name
        for name, tree in trees.items()
        for full, _, late, typed in _imports_of(tree)
        if full.partition(".")[0] == "torch" and not (late or typed)
    }
    graph = _graph([one for one in found if not (one.late or one.typed)])
    return {name for name in trees if name in direct or _reachable(name, graph) & direct}


def importing_torch(trees: Mapping[str, ast.Module]) -> set[str]:
    """Modules that import torch themselves, also inside functions; not for the type checker alone."""
    return {
        name
        for name, tree in trees.items()
        for full, _, _, typed in _imports_of(tree)
        if full.partition(".")[0] == "torch" and not typed
    }


def doors(found: Sequence[Import], needing: Collection[str]) -> set[tuple[str, str]]:
    """Imports inside functions of modules that need torch, by modules that do not."""
    return {(one.importer, one.imported) for one in found if one.late and not one.typed and one.imported in needing}


def named_modules(trees: Mapping[str, ast.Module], package: str) -> list[tuple[str, str]]:
    """Strings that name a module of ours, or something in one, with their modules; not those of `resources.files`."""
    pattern = re.compile(rf"{package}(\.\w+)+(:\w+)?")
    return [
        (name, node.value)
        for name, tree in trees.items()
        for node in _without_resources(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value)
        if node.value.partition(":")[0][len(package) + 1 :] in trees
    ]


def rows(trees: Mapping[str, ast.Module], package: str) -> list[Import]:
    """The rows of `TABLES` as imports, but for those of the package itself, which everybody imports."""
    named = [(name, value.partition(":")[0][len(package) + 1 :]) for name, value in named_modules(trees, package)]
    return [Import(name, target, 0, True) for name, target in named if name in TABLES and name]


def _without_resources(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "files"):
            yield node
            waiting += ast.iter_child_nodes(node)


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
    """Imports of another room that is not in a lower layer; inside functions they are doors, which are listed."""
    return [
        f"{one.importer}:{one.line} imports {one.imported or 'the package itself'}"
        for one in found
        if not (one.late or one.typed)
        and one.importer.partition(".")[0] != one.imported.partition(".")[0]
        and one.importer not in ENTRY_POINTS
        and layer(one.imported, layers) >= layer(one.importer, layers)
    ]


def cycles(found: Sequence[Import]) -> list[list[str]]:
    """Modules that import each other, however indirectly, in groups; imports for the type checker do not count."""
    graph = _graph([one for one in found if not one.typed])
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {tuple(sorted(other for other in reach[name] if name in reach.get(other, ()))) for name in graph}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _graph(found: Sequence[Import]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for one in found:
        graph.setdefault(one.importer, set()).add(one.imported)
    return graph


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


JOURNEY = """
import os
import sys
import threading
from pathlib import Path
package, step, folder = sys.argv[1:4]
os.chdir(folder)
files, functions, recording = set(), set(), []
def profile(frame, event, argument):
    name = frame.f_code.co_filename
    key = name, frame.f_code.co_qualname
    named = frame.f_code.co_flags & 1 and not key[1].endswith(">")  # not a class's body, comprehension or lambda
    if recording and event == "call" and named and name.startswith(package) and key not in functions:
        while frame and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(package)):
            frame = frame.f_back
        if not frame:  # not called by a module that is being imported
            files.add(name), functions.add(key)
sys.path.insert(0, str(Path(package).parent))
name = Path(package).name
def main(*arguments):
    assert not __import__(name + ".cli", fromlist=["main"]).main(list(arguments))
TRAIN = ["train", "--recipe", "tiny", "--train", "a.en", "a.de", "--valid", "a.en", "a.de", "--out", "run",
         "--device", "cpu"]
for setting in ("train.max_steps=2", "train.validate_every=1", "train.warmup_steps=1", "data.vocab_size=300"):
    TRAIN += ["--set", setting]
def serve():
    from functools import partial
    from starlette.testclient import TestClient
    from headwise.models.load import load_translator
    from headwise.serve.models import load_served_models
    from headwise.serve.server import ServerSettings, application
    models = load_served_models(["run"], [("en", "de")], partial(load_translator, device="cpu"), {}, True)
    client = TestClient(application(models, ServerSettings(), Path(folder)), base_url="http://127.0.0.1")
    with client:
        recording.append(True)
        text = {"text": "a dog", "source": "en", "target": "de"}
        assert client.post("/v1/translate", json=text).is_success
        recording.clear()
STEPS = {
    "train": lambda: main(*TRAIN),
    "load": lambda: __import__(name).load("run", "cpu"),
    "translate in C": lambda: main("translate", "run", "a.en", "-o", "out", "--device", "cpu"),
    "translate in torch": lambda: main(
        "translate", "run", "a.en", "-o", "out", "--device", "cpu", "--compute", "float16"
    ),
    "inspect": lambda: main("inspect", "run", "a dog", "--format", "text", "--device", "cpu"),
    "one request": serve,
}
if step != "one request":
    recording.append(True)
threading.setprofile(profile)
sys.setprofile(profile)
STEPS[step]()
sys.setprofile(None)
imported = sum(one == name or one.startswith(name + ".") for one in sys.modules)
print(f"\\n{len(files)} files, {len(functions)} functions executed; {imported} modules imported")
"""
JOURNEYS = ("train", "load", "translate in C", "translate in torch", "inspect", "one request")


def journeys(package: Path) -> Iterator[tuple[str, str]]:
    """What each journey executes and imports; a function that an import calls does not count."""
    with tempfile.TemporaryDirectory() as folder:
        for language, text in (("en", "a dog runs {} times\n"), ("de", "ein Hund rennt {} mal\n")):
            Path(folder, f"a.{language}").write_text("".join(text.format(n) for n in range(60)), encoding="utf-8")
        for step in JOURNEYS:
            command = [sys.executable, "-c", JOURNEY, str(package.resolve()), step, folder]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
            assert ran.returncode == 0, ran.stderr
            yield step, ran.stdout.strip().rpartition("\n")[2]


def figures(package: Path, run: bool) -> Iterator[tuple[str, object]]:
    """The rows of the table, each with its value."""
    trees = modules(package)
    found = imports(trees, package.name)
    kinds = subclasses(trees)
    if package == PACKAGE:
        yield "layers", len(LAYERS)
        yield "imports that point upwards", len(upward(found))
    groups = cycles([*found, *rows(trees, package.name)])
    yield "import cycles, with imports inside functions and rows of tables", (len(groups), [*map(len, groups)])
    needing = needing_torch(trees, found)
    yield "modules that need torch, and modules", (len(needing), len(trees))
    yield "imports of our own modules inside functions", sum(one.late and not one.typed for one in found)
    yield "... of modules that need torch: doors", len(doors(found, needing))
    named = [value for name, value in named_modules(trees, package.name) if name not in TABLES]
    yield "names of our modules in strings outside the tables", len(named)
    yield "subclasses of Model", (len(kinds), kinds)
    yield "classes of models with a `translate` of their own", defining(trees, "translate", kinds)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py"))
    yield "lines of Python", f"{lines:,}"
    if run:
        yield from journeys(package)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the structure of the package in figures")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="folder of the package")
    parser.add_argument("--run", action="store_true", help="also what the journeys import and execute")
    options = parser.parse_args()
    for row, value in figures(options.package.resolve(), options.run):
        print(f"{row}: {value}")
