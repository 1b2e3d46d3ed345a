"""Claim: it scales. Loss of a character model against parameters and against text read."""

from collections.abc import Sequence

from headwise.evaluate.pages.figures import Figure, Panel, Series
from headwise.lab.study.characters import LSTM, TRANSFORMER, Condition, character_condition, measure
from headwise.lab.study.claim import Claim, Plan, growth, select_rows, series
from headwise.lab.study.statement import NoRows, Row, Statement, over_seeds

NETWORKS = (TRANSFORMER, LSTM)


def conditions(plan: Plan) -> list[Condition]:
    """Widths for the parameters, lengths of training for the characters read."""
    widths = plan.pick((8, 12, 16), (14, 20, 28, 42, 64))
    steps = plan.pick((4, 5, 6), (125, 250, 500, 1000, 2000))
    shapes = [(width, steps[-1]) for width in widths] + [(widths[-1], number) for number in steps[:-1]]
    return [character_condition(plan, name, width, 2, number) for width, number in shapes for name in NETWORKS]


def by_parameters(rows: Sequence[Row]) -> list[Row]:
    """The rows with the longest training, which differ in size."""
    return select_rows(rows, steps=max(row["steps"] for row in rows))


def by_reading(rows: Sequence[Row]) -> list[Row]:
    """The rows of the largest networks, which differ in training."""
    return select_rows(rows, width=max(row["width"] for row in rows))


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Loss against parameters, and against characters read."""
    panels = [
        Panel(title, label, "held-out loss (nats per character)", _lines(chosen, x), log_y=True)
        for title, label, x, chosen in (
            ("Size", "parameters", "parameters", by_parameters(rows)),
            ("Reading", "characters read in training", "read", by_reading(rows)),
        )
    ]
    return [
        Figure(
            "scaling-laws",
            f"Character models on a text ({rows[0]['text']}); both axes are logarithmic.",
            "Two line charts of loss against parameters and against characters read, for a Transformer and an LSTM.",
            panels,
        )
    ]


def _lines(rows: Sequence[Row], x: str) -> list[Series]:
    return [series(select_rows(rows, network=name), name, x, "loss") for name in NETWORKS]


def exponents(rows: Sequence[Row], by: str) -> dict[str, float]:
    """The exponent of the loss of each network by "parameters" or by "read"."""
    chosen = by_parameters(rows) if by == "parameters" else by_reading(rows)
    try:
        return {name: fit.exponent.value for name, fit in growth(chosen, "loss", by).items()}
    except ValueError as error:
        raise NoRows(str(error)) from None


def steeper(rows: Sequence[Row], by: str) -> float:
    """Exponent of the Transformer less that of the LSTM."""
    found = exponents(rows, by)
    return found["transformer"] - found["lstm"]


STATEMENTS = (
    *(
        Statement(
            f"{network}-{by}",
            f"{network}: loss falls with {of}.",
            f"exponent of the loss by {of}",
            over_seeds(lambda rows, by=by, network=network: exponents(rows, by)[network]),
            below=0.0,
        )
        for network in NETWORKS
        for by, of in (("parameters", "parameters"), ("read", "characters read"))
    ),
    Statement(
        "steeper-parameters",
        "With more parameters the Transformer's loss falls faster than the LSTM's.",
        "exponent of the loss by parameters, Transformer less LSTM",
        over_seeds(lambda rows: steeper(rows, "parameters")),
        below=0.0,
    ),
    Statement(
        "steeper-read",
        "With more text the Transformer's loss falls faster than the LSTM's.",
        "exponent of the loss by characters read, Transformer less LSTM",
        over_seeds(lambda rows: steeper(rows, "read")),
        below=0.0,
    ),
)

CLAIM = Claim(
    name="scaling-laws",
    sentence="It scales: loss falls with parameters and with data, and faster than a recurrent network's.",
    source="Kaplan et al. 2020, arXiv:2001.08361, sections 3.2 and 3.3",
    method="Character models of five sizes read the same text, and the largest of them read more and less of it. "
    "Transformer and LSTM have the same parameters within 5 %. Exponents are least-squares slopes on logarithms; they "
    "say that a loss falls, not by which law, for which these networks are too small.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=60.0,
)
