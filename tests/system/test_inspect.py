"""`headwise inspect` in every format: page, image, heat map, JSON."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwise import Model

Cli = Callable[..., Any]
TEXT = "a b c d"


def inspections(page: Path) -> Any:
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


def test_page_by_default(cli: Cli, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("inspect", model_path, TEXT)
    assert (ran.code, ran.out, ran.err.strip().splitlines()[-1]) == (0, "", "attention.html")
    found = inspections(tmp_path / "attention.html")
    assert found["live"] is None
    (inspection,) = found["inspections"]
    assert (inspection["text"], inspection["translation"]) == (TEXT, TEXT)
    assert inspection["attention"]["cross"][0]["shape"] == [
        4,
        len(inspection["tgt"]["pieces"]),
        len(inspection["src"]["pieces"]),
    ]
    assert {node["status"] for node in inspection["beam"]} >= {"chosen", "pruned"}
    assert len(inspection["positions"]) == len(inspection["tgt"]["pieces"])


def test_a_default_page_overwrites_no_file(
    cli: Cli, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("attention.html", "attention-2.html"):
        (tmp_path / name).write_text("kept", encoding="utf-8")
    ran = cli("inspect", model_path, TEXT)
    assert ran.err.strip().splitlines()[-1] == "attention-3.html"
    assert inspections(tmp_path / "attention-3.html")["inspections"][0]["text"] == TEXT
    assert (tmp_path / "attention.html").read_text() == (tmp_path / "attention-2.html").read_text() == "kept"
    assert cli("inspect", model_path, TEXT, "-o", "attention.html").code == 0  # an explicit name
    assert inspections(tmp_path / "attention.html")["inspections"][0]["text"] == TEXT


@pytest.mark.parametrize(
    ("name", "exists", "complaint"),
    [
        ("missing.jpg", False, "missing.jpg: no such file (the name is that of a picture), and this model reads text"),
        ("missing.wav", False, "missing.wav: no such file (the name is that of a sound), and this model reads text"),
        ("my photo.JPG", True, "my photo.JPG: is a picture, and this model reads text; to look at this text itself: "),
        ("a.txt", True, "a.txt: is a file, and inspect takes one sentence; write the sentence, or read it from the"),
    ],
)
def test_a_file_is_no_text(
    cli: Cli,
    model_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    exists: bool,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attention.html").write_text("kept", encoding="utf-8")
    if exists:
        (tmp_path / name).write_text("a b", encoding="utf-8")
    assert complaint in cli("inspect", model_path, name).complaint
    assert [path.name for path in tmp_path.glob("*.html")] == ["attention.html"]
    assert (tmp_path / "attention.html").read_text() == "kept"


def test_texts_that_end_like_a_file_are_texts(cli: Cli, model_path: Path, tmp_path: Path) -> None:
    ran = cli("inspect", model_path, "a b c.jpg", "--format", "json", "-o", tmp_path / "a.json")
    assert ran.code == 0
    assert cli("inspect", model_path, "-", "--format", "text", stdin=b"a.jpg").code == 0


def test_json_rows_sum_to_one(cli: Cli, model_path: Path) -> None:
    ran = cli("inspect", model_path, TEXT, "--format", "json", "--translation", "d c b a")
    found = json.loads(ran.out)
    assert found["translation"] == "d c b a"
    for part in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(np.sum(found["attention"][part], axis=-1), 1.0, atol=1e-4)
    assert found["beam"] == []


def test_heat_map_in_the_terminal(cli: Cli, model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ran = cli("inspect", model_path, TEXT, "--format", "text", "--layer", 0, "--head", 1)
    assert ran.lines[0] == f"cross-attention, layer 0, head 1: {TEXT}"
    assert ran.lines[-1] == "  0 · ░ ▒ ▓ █ 1"
    assert any("█" in line or "▓" in line for line in ran.lines[1:-1])


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_image_by_its_suffix(cli: Cli, model_path: Path, tmp_path: Path, name: str, start: bytes, part: str) -> None:
    pytest.importorskip("matplotlib")
    assert cli("inspect", model_path, TEXT, "-o", tmp_path / name, "--part", part).code == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_prefix_and_beam_are_used(cli: Cli, model_path: Path) -> None:
    ran = cli("inspect", model_path, TEXT, "--format", "json", "--prefix", "j", "--beam-size", 1)
    found = json.loads(ran.out)
    assert found["translation"].startswith("j")
    assert {node["status"] for node in found["beam"]} <= {"chosen", "pruned"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--layer", 7, "--format", "text"], "layer 7 does not exist: they go from 0 to 0"),
        (["--head", 9, "--format", "text"], "head 9 does not exist"),
        (["-o", "a.gif"], "-o a.gif: files end in .htm, .txt, .html, .png, .svg, .pdf, .json"),
        (["-o", "a.png", "--format", "svg"], "-o a.png: ends as png does, but --format is svg"),
        (["-o", "-", "--format", "pdf"], "a picture (pdf) is written into a file"),
        (["--layer", 9], "--layer is for pictures and text"),
        (["-o", "nowhere/a.png"], "its folder does not exist"),
        (["-o", "nowhere/a.html"], "its folder does not exist"),
        (["--prefix", "a", "--translation", "b"], "prefix"),
        (["--formt", "text"], "did you mean '--format'?"),
    ],
)
def test_errors_are_one_line(cli: Cli, model_path: Path, arguments: list[Any], complaint: str) -> None:
    assert complaint in cli("inspect", model_path, TEXT, *arguments).complaint


def test_an_empty_text_is_refused(cli: Cli, model_path: Path) -> None:
    assert "blank" in cli("inspect", model_path, "-", stdin=b" \n").complaint


def test_explore_reports_errors_before_it_serves(cli: Cli, model_path: Path) -> None:
    assert "ports are from 0 to 65535" in cli("explore", model_path, "--port", 99999).complaint
    assert "no such model directory" in cli("explore", model_path, "--against", "nowhere").complaint


def test_a_record_shows_itself_in_a_notebook(copying: tuple[Model, Path]) -> None:
    shown = copying[0].attend(TEXT)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "a b c d" in shown
