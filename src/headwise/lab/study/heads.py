"""Claim: several heads are better than one of the same total width (Table 3, row A)."""

from collections.abc import Sequence

from headwise.evaluate.pages.figures import Figure
from headwise.lab.study.claim import Claim, Plan
from headwise.lab.study.statement import Row, Statement, over_seeds
from headwise.lab.study.translation import CORPORA, GENERATED, Condition
from headwise.lab.study.variants import Variants, difference, measure_variant, variant_conditions, variant_figure

SINGLE, MULTI = "1 head", "4 heads"
VARIANTS: Variants = {SINGLE: ("model.n_heads=1",), MULTI: ("model.n_heads=4",)}
MARGIN = 0.5  # BLEU; in the paper one head is 0.9 BLEU behind the best number of heads


def conditions(plan: Plan) -> list[Condition]:
    """The same width with one head and with four."""
    return variant_conditions(plan, VARIANTS)


measure = measure_variant(VARIANTS)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """BLEU by the number of heads."""
    caption = "The same width, parameters and training with one head and with four, for every seed."
    return [variant_figure(rows, VARIANTS, "heads", caption)]


STATEMENTS = tuple(
    Statement(
        f"{corpus}-multi",
        f"{corpus}: after the same short training, four heads are more than {MARGIN:g} BLEU ahead of one of the "
        "same total width.",
        "BLEU with four heads less BLEU with one",
        over_seeds(difference(corpus, MULTI, SINGLE)),
        above=MARGIN,
    )
    for corpus in (GENERATED, *CORPORA)
)

CLAIM = Claim(
    name="heads",
    sentence="Multi-head attention attends to several subspaces at once; a single head of the same width is worse.",
    source="Vaswani et al. 2017, arXiv:1706.03762, sections 3.2.2 and 6.2 (Table 3, row A)",
    method="The Transformer of the translation claim with one head and with four, at the same d_model and so with the "
    "same number of parameters; each keeps the best of three learning rates by validation.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    seeds={"toy": 2, "quick": 3, "full": 3},
    cost={"toy": 1.0, "quick": 18.0, "full": 1450.0},
    tuned=True,
    needs="the full study translates real corpora: name their folder with --data (see docs/concepts/study.md).",
)
