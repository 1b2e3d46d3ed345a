"""Where files of the repository stand on the site, and links between them.

Pages link to files as they lie in the repository, so that the links also work there. Results, recipes and sources lie
outside docs/; the site has a page for each.
"""

import posixpath
import re
from collections.abc import Callable

PAGES = {  # by path in the repository
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/README.md": "results/method.md",
}
RESULTS = "benchmarks/results/"
RECIPES = "src/headwise/recipes/"
SOURCE = "source/"  # folder of the pages that show a file

CODE = r"^(?P<fence>````?).*?^(?P=fence)|`[^`\n]+`"
TARGET = r"(?P<before>\]\(|^\[[^\]\n]+\]: )(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?"
LINK = re.compile(f"{CODE}|{TARGET}", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str:
    """Where a file of the repository stands on the site.

    >>> site_path("docs/how-to/web.md"), site_path("benchmarks/results/a.json"), site_path("src/headwise/errors.py")
    ('how-to/web.md', 'results/a.json', 'source/src/headwise/errors.py.md')
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(RESULTS):
        return f"results/{path.removeprefix(RESULTS)}"
    if path.startswith(RECIPES):
        return "reference/recipes.md"
    return PAGES.get(path) or f"{SOURCE}{path}.md"


def map_links(markdown: str, origin: str, change: Callable[[str, str], str]) -> str:
    """`markdown` with every relative link to another file replaced by `change(path in the repository, anchor)`.

    `origin` is the page's own path in the repository. Code stays as it is.
    """

    def changed(found: re.Match[str]) -> str:
        target = found["path"]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        return found["before"] + change(path, found["anchor"] or "")

    return LINK.sub(changed, markdown)


def linked_files(markdown: str, origin: str) -> set[str]:
    """The paths in the repository that a page links to.

    >>> linked_files("[a](../README.md#b), `[c](d.md)`", "docs/index.md")
    {'README.md'}
    """
    found: set[str] = set()
    map_links(markdown, origin, lambda path, anchor: found.add(path) or "")
    return found


def links_on_site(markdown: str, origin: str, place: str) -> str:
    """A page of the repository with links as they are on the site, where it stands at `place`.

    >>> links_on_site("[a](src/headwise/recipes/tiny.toml)", "CHANGELOG.md", "project/changelog.md")
    '[a](../reference/recipes.md#tiny)'
    """

    def changed(path: str, anchor: str) -> str:
        if path.startswith(RECIPES):
            anchor = f"#{posixpath.basename(path).removesuffix('.toml')}"
        return posixpath.relpath(site_path(path), posixpath.dirname(place) or ".") + anchor

    return map_links(markdown, origin, changed)
