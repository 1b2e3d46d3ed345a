"""What is exported, in the libraries it is for: the same logits, the same translations, the use its page shows."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

import headwise
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.core.translate import pad_right
from headwise.pytorch.checkpoint.ctranslate2_folder import read_ctranslate2
from headwise.pytorch.checkpoint.imported import write_foreign
from headwise.pytorch.export import ctranslate2, hf, onnx
from headwise.pytorch.export.exported import MAX_NEW_TOKENS, ExportedModel, exported_model, sample_texts
from headwise.pytorch.export.run import export_model
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.trained import write_decoding
from headwise.text.tokens.tokenizer import Tokenizer

MakeModel = Callable[..., Path]
TEXTS = ["A dog runs.", "Ein Hund rennt über die Wiese, </s> 12!", "日本"]
SHAPES: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm_position": "pre"},
    "three-heads": {"d_model": 24, "n_heads": 3},
    "two-tables": {"tied_embeddings": "target"},
    "three-tables": {"tied_embeddings": "none"},
}


def teacher_forced(exported: ExportedModel) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources, their mask, targets, and our logits."""
    src, src_mask = pad_right([SpecialIds().ended(source) for source in exported.tokenizer.encode_batch(TEXTS)])
    tgt_in = torch.randint(4, exported.tokenizer.vocab_size, (len(TEXTS), 7))
    with torch.inference_mode():
        return src, src_mask, tgt_in, exported.network.logits(exported.network.states(src, tgt_in, src_mask))


