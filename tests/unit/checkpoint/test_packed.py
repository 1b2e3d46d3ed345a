"""Weights packed ahead of time: the same bits, of these weights alone, and nothing read that is in the file."""

import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.checkpoint.test_compiled import CONFIGS, SMALL, TEXTS, TOKENIZER, needs_library, network

import sightline
from sightline.checkpoint import packed
from sightline.checkpoint.packed import HEADER, pack
from sightline.checkpoint.trained import WEIGHTS, write_settings, write_weights
from sightline.checkpoint.weights import WeightsFile
from sightline.cli import main
from sightline.config import DecodeConfig, ModelConfig, RunConfig
from sightline.errors import UserError
from sightline.network.parameters import parameters_of

pytestmark = needs_library
UNEVEN = replace(SMALL, d_ff=25)  # in bfloat16 not every layer ends where a register may begin


def write(path: Path, config: ModelConfig = SMALL) -> Path:
    decode = DecodeConfig(beam_size=2, max_length_factor=1.0, max_length_extra=3)
    write_settings(path, RunConfig(model=config, decode=decode), TOKENIZER, {})
    write_weights(path, parameters_of(network(config)), "# A model\n")
    return path


def translated(folder: Path, compute: str = "int8") -> list[Any]:
    return sightline.load(folder, "cpu").translate(TEXTS, compute=compute)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of what is read from files of weights."""
    names: list[str] = []
    usual = WeightsFile._read
    monkeypatch.setattr(WeightsFile, "_read", lambda self, name: (names.append(name), usual(self, name))[1])
    yield names


@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("config", [*CONFIGS, UNEVEN], ids=range(len(CONFIGS) + 1))
def test_it_translates_to_the_same_bits_and_reads_nothing_twice(
    tmp_path: Path, config: ModelConfig, compute: str, read: list[str]
) -> None:
    folder = write(tmp_path / "model", replace(config, vocab_size=TOKENIZER.vocab_size))
    wanted = translated(folder, compute)
    assert any(name.endswith("_proj.weight") for name in read)
    made = pack(folder, compute)
    assert made == folder / f"packed.{compute}"
    again = made.read_bytes()
    assert pack(folder, compute).read_bytes() == again, "no addresses, nothing of the moment"
    read.clear()
    assert translated(folder, compute) == wanted
    first = next(iter(WeightsFile(folder / WEIGHTS)))  # which the checks of types look at, in tests alone
    assert read and not any(name.endswith(packed.HELD) for name in read if name != first)


def test_numbers_are_those_the_model_decodes_with_unless_others_are_said(tmp_path: Path) -> None:
    assert pack(write(tmp_path / "model")).name == "packed.float32"
    with pytest.raises(UserError, match="float16, which is not packed; choose --compute float32 or int8 or bfloat16"):
        pack(tmp_path / "model", "float16")


def test_what_was_packed_of_other_weights_is_left_out(tmp_path: Path) -> None:
    """A second training of the same size, a copy of another time: what translates are the weights."""
    folder = write(tmp_path / "model")
    pack(folder, "int8")
    negative = {name: -value for name, value in parameters_of(network(SMALL)).items()}
    write_weights(folder, negative, "# Another\n")
    with pytest.warns(UserWarning, match=r"packed of other weights, .*`sightline pack .*model --compute int8`"):
        found = translated(folder)
    (folder / "packed.int8").unlink()
    assert translated(folder) == found


def test_weights_of_the_same_size_and_date_are_told_apart(tmp_path: Path) -> None:
    """As where two trainings end within a second, or a tool gives all files one date."""
    folder, other = (
        write(tmp_path / "model"),
        {name: value + 1 for name, value in parameters_of(network(SMALL)).items()},
    )
    date = (folder / WEIGHTS).stat().st_mtime_ns
    pack(folder, "int8")
    write_weights(folder, other, "# Another\n")
    os.utime(folder / WEIGHTS, ns=(date, date))
    with pytest.warns(UserWarning, match="packed of other weights"):
        translated(folder)


def test_a_copy_that_keeps_the_second_of_the_date_keeps_the_packed_file(tmp_path: Path, read: list[str]) -> None:
    """As `tar` and images of containers do; one of another date is left out."""
    folder = write(tmp_path / "model")
    pack(folder, "int8")
    date = (folder / WEIGHTS).stat().st_mtime_ns // 10**9 * 10**9
    os.utime(folder / WEIGHTS, ns=(date, date))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = translated(folder)
    os.utime(folder / WEIGHTS, ns=(date - 1, date - 1))
    with pytest.warns(UserWarning, match="of ones with another date"):
        assert translated(folder) == wanted


def test_a_file_under_the_name_of_other_numbers_is_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    wanted = translated(folder)
    pack(folder, "float32").rename(folder / "packed.int8")
    with pytest.warns(UserWarning, match="`sightline pack .*model --compute int8`"):
        assert translated(folder) == wanted


def test_a_file_of_a_network_of_other_settings_is_left_out(tmp_path: Path) -> None:
    """The same weights in another order: those of queries and keys by pairs."""
    folder = write(tmp_path / "model")
    pack(folder, "int8")
    date = (folder / WEIGHTS).stat().st_mtime_ns
    write(folder, replace(SMALL, positions="rotary"))
    os.utime(folder / WEIGHTS, ns=(date, date))
    with pytest.warns(UserWarning, match="packed of other weights"):
        translated(folder)


def test_what_another_version_packed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "model")
    wanted = translated(folder)
    with monkeypatch.context() as patched:
        patched.setattr(packed, "sources", lambda: 1)
        pack(folder, "int8")
    with pytest.warns(UserWarning, match="by another version"):
        assert translated(folder) == wanted


@pytest.mark.parametrize("length", [0, 9, HEADER - 1, HEADER, HEADER + 64, -64, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    folder = write(tmp_path / "model")
    path = pack(folder, "int8")
    os.truncate(path, length if length >= 0 else path.stat().st_size + length)
    with pytest.raises(
        UserError, match=r"packed\.int8: damaged, for it has .*; delete it, or `.* --compute int8` makes"
    ):
        translated(folder)


def test_a_file_that_says_it_is_whole_is_not_believed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    path = pack(folder, "int8")
    content = path.read_bytes()
    header = json.loads(content[:HEADER]) | {"bytes": len(content) - 64}
    path.write_bytes(json.dumps(header).encode().ljust(HEADER) + content[HEADER:-64])
    with pytest.raises(UserError, match="is too short"):
        translated(folder)


def test_a_header_without_an_end_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    pack(folder, "int8").write_bytes(b"[" * HEADER)
    with pytest.raises(UserError, match=r"packed\.int8: damaged, for it has no header"):
        translated(folder)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not what a command was about to write."""
    folder = write(tmp_path / "model")
    pack(folder, "int8")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(packed.mmap, "mmap", refuse)
    with pytest.raises(UserError, match=r"packed\.int8: cannot be read \(Permission denied\); make it readable"):
        translated(folder)


def test_without_the_library_nothing_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "model")
    monkeypatch.setattr(packed, "library", lambda: None)
    with pytest.raises(UserError, match=r"model: is packed by the compiled library, which .+"):
        pack(folder)


def test_networks_for_torch_are_not_packed(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", replace(SMALL, activation="gelu"))
    with pytest.raises(UserError, match="torch computes with this network"):
        pack(folder)


def test_a_new_model_does_not_disturb_one_that_is_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    pack(folder, "int8")
    model = sightline.load(folder, "cpu")
    wanted = model.translate(TEXTS, compute="int8")
    os.utime(folder / WEIGHTS, ns=(1, 1))
    pack(folder, "int8")
    assert model.translate(TEXTS, compute="int8") == wanted


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "model")
    assert main(["pack", str(folder), "--compute", "int8"]) == 0
    assert f"{folder / 'packed.int8'}: 0." in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert translated(folder)
