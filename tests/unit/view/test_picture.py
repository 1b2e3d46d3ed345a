"""The picture of attention: a PNG or SVG whose size follows the number of pieces, labelled readably."""

from pathlib import Path

import numpy as np
import pytest

from headwise.view.fonts import Fonts
from headwise.view.picture import light_scale, save_attention

pytest.importorskip("matplotlib")
from matplotlib.image import imread

SRC = ["<2de>", "▁March", "▁", "5", "</s>"]
TGT = ["▁", "5", ".", "▁März", "</s>"]


def attention(n_heads: int, n_tgt: int, n_src: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(n_src), size=(n_heads, n_tgt)).astype(np.float32)


def size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_more_pieces_make_a_larger_picture(tmp_path: Path) -> None:
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    save_attention(attention(4, 5, 5), TGT, SRC, small, "March 5 → 5. März")
    save_attention(attention(4, 15, 20), TGT * 3, SRC * 4, large, "March 5 → 5. März")
    assert size(small) < size(large)
    assert size(small)[1] < size(large)[1]


@pytest.mark.parametrize("n_heads", [1, 3, 8])
def test_any_number_of_heads(n_heads: int, tmp_path: Path) -> None:
    save_attention(attention(n_heads, 5, 5), TGT, SRC, tmp_path / "heads.png", "title")
    assert size(tmp_path / "heads.png") > (400, 400)


@pytest.mark.parametrize(("n_tgt", "n_src"), [(1, 1), (1, 40), (2, 25), (3, 16), (40, 1)])
def test_few_pieces_leave_room_for_every_head(n_tgt: int, n_src: int, tmp_path: Path) -> None:
    save_attention(attention(8, n_tgt, n_src), ["a"] * n_tgt, ["b"] * n_src, tmp_path / "few.png", "title")
    assert size(tmp_path / "few.png") > (300, 300)


def test_pieces_that_do_not_fit_the_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="5 queries and 4 keys"):
        save_attention(attention(2, 5, 5), TGT, SRC[1:], tmp_path / "no.png", "title")
    assert not (tmp_path / "no.png").exists()


def test_svg_keeps_its_text_and_is_the_same_every_time(tmp_path: Path) -> None:
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    for path in (one, other):
        save_attention(attention(2, 5, 5), [*TGT[:4], "日本"], SRC, path, "<b>&", style="svg")
    text = one.read_text(encoding="utf-8")
    assert "日本" in text
    assert "März" in text
    assert "&lt;b&gt;&amp;" in text
    assert text == other.read_text(encoding="utf-8")


@pytest.mark.parametrize(("style", "said"), [("png", "no installed font has 日 本"), ("svg", "")])
def test_letters_that_are_boxes_are_named(
    style: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.view.picture.fonts_for", lambda texts: Fonts(["DejaVu Sans"], ["日", "本"]))
    line = save_attention(attention(2, 5, 5), [*TGT[:4], "日本"], SRC, tmp_path / f"a.{style}", "title", style=style)
    assert line.startswith(said)
    assert bool(line) == bool(said)


@pytest.mark.parametrize(("n_heads", "n_src"), [(1, 1), (2, 2), (4, 5)])
def test_nothing_reaches_the_edge(n_heads: int, n_src: int, tmp_path: Path) -> None:
    """No text is cut: not the legend of the colours, not long labels, not letters that are twice as wide."""
    queries = ["▁", "日本語日本語日本語", ".", "▁März", "</s>"]
    save_attention(attention(n_heads, 5, n_src), queries, SRC[:n_src], tmp_path / "a.png", "日本語の文" * 3)
    pixels = imread(tmp_path / "a.png")[..., :3]
    assert all((side == 1.0).all() for side in (pixels[:8], pixels[-8:], pixels[:, :8], pixels[:, -8:]))


def test_a_long_source_does_not_make_a_strip(tmp_path: Path) -> None:
    save_attention(attention(4, 20, 60), TGT * 4, SRC * 12, tmp_path / "wide.png", "title")
    width, height = size(tmp_path / "wide.png")
    assert width < 3 * height


def test_a_long_sentence_stays_a_picture_of_bearable_size(tmp_path: Path) -> None:
    save_attention(attention(2, 150, 5), TGT * 30, SRC, tmp_path / "long.png", "title")
    assert size(tmp_path / "long.png")[1] <= 8000


def test_colours_are_those_of_the_page(tmp_path: Path) -> None:
    """A weight has the colour of the page: that at its square root on the one scale."""
    weights = np.array([[[0.0, 1.0], [1 / 9, 4 / 9]]], dtype=np.float32)  # roots 0, 1, 1/3 and 2/3: the stops
    save_attention(weights, ["a", "b"], ["c", "d"], tmp_path / "picture.png", "title")
    pixels = {tuple(colour) for colour in imread(tmp_path / "picture.png")[..., :3].reshape(-1, 3)}
    for stop in light_scale():
        wanted = [int(stop[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        assert any(np.allclose(wanted, pixel, atol=2 / 255) for pixel in pixels), stop
