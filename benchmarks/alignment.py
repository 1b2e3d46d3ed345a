"""Word alignment of a trained model compared with links by human annotators and with other aligners.

    python benchmarks/alignment.py MODEL --source FILE --target FILE --gold FILE [--dev-source FILE --dev-target FILE
        --dev-gold FILE] [--reverse MODEL] [--links NAME=FILE ...] [--attribution]

The best head is chosen on the development pairs. Without them it is chosen on each half of the pairs for the other
half, so that no pair is used for choosing its own head. Layer means and the default head need no choice. `--links`
scores the files of other aligners (fast_align, GIZA++) on the same pairs. `--attribution` adds integrated gradients,
about a second per pair: each target word is linked to the source word that raised its probability most. Writes
`results/alignment_*`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import torch

import headwise
from headwise.evaluate.alignment import AlignmentScore, score_alignment
from headwise.text.files.links import GoldLinks, Links, check_links, read_gold, read_links
from headwise.view.alignment import AlignmentHead, alignment_heads

Pairs = tuple[list[str], list[str], list[GoldLinks]]


def read(source: Path, target: Path, gold: Path) -> Pairs:
    """Texts and their gold links."""
    src, tgt = (path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in (source, target))
    links = read_gold(str(gold))
    check_links(str(gold), [pair.possible for pair in links], src, tgt)
    return src, tgt, links


def halves(pairs: Pairs) -> list[Pairs]:
    """The pairs with even and with odd numbers."""
    return [tuple(column[first::2] for column in pairs) for first in (0, 1)]  # type: ignore[misc]


def best_head(model: Any, pairs: Pairs) -> AlignmentHead:
    """The single head with the lowest error rate."""
    ranked = model.rank_heads(*pairs)
    return next(head for head in ranked if head.head is not None)


def aligned(model: Any, pairs: Pairs, head: AlignmentHead | None = None, reverse: Any = None) -> list[Links]:
    """The model's links."""
    return model.align(pairs[0], pairs[1], head=head, reverse=reverse)


def by_halves(model: Any, pairs: Pairs) -> tuple[list[Links], str]:
    """The links of every pair by the best head of the other half."""
    one, other = halves(pairs)
    heads = best_head(model, other), best_head(model, one)
    links: list[Links] = [frozenset()] * len(pairs[0])
    for first, (half, head) in enumerate(zip((one, other), heads, strict=True)):
        links[first::2] = aligned(model, half, head)
    return links, " / ".join(map(str, dict.fromkeys(heads)))


def diagonal(pairs: Pairs) -> list[Links]:
    """Links target word j of n to the source word at the same relative position: a baseline without a model."""
    return [
        frozenset((min(int((j + 0.5) * m / n), m - 1), j) for j in range(n) if m)
        for m, n in ((len(src.split()), len(tgt.split())) for src, tgt in zip(pairs[0], pairs[1], strict=True))
    ]


def attributed(model: Any, pairs: Pairs, steps: int) -> list[Links]:
    """Links by integrated gradients."""
    found = []
    for src, tgt in zip(pairs[0], pairs[1], strict=True):
        words = model.attribute(src, tgt, steps=steps).words
        found.append(frozenset((int(i), j) for j, i in enumerate(words.argmax(1))))
    return found


def row(name: str, score: AlignmentScore, remark: str = "") -> list[object]:
    """A row of the table."""
    return [name, f"{score.aer:.1f}", f"{score.precision:.1f}", f"{score.recall:.1f}", score.links, remark]


def measure(model: Any, pairs: Pairs, dev: Pairs | None, reverse: Any) -> list[list[object]]:
    """The rows from the model's attention."""
    gold = pairs[2]
    if dev:
        head = best_head(model, dev)
        chosen, remark = aligned(model, pairs, head), f"{head}; chosen on the development pairs"
    else:
        chosen, remark = by_halves(model, pairs)
        remark += "; chosen on the other half"
    rows = [row("best head", score_alignment(chosen, gold), remark)]
    means = [head for head in alignment_heads(model.inspector().heads["cross"]) if head.head is None]
    rows += [row("mean of a layer", score_alignment(aligned(model, pairs, head), gold), str(head)) for head in means]
    usual = model.alignment_head
    supervised = bool(getattr(model.config.train, "alignment_weight", 0))
    name = "supervised head" if supervised else "as in `headwise align`"
    rows.append(row(name, score_alignment(aligned(model, pairs), gold), str(usual)))
    if reverse:
        both = score_alignment(aligned(model, pairs, reverse=reverse), gold)
        rows.append(row("the same, both directions", both, "grow-diag"))
    return rows


def others(pairs: Pairs, named: Sequence[str]) -> list[list[object]]:
    """The rows of links from files."""
    rows = []
    for name, _, path in (item.partition("=") for item in named):
        links = read_links(path)
        check_links(path, links, pairs[0], pairs[1])
        rows.append(row(name, score_alignment(links, pairs[2]), Path(path).name))
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name in ("source", "target", "gold"):
        parser.add_argument(f"--{name}", type=Path, required=True)
        parser.add_argument(f"--dev-{name}", type=Path)
    parser.add_argument("--reverse", help="model of the reverse direction")
    parser.add_argument("--links", nargs="+", default=[], metavar="NAME=FILE", help="links of other aligners")
    parser.add_argument("--attribution", action="store_true", help="also use integrated gradients")
    parser.add_argument("--steps", type=int, default=32, help="steps of integrated gradients (default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(1)
    model = headwise.load(options.model, "cpu")
    reverse = headwise.load(options.reverse, "cpu") if options.reverse else None
    pairs = read(options.source, options.target, options.gold)
    dev = read(options.dev_source, options.dev_target, options.dev_gold) if options.dev_gold else None
    rows = [row("diagonal", score_alignment(diagonal(pairs), pairs[2]), "no model")]
    started = machine.now()
    rows += measure(model, pairs, dev, reverse)
    seconds = machine.now() - started
    if options.attribution:
        rows.append(row("gradients", score_alignment(attributed(model, pairs, options.steps), pairs[2]), "integrated"))
    rows += others(pairs, options.links)
    header = ["links of", "AER %", "precision %", "recall %", "links", ""]
    sure = sum(len(gold.sure) for gold in pairs[2])
    summary = f"{len(pairs[0])} pairs, {sure:,} sure links; all rows from attention took {seconds:.1f} s."
    section = f"{machine.table(header, rows)}\n\n{summary}"
    print(section)
    path = machine.result_path(f"alignment-{Path(options.model).name}")
    about = machine.description(cores)
    machine.write_result(path, "Word alignment from attention", about, [section], {"rows": [header, *rows]})
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
