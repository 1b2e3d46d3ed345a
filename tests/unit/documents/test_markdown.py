"""Dialects of Markdown: their markup stays, their texts are units, and `Python-Markdown` sees the same elements."""

import re
from urllib.parse import unquote

import markdown
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.documents.formats.markdown_dialects import masked_dialects
from headwise.documents.markup.inline_boundaries import inline_markdown
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.reading import parse_document
from headwise.documents.unit import CLOSES, OPENS, Code, UnitState, plain


def texts(page: str) -> list[str]:
    units = parse_document("a.md", page.encode()).units
    return [plain(unit.source) for unit in units if unit.state is UnitState.UNTRANSLATED]


def shouted(page: str) -> str:
    """A page whose words are capitals."""
    document = parse_document("a.md", page.encode())
    changed = {
        number: tuple(part.upper() if isinstance(part, str) else part for part in with_codes(unit.source, unit.markup))
        for number, unit in enumerate(document.units)
        if unit.state is UnitState.UNTRANSLATED
    }
    return document.filled(changed).decode()


@pytest.mark.parametrize(
    "page,expected",
    [
        ('!!! note "A *title*"\n    b\n    c\n\n    d', '!!! note "A *TITLE*"\n    B C\n\n    D'),
        ('??? tip\n\n    b\n\n???+ note ""\n    c\n\n', '??? tip\n\n    B\n\n???+ note ""\n    C\n\n'),
        ('!!! quote inline end "a"\n    b\nc', '!!! quote inline end "A"\n    B C'),
        (
            '=== "a"\n\n    - c\n\n        d\n=== "E"\n    ```\n    f\n    ```',
            '=== "A"\n\n    - C\n\n        D\n=== "E"\n    ```\n    f\n    ```',
        ),
        ("Term\n:   Text\n    more\n\n: b", "TERM\n:   TEXT MORE\n\n: B"),
        ("a[^1]\n\n[^1]: b\n    c\n\n    d\n[^long-x]:\n    e", "A[^1]\n\n[^1]: B C\n\n    D\n[^long-x]:\n    E"),
        ("*[HTML]: hyper text\n*[CSS]: b", "*[HTML]: HYPER TEXT\n*[CSS]: B"),
        ("[a](b){ .md-button target=_blank } c", "[A](b){ .md-button target=_blank } C"),
        (
            "# a {#b .c}\n\nd\n{: .e #f }\n\n![g](h){ loading=lazy }",
            "# A {#b .c}\n\nD\n{: .e #f }\n\n![G](h){ loading=lazy }",
        ),
        (":smile: :material-a-b:{ .c } d :e 10:20:30 f: g", ":smile: :material-a-b:{ .c } D :E 10:20:30 F: G"),
        (r"a $x_i=b$, \(c\) $$d$$ $5 e $6", r"A $x_i=b$, \(c\) $$d$$ $5 E $6"),
        (
            "a\n$$\nx = y\n- z\n$$\nb\n\n\\[\nc\n\\]\n\n\\[ d = e \\]",
            "A\n$$\nx = y\n- z\n$$\nB\n\n\\[\nc\n\\]\n\n\\[ d = e \\]",
        ),
        (
            "++ctrl+alt+a++ ==b== ^^c^^ H~2~O x^n^ {++d++} {--e--}",
            "++ctrl+alt+a++ ==B== ^^C^^ H~2~O X^n^ {++D++} {--E--}",
        ),
        (
            '--8<-- "a.md"\n\na\n\n--8<--\n\n[TOC]\n\n[[_TOC_]]\n[[b c]]',
            '--8<-- "a.md"\n\nA\n\n--8<--\n\n[TOC]\n\n[[_TOC_]]\n[[b c]]',
        ),
        ("/// note | a b\n    type: c\n\nd\n///", "/// note | A B\n    type: c\n\nD\n///"),
        (":::tip[A b]\nc\n:::\n\n::: details D {open}\ne\n:::", ":::tip[A B]\nC\n:::\n\n::: details D {open}\nE\n:::"),
        ("::::{note} a\n:class: b\n:::{tip}\nc\n:::\n::::\nd", "::::{note} A\n:class: b\n:::{tip}\nC\n:::\n::::\nD"),
        ("```{warning} a\n:name: b\n\nc `d`\n```\ne", "```{warning} A\n:name: b\n\nC `d`\n```\nE"),
        ("```{code} a\nb\n```\n\n:::{math}\nc\n:::\nd", "```{code} a\nb\n```\n\n:::{math}\nc\n:::\nD"),
        ("(a)=\n# b {ref}`c <d>` {a}`e`\n\n% no\n+++ no\n", "(a)=\n# B {ref}`c <d>` {a}`e`\n\n% no\n+++ no\n"),
        ("> [!NOTE]\n> a\n> b\n\n> [!tip]- A b\n> c", "> [!NOTE]\n> A B\n\n> [!tip]- A B\n> C"),
        (
            "{% raw %}\na {{ b }} {% if c %}d{% endif %}\n{%\n  x=y\n%}",
            "{% raw %}\nA {{ b }} {% if c %}D{% endif %}\n{%\n  x=y\n%}",
        ),
        (
            "import A from './a'\n\nexport const b = 1\n\nImport a from b",
            "import A from './a'\n\nexport const b = 1\n\nIMPORT A FROM B",
        ),
        ("````md\n!!! note\n```\n:::tip\n````\na", "````md\n!!! note\n```\n:::tip\n````\nA"),
        ("- ```\n  $$\n  ```\n- a\n\n    !!! b\n        c", "- ```\n  $$\n  ```\n- A\n\n    !!! b\n        C"),
        ("$$\na", "$$ A"),  # without an end it is a text
    ],
)
def test_the_markup_of_dialects_stays(page: str, expected: str) -> None:
    assert shouted(page) == expected
    assert parse_document("a.md", page.encode()).filled({}).decode() == page


