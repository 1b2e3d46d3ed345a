"""The page that `headwise export --to web` writes, opened from disk: it translates as `headwise translate` does."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser.conftest import SHAPES, write_model
from browser.test_accessibility import violations
from playwright.sync_api import expect
from tiny_families import write_tiny
from unit.native.walking import Dequantised, Recorded

import headwise
from headwise.config.data import TextData, TranslationData
from headwise.evaluate.pages.document import script_text
from headwise.models.language.text import text_bounds
from headwise.models.load import translation_folder
from headwise.pytorch.models.inputs import bare_tokenizer
from headwise.runtime.native import network as packing
from headwise.runtime.native.reading import read_pair_of_ids
from headwise.runtime.search.request import search_options
from headwise.runtime.search.translator import clean_text, one_line, split_text
from headwise.serve.web import page as web_page
from headwise.serve.web import wasm
from headwise.serve.web.page import export_page, page_tokenizer, read_asset
from headwise.text.files.documents import train_on_documents
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.readings import clearest_head
from headwise.view.record import ROWS

WORDS = [
    "A",
    "dog",
    "runs",
    "across",
    "the",
    "field",
    ".",
    "Zwei",
    "Männer",
    "reden",
    "Hund",
    "sieht",
    "die",
    "naïve",
    "Straße",
    "1984",
    "10,5",
    "%",
    "€",
]
STRANGE = [
    "", " ", "日本語のテキスト。", "שלום עולם", "नमस्ते दुनिया", "a\u0301 e\u0301", "\ufeffx\u00a0y\u2003z",
    "😀😀 👩\u200d👧", "...!!!---", "\x1c\x85 \x00", "<s> </s> <unk>", "<2de> hallo <2de><2fr>x", "ﬁne Ⅷ ①", "ĠĊ",
    "\t tab", "İstanbul ΣΑΣ ς", "\u200c\u200d", "a" * 300,
]  # fmt: skip
Opened = Callable[..., Any]


@pytest.fixture(scope="session")
def page_files(model_paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page, and the same as a browser without relaxed SIMD takes it."""
    folder, binaries = tmp_path_factory.mktemp("web"), wasm.wasm_builds()
    with pytest.MonkeyPatch.context() as patch:
        for build, relaxed in (("relaxed", binaries["relaxed"]), ("simd", b"not understood")):
            patch.setattr(web_page, "wasm_builds", lambda relaxed=relaxed: binaries | {"relaxed": relaxed})
            export_page([translation_folder(model_paths["transformer"])], folder / f"{build}.html")
    return {build: folder / f"{build}.html" for build in binaries}


@pytest.fixture
def opened(new_page: Callable[..., Any], page_files: dict[str, Path]) -> Opened:
    """Opens the page, and waits until it can translate."""

    def open_page(build: str = "relaxed", **options: Any) -> Any:
        page = new_page(**options)
        page.goto(page_files[build].as_uri())
        page.wait_for_selector("#translate:not([disabled])", state="attached")
        return page

    return open_page


def translated(page: Any, text: str) -> list[str]:
    """The lines of the translation."""
    page.eval_on_selector("#source", "(node, text) => { node.value = text; node.form.requestSubmit(); }", text)
    page.wait_for_selector('#output[aria-busy="false"]:not(:empty)', state="attached", timeout=300_000)
    return page.eval_on_selector_all("#output p", "nodes => nodes.map((node) => node.textContent)")


@pytest.mark.parametrize("build", ["relaxed", "simd"])
def test_five_hundred_sentences_are_as_on_the_command_line(
    opened: Opened, model_paths: dict[str, Path], tmp_path: Path, build: str
) -> None:
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(498)] + ["", "日本 <s> \u00e9\u0301"]
    (tmp_path / "text").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "headwise", "translate", str(model_paths["transformer"]), str(tmp_path / "text")]
    command += ["--compute", "int8", "--device", "cpu"]
    wanted = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n").split("\n")
    found = translated(opened(build), "\n".join(lines))
    assert [(i, *pair) for i, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]] == []
    assert len(set(found)) > 100


ASKED = """(text) => new Promise((resolve) => {
  const code = document.getElementById("worker").textContent, found = [];
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    if (data.kind === "ready") worker.postMessage({ kind: "translate", text });
    if (data.kind === "written") found.push([data.score, data.tokens.length]);
    if (data.kind === "done") resolve(found);
  };
  const [library, model] = ["#library", "script.model"].map((name) => document.querySelector(name).textContent);
  worker.postMessage({ kind: "load", library, model });
})"""


