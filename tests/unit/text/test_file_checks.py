"""Quick checks of files: errors, warnings, and no warnings for good corpora."""

import csv
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from headwise.cli import main
from headwise.errors import UserError
from headwise.text.files.corpus import Corpus
from headwise.text.files.file_checks import (
    check_files,
    file_warnings,
    has_header,
    is_swapped,
    leakage_warnings,
    parse_pairs,
)

ENGLISH = ["the man is reading a book in the garden", "two children play with a red ball", "she sings on the stage"]
GERMAN = ["der Mann liest ein Buch im Garten", "zwei Kinder spielen mit einem roten Ball", "sie singt auf der Bühne"]
JAPANESE = ["男性が庭で本を読んでいる", "二人の子供が赤いボールで遊ぶ", "彼女は舞台で歌う"]
PAIRS = list(zip(ENGLISH * 20, GERMAN * 20, strict=True))

TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
<body><tu><tuv xml:lang="en"><seg>A dog.</seg></tuv></tu></body>
</tmx>
"""
NO_TEXT = {
    "tmx": (TMX, "is TMX, a translation memory in XML, not one sentence per line"),
    "tmx in one line": (TMX.replace(b"\n", b" "), "is TMX"),
    "tmx with a mark": (b"\xef\xbb\xbf" + TMX, "is TMX"),
    "html": (b"<!DOCTYPE html>\n<html>\n<p>Hi</p>\n", "is XML or HTML"),
    "sgml of an evaluation": (b'<refset setid="a">\n<doc>\n<seg id="1">Hi</seg>\n', "is XML or HTML"),
    "zip": (b"PK\x03\x04\x14\x00", "is a zip archive or an Office document, not text"),
    "pdf": (b"%PDF-1.7\n" + b"readable " * 50, "is a PDF, not text"),
    "binary": (bytes(range(256)) * 4, "is binary, not text"),
    "packed binary": (gzip.compress(bytes(1000)), "is binary, not text"),
}
TEXT = {
    "a paragraph on XML": b'<?xml version="1.0"?> is how such a file begins.\nThen comes its root.\nAnd so on.\n',
    "declared pieces": b"<2de> 3 May\n<2fr> 4 May\n",
    "marked up": b"<b>Hi</b>\n<i>you</i>\n",
    "controls": b"a\x0bb\x1cc\n" * 9 + b"\x00 is one of many characters, and this line holds a single one of it\n",
    "utf-16, which has its own message": "a b\n".encode("utf-16"),
    "empty": b"",
}


def file(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def tsv(folder: Path, name: str, rows: Sequence[Sequence[str]]) -> Corpus:
    return Corpus((file(folder, name, "".join("\t".join(row) + "\n" for row in rows).encode()),))


@pytest.mark.parametrize("case", NO_TEXT)
def test_files_that_are_not_text(tmp_path: Path, case: str) -> None:
    content, expected = NO_TEXT[case]
    path = file(tmp_path, "x", content)
    with pytest.raises(UserError) as caught:
        check_files({"--train": [], "--valid": [path]})
    assert str(caught.value).startswith(f"--valid {path}: {expected}")


@pytest.mark.parametrize("case", TEXT)
def test_text_files_pass(tmp_path: Path, case: str) -> None:
    check_files({"--train": [file(tmp_path, "x", TEXT[case])]})


def test_paths_that_can_be_read_only_once_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_files({"--train": ["-", "hf:absent", str(tmp_path / "pipe")]})
    with pytest.raises(UserError, match=r"^--alignments .*absent: no such file"):
        check_files({"--train": ["-"], "--alignments": [str(tmp_path / "absent")]})


def test_the_same_file_on_both_sides_is_an_error(tmp_path: Path) -> None:
    path = file(tmp_path, "a.en", b"Hi\n")
    (tmp_path / "a.de").symlink_to(path)
    for other in (path, str(tmp_path / "a.de")):
        with pytest.raises(UserError, match=r"^--valid .*a\.en .*: source and target are the same file"):
            parse_pairs("--valid", [path, other])


def test_sound_corpora_raise_no_doubts(tmp_path: Path) -> None:
    train, valid = tsv(tmp_path, "train.tsv", PAIRS), tsv(tmp_path, "valid.tsv", PAIRS[::-1])
    assert list(file_warnings([train], [valid])) == []


def test_leakage_warning(tmp_path: Path) -> None:
    train = tsv(tmp_path, "train.tsv", PAIRS)
    others = [(f"{src} Yes.", f"{tgt} Ja.") for src, tgt in PAIRS]
    few = tsv(tmp_path, "few.tsv", [PAIRS[0], *others])  # as translation memories have
    assert list(leakage_warnings([train], [few])) == []
    (warning,) = leakage_warnings([train], [tsv(tmp_path, "many.tsv", [*PAIRS, *others])])
    assert warning.startswith(f"--valid has pairs of --train ({len(PAIRS)} of the first {2 * len(PAIRS)} pairs), so")


@pytest.mark.parametrize(
    ("pairs", "known", "size"),
    [(1, "1 pair", "10%"), (999, "999 pairs", "10%"), (1200, "1,000 pairs", "500pairs")],
)
def test_the_advised_size_is_less_than_the_corpus(tmp_path: Path, pairs: int, known: str, size: str) -> None:
    corpus = tsv(tmp_path, "train.tsv", [(f"a {i}", f"b {i}") for i in range(pairs)])
    (warning,) = leakage_warnings([corpus], [corpus])
    assert f" of the first {known})" in warning
    assert warning.endswith(f"hold out pairs instead, for example --valid {size}")


def test_swapped_validation_files_warning(tmp_path: Path) -> None:
    train, valid = tsv(tmp_path, "train.tsv", PAIRS), tsv(tmp_path, "valid.tsv", [pair[::-1] for pair in PAIRS])
    (warning,) = file_warnings([train], [valid])
    assert warning.startswith(f"--valid {valid}: looks swapped: its sources resemble the targets of --train")


def test_sides_are_distinguished_by_language() -> None:
    japanese = list(zip(JAPANESE * 10, ENGLISH * 10, strict=True))
    assert is_swapped(japanese, [pair[::-1] for pair in japanese])
    assert not is_swapped(japanese, japanese)
    same = [(text, text) for text in ENGLISH * 10]
    assert not is_swapped(same, same)
    assert not is_swapped(PAIRS, [("der die das", "the a an")])  # too few to say anything
    assert not is_swapped([("", "")] * 30, [("", "")] * 30)


@pytest.mark.parametrize(
    ("first", "header"),
    [
        (("en", "de"), True),
        (("eng", "pcm"), True),
        (("EN", "zh-CN"), True),
        (("source", "target"), True),
        (("English", "German"), True),
        (("src_text", "tgt_text"), True),
        (("text", "label"), True),
        (("go", "va !"), False),
        (("Source code is text.", "Quelltext ist Text."), False),
        (("Hi.", "Hallo!"), False),
    ],
)
def test_a_header_is_distinguished_from_a_sentence(tmp_path: Path, first: tuple[str, str], header: bool) -> None:
    corpus = tsv(tmp_path, "x.tsv", [first, *PAIRS])
    found = list(file_warnings([corpus], []))
    assert found == [
        f"--train {corpus}: line 1 ({first[0]} TAB {first[1]}) looks like a header and would be used as a pair; "
        "remove it"
    ] * int(header)


def test_short_words_of_a_word_list_are_not_a_header() -> None:
    assert not has_header([("am", "bin"), ("an", "ein"), ("as", "als"), ("at", "bei")])


SPOKEN = ['She says "yes" to him.', '"No", says the man.', 'A sign with "open" on it', "A dog runs."]


@given(
    texts=st.lists(st.sampled_from(SPOKEN), min_size=20, max_size=40),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_a_table_that_is_quoted_as_csv_is_reported(
    texts: list[str], quoting: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What Python's module writes; the same texts without that quoting are not reported."""
    folder = tmp_path_factory.mktemp("quotes")
    rows = list(zip(texts, reversed(texts), strict=True))
    with (folder / "a.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=quoting, lineterminator="\n").writerows(rows)
    changed = (folder / "a.tsv").read_text(encoding="utf-8") != "".join(f"{src}\t{tgt}\n" for src, tgt in rows)
    found = [one for one in file_warnings([Corpus((str(folder / "a.tsv"),))], []) if "has quotes as .csv" in one]
    assert len(found) == changed
    assert not any("has quotes" in one for one in file_warnings([tsv(folder, "plain.tsv", rows)], []))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("do@@ g", "segmented into subwords (do@@ g)"),
        ("two do@@", "segmented into subwords (two do@@)"),
        ("\u2581A \u2581do g", "segmented into subwords"),
        ("the dog &apos;s house", "escaped"),
        ("a well @-@ known man", "escaped"),
        ("A dog&#39;s house", "escaped"),
        ("write to me@@home &c; @ - @", ""),
    ],
)
def test_marks_of_tools_are_reported(tmp_path: Path, text: str, what: str) -> None:
    rows = [(source, target if number % 5 else text) for number, (source, target) in enumerate(PAIRS)]
    corpus = tsv(tmp_path, "x.tsv", rows)
    (warning,) = [*file_warnings([corpus], [])] or [""]
    assert (f"{corpus}: 12 of the first 60 pairs are {what}" in warning) if what else not warning
    assert not list(file_warnings([tsv(tmp_path, "few.tsv", [(text, text[::-1]), *PAIRS])], []))


