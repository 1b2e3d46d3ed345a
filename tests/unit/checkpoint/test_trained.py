"""The model directory: whole, movable, pointing nowhere, and every misfit of it one line that names the file."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, SearchSettings
from headwise.core.build import parameters_of
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.checkpoint.write import write_files
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint import trained as module
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.sidecar_files import read_shortlist, write_shortlist
from headwise.runtime.checkpoint.trained import read_settings, write_settings, write_weights
from headwise.runtime.search.translator import TextTranslator
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import Tokenizer

FILES = ["README.md", "SHA256SUMS", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
TEXTS = ["A dog runs.", "Ein Hund rennt.", "日本"]
TOKENIZER = Tokenizer.train(TEXTS * 3, TranslationData(vocab_size=270))
SHAPE = TransformerConfig(
    vocab_size=TOKENIZER.vocab_size, d_model=8, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1
)
CONFIG = RunConfig(model=SHAPE, decode=SearchSettings(beam_size=2, max_length_factor=1.0, max_length_extra=3))


def network() -> Transformer:
    torch.manual_seed(3)
    return build_model(SHAPE).eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model directory as a run in /tmp/... with a tokenizer given by its path would write it."""
    path = tmp_path / "runs" / "ende"
    data = TranslationData(tokenizer=str(tmp_path / "mine" / "tokenizer.json"))
    write_settings(path, replace(CONFIG, data=data), TOKENIZER, {"recipe": "tiny", "torch": torch.__version__})
    write_weights(path, parameters_of(network()), "# A model\n")
    return path


def translate(model: Transformer, tokenizer: Tokenizer, config: SearchSettings) -> list[tuple[str, float]]:
    return [(t.text, t.log_prob) for t in TextTranslator(engine_of(model), tokenizer, config).translate(TEXTS)]


def test_what_is_written_is_read(folder: Path) -> None:
    read = read_folder(folder, tasks=("translate",))
    assert not read.network.training
    assert read.config == CONFIG
    assert read.about == {"format": 2, "recipe": "tiny", "torch": torch.__version__}
    expected = parameters_of(network())
    assert all(torch.equal(value, expected[name]) for name, value in parameters_of(read.network).items())
    assert translate(read.network, read.tokenizer, read.config.decode) == translate(network(), TOKENIZER, CONFIG.decode)


