"""The page as one text: style, scripts and data in one HTML file, which needs nothing else.

The scripts are ES modules; for the page they are written one after the other, in the order of their imports, into one
module. No text of a user's is ever part of the HTML: it stands in a JSON block, in which `<` is escaped, and a content
security policy lets nothing run or load but the page's own script and style.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

ENTRY = "main.js"
STYLES = ("paper.css", "columns.css", "page.css")
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


def inspection_page(
    inspections: Sequence[Mapping[str, Any]], title: str = "Sightline", live: Mapping[str, Any] | None = None
) -> str:
    """The HTML of a page.

    Args:
        inspections: what `page_contents` gave; several are shown side by side.
        title: of the window.
        live: for the explorer, what its page must know of its server; None is a page that stands alone.
    """
    data = as_script_json({"inspections": list(inspections), "live": live})
    body = fill_template(asset("page.html"), {"data": data})
    allowed = ("connect-src 'self'",) if live is not None else ()
    return document(title, "".join(map(asset, STYLES)), body, script_text(ENTRY), allowed)


def document(title: str, style: str, body: str, script: str = "", allowed: Sequence[str] = ()) -> str:
    """A whole page that asks no network for anything.

    Args:
        title: of the window.
        style: all of it, in CSS.
        body: what is shown, in HTML; the script comes behind it.
        script: a module of JavaScript; "" for a page without.
        allowed: what else its content security policy lets it do beside showing its own pictures: directives, or
            further words for a script, as in `"script-src 'wasm-unsafe-eval'"`.
    """
    policy = {"default-src": "'none'", "style-src": f"'{source_hash(style)}'", "img-src": "data:"}
    policy |= {"script-src": f"'{source_hash(script)}'"} if script else {}
    for kind, _, words in (directive.partition(" ") for directive in allowed):
        policy[kind] = f"{policy.get(kind, '')} {words}".strip()
    parts = {
        "policy": html.escape("; ".join(f"{kind} {words}" for kind, words in policy.items())),
        "title": html.escape(title),
        "style": style,
        "body": body.rstrip("\n"),
        "script": f'\n<script type="module">{script}</script>' if script else "",
    }
    return fill_template(asset("document.html"), parts)


def notebook_frame(inspection: Mapping[str, Any], height: int = 640) -> str:
    """The page in a frame of its own, for a notebook: several on one sheet know nothing of each other."""
    style = f"width: 100%; height: {height}px; border: 0; border-radius: 8px"
    return f'<iframe srcdoc="{html.escape(inspection_page([inspection]))}" style="{style}" title="Sightline"></iframe>'


def as_script_json(value: Any) -> str:
    """JSON that can stand in a script element whatever strings it holds.

    >>> as_script_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    """A file of `assets/`."""
    return resources.files("sightline.inspect.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script_text(entry: str, read: Callable[[str], str] = asset) -> str:
    """All modules in one, each after those it imports; `read` gives the text of each.

    Module scopes become one scope, so no two modules may use a name at top level for two things; a test holds that.
    """
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read(name))) for name in module_order(entry, read))


def module_order(name: str, read: Callable[[str], str] = asset, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """`before`, then what module `name` imports and `before` lacks, then the module.

    >>> module_order("dom.js")
    ('dom.js',)
    """
    for imported in IMPORT.findall(read(name)):
        if imported not in before:
            before = module_order(imported, read, before)
    return (*before, name)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced; what replaces it is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def source_hash(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
