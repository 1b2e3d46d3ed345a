"""The page that `headwise inspect` writes, opened from disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from headwise.evaluate.pages.document import inspection_page, notebook_frame
from headwise.view.alignment import AlignmentHead
from headwise.view.notebook import AttentionView, Inspection
from headwise.view.page.contents import page_contents
from headwise.view.readings import between_words, entropy
from headwise.view.record import Axis, BeamNode, Candidate, Position, Trace, Word

SRC = ["▁A", "▁dog", "▁runs", "▁thr", "ough", "</s>"]
TGT = ["▁Ein", "▁Hund", "▁rennt", "▁durch", "</s>"]
Opened = Callable[..., Any]


def record_of(src: list[str], tgt: list[str], n_layers: int = 2, n_heads: int = 3) -> AttentionView:
    """A record with weights that can be known: head h of layer l looks h + l pieces to the right, mostly."""

    def weights(queries: int, keys: int, layer: int) -> np.ndarray:
        found = np.full((n_heads, queries, keys), 0.1 / max(1, keys - 1), dtype=np.float32)
        for head in range(n_heads):
            found[head, np.arange(queries), (np.arange(queries) + head + layer) % keys] = 0.9
        return found

    layers = range(n_layers)
    return AttentionView(
        text=text_of(src),
        translation=text_of(tgt),
        src=Axis(src, words_of(src)),
        tgt=Axis(tgt, words_of(tgt)),
        read=["<s>", *tgt[:-1]],
        encoder=[weights(len(src), len(src), layer) for layer in layers],
        decoder=[weights(len(tgt), len(tgt), layer) for layer in layers],
        cross=[weights(len(tgt), len(src), layer) for layer in layers],
    )


def trace_of(tgt: list[str]) -> Trace:
    """Each piece with probability a half, before another; a beam of one path with a pruned branch at each step."""
    both = [Candidate("▁other", float(np.log(0.3))), Candidate("other", float(np.log(0.2)))]
    positions = [
        Position(
            piece, [Candidate(piece, float(np.log(0.5))), *both], [both, [Candidate(piece, -0.7), *both]], [1.0, 2.0]
        )
        for piece in tgt
    ]
    beam: list[BeamNode] = []
    for step, piece in enumerate(tgt):
        parent = 2 * step - 2 if step else -1
        beam.append(BeamNode(parent, step, piece, -1.0 - step, -1.0, "chosen"))
        beam.append(BeamNode(parent, step, "▁other", -2.0 - step, -2.0, "pruned"))
    return Trace(positions, beam)


def text_of(pieces: list[str]) -> str:
    return "".join(pieces[:-1]).replace("▁", " ").strip()


def words_of(pieces: list[str]) -> list[Word]:
    starts = [i for i, piece in enumerate(pieces[:-1]) if piece.startswith("▁") or i == 0]
    stops = [*starts[1:], len(pieces) - 1]
    return [Word(text_of([*pieces[a:b], ""]), a, b) for a, b in zip(starts, stops, strict=True)]


# What can be reached by keyboard and whose outline an ancestor cuts, where it is not scrolled away. The ancestor may be
# the box of an SVG picture.
CUT_OUTLINES = """() => {
  const nameOf = (node) => `${node.tagName}.${node.className.baseVal ?? node.className}`;
  const all = document.querySelectorAll('button, a[href], input, select, summary, [tabindex="0"]');
  return [...all].flatMap((node) => {
    node.focus({ focusVisible: true });
    const { outlineWidth, outlineOffset, outlineStyle } = getComputedStyle(node);
    if (document.activeElement !== node || outlineStyle === "none") return [];
    const [own, beside] = [node.getBoundingClientRect(), parseFloat(outlineWidth) + parseFloat(outlineOffset) - 0.5];
    for (let box = node.parentElement; box && box !== document.body; box = box.parentElement) {
      if (getComputedStyle(box).overflow === "visible") continue;
      const { left, top, right, bottom } = box.getBoundingClientRect();
      const across = own.left - beside < left || own.right + beside > right;
      const along = own.top - beside < top || own.bottom + beside > bottom;
      const scrolls = [box.scrollWidth > box.clientWidth + 1, box.scrollHeight > box.clientHeight + 1];
      if ((across && !scrolls[0]) || (along && !scrolls[1])) return [`${nameOf(node)} in ${nameOf(box)}`];
    }
    return [];
  });
}"""


@pytest.fixture
def opened(new_page: Callable[..., Any], tmp_path: Path) -> Opened:
    """Opens the page of a record, at a hash."""

    def open_page(hash: str = "", src: list[str] = SRC, tgt: list[str] = TGT, **options: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(inspection_page([page_contents(record_of(src, tgt), trace_of(tgt), "toy")]), encoding="utf-8")
        shown = new_page(**options)
        shown.goto(f"{path.as_uri()}#{hash}")
        shown.wait_for_selector("html[data-ready]")
        return shown

    return open_page


def hash_of(shown: Any) -> str:
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return shown.evaluate("location.hash")


def readout(shown: Any) -> list[str]:
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return shown.locator(".readout").inner_text().split()


def test_texts_and_title(opened: Opened) -> None:
    shown = opened()
    assert shown.locator(".source").inner_text() == "A dog runs through"
    assert shown.locator(".translation").inner_text() == "Ein Hund rennt durch"
    assert shown.locator(".piece").all_inner_texts() == [
        "A",
        "dog",
        "runs",
        "thr",
        "ough",
        "</s>",
        *["Ein", "Hund", "rennt", "durch", "</s>"],
    ]


def test_hover_says_what_a_piece_looks_at(opened: Opened) -> None:
    shown = opened("layer=0&head=0")
    shown.hover('[data-mark="q1"]')
    assert readout(shown)[:6] == ["Hund", "attends", "to", "dog", "90", "%"]
    shown.hover('[data-mark="k3"]')
    assert readout(shown)[:8] == ["thr", "is", "attended", "to", "by", "durch", "90", "%"]
    shown.mouse.move(5, 5)
    assert readout(shown)[:2] == ["Point", "at"]


def test_it_opens_on_the_head_that_aligns_with_the_first_piece_held(opened: Opened) -> None:
    shown = opened()
    assert hash_of(shown) == "#layer=0&head=0&fix=q0"
    assert readout(shown)[:6] == ["Ein", "attends", "to", "A", "90", "%"]
    assert hash_of(opened("layer=1")) == "#layer=1"
    assert hash_of(opened("part=encoder")) == "#part=encoder&fix=q0"


@pytest.mark.parametrize("width", [1280, 1920])
def test_lines_leave_no_empty_half(opened: Opened, width: int) -> None:
    shown = opened(width=width)
    texts, beside = (shown.locator(name).bounding_box() for name in (".columns-side.q", ".readout"))
    assert beside["x"] - (texts["x"] + texts["width"]) < width / 10


LONG = [*(f"▁word{i}" for i in range(59)), "</s>"]
CUT = """() => [...document.querySelectorAll("main *")].filter((node) => {
  const box = node.closest(".scroll");
  if (box && box !== node) return false;
  if (!box) return node.getBoundingClientRect().right > innerWidth + 1;
  const shows = !node.parentElement.querySelector(".scroll-arrow.on").hidden;
  return shows !== (node.scrollWidth > node.clientWidth + 1) || shows !== node.classList.contains("more-after");
}).map((node) => `${node.tagName} ${node.className}`)"""


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("pieces", [TGT, LONG], ids=["short", "long"])
def test_nothing_is_cut_without_a_sign(opened: Opened, pieces: list[str], width: int) -> None:
    shown = opened(src=pieces, tgt=pieces, width=width)
    for key in "123456":
        shown.keyboard.press(key)
        hash_of(shown)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width, key
        assert shown.evaluate(CUT) == [], key


def test_an_arrow_goes_on_to_the_end(opened: Opened) -> None:
    shown = opened("view=beam", LONG, LONG)
    assert shown.get_by_role("button", name="scroll back").is_hidden()
    for _ in range(20):
        if shown.get_by_role("button", name="scroll on").is_visible():
            shown.get_by_role("button", name="scroll on").click()
        hash_of(shown)
    assert shown.get_by_role("button", name="scroll on").is_hidden()
    assert shown.get_by_role("button", name="scroll back").is_visible()


def test_all_steps_of_a_short_beam_are_in_sight(opened: Opened) -> None:
    shown = opened("view=beam", tgt=[*LONG[:13], "</s>"], width=1280)
    assert shown.locator(".beam .scroll").evaluate("(box) => box.scrollWidth <= box.clientWidth")
    assert shown.locator(".beam .scroll .hypothesis.chosen").count() == 14


INK = """([x, y, width, height]) => {
  const copy = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  copy.drawImage(document.querySelector(".heatmap canvas"), x, y, width, height, 0, 0, width, height);
  const { data } = copy.getImageData(0, 0, width, height);
  return data.filter((value, at) => at % 4 === 3 && value > 128).length / (width * height);
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("count", [60, 200])
def test_a_long_matrix_keeps_its_labels_in_sight(opened: Opened, count: int, width: int) -> None:
    pieces = [f"▁w{i}" for i in range(count)]
    shown = opened("view=matrix&layer=0&head=0", pieces, pieces, width=width)
    for there in (0, 10_000):
        shown.evaluate(f"document.querySelector('.heatmap .scroll').scrollTo({there}, {there})")
        hash_of(shown)
        assert 0.01 < shown.evaluate(INK, [0, 60, 30, 200]) < 0.5  # texts of the rows; cells would fill it all
        assert 0.01 < shown.evaluate(INK, [60, 0, 200, 30]) < 0.5  # of the columns
    shown.locator(".cell-text").scroll_into_view_if_needed()
    box = shown.locator(".heatmap canvas").bounding_box()
    shown.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    hash_of(shown)
    assert shown.locator(".cell-text").inner_text().startswith(f"w{count - 1} → w{count - 1}: ")


def test_the_matrix_follows_the_arrow_keys(opened: Opened) -> None:
    shown = opened("view=matrix&layer=0&head=0&fix=q0", LONG, LONG)
    shown.keyboard.press("Escape")
    shown.keyboard.press("ArrowUp")  # from nowhere to the last
    hash_of(shown)
    assert shown.evaluate("document.querySelector('.heatmap .scroll').scrollTop") > 100


def test_click_fixes_a_piece_and_the_url_keeps_it(opened: Opened) -> None:
    shown = opened("layer=1&head=1")
    shown.click('[data-mark="q0"]')
    shown.mouse.move(5, 5)
    assert readout(shown)[:6] == ["Ein", "attends", "to", "runs", "90", "%"]
    assert hash_of(shown) == "#layer=1&head=1&fix=q0"
    assert shown.locator('[data-mark="q0"]').get_attribute("aria-pressed") == "true"
    shown.click('[data-mark="q0"]')
    assert hash_of(shown) == "#layer=1&head=1"


def test_layer_and_head_change_what_is_shown(opened: Opened) -> None:
    shown = opened("fix=q0")
    for layer, head, expected in ((0, 0, "A"), (0, 2, "runs"), (1, 2, "thr")):
        shown.get_by_role("group", name="layer").get_by_role("button", name=str(layer)).click()
        shown.get_by_role("group", name="head").get_by_role("button", name=str(head)).click()
        assert readout(shown)[3] == expected
    assert hash_of(shown) == "#layer=1&head=2&fix=q0"


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("view", ["Lines", "Matrix", "All heads", "Alignment", "Beam", "Probabilities"])
def test_every_view_of_every_part_opens(opened: Opened, view: str, part: str) -> None:
    shown = opened(f"part={part}")
    shown.get_by_role("navigation").get_by_role("button", name=view, exact=True).click()
    hash_of(shown)
    assert shown.locator(".stage").inner_text() or shown.locator(".stage canvas").count()
    assert shown.locator(".empty").count() == 0


def test_a_head_of_the_grid_is_chosen_by_a_click(opened: Opened) -> None:
    shown = opened("view=grid")
    assert shown.locator(".grid-cell").count() == 6
    shown.get_by_role("button", name="layer 1, head 2").click()
    assert hash_of(shown) == "#view=grid&layer=1&head=2&fix=q0"


def test_matrix_reads_the_cell_under_the_pointer(opened: Opened) -> None:
    shown = opened("view=matrix&layer=0&head=0")
    box = shown.locator(".heatmap canvas").bounding_box()
    shown.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    assert hash_of(shown)
    assert shown.locator(".cell-text").inner_text() == "</s> → </s>: 2 %"
    shown.mouse.click(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    assert "fix=q4" in hash_of(shown)


def test_alignment_links_words(opened: Opened) -> None:
    shown = opened("view=alignment&layer=0&head=0&row=predicts")
    assert shown.locator(".links").inner_text() == "0-0 1-1 2-2 3-3"


@pytest.mark.parametrize("part", ["cross", "encoder"])
def test_words_have_the_sum_of_their_keys_and_the_mean_of_their_queries(opened: Opened, part: str) -> None:
    shown = opened(f"part={part}&layer=1&head=1")
    switch = shown.get_by_role("group", name="between")
    assert switch.locator("[aria-pressed='true']").inner_text() == "tokens"
    switch.get_by_role("button", name="words").focus()
    shown.keyboard.press("Enter")
    assert hash_of(shown).endswith("unit=words")
    assert shown.locator(".columns-side.k .piece").all_inner_texts() == ["A", "dog", "runs", "through", "</s>"]
    record = record_of(SRC, TGT)
    queries = record.queries(part).words
    weights = between_words(getattr(record, part)[1][1], queries, record.src_words)
    for row, query in enumerate(queries):
        shown.hover(f'[data-mark="q{row}"]')
        shares = [text.split("\n") for text in shown.locator(".readout .bars li").all_inner_texts()]
        found = {share[0]: share[-1] for share in shares}
        for word, weight in zip(record.src_words, weights[row], strict=True):
            assert found[word.text] == f"{100 * weight:.0f} %", (query, word)
    shown.keyboard.press("2")
    assert "view=matrix" in hash_of(shown) and "unit=words" in hash_of(shown)
    box = shown.locator(".heatmap canvas").bounding_box()
    shown.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 5)
    hash_of(shown)
    assert shown.locator(".cell-text").inner_text().startswith("</s> → </s>")


def test_a_decoder_reads_words_one_step_after_it_wrote_them(opened: Opened) -> None:
    shown = opened("part=decoder&unit=words", tgt=["▁Ein", "▁Hu", "nd", "</s>"])
    assert shown.locator(".columns-side.k .piece").all_inner_texts() == ["<s>", "Ein", "Hund"]
    assert shown.locator(".columns-side.q .piece").all_inner_texts() == ["Ein", "Hund", "</s>"]


def test_a_text_without_a_start_token_begins_with_a_word(new_page: Callable[..., Any], tmp_path: Path) -> None:
    """Its first token is in no row, because nothing predicts it."""
    pieces = ["b", "▁c", "<next>"]
    alone = replace(
        record_of(pieces, pieces),
        **{"text": "ab c", "translation": "", "src": Axis(), "encoder": [], "cross": [], "read": ["▁a", "b", "▁c"]},
        tgt=Axis(pieces, [Word("ab", 0, 1), Word("c", 1, 2)]),
    )
    path = tmp_path / "alone.html"
    path.write_text(inspection_page([page_contents(alone)]), encoding="utf-8")
    shown = new_page()
    shown.goto(f"{path.as_uri()}#unit=words")
    expect(shown.locator(".columns-side.k .piece")).to_have_text(["ab", "c"])
    expect(shown.locator(".columns-side.q .piece")).to_have_text(["ab", "c", "<next>"])


def test_there_is_no_choice_of_units_where_every_word_is_a_token(opened: Opened) -> None:
    for view in ("lines", "alignment"):
        assert opened(f"view={view}", TGT, TGT).get_by_role("group", name="between").count() == 0


def test_alignment_can_link_tokens(opened: Opened) -> None:
    pieces = ["▁Ein", "▁Hund", "▁ren", "nt", "</s>"]
    shown = opened("view=alignment&layer=0&head=0&row=predicts&unit=tokens", tgt=pieces)
    assert " ".join(shown.locator(".piece").all_inner_texts()) == "A dog runs thr ough Ein Hund ren nt"
    assert shown.locator(".links").inner_text() == "0-0 1-1 2-2 3-3"
    shown.get_by_role("group", name="between").get_by_role("button", name="words").click()
    hash_of(shown)
    assert shown.locator(".links").inner_text() == "0-0 1-1 3-2"  # "rennt": 46 % on "runs", 48 % on "through"


def test_alignment_shows_the_best_head_until_another_is_chosen(opened: Opened) -> None:
    shown = opened("view=alignment&row=predicts&fix=q1")
    layer, head = (shown.get_by_role("group", name=name).locator("[aria-pressed='true']") for name in ("layer", "head"))
    assert (layer.inner_text(), head.inner_text()) == ("best", "0")  # which looks at the token of the same number
    assert shown.locator(".links").inner_text() == "0-0 1-1 2-2 3-3"
    shown.keyboard.press("ArrowRight")
    hash_of(shown)
    assert (layer.inner_text(), head.inner_text()) == ("0", "1")
    shown.keyboard.press("a")
    hash_of(shown)
    assert (layer.inner_text(), head.inner_text()) == ("best", "0")


def looking(places: list[int], sharpness: float) -> np.ndarray:
    """One head of the cross-attention from four words and an end mark to as many, each row at one place."""
    rest = (1 - sharpness) / 4
    return np.where(np.eye(5, dtype=bool)[places], np.float32(sharpness), np.float32(rest))


def test_alignment_reads_each_head_in_the_row_that_looks_at_the_source_of_a_word(
    new_page: Callable[..., Any], tmp_path: Path
) -> None:
    """Head 0 of layer 0 is the sharpest and looks at the source of the word just read, head 1 at that of the next."""
    pieces = ["▁eins", "▁zwei", "▁drei", "▁vier", "</s>"]
    late, in_time = looking([4, 0, 2, 1, 3], 0.9), looking([0, 2, 1, 3, 4], 0.5)
    layers = [np.stack([late, in_time]), np.stack([in_time, in_time]), np.stack([late, late])]
    record = replace(record_of(pieces, pieces), cross=layers)
    known = AlignmentHead(2, 0, "predicts")
    shown = new_page()
    for path, aligns in ((tmp_path / "clearest.html", None), (tmp_path / "known.html", known)):
        path.write_text(inspection_page([page_contents(record, None, "toy", aligns)]), encoding="utf-8")

    def links(path: Path, hash: str) -> str:
        shown.goto("about:blank")
        shown.goto(f"{path.as_uri()}#{hash}")
        shown.wait_for_selector("html[data-ready]")
        hash_of(shown)
        return shown.locator(".links").inner_text()

    for hash in (
        "",
        "&layer=0&head=0",
        "&layer=0&head=1",
        "&layer=0",
        "&layer=1",
        "&layer=2&head=0",
        "&layer=2&head=1",
    ):
        assert links(tmp_path / "clearest.html", f"view=alignment{hash}") == "0-0 2-1 1-2 3-3", hash
    assert "reads each word" in shown.locator(".stage .note").first.inner_text()
    shown.get_by_role("group", name="step").get_by_role("button", name="predicts the word").click()
    hash_of(shown)
    step_late = "0-0 0-1 2-2 1-3"
    assert shown.locator(".links").inner_text() == step_late
    assert "row=predicts" in hash_of(shown)
    assert links(tmp_path / "known.html", "view=alignment") == step_late  # what is known is not guessed at
    assert links(tmp_path / "known.html", "view=alignment&layer=0&head=0") == "0-0 2-1 1-2 3-3"


def test_beam_shows_the_path_and_hides_what_was_pruned(opened: Opened) -> None:
    shown = opened("view=beam")
    assert shown.locator(".beam .scroll .hypothesis.pruned").count() == 5
    shown.locator(".beam .scroll .hypothesis.chosen").nth(2).hover()
    assert shown.locator(".beam-detail").inner_text().startswith("Ein Hund rennt")
    shown.get_by_role("button", name="pruned branches").click()
    hash_of(shown)
    assert shown.locator(".beam .scroll .hypothesis.pruned").count() == 0


def test_one_path_has_no_branches_to_hide(new_page: Callable[..., Any], tmp_path: Path) -> None:
    """Greedy search: a hint at a larger beam, and no button without effect."""
    trace = trace_of(TGT)
    contents = page_contents(record_of(SRC, TGT), replace(trace, beam=trace.beam[::2]))
    (tmp_path / "greedy.html").write_text(inspection_page([contents]), encoding="utf-8")
    shown = new_page()
    shown.goto((tmp_path / "greedy.html").as_uri() + "#view=beam")
    assert "--beam-size" in shown.locator(".beam-detail").inner_text()
    assert not shown.get_by_role("button", name="pruned branches").is_visible()


def test_repeated_tokens_are_numbered(opened: Opened) -> None:
    shown = opened("layer=0&head=0", src=["▁2", "0", "2", "1", "▁2", "</s>"])
    shown.hover('[data-mark="k2"]')
    assert readout(shown)[:2] == ["2", "#2"]
    shown.hover('[data-mark="k3"]')
    assert readout(shown)[:2] == ["1", "is"]


@pytest.mark.parametrize("view", ["lines", "matrix", "grid", "alignment", "beam", "probabilities"])
def test_the_outline_of_the_focus_is_not_cut(opened: Opened, view: str) -> None:
    shown = opened(f"view={view}", LONG, LONG)
    assert shown.evaluate(CUT_OUTLINES) == []


def test_probabilities_of_a_position(opened: Opened) -> None:
    shown = opened("view=probabilities")
    shown.get_by_role("button", name="Hund 50 %").click()
    hash_of(shown)
    assert "other\n\n30 %" in shown.locator(".probabilities-detail section").first.inner_text().replace(
        "\t", "\n\n"
    ) or ("30 %" in shown.locator(".probabilities-detail").inner_text())
    assert shown.locator(".lens tr").count() == 2


def test_candidates_that_begin_a_word_look_otherwise(opened: Opened) -> None:
    shown = opened("view=probabilities")
    begins, goes_on = (shown.locator(".bars .spelled").nth(n) for n in (1, 2))
    assert (begins.inner_text(), goes_on.inner_text()) == ("▁other", "other")
    colours = [found.evaluate("(node) => getComputedStyle(node).color") for found in (begins, goes_on)]
    assert colours[0] != colours[1]
    shown.keyboard.press("5")
    hash_of(shown)
    assert shown.locator(".beam .hypothesis.pruned text").nth(1).text_content() == "▁other"


def test_probabilities_fit_beside_each_other(opened: Opened) -> None:
    shown = opened("view=probabilities", tgt=["▁Donaudampfschifffahrtsgesellschaftskapitän", "</s>"], width=1280)
    assert shown.locator(".scroll:has(.lens)").evaluate("(box) => box.scrollWidth <= box.clientWidth")
    next_, layers = (shown.locator(".probabilities-detail > *").nth(n).bounding_box() for n in range(2))
    assert next_["y"] == layers["y"]


def test_keys_move_piece_head_layer_and_view(opened: Opened) -> None:
    shown = opened("layer=mean&head=mean")
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "d", "2"]:
        shown.keyboard.press(key)
    assert hash_of(shown) == "#view=matrix&part=decoder&layer=0&head=1"
    shown.keyboard.press("ArrowDown")
    assert "fix=q0" in hash_of(shown)
    shown.keyboard.press("Escape")
    assert "fix" not in hash_of(shown)
    shown.keyboard.press("?")
    assert shown.get_by_role("dialog").is_visible()