@pytest.mark.parametrize("other", [1, 3, None, "2"])
def test_another_format_of_settings_is_refused(folder: Path, other: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": other}))
    with pytest.raises(UserError, match=f"config.json: format {other!r} is not 2"):
        read_settings(folder)


def test_who_may_read_one_file_may_read_all(folder: Path) -> None:
    """A server that runs as somebody else, too; replaced files and those of the Hugging Face layout as well."""
    write_weights(folder, parameters_of(network()), "# A model\n")
    (folder.parent / "hf").mkdir()
    write_files(folder.parent / "hf", {"a": torch.zeros(2)}, {})
    files = [path for path in folder.parent.glob("*/*") if path.is_file()]
    assert len(files) == 8
    assert {path.stat().st_mode for path in files} == {(folder / "config.json").stat().st_mode}


def test_a_moved_directory_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    before = read_folder(folder, tasks=("translate",))
    moved = shutil.move(folder, tmp_path / "elsewhere")
    after = read_folder(moved, tasks=("translate",))
    assert after.config == before.config
    assert translate(after.network, after.tokenizer, after.config.decode) == translate(
        before.network, before.tokenizer, before.config.decode
    )


def test_six_files_that_point_nowhere(folder: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == FILES
    for path in folder.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name


def test_weights_are_float32_whatever_they_were(folder: Path) -> None:
    write_weights(folder, {name: value.bfloat16() for name, value in parameters_of(network()).items()}, "")
    assert {value.dtype for value in load_file(folder / "model.safetensors").values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn], ids=str)
def test_what_is_no_weight_is_refused_by_name(folder: Path, dtype: torch.dtype) -> None:
    """Without a scale eight bits mean nothing; they used to be taken for weights in silence."""
    arrays = load_file(folder / "model.safetensors")
    name = next(iter(arrays))
    save_file({**arrays, name: arrays[name].to(dtype)}, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"model\.safetensors: {re.escape(name)} holds .*, not floating-point weights"):
        read_folder(folder, tasks=("translate",))


def test_shared_embeddings_are_stored_once(folder: Path) -> None:
    names = load_file(folder / "model.safetensors").keys()
    assert sum(name.endswith(("tokens.weight", "output.weight")) for name in names) == 1


def test_a_generation_config_changed_by_hand_counts(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"beam_size": 2', '"beam_size": 3'), encoding="utf-8")
    assert read_folder(folder, tasks=("translate",)).config.decode == replace(CONFIG.decode, beam_size=3)


def test_a_file_system_that_is_only_read_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There even what is not there cannot be removed."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UserError, match=r"config\.json.*\(Read-only.*system\)"):
        module.write_json(folder / "config.json", {})


def test_a_crash_while_writing_leaves_the_model_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def crash(_tensors: object, path: Path, _metadata: object) -> None:
        path.write_bytes(b"torn")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", crash)
    with pytest.raises(KeyboardInterrupt):
        write_weights(folder, parameters_of(network()), "# Another\n")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# What can be wrong ----------------------------------------------------------------------------------------------------


def message(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_folder(path, tasks=("translate",), published=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        value = json.loads((folder / name).read_text(encoding="utf-8"))
        change(value)
        (folder / name).write_text(json.dumps(value), encoding="utf-8")

    return apply


def overwrite(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def truncate(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-50]) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def other_weights(folder: Path) -> None:
    save_file({"something": torch.zeros(1)}, folder / "model.safetensors")
    seal(folder, again=True)


@pytest.mark.parametrize(
    ("damage", "file", "cause"),
    [
        (remove("config.json"), "ende", "has no config.json"),
        (overwrite("config.json", b"{"), "config.json", "cannot be read as JSON"),
        (overwrite("config.json", b"\xff\xfe"), "config.json", "cannot be read as JSON"),
        (overwrite("config.json", b"[]"), "config.json", "must be a JSON object"),
        (overwrite("config.json", b"{}"), "config.json", "format None is not 2"),
        (edit("config.json", lambda c: c.update(format=3)), "config.json", "format 3 is not 2"),
        (edit("config.json", lambda c: c["model"].update(d_mode=8)), "config.json", "did you mean 'd_model'"),
        (edit("config.json", lambda c: c["model"].update(d_model="8")), "config.json", "must be of type int"),
        (edit("config.json", lambda c: c["model"].update(n_heads=3)), "model.d_model = 8", "model.n_heads = 3"),
        (edit("config.json", lambda c: c["model"].update(d_model=16)), "model.safetensors", "does not fit"),
        (edit("config.json", lambda c: c.update(model=3)), "config.json", "'model' must be a table"),
        (remove("generation_config.json"), "", ""),  # its settings are in config.json too
        (overwrite("generation_config.json", b"{"), "generation_config.json", "cannot be read as JSON"),
        (
            edit("generation_config.json", lambda c: c.update(beam=2)),
            "generation_config.json",
            "did you mean 'beam_size'",
        ),
        (remove("model.safetensors"), "ende", "has no model.safetensors yet"),
        (truncate("model.safetensors"), "model.safetensors", "damaged"),
        (overwrite("model.safetensors", b""), "model.safetensors", "damaged"),
        (other_weights, "model.safetensors", "does not fit its configuration: missing"),
        (remove("tokenizer.json"), "tokenizer.json", "no such file"),
        (overwrite("tokenizer.json", b"{}"), "tokenizer.json", "is not a tokenizer.json"),
        (overwrite("tokenizer.json", b"\xff"), "tokenizer.json", "is not a tokenizer.json"),
    ],
)
def test_damage_is_one_line_that_names_the_file(
    folder: Path, damage: Callable[[Path], None], file: str, cause: str
) -> None:
    damage(folder)
    if not cause:
        assert read_folder(folder, tasks=("translate",)).config == CONFIG
        return
    told = message(folder)
    assert file in told
    assert cause in told


def test_the_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    Tokenizer.train(TEXTS * 3, TranslationData(vocab_size=275)).save(folder / "tokenizer.json")
    told = message(folder)
    assert "tokenizer.json" in told
    assert str(TOKENIZER.vocab_size) in told


@pytest.mark.parametrize("name", ["runs/ened", "runs", "runs/ende2"])
def test_the_nearest_model_directory_is_suggested(folder: Path, tmp_path: Path, name: str) -> None:
    assert f"did you mean '{folder}'?" in message(tmp_path / name)


def test_without_one_near_the_message_says_what_is_wanted(tmp_path: Path) -> None:
    assert "give the folder that `headwise train --out` wrote" in message(tmp_path / "absent")


@pytest.mark.parametrize("name", ["nomodel", "dir.txt"])
def test_another_name_is_not_suggested(folder: Path, name: str) -> None:
    assert "give the folder that `headwise train --out` wrote" in message(folder.parent / name)


def test_loading_leaves_the_callers_random_state_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    read_folder(folder, tasks=("translate",))
    assert torch.equal(torch.get_rng_state(), before)


# The shortlist --------------------------------------------------------------------------------------------------------


VOCAB = TOKENIZER.vocab_size


def a_shortlist(vocab: int = TOKENIZER.vocab_size) -> Shortlist:
    return Shortlist(np.array([7, 8], np.int32), np.full((vocab, 3), 9, np.int32))


def test_a_shortlist_is_one_file_more(folder: Path) -> None:
    path = write_shortlist(folder, a_shortlist(), TOKENIZER)
    assert sorted(entry.name for entry in folder.iterdir()) == sorted([*FILES, path.name])
    read = read_shortlist(folder, TOKENIZER)
    assert np.array_equal(read.frequent, a_shortlist().frequent)
    assert np.array_equal(read.likely, a_shortlist().likely)
    assert read_folder(folder, tasks=("translate",)).config == CONFIG


def write_for_another_tokenizer(folder: Path) -> None:
    write_shortlist(folder, a_shortlist(), Tokenizer.train(TEXTS * 2, TranslationData(vocab_size=268)))


def other_tables(folder: Path, **tables: Any) -> None:
    arrays = {name: torch.from_numpy(x) for name, x in (vars(a_shortlist()) | tables).items()}
    save_file(arrays, folder / "shortlist.safetensors", {"tokenizer": TOKENIZER.fingerprint})


def truncated(folder: Path) -> None:
    path = write_shortlist(folder, a_shortlist(), TOKENIZER)
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda _: None, "has no shortlist.safetensors; make one with"),
        (overwrite("shortlist.safetensors", b"{"), "damaged or no shortlist"),
        (lambda folder: save_file({"likely": torch.zeros(1)}, folder / "shortlist.safetensors"), "damaged or no"),
        (truncated, "damaged or no shortlist"),
        (
            lambda folder: other_tables(folder, frequent=np.array([7, VOCAB], np.int32)),
            f"it has token {VOCAB} of {VOCAB}",
        ),
        (lambda folder: other_tables(folder, likely=np.full((VOCAB, 3), -1, np.int32)), f"it has token -1 of {VOCAB}"),
        (lambda folder: other_tables(folder, frequent=np.zeros((2, 2), np.int32)), "are no lists of tokens"),
        (lambda folder: other_tables(folder, frequent=np.zeros(0, np.int32)), "are no lists of tokens"),
        (lambda folder: other_tables(folder, likely=np.zeros(VOCAB, np.int32)), "are no lists of tokens"),
        (lambda folder: other_tables(folder, likely=np.zeros((VOCAB, 3), np.float32)), "are no lists of tokens"),
        (write_for_another_tokenizer, "was made for another tokenizer; make it again"),
        (lambda folder: write_shortlist(folder, a_shortlist(9), TOKENIZER), "was made for another tokenizer"),
    ],
)
def test_a_shortlist_that_does_not_fit_is_one_line_with_the_remedy(
    folder: Path, damage: Callable[[Path], object], cause: str
) -> None:
    damage(folder)
    with pytest.raises(UserError) as caught:
        read_shortlist(folder, TOKENIZER)
    told = str(caught.value)
    assert cause in told and f"`headwise shortlist {folder} --train SRC TGT`" in told and "\n" not in told
