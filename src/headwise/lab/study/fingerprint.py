"""The sources that a claim's numbers depend on, as a hash; it changes when figures must be measured again.

It starts at the claim's `measure`, which several claims may share, and follows every name to its definition, in the
packages of `FOLLOWED`: the study, the networks, and the optimizer. A definition counts as its syntax tree without
docstrings, so neither comments nor layout nor the module that it is in nor code that the measurement does not mention
matter. The `config` that a network keeps does not matter either: only decoding reads it. Figures, statements and
thresholds are not part of it, because they are computed from stored rows. Not followed: data, trainer and decoding,
whose changes must keep results anyway; tests of the first updates hold them.
"""

import ast
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from headwise.lab.study.claim import Claim

PACKAGE = "headwise."
FOLLOWED = ("lab.study.", "core.", "config.network", "config.from_recipe", "pytorch.architectures.")
OTHERS = tuple(  # data, trainer and decoding
    f"core.{name}"
    for name in (
        *("batches", "loss", "search", "train", "translate"),
        *("extensions.muon", "extensions.sampling", "extensions.timestamps"),
    )
)

Symbol = tuple[str, str]  # module without the package's name, name at its top level


def fingerprint_of(claim: Claim) -> str:
    """Sixteen hexadecimal digits; of a module outside the package those of its name."""
    module = claim.measure.__module__
    if not module.startswith(PACKAGE):
        return hashlib.sha256(module.encode()).hexdigest()[:16]
    return _of_module(module.removeprefix(PACKAGE))


@cache
def _of_module(module: str) -> str:
    found = definitions((module, "measure"))
    text = "\n".join(sorted(f"{name}: {definition}" for (_, name), definition in found.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def definitions(start: Symbol) -> dict[Symbol, str]:
    """The normalised definitions that `start` depends on, itself included."""
    found: dict[Symbol, str] = {}
    waiting = [start]
    while waiting:
        module, name = symbol = _origin(waiting.pop())
        if symbol in found or not _is_followed(module):
            continue
        statements = _top_level(module).get(name, [])
        found[symbol] = "\n".join(_dump(statement) for statement in statements)
        waiting += [(module, used) for statement in statements for used in _names(statement)]
    return {symbol: text for symbol, text in found.items() if text}


def _is_followed(module: str) -> bool:
    return module.startswith(FOLLOWED) and module not in OTHERS


def _dump(node: Any) -> str:
    """The tree as text. `ast.dump` writes empty fields in some versions of Python only."""
    if isinstance(node, list):
        return "[" + ", ".join(_dump(part) for part in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
    shown = ", ".join(f"{name}={_dump(value)}" for name, value in fields if name not in ("ctx", "kind"))
    return f"{type(node).__name__}({shown})"


def _origin(symbol: Symbol) -> Symbol:
    """Where a name that a module imports is defined; the same symbol if it is not imported from the package."""
    seen: set[Symbol] = set()
    while symbol not in seen and _is_followed(symbol[0]) and symbol[1] in _imported(symbol[0]):
        seen.add(symbol)
        symbol = _imported(symbol[0])[symbol[1]]
    return symbol


@cache
def _tree(module: str) -> ast.Module:
    """The module's syntax tree without docstrings and without `network.config = ...`."""
    tree = ast.parse(_source(module))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not ((part is body[0] and _is_text(part)) or _keeps_config(part))]
            node.body = kept  # pyright: ignore[reportAttributeAccessIssue]
    return tree


def _source(module: str) -> str:
    """The text of a module; empty for a package."""
    *folders, name = module.split(".")
    file = resources.files("headwise").joinpath(*folders, f"{name}.py")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _keeps_config(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "network.config"


@cache
def _top_level(module: str) -> dict[str, list[ast.stmt]]:
    """The statements that define each name at the module's top level."""
    found: dict[str, list[ast.stmt]] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (name for target in targets for name in _names(target)):
                found.setdefault(name, []).append(node)
    return found


@cache
def _imported(module: str) -> dict[str, Symbol]:
    """The names that a module imports from modules of the package."""
    return {
        alias.asname or alias.name: (node.module.removeprefix(PACKAGE), alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE)
        for alias in node.names
    }


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
