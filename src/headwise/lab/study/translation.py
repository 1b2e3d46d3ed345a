"""Claim: attention lifted translation, most of all for long sentences (Bahdanau 2015, figure 2)."""

from collections.abc import Sequence

from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, distinct, select_rows, series, series_by
from headwise.lab.study.statement import Row, Statement, over_seeds
from headwise.lab.study.translators import ALL, NEEDS, Condition, lead, measure, on_corpus

NETWORKS = ("lstm", "bahdanau", "luong", "conv", "transformer")
MARGIN = 1.0  # BLEU


def conditions(plan: Plan) -> list[Condition]:
    """Every network."""
    return [condition for name in NETWORKS for condition in on_corpus(plan, name)]


def by_length(rows: Sequence[Row]) -> list[Row]:
    """The rows of buckets of source length."""
    return [row for row in rows if row["bucket"] != ALL]


def panel_by_length(rows: Sequence[Row], compared: str) -> Panel:
    """BLEU against source length, a line for each value of the column `compared` and one for the floor."""
    own = by_length(rows)
    lines = series_by(own, compared, "words", "bleu")
    floor = series(select_rows(own, **{compared: own[0][compared]}), "best constant output", "words", "floor")
    x = "source length (words, mean of a bucket)"
    return Panel("Translation by length", x, "BLEU", [*lines, floor], log_x=False)


def figures(rows: Sequence[Row]) -> list[Figure]:
    """BLEU against source length."""
    return [
        Figure(
            "translation",
            "Each network was trained on as many tokens by the project's own trainer, and translates greedily.",
            "Line chart of BLEU against source length for five networks: the lstm has no attention, the others do.",
            [panel_by_length(rows, "network")],
        )
    ]


def bleu_lead(rows: Sequence[Row], network: str, long: bool) -> float:
    """BLEU of a network less that of the LSTM without attention, on the longest or the shortest sentences."""
    bucket = (max if long else min)(distinct(rows, "bucket"))
    own, lstm = (select_rows(rows, network=name, bucket=bucket) for name in (network, "lstm"))
    return lead(own, lstm)


def lead_growth(rows: Sequence[Row], network: str) -> float:
    """The lead on the longest sentences less that on the shortest."""
    return bleu_lead(rows, network, long=True) - bleu_lead(rows, network, long=False)


STATEMENTS = tuple(
    statement
    for network in ("bahdanau", "transformer")
    for statement in (
        Statement(
            f"{network}-leads",
            f"On long sentences {network} translates better than the LSTM without attention, by more than "
            f"{MARGIN:g} BLEU.",
            "BLEU on the longest sentences less that of the LSTM",
            over_seeds(lambda rows, network=network: bleu_lead(rows, network, long=True)),
            above=MARGIN,
            primary=True,
        ),
        Statement(
            f"{network}-grows",
            f"The lead of {network} over the LSTM grows with the length of the sentence.",
            "lead in BLEU on the longest sentences less that on the shortest",
            over_seeds(lambda rows, network=network: lead_growth(rows, network)),
            above=0.0,
            primary=True,
        ),
    )
)

CLAIM = Claim(
    name="translation",
    sentence="Attention lifted translation, most of all for long sentences.",
    source="Bahdanau et al. 2015, arXiv:1409.0473, figure 2",
    method="The project's own trainer and translator, recipe by recipe, at equal parameters and on as many tokens, "
    "from English to German; BLEU is counted by the length of the source. The lstm, without attention, reads its "
    "source backwards, as its paper does. A lead counts only if both are better than the best constant output.",
    conditions=conditions,
    measure=measure,
    view=by_length,
    figures=figures,
    statements=STATEMENTS,
    cost=400.0,
    needs=NEEDS,
)
