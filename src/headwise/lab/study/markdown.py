"""The report of the study as Markdown, for `benchmarks/results/` and the documentation."""

from collections.abc import Sequence
from typing import Any

from headwise.lab.study.finding import Finding, networks_trained
from headwise.lab.study.statement import PRIMARY

QUICK = "This run only shows that the program works. Its networks learn next to nothing, so there are no verdicts."
INTERVALS = (
    "A statement holds (yes) if the whole interval of what was measured meets the threshold stated before, and does "
    "not hold (no) if none of it does. Seeds are added while statements are undecided. Intervals allow for that: "
    f"all those of a statement hold with 95 % probability, those of the {PRIMARY} primary statements together. "
    "Learning rates are selected by validation, in runs with a quarter of the updates, and in full ones where two are "
    "close."
)


def as_markdown(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """Machine, the primary statements, then each claim that was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    quick = about["scale"] == "quick"
    parts = [
        f"# Claims about attention, measured: {about['scale']} study, {about['date']}",
        f"{about['machine']}; {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}; {loads(findings)}; "
        f"{versions}.",
        f"```sh\n{about['command']}\n```",
        QUICK if quick else INTERVALS,
        *([] if quick else [f"## The {PRIMARY} statements that matter most", primary(findings), unmeasured(findings)]),
        *(claim_as_markdown(finding) for finding in findings if finding.is_measured and not quick),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def primary(findings: Sequence[Finding]) -> str:
    """The primary statements, as sentences."""
    results = [result for finding in findings for result in finding.results if result.statement.primary]
    return "\n".join(f"- {result.sentence}" for result in results)


def unmeasured(findings: Sequence[Finding]) -> str:
    """The claims without any verdict, by name; empty if there are none."""
    names = [f"`{finding.claim.name}`" for finding in findings if not finding.is_measured]
    return f"Not measured yet: {', '.join(names)}." if names else ""


def loads(findings: Sequence[Finding]) -> str:
    """The load averages under which the measurements began."""
    found = [unit["load"] for finding in findings for unit in finding.units.values()]
    if not found:
        return "nothing measured"
    return f"load average {min(found):.1f} to {max(found):.1f} during the measurements"


def claim_as_markdown(finding: Finding, pictures: str = "figures/") -> str:
    """The section of one claim; `pictures` is what the paths of its figures begin with."""
    parts = [
        f"## {finding.claim.name}: {finding.counted}",
        f"*{finding.claim.sentence}* ({finding.claim.source})",
        finding.claim.method,
        finding.note,
        "\n".join(f"- {result.sentence}" for result in finding.results),
    ]
    if trained := networks_trained(finding):
        parts += [markdown_table(trained)]
    parts += [f"![{figure.alt}]({pictures}{figure.name}.png)\n\n{figure.caption}" for figure in finding.figures]
    return "\n\n".join(part for part in parts if part)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is the header.

    >>> print(markdown_table([["a", "b"], ["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
