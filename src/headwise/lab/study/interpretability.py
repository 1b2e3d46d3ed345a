"""Claim: attention is interpretable. Does it show which source word a target word was translated from?"""

from collections.abc import Callable, Sequence

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, mean_of, select_rows, series_by
from headwise.lab.study.statement import NotMeasured, Row, Statement, over_seeds
from headwise.lab.study.translators import (
    ALL,
    CORPUS,
    GENERATED,
    NEEDS,
    Condition,
    check_learned,
    measure,
    on_corpus,
    on_generated,
)

NETWORKS = ("bahdanau", "transformer")


def conditions(plan: Plan) -> list[Condition]:
    """Two networks on the generated language, and those of the translation claim."""
    corpus = [condition for name in NETWORKS for condition in on_corpus(plan, name)] if plan.scale == "full" else []
    return [*(on_generated(plan, name) for name in NETWORKS), *corpus]


def attending(rows: list[Row]) -> list[Row]:
    """A row for each training that did not end early."""
    return [row for row in rows if row["bucket"] == ALL and "deletion" in row]


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Error rates, and costs of deletions, of both networks."""
    known = select_rows(rows, corpus=GENERATED)
    panels = [
        Panel(
            "Generated language: links",
            "seed",
            "alignment error rate (share)",
            series_by(known, "network", "seed", "error"),
            log_x=False,
            levels={"diagonal": known[0]["diagonal_error"]},
        )
    ] * bool(known)
    panels += [
        Panel(
            f"{corpus.capitalize()}: deletion",
            "seed",
            "loss (nats per target word)",
            series_by(select_rows(rows, corpus=corpus), "network", "seed", "deletion"),
            log_x=False,
        )
        for corpus in distinct(rows, "corpus")
    ]
    return [
        Figure(
            "interpretability",
            "Links: the error of links read from the best head, chosen on other sentences; the line is the diagonal. "
            "Deletion: how much more probability a target word loses if its most attended source word is deleted than "
            "if another one is.",
            "Charts of alignment error and of the cost of deletions for two networks.",
            panels,
        )
    ]


def of(corpus: str, network: str, value: Callable[[Sequence[Row]], float]) -> Callable[[Sequence[Row]], float]:
    """The value of the rows of one network on one corpus; `AtFloor` if it has learned nothing with one of the seeds."""

    def chosen(rows: Sequence[Row]) -> float:
        if not (own := select_rows(rows, corpus=corpus, network=network)):
            raise NotMeasured(f"{network} was not measured on {corpus}")
        check_learned(own)
        return value(own)

    return chosen


def ahead(rows: Sequence[Row]) -> float:
    """Alignment error rate of the diagonal less that of attention."""
    return mean_of(rows, "diagonal_error") - mean_of(rows, "error")


STATEMENTS = tuple(
    statement
    for network in NETWORKS
    for statement in (
        Statement(
            f"{network}-diagonal",
            f"On the generated language, the attention of {network} links words better than the diagonal does.",
            "alignment error rate of the diagonal less that of attention",
            over_seeds(of(GENERATED, network, ahead)),
            above=0.0,
        ),
        Statement(
            f"{network}-most",
            f"On the generated language, most links of {network}'s best head are right.",
            "alignment error rate",
            over_seeds(of(GENERATED, network, lambda rows: mean_of(rows, "error"))),
            below=0.5,
        ),
        *(
            Statement(
                f"{network}-deletion-{corpus}",
                f"{corpus.capitalize()}: deleting the word that {network} attends to most costs more than deleting "
                "another.",
                "loss in log-probability of the target word, attended less other (nats)",
                over_seeds(of(corpus, network, lambda rows: mean_of(rows, "deletion"))),
                above=0.0,
                primary=(corpus, network) == (CORPUS, "transformer"),
            )
            for corpus in (GENERATED, CORPUS)
        ),
    )
)

CLAIM = Claim(
    name="interpretability",
    sentence="Attention is interpretable: it shows which source word a target word was translated from.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, section 5.2.1; Vaswani et al. 2017, arXiv:1706.03762, section 4; "
    "deletion as in Serrano and Smith 2019, arXiv:1906.03731",
    method="The cross-attention of a translator links every target word to a source word. On a generated language, "
    "whose links are known, the head is chosen on the first sentences and its error measured on others. Then the "
    "linked source word, or another one, is deleted, and the target word's loss in log-probability measured.",
    conditions=conditions,
    measure=measure,
    view=attending,
    figures=figures,
    statements=STATEMENTS,
    cost=200.0,
    needs=NEEDS,
)