def test_rotary_positions_and_shared_heads_translate_alike(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(model_paths["transformer"] / "tokenizer.json")
    shape = SHAPES["transformer"] | {"positions": "rotary", "n_kv_heads": 1}
    export_page([translation_folder(write_model(tmp_path / "model", shape, tokenizer, {}))], tmp_path / "page.html")
    page, lines = new_page(), [" ".join(WORDS[first : first + 9]) for first in range(12)]
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#translate:not([disabled])", state="attached")
    wanted = headwise.load(tmp_path / "model", "cpu").translate(lines, compute="int8")
    assert translated(page, "\n".join(lines)) == [one.text for one in wanted]
    assert len({one.text for one in wanted}) > 6


def test_the_target_language_is_chosen_from_a_menu(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path
) -> None:
    """Each line gets its token, unless it has one; a model without tokens has no menu."""
    lines = ["A dog runs across the field .", "Der Hund sieht die Männer ."] * 20
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(lines), encoding="utf-8")
    tokenizer = Tokenizer.train(lines, TranslationData(vocab_size=280), special=["<2de>", "<2fr>"])
    model = write_model(tmp_path / "model", SHAPES["transformer"], tokenizer, {})
    export_page([translation_folder(model)], tmp_path / "page.html")
    page, text = new_page(), "A dog runs .\n<2de> A dog runs ."
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#translate:not([disabled])", state="attached")
    assert page.locator("#to option").all_text_contents() == ["German", "French"]
    page.get_by_label("Into").select_option("French")
    wanted = headwise.load(model, "cpu").translate(["<2fr> A dog runs .", "<2de> A dog runs ."], compute="int8")
    assert translated(page, text) == [one.text for one in wanted]


