"""reStructuredText: what is a text, and docutils finds the same elements in a file and its filling."""

from collections import Counter
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.markup.inline_boundaries import may_follow_markup, may_precede_markup
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.reading import parse_document
from headwise.documents.unit import Code, Parts, UnitState, codes_of, plain

FILE = """:Author: Nobody

=====
Title
=====

Intro to `the title`_ and `Other`_, with *some
emphasis*, **bold words**, ``code *x*`` and |sub| [1]_ link_ `a link <http://x.org>`_.
The default `role` and (*) 2 * 3.

The Title
---------

- item one
  goes on

  second paragraph
- :pep:`8` is a role: no field
- ``term``
    definition
- item two

  1. nested
  2. other

term : classifier
    definition

Some lines before
an indented one
  - not a list

:param x: the x
:returns: text
    goes on

        quoted

.. note:: This is a note
   over lines::

       literal

.. warning::

   Beware.

.. admonition:: With a title

   Text.

.. code::

   x = 1

.. figure:: a.png
   :alt: a

   The caption.

Example::

   literal text

   more

After it::

> quoted
> literal

>>> session
text

+----+----+
| a  | b  |
+----+----+

==== ====
a    b
==== ====
c    d

e    f
==== ====

| line one
| line two

.. |sub| replace:: text
.. _link: http://a
.. _Other: http://b
.. comment text
.. [1] A footnote
   over lines

     with a quotation

-v          an option
--long=FILE  another

A. Einstein was here.
And there.
"""


def texts(content: str) -> list[str]:
    units = parse_document("a.rst", content.encode()).units
    return [plain(unit.source) for unit in units if unit.state is UnitState.UNTRANSLATED]


def shouted(content: str) -> str:
    document = parse_document("a.rst", content.encode())
    changed = {
        number: tuple(part.upper() if isinstance(part, str) else part for part in with_codes(unit.source, unit.markup))
        for number, unit in enumerate(document.units)
        if unit.state is UnitState.UNTRANSLATED
    }
    return document.filled(changed).decode()


def elements(content: str) -> list[str]:
    """The elements that docutils finds, without messages, and without targets, which a title may get."""
    settings: dict[str, Any] = {"report_level": 5, "halt_level": 6, "file_insertion_enabled": False}
    tree = publish_doctree(content, settings_overrides=settings)
    for message in list(tree.findall(nodes.system_message)):
        message.parent.remove(message)
    return [node.tagname for node in tree.findall() if not isinstance(node, nodes.Text | nodes.target)]


def test_what_is_a_text() -> None:
    assert texts(FILE) == [
        "Title",
        "Intro to `the title <the title_>`_ and `Other <Other_>`_, with *some emphasis*, **bold words**, ``code *x*`` "
        "and |sub| [1]_ link_ `a link <http://x.org>`_. The default `role` and (*) 2 * 3.",
        *("The Title", "item one goes on", "second paragraph", ":pep:`8` is a role: no field"),
        *("``term``", "definition", "item two", "nested", "other", "term : classifier"),
        *("definition", "Some lines before an indented one", "not a list", "the x", "text goes on", "quoted"),
        *("This is a note over lines", "Beware.", "With a title", "Text.", "The caption.", "Example", "After it"),
        *("line one", "line two", "A footnote over lines", "with a quotation", "an option", "another"),
        "A. Einstein was here. And there.",
    ]
    assert parse_document("a.rst", FILE.encode()).filled({}).decode() == FILE


def test_docutils_finds_the_same_elements() -> None:
    found = shouted(FILE)
    assert elements(found) == elements(FILE)
    assert "problematic" not in elements(found)
    assert "*SOME EMPHASIS*, **BOLD WORDS**, ``code *x*`` AND |sub| [1]_ link_ `A LINK <http://x.org>`_." in found


def test_what_stays_is_counted() -> None:
    kinds = Counter(one.kind for one in parse_document("a.rst", FILE.encode()).skipped)
    assert kinds == {
        **{"literal block": 3, "table": 2, "code": 1, "directive code": 1, "substitution": 1},
        "a field of the document": 1,
    }


