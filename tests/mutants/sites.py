"""Mutations of the package: where they can be made, which are chosen, and a tree that has all of them at once.

A mutation is written beside the original expression, `(changed if __mutant__(7) else original)`, so that one tree
serves all of them: `switch.mutant` decides at run time which is active. Lines keep their numbers. Left out is what runs
when a module is imported (decorators, defaults, tables), what only describes (annotations, `assert`), and f-strings.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("comparison", "boundary", "arithmetic", "removed statement", "swapped arguments")
OPPOSITE = {ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Is: ast.IsNot, ast.Lt: ast.GtE, ast.Gt: ast.LtE}
OPPOSITE |= {other: one for one, other in OPPOSITE.items()}
NEXT = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
OTHER |= {ast.Mod: ast.FloorDiv}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
STATEMENTS = (ast.Expr, ast.AugAssign, ast.Assign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
C_OPPOSITE = {" < ": " >= ", " > ": " <= ", " <= ": " > ", " >= ": " < ", " == ": " != ", " != ": " == "}
C_NEXT = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}
C_OTHER = {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * "}
PACKAGE = "src/headwise"
C = "C library"


@dataclass(frozen=True)
class Site:
    """A mutation. `at` is the range of characters that `changed` replaces in the file when it is active."""

    file: str
    line: int
    kind: str
    at: tuple[int, int]
    original: str
    changed: str
    statement: bool = False  # the whole statement is skipped

    @property
    def group(self) -> str:
        """The package of the file; the C library is one of its own."""
        parts = self.file.removeprefix(f"{PACKAGE}/").split("/")
        return C if self.file.endswith(".c") else parts[0].removesuffix(".py")


# --- Python


def python_sites(file: str, source: str) -> Iterator[Site]:
    """All mutations of a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def position(line: int, column: int) -> int:  # columns of `ast` are bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def site(kind: str, node: ast.expr | ast.stmt, changed: str, statement: bool = False) -> Site:
        begin, end = (
            position(node.lineno, node.col_offset),
            position(node.end_lineno or 0, node.end_col_offset or 0),
        )
        return Site(file, node.lineno, kind, (begin, end), source[begin:end], changed, statement)

    def text(node: ast.expr) -> str:
        begin = position(node.lineno, node.col_offset)
        return source[begin : position(node.end_lineno or 0, node.end_col_offset or 0)]

    for node in _computing(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                if type(op) in OPPOSITE:
                    yield site("comparison", node, f"{text(left)} {_symbol(OPPOSITE[type(op)])} {text(right)}")
                if type(op) in NEXT:
                    yield site("boundary", node, f"{text(left)} {_symbol(NEXT[type(op)])} {text(right)}")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OTHER:
                if not any(isinstance(side, TEXTS) or _is_text(side) for side in (left, right)):
                    yield site("arithmetic", node, f"({text(left)}) {_symbol(OTHER[type(op)])} ({text(right)})")
            case ast.Constant(value=value) if type(value) is int:
                yield site("boundary", node, str(value + 1))
            case ast.If(test=test):
                yield site("comparison", test, f"not ({text(test)})")
            case ast.Call(func=func, args=[first, second, *rest]) if text(func) not in ("min", "max", "isinstance"):
                if not any(isinstance(arg, ast.Starred) for arg in node.args) and ast.dump(first) != ast.dump(second):
                    more = [*map(text, rest), *(f"{k.arg}={text(k.value)}" if k.arg else f"**{text(k.value)}"
                                                for k in node.keywords)]  # fmt: skip
                    swapped = ", ".join([text(second), text(first), *more])
                    yield site("swapped arguments", node, f"{text(func)}({swapped})")
            case ast.Assign(targets=targets) if not all(
                isinstance(one, ast.Attribute | ast.Subscript) for one in targets
            ):
                pass
            case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
                pass
            case ast.stmt() if isinstance(node, STATEMENTS):
                yield site("removed statement", node, "", statement=True)


def _computing(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs when a function is called."""

    def walk(node: ast.AST, inside: bool) -> Iterator[ast.AST]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for child in node.body:
                    yield from walk(child, True)
            case ast.Assert() | ast.JoinedStr():
                return
            case ast.AnnAssign(value=value):
                if value:
                    yield from walk(value, inside)
            case ast.match_case():
                for child in node.body:
                    yield from walk(child, inside)
            case _:
                if inside:
                    yield node
                for child in ast.iter_child_nodes(node):
                    yield from walk(child, inside)

    yield from walk(tree, False)


def _symbol(operator: type[ast.AST]) -> str:
    shown = {ast.NotIn: "not in", ast.In: "in", ast.Is: "is", ast.IsNot: "is not", ast.Eq: "==", ast.NotEq: "!="}
    shown |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
    shown |= {ast.Div: "/", ast.FloorDiv: "//"}
    return shown[operator]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


# --- C


def c_sites(file: str, source: str) -> Iterator[Site]:
    """Mutations of conditions, assignments, results and calls that take one line."""
    begin = 0
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        code = line.split("/*")[0].split("//")[0].rstrip()
        offset, begin = begin, begin + len(line)
        if not line.startswith("    ") or code.endswith("\\") or code.lstrip().startswith(("#", "*")):
            continue
        for part in (
            re.fullmatch(r" +(?:\} else )?(?:if|while) \((.+)\) ?\{?", code),
            re.fullmatch(r" +for \([^;]*; ([^;]+);[^;]*\) ?\{?", code),
            re.fullmatch(r" +(?:[\w\[\]>.*+ -]+ )[-+*/|&]?= ([^;{}]+);", code),
            re.fullmatch(r" +return ([^;{}]+);", code),
        ):
            if part and _balanced(part[1]) and "," not in re.sub(r"\([^()]*\)", "", part[1]):
                for kind, table in (("comparison", C_OPPOSITE), ("boundary", C_NEXT), ("arithmetic", C_OTHER)):
                    for sign, other in table.items():
                        if part[1].count(sign) == 1:
                            at = (offset + part.start(1), offset + part.end(1))
                            yield Site(file, number, kind, at, part[1], part[1].replace(sign, other))
        if (call := re.fullmatch(r" +(\w+\([^{}]*\));", code)) and _balanced(call[1]) and "sizeof" not in code:
            at = (offset + call.start(1), offset + call.end(1))
            yield Site(file, number, "removed statement", at, call[1], "(void)0", statement=True)


def _balanced(text: str) -> bool:
    """Whether parentheses match."""
    depth = 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return depth == 0


# --- which ones


def all_sites(root: Path, c_sources: tuple[str, ...]) -> list[Site]:
    """Every possible mutation of the package."""
    found: list[Site] = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        found += python_sites(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    for name in c_sources:
        path = root / PACKAGE / "runtime" / "native" / name
        found += c_sites(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    return found


def chosen(sites: list[Site], number: int, seed: int) -> list[Site]:
    """A number of them over all packages, at least one of each, and of all kinds.

    A site's turn is a hash of what it says, not of where it stands, so edits elsewhere change no choice.
    """
    count: dict[tuple[str, str, str, str], int] = defaultdict(int)
    by_group: dict[str, dict[str, list[tuple[str, Site]]]] = defaultdict(lambda: defaultdict(list))
    for site in sites:
        same = (site.file, site.kind, site.original, site.changed)
        count[same] += 1
        turn = hashlib.sha256(repr((seed, *same, count[same])).encode()).hexdigest()
        by_group[site.group][site.kind].append((turn, site))
    # The library in C counts more than its size: most of what users run is there.
    weights = {group: 4 if group == C else 1 for group in by_group}
    sizes = {group: weights[group] * sum(map(len, kinds.values())) ** 0.5 for group, kinds in by_group.items()}
    share = (number - len(sizes)) / sum(sizes.values())
    exact = {group: 1 + share * size for group, size in sizes.items()}
    quota = {group: int(part) for group, part in exact.items()}
    for group in sorted(exact, key=lambda group: (quota[group] - exact[group], group))[: number - sum(quota.values())]:
        quota[group] += 1
    taken: list[Site] = []
    lines: set[tuple[str, int]] = set()
    for position, group in enumerate(sorted(by_group)):
        queues = [sorted(by_group[group][kind], key=lambda one: one[0]) for kind in KINDS if by_group[group][kind]]
        turn, left = position, quota[group]  # packages begin with different kinds
        while left and any(queues):
            queue = queues[turn % len(queues)]
            turn += 1
            while queue:
                site = queue.pop(0)[1]
                if (site.file, site.line) not in lines:  # ranges must not overlap
                    lines.add((site.file, site.line))
                    taken.append(site)
                    left -= 1
                    break
    return _apart(taken)


def _apart(sites: list[Site]) -> list[Site]:
    """Without those that lie in the range of an earlier one."""
    kept: list[Site] = []
    for site in sites:
        if not any(o.file == site.file and o.at[0] < site.at[1] and site.at[0] < o.at[1] for o in kept):
            kept.append(site)
    return kept


# --- the tree that has them all


def with_mutants(source: str, sites: list[tuple[int, Site]]) -> str:
    """A file with its numbered mutations."""
    in_c = sites[0][1].file.endswith(".c")
    for number, site in sorted(sites, key=lambda one: -one[1].at[0]):
        asks = f"headwise_mutant({number})" if in_c else f"__mutant__({number})"
        begin, end = site.at
        assert source[begin:end] == site.original, site
        if in_c:
            put = (
                f"if (!{asks}) {site.original}"
                if site.statement
                else f"({asks} ? ({site.changed}) : ({site.original}))"
            )
        elif site.statement:
            put = f"if not {asks}: {site.original}"
        else:
            put = f"(({site.changed}) if {asks} else ({site.original}))"
        source = source[:begin] + put + source[end:]
    if in_c:
        head, sign, rest = source.rpartition("#include ")
        line, _, rest = rest.partition("\n")
        return f"{head}{sign}{line}\nint headwise_mutant(int);\n{rest}"
    tree = ast.parse(source)
    last = None
    for node in tree.body:
        is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_doc and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        last = node
    assert last is not None, f"{sites[0][1].file} has no docstring"
    text = source.splitlines(keepends=True)
    text[(last.end_lineno or 1) - 1] = text[(last.end_lineno or 1) - 1].rstrip("\n") + IMPORT
    return "".join(text)


IMPORT = "; from mutant_switch import mutant as __mutant__\n"
