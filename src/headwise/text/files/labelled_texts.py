"""Read files of labelled texts: `text TAB label` per line, or `text TAB text TAB label` for text pairs."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from headwise.errors import UserError, unknown
from headwise.text.files.corpus import Corpus, RawLines, read_lines
from headwise.text.files.sources import HF_PREFIX, count_of, display_name

Label = TypeVar("Label")
HEAD_LINES, FEWEST_LINES = 1000, 50  # lines that tell which column is the label
FEWEST_TEXTS = 0.2  # share of lines that must have texts of their own
FORMATS = {1: "write 'text TAB label' on every line", 2: "write 'text TAB text TAB label' on every line"}


def labelled_corpora(paths: Sequence[str]) -> list[Corpus]:
    """One corpus per file; `-` is standard input.

    >>> [corpus.paths for corpus in labelled_corpora(["a.tsv", "b.tsv.gz"])]
    [('a.tsv',), ('b.tsv.gz',)]
    """
    for path in paths:
        if path != "-" and (path.startswith(HF_PREFIX) or not path.removesuffix(".gz").endswith(".tsv")):
            raise UserError(f"{path}: labelled texts must be .tsv or .tsv.gz files; {FORMATS[1]}")
    return [Corpus((path,)) for path in paths]


def check_label_column(corpora: Sequence[Corpus]) -> None:
    """`UserError` if the first column of a file looks like the label, by its first thousand lines."""
    for corpus in (one for one in corpora if os.path.isfile(one.paths[0])):  # others can be read only once
        rows = [line.split("\t") for line in islice(read_lines(corpus.paths[0]), HEAD_LINES)]
        first, last = ({row[end].strip() for row in rows} for end in (0, -1))
        if len(rows) >= FEWEST_LINES and len(last) > max(2 * len(first), FEWEST_TEXTS * len(rows)):
            what = f"the first column has {count_of(len(first), 'value')}, the last {len(last):,}"
            raise UserError(f"{corpus}: {what}, so the label seems to be the first; {FORMATS[1]}")


def read_labelled(path: str, raw: RawLines | None = None) -> Iterator[tuple[str, str]]:
    """The texts and labels of a file; see `read_examples`."""
    return ((texts[0], label) for texts, label in read_examples(path, 1, raw))


def read_examples(
    path: str, n_texts: int, raw: RawLines | None = None, unlabelled: bool = False
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The one or two texts of each line, and the label without surrounding spaces; empty only if `unlabelled`.

    Raises:
        UserError: a line has a wrong number of tabs or an empty label; or as `read_lines`.
    """
    for number, line in enumerate(read_lines(path, raw=raw), start=1):
        *texts, label = line.split("\t")
        location = f"{display_name(path)}: line {number}"
        if len(texts) != n_texts:
            tabs = count_of(len(texts), "tab") if texts else "no tab"
            raise UserError(f"{location} has {tabs}; {FORMATS[n_texts]}")
        if not (label.strip() or unlabelled):
            raise UserError(f"{location} has an empty label; {FORMATS[n_texts]}, or remove the line")
        yield tuple(texts), label.strip()


def read_with(
    corpora: Sequence[Corpus], n_texts: int, read_label: Callable[[str, str], Label], unlabelled: bool = False
) -> list[tuple[tuple[str, ...], Label]]:
    """The texts of each line, and what `read_label` makes of the label and its location, "file: line n"."""
    return [
        (texts, read_label(label, f"{corpus}: line {number}"))
        for corpus in corpora
        for number, (texts, label) in enumerate(read_examples(corpus.paths[0], n_texts, None, unlabelled), start=1)
    ]


def several_labels(label: str, location: str, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """The labels of a text, separated by commas; `UserError` for one that is not `known`.

    >>> several_labels("wet, cold", "a.tsv: line 1"), several_labels("", "a.tsv: line 2")
    (('wet', 'cold'), ())
    """
    found = tuple(part.strip() for part in label.split(",") if part.strip())
    for one in found if known is not None else ():
        check_class(one, known or (), location)
    return found


def number_label(label: str, location: str) -> float:
    """The number of a text, for regression; `UserError` if it is none."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{location}: '{label}' is not a number, which a model of numbers needs as the last column")
    return number


def texts_per_line(corpora: Sequence[Corpus]) -> int:
    """The number of texts per line, 1 or 2, in the first line of the first file."""
    first = next(iter(read_lines(corpora[0].paths[0])))
    return 2 if first.count("\t") == 2 else 1


def count_labels(corpora: Sequence[Corpus], n_texts: int = 1) -> dict[str, int]:
    """The sorted labels of the training files with their counts; `UserError` if there is only one."""
    labels = (label for corpus in corpora for _, label in read_examples(corpus.paths[0], n_texts))
    return count_classes(labels, ", ".join(map(str, corpora)), "line")


def check_labels(corpora: Sequence[Corpus], labels: Sequence[str], n_texts: int = 1) -> None:
    """`UserError` for the first label that is not in `labels`."""
    for corpus in corpora:
        for number, (_, label) in enumerate(read_examples(corpus.paths[0], n_texts), start=1):
            check_class(label, labels, f"{corpus}: line {number}")


def count_classes(classes: Iterable[str], origin: str, item: str, kind: str = "label") -> dict[str, int]:
    """Sorted classes with their counts; `UserError` if there is only one. `item` is what has a class."""
    counts = Counter(classes)
    if len(counts) < 2:
        raise UserError(f"{origin}: every {item} has the {kind} '{next(iter(counts))}'; training needs two {kind}s")
    return dict(sorted(counts.items()))


def check_class(name: str, known: Sequence[str], location: str, kind: str = "label") -> None:
    """`UserError` for a class that is not in `known`."""
    if name not in known:
        raise UserError(f"{location}: {unknown(kind, name, known)}; it does not occur in training")