def test_texts_of_dialects_are_units_of_their_own() -> None:
    page = '!!! note "A"\n    b\n\n=== "C"\n    d\n\ne\n: f\n\n[^1]: g\n\n> [!TIP] h\n> i\n\n:::tip j\nk\n:::\nl\n'
    assert texts(page) == list("AbCdefghijkl")


def test_a_translation_starts_no_block_of_a_dialect() -> None:
    for words in (":::x", "!!! x", "=== x", ": x", "$$x", "[^1]: x"):
        found = parse_document("a.md", b"a\n").filled({0: (words,)}).decode()
        assert texts(found) == [f"\\{words}"]


def test_what_stays_is_counted() -> None:
    page = (
        "---\ntitle: a\n---\n\n```\nb\n```\n\n    c\n\n<div>\n<b>d</b>\n</div>\n\n<img alt='e'>\n\n:::{math}\nf\n:::\n"
    )
    assert [(one.line, one.kind) for one in parse_document("a.md", page.encode()).skipped] == [
        *[(1, "front matter"), (5, "code block"), (9, "code block"), (11, "HTML block"), (17, "directive")],
    ]


@pytest.mark.parametrize(
    "code",
    [
        '{% highlight ruby %}\ndef foo\n\n  puts "bar"\nend\n{% endhighlight %}',
        '{{< highlight go "linenos=table" >}}\n- main()\n> x\n    # y\n{{< /highlight >}}',
        "{{% highlight go %}}\na\n{{% /highlight %}}",
        "{%- raw -%}\n{{ a }}\n```\nb\n{%- endraw -%}",
        "{% raw %} a {% endraw %}",
        "{% codeblock lang:js %}\n1. a\n{% endcodeblock %}",
        "{% comment %}\n===\na\n---\n{% endcomment %}",
        "- {% verbatim %}\n  a\nb\n  {% endverbatim %}",
        "> {% raw %}\n> a\n> {% endraw %}",
    ],
)
def test_code_in_template_tags_stays_and_is_counted(code: str) -> None:
    page = f"Text\n\n{code}\n\nMore\n{code}\nEnd\n"
    assert shouted(page) == f"TEXT\n\n{code}\n\nMORE\n{code}\nEND\n"
    kinds = [one.kind for one in parse_document("a.md", page.encode()).skipped]
    assert kinds == ["code block"] * 2


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "a {% raw %}{{ b }} c{% endraw %} d {% if e %}f{% endif %}",
            "A {% raw %}{{ b }} c{% endraw %} D {% if e %}F{% endif %}",
        ),
        ("```\n{% raw %}\n```\na\n\n{% endraw %}", "```\n{% raw %}\n```\nA\n\n{% endraw %}"),
        (
            "{{< note >}}\na\n{{< /note >}}\n{{< highlight js />}}\nb",
            "{{< note >}}\nA\n{{< /note >}}\n{{< highlight js />}}\nB",
        ),
        ('{{< figure\n  src="a.png" >}}\nb', '{{< figure\n  src="a.png" >}}\nB'),
    ],
)
def test_text_beside_template_tags_is_translated(page: str, expected: str) -> None:
    assert shouted(page) == expected


