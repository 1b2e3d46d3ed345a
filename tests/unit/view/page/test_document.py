"""The page as a text: one file that asks nobody, in which no text of a user's is ever HTML."""

import html
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headwise.evaluate.pages import document
from headwise.evaluate.pages.document import (
    asset,
    inspection_page,
    module_order,
    notebook_frame,
    script_text,
    source_hash,
)

ASSETS = Path(document.__file__).parents[2] / "view" / "page" / "assets"
NASTY = [
    "</script><script>alert(1)</script>",
    "\"&'<b>",
    "😀 שלום\u202e",
    "{{data}} {{script}}",
    "\u2028\ud800",
    "<!--",
]
TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (?:\[([^\]]+)\]|\{([^}]+)\}|(\w+))", re.M)


class Tags(HTMLParser):
    """Start tags, and the text inside the element with id "data"."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data = ""
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        self.data += data if self.inside else ""


@pytest.mark.parametrize("text", NASTY)
def test_any_text_comes_back_from_the_page_and_adds_no_tag(text: str) -> None:
    found = Tags(inspection_page([{"text": text}], title=text))
    assert json.loads(found.data)["inspections"] == [{"text": text}]
    assert found.tags == Tags(inspection_page([{"text": "harmless"}])).tags


def test_the_page_is_ascii_in_its_data() -> None:
    assert Tags(inspection_page([{"text": "日本"}])).data.isascii()


def test_nothing_is_loaded_and_only_our_script_runs() -> None:
    text = inspection_page([])
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert "@import" not in text
    assert "url(" not in "".join(map(asset, document.STYLES))
    policy = html.unescape(re.search(r'Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith(f"; img-src data:; script-src '{source_hash(script_text('main.js'))}'")
    assert "connect-src" not in policy
    assert "connect-src 'self'" in html.unescape(inspection_page([], live={"models": []}))


def test_the_policy_names_the_script_as_it_stands_in_the_page() -> None:
    inline = re.search(r'<script type="module">(.*)</script>\n</body>', inspection_page([]), re.S)
    assert inline
    assert source_hash(inline[1]) in html.unescape(inspection_page([]))


def test_modules_come_after_what_they_import_and_none_is_left_out() -> None:
    order = module_order("main.js")
    assert sorted(order) == sorted(path.name for path in ASSETS.glob("*.js"))
    for place, name in enumerate(order):
        assert set(document.IMPORT.findall(asset(name))) <= set(order[:place]), name


def test_one_scope_has_each_name_once() -> None:
    names = Counter(
        name.strip()
        for module in module_order("main.js")
        for groups in TOP_LEVEL.findall(asset(module))
        for name in "".join(groups).split(",")
    )
    assert [name for name, count in names.items() if count > 1] == []
    assert names["Pane"] == 1


def test_joined_script_has_no_import_or_export() -> None:
    assert not re.search(r"^(import|export)\b", script_text("main.js"), re.M)


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.js")), ids=lambda path: path.name)
def test_scripts_never_write_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|DOMParser", text)
    assert text.startswith("// @ts-check\n// ")
    assert text.count("\n") <= 260


def test_a_notebook_gets_a_frame_of_its_own() -> None:
    frame = notebook_frame({"text": '"</iframe>'})
    assert Tags(frame).tags == ["iframe"]
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == inspection_page([{"text": '"</iframe>'}])  # type: ignore[index]


def test_a_document_allows_what_is_asked_for_and_nothing_else() -> None:
    plain = document.document("<a>", "b {}", "<p>c</p>\n")
    assert "<title>&lt;a&gt;</title>" in plain and "<script" not in plain and "script-src" not in plain
    assert html.unescape(plain).count("default-src 'none'; style-src") == 1
    scripted = html.unescape(document.document("", "", "", "let a", ("script-src 'x'", "worker-src blob:")))
    assert f"; script-src '{source_hash('let a')}' 'x'; worker-src blob:\"" in scripted
    assert scripted.index('<script type="module">let a</script>') < scripted.index("</body>")