@pytest.mark.parametrize("names", [("a.csv", "b.csv"), ("a.en", "b.json"), ("a.csv.gz", "a.de"), ("a.yml", "b.txt")])
def test_tables_are_not_the_sides_of_a_corpus(names: tuple[str, str], tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in names]
    for path in paths:
        Path(path).write_bytes(b"a,b\n")
    with pytest.raises(
        UserError, match=r"--train .*: is no text with one sentence per line, by its name; write source"
    ):
        parse_pairs("--train", paths)


@pytest.mark.parametrize("end", [".", " .", " ?", "..."])
def test_texts_to_score_that_are_tokenized_are_reported_as_by_sacrebleu(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"The dog runs {number}{end}" for number in range(120)]  # sacreBLEU warns from 100
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("the do@@ g\n" * 120, encoding="utf-8")
    files = ["--hypothesis", str(tmp_path / "a.txt"), "--reference", str(tmp_path / "b.txt")]
    assert main(["evaluate", *files]) == 0
    warnings = capsys.readouterr().err.splitlines()
    sacrebleu.BLEU().corpus_score(lines, [["the do@@ g"] * 120])
    tokenized = "tokenized period" in caplog.text
    assert [one.split(": ")[2][:10] for one in warnings] == ["--hypothes"] * tokenized + ["--referenc"]
    assert ("lines are tokenized (The dog runs 0 .)" in warnings[0]) == tokenized
    assert "120 of the first 120 lines are segmented into subwords (the do@@ g)" in warnings[-1]


