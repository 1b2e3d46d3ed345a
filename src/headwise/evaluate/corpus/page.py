"""The report as a self-contained HTML page without scripts: plots are SVG, in a light or dark theme.

A content security policy allows only the page's own style. Texts of a corpus are escaped.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

import numpy as np

from headwise.evaluate.corpus.characters import kind
from headwise.evaluate.corpus.count import SIDES, SideCounts
from headwise.evaluate.corpus.findings import UNEVEN, Finding, Leak, Survey, log_ratios
from headwise.evaluate.corpus.report import CorpusReport, excerpt, percent, script_shares, side_facts
from headwise.evaluate.pages.document import asset, document

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 420, 190, 6, 34, 8  # of a plot, and its margins
BINS = 40
RARE = 24  # characters shown per side


def survey_page(report: CorpusReport) -> str:
    """The HTML."""
    style = asset("paper.css") + resources.files("headwise.evaluate.corpus").joinpath("page.css").read_text(
        encoding="utf-8"
    )
    body = "\n".join([_head(report), *_notes(report), _leak_section(report), *map(_section, report.surveys)])
    return document("What is in this corpus", style, f"<main>\n{body}\n</main>")


def _head(report: CorpusReport) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#{_anchor(one)}">{escape(one.counted.name)}</a></th>'
        f"<td>{escape(', '.join(map(str, one.counted.corpora)))}</td>"
        f'<td class="number">{len(one.counted):,}</td><td class="number">{one.kept:,}</td></tr>'
        for one in report.surveys
    )
    head = _header("set", "files", "#pairs", "#kept")
    return f"<h1>What is in this corpus</h1>{_wide(f'<table>{head}<tbody>{rows}</tbody></table>')}"


def _notes(report: CorpusReport) -> Iterable[str]:
    lines = "".join(f"<li>{escape(line)}</li>" for line in (*report.warnings, *report.notes))
    return [f'<ul class="notes">{lines}</ul>'] if lines else []


def _anchor(one: Survey) -> str:
    return "set-" + "".join(c if c.isalnum() else "-" for c in one.counted.name)


def _header(*names: str) -> str:
    """The head of a table; # marks a column of numbers."""
    cells = (f'<th class="number">{name[1:]}</th>' if name.startswith("#") else f"<th>{name}</th>" for name in names)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _wide(table: str) -> str:
    """A table that scrolls in a narrow window."""
    return f'<div class="wide" tabindex="0">{table}</div>'


# Leaks ---------------------------------------------------------------------------------------------------------------


def _leak_section(report: CorpusReport) -> str:
    if not report.leaks:
        return ""
    sets = {one.counted.name: one for one in report.surveys}
    pairs = list(dict.fromkeys((leak.held, leak.other) for leak in report.leaks))
    rows = "".join(_leak_row(held, other, sets[held], report.leaks) for held, other in pairs)
    head = _header("in", "and in", "#pairs", "#sources", "#targets")
    examples = "".join(_leak_example(leak, sets[leak.held]) for leak in report.leaks if leak.rows.count)
    shown = f"<details><summary>The first of each</summary><ul>{examples}</ul></details>" if examples else ""
    return f"""<section><h2>Leaks</h2>
<p class="quiet">Texts that two sets have in common, ignoring case, punctuation and spaces. A score on a text of the
training set says little.</p>
{_wide(f'<table class="leaks">{head}<tbody>{rows}</tbody></table>')}{shown}</section>"""


def _leak_row(held: str, other: str, one: Survey, leaks: Sequence[Leak]) -> str:
    cells = []
    for leak in leaks:
        if (leak.held, leak.other) == (held, other):
            share = 100 * leak.rows.count / max(1, len(one.counted))
            mark = ' class="number found"' if leak.rows.count else ' class="number"'
            cells.append(f"<td{mark}>{leak.rows.count:,}<small>{share:.2f}%</small></td>")
    return f'<tr><th scope="row">{escape(held)}</th><td>{escape(other)}</td>{"".join(cells)}</tr>'


