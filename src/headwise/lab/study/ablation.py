"""Claim: residual connections and feed-forward layers are needed beside attention."""

from collections.abc import Sequence

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.characters import (
    NO_FEED_FORWARD,
    NO_RESIDUAL,
    TRANSFORMER,
    Condition,
    character_condition,
    measure,
)
from headwise.lab.study.claim import Claim, Plan, mean_of, series_by
from headwise.lab.study.statement import Row, Statement, over_seeds

MARGIN = 0.05  # nats per character


def conditions(plan: Plan) -> list[Condition]:
    """The whole Transformer, and without one of its parts."""
    shape = plan.pick((32, 2, 4), (64, 6, 1000))
    return [character_condition(plan, name, *shape) for name in (TRANSFORMER, NO_RESIDUAL, NO_FEED_FORWARD)]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Loss by seed."""
    lines = series_by(rows, "network", "seed", "loss")
    panel = Panel("Held-out text", "seed", "loss (nats per character)", lines, log_x=False)
    return [
        Figure("ablation", "The same number of parameters, with all parts and without one.", "Loss by seed.", [panel])
    ]


def worse(rows: Sequence[Row], without: str) -> float:
    """Loss without a part less that with all of them."""
    return mean_of(rows, "loss", network=without) - mean_of(rows, "loss", network=TRANSFORMER)


STATEMENTS = tuple(
    Statement(
        name,
        f"A Transformer of six layers with {without} predicts characters worse than a whole one of the same size, by "
        f"more than {MARGIN:g} nats.",
        "loss less that of the whole Transformer, in nats per character",
        over_seeds(lambda rows, without=without: worse(rows, without)),
        above=MARGIN,
    )
    for name, without in (("residual", NO_RESIDUAL), ("feed-forward", NO_FEED_FORWARD))
)

CLAIM = Claim(
    name="ablation",
    sentence="Attention alone is not enough: residual connections and feed-forward layers are needed.",
    source="Vaswani et al. 2017, arXiv:1706.03762, sections 3.1 and 3.3; Dong et al. 2021, arXiv:2103.03404",
    method="Character models of six layers with norms before the sub-layers. One has no residual connections, one no "
    "feed-forward layers, whose parameters go into a larger width. All have the same size within 5 %.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=120.0,
)
