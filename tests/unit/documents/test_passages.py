"""Files of one language: what is a text in each format, and every byte beside the texts that are replaced stays."""

import json
import re
from collections.abc import Callable
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from headwise.documents.markup.inline_tree import bare_text
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.reading import parse_document
from headwise.documents.unit import CLOSES, OPENS, Code, Parts, Unit, UnitState, codes_of, plain
from headwise.errors import UserError

NESTED = """{
  "home": {"title": "Hello {{name}}", "list": ["one", "two", 3, null, "5"]},\t"empty": "",
  "it's \\"quoted\\"": "a\\nb \\/ $t(home.title)", "n": [[{"x": "deep"}], true] }
"""
EXTENSION = """{"open": {"message": "Open $FILE$", "description": "of a menu",
  "placeholders": {"file": {"content": "$1", "example": "a.txt"}}}}"""
ARB = """{"@@locale": "en", "hi": "Hi {name}", "@hi": {"description": "greets", "placeholders": {"name": {}}}}"""
PROPERTIES = r"""# a comment = not a text
! another
open=Open
  close : Close \
      the file
tab\tkey  two words\u0021
path = C\:\\dir \
# no comment
empty=
broken\ key\:=it''s {0} of '{x}'
last"""
SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
<i>A dog runs
and a cat sleeps.</i>

2
00:00:03,000 --> 00:00:04,000 X1:1 X2:2
- Who is it?
- {\\an8}It is 5.

still the same cue
"""
VTT = """WEBVTT - a title

STYLE
::cue { color: red }

NOTE nobody reads this --> here

one
00:01.000 --> 00:02.000 align:start
<v Ann Lee>Fish &amp; <00:01.500>chips
are good

01:00:03.000 --> 01:00:04.000
2 < 3
"""
TEXT = "\n  A dog. A cat!  \r\n\r\n\tLast line\n***\n"
PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>A page</title><style>p > a {}</style><script>if (a < b) c("<p>no</p>");</script></head>
<body class=x><!-- <p>no</p> --><h1 title="Big &amp; old">Dogs &amp;
   cats</h1> <p> <b>All bold.</b> </p><p><b>A</b> dog <a href="a>b" title='the "page"'>is <i>here</i></a>.<br>Next line
<p translate="no">No <b>text</b></p><div class="a notranslate b"><p>no</p></div>
<p>Press <kbd>Ctrl</kbd>, <code>x < y</code>
or <img src="a.png" alt="a picture"/> it<pre>
 kept </pre><input placeholder="your name" title=short> 12 <td>5 &lt; 6 a<td></td>
</body></html>
"""
NOTES = """---
title: no text
---

# Dogs *and* cats #

Two
=======
A **black  dog** runs
to [its *house*](http://a.org/x_(y) "A house"), with `code *x*` and ![a picture](i.png).\x20\x20
- [x] Done: a_b_c <b>bold</b> &amp; 2 * 3
  goes on

  1. [All link](u)
* [`Code`][it] and [The Ref] or [it][] or [that][the ref] [sic]\\
  cut here \\*no\\*
> [!NOTE]
> Quoted *text
lazy*

```sh
no text
```

    no text

<div>
no *text*
</div>

| Name | `x` \\| y |
|------|:-:|
| 5 | **a** \\| b |

[the ref]: http://b.org
[it]: http://c.org "A title"
[^1]: A note.
"""
SAMPLES = {
    "a.md": (
        NOTES,
        [
            *("Dogs *and* cats", "Two"),
            'A **black dog** runs to [its *house*](http://a.org/x_(y) "A house"), with `code *x*` and '
            "![a picture](i.png).",
            *("A house", "Done: a_b_c <b>bold</b> &amp; 2 * 3 goes on", "All link"),
            "[`Code`][it] and [The Ref][The Ref] or [it][it] or [that][the ref] [sic]",
            *("cut here \\*no\\*", "Quoted *text lazy*", "Name", "`x` \\| y", "**a** \\| b", "A title", "A note."),
        ],
    ),
    "a.html": (
        PAGE,
        [
            *("A page", "Big & old", "Dogs & cats", "All bold."),
            '<b>A</b> dog <a href="a>b" title=\'the "page"\'>is <i>here</i></a>.',
            *('the "page"', "Next line"),
            'Press <kbd>Ctrl</kbd>, <code>x < y</code> or <img src="a.png" alt="a picture"/> it',
            *("a picture", "your name", "short", "5 < 6 a"),
        ],
    ),
    "a.json": (NESTED, ["Hello {{name}}", "one", "two", "a\nb / $t(home.title)", "deep"]),
    "messages.json": (EXTENSION, ["Open $FILE$"]),
    "a.arb": (ARB, ["Hi {name}"]),
    "a.properties": (PROPERTIES, ["Open", "Close the file", "two words!", "C:\\dir # no comment", "it's {0} of '{x}'"]),
    "a.srt": (
        SUBTITLES,
        ["<i>A dog runs and a cat sleeps.</i>", "Who is it?", "{\\an8}It is 5.", "still the same cue"],
    ),
    "a.vtt": (VTT, ["<v Ann Lee>Fish & <00:01.500>chips are good"]),
    "a.txt": (TEXT, ["A dog. A cat!", "Last line"]),
}


