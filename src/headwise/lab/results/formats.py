"""A table of results as Markdown (readable in a terminal), LaTeX, or CSV with all digits."""

import csv
import io
import re
from collections.abc import Sequence

from headwise.evaluate.bleu import MULTI30K
from headwise.evaluate.significance import SAMPLES, SEED
from headwise.lab.results.table import Cell, ResultsColumn, ResultsTable
from headwise.text.files.sources import count_of

HEAD = ["model", "test", "metric", "runs", "mean", "deviation"]
HEAD += ["difference", "p_value", "baseline", "scores", "signature"]
ENOUGH_RUNS = 5  # of a system, for p to include the seed
SHORT = {MULTI30K: "BLEU tok. lc."}  # short names of metrics


def markdown(table: ResultsTable) -> str:
    """A row for each system, and notes below."""
    head, *rows = _texts(table)
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [" | ".join(_padded(line, widths)) for line in (head, rule, *rows)]
    return "".join([*(f"| {line} |\n" for line in lines), "\n", *(f"- {note}\n" for note in _notes(table))])


def latex(table: ResultsTable) -> str:
    """A `tabular` that needs no package, with the notes as comments."""
    head, *rows = [[_escaped(text) for text in line] for line in _texts(table)]
    lines = [f"{' & '.join(line)} \\\\" for line in (head, *rows)]
    body = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"]
    return "\n".join([*(f"% {note}" for note in _notes(table)), *body, r"\end{tabular}", ""])


def as_csv(table: ResultsTable) -> str:
    """A line for each system, test set and metric."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEAD)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell:
                writer.writerow([row.name, column.test, column.metric, *_numbers(cell, table), column.signature])
    return file.getvalue()


FORMATS = {"markdown": markdown, "csv": as_csv, "latex": latex}


def _numbers(cell: Cell, table: ResultsTable) -> list[object]:
    compared = [cell.difference, cell.p_value, table.baseline] if cell.p_value is not None else ["", "", ""]
    deviation = "" if cell.deviation is None else cell.deviation
    return [len(cell.scores), cell.mean, deviation, *compared, " ".join(map(str, cell.scores))]


def _texts(table: ResultsTable) -> list[list[str]]:
    """The texts of each line of a table."""
    columns = table.columns
    head = ["model", "runs", *(f"{c.test} {SHORT.get(c.metric, c.metric)}".strip() for c in columns)]
    rows = []
    for row in table.rows:
        name = f"{row.name} (baseline)" if row.name == table.baseline else row.name
        shown = [_shown(cell, column.digits) for column, cell in zip(columns, row.cells, strict=True)]
        rows.append([name, str(row.runs), *shown])
    return [head, *rows]


def _shown(cell: Cell | None, digits: int) -> str:
    """
    >>> _shown(Cell([38.0, 39.0], 0.0123, 1.5), 2), _shown(Cell([12000.0]), 0)
    ('38.50 ± 0.71 (+1.50, p = 0.012)', '12,000')
    """
    if cell is None:
        return ""
    text = f"{cell.mean:,.{digits}f}" + ("" if cell.deviation is None else f" ± {cell.deviation:,.{digits}f}")
    return text if cell.p_value is None else f"{text} ({cell.difference:+.{digits}f}, p = {cell.p_value:.3f})"


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *others = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]


def _notes(table: ResultsTable) -> list[str]:
    notes = list(dict.fromkeys(_signature(column, table.columns) for column in table.columns if column.signature))
    if any(cell and cell.deviation is not None for row in table.rows for cell in row.cells):
        notes.append("mean ± standard deviation over the runs of a model")
    if table.baseline:
        samples = f"{SAMPLES:,} samples of sentences and runs, seed {SEED}"
        notes.append(f"difference from {table.baseline}, and p by paired bootstrap: {samples}")
        if single := [row.name for row in table.rows if row.runs == 1]:
            notes.append(f"p is over sentences only for {', '.join(single)}, with a single run")
        if (fewest := min(row.runs for row in table.rows)) < ENOUGH_RUNS:
            few = f"with {count_of(fewest, 'run')} p is too small: the bootstrap knows no other runs"
            notes.append(f"{few}; train at least {ENOUGH_RUNS} seeds")
    return [*notes, *table.notes]


def _signature(column: ResultsColumn, columns: Sequence[ResultsColumn]) -> str:
    """A signature, with the test set only if signatures differ between test sets."""
    same = {other.signature for other in columns if other.metric == column.metric}
    where = f" of {column.test}" if len(same) > 1 else ""
    return f"{column.metric}{where}: {column.signature}"


SPECIAL = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _escaped(text: str) -> str:
    """
    >>> print(_escaped("small_2 ± 5% (-0.10, p = 0.010)"))
    small\\_2 $\\pm$ 5\\% ($-$0.10, $p$ = 0.010)
    """
    text = re.sub(r"[\\±~^]|[&%$#_{}]", lambda found: SPECIAL.get(found[0], f"\\{found[0]}"), text)
    return text.replace("(-", "($-$").replace(", p =", ", $p$ =")
