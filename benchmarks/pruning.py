"""Translation quality as attention heads are removed: the least important heads first, and in random order.

    python benchmarks/pruning.py MODEL --source FILE --target FILE --judge-source FILE --judge-target FILE
        [--shares 0 10 20 30 40 50 60 70] [--sentences 500] [--seeds 3]

Importance (Michel et al. 2019, arXiv:1905.10650) is measured on the `--judge` texts, BLEU on the others. Heads are
masked, which gives the same translations as pruning. Every attention layer keeps at least one head. Writes
`results/pruning_*` with a figure.
"""

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

import figures
import machine
import torch

import headwise
from headwise.evaluate.bleu import bleu_signature, corpus_scores
from headwise.pytorch.inspect.heads import Head, heads_by_layer
from headwise.pytorch.inspect.importance import least_important


def bleu_without(model: Any, heads: list[Head], sources: list[str], targets: list[str]) -> float:
    """BLEU of the model without these heads."""
    with model.mask_heads(heads_by_layer(heads)):
        hypotheses = [translation.text for translation in model.translate(sources)]
    return corpus_scores(hypotheses, targets, metrics=["BLEU"])["BLEU"].score


def random_order(heads: list[Head], seed: int) -> dict[Head, float]:
    """The heads of the importance list in random order."""
    generator = random.Random(seed)
    return {head: generator.random() for head in heads}


def measure(
    model: Any, orders: dict[str, dict[Head, float]], shares: list[int], sources: list[str], targets: list[str]
) -> dict[str, dict[int, float]]:
    """BLEU by order and percentage of removed heads, as far as heads can be removed."""
    found: dict[str, dict[int, float]] = {name: {} for name in orders}
    for share in shares:
        for name, order in orders.items():
            count = round(share / 100 * len(order))
            if count <= len(order) - len({head.layer_name for head in order}):
                heads = least_important(order, count)
                found[name][share] = bleu_without(model, heads, sources, targets)
                print(f"{share:3} % {name}: {found[name][share]:.2f}", flush=True)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name in ("source", "target", "judge-source", "judge-target"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--shares", type=int, nargs="+", default=machine.pick([0, 10, 20, 30, 40, 50, 60, 70], [0, 30]))
    parser.add_argument(
        "--sentences", type=int, default=machine.pick(500, 8), help="sentences for BLEU, and for importance"
    )
    parser.add_argument("--seeds", type=int, default=machine.pick(3, 1), help="random orders")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(1)
    model = headwise.load(options.model, "cpu")
    texts = [
        path.read_text(encoding="utf-8").split("\n")[: options.sentences]
        for path in (options.source, options.target, options.judge_source, options.judge_target)
    ]
    importance = model.head_importance(texts[2], texts[3])
    orders = {"least important first": importance}
    orders |= {f"random, seed {seed}": random_order(list(importance), seed) for seed in range(1, options.seeds + 1)}
    found = measure(model, orders, options.shares, texts[0], texts[1])

    ranked = found["least important first"]
    random_scores = {share: [found[name][share] for name in list(orders)[1:]] for share in ranked}
    header = ["heads removed, %", "BLEU, least important first", "random order: median", "lowest", "highest"]
    rows = [
        [
            share,
            f"{ranked[share]:.2f}",
            *(f"{average(random_scores[share]):.2f}" for average in (statistics.median, min, max)),
        ]
        for share in ranked
    ]
    summary = f"{len(texts[0])} sentences, {len(importance)} heads; `{bleu_signature()}`."
    section = f"{machine.table(header, rows)}\n\n{summary}"
    path = machine.result_path(f"pruning-{Path(options.model).name}")
    about, data = machine.description(cores), {"bleu": found, "importance": [[*h, v] for h, v in importance.items()]}
    machine.write_result(path, "Translation without some heads", about, [section], data)
    curves = {name: list(line.items()) for name, line in found.items()}
    figures.learning_curves(path, curves, "attention heads removed, %", "BLEU")
    print(f"{section}\nwritten to {path}.md")


if __name__ == "__main__":
    main()
