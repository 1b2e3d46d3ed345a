"""Formulas as MathML, which browsers show without a script or a font from elsewhere."""

import re
from html import unescape

from latex2mathml.converter import convert

ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def with_mathml(html: str) -> str:
    r"""A page whose formulas, as `pymdownx.arithmatex` leaves them, are MathML.

    >>> with_mathml(r'<span class="arithmatex">\(x_1\)</span>')
    '<span class="arithmatex"><math ...><mrow><msub><mi>x</mi><mn>1</mn></msub></mrow></math></span>'

    Raises:
        ValueError: a command of LaTeX is unknown.
    """
    return ARITHMATEX.sub(_element, html)


def _element(found: re.Match[str]) -> str:
    formula = mathml(unescape(found[2]), "block" if found[1] == "div" else "inline")
    return f'<{found[1]} class="arithmatex">{formula}</{found[1]}>'


def mathml(latex: str, display: str) -> str:
    """One formula."""
    converted = convert(latex.strip(), display=display)
    if unknown := re.search(r">\s*(\\\w+)\s*<", converted):
        raise ValueError(f"unknown command {unknown[1]} in the formula {latex.strip()}")
    return converted
