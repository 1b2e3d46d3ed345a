"""The manifest: damage and foreign files are found, a change on purpose has its command, and no kill breaks a model."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import headwise
from headwise.cli import main
from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, SearchSettings
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.checkpoint.imported import write_imported
from headwise.runtime.checkpoint import manifest, trained
from headwise.runtime.checkpoint.manifest import MANIFEST, Digests, check_manifest, read_manifest, seal
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.sidecar_files import write_alignment, write_shortlist
from headwise.runtime.checkpoint.trained import write_decoding, write_file, write_settings, write_weights
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import Tokenizer

TEXTS = ["A dog runs.", "Ein Hund rennt."]
TOKENIZER = Tokenizer.train(TEXTS * 3, TranslationData(vocab_size=270))
SHAPE = TransformerConfig(
    vocab_size=TOKENIZER.vocab_size, d_model=8, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1
)
CONFIG = RunConfig(model=SHAPE, decode=SearchSettings(beam_size=2, max_length_factor=1.0, max_length_extra=3))
WEIGHTS = "model.safetensors"


def parameters(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    return parameters_of(build_model(SHAPE))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write_settings(path, CONFIG, TOKENIZER, {})
    write_weights(path, parameters(1), "# A model\n")
    return path


def translated(path: Path) -> list[Any]:
    return headwise.load(path, "cpu").translate(TEXTS)


def test_it_is_what_sha256sum_writes(folder: Path) -> None:
    names = ["config.json", WEIGHTS, "tokenizer.json"]
    lines = [f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    assert (folder / MANIFEST).read_text(encoding="utf-8") == "".join(lines)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (WEIGHTS, b"", b""),
        ("config.json", b'"label_smoothing": 0.1', b'"label_smoothing": 0.3'),
        ("tokenizer.json", b'"normalized": false', b'"normalized":  true'),
    ],
)
def test_one_changed_byte_is_an_error_of_every_command(
    folder: Path, name: str, old: bytes, new: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (folder / name).read_bytes()
    changed = content.replace(old, new) if old else content[:-1] + bytes([content[-1] ^ 64])  # a bit of an exponent
    assert changed != content and len(changed) == len(content)
    (folder / name).write_bytes(changed)
    (folder / "text").write_text("A dog.\n", encoding="utf-8")
    assert main(["translate", str(folder), str(folder / "text"), "-o", str(folder / "out")]) == 2
    told = capsys.readouterr().err
    assert f"{name}: is not the file that {MANIFEST} lists" in told and told.count("\n") == 1
    assert not (folder / "out").exists()
    assert main(["info", str(folder)]) == 2


def test_a_flipped_exponent_is_an_error_that_says_what_to_do(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-1] ^= 64
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(UserError) as caught:
        headwise.load(folder, "cpu")
    told = str(caught.value)
    assert f"{folder / WEIGHTS}: is not the file that {MANIFEST} lists" in told
    assert f"`headwise seal {folder}`" in told and "\n" not in told


def test_a_foreign_tokenizer_of_the_same_size_is_an_error(folder: Path) -> None:
    other = Tokenizer.train(["Zwei Katzen schlafen.", "Two cats sleep."] * 3, TranslationData(vocab_size=270))
    assert other.vocab_size == TOKENIZER.vocab_size
    other.save(folder / "tokenizer.json")
    with pytest.raises(UserError, match=rf"tokenizer\.json.*not.*{MANIFEST}"):
        headwise.load(folder, "cpu")


def test_a_file_that_was_not_copied_is_an_error(folder: Path) -> None:
    write_alignment(folder, {"layer": 0, "head": 1, "row": "predicts"})
    (folder / "alignment.json").unlink()
    with pytest.raises(UserError, match=r"alignment\.json: is missing"):
        headwise.load(folder, "cpu")


def test_a_change_on_purpose_is_accepted_by_a_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["train"]["learning_rate"] = 0.5
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match="if the change is intended"):
        headwise.load(folder, "cpu")
    assert main(["seal", str(folder)]) == 0
    assert "digests of 3 files" in capsys.readouterr().err
    assert headwise.load(folder, "cpu").config.train.learning_rate == 0.5


def test_only_a_model_is_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seal", str(tmp_path)]) == 2
    assert "has no config.json" in capsys.readouterr().err
    assert not (tmp_path / MANIFEST).exists()


def test_a_model_of_an_older_version_loads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = translated(folder)
    assert main(["info", str(folder)]) == 0
    assert f"3 files are as {MANIFEST} lists them" in capsys.readouterr().out
    (folder / MANIFEST).unlink()
    assert translated(folder) == wanted
    assert main(["info", str(folder)]) == 0
    assert f"none; `headwise seal {folder}`" in capsys.readouterr().out
    write_alignment(folder, {"layer": 0, "head": 1, "row": "predicts"})
    assert not (folder / MANIFEST).exists(), "nobody has vouched for the other files"


@pytest.mark.parametrize("content", ["", "no digest  config.json\n", "\0\0\0"])
def test_a_damaged_manifest_is_one_line(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{MANIFEST}, line 1.*`headwise"):
        headwise.load(folder, "cpu")


def copied(folder: Path, to: Path) -> None:
    shutil.copytree(folder, to, copy_function=shutil.copyfile)


def archived(folder: Path, to: Path) -> None:
    with tarfile.open(to.with_suffix(".tar"), "w") as archive:
        archive.add(folder, to.name)
    with tarfile.open(to.with_suffix(".tar")) as archive:
        archive.extractall(to.parent, filter="data")


def cloned(folder: Path, to: Path) -> None:
    if not shutil.which("git"):
        pytest.skip("needs git")
    name = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "A model"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    subprocess.run(["git", "clone", "-q", folder, to], check=True)


@pytest.mark.parametrize("copy", [copied, archived, cloned])
def test_a_copy_is_valid(folder: Path, tmp_path: Path, copy: Callable[[Path, Path], None]) -> None:
    wanted = translated(folder)
    copy(folder, tmp_path / "copy")
    assert translated(tmp_path / "copy") == wanted
    assert check_manifest(tmp_path / "copy") == ["config.json", WEIGHTS, "tokenizer.json"]


# Writers --------------------------------------------------------------------------------------------------------------


def shortlist(folder: Path) -> None:
    vocabulary = TOKENIZER.vocab_size
    table = Shortlist(np.array([7, 8], np.int32), np.full((vocabulary, 3), 9, np.int32))
    write_shortlist(folder, table, TOKENIZER)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda folder: write_weights(folder, parameters(2), "# Another\n"), WEIGHTS),
        (lambda folder: write_settings(folder, CONFIG, TOKENIZER, {"recipe": "tiny"}), "config.json"),
        (shortlist, "shortlist.safetensors"),
        (lambda folder: write_alignment(folder, {"layer": 0, "head": 1, "row": "predicts"}), "alignment.json"),
    ],
)
def test_whatever_is_written_later_is_listed(folder: Path, change: Callable[[Path], object], name: str) -> None:
    before = read_manifest(folder).get(name)
    change(folder)
    assert name in check_manifest(folder)
    assert read_manifest(folder)[name] not in (before, [])
    headwise.load(folder, "cpu")


def test_what_people_edit_is_not_listed(folder: Path) -> None:
    before = read_manifest(folder)
    write_decoding(folder, SearchSettings(length_penalty=0.5), lambda card: card + "edited")
    assert read_manifest(folder) == before
    assert headwise.load(folder, "cpu").config.decode.length_penalty == 0.5


def test_an_imported_model_is_sealed(tmp_path: Path, write: Callable[..., Path]) -> None:
    """The folder that it was imported from, by another program, is not."""
    write_imported(tmp_path / "imported", read_folder(write("bert")))
    assert {"config.json", WEIGHTS} <= {*check_manifest(tmp_path / "imported")}
    content = bytearray((tmp_path / "imported" / WEIGHTS).read_bytes())
    content[-1] ^= 64
    (tmp_path / "imported" / WEIGHTS).write_bytes(content)
    with pytest.raises(UserError, match=MANIFEST):
        headwise.load(tmp_path / "imported", "cpu")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_weights(folder, parameters(2), "# Another\n"),
        shortlist,
        lambda folder: write_settings(folder, CONFIG, TOKENIZER, {"recipe": "tiny"}),
    ],
    ids=["weights", "shortlist", "settings"],
)
def test_a_writer_killed_at_any_rename_leaves_the_old_or_the_new(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], late: bool
) -> None:
    """`late`: just after it. Nothing but a rename changes what a reader sees."""
    old = translated(folder)
    finished = shutil.copytree(folder, tmp_path / "finished")
    change(finished)
    new, rename = translated(finished), os.replace
    kills = 0
    while True:
        copy, left = Path(shutil.copytree(folder, tmp_path / f"killed-{kills}")), [kills]

        def replace(draft: Path, path: Path, left: list[int] = left) -> None:
            if not left[0] and not late:
                raise Killed
            rename(draft, path)
            if not left[0]:
                raise Killed
            left[0] -= 1

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", replace)
            try:
                change(copy)
                break
            except Killed:
                kills += 1
        assert translated(copy) in (old, new)
        check_manifest(copy)
        change(copy)  # and the next writer finishes
        assert translated(copy) == new
        assert read_manifest(copy) == read_manifest(finished)
    assert kills >= 2


def test_a_first_writer_killed_leaves_a_model_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The manifest is last: without it the files are whole."""
    monkeypatch.setattr(trained, "seal", lambda _: None)
    wanted = translated(folder)
    path = tmp_path / "killed"
    write_settings(path, CONFIG, TOKENIZER, {})
    with pytest.raises(UserError, match="stopped before the first validation"):
        headwise.load(path, "cpu")
    write_weights(path, parameters(1), "# A model\n")
    assert not (path / MANIFEST).exists()
    assert translated(path) == wanted