def write_language_model(folder: Path, subword: str) -> Path:
    """A small GPT-2 with random parameters and a tokenizer of `headwise train`."""
    data = TextData(subword=subword, vocab_size=300 if subword == "bpe" else 40)
    tokenizer = train_on_documents(["A dog runs.\nZwei Männer reden.\n" * 9], data)
    ids = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": tokenizer.vocab_size}
    folder.mkdir()
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
    write_tiny(folder, "gpt2", {"n_layer": 2, **ids}, **settings)
    tokenizer.save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def course_page(model_paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a translator and two language models."""
    folder = tmp_path_factory.mktemp("course")
    models = [write_language_model(folder / subword, subword) for subword in ("bpe", "characters")]
    export_page([translation_folder(path) for path in (model_paths["transformer"], *models)], folder / "course.html")
    return folder / "course.html"


def continued(page: Any, text: str, temperature: str) -> str:
    page.get_by_label("Temperature").fill(temperature)
    return "\n".join(translated(page, text))


@pytest.mark.parametrize("subword", ["bpe", "characters"])
def test_a_language_model_continues_as_on_the_command_line(
    new_page: Callable[..., Any], course_page: Path, subword: str
) -> None:
    page, texts = new_page(), ["A dog", "Zwei Männer ", "", "\n</s> 日本", "  e\u0301<s>"]
    page.goto(f"{course_page.as_uri()}#model={subword}")
    page.wait_for_selector("#translate:not([disabled])", state="attached")
    expect(page.get_by_role("heading", name="Continuation")).to_be_visible()
    model = headwise.load(course_page.parent / subword, "cpu")
    assert [continued(page, text, "0") for text in texts] == [one.text for one in model.generate(texts, compute="int8")]
    config = model.generation.changed({"sample": True, "temperature": 0.5}, ("int8",))
    for seed in (0, 1):  # every press of the button is another sample
        limits = replace(text_bounds([model.encode("A dog")], config, 60), streams=np.zeros(1, np.int64))
        options = search_options(replace(config.settings, seed=seed), config.special)
        ((wanted,),) = model.text_network("int8").search([model.encode("A dog")], limits, options)
        assert continued(page, "A dog", "0.5") == model.decode_after(model.encode("A dog"))(wanted.tokens)
    translated(page, "A dog runs. " * 30)
    expect(page.locator("#status")).to_contain_text("the model reads at most 60")


def test_a_page_of_several_models_keeps_the_choice_in_its_address(
    new_page: Callable[..., Any], course_page: Path
) -> None:
    page = new_page(width=390)
    page.goto(course_page.as_uri())
    page.get_by_label("Model").select_option("characters")
    expect(page.get_by_role("button", name="Continue")).to_be_enabled()
    expect(page.locator(".card h2")).to_be_visible()
    continued(page, "Männer & Hund?", "0")
    page.get_by_role("combobox", name="Cards").select_option("mask")
    page.locator(".tour-choices button").first.click()
    expect(page.locator('data[data-name="pairs"]').first).to_have_attribute("value", str(14**2))
    assert "cross" not in page.locator(".tour-bar option").evaluate_all("(nodes) => nodes.map((node) => node.value)")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    other = new_page()
    other.goto(page.url)
    expect(other.get_by_label("Text", exact=True)).to_have_value("Männer & Hund?")
    expect(other.locator('.card[data-card="mask"] .question')).to_be_visible()
    other.get_by_label("Model").select_option(index=0)
    expect(other.get_by_role("button", name="Translate")).to_be_enabled()
    expect(other.get_by_label("Text", exact=True)).to_have_value("Männer & Hund?")


def test_another_model_keeps_the_language_and_the_text(new_page: Callable[..., Any], course_page: Path) -> None:
    page, text = new_page(), "Männer & Hund?\nA + b = 100 %"
    page.goto(course_page.as_uri())
    page.get_by_label("Language of the page").select_option("de")
    page.locator("#source").fill(text)
    page.get_by_label("Modell").select_option("characters")
    expect(page.get_by_role("button", name="Fortsetzen")).to_be_enabled()
    expect(page.locator("#source")).to_have_value(text)
    assert "language=de" in page.url
    page.evaluate("() => { location.hash = 'model=bpe'; }")  # a link with another model and no text
    expect(page.locator("#model")).to_have_value("bpe")
    expect(page.locator("#source")).not_to_have_value(text)
    expect(page.locator("#language")).to_have_value("de")
    page.evaluate("() => { location.hash = 'model=bpe&language=fr'; }")
    expect(page.locator("#language")).to_have_value("fr")
    # the page writes its address between a reader's choice and the event
    before = page.evaluate("location.hash")
    page.evaluate("(before) => { location.hash = 'model=characters'; history.replaceState(null, '', before); }", before)
    expect(page.locator("#model")).to_have_value("characters")


@pytest.fixture(scope="session")
def tagged_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two translators with examples in their logs, the first one of two target languages."""
    folder = tmp_path_factory.mktemp("tagged")
    lines = ["A dog runs across the field .", "Der Hund sieht die Männer ."] * 20
    paths = []
    for name, special, source in (
        ("tagged", ["<2de>", "<2fr>"], "<2fr> A dog runs ."),
        ("plain", [], "Der Hund sieht ."),
    ):
        tokenizer = Tokenizer.train(lines, TranslationData(vocab_size=280), special=special)
        paths.append(write_model(folder / name, SHAPES["transformer"], tokenizer, {}))
        record = {"step": 1, "sample": {"source": source, "output": "", "reference": ""}}
        (folder / name / "validation.jsonl").write_text(f"{json.dumps(record)}\n", encoding="utf-8")
    export_page([translation_folder(path) for path in paths], folder / "course.html")
    export_page([translation_folder(paths[0])], folder / "single.html")
    return folder / "course.html"


def test_a_page_has_an_example_and_a_course_begins_with_the_tour(
    new_page: Callable[..., Any], tagged_course: Path
) -> None:
    page = new_page()
    page.goto(tagged_course.as_uri())
    expect(page.locator('.card[data-card="recurrence"] .question')).to_contain_text("recurrent")
    expect(page.locator("#source")).to_have_value("A dog runs .")
    expect(page.locator("#to")).to_have_value("<2fr>")
    single = new_page()
    single.goto(tagged_course.with_name("single.html").as_uri())
    expect(single.locator("#source")).to_have_value("A dog runs .")
    expect(single.locator("#translate")).to_be_enabled()
    assert single.locator("#output p, #guide").count() == 0, "it translates when it is asked to"
    single.goto(f"{single.url}#card=heads")
    expect(single.locator('.card[data-card="heads"] .question')).to_be_visible()


@pytest.mark.parametrize("address", ["view=tour&card=heads", "card=heads", "model=plain&card=heads"])
def test_a_card_without_a_text_is_shown_with_the_example(
    new_page: Callable[..., Any], tagged_course: Path, address: str
) -> None:
    page = new_page()
    page.goto(f"{tagged_course.as_uri()}#{address}")
    expect(page.locator('.card[data-card="heads"] .question')).to_be_visible()
    expect(page.locator("#source")).to_have_value("Der Hund sieht ." if "plain" in address else "A dog runs .")


def test_another_model_keeps_the_card(new_page: Callable[..., Any], tagged_course: Path) -> None:
    page = new_page(locale="en")
    page.goto(f"{tagged_course.as_uri()}#card=heads&language=de")
    expect(page.locator('.card[data-card="heads"] .question')).to_be_visible()
    page.locator("#model").select_option("plain")
    expect(page.locator("#source")).to_have_value("Der Hund sieht .")
    expect(page.locator('.card[data-card="heads"] .question')).to_contain_text("Köpfe")
    page.locator("#source").fill("Hund & Hund")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#details .source")).to_have_text("Hund & Hund")
    page.locator("#model").select_option("tagged")
    expect(page.locator("#details .source")).to_have_text("<2de> Hund & Hund")
    expect(page.locator('.card[data-card="heads"] .question')).to_be_visible()
    assert "language=de" in page.url


def test_back_leads_to_the_card_the_view_and_the_model_before(
    new_page: Callable[..., Any], tagged_course: Path
) -> None:
    page = new_page()
    page.goto("about:blank")
    page.goto(tagged_course.as_uri())
    expect(page.locator('.card[data-card="recurrence"]')).to_be_visible()
    page.locator(".tour-bar select").select_option("heads")
    page.locator(".tour-choices button").first.click()
    page.get_by_role("combobox", name="Token").select_option("2")  # of the same card
    page.locator(".tour-bar select").select_option("mask")
    expect(page.locator('.card[data-card="mask"]')).to_be_visible()
    page.get_by_role("button", name="Tour").click()
    expect(page.locator("#tour-panel")).to_be_hidden()
    page.locator("#model").select_option("plain")
    expect(page.locator("#source")).to_have_value("Der Hund sieht .")
    page.go_back()
    expect(page.locator("#model")).to_have_value("tagged")
    expect(page.locator("#details .source")).to_have_text("<2fr> A dog runs .")
    expect(page.locator(".card")).to_have_count(0)
    page.go_back()
    expect(page.locator('.card[data-card="mask"]')).to_be_visible()
    page.go_back()
    expect(page.locator('.card[data-card="heads"]')).to_be_visible()
    assert "cell=2" in page.url
    page.go_back()
    expect(page.locator('.card[data-card="recurrence"]')).to_be_visible()
    page.go_back()
    assert page.url == "about:blank"


def test_the_menu_and_the_text_name_one_language(new_page: Callable[..., Any], tagged_course: Path) -> None:
    page = new_page()
    page.goto(f"{tagged_course.as_uri()}#card=tokens&text=%3C2fr%3E+A+dog")
    expect(page.locator("#details .source")).to_have_text("<2fr> A dog")
    expect(page.locator("#to")).to_have_value("<2fr>")
    expect(page.locator("#source")).to_have_value("A dog")
    page.locator(".tour-choices button").first.click()
    numbers = [page.locator(f'.card data[data-name="{name}"]').first for name in ("words", "characters")]
    assert [number.get_attribute("value") for number in numbers] == ["2", "5"], "without the token that was added"
    page.locator("#source").fill("<2de> A dog")
    expect(page.locator("#to")).to_have_value("<2de>")
    page.locator("#to").select_option("<2fr>")
    expect(page.locator("#source")).to_have_value("A dog")


EXPLAINED = """([text, tokens]) => new Promise((resolve, reject) => {
  const code = document.getElementById("worker").textContent;
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    if (data.kind === "ready") worker.postMessage({ kind: "explain", unit: 0, source: text, tokens });
    if (data.kind === "failed") reject(data.why);
    if (data.kind === "explained") resolve({ ...data, weights: Array.from(data.weights.values) });
  };
  const [library, model] = ["#library", "script.model"].map((name) => document.querySelector(name).textContent);
  worker.postMessage({ kind: "load", library, model });
})"""


def test_words_are_aligned_by_the_head_that_inspect_opens_on(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path
) -> None:
    """Without a stored head the clearest one of each pair, with the weights of the library in int8."""
    tokenizer, found = Tokenizer.load(model_paths["transformer"] / "tokenizer.json"), set[tuple[int, int, str]]()
    for gain in (1.4, 1.7, 2.0):
        shape = SHAPES["transformer"] | {"n_decoder_layers": 3}
        path = write_model(tmp_path / f"model{gain}", shape, tokenizer, {}, gain)
        export_page([translation_folder(path)], tmp_path / f"{gain}.html")
        page, text, translation = new_page(), "A dog runs across the field .", "Der Hund sieht die Männer ."
        page.goto((tmp_path / f"{gain}.html").as_uri())
        explained = page.evaluate(EXPLAINED, [text, tokenizer.encode(translation)])
        ids = [*tokenizer.encode(text), tokenizer.eos_id], [tokenizer.bos_id, *tokenizer.encode(translation)]
        cross = read_pair_of_ids(translation_folder(path).stored.engine("int8"), *ids, ["cross"]).cross
        record = replace(headwise.load(path, "cpu").attend(text, tgt=translation), cross=cross)
        layer, head, row = clearest_head(record) or (0, 0, "")
        assert explained["aligns"] == {"layer": layer, "head": head, "later": ROWS.index(row)}
        weights = np.array(explained["weights"], np.float32).reshape(-1, len(record.src_pieces))
        shift = ROWS.index(row)
        np.testing.assert_array_equal(weights[: len(weights) - shift], cross[layer][head][shift:])
        found.add((layer, head, row))
    assert len(found) > 1, "more than one head"


WALKED = """([text, tokens, wanted]) => new Promise((resolve, reject) => {
  const code = document.getElementById("worker").textContent, found = [];
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => {
    const asked = { kind: "walk", source: text, tokens };
    if (data.kind === "ready") wanted.forEach((where, number) => worker.postMessage({ ...asked, number, where }));
    if (data.kind === "failed") reject(data.why);
    const plain = (x) => (Number.isFinite(x) ? x : String(x)); // infinite ones
    if (data.kind === "walked") found.push({ ...data.walk, numbers: Array.from(data.walk.numbers, plain) });
    if (found.length === wanted.length) resolve(found);
  };
  const [library, model] = ["#library", "script.model"].map((name) => document.querySelector(name).textContent);
  worker.postMessage({ kind: "load", library, model });
})"""
WALKING: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm, rotary, heads of 12": {"norm_position": "pre", "positions": "rotary", "d_k": 12, "d_v": 5},
    "gated, shared keys": {"activation": "silu", "gated": True, "n_kv_heads": 1, "d_ff": 21},
}


