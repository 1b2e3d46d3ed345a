"""Claim: the Transformer needs a warm-up of the learning rate; with norms before the sub-layers it needs none."""

from collections.abc import Sequence

from headwise.evaluate.pages.figures import Figure
from headwise.lab.study.claim import Claim, Plan
from headwise.lab.study.statement import Row, Statement, over_seeds
from headwise.lab.study.translation import CORPORA, GENERATED, Condition
from headwise.lab.study.variants import Variants, difference, measure_variant, variant_conditions, variant_figure

POST, POST_NONE, PRE, PRE_NONE = "post-norm", "post-norm, none", "pre-norm", "pre-norm, none"
NONE = "train.warmup_steps=1"
VARIANTS: Variants = {
    POST: (),
    POST_NONE: (NONE,),
    PRE: ("model.norm_position=pre",),
    PRE_NONE: ("model.norm_position=pre", NONE),
}
MARGIN = 1.0  # BLEU


def conditions(plan: Plan) -> list[Condition]:
    """The paper's post-norm and the later pre-norm, with the warm-up of the translation claim and without any."""
    quick = {name: VARIANTS[name] for name in (POST, POST_NONE)}
    return variant_conditions(plan, quick if plan.scale == "quick" else VARIANTS)


measure = measure_variant(VARIANTS)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """BLEU with warm-up and without."""
    caption = '"None" is without warm-up. Each variant keeps the best of three learning rates.'
    return [variant_figure(rows, VARIANTS, "warmup", caption)]


STATEMENTS = tuple(
    statement
    for corpus in (GENERATED, *CORPORA)
    for statement in (
        Statement(
            f"{corpus}-post",
            f"{corpus}: with norms after the sub-layers, as in the paper, warm-up gains more than {MARGIN:g} BLEU.",
            "BLEU with warm-up less BLEU without, each with its best learning rate",
            over_seeds(difference(corpus, POST, POST_NONE)),
            above=MARGIN,
        ),
        Statement(
            f"{corpus}-pre",
            f"{corpus}: with norms before the sub-layers, warm-up gains less than {MARGIN:g} BLEU.",
            "BLEU with warm-up less BLEU without, each with its best learning rate",
            over_seeds(difference(corpus, PRE, PRE_NONE)),
            below=MARGIN,
        ),
    )
)

CLAIM = Claim(
    name="warmup",
    sentence="The Transformer's learning rate needs a warm-up; with norms before the sub-layers it does not.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 5.3; Xiong et al. 2020, arXiv:2002.04745",
    method="The Transformer of the translation claim, with post-norm and pre-norm, with its warm-up (a tenth of the "
    "updates on the generated language, 500 on corpora) and with the full learning rate from the first update on.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    seeds={"toy": 2, "quick": 3, "full": 3},
    cost={"toy": 1.0, "quick": 18.0, "full": 1450.0},
    tuned=True,
    needs="the full study translates real corpora: name their folder with --data (see docs/concepts/study.md).",
)
