"""Self-contained HTML pages: style, scripts and data in one file.

The scripts are ES modules, concatenated in the order of their imports into one module. User text is never part of the
HTML: it stands in a JSON block, in which `<` is escaped. A content security policy allows only the page's own script
and style.
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
STYLES = ("paper.css", "scale.css", "columns.css", "page.css", "walk.css", "tour.css")
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


def inspection_page(
    inspections: Sequence[Mapping[str, Any]],
    title: str = "Headwise",
    live: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
) -> str:
    """The HTML of an inspection page.

    Args:
        inspections: as returned by `page_contents`; several are shown side by side.
        title: of the window.
        live: for the explorer, the settings of its server; None for a static page.
        start: the view, part, layer and head that it opens on, by the names in `assets/state.js`.
    """
    data = as_script_json({"inspections": list(inspections), "live": live, "start": dict(start or {})})
    body = fill_template(asset("page.html"), {**interface_parts(), "data": data, "tour": catalogues("tour")})
    allowed = ("connect-src 'self'",) if live is not None else ()
    return document(title, "".join(map(asset, STYLES)), body, script_text(ENTRY), allowed)


def document(title: str, style: str, body: str, script: str = "", allowed: Sequence[str] = ()) -> str:
    """A whole page that makes no network requests.

    Args:
        title: of the window.
        style: CSS.
        body: HTML; the script follows it.
        script: a JavaScript module; "" for none.
        allowed: further directives of the content security policy, or further words of one, as in
            `"script-src 'wasm-unsafe-eval'"`.
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


def notebook_frame(inspection: Mapping[str, Any], height: int = 640, start: Mapping[str, Any] | None = None) -> str:
    """The page in an iframe, so that pages of a notebook do not interfere; `start` as for `inspection_page`."""
    page = html.escape(inspection_page([inspection], start=start))
    style = f"width: 100%; height: {height}px; border: 0; border-radius: 8px"
    return f'<iframe srcdoc="{page}" style="{style}" title="Headwise"></iframe>'


def as_script_json(value: Any) -> str:
    """JSON that is safe in a script element, whatever its strings.

    >>> as_script_json("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    """A file of `assets/`."""
    return resources.files("headwise.view.page").joinpath("assets", name).read_text(encoding="utf-8")


def catalogues(name: str) -> str:
    """The files `assets/NAME.LANGUAGE.json`, English first, as JSON that is safe in a script element."""
    files = resources.files("headwise.view.page").joinpath("assets").iterdir()
    found = [re.fullmatch(rf"{name}\.([\w-]+)\.json", file.name) for file in files]
    languages = sorted((match[1] for match in found if match), key=lambda language: (language != "en", language))
    return as_script_json({language: json.loads(asset(f"{name}.{language}.json")) for language in languages})


@cache
def english_texts() -> dict[str, str]:
    """The English texts of the interface by their keys."""
    return json.loads(asset("interface.en.json"))


def interface_parts() -> dict[str, str]:
    """For `fill_template`: each English text of the interface by its key, and as "interface" those of all languages."""
    return {**{key: html.escape(text) for key, text in english_texts().items()}, "interface": catalogues("interface")}


@cache
def script_text(entry: str, read: Callable[[str], str] = asset) -> str:
    """All modules in one, each after those it imports; `read` returns the text of one.

    Module scopes become one scope, so top-level names must be unique; a test checks that.
    """
    return "\n".join(EXPORT.sub("", IMPORT.sub("", read(name))) for name in module_order(entry, read))


def module_order(name: str, read: Callable[[str], str] = asset, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """`before`, then the modules that `name` imports and `before` lacks, then `name`.

    >>> module_order("dom.js")
    ('dom.js',)
    """
    for imported in IMPORT.findall(read(name)):
        if imported not in before:
            before = module_order(imported, read, before)
    return (*before, name)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{name}}` replaced, once."""
    return re.sub(r"\{\{([\w-]+)\}\}", lambda match: parts[match[1]], template)


def source_hash(text: str) -> str:
    """The hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