@pytest.mark.parametrize("changes", WALKING.values(), ids=WALKING)
def test_a_walk_has_the_numbers_of_the_library(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path, changes: dict[str, Any]
) -> None:
    """All steps of all layers and heads, as the library records them here in float32 from the weights of int8."""
    tokenizer = Tokenizer.load(model_paths["transformer"] / "tokenizer.json")
    path = write_model(tmp_path / "model", SHAPES["transformer"] | changes, tokenizer, {})
    export_page([translation_folder(path)], tmp_path / "page.html")
    text, output = "A dog runs across the field .", tokenizer.encode("Der Hund sieht die Männer .")
    model, network = headwise.load(path, "cpu"), in_float32(path)
    record = model.walks(text, tgt="Der Hund sieht die Männer .")
    places = [(stack, n, h) for stack, about in record.figure.items() for n in range(len(about.heads)) for h in (0, 1)]
    page = new_page()
    page.goto((tmp_path / "page.html").as_uri())
    wanted = [{"stack": stack, "layer": layer, "head": head} for stack, layer, head in places]
    found = page.evaluate(WALKED, [text, output, wanted])
    source, read = [*tokenizer.encode(text), tokenizer.eos_id], [tokenizer.bos_id, *output]
    for (stack, layer, head), walk in zip(places, found, strict=True):
        steps = record.steps(stack, layer, head)
        recorded = Recorded(network, source, read, stack == "decoder", layer, head)
        values = recorded.steps(*head_widths(record))
        check_walk(walk, steps, values, network, tokenizer.pieces(range(tokenizer.vocab_size)))


