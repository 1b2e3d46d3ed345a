"""The report of the study as Markdown, for `benchmarks/results/` and the documentation."""

from collections.abc import Sequence
from typing import Any

from headwise.lab.study.finding import Finding, networks_trained

QUICK = "This is the small study (--quick): directions, not decimals. Networks are small and trainings short."


def as_markdown(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """Machine, verdict of each statement with its effect, and what is open."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    parts = [
        f"# Claims about attention, measured: {about['scale']} study, {about['date']}",
        f"{about['machine']}; {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}; {loads(findings)}; "
        f"{versions}.",
        f"```sh\n{about['command']}\n```",
        *([QUICK] if about["scale"] != "full" else []),
        "Intervals have 95 %. Each network keeps the best of three learning rates by validation with the first seed. "
        "A statement is supported if its interval meets the threshold, refuted if all of it does not, else undecided.",
        *(claim_as_markdown(finding) for finding in findings),
    ]
    return "\n\n".join(parts) + "\n"


def loads(findings: Sequence[Finding]) -> str:
    """The load averages under which the measurements began."""
    found = [unit["load"] for finding in findings for unit in finding.units]
    if not found:
        return "nothing measured"
    return f"load average {min(found):.1f} to {max(found):.1f} during the measurements"


def claim_as_markdown(finding: Finding, pictures: str = "figures/") -> str:
    """The section of one claim; `pictures` is what the paths of its figures begin with."""
    table = [["verdict", "statement", "effect", "95 % interval", "supported if"]]
    for result in finding.results:
        s = result.statement
        table.append([result.verdict, f"{s.text} ({s.effect})", result.shown_value, result.shown_interval, s.threshold])
    parts = [
        f"## {finding.claim.name}: {finding.counted}",
        f"*{finding.claim.sentence}* ({finding.claim.source})",
        *([finding.note] if finding.note else []),
        markdown_table(table),
    ]
    if trained := networks_trained(finding):
        parts += [markdown_table(trained)]
    parts += [f"![{figure.alt}]({pictures}{figure.name}.png)\n\n{figure.caption}" for figure in finding.figures]
    return "\n\n".join(parts)


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