def test_themes_follow_the_system_and_the_switch(opened: Opened) -> None:
    shown = opened(color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = shown.evaluate(paper)
    shown.keyboard.press("t")
    assert "theme=light" in hash_of(shown)
    assert shown.evaluate(paper) != dark
    shown.keyboard.press("t")
    hash_of(shown)
    assert shown.evaluate(paper) == dark


def test_a_phone_needs_no_sideways_scrolling(opened: Opened) -> None:
    shown = opened(width=360)
    for key in "123456":
        shown.keyboard.press(key)
        hash_of(shown)
        assert shown.evaluate("document.documentElement.scrollWidth") == 360, key


COVERED = """() => [...document.querySelectorAll(".piece, .picture, .heatmap canvas")].some((node) => {
  const [one, other] = [node, document.querySelector(".readout")].map((found) => found.getBoundingClientRect());
  return Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
})"""


@pytest.mark.parametrize(("width", "height"), [(683, 384), (480, 270)])
@pytest.mark.parametrize("view", ["lines", "matrix", "alignment"])
def test_the_readout_of_a_zoomed_page_covers_nothing(opened: Opened, view: str, width: int, height: int) -> None:
    """1366 by 768 pixels at 200 %, 960 by 540 at 200 %."""
    shown = opened(f"view={view}&layer=0&head=0&fix=q1", width=width, height=height)
    for top in range(0, 1000, 90):
        shown.evaluate(f"scrollTo(0, {top})")
        assert not shown.evaluate(COVERED), top
    assert shown.evaluate("document.documentElement.scrollWidth") == width


def test_texts_are_never_html(opened: Opened) -> None:
    bad = '</script><img src=x onerror=alert(1)>"&'
    shown = opened(src=[bad, "▁😀", "▁שלום", "</s>"], tgt=["▁<b>", "▁\u2028", "</s>"])
    assert shown.locator("img, b:not(.legend b)").count() == 0
    for key in "123456":
        shown.keyboard.press(key)
        hash_of(shown)
        assert shown.locator("img").count() == 0
    assert bad in shown.locator(".source").inner_text()


def test_a_screen_reader_is_told_what_the_arrows_reach(opened: Opened) -> None:
    shown = opened("layer=0&head=0")
    shown.keyboard.press("ArrowDown")
    hash_of(shown)
    spoken = shown.locator("[aria-live] , .spoken").first.text_content()
    assert spoken.startswith("cross-attention, layer 0, head 0: Ein attends to A 90 %")


def test_several_frames_in_a_notebook_do_not_clash(new_page: Callable[..., Any], tmp_path: Path) -> None:
    frames = [notebook_frame(page_contents(record_of(SRC, [*TGT[:n], "</s>"]))) for n in (2, 3)]
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html><meta charset=utf-8>" + "".join(frames), encoding="utf-8")
    shown = new_page()
    shown.goto(path.as_uri())
    for number, text in enumerate(["Ein Hund", "Ein Hund rennt"]):
        frame = shown.frame_locator("iframe").nth(number)
        assert frame.locator(".translation").inner_text() == text
        frame.locator('[data-mark="q1"]').click()
        assert frame.locator('[data-mark="q1"]').get_attribute("aria-pressed") == "true"


def test_a_frame_opens_on_the_view_layer_and_head_of_show(new_page: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    frame = record_of(SRC, TGT).show("matrix", part="encoder", layer=0, head=1)._repr_html_()
    path.write_text(f"<!doctype html><meta charset=utf-8>{frame}", encoding="utf-8")
    shown = new_page()
    shown.goto(path.as_uri())
    inside = shown.frame_locator("iframe")
    expect(inside.locator('.views [aria-current="page"]')).to_have_text("Matrix")
    pressed = inside.locator('.choices [aria-pressed="true"]')
    expect(pressed).to_have_text(["encoder self-attention", "0", "1", "tokens"])


def test_200_pieces_stay_fluid(opened: Opened, record_property: Callable[[str, Any], None]) -> None:
    """Frames while the pointer runs down the pieces; the bound leaves room for a busy machine."""
    pieces = [f"▁w{i}" for i in range(199)] + ["</s>"]
    shown = opened("layer=0&head=0", pieces, pieces)
    for view in ("lines", "matrix"):
        shown.evaluate(f"location.hash = '#view={view}'")
        hash_of(shown)
        shown.evaluate(
            """() => { window.frames_ = []; let last = performance.now();
            const tick = (now) => { window.frames_.push(now - last); last = now; promptFrame(tick); };
            promptFrame(tick); }"""
        )
        for step in range(60):
            shown.mouse.move(120, 200 + 8 * step)
        frames = sorted(shown.evaluate("window.frames_"))
        median = frames[len(frames) // 2]
        record_property(f"median frame of {view}, ms", median)
        print(f"{view}: {len(frames)} frames, median {median:.1f} ms, 95 % {frames[int(len(frames) * 0.95)]:.1f} ms")
        assert median < 100


def test_beam_hypotheses_are_reached_and_read_by_keys(opened: Opened) -> None:
    shown = opened("view=beam")
    detail = shown.locator(".beam-detail")
    shown.get_by_role("button", name="pruned branches").focus()
    names = []
    for _ in range(10):
        shown.keyboard.press("Tab")
        names.append(shown.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert names[:2] == ["step 0: Ein, chosen, score -1.00", "step 0: other, pruned, score -2.00"]
    assert names[2] == "step 1: Hund, chosen, score -1.00"
    assert len(set(names)) == 10  # two hypotheses a step
    shown.locator(".beam .scroll .hypothesis.chosen").nth(1).focus()
    assert detail.inner_text().startswith("Ein Hund")
    for key, text in {
        "ArrowRight": "Ein Hund rennt",
        "ArrowDown": "Ein Hund other",
        "ArrowLeft": "Ein Hund",
        "ArrowUp": "Ein Hund",  # it stays where there is no other
    }.items():
        shown.keyboard.press(key)
        assert detail.locator("bdi").inner_text() == text, key
    before = hash_of(shown)
    other = shown.locator(".beam .scroll .hypothesis.pruned").first
    for key in ("Enter", "Space"):
        shown.mouse.move(5, 5)
        other.hover()
        assert detail.locator("bdi").inner_text() == "other"
        shown.keyboard.press(key)  # of the focused one, whatever is under the pointer
        assert detail.locator("bdi").inner_text() == "Ein Hund", key
        pressed = shown.locator('.hypothesis[aria-pressed="true"]')
        assert pressed.get_attribute("aria-label") == "step 1: Hund, chosen, score -1.00"
    assert hash_of(shown) == before  # nothing else has moved


# Least contrast of the texts of a node with what is behind them, as WCAG 2.2 counts it (success criterion 1.4.3).
LEAST_CONTRAST = """(root) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = () => {
    const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const paint = (colour, alpha = 1) => {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
  };
  const least = { contrast: Infinity, text: "" };
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest(":disabled, .spoken")) continue;
    const above = [];
    for (let at = node; at; at = at.parentElement) above.unshift(at);
    paint("#808080");
    for (const at of above) paint(getComputedStyle(at).backgroundColor);
    const behind = luminance();
    const { color, fill } = getComputedStyle(node);
    paint(node.ownerSVGElement ? fill : color, above.reduce((alpha, at) => alpha * getComputedStyle(at).opacity, 1));
    const [light, dark] = [luminance(), behind].sort((one, other) => other - one);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < least.contrast) Object.assign(least, { contrast, text: node.outerHTML });
  }
  return least;
}"""
WHOLE_SCALE = f"""(node) => {{
  const least = Array.from({{ length: 101 }}, (_, weight) => {{
    node.style.setProperty("--weight", `${{weight}}%`);
    return {{ weight, ...({LEAST_CONTRAST})(node) }};
  }});
  return least.reduce((one, other) => (other.contrast < one.contrast ? other : one));
}}"""
READABLE = 4.5  # WCAG AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast_over_the_whole_scale(opened: Opened, scheme: str) -> None:
    """Weights colour the cells of the logit lens and the pieces of the lines; both hold pieces of every kind."""
    shown = opened("view=probabilities", color_scheme=scheme)
    for cell in shown.locator(".lens td").all():
        found = cell.evaluate(WHOLE_SCALE)
        assert found["contrast"] >= READABLE, found
    shown = opened("view=lines&layer=0&head=0", color_scheme=scheme)
    for kind in ("start", "inside", "mark"):
        piece = shown.locator(f".piece.{kind}").first
        found = piece.evaluate(WHOLE_SCALE)
        assert found["contrast"] >= READABLE, found
        piece.hover()
        found = piece.evaluate(WHOLE_SCALE)
        assert found["contrast"] >= READABLE, found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_of_every_view_have_contrast(opened: Opened, scheme: str) -> None:
    shown = opened("layer=0&head=0&fix=q1", color_scheme=scheme)
    for key in "123456?":
        shown.keyboard.press(key)
        hash_of(shown)
        found = shown.locator("body").evaluate(LEAST_CONTRAST)
        assert found["contrast"] >= READABLE, (key, found)


def test_entropy_is_in_nats_as_in_python(opened: Opened) -> None:
    shown = opened("view=grid")
    nats = entropy(record_of(SRC, TGT).cross[1])[2]
    assert nats == pytest.approx(0.49, abs=0.01)  # in bits it would be 0.70
    assert shown.locator(".grid-cell").nth(5).get_attribute("aria-label") == f"layer 1, head 2, entropy {nats:.1f} nats"
    assert "in nats" in shown.locator(".grid .note").inner_text()


VIEWS = ["Lines", "Matrix", "All heads", "Alignment", "Beam", "Probabilities"]


@pytest.mark.parametrize("traced", [True, False])
def test_every_tab_of_a_notebook_has_something_to_show(
    new_page: Callable[..., Any], tmp_path: Path, traced: bool
) -> None:
    """As a cell's output stands in a page: what `attend` returns, and what `look_inside` does."""
    record = record_of(SRC, TGT)
    output = (Inspection(record, trace_of(TGT)) if traced else record)._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f'<!doctype html><meta charset=utf-8><div class="jp-OutputArea-output">{output}</div>', "utf-8")
    shown = new_page()
    shown.goto(path.as_uri())
    frame = shown.frame_locator("iframe")
    tabs = frame.locator(".views button")
    expect(tabs).to_have_text(VIEWS if traced else VIEWS[:4])
    for number, name in enumerate(VIEWS if traced else VIEWS[:4]):
        tabs.nth(number).click()
        expect(frame.locator('.views [aria-current="page"]')).to_have_text(name)
        assert frame.locator(".empty").count() == 0
        assert frame.locator(".stage").locator("button, canvas, .hypothesis").count() > 1
    assert "No search ran" not in frame.locator("body").inner_text()


def test_the_beam_of_a_given_translation_says_why_it_is_empty(new_page: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "given.html"
    contents = page_contents(record_of(SRC, TGT), replace(trace_of(TGT), beam=[]))
    path.write_text(inspection_page([contents]), encoding="utf-8")
    shown = new_page()
    shown.goto(f"{path.as_uri()}#view=beam")
    expect(shown.locator(".empty")).to_have_text("No search ran: the translation was given.")