@pytest.mark.parametrize(
    "content,translation,expected",
    [
        ("Dogs\n====\n", ("Viele Hunde",), "Viele Hunde\n===========\n"),
        ("Dogs\n====\n", ("狗狗狗",), "狗狗狗\n======\n"),
        ("====\nDogs\n====\n", ("Hunde",), "=====\nHunde\n=====\n"),
        ("A dog\r\n=====\r\n\r\n`A dog`_", ("Hund",), ".. _A dog:\r\n\r\nHund\r\n=====\r\n\r\n`A dog`_"),
        ("A dog", ("- Hund",), "\\- Hund"),
        ("A dog", (".. Hund",), "\\.. Hund"),
        ("A dog", ("1. Hund",), "\\1. Hund"),
        ("A *b* c", ("我", Code("*"), "们", Code("*"), "的"), "我\\ *们*\\ 的"),
        ("A *b* c", ("A", Code("*"), " b ", Code("*"), "c."), "A *b* c."),
        ("A ``b`` c", ("A", Code("``b``"), "c"), "A\\ ``b``\\ c"),
        ("See `b c`_.", ("S", Code("`"), "d", Code(" <b c_>`_"), "e"), "S\\ `d <b c_>`_\\ e"),
        (".. note:: a\n   b\n", ("C",), ".. note:: \n   C\n"),
        ("a b\nc d::\n   e\n", ("aaaa .. bbb",), "aaaa ..\nbbb::\n   e\n"),  # two lines, and the end stays "::"
        ("a b\nc d::\n   e\n", ("ab",), "\\\nab::\n   e\n"),
        ("a b\nc d\n   e\n", ("ab",), "ab\n\\\n   e\n"),
    ],
)
def test_a_translation_is_valid_where_it_stands(content: str, translation: Parts, expected: str) -> None:
    assert parse_document("a.rst", content.encode()).filled({0: translation}).decode() == expected


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        (("A", Code("*"), "b", Code("*"), "(c)"), "A\\ *b*\\ (c)"),
        (("(c)", Code("*"), "b", Code("*"), "[d]"), "(c)\\ *b*\\ [d]"),
        (("(", Code("*"), "b", Code("*"), "), \"", Code("``e``"), '"'), '(*b*), "``e``"'),
        (("\u300c", Code("*"), "b", Code("*"), "\u3002", Code("``e``"), "\u3002"), "\u300c*b*\u3002``e``\u3002"),
        ((Code("*"), "b", Code("*"), Code("``e``"), "%"), "*b*\\ ``e``\\ %"),
        (("=", Code("[1]_"), "$", Code("``e``"), "_"), "=\\ [1]_\\ $\\ ``e``\\ _"),
    ],
)  # fmt: skip
def test_inline_markup_beside_punctuation_is_seen_by_docutils(translation: Parts, expected: str) -> None:
    found = parse_document("a.rst", b"A *b* ``e``\n").filled({0: translation}).decode()
    assert found == expected + "\n"
    codes = [code.text for code in translation if isinstance(code, Code)]
    tags = elements(found)
    assert tags.count("emphasis") == codes.count("*") // 2 and tags.count("literal") == codes.count("``e``")


def test_stars_that_are_no_markup_stay_characters() -> None:
    content = "f(a)*b*(c) and (*b*) and 2)*\n"
    assert shouted(content) == "F(A)*B*(C) AND (*B*) AND 2)*\n"


@pytest.mark.parametrize(
    "letter", list("()[]{}<>'\"-/:\\.,;!?%&#@_~^$=+\u2019\u201e\u00ab\u00bb\u3001\u3008\u300b\u00a7\u00b0\u2013a\u00e4")
)
def test_characters_beside_inline_markup_are_those_of_docutils(letter: str) -> None:
    before, after = elements(f"a {letter}*b* c").count("emphasis"), elements(f"a *b*{letter} c").count("emphasis")
    assert (may_precede_markup(letter), may_follow_markup(letter)) == (bool(before), bool(after))


@pytest.mark.parametrize("letter", list("()[]{}<>'\"/\\.,;!?%&#~^$=+"))
def test_references_are_those_of_docutils(letter: str) -> None:
    for text in (f"a {letter}link_ b", f"a link_{letter}b c", f"a b{letter}link_{letter}c d"):
        codes = [part.text for part in with_codes((text,), "restructuredtext") if isinstance(part, Code)]
        found = elements(f"{text}\n\n.. _link: http://x.org\n")
        assert ("link_" in codes) == ("reference" in found), text


def test_underscores_within_names_are_no_references() -> None:
    assert shouted("Use array_{get,set}slice or if_(all)_close\n") == "USE ARRAY_{get,set}SLICE OR IF_(ALL)_CLOSE\n"


@pytest.mark.parametrize("blank", ["\f", "\v"])
@pytest.mark.parametrize(
    "content",
    ["Text.\n\n..{} Settings\n\n   mode: x\n", "Text.\n{}\n- a\n{} b\n", "A{}b\n\n{}Quoted\n\nDogs{}\n====\n"],
)
def test_form_feeds_are_blanks(content: str, blank: str) -> None:
    content = content.replace("{}", blank)
    assert parse_document("a.rst", content.encode()).filled({}).decode() == content
    assert elements(shouted(content)) == elements(content)
    assert texts(content) == texts(content.replace(blank, " "))


@pytest.mark.parametrize("end", ["\x1c", "\x85", "\u2028"])
def test_lines_end_where_docutils_ends_them(end: str) -> None:
    content = f".. c{end}{end}Text{end}{end}   Quoted\n"
    assert texts(content) == ["Text", "Quoted"]
    assert elements(shouted(content)) == elements(content)


PIECES = [
    *(
        "a",
        " B",
        "\n",
        "\n\n",
        "   ",
        "- ",
        "1. ",
        ":a: ",
        ".. ",
        "note:: ",
        "::",
        "====",
        "----",
        "*",
        "**",
        "`",
        "`_",
    ),
    *(
        "_",
        "|",
        "| ",
        "``",
        ">>> ",
        "+--+",
        "=== ===",
        "\t",
        "\r\n",
        "\\",
        "[1]_",
        ".. [1] ",
        ".. _a: ",
        "-a  ",
        "x.\n",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_file_comes_back(content: str) -> None:
    document = parse_document("a.rst", content.encode())
    assert document.filled({}).decode() == content
    document.filled({number: with_codes(one.source, one.markup) for number, one in enumerate(document.units)})


def test_bars_inside_words_are_no_substitutions() -> None:
    document = parse_document("a.rst", b"An option_name|-o|-O and |sub| here\n")
    codes = [code.text for code in codes_of(with_codes(document.units[0].source, "restructuredtext"))]
    assert codes == ["|sub|"]
