"""The report of the study: one self-contained HTML file, the same as Markdown, all numbers as JSON, figures as PNG.

The page has no scripts and no network addresses. It follows the light or dark theme of the system.
"""

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from headwise.evaluate.pages.document import document
from headwise.evaluate.pages.figures import Figure, Panel, render_figure
from headwise.lab.study.claim import distinct
from headwise.lab.study.finding import Finding, networks_trained
from headwise.lab.study.markdown import INTERVALS, QUICK, as_markdown, loads
from headwise.lab.study.statement import Result
from headwise.text.files.sources import count_of

STYLE = """
:root { color-scheme: light dark; --ink: #1b2530; --soft: #5c6670; --paper: #ffffff; --card: #f4f6f8; --line: #d5dae0;
  --held: #00664b; --part: #7a5200; --not: #a33c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --soft: #a2adb8; --paper: #12171c; --card: #1b2229;
  --line: #35404b; --held: #4fd0a8; --part: #f0b84a; --not: #ff9a66; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; } h2 { font-size: 1.25rem; margin: 0 0 0.5rem; }
section { border-top: 1px solid var(--line); padding: 1.75rem 0 0.5rem; }
blockquote { margin: 0.5rem 0; padding-left: 0.9rem; border-left: 3px solid var(--line); font-style: italic; }
.soft, figcaption, footer { color: var(--soft); font-size: 0.9rem; }
.verdict { background: var(--card); border-radius: 0.5rem; padding: 0.7rem 0.9rem; }
.held { color: var(--held); } .part { color: var(--part); }
.not { color: var(--not); }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; border-radius: 0.4rem; background: #fff; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.9rem 0.25rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; } code { font-size: 0.9em; } a { color: inherit; }
@media (max-width: 40rem) { figure { overflow-x: auto; } figure img { max-width: none; width: 36rem; } }
summary { cursor: pointer; color: var(--soft); margin: 0.4rem 0; }
"""
CHIPS = {
    "supported": "held",
    "undecided": "part",
    "refuted": "not",
    "not comparable": "part",
    "not measured yet": "soft",
}
FOOT = (
    "<footer><p>Every single measurement is in <code>study.json</code> beside this file, the figures in "
    "<code>figures/</code>. A rerun of the command measures only what is missing.</p></footer>"
)


def write_report(out: Path, findings: Sequence[Finding], about: dict[str, Any]) -> Path:
    """Write `study.html`, `study.md`, `study.json` and `figures/*.png` into `out`; the path of the HTML."""
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, bytes] = {}
    for figure in (figure for finding in findings for figure in finding.figures):
        pictures[figure.name] = render_figure(figure)
        (folder / f"{figure.name}.png").write_bytes(pictures[figure.name])
    (out / "study.json").write_text(study_as_json(findings, about), encoding="utf-8")
    (out / "study.md").write_text(as_markdown(findings, about), encoding="utf-8")
    page = out / "study.html"
    page.write_text(as_html(findings, about, pictures), encoding="utf-8")
    return page