def test_a_walk_of_a_language_model_has_the_numbers_of_the_library(
    new_page: Callable[..., Any], course_page: Path, tmp_path: Path
) -> None:
    path = course_page.parent / "characters"
    export_page([translation_folder(path)], tmp_path / "page.html")
    model, network, text = headwise.load(path, "cpu"), in_float32(path), "A dog\nruns."
    record, places = model.walks(text), [(layer, head) for layer in (0, 1) for head in (0, 1)]
    pieces = bare_tokenizer(model.tokenizer).pieces(range(network.output.d_out))
    page = new_page()
    page.goto((tmp_path / "page.html").as_uri())
    wanted = [{"stack": "decoder", "layer": layer, "head": head} for layer, head in places]
    for (layer, head), walk in zip(places, page.evaluate(WALKED, [text, [], wanted]), strict=True):
        values = Recorded(network, [], model.encode(text), True, layer, head).steps(8, 8)
        check_walk(walk, record.steps("decoder", layer, head), values, network, pieces)


def in_float32(path: Path) -> Any:
    """The network with the rounded weights of int8, and nothing else rounded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "Linear", Dequantised)
        return translation_folder(path).stored.engine("int8")


def head_widths(record: Any) -> tuple[int, int]:
    steps = {step.id: step for step in record.steps("encoder", 0, 0)}
    return steps["self_attn.keys"].values.shape[1], steps["self_attn.values"].values.shape[1]


def check_walk(
    walk: dict[str, Any], steps: list[Any], recorded: dict[str, Any], network: Any, pieces: list[str]
) -> None:
    """The steps of the page: those of Python with the numbers of the library, and parameters near the model's."""
    numbers = np.array([float(x) for x in walk["numbers"]], np.float32)

    def array(of: dict[str, Any]) -> Any:
        return numbers[of["at"] : of["at"] + np.prod(of["shape"])].reshape(of["shape"])

    assert [walk["kinds"][step["kind"]]["id"] for step in walk["steps"]] == [step.id for step in steps]
    values = {step.id: array(one["values"]) for step, one in zip(steps, walk["steps"], strict=True)}
    for step, one in zip(steps, walk["steps"], strict=True):
        kind = walk["kinds"][one["kind"]]
        assert all(kind[name] == getattr(step, name) for name in ("text", "formula", "operands"))
        assert (one["layer"], one["head"]) == (step.layer, step.head), step.id
        assert walk["axes"][kind["rows"]] == list(step.rows)
        assert values[step.id].shape == step.values.shape, step.id
        if step.id == "self_attn.rotated-queries":  # their scale is taken away in another way
            np.testing.assert_allclose(values[step.id], recorded[step.id], 1e-6)
        elif step.id in recorded:
            np.testing.assert_array_equal(values[step.id], recorded[step.id], step.id)
        assert (one["weight"] is None, one["bias"] is None) == (step.weight is None, step.bias is None), step.id
        if one["weight"] and step.id != "logits":  # a level; the largest has level 63, or is cut off
            weight, near = array(one["weight"]), np.atleast_2d(step.weight)
            assert (np.abs(weight - near) <= np.abs(near).max(0) / 63).all(), step.id
        if one["bias"] and step.operation == "projection" and step.id != "logits":
            np.testing.assert_array_equal(array(one["bias"])[0], step.bias, step.id)
    if "logits" not in values:
        return
    (output,), logits = [one for one in walk["steps"] if walk["kinds"][one["kind"]]["id"] == "logits"], values["logits"]
    near = values["output"] @ array(output["weight"]) + (array(output["bias"]) if output["bias"] else 0)
    np.testing.assert_allclose(near, logits, atol=1e-5 * np.abs(logits).max())
    totals = array(walk["steps"][-1]["bias"])[0]
    np.testing.assert_allclose(np.exp(logits - totals[:, None]), values["probabilities"], rtol=1e-5)
    last = walk["steps"][-1]
    temperatures = walk["kinds"][last["kind"]]["settings"]["temperatures"]
    check_predictions(last["predictions"], temperatures, network.output(values["output"]), pieces)
    peaks, firsts = values["probabilities"].max(0), set(values["probabilities"].argmax(1).tolist())
    assert firsts == set(range(len(firsts))), "the most probable token of each position"
    assert all((part[:-1] >= part[1:]).all() for part in (peaks[: len(firsts)], peaks[len(firsts) :]))


