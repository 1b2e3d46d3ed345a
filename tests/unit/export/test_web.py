"""A page that translates: what it cannot hold is refused in a line; what it holds is what the library has packed."""

import ctypes
import gzip
import json
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_families import write_tiny

from headwise.cli import main
from headwise.config.data import TextData, TranslationData
from headwise.config.settings import SearchSettings
from headwise.errors import UserError
from headwise.evaluate.pages.document import module_order
from headwise.models.load import load, translation_folder
from headwise.pytorch.search.compiled import pack_network
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.sidecar_files import write_alignment
from headwise.runtime.native import library as c
from headwise.serve.web import page, wasm
from headwise.serve.web.memory import Image, structure_layout
from headwise.serve.web.page import export_page, outline, page_tokenizer, unsupported_part
from headwise.text.files.documents import train_on_documents
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.alignment import AlignmentHead

MakeModel = Callable[..., Path]
NO_BINARIES = {"simd": b"simd", "relaxed": b"relaxed"}


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without a library, which would take a minute to compile."""
    monkeypatch.setattr(page, "wasm_builds", lambda: NO_BINARIES)


def unpacked(packed: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """As assets/worker.js."""
    whole = gzip.decompress(packed)
    (length,) = struct.unpack("<I", whole[:4])
    about, rest = json.loads(whole[4 : 4 + length]), whole[4 + length :]
    return about, {name: rest[start : start + size] for name, (start, size) in about["parts"].items()}


def test_a_page_is_one_file_that_asks_no_network(make_model: MakeModel, tmp_path: Path, no_compiler: None) -> None:
    report = export_page([translation_folder(make_model())], tmp_path / "<en> & de.html")
    assert report.endswith("MB; open it in a browser, or share it")
    text = (tmp_path / "<en> & de.html").read_text(encoding="utf-8")
    assert "<title>&lt;en&gt; &amp; de</title>" in text
    assert "default-src &#x27;none&#x27;" in text and "connect-src" not in text and "unsafe-inline" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["<en> & de.html"]


@pytest.mark.parametrize("entry", ["main.js", "worker.js"])
def test_one_scope_of_the_page_has_each_name_once(entry: str) -> None:
    declared = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (?:\[([^\]]+)\]|(\w+))", re.MULTILINE)
    names = Counter(
        name.strip()
        for module in module_order(entry, page.read_asset)
        for groups in declared.findall(page.read_asset(module))
        for name in "".join(groups).split(",")
    )
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) > 10


def test_steps_of_a_walk_do_not_depend_on_the_text(make_model: MakeModel) -> None:
    model = load(make_model(), "cpu")
    found = [outline(model.walks(text, tgt=text)) for text in ("a dog", "Hund und Hund und a b c")]
    assert found[0] == found[1]
    assert {name: len(layers) for name, layers in found[0]["walks"].items()} == {"encoder": 2, "decoder": 1}
    ids = [found[0]["kinds"][kind]["id"] for kind, *_ in found[0]["walks"]["decoder"][-1]]
    assert ids[0] == "embeddings" and ids[-1] == "probabilities" and "cross_attn.scores" in ids


@pytest.mark.parametrize(
    "shape", [{}, {"d_model": 12}, {"positions": "learned", "max_len": 20}, {"positions": "rotary"}], ids=str
)
def test_the_image_is_what_the_library_has_packed(make_model: MakeModel, shape: dict[str, Any]) -> None:
    network = pack_network(read_folder(make_model(**shape)).network, "int8")
    image = Image(network, 20)
    words = np.frombuffer(image.bytes, "<i4")
    names = [name for name, _ in structure_layout(c.Transformer)]
    at = {name: words[image.model // 4 + i] for i, name in enumerate(names)}
    assert (at["d_model"], at["n_encoder_layers"], at["n_decoder_layers"]) == (network.d_model, 2, 1)
    linear = c.Linear.from_address(network.structure.output)
    fields = [name for name, _ in structure_layout(c.Linear)]
    levels, copied = linear.depth * -(-linear.d_out // 16) * 16, words[at["output"] // 4 + fields.index("quantised")]
    assert image.bytes[copied : copied + levels] == ctypes.string_at(linear.quantised, levels)
    size = 2 * linear.d_out * -(-network.d_model // 8) * 8  # in bfloat16
    here = ctypes.string_at(network.structure.source.rows, size)
    assert image.bytes[at["source.rows"] :][:size] == here
    assert at["source.rows"] == at["target.rows"], "what is shared is there once"
    assert all(
        words[pointer // 4] % 64 == 0 and 0 < words[pointer // 4] < len(image.bytes) for pointer in image.pointers
    )
    assert len(image.pointers) == len(set(image.pointers))
    turning = shape.get("positions") == "rotary"
    assert bool(at["rotary.angles"]) == turning
    if turning:
        cosines = np.frombuffer(image.bytes, "<f4")[at["rotary.angles"] // 4 :][16 : 16 + 4]
        assert np.array_equal(cosines, np.cos(10000.0 ** (-np.arange(0, 8, 2) / 8)).astype(np.float32)), "of position 1"


def test_a_page_searches_as_the_model_is_told_to(make_model: MakeModel, no_compiler: None) -> None:
    path = make_model(positions="learned", max_len=40)
    about, parts = unpacked(page.pack_model(read_folder(path)))
    default = SearchSettings()
    assert about["options"]["beam_size"] == default.beam_size and about["options"]["pool"] == 1
    assert about["lists"]["ends"] == [2] and about["lists"]["suppressed"] == [0, 1, 3]
    assert (about["lengths"]["max_len"], about["lengths"]["positions"], about["lengths"]["longest_source"]) == (
        40,
        40,
        40,
    )
    assert about["aligns"] is None, "the clearest for each pair"
    assert len(parts["image"]) == about["parts"]["image"][1]
    assert unpacked(page.pack_library())[1] == NO_BINARIES


@pytest.mark.parametrize("head", [1, None])
def test_a_page_aligns_with_the_head_that_was_chosen(
    make_model: MakeModel, no_compiler: None, head: int | None
) -> None:
    path = make_model()
    write_alignment(path, AlignmentHead(0, head, "reads").as_json())
    assert unpacked(page.pack_model(read_folder(path)))[0]["aligns"] == {"layer": 0, "head": head, "later": 1}


def test_positions_reach_as_far_as_an_output_may() -> None:
    assert page.page_lengths(SearchSettings(max_source_length=30), 0)["positions"] == 2 * 30 + 50
    assert page.page_lengths(SearchSettings(max_length_factor=0.5, max_length_extra=1), 0)["positions"] == 256


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (TranslationData(subword="unigram"), "its model is Unigram, not BPE"),
        (TranslationData(normalization="nfkc", lowercase=True), ""),
        (TranslationData(normalization="none"), ""),
    ],
    ids=["unigram", "nfkc", "none"],
)
def test_a_tokenizer_of_another_model_is_refused(config: TranslationData, why: str) -> None:
    learned = Tokenizer.train(["A dog runs."] * 3, TranslationData(**{**vars(config), "vocab_size": 300}), ["<2de>"])
    if not why:
        content = page_tokenizer(learned, "here")
        assert (
            content["declared"] == {str(learned.vocab_size - 1): "<2de>"} and content["lowercase"] == config.lowercase
        )
        assert content["forms"] == ([] if config.normalization == "none" else [config.normalization.upper()])
        return
    with pytest.raises(UserError, match=why):
        page_tokenizer(learned, "here")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"decoder": None}, "its decoder is not one"),
        ({"normalizer": {"type": "NFC"}}, "its normalizer is not one"),
        ({"model": {"byte_fallback": True}}, "its BPE model has byte_fallback = True"),
        ({"post_processor": {"type": "ByteLevel"}}, "its post_processor is not one"),
        ({"added_tokens": [{"content": "<x>", "lstrip": True}]}, "its token <x> is lstrip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_that_the_page_does_not_know_is_named(change: dict[str, Any], why: str) -> None:
    content = json.loads(Tokenizer.train(["A dog."] * 3, TranslationData(vocab_size=300)).backend.to_str())
    assert unsupported_part(content) == ""
    for name, value in change.items():
        if name == "added_tokens":
            content[name][0] |= value[0]
        else:
            content[name] = content[name] | value if name == "model" else value
    assert unsupported_part(content).startswith(why)


def test_what_a_page_cannot_hold_is_refused_in_a_line(
    make_model: MakeModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    (tmp_path / "marian").mkdir()
    write_tiny(tmp_path / "marian", "marian")
    with pytest.raises(UserError, match=r"compiled library \(.*relative_buckets"):
        export_page([translation_folder(make_model(positions="relative"))], out)
    with pytest.raises(UserError, match="its tokenizer is not supported"):
        export_page([translation_folder(tmp_path / "marian")], out)
    assert main(["export", str(make_model()), str(out), "--to", "web", "--compute", "int8"]) == 2
    assert "--compute and --text are not for --to web" in capsys.readouterr().err
    assert main(["export", str(make_model()), str(out), "--to", "onnx", "--with", str(make_model())]) == 2
    assert "--with is for --to web" in capsys.readouterr().err
    assert not out.exists()


def test_a_page_has_language_models_trained_here(tmp_path: Path, no_compiler: None) -> None:
    paths = [tmp_path / "one" / "text", tmp_path / "two" / "text", tmp_path / "other"]
    for path in paths:
        path.mkdir(parents=True)
        write_tiny(path, "gpt2")
    one, two, other = map(translation_folder, paths)
    with pytest.raises(UserError, match="one/text: --to web is for models trained here"):
        export_page([one], tmp_path / "page.html")
    tokenizer = train_on_documents(["A dog runs."], TextData(subword="characters", vocab_size=264))
    for path in paths:
        tokenizer.save(path / "tokenizer.json")
    assert "MB" in export_page([one, other], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.findall(r'class="model" type="text/plain" data-name="(\w+)"', text) == ["text", "other"]
    with pytest.raises(UserError, match="two models are named text"):
        export_page([one, two], tmp_path / "page2.html")
    for name, value in (("repetition_penalty", 1.5), ("sequence_bias", [[[5, 6], 2.0]])):
        (paths[0] / "generation_config.json").write_text(json.dumps({name: value}))
        with pytest.raises(UserError, match=f"generation_config.json: --to web does not support {name}"):
            export_page([one], tmp_path / "page2.html")
    assert not (tmp_path / "page2.html").exists()


def test_without_a_compiler_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(UserError, match=r'needs a compiler: pip install "headwise\[web\]"'):
        wasm.wasm_builds()


def test_a_build_of_other_sources_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    (tmp_path / "library_simd_00000001.wasm").write_bytes(b"old")
    wasm.wasm_path("relaxed").write_bytes(b"new")
    assert wasm.wasm_build("relaxed") == b"new"
    assert not wasm.wasm_path("simd").is_file()