@pytest.mark.parametrize(
    ("heading", "link"),
    [
        ("## Set up the tool", "[it](#set-up-the-tool)"),
        ("Set up: `a_b`, & *more*!\n---", "[it](#set-up-a_b--more)"),
        ("# Set up - now", "[it](#set-up-now 'title')"),
        ("## 1. Gr\u00f6\u00dfe", "[it][x]\n\n[x]: #1-gr%C3%B6%C3%9Fe"),
        ("## 1. First", "[it](#first)"),
        ("- # A [b](c.md) **d**", '<a href="#a-b-d">it</a>'),
    ],
)
def test_a_heading_that_is_linked_keeps_its_address(heading: str, link: str) -> None:
    page = f"See {link}\n\n{heading}\n\n# Other\n"
    address = unquote(re.split("#|[ '\")]", link.partition("#")[2])[0])
    assert shouted(page).count(f'<a id="{address}"></a>') == 1
    document = parse_document("a.md", page.encode())
    same = document.filled({n: unit.source for n, unit in enumerate(document.units)}).decode()
    assert "<a id" not in same and document.filled({}).decode() == page


def test_only_linked_headings_get_an_anchor() -> None:
    page = "[a](#x) [b](#y-1) [c](b.md#z) [d](#w)\n\n# x\n# x\n# y\n# y\n# z\n# v {#w}\n# w\n"
    assert re.findall("(?m)^# (.*)", shouted(page)) == [
        *('<a id="x"></a>X', "X", "Y", '<a id="y-1"></a>Y', "Z", "V {#w}", "W")
    ]


EXTENSIONS = [
    *("abbr", "admonition", "attr_list", "def_list", "footnotes", "md_in_html", "tables", "toc"),
    *("pymdownx.arithmatex", "pymdownx.betterem", "pymdownx.caret", "pymdownx.critic", "pymdownx.details"),
    *("pymdownx.keys", "pymdownx.mark", "pymdownx.superfences", "pymdownx.tilde", "pymdownx.tabbed"),
    *("pymdownx.tasklist", "pymdownx.blocks.admonition"),
]
SETTINGS = {"toc": {"slugify": lambda text, separator: "x"}, "pymdownx.tabbed": {"alternate_style": True}}
PAGE = """# Dogs and *cats* { #dogs .big }

A **dog** runs to [its house](a.html){ .md-button } with $x_{n}^2$ and ++ctrl+c++, see HTML.[^1]

!!! note "Read *this*"

    Some text, `code` and \\(a + b\\)

    === "One"

        - an item
        - [x] another ==item==

    === "Two words"

        | head | other |
        |------|-------|
        | cell | H~2~O x^2^ |

??? tip
    Hidden text
    over lines

Term
:   Its definition

    A second paragraph

A line
{: #id .class }

$$
\\alpha = b
$$

/// warning | A block
Text inside
///

*[HTML]: Hyper text

[^1]: A note
    that goes on
"""


def test_another_parser_sees_the_same_elements() -> None:
    before, after = (
        markdown.markdown(page, extensions=EXTENSIONS, extension_configs=SETTINGS) for page in (PAGE, shouted(PAGE))
    )
    assert before != after
    tag = re.compile(r"<[^>]*>")
    assert tag.findall(before.replace("Hyper text", "")) == tag.findall(after.replace("HYPER TEXT", ""))
    assert re.sub(r"\s+", " ", before).upper() == re.sub(r"\s+", " ", after).upper()