def check_predictions(found: list[Any], temperatures: list[float], logits: Any, pieces: list[str]) -> None:
    """The most probable tokens of each row among all of the vocabulary, and totals at other temperatures."""
    log_probs = torch.from_numpy(logits).double().log_softmax(1)
    assert len(found) == len(log_probs) and all(len(one["candidates"]) == 8 for one in found)
    for row, one in zip(log_probs, found, strict=True):
        names, logs = zip(*one["candidates"], strict=True)
        best = row.sort(descending=True, stable=True)
        assert list(names) == [pieces[token] for token in best.indices[:8].tolist()]
        np.testing.assert_allclose(logs, best.values[:8], atol=1e-5)  # float32
        totals = [(row / temperature).logsumexp(0).item() for temperature in temperatures]
        np.testing.assert_allclose(one["totals"], totals, atol=1e-5)


def test_scores_have_the_same_bits_in_both_builds(opened: Opened, model_paths: dict[str, Path]) -> None:
    """And here, but for the logarithm, which is that of another C library."""
    rng = random.Random(4)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(60)]
    relaxed, simd = (opened(build).evaluate(ASKED, "\n".join(lines)) for build in ("relaxed", "simd"))
    assert relaxed == simd
    here = headwise.load(model_paths["transformer"], "cpu").translate(lines, compute="int8")
    assert [length for _, length in simd] == [len(one.pieces) for one in here]
    assert [score for score, _ in simd] == pytest.approx([one.score for one in here], rel=1e-6)


