"""What mkdocs does besides showing the pages in docs/.

Pages are generated from the code (`reference_pages`) and from benchmarks/results; figures are looked up there
(`cited_figures`, `speed_table`); chapters of the tutorial are executed (`chapters`); links to files outside docs/ lead
to their pages on the site (`page_links`); formulas become MathML.
"""

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from chapters import CellFailed, ChapterPage, chapter_paths, download, executed, page_of, with_displays
from cited_figures import RESULTS, bare, missing, with_cited
from formulas import with_mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from page_links import PAGES as ROOT_PAGES
from page_links import SOURCE, linked_files, links_on_site, site_path
from reference_pages import PAGES, table
from speed_table import with_speed_table

ROOT = RESULTS.parents[1]
# The page of the English-German model: of `make sentence-model`, of a release, or another one. In a page of several
# models, such as that of `make course-models`, it is the one named sentences.
TRANSLATOR_VARIABLE = "HEADWISE_SENTENCE_MODEL"
TRANSLATOR = ROOT / os.environ.get(TRANSLATOR_VARIABLE, "build/sentence-model/headwise-en-de.html")
TRANSLATOR_MARKER = "<!-- translator -->"
TRANSLATOR_TEXT = "Where did you buy that book?"
# The first card of the tour; a browser loads the page when it comes near the window.
TRANSLATOR_FRAME = f"""<details class="walk" markdown="0" open>
<summary><strong>Learn the Transformer in your browser</strong>: a tour in cards, with the numbers of a small
English-German model for your own sentence, {{size}}. It needs no server, and no text leaves your computer.</summary>
<iframe src="translator.html#view=tour&amp;text={quote(TRANSLATOR_TEXT)}&amp;model=sentences"
title="English-German model" loading="lazy"></iframe>
</details>

<a href="translator.html">The same model on a page of its own</a>, for translating."""
TRANSLATOR_PICTURE = """[![A page that translates and shows a step of its computation: the attention weights of
one head](how-to/web-walk.png)](how-to/web.md)

One HTML file [translates in any browser and shows every step of the computation](how-to/web.md), without a server."""
# In a chapter, a link to a card of the tour on a line of its own; notebooks show the link.
CARD = re.compile(
    r"^\[(?P<title>Card: [^\]]+)\]\(https://[^)\s]+/translator\.html#(?P<place>view=tour&card=[^)\s]+)\)$", re.MULTILINE
)
CARD_FRAME = """<iframe class="card" src="{address}" title="{title}" loading="lazy"></iframe>
<p class="card"><a href="{address}">{title}</a>, on a page of its own</p>"""
CHAPTERS: dict[str, ChapterPage] = {}  # executed, by path in the repository
FENCE = {".py": "python", ".toml": "toml", ".c": "c", ".h": "c", ".sh": "sh"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated, and one for every file outside docs/ that a page links to."""
    for place, write in PAGES.items():
        files.append(File.generated(config, place, content=write()))
    for path in (name for name in ROOT_PAGES if name != "README.md"):
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    for path in sorted(RESULTS.iterdir()):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "results/files.md", content=results_table()))
    for path in chapter_paths():
        _add_chapter(path, files, config)
    check_translator()
    if TRANSLATOR.is_file():
        files.append(File.generated(config, "translator.html", abs_src_path=str(TRANSLATOR)))
    for path in sorted(_linked(files)):
        if site_path(path).startswith(SOURCE) and (ROOT / path).is_file():
            files.append(File.generated(config, site_path(path), content=source_page(path)))
    return files


def _add_chapter(path: Path, files: Files, config: MkDocsConfig) -> None:
    """Execute a chapter of the tutorial, and add its pictures and its notebook to download."""
    try:
        notebook = executed(path)
    except CellFailed as error:
        raise PluginError(f"docs/tutorial/{error}") from None
    place = path.relative_to(ROOT)
    page = CHAPTERS[place.as_posix()] = page_of(notebook, path.stem)
    files.append(File.generated(config, f"tutorial/{path.stem}.ipynb", content=download(notebook, place.as_posix())))
    for name, picture in page.pictures.items():
        files.append(File.generated(config, f"tutorial/{name}", content=picture))


def _linked(files: Files) -> Iterator[str]:
    for file in files.documentation_pages():
        yield from linked_files(file.content_string, origin_of(file))


def origin_of(file: File) -> str:
    """The path in the repository of what a page shows."""
    path = Path(file.abs_src_path).relative_to(ROOT) if file.abs_src_path else Path("docs", file.src_uri)
    return path.as_posix()


def source_page(path: str) -> str:
    """A file of the repository as a page, which the search leaves out."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = FENCE.get(Path(path).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n````{language}\n{text}\n````\n"


def results_table() -> str:
    """All files of results."""
    rows = [_result_row(path) for path in sorted(RESULTS.glob("*.md"))]
    about = "Each page names the command, the processor and the versions."
    return f"# All results\n\n{about}\n\n" + table(("Result", "File", "Machine", "Date", "Data"), rows)


def _result_row(path: Path) -> tuple[str, str, str, str, str]:
    name, machine, date = path.stem.rsplit("_", 2)
    title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    data = path.with_suffix(".json")
    return f"[{title}]({path.name})", name, machine, date, f"[JSON]({data.name})" if data.is_file() else ""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Look up figures and rewrite links; the build fails for a figure without a file of results.

    Raises:
        PluginError: a figure is not in the file that the page names, or a page of results names none.
    """
    origin = origin_of(page.file)
    markdown = CHAPTERS[origin].markdown if origin in CHAPTERS else markdown
    markdown = with_cards(with_translator(markdown, TRANSLATOR), TRANSLATOR, page.url)
    if origin.startswith("docs/") and not page.file.generated_by:
        markdown = checked(markdown, origin)
    return as_on_github(links_on_site(markdown, origin, page.file.src_uri))


def with_translator(markdown: str, translator: Path) -> str:
    """The translator in place of its marker, or a picture if it was not built.

    >>> with_translator("<!-- translator -->", Path("missing.html"))[:20]
    '[![A page that trans'
    """
    if TRANSLATOR_MARKER not in markdown:
        return markdown
    if not translator.is_file():
        return markdown.replace(TRANSLATOR_MARKER, TRANSLATOR_PICTURE)
    size = f"{translator.stat().st_size / 1e6:.1f} MB"
    return markdown.replace(TRANSLATOR_MARKER, TRANSLATOR_FRAME.format(size=size))


def with_cards(markdown: str, translator: Path, url: str) -> str:
    """The cards of a chapter in place of the links to them, or only the links if the page of the cards was not built.

    >>> with_cards("[Card: A](https://a.b/translator.html#view=tour&card=a)", Path("missing.html"), "tutorial/1/")
    '[Card: A](https://a.b/translator.html#view=tour&card=a)'
    """

    def framed(found: re.Match[str]) -> str:
        address = f"{get_relative_url('translator.html', url)}#{found['place']}&model=sentences"
        return CARD_FRAME.format(address=html.escape(address), title=html.escape(found["title"]))

    return CARD.sub(framed, markdown) if translator.is_file() else markdown


def check_translator() -> None:
    """`PluginError` if the named page does not exist."""
    if os.environ.get(TRANSLATOR_VARIABLE) and not TRANSLATOR.is_file():
        raise PluginError(f"{TRANSLATOR_VARIABLE} = {TRANSLATOR}: no such file; unset it, or run `make sentence-model`")


def checked(markdown: str, origin: str) -> str:
    """A handwritten page with its figures looked up; `PluginError` for those that are nowhere."""
    try:
        wrong = missing(markdown) + (bare(markdown) if origin.startswith("docs/results/") else [])
        if wrong:
            raise ValueError(f"figures without a file of results: {', '.join(wrong)}")
        return with_cited(with_speed_table(markdown, RESULTS))
    except ValueError as error:
        raise PluginError(f"{origin}: {error}") from None


def as_on_github(markdown: str) -> str:
    """Lists and tables may follow a paragraph without an empty line, as on GitHub.

    >>> as_on_github("Text:\\n- one\\n- two")
    'Text:\\n\\n- one\\n- two'
    """
    blocks = [block for block in re.split(r"(^```+.*?^```+$)", markdown, flags=re.MULTILINE | re.DOTALL)]
    return "".join(block if block.startswith("```") else _apart(block) for block in blocks)


def _apart(text: str) -> str:
    """Text without code, with an empty line before each list and table."""
    start = r"(?:[-*] |1\. |\|)"
    return re.sub(rf"^((?!{start}|\d+\. |[ #|>])[^\n]*\S[^\n]*)\n(?={start})", r"\1\n\n", text, flags=re.MULTILINE)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, and displays of a chapter are put in their places."""
    chapter = CHAPTERS.get(origin_of(page.file))
    try:
        return with_displays(with_mathml(html), chapter.displays if chapter else ())
    except ValueError as error:
        raise PluginError(f"{origin_of(page.file)}: {error}") from None