def _leak_example(leak: Leak, one: Survey) -> str:
    row = leak.rows.first[0]
    where = f"{leak.held} {one.counted.location(row)}, {leak.other} {leak.as_in[row]}"
    side = "" if leak.what == "pair" else leak.what
    return f"<li>{escape(where)} ({leak.what}): <q>{escape(excerpt(one.texts[row], side, 120))}</q></li>"


# A set ---------------------------------------------------------------------------------------------------------------


def _section(one: Survey) -> str:
    facts = "".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{escape(fact)}</td>" for fact in facts.values())}</tr>'
        for name, facts in ((name, side_facts(side, len(one.counted))) for name, side in _named(one))
    )
    table = f"<table>{_header('', *side_facts(one.counted.sides[0], 1))}<tbody>{facts}</tbody></table>"
    return f"""<section id="{_anchor(one)}"><h2>{escape(one.counted.name.capitalize())}</h2>
{_wide(table)}
<div class="drawings">{_lengths(one)}{_ratios(one)}{_scripts(one)}</div>
{_findings(one)}
{_characters(one)}</section>"""


def _named(one: Survey) -> Iterable[tuple[str, SideCounts]]:
    return zip(SIDES, one.counted.sides, strict=True)


def _findings(one: Survey) -> str:
    if not one.findings:
        return '<p class="sound">Nothing looks wrong.</p>'
    most = max(finding.rows.count for finding in one.findings)
    return f'<ol class="findings">{"".join(_finding(finding, one, most) for finding in one.findings)}</ol>'


def _finding(finding: Finding, one: Survey, most: int) -> str:
    share = 100 * finding.rows.count / max(1, len(one.counted))
    locations = "".join(
        f"<li><span>{escape(one.counted.location(row))}"
        f"{escape(f' (as {finding.as_in[row]})') if row in finding.as_in else ''}</span> "
        f"<q>{escape(excerpt(one.texts[row], finding.side, 160, finding.title))}</q></li>"
        for row in finding.rows.first
    )
    side = f'<b class="side">{finding.side}:</b> ' if finding.side else ""
    bar = max(0.5, 100 * finding.rows.count / most)
    bar_rect = f'<rect width="{bar:.1f}" height="4"/>'
    return f"""<li><details><summary>
<span class="count">{finding.rows.count:,}</span><span class="share">{share:.2f}%</span>
<span class="what">{side}{escape(finding.title)}</span>
<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">{bar_rect}</svg>
</summary><p class="quiet">{escape(finding.advice)}</p><ul>{locations}</ul></details></li>"""


def _characters(one: Survey) -> str:
    """Characters other than ASCII letters and digits, most frequent first."""
    parts = []
    for name, side in _named(one):
        shown = [(c, n) for c, n in side.characters.most_common() if not (c.isascii() and (c.isalnum() or c == " "))]
        cells = "".join(_character(character, count) for character, count in shown[:RARE])
        more = f'<p class="quiet">and {len(shown) - RARE:,} others</p>' if len(shown) > RARE else ""
        parts.append(f'<div><h3>{name}</h3><ul class="characters">{cells}</ul>{more}</div>')
    return f"<details><summary>Other characters than A to Z</summary>{''.join(parts)}</details>"


def _character(character: str, count: int) -> str:
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "no name").lower()
    hidden = not character.isprintable() or character.isspace() or kind(character).startswith("invisible")
    sign = code if hidden else f"\u25cc{character}" if unicodedata.combining(character) else character
    return f'<li title="{escape(f"{name}, {code}")}"><bdi>{escape(sign)}</bdi><small>{count:,}</small></li>'


# Drawings ------------------------------------------------------------------------------------------------------------


