"""Word alignment and pruning on the command line, with the trained copying model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwise import Model
from headwise.view.readings import alignment_row, between_words, clearest_head

Files = tuple[Path, Path, Path]
PAIRS = 16


@pytest.fixture
def copied(task: Callable[..., Any], write: Callable[..., Any], tmp_path: Path) -> Files:
    """Letters, the same letters, and their links: word n to word n."""
    pairs = task(PAIRS, 5)
    src, tgt = write(tmp_path / "pairs", pairs)
    gold = tmp_path / "pairs.gold"
    gold.write_text("".join(" ".join(f"{i}-{i}" for i in range(len(text.split()))) + "\n" for text, _ in pairs))
    return src, tgt, gold


@pytest.mark.thorough
def test_copying_aligns_each_letter_with_itself(
    cli: Callable[..., Any], model_path: Path, copied: Files, tmp_path: Path
) -> None:
    src, tgt, gold = copied
    model = shutil.copytree(model_path, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints"))
    chosen = cli("align", model, "--source", src, "--target", tgt, "--choose", gold)
    assert chosen.code == 0, chosen
    assert len(chosen.lines) == 5
    aligned = cli("align", model, "--source", src, "--target", tgt, "-o", tmp_path / "links")
    assert aligned.code == 0, aligned
    scored = cli("evaluate", "--alignments", gold, "--hypothesis", tmp_path / "links")
    assert chosen.lines[0].endswith(scored.lines[0])
    report = cli("evaluate", model, "--source", src, "--target", tgt, "--alignments", gold, "--format", "json")
    found = json.loads(report.out)
    assert found["aer"] < 5
    assert found["pairs"] == PAIRS
    assert found["head"] == json.loads((model / "alignment.json").read_text())
    both = cli("evaluate", model, "--source", src, "--target", tgt, "--alignments", gold, "--reverse", model)
    assert float(both.lines[0].split()[1]) < 5


def test_translate_writes_links(cli: Callable[..., Any], model_path: Path, tmp_path: Path) -> None:
    text = b"a b c\n\nd e\n"
    plain = cli("translate", model_path, stdin=text).lines
    within = cli("translate", model_path, "--alignment", "-", stdin=text).lines
    apart = cli("translate", model_path, "--alignment", tmp_path / "links", stdin=text).lines
    records = cli("translate", model_path, "--alignment", "-", "--format", "jsonl", stdin=text).lines
    links = (tmp_path / "links").read_text().split("\n")[:-1]
    assert apart == plain
    assert within == [f"{line} ||| {pair}" for line, pair in zip(plain, links, strict=True)]
    assert [json.loads(record)["alignment"] for record in records] == links
    assert links[1] == ""
    parts = cli("translate", model_path, "--alignment", "-", "--max-source-length", "8", stdin=b"a b c d e f g h\n")
    assert parts.lines[0].endswith(" ||| ")  # a line translated in parts has no links
    assert [len(pair.split()) for pair in links] == [len(line.split()) for line in plain]


def test_prune(cli: Callable[..., Any], model_path: Path, copied: Files, tmp_path: Path) -> None:
    src, tgt, _ = copied
    ran = cli("prune", model_path, "--heads", "25%", "--source", src, "--target", tgt, "--out", tmp_path / "small")
    assert ran.code == 0, ran
    assert "without 3 heads" in ran.err
    translated = cli("translate", tmp_path / "small", src)
    assert len(translated.lines) == PAIRS
    again = cli("prune", model_path, "--heads", "1", "--source", src, "--target", tgt, "--out", tmp_path / "small")
    assert "holds a model already" in again.complaint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate"], "MODEL and --source are required"),
        (["evaluate", "MODEL", "--source", "SRC", "--target", "SRC"], "--target is for --alignments"),
        (["evaluate", "MODEL", "--alignments", "GOLD"], "--alignments needs links to score"),
        (["evaluate", "--alignments", "SRC", "--hypothesis", "GOLD"], "pairs.src: line 1: 'a' is not a link"),
        (["evaluate", "--alignments", "GOLD", "--hypothesis", "TWO"], f"links of 1 pair, but gold of {PAIRS}"),
        (["align", "MODEL", "--source", "SRC", "--target", "TWO"], "line n must belong to line n"),
        (
            ["align", "MODEL", "--source", "SRC", "--target", "SRC", "--choose", "TWO"],
            f"has 1 line, but there are {PAIRS}",
        ),
        (
            ["prune", "MODEL", "--heads", "99%", "--source", "SRC", "--target", "SRC", "--out", "OUT"],
            "that is 12 of 12",
        ),
    ],
)
def test_errors_of_align(
    cli: Callable[..., Any], model_path: Path, copied: Files, tmp_path: Path, arguments: list[str], message: str
) -> None:
    src, _, gold = copied
    src.write_text("a\n" + "".join(src.read_text().splitlines(keepends=True)[1:]))
    two = tmp_path / "two"
    two.write_text("0-0\n")
    names = {"MODEL": model_path, "SRC": src, "GOLD": gold, "TWO": two, "OUT": tmp_path / "out"}
    assert message in cli(*[names.get(argument, argument) for argument in arguments]).complaint


def test_a_damaged_alignment_head_is_named(
    cli: Callable[..., Any], model_path: Path, copied: Files, tmp_path: Path
) -> None:
    model = shutil.copytree(model_path, tmp_path / "model", ignore=shutil.ignore_patterns("checkpoints"))
    (model / "alignment.json").write_text('{"layer": 0}')
    ran = cli("align", model, "--source", copied[0], "--target", copied[1])
    assert "alignment.json: must say layer, head and row" in ran.complaint
    (model / "alignment.json").write_text('{"layer": 7, "head": null, "row": "reads"}')
    assert "layer 7" in cli("align", model, "--source", copied[0], "--target", copied[1]).complaint


def test_training_a_head_to_align(cli: Callable[..., Any], copied: Files, tmp_path: Path) -> None:
    """A few updates through the whole pipeline; refused options, and the head that is used afterwards."""
    src, tgt, gold = copied
    settings = ["model.d_model=16", "model.d_ff=16", "model.n_encoder_layers=1", "model.n_decoder_layers=2"]
    settings += ["data.vocab_size=280", "train.max_steps=2", "train.validate_bleu=0", "train.alignment_layer=0"]
    train = ["train", "--recipe", "tiny", "--train", src, tgt, "--valid", src, tgt, "--out", tmp_path / "out", "--set"]
    alone = cli(*train, *settings, "train.alignment_weight=0.05")
    assert "train.alignment_weight and --alignments need each other" in alone.complaint
    both = [*settings, "train.alignment_weight=0.05", "--alignments", gold]
    assert cli(*train, *both).code == 0
    links = tmp_path / "other"
    links.write_text(gold.read_text().replace("0-0", "", 1))
    changed = cli(*train, *both[:-1], links, "--resume", "--set", "train.max_steps=3")
    assert "the training files differ from those of the run" in changed.complaint
    report = cli(
        "evaluate", tmp_path / "out", "--source", src, "--target", tgt, "--alignments", gold, "--format", "json"
    )
    assert json.loads(report.out)["head"] == {"layer": 0, "head": 0, "row": "predicts"}


def test_the_page_links_words_as_a_real_model_copies_them(
    copying: tuple[Model, Path], task: Callable[..., Any]
) -> None:
    """With the clearest head of each pair, and with the same head shifted by one step, as some heads are."""
    model, _ = copying
    right = late = n_words = 0
    for src, tgt in task(20, 5):
        record = model.attend(src, tgt)
        layer, head, row = clearest_head(record) or (0, 0, "")
        weights = record.cross[layer][head]
        words = range(len(record.tgt_words))
        links = between_words(weights, record.tgt_words, record.src_words, row).argmax(1)
        a_step_late = np.concatenate([weights[-1:], weights[:-1]])
        found = alignment_row(record, a_step_late)
        links_late = between_words(a_step_late, record.tgt_words, record.src_words, found).argmax(1)
        n_words, right, late = n_words + len(words), right + sum(links == words), late + sum(links_late == words)
    assert min(right, late) > 0.95 * n_words
