"""Weights packed ahead of time: the same bits, of these weights alone, and nothing read that is in the file."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.checkpoint.test_compiled import CONFIGS, SMALL, TEXTS, TOKENIZER, needs_library, network

import headwise
from headwise.cli import main
from headwise.config.model import ModelConfig
from headwise.config.settings import RunConfig, SearchSettings
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.runtime.checkpoint import manifest, packed
from headwise.runtime.checkpoint.manifest import MANIFEST
from headwise.runtime.checkpoint.pack import pack_model
from headwise.runtime.checkpoint.packed import HEADER
from headwise.runtime.checkpoint.trained import WEIGHTS, write_settings, write_weights
from headwise.runtime.formats.weights import WeightsFile

pytestmark = needs_library
PROJECTION = "encoder.layers.0.ffn.up_proj.weight"
UNEVEN = replace(SMALL, d_ff=25)  # in bfloat16 not every layer ends where a register may begin


def write(path: Path, config: ModelConfig = SMALL) -> Path:
    decode = SearchSettings(beam_size=2, max_length_factor=1.0, max_length_extra=3)
    write_settings(path, RunConfig(model=config, decode=decode), TOKENIZER, {})
    write_weights(path, parameters_of(network(config)), "# A model\n")
    return path


def translated(folder: Path, compute: str = "int8") -> list[Any]:
    return headwise.load(folder, "cpu").translate(TEXTS, compute=compute)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what is read from files of weights."""
    names: list[str] = []
    usual = WeightsFile._read
    monkeypatch.setattr(WeightsFile, "_read", lambda self, name: (names.append(name), usual(self, name))[1])
    yield names


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16", "int4"])
@pytest.mark.parametrize("config", [*CONFIGS, UNEVEN], ids=range(len(CONFIGS) + 1))
def test_it_translates_to_the_same_bits_and_reads_nothing_twice(
    tmp_path: Path, config: ModelConfig, compute: str, read: list[str]
) -> None:
    folder = write(tmp_path / "model", replace(config, vocab_size=TOKENIZER.vocab_size))
    wanted = translated(folder, compute)
    assert any(name.endswith("_proj.weight") for name in read)
    made = pack_model(folder, compute)
    assert made == folder / f"packed.{compute}"
    again = made.read_bytes()
    assert pack_model(folder, compute).read_bytes() == again, "no addresses, nothing of the moment"
    read.clear()
    assert translated(folder, compute) == wanted
    first = next(iter(WeightsFile(folder / WEIGHTS)))  # which the checks of types look at, in tests alone
    assert read and not any(name.endswith(packed.HELD) for name in read if name != first)


def test_numbers_are_those_the_model_decodes_with_unless_others_are_said(tmp_path: Path) -> None:
    assert pack_model(write(tmp_path / "model")).name == "packed.float32"
    with pytest.raises(UserError, match=r"float16.*not.*--compute float32.*int8.*bfloat16"):
        pack_model(tmp_path / "model", "float16")


def negative() -> dict[str, Any]:
    return {name: -value for name, value in parameters_of(network(SMALL)).items()}


def test_what_was_packed_of_other_weights_is_ignored(tmp_path: Path) -> None:
    """A second training of the same size: what translates are the weights."""
    folder = write(tmp_path / "model")
    pack_model(folder, "int8")
    write_weights(folder, negative(), "# Another\n")
    with pytest.warns(UserWarning, match=r"packed from other weights .*`headwise pack .*model --compute int8`"):
        found = translated(folder)
    (folder / "packed.int8").unlink()
    assert translated(folder) == found


@pytest.mark.parametrize("sealed", [True, False])
def test_weights_of_the_same_size_and_date_that_differ_in_one_packed_number_are_told_apart(
    tmp_path: Path, sealed: bool
) -> None:
    """The checksum of what is not packed, the size and the date are those of the first."""
    folder = write(tmp_path / "model")
    date = (folder / WEIGHTS).stat().st_mtime_ns
    pack_model(folder, "int8")
    other = parameters_of(network(SMALL))
    other[PROJECTION].data[0, 0] += 1
    write_weights(folder, other, "# Another\n")
    os.utime(folder / WEIGHTS, ns=(date, date))
    if not sealed:
        (folder / MANIFEST).unlink()
    with pytest.warns(UserWarning, match="packed from other weights"):
        translated(folder)