def test_a_chosen_sentence_shows_alternatives_and_lines(opened: Opened) -> None:
    page = opened()
    assert not page.is_visible("#details")
    translated(page, "A dog runs .\nZwei Männer reden .")
    page.wait_for_selector("#details:not([hidden])")
    assert page.inner_text("#details .source") == "A dog runs ."
    page.focus(".unit >> nth=1")
    page.keyboard.press("Enter")
    page.wait_for_selector('#details .source:text-is("Zwei Männer reden .")')
    pieces = page.eval_on_selector_all(".columns-side.k .piece", "nodes => nodes.map((node) => node.textContent)")
    assert "".join(pieces) == "ZweiMännerreden.</s>"
    assert page.locator(".alternatives li").count() >= 1
    assert page.evaluate(INKED) > 50, "lines are drawn"
    assert [node.get_attribute("aria-pressed") for node in page.query_selector_all(".unit")] == ["false", "true"]


def walking(page: Any, layer: int, head: int) -> None:
    """Choose a layer and a head, and wait for their steps."""
    page.get_by_role("combobox", name="Layer").select_option(str(layer))
    page.get_by_role("combobox", name="Head").select_option(str(head))
    expect(page.locator(".figure-where")).to_contain_text(f"layer {layer}, head {head}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_looked_inside_with_the_keyboard(opened: Opened, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    translated(page, "A dog runs .\nZwei Männer reden .")
    look = page.get_by_role("button", name="Look inside")
    assert look.get_attribute("aria-expanded") == "false"
    assert page.locator("#inside *").count() == 0, "no cost before"
    look.press("Enter")
    expect(page.locator(".walk-panel h2")).to_have_text("Embeddings")
    for name in ("Positional encoding", "Embedded tokens", "Queries"):
        page.get_by_role("button", name="Next").press("Enter")
        expect(page.locator(".walk-panel h2")).to_have_text(name)
    walking(page, 1, 1)
    page.locator(".heatmap canvas").press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".account h3")).to_contain_text("dimension 0")
    expect(page.locator(".cell-lines")).to_contain_text("Sum of the products")
    expect(page.locator(".walk-panel")).to_contain_text("8 bits")
    assert violations(page) == []


def test_another_sentence_is_walked_through_where_the_first_one_was(opened: Opened) -> None:
    page = opened()
    translated(page, "A dog runs .\nZwei Männer reden .")
    page.click("#look")
    page.locator(".figure [aria-label*='softmax' i], .figure .box:has-text('Softmax')").last.click()
    expect(page.locator(".walk-panel h2")).to_have_text("Output probabilities")
    page.click(".unit >> nth=1")
    page.wait_for_selector('#details .source:text-is("Zwei Männer reden .")')
    expect(page.locator(".walk-panel h2")).to_have_text("Output probabilities")
    page.locator(".figure .box:has-text('Input embedding')").click()
    expect(page.locator(".heatmap canvas")).to_have_attribute("aria-label", re.compile("^Embeddings: 5 rows"))


def test_a_link_can_have_a_text_and_look_inside(new_page: Callable[..., Any], page_files: dict[str, Path]) -> None:
    page = new_page()
    page.goto(f"{page_files['relaxed'].as_uri()}#text=A%20dog%20runs%20.&walk=1")
    expect(page.locator(".walk-panel h2")).to_have_text("Embeddings")
    assert page.input_value("#source") == "A dog runs ."
    expect(page.locator(".walk-panel h2")).to_be_in_viewport()


def test_a_page_made_without_torch_cannot_be_looked_inside(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_page, "torch_installed", lambda: False)
    export_page([translation_folder(model_paths["transformer"])], tmp_path / "page.html")
    page = new_page()
    page.goto((tmp_path / "page.html").as_uri() + "#text=A%20dog&walk=1")
    page.wait_for_selector("#details:not([hidden])")
    assert page.locator("#look").count() == 0


INKED = """() => { const canvas = document.querySelector(".columns canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((value, i) => i % 4 === 3 && value).length; }"""


def test_it_is_stopped_at_once_and_goes_on(opened: Opened) -> None:
    page = opened()
    text = "\n".join(" ".join(WORDS) for _ in range(2000))
    page.eval_on_selector("#source", "(node, text) => { node.value = text; node.form.requestSubmit(); }", text)
    page.wait_for_selector(".unit:not([disabled])")
    page.keyboard.press("Escape")
    page.wait_for_selector('#status:text-is("Stopped.")')
    page.wait_for_selector("#translate:not([disabled])")
    assert 0 < page.locator(".unit").count() < 2000
    assert len(translated(page, "A dog")) == 1


