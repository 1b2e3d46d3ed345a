"""Training on a folder of catalogues, and filling the untranslated entries of another, with every placeholder."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwise.documents.formats.po import read_po
from headwise.documents.markup.markers import supports_markers
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.unit import UnitState, plain

Cli = Callable[..., Any]
WORDS = {"open": "ouvrir", "file": "fichier", "close": "fermer", "page": "page", "old": "vieux", "new": "neuf"}
CODES = ("{n}", "%(name)s", "%d", "<b>", "https://a.org/b")
HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
SETTINGS = ["model.d_model=32", "model.d_ff=64", "model.n_heads=4", "model.n_encoder_layers=1", "model.dropout=0.0",
            "model.n_decoder_layers=1", "data.vocab_size=400", "train.max_steps=500", "train.validate_every=500",
            "train.learning_rate=0.01", "train.warmup_steps=50", "train.tokens_per_batch=512",
            "train.threads=1"]  # fmt: skip


def entries(n: int, seed: int) -> list[tuple[str, str]]:
    """Words and their translations, with codes among them."""
    rng = Random(seed)
    rows = []
    for _ in range(n):
        row = [rng.choice([*WORDS, *CODES]) for _ in range(rng.randint(1, 5))] + [rng.choice(list(WORDS))]
        rows.append((" ".join(row), " ".join(WORDS.get(word, word) for word in row)))
    return rows


def catalogue(rows: list[tuple[str, str]]) -> str:
    unique = dict(rows)
    return HEADER + "".join(f'\nmsgid "{source}"\nmsgstr "{target}"\n' for source, target in unique.items())


@pytest.fixture(scope="module")
def trained(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("catalogues")
    (folder / "memory" / "deep").mkdir(parents=True)
    (folder / "memory" / "a.po").write_text(catalogue(entries(900, 1)))
    (folder / "memory" / "deep" / "b.po").write_text(catalogue([*entries(900, 2), ("dropped", "")]))
    (folder / "memory" / "notes.txt").write_text("no catalogue")
    (folder / "valid.po").write_text(catalogue(entries(60, 3)))
    options = ["--train", folder / "memory", "--valid", folder / "valid.po", "--out", folder / "model"]
    options += ["--languages", "en-fr"]
    ran = cli("train", "--recipe", "tiny", *options, "--set", *SETTINGS)
    assert ran.code == 0, ran.err
    return folder / "model", ran.err + ran.out


@pytest.mark.thorough
def test_training_data_are_reported(trained: tuple[Path, str]) -> None:
    assert "1 untranslated" in trained[1]
    assert "with placeholders or tags" in trained[1]
    about = json.loads((trained[0] / "config.json").read_text())
    assert about["languages"] == "en-fr"  # for `headwise serve`
    assert (about["corpus"]["train"], about["corpus"]["valid"]) == (["memory"], ["valid.po"])  # no names of the cache
    card = (trained[0] / "README.md").read_text()
    assert "memory" in card and "memory-" not in card and "valid.po" in card


@pytest.mark.thorough
def test_untranslated_entries_are_filled_with_every_placeholder(
    cli: Cli, trained: tuple[Path, str], tmp_path: Path
) -> None:
    import headwise

    rows = list(dict(entries(40, 9)).items())
    text = catalogue([(source, "" if n % 2 else target) for n, (source, target) in enumerate(rows)])
    (tmp_path / "messages.po").write_text(text)
    report = tmp_path / "report.jsonl"
    ran = cli("translate", trained[0], tmp_path / "messages.po", "-o", tmp_path / "fr.po", "--report", report)
    assert ran.code == 0, ran.err
    assert supports_markers(headwise.load(trained[0]).tokenizer)
    assert f"{len(rows) // 2} translated, 0 left open" in ran.err
    before, after = text.encode(), (tmp_path / "fr.po").read_bytes()
    units = list(zip(read_po("a", before, ("", "")).units, read_po("b", after, ("", "")).units, strict=True))
    right = 0
    for (old, new), (source, target) in zip(units, rows, strict=True):
        if old.state is UnitState.TRANSLATED:
            assert new == old or (new.target, new.state) == (old.target, old.state)
            continue
        assert new.state is UnitState.FUZZY
        assert sorted(p.text for p in with_codes(new.target) if not isinstance(p, str)) == sorted(
            word for word in source.split() if word in CODES
        )
        right += plain(new.target) == target
    assert right >= 0.7 * len(rows) / 2
    listed = [json.loads(line) for line in report.read_text().splitlines()]
    assert sorted(row["source"] for row in listed) == sorted(source for source, _ in rows[1::2])
    if shutil.which("msgfmt"):
        subprocess.run(["msgfmt", "--use-fuzzy", "-o", tmp_path / "fr.mo", tmp_path / "fr.po"], check=True)


def test_a_model_without_markers_keeps_tags(cli: Cli, model_path: Path, tmp_path: Path) -> None:
    """The shared model copies letters."""
    (tmp_path / "a.xlf").write_text(
        '<xliff version="1.2"><file source-language="x" target-language="y"><body>'
        '<trans-unit id="1"><source>a b <g id="1">c d</g> e</source></trans-unit></body></file></xliff>'
    )
    ran = cli("translate", model_path, tmp_path / "a.xlf", "-o", tmp_path / "b.xlf", "--beam-size", "1")
    assert ran.code == 0, ran.err
    assert "1  the same as its source" in ran.err
    assert '>a b <g id="1">c d</g> e</target>' in (tmp_path / "b.xlf").read_text()


def test_terms_in_a_document_are_counted_once(cli: Cli, model_path: Path, tmp_path: Path) -> None:
    """Though units with a tag are translated twice, with and without it."""
    (tmp_path / "terms.tsv").write_text("a|b\tj\nc\tk\n")
    (tmp_path / "a.json").write_text('{"x": "a d <b>e</b>", "y": "b d", "z": "d e"}')
    paths = tmp_path / "a.json", "-o", tmp_path / "b.json", "--glossary", tmp_path / "terms.tsv"
    ran = cli("translate", model_path, *paths)
    assert ran.code == 0, ran.err
    assert "2 of 2 required terms are in the translations" in ran.err
    assert (tmp_path / "b.json").read_text().count("j") == 2


@pytest.mark.parametrize(
    "name,text,kept,flags",
    [
        ("a.json", '{"x": {"y": "a b c"}, "n": 1}', '{"x": {"y": "_"}, "n": 1}', []),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>a b\n", "1\n00:00:01,000 --> 00:00:02,000\n<i>_\n", []),
        ("a.txt", "  a b. c d.\r\n\r\n b\n", "  _ _\r\n\r\n _\n", ["--sentences"]),
    ],
)
def test_translations_replace_texts_in_a_file_of_one_language(
    cli: Cli, model_path: Path, tmp_path: Path, name: str, text: str, kept: str, flags: list[str]
) -> None:
    """The shared model copies letters, more or less; `_` stands for its outputs."""
    (tmp_path / name).write_bytes(text.encode())
    ran = cli("translate", model_path, tmp_path / name, "-o", tmp_path / "out", "--beam-size", "1", *flags)
    assert ran.code == 0, ran.err
    pattern = re.escape(kept).replace("_", r"[^\r\n\"<>{}]+")
    assert re.fullmatch(pattern, (tmp_path / "out").read_bytes().decode())


@pytest.mark.parametrize(
    "flags,said",
    [
        (["a.po", "--format", "jsonl"], "--format is for lines of text"),
        (["a.txt", "--report", "r.jsonl"], "--report is for documents (files such as .po"),
        (["missing.po"], "missing.po: no such file"),
    ],
)
def test_options_that_do_not_fit_a_document_are_refused(
    cli: Cli, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in cli("translate", model_path, *flags).complaint
    assert not list(tmp_path.iterdir())


def test_stored_translations_are_used_and_similar_ones_reported(cli: Cli, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "m.po").write_text('msgid "a b c"\nmsgstr "stored"\n\nmsgid "a {n}"\nmsgstr "{n} stored"\n')
    (tmp_path / "a.json").write_text('{"x": "a b c", "y": "a  {n}", "z": "a b c d", "w": "j j"}')
    ran = cli("translate", model_path, tmp_path / "a.json", "-o", tmp_path / "b.json", "--memory", tmp_path / "m.po",
              "--report", tmp_path / "r.jsonl", "--beam-size", "1")  # fmt: skip
    assert ran.code == 0, ran.err
    found = json.loads((tmp_path / "b.json").read_text())
    assert (found["x"], found["y"]) == ("stored", "{n} stored") and "stored" not in found["z"]
    rows = {row["source"]: row["memory"] for row in map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())}
    assert rows["a b c"] == [{"score": 1.0, "source": "a b c", "target": "stored"}] and rows["j j"] == []
    assert rows["a b c d"] == [{"score": round(10 / 12, 4), "source": "a b c", "target": "stored"}]

    (tmp_path / "a.txt").write_text("a b c\nj j\n\na b c\n")
    lines = cli("translate", model_path, tmp_path / "a.txt", "--memory", tmp_path / "m.po", "--beam-size", "1").out
    without = cli("translate", model_path, tmp_path / "a.txt", "--beam-size", "1").out.split("\n")
    assert lines.split("\n") == ["stored", without[1], "", "stored", ""]


def test_a_memory_without_a_pair_is_refused_before_anything_is_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(catalogue([("open", "")]))
    ran = cli("train", "--recipe", "tiny", "--train", tmp_path / "a.po", "--valid", "5%", "--out", tmp_path / "m")
    assert "has no translated pairs (1 unit: 0 pairs" in ran.complaint
    assert not (tmp_path / "m").exists()


def test_an_empty_folder_is_called_a_folder(cli: Cli, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in (["check-corpus", tmp_path / "empty"], ["evaluate", model_path, "--source", tmp_path / "empty"]):
        said = cli(*command).complaint
        assert f"{tmp_path / 'empty'}: is a folder without a file of " in said and "to train on" not in said


def test_check_corpus_checks_translation_memories(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(catalogue([*entries(50, 1), ("open", "")]))
    ran = cli("check-corpus", tmp_path / "a.po")
    assert ran.code == 0, ran.err
    assert "1 untranslated" in ran.err
    assert "pairs" in ran.out
