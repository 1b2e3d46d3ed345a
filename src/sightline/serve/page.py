"""The page to translate in, and the OpenAPI document as a page; neither asks any other server for anything.

They look as the other pages of ours do: `paper.css`, and the two sides and lists of the page of `export --to web`.
"""

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from sightline.localisation.reading import ENDINGS
from sightline.report.document import as_script_json, asset, document, fill_template, script_text


def translation_page(languages: Sequence[Mapping[str, Any]], needs_key: bool) -> str:
    """The HTML."""
    style = asset("paper.css") + _read("sightline.export.web", "page.css") + _own("serve.css")
    data = as_script_json({"languages": list(languages), "needsKey": needs_key, "formats": list(ENDINGS)})
    body = fill_template(_own("page.html"), {"data": data})
    return document("Sightline", style, body, script_text("main.js", _own_or_shared), ("connect-src 'self'",))


def _own(name: str) -> str:
    return _read("sightline.serve", name)


def _own_or_shared(name: str) -> str:
    return _own(name) if name == "main.js" else asset(name)


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("assets", name).read_text(encoding="utf-8")


def api_page(described: Mapping[str, Any]) -> str:
    """Every address with what it takes and what it answers."""
    parts = "".join(
        f"<h2>{method.upper()} {html.escape(path)}</h2><p>{html.escape(one['summary'])}</p>{_body(one)}"
        for path, methods in described["paths"].items()
        for method, one in methods.items()
    )
    style = asset("paper.css") + "main { max-width: 60rem; margin: 0 auto; padding: 1rem; } pre { overflow-x: auto; }"
    link = "<p>As a document for programs: <a href='openapi.json'>openapi.json</a></p>"
    return document("Sightline: what can be asked", style, f"<main><h1>What can be asked</h1>{link}{parts}</main>")


def _body(one: Mapping[str, Any]) -> str:
    content = one.get("requestBody", {}).get("content", {})
    asked = "".join(
        f"<h3>{html.escape(kind)}</h3><pre>{html.escape(json.dumps(body['schema'], indent=2))}</pre>"
        for kind, body in list(content.items())[:1]
    )
    answered = {status: list(response["content"]) for status, response in one["responses"].items()}
    return f"{asked}<h3>Answers</h3><pre>{html.escape(json.dumps(answered, indent=2))}</pre>"