def run_example(folder: Path) -> str:
    """What the code on the page prints."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    printed: list[str] = []
    exec(code, {"FOLDER": str(folder), "print": lambda *values: printed.extend(map(str, values))})
    return "\n".join(printed)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SHAPES)
def test_hf(name: str, make_model: MakeModel, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path = make_model(**SHAPES[name])
    export_model(path, "hf", tmp_path / "out", texts=TEXTS)
    exported = exported_model(read_folder(path))
    src, src_mask, tgt_in, logits = teacher_forced(exported)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    assert type(model).__name__ == ("PegasusForConditionalGeneration" if name == "pre" else "MarianMTModel")
    with torch.inference_mode():
        theirs = model(input_ids=src, attention_mask=src_mask.long(), decoder_input_ids=tgt_in).logits
    torch.testing.assert_close(theirs, logits, atol=2e-4, rtol=1e-4)
    again = headwise.load(tmp_path / "out", "cpu")
    torch.testing.assert_close(again.network(src, tgt_in, src_mask), logits, atol=2e-4, rtol=1e-4)
    written = again.generate(TEXTS, beam_size=1, max_new_tokens=MAX_NEW_TOKENS)
    assert [output.tokens for output in written] == hf.greedy_by_transformers(exported, tmp_path / "out", TEXTS)


def test_hf_tokenizer_is_ours(make_model: MakeModel, tmp_path: Path) -> None:
    """Ids with the end mark, special tokens in text that stay text, and the way back."""
    transformers = pytest.importorskip("transformers")
    path = make_model()
    export_model(path, "hf", tmp_path / "out")
    ours, theirs = Tokenizer.load(path / "tokenizer.json"), transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(TEXTS).input_ids == [[*ours.encode(text), ours.eos_id] for text in TEXTS]
    assert theirs.batch_decode(theirs(TEXTS).input_ids, skip_special_tokens=True) == TEXTS
    assert run_example(tmp_path / "out")


def test_hf_generates_as_long_as_the_model_may(make_model: MakeModel, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    export_model(make_model(), "hf", tmp_path / "out")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    settings = model.generation_config
    assert (settings.num_beams, settings.max_new_tokens, settings.decoder_start_token_id) == (4, 146, 1)
    assert settings.suppress_tokens == [0, 1, 3] and settings.forced_eos_token_id is None


def test_hf_searches_as_the_model_does(make_model: MakeModel, tmp_path: Path) -> None:
    """What `evaluate --tune --save` has found goes along."""
    path = make_model()
    write_decoding(path, SearchSettings(beam_size=3, length_penalty=1.2, no_repeat_ngram=5), str)
    export_model(path, "hf", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "generation_config.json").read_text(encoding="utf-8"))
    assert [found[name] for name in ("num_beams", "length_penalty", "no_repeat_ngram_size")] == [3, 1.2, 5]


MODERN = {"norm": "rms", "norm_position": "pre", "gated": True, "activation": "silu", "biases": False}
MORE = {
    "learned": {"positions": "learned", "max_len": 60},
    "modern": MODERN,
    "rotary": {"positions": "rotary"},
    "grouped heads": {"n_heads": 4, "n_kv_heads": 2},
    "modern, rotary, one key head": {**MODERN, "positions": "rotary", "n_heads": 4, "n_kv_heads": 1},
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [*SHAPES, *MORE])
def test_ctranslate2(name: str, make_model: MakeModel, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    path = make_model(**(SHAPES | MORE)[name])
    export_model(path, "ctranslate2", tmp_path / "out")
    exported = exported_model(read_folder(path))
    folder = tmp_path / "unsuppressed"
    folder.mkdir()
    ctranslate2.write_model(exported, folder, exported.pieces, "float32")
    src, src_mask, tgt_in, logits = teacher_forced(exported)
    tgt_in[:, 0] = exported.tokenizer.bos_id
    with torch.inference_mode():
        logits = exported.network.logits(exported.network.states(src, tgt_in, src_mask))
    names = exported.pieces
    scores = library.Translator(str(folder)).score_batch(
        [[names[i] for i in row[mask]] for row, mask in zip(src, src_mask, strict=True)],
        [[names[i] for i in row[1:]] for row in tgt_in],
    )
    found = torch.tensor([score.log_probs[:6] for score in scores])
    wanted = logits.log_softmax(-1)[:, :-1].gather(2, tgt_in[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["three-tables", "modern, rotary, one key head"])
def test_an_export_to_ctranslate2_is_imported_again(name: str, make_model: MakeModel, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = make_model(**(SHAPES | MORE)[name])
    exported = exported_model(read_folder(path))
    (tmp_path / "out").mkdir()
    ctranslate2.write_ctranslate2(exported, tmp_path / "out", TEXTS[0], int8=False)
    write_foreign(tmp_path / "back", read_ctranslate2(tmp_path / "out"))
    settings: dict[str, Any] = {"beam_size": 1, "max_length_factor": 0.0, "max_length_extra": 20}
    found, wanted = (headwise.load(folder, "cpu").translate(TEXTS, **settings) for folder in (tmp_path / "back", path))
    assert [one.text for one in found] == [one.text for one in wanted]


def test_ctranslate2_in_int8(make_model: MakeModel, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2")
    path = make_model()
    for int8 in (False, True):
        report = export_model(path, "ctranslate2", tmp_path / str(int8), int8=int8)
    assert re.search(r"are the same in float32, \d of them in int8", report)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("False", "True")]
    assert sizes[1] < 0.8 * sizes[0]  # most of this small one are positions, which stay
    assert library.Translator(str(tmp_path / "True")).compute_type.startswith("int8")
    assert run_example(tmp_path / "False")


def test_ctranslate2_never_writes_what_our_search_never_writes(make_model: MakeModel, tmp_path: Path) -> None:
    """Whatever is suppressed is not written, even if it were everything but one piece."""
    pytest.importorskip("ctranslate2")
    exported = exported_model(read_folder(make_model()))
    only = exported.tokenizer.encode("dog")[-1]
    others = [i for i in range(exported.tokenizer.vocab_size) if i != only]
    ctranslate2.write_model(exported, tmp_path, exported.pieces, "float32", others)
    found = ctranslate2.greedy_by_ctranslate2(exported, tmp_path, ["A dog"])
    assert set(found[0]) == {only}


def test_ctranslate2_may_write_nothing(make_model: MakeModel, tmp_path: Path) -> None:
    """An output that is empty here is also empty there; by default CTranslate2 writes at least one token."""
    pytest.importorskip("ctranslate2")
    exported = exported_model(read_folder(make_model()))
    others = [i for i in range(exported.tokenizer.vocab_size) if i != exported.special.eos_id]
    ctranslate2.write_model(exported, tmp_path, exported.pieces, "float32", others)
    assert ctranslate2.greedy_by_ctranslate2(exported, tmp_path, ["A dog"]) == [[]]


@pytest.fixture
def unchecked_shapes() -> Any:
    """The exporter follows the code with symbols for sizes, which are no sizes to a shape checker."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


