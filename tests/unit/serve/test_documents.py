"""Texts taken apart and put together again."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.serve.documents import take_apart

PLAIN = st.text(st.sampled_from("aB .!?\n\r\t\u00a0\u3002\u2028,Dr"), max_size=80) | st.text(max_size=40)
PARTS = [
    *("<p>", "</p>", "A dog. ", "<br/>", "x", "<!-- A. B. -->", "<script>if (a < b) c();</script>", '<a href="a>b">'),
    *("<", ">", "\n", "</a >", "<!doctype html>", "<pre> Code. </pre>", "\u00e9", "<style>b{}</STYLE>"),
]
MARKUP = st.lists(
    st.sampled_from(PARTS),
    max_size=12,
).map("".join)


@given(PLAIN)
def test_a_text_that_nothing_is_done_to_is_the_same(text: str) -> None:
    taken = take_apart(text)
    assert taken.joined(taken.sentences) == text
    assert all(sentence == sentence.strip() and "\n" not in sentence for sentence in taken.sentences)


@given(MARKUP)
def test_markup_stays_where_it_is(text: str) -> None:
    taken = take_apart(text, is_html=True)
    again = take_apart(taken.joined(taken.sentences), is_html=True)
    assert again.sentences == taken.sentences
    assert taken.joined(taken.sentences).replace("&lt;", "<").replace("&gt;", ">") == text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? four", ("One.", "Two!", "Three? four")),
        ("  A dog.  \n\n B", ("A dog.", "B")),
        ("Mr. Smith saw J. Smith. He left.", ("Mr. Smith saw J. Smith.", "He left.")),
        ("它跑。它停。", ("它跑。", "它停。")),
        ("", ()),
        (" \n ", ()),
    ],
)
def test_sentences(text: str, sentences: tuple[str, ...]) -> None:
    assert take_apart(text).sentences == sentences


def test_what_is_text_in_markup() -> None:
    text = '<h1 title="A>B">Dogs &amp; cats</h1>\n<script>var a = "<p>no</p>";</script><p>One. Two.<!-- no --></p>'
    taken = take_apart(text, is_html=True)
    assert taken.sentences == ("Dogs & cats", "One.", "Two.")
    written = taken.joined(["Hunde <&> Katzen", "Eins.", "Zwei."])
    assert written.startswith('<h1 title="A>B">Hunde &lt;&amp;&gt; Katzen</h1>\n<script>')
    assert written.endswith("<p>Eins. Zwei.<!-- no --></p>")


@pytest.mark.parametrize("part", ["<", "<a '", "<!--", "<script>", "</", "<a href=x>", "&amp;", "A. ", "a.\n"])
def test_no_text_takes_long(part: str) -> None:
    started = time.process_time()
    for is_html in (False, True):
        take_apart(part * (40_000 // len(part)), is_html)
    assert time.process_time() - started < 5
