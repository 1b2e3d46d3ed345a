"""Chapters of the tutorial: text notebooks in docs/tutorial/, executed and published with their outputs.

`HEADWISE_TUTORIAL=small` executes them at the size of the tests. Executed notebooks are kept in build/tutorial, and are
executed again when the chapter, its size or a source of the package changes. A cell that fails fails the build, unless
it has the tag `raises-exception`.
"""

import base64
import hashlib
import html
import os
import re
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from page_links import map_links, site_path

from headwise.lab.tutorial import VARIABLE, tutorial_size

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ROOT / "docs/tutorial"
CACHE = ROOT / "build/tutorial"
PACKAGE = ROOT / "src/headwise"
SOURCES = {".py", ".toml", ".c", ".h", ".js", ".css", ".html"}
HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)  # of mkdocs
LONGEST = 3600  # seconds for a cell


class CellFailed(Exception):
    """A cell of a chapter raised an error; the message names chapter and cell."""


def chapter_paths() -> list[Path]:
    """The chapters in their order."""
    return sorted(CHAPTERS.glob("[0-9]*-*.md"))


def notebook_of(text: str) -> Any:
    """A chapter as a notebook that was not executed."""
    import jupytext

    notebook = jupytext.reads(HEADER.sub("", text), fmt="md")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # jupytext's are random
        if "hide-input" in cell.metadata.get("tags", ()):
            cell.metadata["jupyter"] = {"source_hidden": True}
    return notebook


def executed(path: Path, execute: Callable[[Any, str], None] | None = None) -> Any:
    """The notebook of a chapter with its outputs, from the cache if nothing has changed.

    `execute(notebook, name)` fills in the outputs.
    """
    import nbformat

    text = path.read_text(encoding="utf-8")
    kept = CACHE / f"{path.stem}.{tutorial_size()}.{_fingerprint(text)}.ipynb"
    if kept.is_file():
        return nbformat.read(kept, as_version=4)
    notebook = notebook_of(text)
    (execute or run_cells)(notebook, path.name)
    CACHE.mkdir(parents=True, exist_ok=True)
    for old in CACHE.glob(f"{path.stem}.{tutorial_size()}.*.ipynb"):
        old.unlink()
    nbformat.write(notebook, kept)
    return notebook


def _fingerprint(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8"))
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in SOURCES):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def run_cells(notebook: Any, name: str) -> None:
    """Execute all cells in a new process, in an empty folder.

    Raises:
        CellFailed: a cell raised an error or took longer than an hour, or the process died.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory() as folder:
        places = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources=places)
        client.extra_arguments = ["--log-level=ERROR"]
        own = {"IPYTHONDIR": f"{folder}/.ipython", VARIABLE: tutorial_size()}
        paths = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        try:
            client.execute(env={**os.environ, **own, "PYTHONPATH": paths})
        except CellExecutionError as error:
            raise CellFailed(f"{name}, {_failed_cell(notebook)}: {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise CellFailed(f"{name}: {error}") from None
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times


def _failed_cell(notebook: Any) -> str:
    """The last executed cell: its number among the cells with code, and its first line."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    failed = [number for number, cell in enumerate(cells) if any(o.output_type == "error" for o in cell.outputs)][-1]
    return f"cell {failed + 1} ({cells[failed].source.splitlines()[0]})"


# From a notebook to a page --------------------------------------------------------------------------------------------


@dataclass
class ChapterPage:
    """An executed chapter for the site."""

    markdown: str = ""
    pictures: dict[str, bytes] = field(default_factory=dict)  # PNG files by name
    displays: list[str] = field(default_factory=list)  # HTML in place of the markers `<div data-display="0"></div>`


def page_of(notebook: Any, stem: str) -> ChapterPage:
    """The page of a chapter; its pictures are named after `stem`, the name of its file."""
    page = ChapterPage()
    parts = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            parts.append(cell.source)
            continue
        code = fence(cell.source, "python")
        if "hide-input" in cell.metadata.get("tags", ()):
            code = '??? note "Set-up"\n\n' + textwrap.indent(code, "    ")
        parts.append(code)
        parts += [_output(output, cell.metadata.get("alt", ""), stem, page) for output in _merged(cell.outputs)]
    parts.insert(1, f"[Download this chapter as a notebook]({stem}.ipynb){{ download }}")
    page.markdown = "\n\n".join(parts) + "\n"
    return page


def _merged(outputs: Sequence[Any]) -> Iterator[Any]:
    """The outputs, with text that was printed in several parts as one."""
    printed = [output for output in outputs if output.output_type == "stream"]
    if printed:
        yield {"output_type": "stream", "text": "".join(output.text for output in printed)}
    yield from (output for output in outputs if output.output_type != "stream")


def _output(output: Any, alt: str, stem: str, page: ChapterPage) -> str:
    """An output in Markdown; a picture or display also becomes part of `page`."""
    if output["output_type"] == "stream":
        return fence(output["text"].rstrip("\n"), "{ .text .output }")
    if output["output_type"] == "error":
        return fence(f"{output['ename']}: {output['evalue']}", "{ .text .output }")
    data = output["data"]
    if "text/html" in data:
        page.displays.append(data["text/html"])
        return f'<div class="display" data-display="{len(page.displays) - 1}"></div>'
    if "text/markdown" in data:
        return data["text/markdown"]
    if "image/png" in data:
        name = f"{stem}-{len(page.pictures) + 1}.png"
        page.pictures[name] = base64.b64decode(data["image/png"])
        return f"![{html.escape(alt)}]({name})"
    return fence(data.get("text/plain", ""), "{ .text .output }")


def fence(code: str, language: str) -> str:
    """A block of code in Markdown, whatever its text.

    >>> fence("1 + 1", "python")
    '```python\\n1 + 1\\n```'
    """
    marks = "````" if "```" in code else "```"
    return f"{marks}{language}\n{code}\n{marks}"


def with_displays(page: str, displays: Sequence[str]) -> str:
    """The HTML of a page with the displays in place of their markers.

    >>> with_displays('<div class="display" data-display="0"></div>', ["<b>figure</b>"])
    '<div class="display"><b>figure</b></div>'
    """
    marker = re.compile(r'(<div class="display") data-display="(\d+)">(?=</div>)')
    return marker.sub(lambda found: f"{found[1]}>{displays[int(found[2])]}", page)


def download(notebook: Any, path: str) -> str:
    """The file of a notebook, with links to other pages of the site as they are on the web.

    `path` is that of the chapter in the repository.
    """
    import nbformat

    site = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]
    copy: Any = nbformat.from_dict(notebook)

    def on_the_web(linked: str, anchor: str) -> str:
        place = site_path(linked)
        page = f"{place.removesuffix('.md').removesuffix('index')}/" if place.endswith(".md") else place
        return site + page + anchor

    for cell in copy.cells:
        if cell.cell_type == "markdown":
            cell.source = map_links(cell.source, path, on_the_web)
    return nbformat.writes(copy)
