"""The report on a filled document."""

import json
from collections import Counter

import pytest

from headwise.cli.documents import fill_summary
from headwise.documents.fill import ICU_CHOICE, translation_steps
from headwise.documents.fill_report import MOST_SKIPPED, fill_report
from headwise.documents.not_translated import not_translated
from headwise.documents.reading import parse_document
from headwise.documents.segments import SentenceTranslation
from headwise.documents.unit import Skipped


def test_texts_that_are_never_translated_are_counted_and_the_first_of_each_kind_listed() -> None:
    kinds = {"code block": MOST_SKIPPED + 5, "formula": 2}
    skipped = [Skipped(kind, line) for kind, number in kinds.items() for line in range(1, number + 1)]
    report = fill_report(0, [], skipped)
    assert report["not_translated"] == kinds
    listed = Counter(row["not_translated"] for row in report["texts"])
    assert listed == {"code block": MOST_SKIPPED, "formula": 2} and report["texts"][0]["line"] == 1


CHOICES = {
    "plural": "{n, plural, =0 {no file} one {a file} other {# files}}",
    "in a sentence": "You have {count,plural,offset:1 one{# mail} other{# mails}} now.",
    "select": "{g.of, select, male {He} other {They <b>all</b>}} liked it",
    "ordinal": "{n, selectordinal, one {#st place} other {#th place}}",
    "choice": "{0,choice,0#no files|1#one file|1<{0} files}",
    "nested": "{n, plural, one {{g, select, male {his} other {their}} %s} other {see @:other.key}}",
    "not closed": "{n, plural, one {a file} other {# files",
}
FILES = {
    "a.json": json.dumps(CHOICES),
    "formatjs.json": json.dumps({key: {"defaultMessage": text} for key, text in CHOICES.items()}),
    "messages.json": json.dumps({key: {"message": text} for key, text in CHOICES.items()}),
    "a.arb": json.dumps({"@@x-a": 1, **CHOICES}),
    "a.po": "".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in CHOICES.values()),
    "a.xcstrings": json.dumps({"sourceLanguage": "en", "strings": {text: {} for text in CHOICES.values()}}),
    "a.properties": "".join(f"{key.replace(' ', '.')}={text}\n" for key, text in CHOICES.items()),
    "a.strings": "".join(f'"{key}" = "{text}";\n' for key, text in CHOICES.items()),
    "a.yml": "en:\n" + "".join(f"  {key}: {json.dumps(text)}\n" for key, text in CHOICES.items()),
}


@pytest.mark.parametrize("name", FILES)
def test_texts_that_choose_among_texts_are_counted_in_every_format(name: str) -> None:
    document = parse_document(name, FILES[name].encode(), ("en", "fr"))
    with pytest.raises(StopIteration) as end:  # without a sentence for the model
        next(translation_steps(document, "en", markers=True))
    report = fill_report(len(document.units), end.value.value, not_translated(document))
    assert report["warnings"] == {ICU_CHOICE: len(CHOICES)} and report["units"]["left_open"] == len(CHOICES)
    assert [row["source"] for row in report["texts"]] == [*CHOICES.values()]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "before", "text", "kept", "after"),
    [
        ("a.html", "", "<p>A dog {n}</p>", "<p>12</p>", ""),
        ("a.md", "", "A dog {n}\n\n", "12\n\n", ""),
        (
            "a.srt",
            "",
            "{n}\n00:00:0{n},000 --> 00:00:0{n},500\nA dog\n\n",
            "9\n00:00:09,000 --> 00:00:09,500\n12\n\n",
            "",
        ),
        ("a.po", "", 'msgid "A dog {n}"\nmsgstr ""\n\n', 'msgid "A cat"\nmsgstr "Une chat"\n\n', ""),
        ("a.json", "{{", '"{n}": "A dog", ', '"n": "12", ', '"a": ""}}'),
    ],
)
def test_the_summary_counts_what_was_translated_and_kept(
    number: int, name: str, before: str, text: str, kept: str, after: str
) -> None:
    texts = "".join(text.replace("{n}", str(n)) for n in range(number))
    content = f"{before}{texts}{kept}{after}".replace("{{", "{").replace("}}", "}")
    document = parse_document(name, content.encode(), ("en", "fr"))
    steps = translation_steps(document, "en", markers=False)
    with pytest.raises(StopIteration) as end:
        request = next(steps)
        steps.send([SentenceTranslation("Un chien", n_tokens=(0, 2)) for _ in request.texts])
    rest = len(document.units) - number
    units = "1 unit" if number + rest == 1 else f"{number + rest} units"
    summary = fill_summary(len(document.units), end.value.value)
    assert summary.split("\n")[0] == f"{units}: {number} translated, 0 left open, {rest} kept unchanged"
