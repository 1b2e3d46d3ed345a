"""Translating files: one line out per line in, for any input, by every way in and out, always with the same text."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import headwise

# Short parts and outputs: the model was trained on six letters in a row, and the line has ten thousand.
BRIEF = ["--beam-size", 1, "--max-source-length", 24, "--batch-tokens", 8192, "--device", "cpu"]
LINES = [
    "a b c",
    "",
    "   ",
    "\t",
    "d",
    "e f " * 5000,
    "a\tb\tc",
    "\x00 \x01\x07\x1b[31m\x7f",
    "😀 👨‍👩‍👧 ñ e\u0301",
    "a\u2028b\u2029c\u0085d",
    "a\rb\r",
    "\x0b\x0c\x1c\x1d\x1e",
    "\ufeffa \ufffd",
    "<s> </s> <pad> <unk> ▁a",
    "日本語のテキスト。مرحبا",
    "\u00a0\u3000",
    "x" * 500,
    "a b c",
]


LONG = max(range(len(LINES)), key=lambda i: len(LINES[i]))


def without_long(lines: list[str]) -> list[str]:
    """The same without the slow line."""
    return lines[:LONG] + lines[LONG + 1 :]


SHORT = without_long(LINES)


def as_bytes(lines: list[str]) -> bytes:
    """With a byte-order mark, both kinds of line ends, and none at the end."""
    ends = ["\r\n" if number % 3 == 0 else "\n" for number in range(len(lines) - 1)]
    return ("\ufeff" + "".join(map(str.__add__, lines, [*ends, ""]))).encode()


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nasty") / "input.txt"
    path.write_bytes(as_bytes(LINES))
    return path


@pytest.fixture(scope="module")
def output(nasty: Path, model_path: Path, cli: Any) -> str:
    ran = cli("translate", model_path, nasty, *BRIEF)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_line_in_line_out(output: str) -> None:
    *lines, rest = output.split("\n")
    assert rest == ""
    assert len(lines) == len(LINES)
    assert [line for text, line in zip(LINES, lines, strict=True) if not text.strip()] == [""] * 5
    assert lines[0] == lines[-1] == "a b c"
    assert lines[4] == "d"
    assert lines[LONG]


def test_library_and_command_line_agree(output: str, model_path: Path) -> None:
    model = headwise.load(model_path, device="cpu")
    settings: dict[str, Any] = {"beam_size": 1, "max_source_length": 24, "batch_tokens": 8192}
    translations = model.translate(LINES, **settings)
    found = [translation.text for translation in translations]
    assert found == output.split("\n")[:-1]
    shown = "".join(translations[LONG].source_pieces).replace("▁", " ")  # nothing of the long line is lost
    assert shown.split() == LINES[LONG].split()
    assert translations[LONG].parts > 100
    streamed = model.translate_lines((line + "\n" for line in SHORT), chunk_lines=4, **settings)
    assert [translation.text for translation in streamed] == without_long(found)


def test_every_way_in_and_out_gives_the_same_bytes(output: str, model_path: Path, cli: Any, tmp_path: Path) -> None:
    content = as_bytes(SHORT)
    expected = "".join(line + "\n" for line in without_long(output.split("\n")[:-1]))
    assert cli("translate", model_path, *BRIEF, stdin=content).out == expected
    assert cli("translate", model_path, "-", *BRIEF, stdin=content + b"\n").out == expected
    packed, target = tmp_path / "input.txt.gz", tmp_path / "out.txt"
    packed.write_bytes(gzip.compress(content, mtime=0))
    ran = cli("translate", model_path, packed, "-o", target, *BRIEF)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert target.read_bytes() == expected.encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.txt.gz", "out.txt"]


def test_no_lines_in_no_lines_out(model_path: Path, cli: Any) -> None:
    ran = cli("translate", model_path, stdin=b"")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_json_lines_have_scores_pieces_and_alternatives(model_path: Path, cli: Any) -> None:
    ran = cli("translate", model_path, "--format", "jsonl", "--n-best", 2, stdin="a b c\n\nä\n".encode())
    records = [json.loads(line) for line in ran.lines]
    assert [record["text"] for record in records[:2]] == ["a b c", ""]
    assert [len(record["alternatives"]) for record in records] == [1, 0, 1]
    for record in records:
        assert record.keys() == {field.name for field in fields(headwise.Translation)}
        assert len(record["pieces"]) == len(record["token_log_probs"])
        assert all(value <= 0 for value in record["token_log_probs"])
        assert all(other["score"] <= record["score"] for other in record["alternatives"])
    assert records[0]["pieces"] == records[0]["source_pieces"] == ["▁a", "▁b", "▁c"]


def test_alternatives_are_on_one_line(model_path: Path, cli: Any) -> None:
    ran = cli("translate", model_path, "--n-best", 3, "--beam-size", 3, stdin=b"a b c\nd\te\n\n")
    columns = [line.split("\t") for line in ran.lines]
    assert [len(column) for column in columns] == [3, 3, 1]
    assert columns[0][0] == "a b c"
    assert len(set(columns[0])) == 3


def test_the_beam_is_as_wide_as_the_list(model_path: Path, cli: Any) -> None:
    (line,) = cli("translate", model_path, "--n-best", 7, stdin=b"a b c\n").lines
    assert len(set(line.split("\t"))) == 7


def test_a_sentence_is_translated_alone_as_in_a_batch(copying: tuple[headwise.Model, Path]) -> None:
    model, _ = copying
    lines = ["a", "b c d e f", "x y z", "a b c d e f a b c", "j i"]
    together = model.translate(lines)
    for line, among in zip(lines, together, strict=True):
        (alone,) = model.translate([line])
        assert (alone.text, alone.pieces) == (among.text, among.pieces)
        assert alone.token_log_probs == pytest.approx(among.token_log_probs, abs=1e-4)


def test_a_prefix_and_a_setting_reach_the_search(model_path: Path, cli: Any) -> None:
    assert cli("translate", model_path, "--prefix", "j", stdin=b"a b\n").out.startswith("j")
    longer = cli("translate", model_path, "--min-length-factor", 1.5, stdin=b"a b c d\n").out
    assert len(longer.split()) > 4


def test_sampling_follows_its_seed(model_path: Path, cli: Any) -> None:
    def sample(seed: int) -> str:
        return cli("translate", model_path, "--sample", "--temperature", 3, "--seed", seed, stdin=b"a b\nc d e\n").out

    assert sample(1) == sample(1) != sample(2)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a\nb \xff c\n", "line 2 is not UTF-8 (byte 0xff at byte offset 4)"),
        (gzip.compress(b"a\n" * 5000, mtime=0)[:-20], "the .gz is damaged"),
    ],
)
def test_bad_input_leaves_no_output_behind(
    content: bytes, complaint: str, model_path: Path, cli: Any, tmp_path: Path
) -> None:
    (tmp_path / "input").write_bytes(content)
    (tmp_path / "out.txt").write_bytes(b"before")
    told = cli("translate", model_path, tmp_path / "input", "-o", tmp_path / "out.txt", "--beam-size", 1).complaint
    assert complaint in told
    assert str(tmp_path / "input") in told
    assert (tmp_path / "out.txt").read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input", "out.txt"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--beam-size", 0], "--beam-size 0: must be greater than 0"),
        (["--n-best", 9, "--beam-size", 2], "--n-best 9 is more than --beam-size 2"),
        (["--temperature", -1, "--sample"], "--temperature -1.0"),
        (["--top-p", 2, "--sample"], "--top-p 2.0"),
        (["--top-k", 3], "--top-k is for sampling: add --sample"),
        (["a b c"], "a b c: no such file; for a text itself: echo 'a b c' | headwise translate MODEL"),
        (["absent.txt"], "absent.txt: no such file"),
        (["."], ".: is a folder"),
    ],
)
def test_refused_settings_and_files(arguments: list[Any], complaint: str, model_path: Path, cli: Any) -> None:
    assert complaint in cli("translate", model_path, *arguments, stdin=b"a\n").complaint


@pytest.mark.parametrize("name", ["picture.svg", "a.tsv", "train.en"])
@pytest.mark.parametrize("options", [[], ["--sentences"]])
def test_a_file_of_another_type_requires_the_lines_option(
    name: str, options: list[str], model_path: Path, cli: Any, tmp_path: Path
) -> None:
    text = "<resources>\n<string>a b</string>\n</resources>\n"
    (tmp_path / name).write_text(text, encoding="utf-8")
    arguments = ["translate", model_path, tmp_path / name, "-o", tmp_path / "out"]
    assert "--lines translates it line by line" in cli(*arguments, *options).complaint
    assert not (tmp_path / "out").exists()
    assert cli(*arguments, "--lines").code == 0
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == 3


def test_a_closed_pipe_is_no_error(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("a b c\n" * 40, encoding="utf-8")
    arguments = [sys.executable, "-m", "headwise", "translate", str(model_path), str(tmp_path / "input.txt")]
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_second_model_translates_what_the_first_has_translated(
    model_path: Path, copying: Any, cli: Any, tmp_path: Path
) -> None:
    asked = ["a b c", "", "x y", "j i h g f e d c b a"]
    first = copying[0].translate(asked)
    second = copying[0].translate([one.text for one in first], prefix="j", n_best=2)
    (tmp_path / "input.txt").write_text("\n".join(asked) + "\n", encoding="utf-8")
    command = ["translate", model_path, tmp_path / "input.txt", "--then", model_path, "--prefix", "j", "--n-best", 2]
    rows = [json.loads(line) for line in cli(*command, "--format", "jsonl", "--workers", 2).lines]
    assert [row["text"] for row in rows] == [one.text for one in second]
    assert [len(row["alternatives"]) for row in rows] == [1, 0, 1, 1]
    sums = [a.log_prob + b.log_prob for a, b in zip(first, second, strict=True)]
    assert [row["log_prob"] for row in rows] == pytest.approx(sums, abs=1e-4)
    assert [row["source_pieces"] for row in rows] == [one.source_pieces for one in first]
    arriving = cli("translate", model_path, "--then", model_path, stdin=b"a b c\n\nd\n")
    assert arriving.lines == ["a b c", "", "d"]


def test_a_document_is_translated_through_a_third_language(
    model_path: Path, copying: Any, cli: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("x y z\n", encoding="utf-8")
    ran = cli("translate", model_path, tmp_path / "a.txt", "--then", model_path, "--sentences", "--prefix", "j")
    assert "--prefix is for lines of text" in ran.complaint
    ran = cli("translate", model_path, tmp_path / "a.txt", "--then", model_path, "--sentences")
    (whole,) = copying[0].translate([copying[0].translate(["x y z"])[0].text])
    assert ran.code == 0 and ran.lines == [whole.text], ran.err


@pytest.mark.parametrize("more", [["--keep", __file__], ["--alignment", "-"], ["--source-language", "de"]])
def test_options_for_a_single_model_do_not_go_with_a_second(more: list[str], model_path: Path, cli: Any) -> None:
    assert f"{more[0]} does not go with --then" in cli("translate", model_path, "--then", model_path, *more).complaint