def test_extra_columns_warning(tmp_path: Path) -> None:
    rows = [*PAIRS[:5], ("A dog.", "Ein Hund.", "of https://example.org, under a licence of many words"), *PAIRS[:4]]
    corpus = tsv(tmp_path, "x.tsv", rows)
    assert list(file_warnings([corpus], [])) == [
        f"--train {corpus}: 1 of the first 10 lines have more than two columns, but only two are read; "
        "line 6 loses 'of https://example.org, under a licence ...'"
    ]


def test_copied_sources_warning(tmp_path: Path) -> None:
    corpus = tsv(tmp_path, "x.tsv", [(text, text) for text in ENGLISH * 10])
    assert list(file_warnings([corpus], [])) == [
        f"--train {corpus}: 30 of the first 30 pairs have the same text on both sides; is that intended?"
    ]


MULTI30K = [
    ((f"multi30k/train.{src}.gz", f"multi30k/train.{tgt}.gz"), (f"multi30k/val.{src}.gz", f"multi30k/val.{tgt}.gz"))
    for src, tgt in (("en", "de"), ("de", "en"), ("en", "fr"), ("de", "fr"))
]
REAL = [
    *MULTI30K,
    (("tanaka-enja/train.en.gz", "tanaka-enja/train.ja.gz"), ("tanaka-enja/dev.en.gz", "tanaka-enja/dev.ja.gz")),
    (("tatoeba/deu-eng.train.tsv.gz",), ("tatoeba/deu-eng.valid.tsv.gz",)),
    (("tatoeba/fra-eng.train.tsv.gz",), ("tatoeba/fra-eng.valid.tsv.gz",)),
    (("g2p/cmudict.train.tsv.gz",), ("g2p/cmudict.valid.tsv.gz",)),
]


@pytest.mark.parametrize(("train", "valid"), REAL)
def test_no_warnings_about_real_corpora(shared_data: Path, train: tuple[str, ...], valid: tuple[str, ...]) -> None:
    sides = [[str(shared_data / name) for name in names] for names in (train, valid)]
    check_files({"--train": sides[0], "--valid": sides[1]})
    corpora = [parse_pairs("--train", side) for side in sides]
    assert list(file_warnings(*corpora)) == []
    if len(valid) == 2:
        (warning,) = file_warnings(corpora[0], parse_pairs("--valid", sides[1][::-1]))
        assert "looks swapped" in warning
