"""Word links from counts, for supervising a head: a lexicon and the diagonal, after fast_align (Dyer et al. 2013).

    python benchmarks/lexical_aligner.py --source FILE --target FILE -o LINKS [--iterations 5]

Each target word comes from the empty word (probability 0.08) or from source word i with probability proportional to
exp(-4 |i/m - j/n|) t(target | source). t is estimated by expectation maximisation from a uniform start, and each word
is linked to its likeliest source. Unlike in fast_align, the tension of 4 is fixed and t has no prior.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import machine
import numpy as np

EMPTY = 0.08
TENSION = 4.0


@dataclass(frozen=True)
class Cells:
    """Every combination of a source and a target word of the corpus; source word 0 is the empty word."""

    entry: np.ndarray  # index into the lexicon, for each cell
    source: np.ndarray  # source word of each entry
    prior: np.ndarray
    position: np.ndarray  # in the source sentence; -1 for the empty word
    starts: np.ndarray  # first cell of each target word


def number(lines: list[list[str]], first: int) -> list[list[int]]:
    """Words as numbers, from `first`."""
    known: dict[str, int] = {}
    return [[known.setdefault(word, len(known) + first) for word in line] for line in lines]


def cells_of(sources: list[list[int]], targets: list[list[int]]) -> Cells:
    """All cells, target word by target word."""
    codes, priors, positions, sizes = [], [], [], []
    width = 1 + max((word for line in targets for word in line), default=0)
    for src, tgt in zip(sources, targets, strict=True):
        m, n = len(src), len(tgt)
        words = np.array([0, *src])
        near = np.exp(-TENSION * np.abs((np.arange(n)[:, None] + 0.5) / n - (np.arange(m) + 0.5) / m))
        share = (1 - EMPTY) * near / near.sum(1, keepdims=True) if m else np.zeros((n, 0))
        codes.append((words * width + np.array(tgt)[:, None]).ravel())
        priors.append(np.hstack([np.full((n, 1), EMPTY), share]).ravel())
        positions.append(np.tile(np.arange(-1, m), n))
        sizes += [m + 1] * n
    known, entry = np.unique(np.concatenate(codes), return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Cells(entry, known // width, np.concatenate(priors), np.concatenate(positions), starts)


def posteriors(cells: Cells, iterations: int) -> np.ndarray:
    """The probability that each cell is the origin of its target word."""
    t = np.ones(len(cells.source))
    sizes = np.diff(np.append(cells.starts, len(cells.entry)))
    for _ in range(iterations):
        weight = cells.prior * t[cells.entry]
        share = weight / np.repeat(np.add.reduceat(weight, cells.starts), sizes)
        counts = np.bincount(cells.entry, share, len(t))
        t = counts / np.bincount(cells.source, counts)[cells.source]
    return cells.prior * t[cells.entry]


def links(cells: Cells, weight: np.ndarray, targets: list[list[int]]) -> Iterator[str]:
    """A line of links `i-j` for each pair."""
    ends = np.append(cells.starts[1:], len(weight))
    best = [cells.position[a + int(np.argmax(weight[a:b]))] for a, b in zip(cells.starts, ends, strict=True)]
    done = 0
    for tgt in targets:
        yield " ".join(f"{i}-{j}" for j, i in enumerate(best[done : done + len(tgt)]) if i >= 0)
        done += len(tgt)


def main() -> None:
    """Read, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--source", "--target", "--output"):
        parser.add_argument(name, *(["-o"] if name == "--output" else []), type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=5)
    machine.add_quick_option(parser)  # has no effect here
    options = parser.parse_args()
    texts = [
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (options.source, options.target)
    ]
    words = [[line.split() for line in text] for text in texts]
    sources, targets = number(words[0], 1), number(words[1], 0)
    cells = cells_of(sources, targets)
    found = links(cells, posteriors(cells, options.iterations), targets)
    options.output.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


if __name__ == "__main__":
    main()
