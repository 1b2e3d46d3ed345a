"""`headwise demo` from start to finish, with a model too small to be good."""

import errno
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from system.test_following import follow

from headwise.lab.demo.corpus import SPECIAL_TOKENS, generate_corpus
from headwise.lab.demo.run import demo

CORPUS = generate_corpus(n_train=300, n_valid=20, n_test=40)
SMALL = [
    "model.d_model=16",
    "model.d_ff=16",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "train.max_steps=3",
    "train.tokens_per_batch=200",
    "train.validate_every=3",
    "decode.max_length_factor=0.0",
    "decode.max_length_extra=3",
]


def test_demo_trains_translates_and_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    share = demo(tmp_path, CORPUS, SMALL)
    shown = capsys.readouterr().out
    assert 0 <= share < 0.5
    assert all(shown.count(f"\n  {token}") == 3 for token in SPECIAL_TOKENS)
    assert f"Exact match on 40 dates never seen in training: {share:.1%}" in shown
    assert (tmp_path / "cross-attention.png").read_bytes().startswith(b"\x89PNG")
    steps, own = shown.split("\nNext:\n")[1].split("\n\nOn your own files:\n")
    assert own.split("headwise ")[1].startswith("train ")
    commands = follow(f"\nNext:\n{steps}", cli)
    assert [words[0] for words in commands] == ["translate", "evaluate", "inspect", "serve", "results"]
    assert commands[1][1:] == [
        str(tmp_path),
        "--source",
        f"{tmp_path}/corpus/test.src",
        "--reference",
        f"{tmp_path}/corpus/test.tgt",
    ]


def test_a_demo_on_a_full_disk(tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    complaint = cli("demo", "--out", tmp_path / "demo").complaint
    assert f"{tmp_path}/demo/corpus: cannot be written" in complaint and "free some disk space" in complaint


def test_a_second_demo_does_not_train_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, CORPUS, SMALL)
    weights = (tmp_path / "model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    demo(tmp_path, CORPUS, SMALL)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == weights
    assert "Training on" not in capsys.readouterr().out


def test_the_lesson_for_teachers_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its snippets, one after the other, with this model in place of the lesson's."""
    lesson = Path(__file__).parents[2] / "docs/tutorials/teachers.md"
    if not lesson.is_file():
        pytest.skip("the documentation is not part of the source distribution")
    corpus = replace(CORPUS, test=CORPUS.test[:4])
    demo(tmp_path / "runs/demo", corpus, [setting for setting in SMALL if "layers" not in setting])
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec("\n".join(re.findall(r"```python\n(.*?)```", lesson.read_text(encoding="utf-8"), re.DOTALL)), {})
    shown = capsys.readouterr().out
    assert len(re.findall(r"(encoder|decoder|cross) [01] [0-3] \d+% ", shown)) == 6
    assert len(re.findall(r"(encoder|decoder|cross) [01] \d+% ", shown)) == 6
    assert re.search(r"\d+ of \d+ differ", shown)
