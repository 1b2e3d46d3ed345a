"""The hooks of the documentation site: generated pages, links out of docs/, formulas, and builds that must fail."""

import doctest
import importlib
import json
import re
from argparse import SUPPRESS
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from mkdocs.exceptions import PluginError

import headwise
from headwise.cli import BY_NAME, COMMANDS, command_parser
from headwise.config.settings import RECIPES, SETTINGS
from headwise.evaluate.pages.document import asset
from headwise.models.model import METHODS

ROOT = Path(__file__).resolve().parents[3]
if not (ROOT / "docs" / "hooks").is_dir():
    pytest.skip("the documentation is not part of the source distribution", allow_module_level=True)
pytest.importorskip("mkdocs")

HOOKS = (
    "chapters",
    "cited_figures",
    "doctests",
    "formulas",
    "page_links",
    "reference_pages",
    "site_hooks",
    "speed_table",
)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {place: write() for place, write in hook("reference_pages").PAGES.items()}


def hook(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", HOOKS)
def test_examples(name: str) -> None:
    result = doctest.testmod(hook(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted and not result.failed


@pytest.mark.parametrize("group", COMMANDS)
def test_the_reference_has_every_option(pages: dict[str, str], group: str) -> None:
    page = pages[f"reference/commands/{hook('reference_pages').group_page(group)}"]
    for command in COMMANDS[group]:
        text = page.split(f"{{ #{command.name} }}")[1].split("\n## ")[0]
        shown = [action for action in command_parser(command.name)._actions if action.help != SUPPRESS]
        options = {word for action in shown for word in action.option_strings}
        assert [word for word in options - {"-h", "--help", "--help-all"} if word not in text] == []


def test_the_front_page_has_the_translator_if_it_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, hooks = (ROOT / "docs/index.md").read_text(encoding="utf-8"), hook("site_hooks")
    built = tmp_path / "model.html"
    built.write_bytes(bytes(4_100_000))
    found, missing = hooks.with_translator(page, built), hooks.with_translator(page, tmp_path / "missing.html")
    assert '<iframe src="translator.html#view=tour&' in found and 'loading="lazy"' in found and "4.1 MB" in found
    assert "translator.html" not in missing and "how-to/web-walk.png" in missing
    monkeypatch.setattr(hooks, "TRANSLATOR", tmp_path / "missing.html")
    hooks.check_translator()  # it was not named
    monkeypatch.setenv(hooks.TRANSLATOR_VARIABLE, "missing.html")
    with pytest.raises(PluginError, match=r"no.*`make sentence-model`"):
        hooks.check_translator()


def test_every_chapter_has_cards_of_the_tour(tmp_path: Path) -> None:
    hooks, built = hook("site_hooks"), tmp_path / "model.html"
    built.write_bytes(b"")
    titles = {name: card["title"] for name, card in json.loads(asset("tour.en.json"))["cards"].items()}
    for path in hook("chapters").chapter_paths():
        text = path.read_text(encoding="utf-8")
        cards = [(found["title"], parse_qs(found["place"])) for found in hooks.CARD.finditer(text)]
        assert cards and len(cards) == text.count("translator.html"), path
        assert all(place["card"][0] in titles and place["text"][0] for _, place in cards), path
        assert [title for title, _ in cards] == [f"Card: {titles[place['card'][0]]}" for _, place in cards], path
        shown = hooks.with_cards(text, built, f"tutorial/{path.stem}/")
        assert shown.count('src="../../translator.html#view=tour&amp;card=') == len(cards)


def test_the_index_has_every_command(pages: dict[str, str]) -> None:
    assert [name for name in BY_NAME if f"[`{name}`]" not in pages["reference/commands/index.md"]] == []


def test_the_reference_has_every_setting_and_recipe(pages: dict[str, str]) -> None:
    settings = [key for key, setting in SETTINGS.items() if not setting.derived]
    assert [key for key in settings if f"{{ #{key} }}" not in pages["reference/settings.md"]] == []
    recipes = [path.stem for path in RECIPES.glob("*.toml")]
    assert [name for name in recipes if f"## {name} {{" not in pages["reference/recipes.md"]] == []


def test_the_reference_has_the_python_api(pages: dict[str, str]) -> None:
    names = [name for name in headwise.__all__ if not name.startswith("_")]
    assert [name for name in names if f"::: headwise.{name}\n" not in pages["reference/python/index.md"]] == []
    (shown,) = re.findall(r"inherited_members: \[(.*)\]", pages["reference/python/index.md"])
    assert {*METHODS, "path", "methods", "network"} <= {*shown.split(", ")}
    assert "::: headwise.models.translation.translator.Translator\n" in pages["reference/python/models.md"]
    assert "::: headwise.core.attention\n" in pages["reference/python/core.md"]


def test_the_reference_has_the_http_api(pages: dict[str, str]) -> None:
    page = pages["reference/http.md"]
    assert "## POST /v1/translate" in page and "| `glossary` |" in page and "| `429` | The queue is full" in page


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("It takes {{ result:unknown.json:seconds }} s.", "unknown.json: no such file"),
        ("It takes 2.5 s.", "without a file of results: 2.5 s"),
        ("It takes [2.5](../../benchmarks/results/unknown.md) s.", "not in unknown.md"),
    ],
)
def test_a_figure_without_a_file_of_results_fails_the_build(page: str, error: str) -> None:
    with pytest.raises(hook("mkdocs.exceptions").PluginError, match=error):
        hook("site_hooks").checked(page, "docs/results/page.md")


def test_every_file_of_results_is_listed() -> None:
    listed = hook("site_hooks").results_table()
    results = (ROOT / "benchmarks" / "results").glob("*.md")
    assert [path.name for path in results if f"]({path.name})" not in listed] == []


def test_a_figure_of_results_is_looked_up() -> None:
    page = "{{ result:bench_2-core-cpu-avx2_2026-11-23.json:train-d256 }}"
    assert hook("site_hooks").checked(page, "docs/results/page.md").startswith("[1.72](")


def test_an_unknown_command_of_latex_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\\unknowncommand"):
        hook("formulas").with_mathml(r'<div class="arithmatex">\[\unknowncommand x\]</div>')


def test_lists_and_tables_may_follow_a_paragraph() -> None:
    text = "Text\n- one\n- two\n\nMore\n| a |\n|---|\n| b |\n\n```\ncode\n- no list\n```\n"
    assert hook("site_hooks").as_on_github(text) == (
        "Text\n\n- one\n- two\n\nMore\n\n| a |\n|---|\n| b |\n\n```\ncode\n- no list\n```\n"
    )


PAGES = sorted((ROOT / "docs").rglob("*.md"))
FROM_ROOT = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")]
GENERATED = ("docs/reference/", "docs/results/files.md")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*PAGES, *FROM_ROOT], ids=name)
def test_links_lead_to_files(page: Path) -> None:
    links = hook("page_links").linked_files(page.read_text(encoding="utf-8"), name(page))
    assert [link for link in links if not (link.startswith(GENERATED) or (ROOT / link).is_file())] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_stands_in_the_navigation(page: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\nhooks:")[0]
    assert re.search(rf"\s{re.escape(name(page).removeprefix('docs/'))}\n", navigation)


def test_links_in_code_stay() -> None:
    text = "```sh\n[a](../README.md)\n```\n`[a](../README.md)` [a](../README.md)"
    found = hook("page_links").links_on_site(text, "docs/index.md", "index.md")
    assert found == text.removesuffix("(../README.md)") + "(index.md)"