def test_weights_replaced_behind_the_back_of_the_manifest_are_an_error(tmp_path: Path) -> None:
    folder, other = write(tmp_path / "model"), tmp_path / "other"
    pack_model(folder, "int8")
    write_settings(other, RunConfig(model=SMALL), TOKENIZER, {})
    write_weights(other, negative(), "# Another\n")
    shutil.copy(other / WEIGHTS, folder / WEIGHTS)
    with pytest.warns(UserWarning, match="packed from other weights"), pytest.raises(UserError, match=MANIFEST):
        translated(folder)


@pytest.mark.parametrize("sealed", [True, False])
def test_dates_do_not_matter(tmp_path: Path, sealed: bool, read: list[str]) -> None:
    """As after `cp`, `git clone` or `tar`: the packed file is used, and the weights are not read."""
    folder = write(tmp_path / "model")
    wanted = translated(folder)
    pack_model(folder, "int8")
    if not sealed:
        (folder / MANIFEST).unlink()
    for path in folder.iterdir():
        os.utime(path, ns=(10**9, 10**9))
    read.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translated(folder) == wanted
    first = next(iter(WeightsFile(folder / WEIGHTS)))
    assert not any(name.endswith(packed.HELD) for name in read if name != first)


@pytest.mark.parametrize("compute", ["float32", "int8", "int4"])
def test_every_flipped_bit_is_an_error(tmp_path: Path, compute: str) -> None:
    """In the header and behind it; what the header says is compared, and its blanks are no JSON if they are others."""
    folder = write(tmp_path / "model")
    path = pack_model(folder, compute)
    content, draw = path.read_bytes(), np.random.default_rng(1)
    for place in [*draw.integers(0, HEADER, 10), *draw.integers(HEADER, len(content), 70)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.integers(8)
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises((UserError, UserWarning), match=rf"packed\.{compute}"):
                translated(folder, compute)


def test_a_model_without_a_manifest_gets_one(tmp_path: Path) -> None:
    """Else every start would have to hash the weights."""
    folder = write(tmp_path / "model")
    (folder / MANIFEST).unlink()
    pack_model(folder, "int8")
    assert WEIGHTS in (folder / MANIFEST).read_text(encoding="utf-8")


def test_damaged_weights_are_not_packed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-1] ^= 64
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(UserError, match=MANIFEST):
        pack_model(folder, "int8")
    assert not (folder / "packed.int8").exists()


def test_weights_that_are_not_as_listed_are_an_error_beside_a_packed_file(tmp_path: Path) -> None:
    """In packed numbers only, with the size and the date of the file that was packed."""
    folder = write(tmp_path / "model")
    pack_model(folder, "int8")
    before = (folder / WEIGHTS).stat()
    content = bytearray((folder / WEIGHTS).read_bytes())
    place = (folder / WEIGHTS).read_bytes().index(parameters_of(network(SMALL))[PROJECTION].numpy().tobytes())
    content[place + 3] ^= 64
    (folder / WEIGHTS).write_bytes(content)
    os.utime(folder / WEIGHTS, ns=(before.st_atime_ns, before.st_mtime_ns))
    uses: list[Callable[[Any], object]] = [
        lambda model: model.translate(TEXTS, compute="int8"),
        lambda model: model.translate(TEXTS),
        lambda model: model.network,
    ]
    for use in uses:
        with pytest.raises(UserError, match=rf"{WEIGHTS}.*not.*{MANIFEST}"):
            use(headwise.load(folder, "cpu"))


def test_weights_are_hashed_only_if_they_have_changed_since_they_were_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, hashed = write(tmp_path / "model"), list[str]()
    pack_model(folder, "int8")
    usual = manifest.file_digest
    monkeypatch.setattr(manifest, "file_digest", lambda path: (hashed.append(path.name), usual(path))[1])
    wanted = translated(folder)
    assert hashed and WEIGHTS not in hashed
    shutil.copy2(folder / WEIGHTS, tmp_path)
    shutil.copy2(tmp_path / WEIGHTS, folder)  # which keeps the date
    assert translated(folder) == wanted
    assert WEIGHTS in hashed