def test_the_keyboard_and_names_suffice(opened: Opened) -> None:
    page = opened()
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.type("A dog runs .")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#details:not([hidden])")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Translate"
    page.keyboard.press("Tab")  # nothing is to be stopped
    assert page.evaluate("() => document.activeElement.className") == "unit"
    for name, count in (("button", 3), ("status", 1), ("textbox", 1)):
        assert page.get_by_role(name).count() >= count, name
    assert page.get_attribute("#output", "aria-live") == "polite"


def test_a_translation_is_copied_line_by_line(opened: Opened) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    lines = translated(page, "A dog runs .\n\nZwei Männer reden .")
    page.click("#copy")
    page.wait_for_selector('#status:text-is("Copied.")')
    assert page.evaluate("() => navigator.clipboard.readText()") == "\n".join(lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_cut_off_and_all_can_be_read(opened: Opened, width: int, scheme: str) -> None:
    page = opened(width=width, color_scheme=scheme)
    translated(page, "A dog runs across the field .\n" + "ungebrochen" * 20)
    page.wait_for_selector("#details:not([hidden])")
    wide = (
        "() => [...document.querySelectorAll('main *')].filter((n) => n.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.evaluate(wide + ".map((n) => n.className || n.tagName)") == []
    back = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 384) == (scheme == "dark")


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    lines = [" ".join(WORDS), "日本語 नमस्ते naïve", *STRANGE] * 3
    configs = [TranslationData(vocab_size=420), TranslationData(vocab_size=420, normalization="nfkc", lowercase=True)]
    return [Tokenizer.train(lines, config, ["<2de>", "<2fr>"]) for config in configs]


@pytest.fixture
def scripts(new_page: Callable[..., Any]) -> Iterator[Any]:
    """A page in which the worker's modules can be called."""
    page = new_page()
    modules = script_text("tokenizer.js", read_asset) + script_text("sentences.js", read_asset)
    page.add_script_tag(content=f"{modules}; globalThis.its = {{ Tokenizer, splitText, oneLine, sentencesOf }};")
    yield page


def random_texts(count: int) -> list[str]:
    rng = random.Random(2)
    letters = [*"abc XYZ.,;!?-'\"()  0129é\u0301ßøλждשनि日本、。\u00a0\u200d\t", "<2de>", " the", "😀", "ing", "\u3000"]
    return STRANGE + ["".join(rng.choices(letters, k=rng.randint(1, 40))) for _ in range(count)]


ENCODE = "([content, texts]) => { const t = new its.Tokenizer(content); return texts.map((text) => t.encode(text)); }"
DECODE = """([content, ids]) => { const t = new its.Tokenizer(content);
  return ids.map((one) => [t.decode(one), t.readable(one)]); }"""


@pytest.mark.parametrize("which", [0, 1])
def test_ids_and_texts_are_those_of_the_library(scripts: Any, tokenizers: list[Tokenizer], which: int) -> None:
    tokenizer, texts = tokenizers[which], random_texts(1500)
    content = page_tokenizer(tokenizer, "here")
    found = scripts.evaluate(ENCODE, [content, texts])
    wanted = [tokenizer.backend.encode(text, add_special_tokens=False).ids for text in texts]
    assert [t for t, a, b in zip(texts, found, wanted, strict=True) if a != b] == []
    rng = random.Random(3)
    ids = [*wanted, *([rng.randrange(tokenizer.vocab_size) for _ in range(8)] for _ in range(500))]
    for one, (text, pieces) in zip(ids, scripts.evaluate(DECODE, [content, ids]), strict=True):
        assert (text, pieces) == (tokenizer.decode(one), tokenizer.pieces(one))


def test_texts_are_cleaned_and_cut_as_on_the_command_line(scripts: Any) -> None:
    texts = ["One two. Three four five.", "日本。本日。x", "x" * 30, "a\x1cb", "😀 " * 20, *random_texts(300)]
    cut = "(texts) => texts.map((text) => its.splitText(its.oneLine(text), (part) => Array.from(part).length < 9))"
    assert scripts.evaluate(cut, texts) == [split_text(clean_text(text), lambda part: len(part) < 9) for text in texts]
    assert scripts.evaluate("(texts) => texts.map(its.oneLine)", texts) == list(map(one_line, texts))


def test_a_paragraph_is_cut_at_the_ends_of_sentences(scripts: Any) -> None:
    text = 'He said: "No." Then (at last!) he went. 3.5 is a number.'
    wanted = ['He said: "No."', "Then (at last!) he went.", "3.5 is a number."]
    assert scripts.evaluate("(text) => its.sentencesOf(text).map((one) => one.trim())", text) == wanted
