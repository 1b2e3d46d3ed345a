"""axe-core, which finds what people who use a keyboard or a screen reader, or see little contrast, cannot use."""

from importlib import resources
from typing import Any

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RUN = """async () => (await axe.run()).violations.map(({id, nodes}) =>
  [id, ...nodes.slice(0, 4).map((node) => node.html.slice(0, 160) + node.failureSummary.slice(0, 200))])"""


def violations(shown: Any) -> list[Any]:
    """The rules that a page violates, with some of the elements."""
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown.evaluate(AXE)
    return shown.evaluate(RUN)
