"""The table of absolute figures on the page on speed, read from the results of `make bench`.

Each set of instructions has the columns of its newest file `bench_*.md` that was measured with two cores, so a run of
`make bench` on one machine renews those of that machine.
"""

import re
from pathlib import Path

MARKER = re.compile(r"\{\{\s*bench\s*\}\}")
OURS, PEER = "ours int8", "ctranslate2 int8"
COLD = "Cold start"
# What a row shows: heading of the section, contenders, column, and whether more is better.
ROWS = {
    "greedy, batches of 64, tokens/s": ("base, greedy, batches of 64", OURS, PEER, "sentences/s", True),
    "beam 4, batches of 32, tokens/s": ("base, beam 4, batches of 32", OURS, PEER, "sentences/s", True),
    "greedy, batches of 1, tokens/s": ("base, greedy, batches of 1", OURS, PEER, "sentences/s", True),
    "greedy, batches of 8, tokens/s": ("base, greedy, batches of 8", OURS, PEER, "sentences/s", True),
    "greedy, batches of 32, tokens/s": ("base, greedy, batches of 32", OURS, PEER, "sentences/s", True),
    "greedy, batches of 128, tokens/s": ("base, greedy, batches of 128", OURS, PEER, "sentences/s", True),
    "one sentence, one thread, milliseconds": (
        "base, greedy, one sentence at a time", f"{OURS}, 1 thread", f"{PEER}, 1 thread", "p50 ms", False,
    ),
    "beam 4, peak memory in MiB": ("base, beam 4, batches of 32", OURS, PEER, "peak MiB", False),
    "first translation, seconds": (COLD, OURS, PEER, "seconds until the first translation", False),
    "first translation, peak memory in MiB": (COLD, OURS, PEER, "peak MiB", False),
    "file of the model, MiB": (COLD, OURS, PEER, "file MiB", False),
}  # fmt: skip
Cells = dict[str, dict[str, str]]  # of a section's table: by contender, by column


def with_speed_table(markdown: str, folder: Path) -> str:
    """A page with the table in place of its marker."""
    return MARKER.sub(lambda _: speed_table(folder), markdown)


def speed_table(folder: Path) -> str:
    """Rows of measures; for each set of instructions Headwise, CTranslate2, and the ratio: more than 1 is better."""
    files = newest(folder)
    head = ["base model, int8"]
    for file in files.values():
        name, date = processor(file.read_text(encoding="utf-8")), file.stem[-10:]
        head += [f"[{name}, {date}](../../benchmarks/results/{file.name}): Headwise", "CTranslate2", "ratio"]
    lines = [head, ["---"] * len(head)]
    for row, wanted in ROWS.items():
        lines.append([row, *(cell for file in files.values() for cell in cells(sections(file), *wanted))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def newest(folder: Path) -> dict[str, Path]:
    """The newest file of two cores for each set of instructions."""
    files = sorted(folder.glob("bench_2-core-cpu*.md"), key=lambda path: path.stem[-10:])
    found = {processor(file.read_text(encoding="utf-8")).rpartition(", ")[2]: file for file in files}
    return dict(sorted(found.items()))


def processor(text: str) -> str:
    """The processor and its instructions, from the head of a file of results.

    >>> processor("# make bench\\n\\nAMD EPYC (Zen 4), 2 core(s), 2 thread(s), 23.5 GiB, AVX512, Linux 6\\n")
    'AMD EPYC (Zen 4), AVX512'
    """
    name, *_, instructions, _ = text.split("\n")[2].partition("; Python")[0].split(", ")
    return f"{name}, {instructions}"


def sections(file: Path) -> dict[str, Cells]:
    """The table of each section of a file of results."""
    parts = re.split(r"^### (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: table(body) for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def table(text: str) -> Cells:
    """The first table of a text.

    >>> table("| who | s |\\n| --- | --- |\\n| a | 1.5 (1-2) |\\n\\n| b |")
    {'a': {'who': 'a', 's': '1.5 (1-2)'}}
    """
    first = re.search(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE)
    head, _, *rows = [line.strip("| ").split(" | ") for line in first[0].splitlines()] if first else [[], []]
    return {row[0]: dict(zip(head, row, strict=False)) for row in rows}


def cells(found: dict[str, Cells], section: str, ours: str, theirs: str, column: str, more: bool) -> list[str]:
    """Both figures and their ratio, that of the turns where the file has it; dashes for what it lacks."""
    both = [found.get(section, {}).get(name, {}) for name in (ours, theirs)]
    if not all(column in row for row in both):
        return ["-"] * 3
    figures = [number(row[column]) for row in both]
    if column == "sentences/s":
        figures = [
            figure * number(row.get("tokens") or row["pieces"]) for figure, row in zip(figures, both, strict=True)
        ]
    within = both[1].get(f"{ours} is faster by") if column in ("sentences/s", "p50 ms") else None
    ratio = number(within) if within else figures[0] / figures[1] if more else figures[1] / figures[0]
    digits = 2 if max(figures) < 1 else 1 if max(figures) < 100 else 0
    return [*(f"{figure:,.{digits}f}" for figure in figures), f"**{ratio:.2f}**"]


def number(cell: str) -> float:
    """The first number of a cell.

    >>> number("1,234.5 (1,200-1,300)")
    1234.5
    """
    return float(cell.split()[0].replace(",", ""))