def test_a_reader_follows_a_writer(folder: Path) -> None:
    """It has read the manifest, and then weights and manifest are replaced."""
    digests = Digests(folder)
    write_weights(folder, parameters(2), "# Another\n")
    digests.check([WEIGHTS])


def test_writers_side_by_side_lose_no_digest(folder: Path) -> None:
    names = [f"file-{i}.json" for i in range(24)]
    with ThreadPoolExecutor(8) as threads:
        written = [threads.submit(trained.write_json, folder / name, {"name": name}) for name in names]
    assert all(each.exception() is None for each in written)
    assert {*names} <= {*check_manifest(folder)}
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_a_file_that_cannot_be_read_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest, "file_digest", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)"):
        check_manifest(folder)


def test_writing_the_same_again_leaves_the_manifest_alone(folder: Path) -> None:
    before = (folder / MANIFEST).stat().st_mtime_ns
    write_file(folder / "tokenizer.json", TOKENIZER.save)
    assert (folder / MANIFEST).stat().st_mtime_ns == before
    assert seal(folder) == ["config.json", WEIGHTS, "tokenizer.json"]


def test_weights_of_another_program_are_accepted_once_sealed(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({name: value + 1 for name, value in tensors.items()}, folder / WEIGHTS)
    seal(folder, again=True)
    assert check_manifest(folder)


def test_names_of_files_with_characters_like_line_breaks(folder: Path) -> None:
    name, path = "a\u2028b\x85.json", folder / MANIFEST
    path.write_text(path.read_text(encoding="utf-8") + f"{'0' * 64}  {name}\n", encoding="utf-8")
    assert read_manifest(folder)[name] == ["0" * 64]
