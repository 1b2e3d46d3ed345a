"""Rules for single modules, checked with the standard library's `ast` without running the code.

Each rule is a function from the name and source of a module to its violations. A name is dotted and without
the leading `headwise.`; the package itself is "". A rule is tested twice: on a line that breaks it, and on
the tree. `docs/project/decisions.md` says why a rule departs from the first design.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headwise"

SPLITTERS = ("lab.study.machine",)  # /proc/cpuinfo; recorded figures depend on its source
CONFIG_READERS = (
    "config.from_recipe",
    "core.train",  # whose `step` is that of an optimizer
    *(f"pytorch.architectures.{name}" for name in ("build", "hf_layouts", "registry", "transformer")),
)
NETWORKS = ("core", "pytorch.architectures")
CONFIG_BLIND = (
    *NETWORKS,
    "text",
    "evaluate",
    "view",
    *(f"pytorch.{name}" for name in ("data", "search", "training", "inspect")),
)
COMPUTATIONS = frozenset({"forward", "encode", "decode", "logits", "start_cache", "step"})
CONFIG_NAMES = frozenset({"config", "cfg", "_config", "_cfg", "model_config"})
UNPICKLERS = frozenset({"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"})
VAGUE_FILES = frozenset({"utils", "util", "helpers", "common", "misc"})
VAGUE_CLASS = re.compile(r"^_?(Base|Abstract|Standard)[A-Z]|Manager$|Base$")


def within(name: str, parent: str) -> bool:
    """Whether `name` is `parent` or lies inside it.

    >>> within("core.build", "core"), within("modelling", "network")
    (True, False)
    """
    return not parent or name == parent or name.startswith(parent + ".")


def top(module: str) -> str:
    return module.partition(".")[0]


# --- the rules


def imports_of(module: str, tree: ast.AST, is_package: bool = False) -> Iterator[str]:
    """Absolute dotted names of everything imported anywhere in the module, also inside functions."""
    here = ["headwise", *module.split(".")] if module else ["headwise"]
    package = here if is_package or not module else here[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parent = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{parent}.{alias.name}" for alias in node.names)


def config_readers(module: str, source: str, _: bool = False) -> list[str]:
    """Mentions of a section of [model] where modules are used rather than built."""
    if module in CONFIG_READERS or not any(within(module, name) for name in CONFIG_BLIND):
        return []
    code = ast.unparse(without_docstrings(ast.parse(source)))
    return (
        [f"{module} mentions {found[0]}"]
        if (found := re.search(r"\b(Model|Transformer|Recurrent)Config\b", code))
        else []
    )


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return tree


def config_in_forward(module: str, source: str, _: bool = False) -> list[str]:
    """Computations of a model that look at a config: the choice belongs into build.py, once."""
    if not any(within(module, name) for name in NETWORKS) or module in CONFIG_READERS:
        return []
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return [
        f"{module}.{function.name} reads a config (line {node.lineno})"
        for function in functions
        if function.name in COMPUTATIONS
        for node in ast.walk(function)
        if (isinstance(node, ast.Attribute) and node.attr in CONFIG_NAMES)
        or (isinstance(node, ast.Name) and node.id in CONFIG_NAMES)
    ]


def unicode_lines(module: str, source: str, _: bool = False) -> list[str]:
    """Calls of `str.splitlines`, which also cuts at U+0085, U+2028 and others, which no file format here takes for the
    end of a line. Write `split("\\n")`, or iterate over a file.
    """
    if module in SPLITTERS:
        return []
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    return [f"{module} splits at more than line feeds (line {n.lineno})" for n in nodes if n.attr == "splitlines"]


def optional_at_module_level(module: str, source: str, _: bool = False) -> list[str]:
    """Third-party imports that run with the module and are no hard dependency; for torch see `test_without_torch`."""
    names = {top(name) for node in at_module_level(ast.parse(source)) for name in imports_of(module, node)}
    known = sys.stdlib_module_names | hard_dependencies() | {"headwise", "torch"}
    return [f"{module} imports {name} at module level: do so inside the function" for name in sorted(names - known)]


def at_module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Import statements that run when the module is imported; `if TYPE_CHECKING` does not."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def hard_dependencies() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(re.split(r"[^\w-]", line)[0].replace("-", "_") for line in project["dependencies"])


def torch_free_core(module: str, source: str, _: bool = False) -> list[str]:
    """`config` and `errors` need the standard library only, tables of positions numpy, `core` torch and shapes too."""
    of_room = {"config": set(), "errors": set(), "core": {"torch", "jaxtyping", "numpy"}}.get(top(module))
    allowed = {"numpy"} if module == "config.positions" else of_room
    if allowed is None:
        return []
    names = {top(name) for name in imports_of(module, ast.parse(source))}
    foreign = names - sys.stdlib_module_names - {"headwise"} - allowed
    return [f"{module} may not import {name}" for name in sorted(foreign)]


def unpickling(module: str, source: str, _: bool = False) -> list[str]:
    """Ways to run code from a data file."""
    tree = ast.parse(source)
    imported = sorted({top(name) for name in imports_of(module, tree)} & UNPICKLERS)
    restricted = {"weights_only=True"}  # torch's reader of tensors alone, which runs nothing
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and not restricted & {ast.unparse(keyword) for keyword in node.keywords}
    }
    keywords = {
        node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and ast.unparse(node.value) == "True"
    }
    found = [*imported, *sorted(calls & {"torch.load", "torch.save"}), *sorted(keywords & {"allow_pickle"})]
    return [f"{module} uses {name}: safetensors and JSON only" for name in found]


def vague_names(module: str, source: str, _: bool = False) -> list[str]:
    """Names that say nothing: utils.py, BaseX, XManager."""
    file = [f"{module}: a file is named after what it does"] if module.rpartition(".")[2] in VAGUE_FILES else []
    classes = (node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return file + [f"{module}.{name}: a class is a noun of the paper" for name in classes if VAGUE_CLASS.search(name)]


def class_names(module: str, source: str) -> Iterator[str]:
    """The classes of a module that must be its own; C's structures are called as in C, and each claim of the study is a
    program for itself.
    """
    if module != "runtime.native.library" and not within(module, "lab.study"):
        yield from (node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef))


def aliases(module: str, source: str) -> Iterator[str]:
    """Names that are written as classes are, and given to something at the top of a module; variables of types mean
    what their function says.
    """
    given = (node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    targets = (target for node in given if "TypeVar" not in ast.unparse(node.value) for target in node.targets)
    if module != "runtime.native.library" and not within(module, "lab.study"):
        yield from (t.id for t in targets if isinstance(t, ast.Name) and re.fullmatch(r"[A-Z]+[a-z]\w*", t.id))


def shared_names(sources: Mapping[str, str]) -> list[str]:
    """Classes and aliases of types that share their name with what another module of the package calls so."""
    owners: dict[tuple[str, str], list[str]] = {}
    for module, source in sources.items():
        for name in (*class_names(module, source), *aliases(module, source)):
            owners.setdefault((top(module), name), []).append(module)
    return [f"{name}: {' and '.join(modules)}" for (_, name), modules in sorted(owners.items()) if len(modules) > 1]


# --- the rules on code that breaks them

Rule = Callable[[str, str, bool], list[str]]

BROKEN: list[tuple[Rule, str, str]] = [
    (config_readers, "core.layers", "from headwise.config.model import ModelConfig"),
    (config_readers, "pytorch.training.trainer", "def f(model: 'config.ModelConfig'): ..."),
    (config_readers, "pytorch.architectures.rnn", "from headwise import config\nconfig.TransformerConfig()"),
    (config_in_forward, "core.layers", "class A:\n  def forward(self, x):\n    return self.config.n_heads"),
    (config_in_forward, "core.layers", "class A:\n  def encode(self, x, cfg):\n    return cfg.n_heads"),
    (config_in_forward, "pytorch.architectures.rnn", "class A:\n  def decode(self, x):\n    return self.cfg"),
    (unicode_lines, "text.files.corpus", "lines = text.splitlines()"),
    (optional_at_module_level, "lab.demo.dates", "import babel.dates"),
    (optional_at_module_level, "view.plot", "from matplotlib import pyplot"),
    (
        optional_at_module_level,
        "text.files.corpus",
        "try:\n    import datasets\nexcept ImportError:\n    datasets = None",
    ),
    (optional_at_module_level, "text.files.corpus", "class A:\n    import datasets"),
    (torch_free_core, "config", "def late():\n    import torch"),
    (torch_free_core, "core.layers", "import safetensors"),
    (unpickling, "pytorch.training.checkpoint", "def late():\n    import pickle"),
    (unpickling, "pytorch.training.checkpoint", "state = torch.load(path)"),
    (unpickling, "pytorch.checkpoint.published", "state = torch.load(path, weights_only=False)"),
    (unpickling, "text.files.corpus", "np.load(path, allow_pickle=True)"),
    (vague_names, "text.utils", ""),
    (vague_names, "utils", ""),
    (vague_names, "core.layers", "class BaseLayer: ..."),
    (vague_names, "pytorch.training.checkpoint", "class CheckpointManager: ..."),
]

SOUND: list[tuple[Rule, str, str]] = [
    (config_readers, "pytorch.architectures.build", "from headwise.config.model import ModelConfig"),
    (
        config_readers,
        "core.layers",
        "'''Built from a ModelConfig.'''\nclass A:\n  '''ModelConfig says how.'''",
    ),
    (
        config_in_forward,
        "core.layers",
        "class A:\n  def __init__(self, config): self.n_heads = config.n_heads",
    ),
    (unicode_lines, "text.files.corpus", "'''Not `splitlines`.'''\nlines = text.split('\\n')"),
    (optional_at_module_level, "lab.demo.dates", "def late():\n    import babel.dates"),
    (
        optional_at_module_level,
        "lab.demo.dates",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import babel",
    ),
    (
        optional_at_module_level,
        "text.files.corpus",
        "import json\nimport numpy\nimport headwise.errors\nfrom . import batch",
    ),
    (
        torch_free_core,
        "core.layers",
        "import math\nfrom jaxtyping import Float\nfrom torch import nn\nfrom . import x",
    ),
    (
        unpickling,
        "pytorch.training.checkpoint",
        "from safetensors.torch import load_file\nnp.load(path, allow_pickle=False)",
    ),
    (vague_names, "core.layers", "class Baseline: ...\nclass Database: ..."),
    (unpickling, "pytorch.checkpoint.published", "state = torch.load(path, weights_only=True)"),
]


@pytest.mark.parametrize(("rule", "module", "source"), BROKEN)
def test_rule_finds_what_breaks_it(rule: Rule, module: str, source: str) -> None:
    assert rule(module, source, False)


@pytest.mark.parametrize(("rule", "module", "source"), SOUND)
def test_rule_lets_sound_code_pass(rule: Rule, module: str, source: str) -> None:
    assert rule(module, source, False) == []


def test_relative_imports_of_a_package_start_at_itself() -> None:
    assert list(imports_of("core", ast.parse("from . import x"), is_package=True)) == ["headwise.core.x"]
    assert list(imports_of("core.a", ast.parse("from . import x"))) == ["headwise.core.x"]


# --- the rules on the tree


def modules() -> Iterator[tuple[str, str, bool]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        is_package = path.stem == "__init__"
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if is_package else parts), path.read_text(encoding="utf-8"), is_package


@pytest.mark.parametrize("rule", sorted({rule for rule, _, _ in BROKEN}, key=lambda rule: rule.__name__))
def test_whole_tree(rule: Rule) -> None:
    assert [violation for module in modules() for violation in rule(*module)] == []


def test_a_name_means_one_class_in_a_package() -> None:
    assert shared_names({name: source for name, source, _ in modules()}) == []
    twice = {
        "a.x": "class Layout: ...",
        "a.y": "class Layout: ...",
        "a.z": "Layouts = 1\nStep = int",
        "a.u": "Step = float\nItem = TypeVar('Item')",
        "a.v": "Item = TypeVar('Item')",
        "b.x": "class Layout: ...",
    }
    assert shared_names(twice) == ["Layout: a.x and a.y", "Step: a.z and a.u"]
    assert shared_names({"runtime.native.a": "class Layer: ...", "runtime.native.library": "class Layer: ..."}) == []


def test_tree_is_not_empty() -> None:
    assert {"", "cli", "config", "errors", "core.build"} <= {name for name, _, _ in modules()}


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("import headwise", id="import"),
        pytest.param("import headwise.cli\nsys.argv = ['headwise', '--help']\nheadwise.cli.main()", id="help"),
    ],
)
def test_start_does_without_torch(start: str) -> None:
    """A newcomer's first command answers at once: importing torch alone takes seconds."""
    code = f"import sys\ntry:\n  {start.replace(chr(10), chr(10) + '  ')}\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'numpy', 'tokenizers', 'sacrebleu'} & set(sys.modules)), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (0, "[]"), ran.stderr
