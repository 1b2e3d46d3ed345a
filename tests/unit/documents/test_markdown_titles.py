"""Titles of links, images and definitions: `markdown-it-py` reads the translations, and everything else as before."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from headwise.documents.reading import parse_document
from headwise.documents.unit import Code, plain

PAGES = (  # `@` is a title with its quotes
    "# A [b](c.md @) d\n\n![e](f.png @) g [h](<i j> @)[k](<> @){ .l } m\n",
    "[a](b @)\n\n[a]( b_(c)_(d(e)) @ )\n\n**[c](d @)**",
    "[![e](f @)](g @)\n\n- [ ] h [`i`](j @)\n  1. k ![l](m\n     @) n\n",
    "> A [b](c\n> @) d *e\n> [f](g @)*\n\nh ![i](j (k) 'l'){ m=n } [o](p @) [q](r @)\n--\n",
    "| a | [b](c @) d ![e](f @) |\n|---|---|\n| [g](h @) | i [j](k @) |\n\nl <!-- m [n](o @) `p` x < y [q](r @)\n",
    "[a], [b c][d], ![e] f\n\n[A]: g @\n[d]: <h i>\n   @\n\n- > [e]:\n  > j\n  > @\n  > [e]: k @\n\nl\n\n[m]: n @ o\n",
)
QUOTES = ('""', "''", "()")
CHARACTERS = st.sampled_from(
    [*"\"'()<>[]`|\\&#*_!${}%~: \t\r\nabZ5.\u00e9\u2028", "&amp;", "&#124", "```", "-->", "\n\n"]
)
TEXTS = st.lists(CHARACTERS, max_size=12).map("".join)


def read(page: str) -> tuple[list[str], list[Any]]:
    """The titles of a page, and everything else that a reader of CommonMark finds in it."""
    environment: dict[str, Any] = {}
    titles, rest = [], []
    tokens = MarkdownIt("commonmark").enable("table").parse(page, environment)
    for token in [one for block in tokens for one in (block, *(block.children or ()))]:
        titles += [str(token.attrs.pop("title", ""))] if token.type in ("link_open", "image") else []
        text = " " if token.type == "softbreak" else token.content
        if token.type not in ("text", "softbreak", "inline"):
            rest.append((token.type, token.tag, token.attrs, text))
        elif token.type != "inline":
            rest.append(collapsed(f"{rest.pop()} {text}" if isinstance(rest[-1], str) else text))
    for one in [*environment.get("references", {}).values(), *environment.get("duplicate_refs", ())]:
        titles.append(one.pop("title"))
        rest.append(sorted((name, value) for name, value in one.items() if name != "map"))
    return titles, rest


def escaped(text: str, with_backslashes: bool) -> str:
    """As it can be in a title in any quotes; a pipe, also with a backslash, can make a line a table."""
    text = re.sub("[\r\n]", " ", text)
    return re.sub(r"[\\&|\"'()<>`]", lambda found: f"\\{found[0]}" if with_backslashes else f"&#{ord(found[0])};", text)


def collapsed(text: str) -> str:
    return re.sub("[ \t\r\n]+", " ", text).strip()


@given(st.sampled_from(PAGES), st.sampled_from(QUOTES), st.lists(TEXTS, min_size=2, max_size=2), st.booleans())
@example(PAGES[0], '""', ['a "b" {c}', 'say "{c}" &quot; \\'], True)
@example(PAGES[3], "()", ["a | b", "c | (d) \\|"], False)
def test_a_link_stays_a_link_with_any_title(page: str, quotes: str, texts: list[str], with_texts: bool) -> None:
    before, after = texts[0].replace("|", "") if with_texts else texts[0], texts[1]
    page = page.replace("@", f"{quotes[0]}a{escaped(before, with_texts)}{quotes[1]}")
    document = parse_document("a.md", page.encode())
    assert document.filled({}).decode() == page
    title = collapsed(f"a{before}")
    units = list(enumerate(document.units))
    own = {number for number, unit in units if not unit.markup}
    assert {plain(document.units[number].source) for number in own} == {title}
    targets = {
        number: (after,) if number in own else unit.source for number, unit in units if with_texts or number in own
    }
    found = document.filled(targets).decode()
    (titles, rest), (new_titles, new_rest) = read(page), read(found)
    assert list(map(collapsed, titles)) == [title if one else "" for one in titles]
    assert list(map(collapsed, new_titles)) == [collapsed(after) if one else "" for one in titles]
    assert new_rest == rest
    same = document.filled({number: unit.source for number, unit in units if number in own}).decode()
    assert same == page


def test_titles_are_translated_inside_of_reordered_texts() -> None:
    document = parse_document("a.md", b"A [b](c 'D {n}') and ![e](f\n\"G\")\n")
    text, first, second = document.units
    link, image = (part for part in text.source if isinstance(part, Code) and part.text.startswith("]"))
    turned = (Code("!["), "e", image, " [", "b", link, " x")
    assert (
        document.filled({0: turned, 1: (Code("{n}"), "'s D"), 2: ("H",)}) == b"![e](f\n\"H\") [b](c '{n}&#39;s D') x\n"
    )
    assert document.filled({1: ("I",)}) == b"A [b](c 'I') and ![e](f\n\"G\")\n"
    assert (first.line, second.line) == (1, 2)


def test_comments_and_titles_of_code_stay() -> None:
    page = "`[a](b 'C')` {% raw %}[a](b 'C')\n{% endraw %} [d](\"e\") [e](f \"\")\n\n"
    page += "[//]: # (No text)\n[g]: <> 'No text'\n"
    document = parse_document("a.md", page.encode())
    assert len(document.units) == 1
    assert [(one.kind, one.line, one.text) for one in document.skipped] == [
        ("comment", 4, "No text"),
        ("comment", 5, "No text"),
    ]


def test_brackets_of_a_translation_do_not_end_a_link_with_a_translated_title() -> None:
    document = parse_document("a.md", b"See [here](a.md 'A dog').\n")
    _, begins, _, ends, _ = document.units[0].source
    filled = document.filled({0: ("Siehe ", begins, "da] [so", ends, "."), 1: ("Hund",)})
    assert filled == b"Siehe [da\\] \\[so](a.md 'Hund').\n"
