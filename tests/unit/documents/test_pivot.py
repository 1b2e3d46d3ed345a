"""Two models as one: what each is asked, and how placeholders find their places."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from headwise.config.data import TextData
from headwise.documents.fill import translate_units
from headwise.documents.formats.po import read_po
from headwise.documents.pivot import PivotTranslator, links_of
from headwise.documents.unit import plain
from headwise.runtime.search.translator import Translation
from headwise.text.files.links import Links
from headwise.text.tokens.tokenizer import Tokenizer

MARKED, UNMARKED = (Tokenizer.train(text, TextData(vocab_size=300)) for text in (["eins ⓵ zwei"] * 50, ["eins zwei"]))


class WordModel:
    """Translates word by word, and loses placeholders; `backwards` reverses the order of the words."""

    def __init__(self, words: dict[str, str], backwards: bool = False, markers: bool = False) -> None:
        self.words, self.backwards, self.tokenizer = words, backwards, MARKED if markers else UNMARKED
        self.settings: list[dict[str, Any]] = []

    def translate(self, texts: Sequence[str], prefix: str = "", **settings: Any) -> list[Translation]:
        self.settings.append({"prefix": prefix, **settings})
        parts = 2 if settings.get("max_source_length") else 1
        return [Translation(prefix + self._text(text), -1.0, -2.0, [], [], text.split(), parts) for text in texts]

    def translate_lines(self, lines: Iterable[str], prefix: str = "", **settings: Any) -> Iterator[Translation]:
        for line in lines:
            yield self.translate([line], prefix, **settings)[0]

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
        assert list(targets) == [self._text(text) for text in sources]
        return [self._links(len(text.split())) for text in sources]

    def _text(self, text: str) -> str:
        words = [self.words.get(word, word) for word in text.split() if word.isalpha()]
        return " ".join(reversed(words) if self.backwards else words)

    def _links(self, count: int) -> Links:
        return frozenset((n, count - 1 - n if self.backwards else n) for n in range(count))


FIRST, SECOND = {"eins": "one", "zwei": "two", "drei": "three"}, {"one": "un", "two": "deux", "three": "trois"}


def test_placeholders_find_their_places_through_both_models() -> None:
    model = PivotTranslator(WordModel(FIRST, backwards=True), WordModel(SECOND))
    document = read_po("a.po", b'msgid "eins zwei %s drei"\nmsgstr ""\n', ("", ""))
    (one,) = translate_units(document, model)
    assert plain(one.target) == "%s trois deux un"


def test_links_are_those_of_any_translation_not_only_of_the_last() -> None:
    """Such as in several threads; models without cross-attention have none, and neither have texts in parts."""
    model = PivotTranslator(WordModel(FIRST, backwards=True), WordModel(SECOND))
    found = model.translate(["eins zwei drei"])
    model.translate(["zwei"])
    streamed = [*model.translate_lines(["eins zwei"])]
    assert [one.between for one in [*found, *streamed]] == ["three two one", "two one"]
    assert links_of(model, ["eins zwei drei"], found) == [{(0, 2), (1, 1), (2, 0)}]
    assert links_of(model, ["eins zwei"], streamed) == [{(0, 1), (1, 0)}]
    assert links_of(model, ["eins"], model.translate(["eins"], max_source_length=1)) == [None]
    assert links_of(PivotTranslator(model.first, object()), ["eins zwei"], streamed) == [None]


def test_a_prefix_and_alternatives_are_of_the_second_model() -> None:
    model = PivotTranslator(WordModel(FIRST), WordModel(SECOND))
    (one,) = model.translate(["eins zwei"], "le ", n_best=3, beam_size=5)
    assert model.first.settings == [{"prefix": "", "n_best": 1, "beam_size": 5}]
    assert model.second.settings == [{"prefix": "le ", "n_best": 3, "beam_size": 5}]
    assert (one.text, one.score, one.log_prob, one.source_pieces) == ("le un deux", -2.0, -4.0, ["eins", "zwei"])
    assert [one.text for one in model.translate_lines(["eins", "zwei"])] == ["un", "deux"]


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
def test_markers_are_used_if_both_models_know_them(first: bool, second: bool) -> None:
    model = PivotTranslator(WordModel(FIRST, markers=first), WordModel(SECOND, markers=second))
    document = read_po("a.po", b'msgid "%s eins zwei"\nmsgstr ""\n', ("", ""))
    asked: list[str] = []
    model.first.translate = lambda texts, **settings: asked.extend(texts) or WordModel(FIRST).translate(texts)
    translate_units(document, model)
    assert ("⓵" in asked[0]) == (first and second)
