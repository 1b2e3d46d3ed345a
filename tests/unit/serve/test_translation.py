"""Texts and documents of a request: cut, translated by a model that may lose or add codes, and put together."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.segments import CODES_CHANGED, GUESSED, SentenceTranslation
from headwise.documents.sentences import MAX_SENTENCE
from headwise.runtime.search.translator import Translation
from headwise.serve.batching import BatchSettings
from headwise.serve.document_session import DocumentSession
from headwise.serve.documents import OpenDocuments, in_thread
from headwise.serve.files import parse_upload
from headwise.serve.models import SentenceOptions, ServedModel
from headwise.serve.parameters import RequestError
from headwise.serve.router import ModelRouter
from headwise.serve.routes import sentence_warnings, text_json
from headwise.serve.translation import (
    TextTranslation,
    segment_text,
    segment_texts,
    stream_texts,
    translate_documents,
    translate_html,
    translate_texts,
)

PLAIN = st.text(st.sampled_from("aB .!?\n\r\t\u00a0\u3002\u2028,Dr"), max_size=80) | st.text(max_size=40)


class Speaker(ServedModel):
    """A model that answers with what a function makes of a sentence, and alternatives to it."""

    say: Callable[[str], str]

    @property
    def supports_markers(self) -> bool:
        """Of those in small letters alone."""
        return self.is_loaded and self.say("x") == "x"

    def count_tokens(self, sentences: Sequence[str]) -> list[int]:
        """Its words."""
        return [len(text.split()) for text in sentences]

    def translate(self, sentences: list[str], options: SentenceOptions) -> list[SentenceTranslation]:
        """Word n comes from word n."""
        self.model = self
        texts = [self.say(text) for text in sentences]
        links = frozenset((n, n) for n in range(20)) if options.aligned else None
        return [
            SentenceTranslation(
                text,
                -1.0,
                -2.0,
                alternatives=(Translation(f"{text}!", -2.0), Translation(f"{text}!!", -2.0)),
                source=source,
                n_tokens=(3, 3),
                links=links,
            )
            for source, text in zip(sentences, texts, strict=True)
        ]


def told(say: Callable[[str], str], work: Callable[[ModelRouter, ServedModel, OpenDocuments], Any]) -> Any:
    async def run() -> Any:
        model = Speaker(Path("m"), (("en", "de"),), lambda path: None)
        model.say = say
        model.open(BatchSettings(wait=0.0), lambda sentences, seconds: None)
        try:
            return await work(ModelRouter([model]), model, OpenDocuments(in_thread(DocumentSession())))
        finally:
            await model.close()

    return asyncio.run(run())


def page(text: str, say: Callable[[str], str], n_best: int = 1) -> TextTranslation:
    options = SentenceOptions("en", "de", n_best=n_best)
    return told(say, lambda router, _, documents: translate_html(router, documents, [text], options))[0]


def test_tags_of_a_page_stay_at_their_words_whatever_the_model_does_with_them() -> None:
    text = '<p id="x">A <b>big</b> dog &amp; cat. <i>Two</i>.<br>One {0}<pre>no</pre>'
    assert page(text, str.upper).text == '<p id="x">A <b>BIG</b> DOG &amp; CAT. <i>TWO</i>.<br>ONE {0}<pre>no</pre>'
    assert page(text, lambda said: re.sub("⓵(.*?)⓶", "⓵ein⓶", said)).text == text.replace("big", "ein").replace(
        "Two", "ein"
    )
    assert page("<p>One {0}", lambda said: said.replace("{0}", "{1}")).text == "<p>One {0}"


def test_alternatives_of_a_page_are_of_every_sentence() -> None:
    found = page("<p>A dog</p><p>a <b>b</b>", str.upper, 3)
    assert found.text == "<p>A DOG</p><p>A <b>B</b>"
    assert [one.text for one in found.alternatives] == ["<p>A DOG!</p><p>A <b>B!</b>", "<p>A DOG!!</p><p>A <b>B!!</b>"]


def test_a_sentence_that_stands_often_in_a_file_is_translated_once() -> None:
    heard: list[str] = []

    def say(text: str) -> str:
        heard.append(text)
        return text.upper()

    async def work(router: ModelRouter, model: ServedModel, documents: OpenDocuments) -> Any:
        sample, _ = await documents.read_file("a.txt", b"A dog.\nA dog. A cat.\r\n", ("en", "de"), 99)
        assert sample == "A dog.\nA dog. A cat."
        return await translate_documents(model, documents, SentenceOptions("en", "de"))

    written, (found,) = told(say, work)
    assert written == [b"A DOG.\nA DOG. A CAT.\r\n"]
    assert [one.source for one in found] == ["A dog.", "A cat."] and heard.count("A dog.") == 1


def test_files_too_large_to_translate_are_refused_before_they_are_unpacked() -> None:
    with pytest.raises(RequestError, match=r"\(12\).*text.*\(11\)"):
        parse_upload("a.txt", b"A dog. A cat", ("en", "de"), 11)
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 2_000_000)
    with pytest.raises(RequestError, match="exceeds text limit"):
        parse_upload("a.docx", packed.getvalue(), ("en", "de"), 100_000)


@given(PLAIN)
def test_a_text_that_nothing_is_done_to_is_the_same(text: str) -> None:
    taken = segment_text(text, "en")
    same = [SentenceTranslation(one, source=one) for one in taken.sentences]
    assert taken.joined(same, 1).text == text
    assert all(sentence == sentence.strip() and "\n" not in sentence for sentence in taken.sentences)


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("One. Two! Three? Four", "en", ["One.", "Two!", "Three?", "Four"]),
        ("  A dog.  \n\n B", "en", ["A dog.", "B"]),
        ("Mr. Smith saw J. Smith. He left.", "eng_Latn", ["Mr. Smith saw J. Smith.", "He left."]),
        ("它跑。它停。", "zh", ["它跑。", "它停。"]),
        ("A bird. Cats", "xx", ["A bird.", "Cats"]),
        ("B\u00a0. Die Hunde", "de", ["B\u00a0. Die Hunde"]),
        ("", "en", []),
        (" \n ", "en", []),
    ],
)
def test_sentences(text: str, language: str, sentences: list[str]) -> None:
    assert segment_text(text, language).sentences == sentences


@pytest.mark.parametrize("part", ["word ", "word, word; ", "x", "\u8dd1", "a\u3000b "])
def test_long_sentences_are_split(part: str) -> None:
    text = part * (20_000 // len(part))
    taken = segment_text(text, "en")
    assert max(map(len, taken.sentences)) <= MAX_SENTENCE
    assert len(taken.sentences) < 3 * 20_000 / MAX_SENTENCE
    same = [SentenceTranslation(one, source=one) for one in taken.sentences]
    assert taken.joined(same, 1).text == text


@pytest.mark.parametrize(
    ("text", "said", "whole"),
    [
        ("它跑。它停。\n\n它", {"它跑。": "It runs.", "它停。": "It stops.", "它": "It"}, "It runs. It stops.\n\nIt"),
        ("It runs. It stops. ", {"It runs.": "它跑。", "It stops.": "它停。"}, "它跑。它停。 "),
        ("它跑。它停。", {"它跑。": "走る。", "它停。": "止まる。"}, "走る。止まる。"),
        ("One.  Two.", {"One.": "Eins.", "Two.": "Zwei."}, "Eins.  Zwei."),
    ],
)
def test_between_sentences_stands_what_the_language_has_there(text: str, said: dict[str, str], whole: str) -> None:
    options = SentenceOptions("en", "de")
    found = told(said.__getitem__, lambda router, *_: translate_texts(router, [text], options))
    assert found[0].text == whole


def texts(text: str, say: Callable[[str], str], n_best: int = 1) -> TextTranslation:
    return told(say, lambda router, *_: translate_texts(router, [text], SentenceOptions("en", "de", n_best=n_best)))[0]


def test_the_answer_of_a_request_has_alternatives_and_links_of_words() -> None:
    options = SentenceOptions("en", "de", n_best=2, aligned=True)
    (found,) = told(str.upper, lambda router, *_: translate_texts(router, ["A dog. See {0}."], options))
    answer = json.loads(json.dumps(text_json(found)))
    first, second = answer.pop("sentences")
    assert answer == {"text": "A DOG. SEE {0}.", "score": -1.0}
    links = [[n, n] for n in range(20)]
    others = [{"text": "A DOG.!", "score": -2.0}, {"text": "A DOG.!!", "score": -2.0}]
    same = {"score": -1.0, "log_prob": -2.0, "alignment": links, "memory": None}
    assert first == {"source": "A dog.", "text": "A DOG.", "alternatives": others, "warnings": [], **same}
    others = [{"text": "SEE {0}.!", "score": -2.0}]
    assert second == {"source": "See {0}.", "text": "SEE {0}.", "alternatives": others, "warnings": [], **same}


CODES = "Write to a.b@example.org, see https://example.org/a?b=c, 👩‍💻 {0} %s!"


def test_texts_keep_their_codes_as_pages_do() -> None:
    assert texts(CODES, str.lower).text == CODES.lower()
    found = texts(CODES, str.upper)  # which destroys codes, but not those that are placed by alignment
    assert found.text == "WRITE TO a.b@example.org, SEE https://example.org/a?b=c, 👩‍💻 {0} %s!"
    assert [one.text for one in found.sentences] == [found.text]
    assert [sentence_warnings(one)[0] for one in found.sentences] == [GUESSED]
    assert sentence_warnings(texts("One {0}.", lambda said: "Eins {1}.").sentences[0]) == [CODES_CHANGED]
    assert texts("See {0} now. A dog.", str.upper, 2).alternatives == (Translation("SEE {0} NOW.! A DOG.!"),)


@pytest.mark.parametrize(
    "text",
    [
        "12,345.6 (7) %s",
        "👍🏽",
        "{{name}}: https://a.org ",
        "{n, plural, one {a file} other {# files}}",
        "\U000f0000 1",
        "[X7X] 1",  # what Weblate sends for a placeholder
    ],
)
def test_text_without_language_is_not_sent_to_a_model(text: str) -> None:
    def say(asked: str) -> str:
        raise AssertionError(asked)

    assert texts(text, say).text == text


@pytest.mark.parametrize("private", ["\U000f0000", "\U000f0001\U000f0000", "\ue000", "⓵ ⓶"])
def test_private_characters_of_a_text_are_no_markers(private: str) -> None:
    text = f"A {private} dog {{0}} and {{1}} runs."
    assert texts(text, str.lower).text == text.lower()


def test_a_stream_has_protected_sentences_in_order() -> None:
    async def streamed(router: ModelRouter, model: ServedModel, documents: OpenDocuments) -> list[Any]:
        return [one async for one in stream_texts(router, ["A dog. See {0}. A cat."], SentenceOptions("en", "de"))]

    found = told(str.upper, streamed)
    assert [one.text for _, one in found] == ["A DOG.", "SEE {0}.", "A CAT.", "A DOG. SEE {0}. A CAT."]


def test_long_texts_are_split_beside_the_event_loop() -> None:
    async def turns(text: str) -> int:
        """Turns of the loop until a text is split; one if the loop waits for it."""
        task, found = asyncio.create_task(segment_texts([text], "en", None)), 0
        while not task.done():
            await asyncio.sleep(0)
            found += 1
        assert task.result() == [segment_text(text, "en")]
        return found

    assert asyncio.run(turns("A dog.")) == 1
    assert asyncio.run(turns("A dog. " * 1000)) > 1
