"""`headwise shortlist`, then `translate --shortlist`: on a model that copies letters the text stays the same."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwise

Task = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def model_copy(model_path: Path, tmp_path: Path) -> Path:
    """A copy of the model directory, because the shortlist is written into it."""
    return Path(shutil.copytree(model_path, tmp_path / "copier"))


def test_a_shortlist_is_trained_and_used(
    model_copy: Path, cli: Callable[..., Any], task: Task, write: Callable[..., list[Path]], tmp_path: Path
) -> None:
    lines = "".join(src + "\n" for src, _ in task(20, seed=9)).encode()
    without = cli("translate", model_copy, stdin=lines)
    complaint = cli("translate", model_copy, "--shortlist", stdin=lines).complaint
    assert f"make one with `headwise shortlist {model_copy} --train SRC TGT`" in complaint

    corpus = write(tmp_path / "train", task(300, seed=5))
    assert cli("shortlist", model_copy, "--train", *corpus, "--candidates", 2, "--frequent", 1).code == 0
    assert cli("translate", model_copy, "--shortlist", stdin=lines).out == without.out
    model = headwise.load(model_copy, "cpu")
    assert model.info()["shortlist"] is True
    # A prefix unrelated to the source, so that the continuation depends on the shortlist alone.
    for text, prefix in (("a b c", ""), ("a b c", "j"), ("", "")):
        whole = model.translate([text], prefix, beam_size=1, shortlist=True)[0].text
        assert "".join(model.stream(text, prefix, shortlist=True)) == whole


@pytest.mark.parametrize("option", ["--candidates", "--frequent"])
def test_sizes_must_make_sense(model_copy: Path, cli: Callable[..., Any], option: str) -> None:
    assert (
        f"argument {option}: 0 is less than 1" in cli("shortlist", model_copy, "--train", "a", "b", option, 0).complaint
    )
