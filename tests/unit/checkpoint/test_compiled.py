"""The compiled library fed from the arrays of a file: the same parameters, the same bits as through torch, no torch."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import headwise
from headwise.config.data import TranslationData
from headwise.config.from_recipe import transformer_config
from headwise.config.model import ModelConfig, RecurrentConfig, TransformerConfig
from headwise.config.positions import sinusoid_table
from headwise.config.setting import converted
from headwise.config.settings import RunConfig, SearchSettings
from headwise.core.build import count_parameters, parameters_of
from headwise.core.positions import SinusoidalPositions
from headwise.errors import UserError
from headwise.models.translation import workers
from headwise.models.translation.workers import TASK_LINES
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.compiled import axes_for_library, compiled
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.shapes import fits, parameter_shapes
from headwise.runtime.checkpoint.sidecar_files import write_shortlist
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.runtime.native.library import library
from headwise.runtime.search import engine
from headwise.runtime.search.engine import decode_tokens
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import Tokenizer

needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is not there")

TEXTS = ["A dog runs.", "Ein Hund rennt.", "日本", "A man and a dog", ""]
TOKENIZER = Tokenizer.train(TEXTS * 3, TranslationData(vocab_size=270))
SMALL = TransformerConfig(
    vocab_size=TOKENIZER.vocab_size, d_model=16, d_ff=24, n_heads=2, n_encoder_layers=2, n_decoder_layers=2, max_len=40
)
CONFIGS = [
    SMALL,
    replace(SMALL, norm_position="pre", tied_embeddings="target", positions="learned"),
    replace(SMALL, tied_embeddings="none", d_k=3, d_v=5),
    replace(SMALL, positions="rotary", norm_position="pre"),
    replace(SMALL, positions="rotary", d_k=6, encoder_heads=(2, 1)),
    replace(SMALL, encoder_heads=(2, 1), decoder_heads=(1, 2), cross_heads=(1, 1), n_heads=4),
]
SEARCHES: list[dict[str, Any]] = [{"beam_size": 1}, {"beam_size": 3, "n_best": 2}, {"shortlist": True}]


def network(config: ModelConfig) -> Any:
    torch.manual_seed(3)
    model = build_model(config).eval()
    with torch.no_grad():  # far from uniform, so that outputs differ
        model.output.weight *= 3
    return model


def arrays(model: Any) -> dict[str, Any]:
    return {name: value.numpy() for name, value in parameters_of(model).items()}


def small_model(path: Path) -> Path:
    """Write a small translator without a training into `path`, and return that."""
    decode = SearchSettings(beam_size=2, max_length_factor=1.0, max_length_extra=3)
    write_settings(path, RunConfig(model=SMALL, decode=decode), TOKENIZER, {})
    write_weights(path, parameters_of(network(SMALL)), "# A model\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = small_model(tmp_path / "model")
    few = np.arange(20, 60, dtype=np.int32)
    write_shortlist(path, Shortlist(few, np.tile(few[:3], (TOKENIZER.vocab_size, 1))), TOKENIZER)
    return path


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_shapes_are_those_that_the_builder_makes(config: ModelConfig) -> None:
    built = {name: tuple(value.shape) for name, value in parameters_of(build_model(config)).items()}
    assert parameter_shapes(transformer_config(config)) == built


def test_weights_of_another_network_do_not_fit() -> None:
    shapes = {name: value.shape for name, value in arrays(network(SMALL)).items()}
    assert fits(transformer_config(SMALL), shapes)
    assert not fits(transformer_config(replace(SMALL, d_ff=16)), shapes)
    assert not fits(transformer_config(SMALL), {**shapes, "more": (1,)})
    learned = transformer_config(CONFIGS[1])
    shapes = parameter_shapes(learned)
    table = "src_embeddings.positions.table"
    assert fits(learned, shapes)
    assert not fits(learned, {table if name == f"{table}.weight" else name: shape for name, shape in shapes.items()})


@pytest.mark.parametrize("d_model", [8, 128, 256, 384, 512])
def test_all_that_computes_takes_one_table_of_positions(d_model: int) -> None:
    """To the last bit: the sines of numpy and torch differ on some processors."""
    assert np.array_equal(
        sinusoid_table(0, 4096, d_model), SinusoidalPositions(d_model)(torch.arange(4096)[None], 4096)[0].numpy()
    )


@needs_library
@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_what_it_finds_is_what_the_library_finds_through_torch(config: ModelConfig, compute: str) -> None:
    model, search = network(config), SearchSettings(max_length_factor=1.0, max_length_extra=3, n_best=2)
    sources = [list(range(4, 4 + n)) for n in (3, 1, 9, 0, 30)]
    ours = decode_tokens(engine_of(compiled(transformer_config(config), arrays(model), compute)), sources, search)
    assert ours == decode_tokens(engine_of(prepare_for_inference(model, compute)), sources, search)


@needs_library
def test_other_architectures_are_for_torch() -> None:
    assert axes_for_library(SMALL)
    assert not axes_for_library(converted(SMALL, RecurrentConfig))


@needs_library
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_network_is_made_when_asked_for_and_translates_the_same(folder: Path, search: dict[str, Any]) -> None:
    model = headwise.load(folder, "cpu")
    before = model.translate(TEXTS, **search)
    assert model._loaded.stored._network is None
    assert model.network is model.network and not model.network.training
    assert model._loaded.stored.searcher("float32") is None
    assert model.translate(TEXTS, **search) == before
    with torch.no_grad():
        model.network.output.weight.neg_()
    assert model.translate(TEXTS, **search) != before


@needs_library
def test_asking_what_a_model_is_does_not_change_what_translates(folder: Path) -> None:
    model = headwise.load(folder, "cpu")
    found = model.info()["parameters"]
    assert model._loaded.stored.searcher("float32") is not None
    assert found == count_parameters(model.network) == model.info()["parameters"]


@needs_library
def test_what_the_library_cannot_do_is_done_by_torch(folder: Path) -> None:
    model = headwise.load(folder, "cpu")
    model.translate(TEXTS, no_repeat_ngram=50, sample=True)
    assert model._loaded.stored._network is None
    assert len(model.translate(TEXTS, beam_size=1, compute="float16")) == len(TEXTS)
    assert model._loaded.stored._network is not None


@needs_library
def test_several_threads_make_one_form(folder: Path) -> None:
    model = headwise.load(folder, "cpu")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(model.translate(TEXTS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(translations == found[0] for translations in found)


@needs_library
def test_threads_share_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled(transformer_config(SMALL), arrays(network(SMALL)), "int8")
    sources, search = (
        [list(range(4, 4 + n % 9)) for n in range(40)],
        SearchSettings(max_length_extra=3, batch_tokens=120),
    )
    alone = decode_tokens(engine_of(model), sources, search)
    used: set[int] = set()

    def noted(batch: Any, *rest: Any) -> Any:
        used.add(threading.get_ident())
        return model.search(batch, *rest)

    monkeypatch.setattr(engine, "usable_threads", lambda: 3)
    monkeypatch.setattr(engine, "MIN_SHARE", 40)
    recorded: Any = SimpleNamespace(search=noted, begin=noted)
    assert decode_tokens(engine_of(recorded), sources, search) == alone
    assert used and threading.get_ident() not in used


@needs_library
def test_batches_are_no_larger_than_products_gain_from() -> None:
    model, rows = compiled(transformer_config(SMALL), arrays(network(SMALL)), "int8"), list[int]()

    def noted(batch: Any, *rest: Any) -> Any:
        rows.append(len(batch))
        return model.search(batch, *rest)

    recorded: Any = SimpleNamespace(search=noted, begin=noted)
    decode_tokens(
        engine_of(recorded),
        [[5 + n % 17, 5 + n // 17] + [5] * 7 for n in range(300)],  # no two are equal
        SearchSettings(max_length_extra=1, batch_tokens=100_000, beam_size=2),
    )
    assert sum(rows) == 300 and max(rows) == engine.MAX_SHARE // 20


@needs_library
def test_processes_are_for_what_torch_decodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(workers, "usable_cores", lambda: 2)
    share = "headwise.models.translation.translator.translate_in_processes"
    monkeypatch.setattr(share, lambda *request: started.append(request[2]) or iter(()))
    lines, model = ["A dog"] * 2 * TASK_LINES, headwise.load(folder, "cpu")
    for settings in ({}, {"sample": True}, {"no_repeat_ngram": 2}):
        model.translate_lines(lines, workers=0, **settings)
    assert not started
    model.translate_lines(lines, workers=0, compute="float16")
    model.translate_lines(lines[:5], workers=4)
    assert started == [2, 4]


@pytest.mark.parametrize("numbers", [torch.float16, torch.bfloat16])  # the second are none that numpy has by itself
def test_weights_that_somebody_converted_are_read_all_the_same(folder: Path, numbers: torch.dtype) -> None:
    path = folder / "model.safetensors"
    halved = {name: value.to(numbers) for name, value in load_file(path).items()}
    save_file(halved, path)
    seal(folder, again=True)
    read = parameters_of(headwise.load(folder, "cpu").network)
    assert all(torch.equal(read[name], value.float()) for name, value in halved.items())


def test_misfits_are_told_when_the_model_is_loaded(folder: Path) -> None:
    write_weights(folder, parameters_of(network(replace(SMALL, d_ff=16))), "")
    with pytest.raises(UserError, match="does not fit its configuration"):
        headwise.load(folder, "cpu")


@needs_library
@pytest.mark.parametrize(
    "code",
    [
        "import headwise; assert headwise.load({0!r}).translate(['A dog'], compute='int8', shortlist=True)[0].text",
        "import headwise; assert headwise.load({0!r}).translate(['A dog'], sample=True, no_repeat_ngram=2)[0].text",
        "from headwise.cli import main; assert main(['translate', {0!r}, {1!r}, '-o', {2!r}, '--workers', '1']) == 0",
        "from headwise.cli import main; assert main(['translate', {0!r}, {1!r}, '-o', {2!r}, '--format=jsonl']) == 0",
    ],
    ids=["load", "sample", "command", "json"],
)
def test_translating_does_without_torch(folder: Path, tmp_path: Path, code: str) -> None:
    """A single sentence is answered at once: importing torch alone takes ten times as long."""
    (tmp_path / "in.txt").write_text("A dog runs.\n" * 1200, encoding="utf-8")
    code = code.format(str(folder), str(tmp_path / "in.txt"), str(tmp_path / "out.txt"))
    code += "; import sys; print('torch' in sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.strip().splitlines()[-1:]) == (0, ["False"]), ran.stderr


UNASKED = {"tomllib", "difflib", "gzip", "unittest", "sacrebleu", "jaxtyping", "tqdm"}
UNASKED |= {"headwise.documents.reading"}  # all file formats


@needs_library
def test_a_first_sentence_waits_for_nothing_it_does_not_need(folder: Path) -> None:
    """Each of these takes a hundredth of a cold start, or more."""
    code = f"import headwise; assert headwise.load({str(folder)!r}, device='cpu').translate(['A dog'])[0].text"
    code += f"; import sys; print(sorted({UNASKED!r} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_garbage_rests_while_modules_are_read(enabled: bool) -> None:
    """And is afterwards as it was: a library leaves to the program how it runs."""
    code = f"import gc, headwise; gc.{'enable' if enabled else 'disable'}(); before = gc.get_stats()[0]['collections']"
    code += "; headwise.load; print(gc.get_stats()[0]['collections'] - before < 3, gc.isenabled())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"True {enabled}\n"