def test_a_file_under_the_name_of_other_numbers_is_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    wanted = translated(folder)
    pack_model(folder, "float32").rename(folder / "packed.int8")
    with pytest.warns(UserWarning, match="`headwise pack .*model --compute int8`"):
        assert translated(folder) == wanted


def test_a_file_of_a_network_of_other_settings_is_left_out(tmp_path: Path) -> None:
    """The same weights in another order: those of queries and keys by pairs."""
    folder = write(tmp_path / "model")
    pack_model(folder, "int8")
    write(folder, replace(SMALL, positions="rotary"))
    with pytest.warns(UserWarning, match="packed from other weights"):
        translated(folder)


def test_what_another_version_packed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "model")
    wanted = translated(folder)
    with monkeypatch.context() as patched:
        patched.setattr(packed, "sources", lambda: 1)
        pack_model(folder, "int8")
    with pytest.warns(UserWarning, match="by another version"):
        assert translated(folder) == wanted


@pytest.mark.parametrize("length", [0, 9, HEADER - 1, HEADER, HEADER + 64, -64, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    folder = write(tmp_path / "model")
    path = pack_model(folder, "int8")
    os.truncate(path, length if length >= 0 else path.stat().st_size + length)
    with pytest.raises(UserError, match=r"packed\.int8: damaged: it has .*; delete it, or `.* --compute int8` packs"):
        translated(folder)


def test_a_file_that_says_it_is_whole_is_not_believed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    path = pack_model(folder, "int8")
    content = path.read_bytes()
    body = np.frombuffer(content, np.uint8)[HEADER:-64]
    header = json.loads(content[:HEADER]) | {"bytes": len(content) - 64, "checksum": packed.checksum(body)}
    path.write_bytes(json.dumps(header).encode().ljust(HEADER) + content[HEADER:-64])
    with pytest.raises(UserError, match="is too short"):
        translated(folder)


def test_a_header_without_an_end_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    pack_model(folder, "int8").write_bytes(b"[" * HEADER)
    with pytest.raises(UserError, match=r"packed\.int8: damaged: it has no header"):
        translated(folder)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not what a command was about to write."""
    folder = write(tmp_path / "model")
    pack_model(folder, "int8")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(packed, "_read_body", refuse)
    with pytest.raises(UserError, match=r"packed\.int8.*\(Permission denied\)"):
        translated(folder)


def test_without_the_library_nothing_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "model")
    monkeypatch.setattr("headwise.runtime.checkpoint.pack.library", lambda: None)
    with pytest.raises(UserError, match=r"model: is packed by the compiled library, which .+"):
        pack_model(folder)


def test_networks_for_torch_are_not_packed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", replace(SMALL, positions="relative"))
    with pytest.raises(UserError, match="torch computes with this network"):
        pack_model(folder)


def test_a_new_model_does_not_disturb_one_that_is_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    pack_model(folder, "int8")
    model = headwise.load(folder, "cpu")
    wanted = model.translate(TEXTS, compute="int8")
    os.utime(folder / WEIGHTS, ns=(1, 1))
    pack_model(folder, "int8")
    assert model.translate(TEXTS, compute="int8") == wanted


def test_a_file_overwritten_in_place_leaves_a_loaded_model_alone(tmp_path: Path) -> None:
    """In a process of its own, which a mapped file would kill with SIGBUS."""
    folder = write(tmp_path / "model")
    path = pack_model(folder, "int8")
    code = (
        "import os, sys, headwise\n"
        "folder, path = sys.argv[1:]\n"
        "model = headwise.load(folder, 'cpu')\n"
        "before = model.translate(['a b'], compute='int8')\n"
        "size = os.stat(path).st_size\n"
        "os.truncate(path, 0)\n"
        "assert model.translate(['a b'], compute='int8') == before\n"
        "open(path, 'r+b').write(bytes(range(256)) * (size // 256))\n"
        "assert model.translate(['a b'], compute='int8') == before\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, folder, path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "model")
    assert main(["pack", str(folder), "--compute", "int8"]) == 0
    assert f"{folder / 'packed.int8'}: 0." in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translated(folder)
