"""Claim: a network that was pre-trained on other text learns more from little text."""

from collections.abc import Sequence
from dataclasses import replace

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.characters import TRANSFORMER, Condition, character_condition, measure
from headwise.lab.study.claim import Claim, Plan, mean_of, select_rows, series_by
from headwise.lab.study.statement import Row, Statement, over_seeds

FRESH, PRETRAINED = "fresh", "pre-trained"
LITTLE, MUCH = 20_000, 200_000  # characters
MARGIN = 0.05  # nats per character


def conditions(plan: Plan) -> list[Condition]:
    """Fresh and pre-trained, with little text and with ten times as much."""
    whole = character_condition(plan, TRANSFORMER, *plan.pick((8, 1, 4), (64, 2, 500)))
    return [
        replace(whole, pretraining=updates, characters=size)
        for size in (LITTLE, MUCH)
        for updates in (0, plan.pick(2, 2000))
    ]


def named(rows: list[Row]) -> list[Row]:
    """The rows with the name of their beginning."""
    return [{**row, "variant": PRETRAINED if row["pretraining"] else FRESH} for row in rows]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Loss by the size of the text."""
    lines = series_by(rows, "variant", "characters", "loss")
    panel = Panel("Held-out text", "characters of the training text", "loss (nats per character)", lines)
    caption = "Both were trained with as many updates on the text; one had read another text before."
    return [Figure("transfer", caption, "Loss by size of the text, fresh and pre-trained.", [panel])]


def gain(rows: Sequence[Row], characters: int) -> float:
    """Loss of the fresh network less that of the pre-trained one."""
    own = select_rows(rows, characters=characters)
    return mean_of(own, "loss", variant=FRESH) - mean_of(own, "loss", variant=PRETRAINED)


STATEMENTS = (
    Statement(
        "gains",
        f"With {LITTLE:,} characters to learn from, a network that has read another text before predicts better than a "
        f"fresh one, by more than {MARGIN:g} nats.",
        "loss of the fresh network less that of the pre-trained one, in nats per character",
        over_seeds(lambda rows: gain(rows, LITTLE)),
        above=MARGIN,
    ),
    Statement(
        "less",
        "The gain is larger with little text than with ten times as much.",
        "gain with little text less gain with much, in nats per character",
        over_seeds(lambda rows: gain(rows, LITTLE) - gain(rows, MUCH)),
        above=0.0,
    ),
)

CLAIM = Claim(
    name="transfer",
    sentence="What a network learns from one text helps it with another of which there is little.",
    source="Howard and Ruder 2018, arXiv:1801.06146; Radford et al. 2018",
    method="A character model is trained on the beginning of a text, fresh or after 2,000 updates on another text "
    "(Wikipedia before Shakespeare). Both have as many updates on the text, and each its best learning rate.",
    conditions=conditions,
    measure=measure,
    view=named,
    figures=figures,
    statements=STATEMENTS,
    cost=80.0,
)
