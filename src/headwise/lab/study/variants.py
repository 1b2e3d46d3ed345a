"""Transformers that differ in one setting, trained as in `translation.py`; for claims about a part of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Plan, column, distinct, select_rows, series_by
from headwise.lab.study.statement import NotMeasured, Row
from headwise.lab.study.translation import GENERATED, Condition, measure, tried_rates

Variants = Mapping[str, tuple[str, ...]]  # names, and the settings that make them
EVERYTHING = 10**6  # words: one bucket for all lengths


def variant_conditions(plan: Plan, variants: Variants) -> list[Condition]:
    """The Transformer in each variant, on every corpus of the plan, with every learning rate."""
    return [
        replace(condition, ends=(EVERYTHING,))
        for changes in variants.values()
        for condition in tried_rates(plan, "transformer", changes)
    ]


def measure_variant(variants: Variants) -> Callable[[Condition, int], list[Row]]:
    """A measurement of BLEU that also tells the variant's name."""

    def named(condition: Condition, seed: int) -> list[Row]:
        name = next(name for name, changes in variants.items() if changes == tuple(condition.changes))
        return [{"variant": name, **row} for row in measure(condition, seed)]

    return named


def difference(corpus: str, first: str, second: str) -> Callable[[Sequence[Row]], float]:
    """BLEU of the first variant less that of the second."""

    def value(rows: Sequence[Row]) -> float:
        scores = [column(select_rows(rows, corpus=corpus, variant=name), "bleu") for name in (first, second)]
        if not all(scores):
            raise NotMeasured(f"{first} and {second} were not both measured on {corpus}")
        return sum(scores[0]) / len(scores[0]) - sum(scores[1]) / len(scores[1])

    return value


def variant_figure(rows: Sequence[Row], variants: Variants, name: str, caption: str) -> Figure:
    """BLEU of each variant by seed; a panel for each corpus."""
    panels = [
        Panel(
            "Generated language" if corpus == GENERATED else corpus.capitalize(),
            "seed",
            "BLEU",
            series_by(select_rows(rows, corpus=corpus), "variant", "seed", "bleu"),
        )
        for corpus in distinct(rows, "corpus")
    ]
    return Figure(name, caption, f"BLEU by seed of {', '.join(variants)}, on each corpus.", panels)