def _lengths(one: Survey) -> str:
    """A histogram of line lengths; the last bin has all longer lines."""
    sides = [one.counted.src_lengths, one.counted.tgt_lengths]
    if not len(one.counted):
        return ""
    longest = max(10, int(max(np.quantile(side, 0.995) for side in sides)))
    step = -(-longest // BINS)  # a whole number, so that bins cover equally many lengths
    edges = np.arange(0, longest + step, step)
    longest = int(edges[-1])
    heights = [np.histogram(np.minimum(side, longest - 1), edges)[0] for side in sides]
    ticks = {value / longest: f"{value}{'+' if value == longest else ''}" for value in _round_steps(longest)}
    legend = '<tspan class="source">source</tspan> <tspan class="target">target</tspan>'
    return _figure("Characters per line", _areas(heights) + _axis(ticks) + _legend(legend), "lengths of lines")


def _round_steps(longest: int) -> list[int]:
    """
    >>> _round_steps(95)
    [0, 20, 40, 60, 80, 95]
    """
    step = next(s for s in (n * 10**k for k in range(9) for n in (1, 2, 5)) if longest / s <= 6)
    return [*range(0, longest - step // 2, step), longest]


def _ratios(one: Survey) -> str:
    """A histogram of length ratios, on a log2 scale."""
    ratios = log_ratios(one.counted)
    if not len(ratios):
        return ""
    middle = float(np.median(ratios))
    reach = 3.0
    heights = np.histogram(np.clip(ratios - middle, -reach, reach), np.linspace(-reach, reach, BINS + 2))[0]
    ticks = {(place + reach) / (2 * reach): f"{2 ** (place + middle):.2g}" for place in (-3, -2, -1, 0, 1, 2, 3)}
    bounds = "".join(
        f'<line class="bound" x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        for at in ((sign * np.log2(UNEVEN) + reach) / (2 * reach) for sign in (-1, 1))
    )
    drawing = _areas([np.zeros_like(heights), heights]) + bounds + _axis(ticks)
    return _figure("Target characters per source character", drawing, "beyond the dotted lines: findings")


def _scripts(one: Survey) -> str:
    """Bars for the shares of scripts."""
    parts, y = [], 0
    for name, side in _named(one):
        y += 20
        parts.append(f'<text class="strong" x="{LEFT}" y="{y}">{name}</text>')
        for script, share in list(script_shares(side).items())[:3]:
            y += 20
            width = max(1.0, 170 * share)
            parts.append(
                f'<text x="{LEFT}" y="{y}">{escape(script)}</text><rect class="{name}" x="170" y="{y - 9}" '
                f'width="{width:.1f}" height="10"/><text x="{176 + width:.1f}" y="{y}">{percent(share)}</text>'
            )
        y += 6
    return _figure("Scripts of the letters", "".join(parts), "the three most frequent of each side", y)


def _x(part: float | int) -> float:
    return LEFT + float(part) * (WIDTH - 2 * LEFT)


def _areas(heights: Sequence[np.ndarray]) -> str:
    """Histograms over one another, the source first."""
    top = max(1, *(int(side.max()) for side in heights))
    floor, room = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    areas = []
    for name, side in zip(SIDES, heights, strict=True):
        corners = [f"M{_x(0):.1f} {floor}"]
        for place, height in enumerate(side.tolist()):
            level = floor - room * height / top
            corners.append(f"L{_x(place / len(side)):.1f} {level:.1f}L{_x((place + 1) / len(side)):.1f} {level:.1f}")
        areas.append(f'<path class="area {name}" d="{"".join(corners)}L{_x(1):.1f} {floor}Z"/>')
    return "".join(areas)


def _axis(ticks: dict[float, str]) -> str:
    floor, anchors = HEIGHT - BOTTOM, {0.0: "start", 1.0: "end"}
    labels = "".join(
        f'<line x1="{_x(at):.1f}" x2="{_x(at):.1f}" y1="{floor}" y2="{floor + 4}"/>'
        f'<text x="{_x(at):.1f}" y="{floor + 18}" text-anchor="{anchors.get(at, "middle")}">{label}</text>'
        for at, label in ticks.items()
    )
    return f'<g class="axis"><line x1="{_x(0)}" x2="{_x(1)}" y1="{floor}" y2="{floor}"/>{labels}</g>'


def _legend(spans: str) -> str:
    return f'<text class="legend" x="{_x(1)}" y="{TOP + 10}" text-anchor="end">{spans}</text>'


def _figure(title: str, drawing: str, note: str, height: int = HEIGHT) -> str:
    return f"""<figure><figcaption><b>{title}</b> <span class="quiet">{note}</span></figcaption>
<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">{drawing}</svg></figure>"""