ONNX: dict[str, dict[str, Any]] = {
    "sinusoidal": {"norm_position": "pre", "d_k": 4},
    "relative": {"positions": "relative", "norm": "rms", "gated": True, "biases": False},
    "none": {"positions": "none", "decoder_heads": (1,)},
    "rotary": {"positions": "rotary", "d_k": 6},
    "grouped": {"positions": "rotary", "n_heads": 4, "n_kv_heads": 2, "normalise_heads": True},
}


@pytest.mark.usefixtures("unchecked_shapes")  # a layer gets its own input in place of the source, which is cached
@pytest.mark.parametrize("positions", ONNX)
def test_graphs_of_onnx(positions: str, make_model: MakeModel) -> None:
    """As torch modules, before the exporter follows them: all at once and step by step."""
    exported = exported_model(read_folder(make_model(**ONNX[positions])))
    src, src_mask, tgt_in, logits = teacher_forced(exported)
    network = onnx.with_tables(exported.network)
    with torch.inference_mode():
        cross = onnx.EncoderGraph(network)(src, src_mask)
        own = tuple(torch.zeros(len(src), *heads) for heads in onnx.own_shapes(network, 0))
        decoder = onnx.DecoderGraph(network)
        torch.testing.assert_close(decoder(tgt_in, src_mask, cross, own)[0], logits, atol=1e-4, rtol=0)
        for start, end in ((0, 1), (1, 4), (4, 7)):
            found, *more = decoder(tgt_in[:, start:end], src_mask, cross, own)
            own = tuple(more)
            torch.testing.assert_close(found, logits[:, start:end], atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.thorough
@pytest.mark.parametrize("positions", ONNX)
def test_onnx(positions: str, make_model: MakeModel, tmp_path: Path) -> None:
    """Exports, which take the exporter seconds: logits step by step and all at once, translations, the page."""
    for library in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    path = make_model(n_encoder_layers=1, **ONNX[positions])
    report = export_model(path, "onnx", tmp_path / "out", texts=TEXTS)
    assert report == "greedy translations of 3 texts are the same"
    exported = exported_model(read_folder(path))
    src, src_mask, tgt_in, logits = teacher_forced(exported)
    graphs = onnx.OnnxGraphs(exported, tmp_path / "out")
    start = graphs.source(src.numpy(), src_mask.numpy())
    at_once, _ = graphs.step(tgt_in.numpy(), start)
    np.testing.assert_allclose(at_once, logits.numpy(), atol=1e-4)
    state, steps = start, []
    for new in (tgt_in[:, :1], tgt_in[:, 1:2], tgt_in[:, 2:5], tgt_in[:, 5:]):
        found, state = graphs.step(new.numpy(), state)
        steps.append(found)
    np.testing.assert_allclose(np.concatenate(steps, 1), logits.numpy(), atol=1e-4)
    assert run_example(tmp_path / "out")
    onnx._quantize(tmp_path / "out" / onnx.DECODER)
    int8, _ = onnx.OnnxGraphs(exported, tmp_path / "out").step(tgt_in.numpy(), start)
    # Weights are random, and a batch has one scale: 0.32 with AVX2, below 0.3 with VNNI.
    assert 0 < (int8 - logits.numpy()).std() < 0.5 * logits.numpy().std()


def test_texts_of_the_check_are_translated_to_different_lengths(make_model: MakeModel) -> None:
    """Or equality would say little."""
    exported = exported_model(read_folder(make_model(norm_position="pre")))
    found = exported.greedy(sample_texts(exported.tokenizer))
    assert len({tuple(tokens) for tokens in found}) > 6
