"""Claims about parts of the Transformer: the trainings of `translators.py` with one setting changed."""

from collections.abc import Callable, Mapping, Sequence

from headwise.evaluate.pages.figures import Figure
from headwise.lab.study.claim import Claim, Plan, select_rows
from headwise.lab.study.statement import Row, Statement, over_seeds
from headwise.lab.study.translation import panel_by_length
from headwise.lab.study.translators import ALL, NEEDS, Condition, lead, measure, on_corpus

Variants = Mapping[str, tuple[str, ...]]  # names, and the settings that make them
HEADS: Variants = {"1 head": ("model.n_heads=1",), "4 heads": (), "8 heads": ("model.n_heads=8",)}
AT_ONCE, PRE = "train.warmup_steps=1", "model.norm_position=pre"
WARMUP: Variants = {
    "post-norm": (),
    "post-norm, no warm-up": (AT_ONCE,),
    "pre-norm": (PRE,),
    "pre-norm, no warm-up": (PRE, AT_ONCE),
}
REGULARISATION: Variants = {
    "dropout 0.1": (),
    "no dropout": ("model.dropout=0.0",),
    "dropout 0.3": ("model.dropout=0.3",),
    "no label smoothing": ("train.label_smoothing=0.0",),
}
MARGIN = 0.5  # BLEU; in the paper one head is 0.9 BLEU behind the best number of heads
EFFECT = "BLEU of the first less BLEU of the second, each with its best learning rate"


def better(first: str, second: str) -> Callable[[Sequence[Row]], float]:
    """BLEU of the first variant less that of the second; if that has learned nothing, the lead is at least as large."""
    return lambda rows: lead(*(select_rows(rows, variant=name, bucket=ALL) for name in (first, second)), both=False)


def variant_claim(
    name: str, sentence: str, source: str, method: str, variants: Variants, statements: tuple[Statement, ...]
) -> Claim:
    """A claim that compares variants of the Transformer."""
    names = {changes: name for name, changes in variants.items()}

    def conditions(plan: Plan) -> list[Condition]:
        return [condition for changes in names for condition in on_corpus(plan, "transformer", changes)]

    def view(rows: list[Row]) -> list[Row]:
        return [{**row, "variant": names[tuple(row["changes"])]} for row in rows]

    def figures(rows: Sequence[Row]) -> list[Figure]:
        panel = panel_by_length(rows, "variant")
        return [Figure(name, method, f"Line chart of BLEU against source length: {', '.join(variants)}.", [panel])]

    return Claim(
        name, sentence, source, method, conditions, measure, figures, statements, 300.0, needs=NEEDS, view=view
    )


CLAIM_HEADS = variant_claim(
    "heads",
    "Multi-head attention attends to several subspaces at once; a single head of the same width is worse.",
    "Vaswani et al. 2017, arXiv:1706.03762, sections 3.2.2 and 6.2 (Table 3, row A)",
    "The Transformer of the translation claim with one, four and eight heads of the same total width, so with as many "
    "parameters. It is trained as briefly as there: a lead may be one of speed of learning.",
    HEADS,
    (
        Statement(
            "multi",
            f"After the same training, four heads translate better than one, by more than {MARGIN:g} BLEU.",
            EFFECT,
            over_seeds(better("4 heads", "1 head")),
            above=MARGIN,
            primary=True,
        ),
        Statement(
            "more",
            f"After the same training, eight heads translate better than four, by more than {MARGIN:g} BLEU.",
            EFFECT,
            over_seeds(better("8 heads", "4 heads")),
            above=MARGIN,
        ),
    ),
)
CLAIM_WARMUP = variant_claim(
    "warmup",
    "The Transformer's learning rate needs a warm-up; with norms before the sub-layers it does not.",
    "Vaswani et al. 2017, arXiv:1706.03762, section 5.3; Xiong et al. 2020, arXiv:2002.04745",
    "The Transformer of the translation claim, with post-norm and pre-norm, with a tenth of the updates as warm-up and "
    "without it, with the full learning rate from the first update on.",
    WARMUP,
    (
        Statement(
            "post",
            "With norms after the sub-layers, as in the paper, warm-up gains more than 1 BLEU.",
            EFFECT,
            over_seeds(better("post-norm", "post-norm, no warm-up")),
            above=1.0,
            primary=True,
        ),
        Statement(
            "pre",
            "With norms before the sub-layers, warm-up gains less than 1 BLEU.",
            EFFECT,
            over_seeds(better("pre-norm", "pre-norm, no warm-up")),
            below=1.0,
        ),
    ),
)
CLAIM_REGULARISATION = variant_claim(
    "regularisation",
    "Dropout and label smoothing make the Transformer translate better.",
    "Vaswani et al. 2017, arXiv:1706.03762, section 5.4 and Table 3, row D",
    "The Transformer of the translation claim, which has dropout 0.1 and label smoothing 0.1, with more dropout, "
    "without it, and without label smoothing. In so short a training hardly anything is learned by heart.",
    REGULARISATION,
    (
        Statement(
            "dropout",
            f"With dropout 0.1 it translates better than without dropout, by more than {MARGIN:g} BLEU.",
            EFFECT,
            over_seeds(better("dropout 0.1", "no dropout")),
            above=MARGIN,
        ),
        Statement(
            "more-dropout",
            f"With dropout 0.3 it translates better than with 0.1, by more than {MARGIN:g} BLEU.",
            EFFECT,
            over_seeds(better("dropout 0.3", "dropout 0.1")),
            above=MARGIN,
        ),
        Statement(
            "smoothing",
            f"With label smoothing 0.1 it translates better than without, by more than {MARGIN:g} BLEU.",
            EFFECT,
            over_seeds(better("dropout 0.1", "no label smoothing")),
            above=MARGIN,
        ),
    ),
)