PIECES = [
    *(
        "!!! note",
        '"a"',
        "???",
        '=== "',
        ":::",
        "::: a",
        "{note}",
        "```",
        "````",
        "~~~",
        "\n",
        "\n\n",
        "    ",
        "> ",
        "- ",
    ),
    *(
        "[!NOTE]",
        ": ",
        "[^1]: ",
        "$$",
        "$",
        "\\[",
        "\\]",
        "{%",
        "%}",
        "{{",
        "}}",
        "{: .a }",
        "a",
        " B ",
        "+++",
        "///",
        "%",
    ),
    *(
        "*[a]: ",
        "--8<-- ",
        "(a)=",
        ":a:",
        "=",
        "#",
        "|",
        "\r\n",
        "\r",
        "\t",
        "\ufdd0",
        "`",
        "import a from 'b'",
        "[TOC]",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example("!!! \n===\n:::\n:::{note}\n:\n[^1]:\n*[a]:")
def test_a_masked_text_has_the_same_lines(page: str) -> None:
    masked, _ = masked_dialects(page)
    assert [len(line) for line in re.split(r"\r\n?|\n", masked)] == [len(line) for line in re.split(r"\r\n?|\n", page)]
    document = parse_document("a.md", page.encode())
    assert document.filled({}).decode() == page
    document.filled({number: unit.source for number, unit in enumerate(document.units)})


def test_attributes_of_a_block_and_comments_of_mdx_are_no_text() -> None:
    text = "* A list\n{:toc}\n\nSome text\n{: .lead}\n\n# A hook {/*use-hook*/}\n"
    document = parse_document("a.md", text.encode())
    assert [plain(unit.source) for unit in document.units] == ["A list", "Some text", "A hook {/*use-hook*/}"]
    found = document.filled({0: ("Eine Liste",), 1: ("Ein Text",), 2: document.units[2].source})
    assert found.decode() == text.replace("A list", "Eine Liste").replace("Some text", "Ein Text")


def test_a_blank_before_the_address_of_a_link_is_part_of_it() -> None:
    document = parse_document("a.md", b"See [![Powered by](a.svg)]( https://a.b) and more\n")
    assert [part for part in document.units[0].source if isinstance(part, str)] == ["See ", "Powered by", " and more"]


def test_a_tag_that_comes_first_does_not_begin_a_block() -> None:
    document = parse_document("a.md", b"More in <details>these *lines*</details>\n")
    source = document.units[0].source
    filled = document.filled({0: (*source[1:], " more")}).decode()
    assert markdown.markdown(filled).startswith("<p>")
    assert [plain(unit.source) for unit in parse_document("a.md", filled.encode()).units] == [filled.strip()]


def test_code_in_template_tags_within_a_line_does_not_hide_the_rest() -> None:
    document = parse_document("a.md", b"{% raw %}`{{ x }}`{% endraw %} is a tag.\n\n{% raw %}\nx\n{% endraw %}\n")
    assert [plain(unit.source) for unit in document.units] == ["{% raw %}`{{ x }}`{% endraw %} is a tag."]
    assert [one.kind for one in document.skipped] == ["code block"]


@pytest.mark.parametrize("text", ["a ] b", "[ a", "a [b] c", "] [", r"a \] b ]"])
def test_brackets_of_a_translation_do_not_end_its_link(text: str) -> None:
    document = parse_document("a.md", b"See [the page](u) now\n")
    _, opening, _, closing, _ = with_codes(document.units[0].source, "markdown")
    filled = document.filled({0: ("Siehe ", opening, text, closing, " jetzt")}).decode()
    assert markdown.markdown(filled).count('<a href="u">') == 1
    assert markdown.markdown(filled).startswith("<p>Siehe <a")
    assert markdown.markdown(filled).endswith("</a> jetzt</p>")


def test_loose_marks_of_emphasis_are_text() -> None:
    source = with_codes(("call _issue_info and **this, *that*",), "markdown")
    assert [part for part in source if isinstance(part, str)] == ["call _issue_info and **this, ", "that"]


@pytest.mark.parametrize(
    "pieces,expected",
    [
        (("ein ", "**", "*", "grosser", "*", " Hund", "**"), "ein ***grosser* Hund**"),
        (("*", "a", "*", "*", "b", "*"), "*a* *b*"),
        (("*", "a", "*", "**", "b", "**"), "*a* **b**"),
        (("_", "a", "_", "**", "b", "**"), "_a_**b**"),
        (("c", "**", "(a)", "**", "b"), "c **(a)** b"),
        (("c", "_", "a", "_", "b"), "c _a_ b"),
        (("c", "*", "a", "*", "b"), "c*a*b"),
    ],
)
def test_blanks_where_emphasis_needs_them(pieces: tuple[str, ...], expected: str) -> None:
    kinds = [CLOSES if pieces[:n].count(one) % 2 else OPENS for n, one in enumerate(pieces)]
    marks = [Code(one, kind=kind) for one, kind in zip(pieces, kinds, strict=True)]
    assert inline_markdown(tuple(mark if set(mark.text) <= set("*_") else mark.text for mark in marks)) == expected