def open_units(name: str, text: str) -> list[Unit]:
    units = parse_document(name, text.encode()).units
    return [unit for unit in units if unit.state is UnitState.UNTRANSLATED]


def changed(name: str, text: str, change: Callable[[Unit], Parts]) -> str:
    document = parse_document(name, text.encode())
    return document.filled(
        {n: change(u) for n, u in enumerate(document.units) if u.state is not UnitState.KEPT}
    ).decode()


def shouted(unit: Unit) -> Parts:
    return tuple(part.upper() if isinstance(part, str) else part for part in with_codes(unit.source, unit.markup))


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_a_text(name: str) -> None:
    text, expected = SAMPLES[name]
    assert [plain(unit.source) for unit in open_units(name, text)] == expected


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("mark,encoding", [(b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le")])
def test_nothing_filled_is_nothing_changed(name: str, mark: bytes, encoding: str) -> None:
    data = mark + SAMPLES[name][0].replace("\n", "\r\n").encode(encoding)
    assert parse_document(name, data).filled({}) == data


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_filled_is_read_again_and_codes_are_as_they_were(name: str) -> None:
    text, sources = SAMPLES[name]
    found = changed(name, text, shouted)
    units = open_units(name, found)
    assert [plain(unit.source).lower().replace("&quot;", '"') for unit in units] == [s.lower() for s in sources]
    before = [len(codes_of(with_codes(unit.source, unit.markup))) for unit in open_units(name, text)]
    assert [len(codes_of(with_codes(unit.source, unit.markup))) for unit in units] == before


def test_only_the_texts_of_messages_change() -> None:
    found = changed("a.json", NESTED, lambda unit: ("\u00fc\n",))
    assert found == (
        NESTED.replace('"Hello {{name}}"', '"\u00fc\\n"')
        .replace('"one", "two"', '"\u00fc\\n", "\u00fc\\n"')
        .replace('"a\\nb \\/ $t(home.title)"', '"\u00fc\\n"')
        .replace('"deep"', '"\u00fc\\n"')
    )
    in_ascii = '{"a": "caf\\u00e9"}'
    assert changed("a.json", in_ascii, lambda unit: ("\u00fc",)) == '{"a": "\\u00fc"}'


def test_units_of_messages_have_keys() -> None:
    assert [unit.key for unit in parse_document("a.json", NESTED.encode()).units] == [
        *("home/title", "home/list/0", "home/list/1", "home/list/4", "empty"),
        *('it\'s "quoted"', "n/0/0/x"),
    ]
    keys = ["open", "close", "tab\tkey", "path", "empty", "broken key:", "last"]
    assert [unit.key for unit in parse_document("a.properties", PROPERTIES.encode()).units] == keys


@pytest.mark.parametrize(
    "data,expected",
    [
        (b"a=x\n", b"a=l'\\u00e9t\\u00e9\\n\\ud83d\\ude00 \\\\\n"),
        ("a=\u00e4\n".encode(), "a=l'\u00e9t\u00e9\\n\U0001f600 \\\\\n".encode()),
        (b"a=\xe4\n", b"a=l'\\u00e9t\\u00e9\\n\\ud83d\\ude00 \\\\\n"),
        (b"a=x {0}\n", b"a=l''\\u00e9t\\u00e9\\n\\ud83d\\ude00 \\\\\n"),
    ],
)
def test_bundles_stay_in_the_characters_they_are_written_in(data: bytes, expected: bytes) -> None:
    document = parse_document("a.properties", data)
    found = document.filled({0: ("l'\u00e9t\u00e9\n\U0001f600 \\",)})
    assert found == expected
    assert (
        plain(parse_document("a.properties", found).units[0].source).replace("''", "'")
        == "l'\u00e9t\u00e9\n\U0001f600 \\"
    )


def test_texts_of_a_page_are_escaped_and_those_in_its_tags_are_filled_with_them() -> None:
    found = changed("a.html", PAGE, lambda unit: ("<", *codes_of(unit.source), '"&\u00a0'))
    assert '<h1 title="&lt;&quot;&amp;\u00a0">&lt;"&amp;&nbsp;</h1> <p> <b>&lt;"&amp;&nbsp;</b> </p>' in found
    assert (
        '<p>&lt;<kbd>Ctrl</kbd><code>x < y</code><img src="a.png" alt="&lt;&quot;&amp;\u00a0"/>"&amp;&nbsp;<pre>'
        in found
    )
    assert "<a href=\"a>b\" title='&lt;&quot;&amp;\u00a0'><i></i></a>" in found
    assert found.count("<!-- <p>no</p> -->") == found.count('<p translate="no">No <b>text</b></p>') == 1
    assert found.startswith(PAGE[: PAGE.index("A page")])
    assert found.endswith("<td></td>\n</body></html>\n")


def test_a_page_is_read_and_written_in_the_encoding_that_it_names() -> None:
    data = '<meta http-equiv="x" content="text/html; charset=iso-8859-1"><p>sch\u00f6n'.encode("latin-1")
    document = parse_document("a.htm", data)
    assert plain(document.units[0].source) == "sch\u00f6n"
    assert document.filled({}) == data
    assert document.filled({0: ("\u00e4\u2013",)}).endswith(b"<p>\xe4&#8211;")


def test_a_cue_gets_as_many_lines_as_it_had() -> None:
    found = changed("a.srt", SUBTITLES, lambda unit: ("Ein Hund rennt und eine Katze schl\u00e4ft dabei",))
    assert "00:00:02,500\nEin Hund rennt und eine\nKatze schl\u00e4ft dabei\n\n2\n" in found
    assert "X1:1 X2:2\n- Ein Hund rennt und eine Katze schl\u00e4ft dabei\n- Ein Hund" in found
    found = changed("a.srt", SUBTITLES, lambda unit: ("一只狗在跑。一只猫在Python里睡。",))
    assert "00:00:02,500\n一只狗在跑。一只猫\n在Python里睡。\n\n2\n" in found
    assert changed("a.vtt", VTT, lambda unit: ("a <b> & c",)).count("a &lt;b&gt;\n&amp; c") == 1


T1, T2 = "00:00:01.000 --> 00:00:02.000", "00:00:03.000 --> 00:00:04.000 line:0"


@pytest.mark.parametrize(
    ("name", "text", "texts"),
    [
        ("a.srt", f"1\n{T1}\nA dog\n2\n{T2}\nA cat\n", ["A dog", "A cat"]),
        ("a.srt", f"1\n{T1}\nA dog\nruns\n{T2}\nA cat\n", ["A dog runs", "A cat"]),
        ("a.srt", f"1\r\n{T1}\r\n2\r\n{T2}\r\nA cat\r\n3\r\n{T2}\r\nA cow", ["A cat", "A cow"]),
        ("a.srt", f"{T1}\nA dog\n\nruns\n2\n{T2}\nA cat\n", ["A dog", "runs", "A cat"]),
        ("a.vtt", f"WEBVTT\n{T1}\nA dog\n{T2}\nA cat\n", ["A dog", "A cat"]),
        ("a.vtt", f"WEBVTT - x\n7\n{T1}\nA dog\n2\n{T2}\nA cat\n", ["A dog", "A cat"]),
        ("a.vtt", f"WEBVTT\n\nNOTE\nno text\n{T1}\nA dog\n\nSTYLE\n{T2}\nA cat\n", ["A dog", "A cat"]),
    ],
)
def test_a_cue_ends_where_the_next_one_starts(name: str, text: str, texts: list[str]) -> None:
    assert [plain(unit.source) for unit in open_units(name, text)] == texts
    found = changed(name, text, shouted)
    assert found.replace("\r\n", "\n").split("\n") == [
        line.upper() if line in texts or line in ("A dog", "runs") else line
        for line in text.replace("\r\n", "\n").split("\n")
    ]


@pytest.mark.parametrize(
    ("lines", "texts", "written"),
    [
        ("- I am here.\n- Where are\nyou?", ["I am here.", "Where are you?"], "- I AM HERE.\n- WHERE\nARE YOU?"),
        ("\u2013 Tom is sick.", ["Tom is sick."], "\u2013 TOM IS SICK."),
        ("\u2014Tom!\n--  Hi", ["Tom!", "Hi"], "\u2014TOM!\n--  HI"),
        ("<i>- Come.</i>", ["Come.</i>"], "<i>- COME.</i>"),
        ("{\\an8}- Come.\n<i>-</i> No", ["Come.", "No"], "{\\an8}- COME.\n<i>-</i> NO"),
        ("- <i>Come</i> in", ["<i>Come</i> in"], "- <i>COME</i> IN"),
        ("a - b", ["a - b"], "A - B"),
        ("A dog\n---", ["A dog"], "A DOG\n---"),
    ],
)
@pytest.mark.parametrize("start", ["1\n", "WEBVTT\n\n"])
def test_the_dash_of_a_speaker_stays_outside_the_text(start: str, lines: str, texts: list[str], written: str) -> None:
    name = "a.vtt" if start.startswith("WEBVTT") else "a.srt"
    text = f"{start}{T1}\n{lines}\n"
    assert [plain(unit.source) for unit in open_units(name, text)] == texts
    assert changed(name, text, shouted) == f"{start}{T1}\n{written}\n"


def test_lines_of_a_cue_in_japanese_are_one_text_without_a_blank() -> None:
    text = "1\n00:00:01,000 --> 00:00:02,000\n犬が走って\n猫が寝ている。\n"
    assert [plain(unit.source) for unit in open_units("a.srt", text)] == ["犬が走って猫が寝ている。"]
    assert "\n犬は走っ\nています\n" in changed("a.srt", text, lambda unit: ("犬は走っています",))
    found = changed("a.srt", text, lambda unit: ("犬だったっけ。",))
    assert "\n犬だっ\nたっけ。\n" in found  # and not "犬だった" and "っけ。": no line begins with a small letter


@pytest.mark.parametrize(
    "name,text,said",
    [
        ("a.json", '{"a":\n "b",}', r"a.json: line 2, column \d+: invalid JSON"),
        ("a.json", "[" * 200_000, "a.json: JSON beyond the limits"),
        ("a.json", "", "a.json: line 1, column 1: invalid JSON"),
        ("a.properties", "a=b\nc=\\u00g0\n", r"a.properties: line 2: \\u without four"),
        ("a.srt", "Hello\n", "a.srt: line 1: a cue must start with"),
        ("a.srt", SUBTITLES + "\n3\n00:00 --> 1\nx\n", "a.srt: line 13: a cue must start with"),
        ("a.srt", f"1\n{T1}\na\n2\n00:00 --> 1\nb\n", "a.srt: line 5: a cue must start with"),
        ("a.vtt", SUBTITLES, "a.vtt: line 1: not a WebVTT file"),
        ("a.pdf", "", "a.pdf: unsupported file type; supported are .po"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_line(name: str, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_document(name, text.encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.json", "a.srt", "a.vtt", "a.txt", "a.md"])
def test_bytes_of_another_encoding_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: line 2: not valid UTF-8"):
        parse_document(name, b"x\ny\xe4\n")


# --- whatever the file

LETTERS = st.text(st.sampled_from('a "\\/\n\t{}[]<>&=:#!-\u00e4\U0001f600\x85\u2028'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | LETTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=8,
)
LINES = st.lists(
    st.sampled_from(
        ["a", "=", ":", " ", "\\", "\\u0041", "#", "!", "\t", "\n", "\r\n", "\r", "{0}", "'", "\u00e4", "\f"]
    ),
    max_size=25,
)
CUES = st.lists(
    st.sampled_from(
        ["\n", "\r\n", "1", "\n\n2\n00:00:01,000 --> 00:00:02,000\n", "- a", "b <i>c</i>", " ", "&lt;", "d e f"]
    ),
    max_size=20,
)


PIECES = [
    *("<p>", "</p>", "A dog. ", "<br/>", "x", "<!-- A. B. -->", "<script>if (a < b) c();</script>", '<a href="a>b">'),
    *("<", ">", "\n", "</a >", "<!doctype html>", "<pre> Code. </pre>", "\u00e9", "<style>b{}</STYLE>", "&amp;", "<b>"),
    *("</b>", "<i translate=no>", "</i>", '<img alt="a dog">', "<code>y</code>", "<svg>", "</svg>"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("<b><i>x</b></i>")
def test_any_page_comes_back_and_can_be_filled(text: str) -> None:
    assert parse_document("a.html", text.encode()).filled({}) == text.encode()
    again = changed("a.html", text, lambda unit: unit.source)
    assert re.sub(r"\s+", " ", unescape(again)) == re.sub(r"\s+", " ", unescape(text))
    assert [unit.source for unit in open_units("a.html", again)] == [unit.source for unit in open_units("a.html", text)]


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_any_messages_come_back_and_can_be_filled(whole: object, indent: int | None, ascii_only: bool) -> None:
    whole = {"texts": [f"dog {n}" for n in range(40)], "any": whole}  # more texts than data
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    assert (
        changed("a.json", text, lambda unit: unit.source) == text
        or json.loads(changed("a.json", text, lambda unit: unit.source)) == whole
    )
    assert parse_document("a.json", text.encode()).filled({}) == text.encode()


@given(LINES)
@example(["a", "=", "\\"])
def test_any_bundle_comes_back_and_can_be_filled(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert parse_document("a.properties", text.encode()).filled({}) == text.encode()
    keys = [(unit.key, unit.source) for unit in open_units("a.properties", text)]
    again = changed("a.properties", text, lambda unit: unit.source)
    assert [(unit.key, unit.source) for unit in open_units("a.properties", again)] == keys


@given(CUES, st.sampled_from(["a.srt", "a.vtt"]))
@example(["b <i>c</i>", " ", "-", " a\n1"], "a.srt")  # no second line may begin with the dash
def test_any_subtitles_come_back(pieces: list[str], name: str) -> None:
    start = "WEBVTT\n\n" if name == "a.vtt" else ""
    text = f"{start}00:00:01,000 --> 00:00:02,000\n{''.join(pieces)}"
    document = parse_document(name, text.encode())
    assert document.filled({}) == text.encode()
    again = changed(name, text, shouted)
    assert [re.sub(r"\s+", " ", plain(u.source)).lower() for u in open_units(name, again)] == [
        re.sub(r"\s+", " ", plain(u.source)).lower() for u in open_units(name, text)
    ]


MARKDOWN = [
    *(
        "A dog. ",
        "x",
        "\n",
        "\n\n",
        "# ",
        "- ",
        "1. ",
        "> ",
        "  ",
        "    ",
        "*",
        "**",
        "_",
        "`",
        "```\n",
        "~~",
        "[",
        "]",
        "](u)",
    ),
    *(
        "![",
        "[x]",
        "\n\n[x]: y\n\n",
        "|",
        "\n|-|-|\n",
        "\\",
        "<b>",
        "</b>",
        "<div>",
        "&amp;",
        "---\n",
        "\u00e9",
        "\t",
        "\r\n",
    ),
    *("[!NOTE]\n", ":::", "\x00", "  \n", "=\n", "<http://a.b>"),
]


@given(st.lists(st.sampled_from(MARKDOWN), max_size=16).map("".join))
def test_any_markdown_comes_back_and_can_be_filled(text: str) -> None:
    assert parse_document("a.md", text.encode()).filled({}) == text.encode()
    again = changed("a.md", text, lambda unit: unit.source)
    before, after = (
        re.sub(r"\W", "", "".join(bare_text(u.source) for u in open_units("a.md", t))) for t in (text, again)
    )
    assert before == after
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    assert re.sub(r"\s+", " ", page.render(again)) == re.sub(r"\s+", " ", page.render(text))


BOLD = Code("**", kind=OPENS), Code("**", kind=CLOSES)


@pytest.mark.parametrize(
    "source,translation,expected",
    [
        ("A dog", ("1. Ein # Hund",), "1\\. Ein # Hund"),
        ("A dog", ("- Ein\n Hund",), "\\- Ein Hund"),
        ("# 1. Dogs", ("2. Hunde",), "# 2. Hunde"),
        ("A left \\[\n\nb \\]", (Code("\\["), " links"), "&#8203;\\[ links\n\nb \\]"),
        ("Use [TOC]", ("[TOC]",), "&#8203;[TOC]"),
        ("A dog", ("% Hunde",), "&#8203;% Hunde"),
        ("A dog {{<b", ("{{<b Hund",), "&#8203;{{<b Hund"),
        ("> A [!note]", ("[!note] Hund",), "> &#8203;[!note] Hund"),
        ("a **b** c", ("A", BOLD[0], " B ", BOLD[1], "C"), "A **B** C"),
        ("a **b** c", ("A ", *BOLD, "C"), "A C"),
        ("| a | b |\n|--|--|\n| x | y |", ("A|B",), "| A\\|B | b |\n|--|--|\n| x | y |"),
    ],
)
def test_a_translation_begins_no_block_and_breaks_no_emphasis(source: str, translation: Parts, expected: str) -> None:
    assert parse_document("a.md", source.encode()).filled({0: translation}).decode() == expected


@given(st.text(st.sampled_from("aB .!?\n\r\t\u00a0\u3002\u2028,"), max_size=60))
def test_any_text_comes_back(text: str) -> None:
    data = text.encode()
    document = parse_document("a.txt", data)
    assert document.filled({n: unit.source for n, unit in enumerate(document.units)}) == data