def study_as_json(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    """Statements, and all measurements, a line for each; those that claims share stand here once."""
    claims = ",\n".join(json.dumps(finding.as_json(), indent=1) for finding in findings)
    measured = {key: unit for finding in findings for key, unit in (finding.tuning | finding.units).items()}
    units = ",\n".join(f" {json.dumps(key)}: {json.dumps(unit)}" for key, unit in measured.items())
    return f'{{"about": {json.dumps(about, indent=1)},\n"claims": [\n{claims}\n],\n"units": {{\n{units}\n}}}}\n'


def as_html(findings: Sequence[Finding], about: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The whole page."""
    quick = about["scale"] == "quick"
    sections = (_section(finding, pictures, quick) for finding in findings)
    return document(
        "The claims made for attention, measured", STYLE, "\n".join([_head(findings, about), *sections, FOOT])
    )


def _head(findings: Sequence[Finding], about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    quick = about["scale"] == "quick"
    rows = "\n".join(
        f'<tr><td><a href="#{f.claim.name}">{escape(f.claim.sentence)}</a></td>'
        f"<td>{'' if quick else escape(f.counted)}</td></tr>"
        for f in findings
    )
    results = [result for finding in findings for result in finding.results if result.statement.primary]
    primary = f"<h2>The statements that matter most</h2>{_statements(results)}" if results and not quick else ""
    return f"""<h1>The claims made for attention, measured</h1>
<p>Claims of introductory texts about attention and its predecessors, each put to a test.</p>
<p>{escape(QUICK if quick else INTERVALS)}</p>
<p class="soft">{escape(about["machine"])}; {about["cores"]} cores, {about["memory_gib"]} GiB,
{escape(about["system"])}; {loads(findings)} (times on a busy machine mislead);
{escape(versions)}; {about["date"]}.<br>Made by <code>{escape(about["command"])}</code></p>
{primary}
<div class="wide"><table><thead><tr><th>Claim</th><th>Statements</th></tr></thead><tbody>
{rows}
</tbody></table></div>"""


def _section(finding: Finding, pictures: dict[str, bytes], quick: bool) -> str:
    claim = finding.claim
    note = "" if quick and finding.units else finding.note
    parts = [
        f'<section id="{claim.name}"><h2>{claim.name.replace("-", " ").capitalize()}</h2>',
        f"<blockquote>{escape(claim.sentence)}</blockquote>",
        f'<p class="verdict">{escape(note)}</p>' if note else "",
        _statements(finding.results) if finding.is_measured and not quick else "",
        f"<p>{escape(claim.method)}</p>",
        *(_figure(figure, pictures[figure.name]) for figure in finding.figures),
        _trained(finding),
        _facts(finding),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _statements(results: Sequence[Result]) -> str:
    lines = "\n".join(f'<li class="{CHIPS[result.verdict]}">{escape(result.sentence)}</li>' for result in results)
    return f"<ul>\n{lines}\n</ul>"


def _figure(figure: Figure, picture: bytes) -> str:
    source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    width = int.from_bytes(picture[16:20], "big") * 3 // 4  # of a PNG; a CSS pixel is larger
    tables = "\n".join(_numbers(panel) for panel in figure.panels)
    return f"""<figure><img src="{source}" alt="{escape(figure.alt)}" width="{width}">
<figcaption>{escape(figure.caption)}</figcaption></figure>
<details><summary>The numbers of this figure</summary>
{tables}
</details>"""


def _numbers(panel: Panel) -> str:
    xs = sorted({x for line in panel.series for x in line.x})
    points = {(line.name, x): point for line in panel.series for x, point in zip(line.x, line.y, strict=True)}
    header = [panel.x_label, *(line.name for line in panel.series)]
    body = [[f"{x:,.5g}", *(str(points.get((line.name, x), "")) for line in panel.series)] for x in xs]
    return f"<p><b>{escape(panel.title)}</b>: {escape(panel.y_label)}</p>{_table(header, body)}"


def _trained(finding: Finding) -> str:
    """Parameters, learning rates and diverged updates, if networks were trained."""
    table = networks_trained(finding)
    if not table:
        return ""
    return f"<details><summary>Networks and their trainings</summary>{_table(table[0], table[1:])}</details>"


def _facts(finding: Finding) -> str:
    seeds = len(distinct(finding.rows, "seed")) if finding.rows else 0
    spread = "; lines are medians, bands and brackets run from the lowest seed to the highest" * (seeds > 1)
    measured = f"{count_of(seeds, 'seed')}{spread}; measured in {_duration(finding.seconds)}. " * (seeds > 0)
    return f'<p class="soft">{measured}Source of the claim: {escape(finding.claim.source)}.</p>'


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in body)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table></div>'


def _duration(seconds: float) -> str:
    """Minutes and seconds.

    >>> _duration(75.2)
    '1 min 15 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
