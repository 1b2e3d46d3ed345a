"""A forced first token that is a word is part of the text; one that is special is not."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from tiny_families import vocabulary, write_tiny

import headwise
from headwise.view.pair import read_pair

TEXTS = ["abc", "a longer text", ""]
(WORD,) = vocabulary(behind=False).encode("K").ids


def loaded(folder: Path, kind: str, **generation: Any) -> Any:
    """A tiny model whose generation_config.json asks for these settings."""
    write_tiny(folder, kind, {}, {"max_new_tokens": 8, **generation})
    return headwise.load(folder, "cpu")


@pytest.mark.parametrize("kind", ["marian", "t5"])
@pytest.mark.parametrize("search", [{"beam_size": 1}, {"beam_size": 3, "n_best": 2}, {"sample": True}], ids=str)
def test_a_forced_word_begins_every_text(tmp_path: Path, kind: str, search: dict[str, Any]) -> None:
    model = loaded(tmp_path / "model", kind, forced_bos_token_id=WORD)
    found = model.translate(TEXTS, **search)
    assert [one.text for one in found][2] == ""
    for one in itertools.chain(found[:2], *(one.alternatives for one in found)):
        assert one.text.startswith("K") and one.pieces[0] == "K" and one.token_log_probs[0] == 0.0
        assert len(one.pieces) == len(one.token_log_probs)
    outputs = model.generate(TEXTS[:2], **search)
    assert [one.tokens[0] for one in outputs] == [WORD, WORD]
    assert [one.text.strip() for one in outputs] == [one.text for one in found[:2]]


def test_streams_and_pages_have_it_too(tmp_path: Path) -> None:
    model = loaded(tmp_path / "model", "marian", forced_bos_token_id=WORD)
    (whole,) = model.translate(["abc"], beam_size=1)
    for draft in (None, "input"):
        assert "".join(model.stream("abc", draft=draft)) == whole.text
    assert model.translate(["abc"], prefix="K", beam_size=1)[0].text == whole.text
    pair = read_pair(model._translator, "abc", None, "", model.settings(beam_size=1))
    assert pair.translation == whole.text and pair.tgt[0] == WORD


def test_a_forced_special_token_is_no_part_of_a_text(tmp_path: Path) -> None:
    model = loaded(tmp_path / "model", "marian", forced_bos_token_id=5)
    (found,) = model.translate(["abc"])
    assert len(found.pieces) == len(found.token_log_probs) and "__" not in found.text and 5 not in found.pieces
