"""The translation page, and the OpenAPI document as a page; neither loads anything from other servers.

They share their style with the other pages: `paper.css`, and the page of `export --to web`.
"""

import html
import json
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from headwise.documents.reading import ENDINGS
from headwise.evaluate.pages.document import (
    as_script_json,
    asset,
    document,
    fill_template,
    interface_parts,
    script_text,
)


def translation_page(languages: Sequence[Mapping[str, Any]], needs_key: bool, has_jobs: bool) -> str:
    """The HTML."""
    style = asset("paper.css") + _read("headwise.serve.web", "page.css") + _own("serve.css")
    data = as_script_json(
        {"languages": list(languages), "needsKey": needs_key, "hasJobs": has_jobs, "formats": list(ENDINGS)}
    )
    body = fill_template(_own("page.html"), {**interface_parts(), "data": data})
    return document("Headwise", style, body, script_text("main.js", _own_or_shared), ("connect-src 'self'",))


def _own(name: str) -> str:
    return _read("headwise.serve", name)


def _own_or_shared(name: str) -> str:
    return _own(name) if name == "main.js" else asset(name)


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("assets", name).read_text(encoding="utf-8")


def api_page(openapi: Mapping[str, Any], example: str) -> str:
    """A command to begin with, and all operations with their parameters and responses."""
    parts = "".join(
        f"<h2>{method.upper()} {html.escape(path)}</h2><p>{html.escape(one['summary'])}</p>{_body(one)}"
        for path, methods in openapi["paths"].items()
        for method, one in methods.items()
    )
    style = asset("paper.css") + "main { max-width: 60rem; margin: 0 auto; padding: 1rem; } pre { overflow-x: auto; }"
    link = "<p><a href='.'>Try it on the page</a>. As JSON: <a href='openapi.json'>openapi.json</a></p>"
    first = f"<pre>{html.escape(example)}</pre>"
    return document("Headwise API", style, f"<main><h1>API</h1>{first}{link}{parts}</main>")


def example_request(address: str, languages: Sequence[Mapping[str, Any]], needs_key: bool) -> str:
    """A command for a shell that translates a text.

    >>> print(example_request("http://localhost:5000/", [{"code": "en", "targets": ["de"]}], False))
    curl http://localhost:5000/translate -H 'Content-Type: application/json' \\
      -d '{"q": "Good morning!", "source": "en", "target": "de"}'
    """
    source = next(one for one in languages if one["targets"])
    body = {"q": "Good morning!", "source": source["code"], "target": source["targets"][0]}
    body |= {"api_key": "..."} if needs_key else {}
    return (
        f"curl {shlex.quote(f'{address}translate')} -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body))}"
    )


def _body(one: Mapping[str, Any]) -> str:
    content = one.get("requestBody", {}).get("content", {})
    request = "".join(
        f"<h3>{html.escape(kind)}</h3><pre>{html.escape(json.dumps(body['schema'], indent=2))}</pre>"
        for kind, body in list(content.items())[:1]
    )
    responses = {status: list(response["content"]) for status, response in one["responses"].items()}
    return f"{request}<h3>Responses</h3><pre>{html.escape(json.dumps(responses, indent=2))}</pre>"
