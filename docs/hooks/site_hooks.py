"""What mkdocs does besides showing the pages in docs/.

Pages are generated from the code (`reference_pages`) and from benchmarks/results; figures are looked up there
(`cited_figures`); chapters of the tutorial are executed (`chapters`); links to files outside docs/ lead to their pages
on the site (`page_links`); formulas become MathML.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from chapters import CellFailed, ChapterPage, chapter_paths, download, executed, page_of, with_displays
from cited_figures import RESULTS, bare, missing, with_cited
from formulas import with_mathml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from page_links import PAGES as ROOT_PAGES
from page_links import SOURCE, linked_files, links_on_site, site_path
from reference_pages import PAGES, table

ROOT = RESULTS.parents[1]
TRANSLATOR = ROOT / "build/sentence-model/headwise-en-de.html"  # of `make sentence-model`, or of a release
TRANSLATOR_MARKER = "<!-- translator -->"
TRANSLATOR_LINK = (
    '<a href="translator.html">Translate English to German in your browser</a>: a small model in one page '
    "of four megabytes. It needs no server, and no text leaves your computer."
)
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
    markdown = with_translator(markdown, TRANSLATOR.is_file())
    if origin.startswith("docs/") and not page.file.generated_by:
        markdown = checked(markdown, origin)
    return as_on_github(links_on_site(markdown, origin, page.file.src_uri))


def with_translator(markdown: str, built: bool) -> str:
    """The link to the translator in place of its marker, if it was built.

    >>> with_translator("a\\n<!-- translator -->", built=False)
    'a\\n'
    """
    return markdown.replace(TRANSLATOR_MARKER, TRANSLATOR_LINK if built else "")


def checked(markdown: str, origin: str) -> str:
    """A handwritten page with its figures looked up; `PluginError` for those that are nowhere."""
    try:
        wrong = missing(markdown) + (bare(markdown) if origin.startswith("docs/results/") else [])
        if wrong:
            raise ValueError(f"figures without a file of results: {', '.join(wrong)}")
        return with_cited(markdown)
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
