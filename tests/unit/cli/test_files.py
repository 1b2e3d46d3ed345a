"""Files and streams that commands write: complete or not at all, compressed if called so, with their permissions."""

import gzip
import os
import sys
from pathlib import Path
from stat import S_IMODE

import pytest

from headwise import cli
from headwise.cli.files import MOST_CHARACTERS, arriving, lines_of, output
from headwise.config.setting import check_values
from headwise.config.settings import SearchSettings
from headwise.config.training import TrainConfig
from headwise.errors import UserError
from headwise.text.files import corpus


def written(path: Path, text: str = "é\n") -> bytes:
    with output(str(path)) as file:
        file.write(text)
    return path.read_bytes()


def test_a_file_that_is_replaced_keeps_its_permissions_and_a_link_its_target(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_bytes(b"before")
    file.chmod(0o640)
    link.symlink_to("a")
    assert written(link) == "é\n".encode()
    assert link.is_symlink()
    assert S_IMODE(file.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        written(tmp_path / "a")
    finally:
        os.umask(before)
    assert S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    os.chown(tmp_path / "a", 1234, 1235)
    written(tmp_path / "a")
    assert ((tmp_path / "a").stat().st_uid, (tmp_path / "a").stat().st_gid) == (1234, 1235)


def test_a_name_that_ends_in_gz_is_compressed_and_the_same_each_time(tmp_path: Path) -> None:
    assert gzip.decompress(written(tmp_path / "a.gz", "a\n" * 9)) == b"a\n" * 9
    assert written(tmp_path / "b.gz", "a\n" * 9) == (tmp_path / "a.gz").read_bytes()
    with output(str(tmp_path / "c.gz")) as file:  # as documents are written
        file.buffer.write(b"\0\xff")
    assert gzip.decompress((tmp_path / "c.gz").read_bytes()) == b"\0\xff"


@pytest.mark.parametrize("ending", ["bz2", "xz", "zst", "zip"])
def test_another_compression_is_refused(ending: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"only \.gz is written compressed"):
        written(tmp_path / f"a.{ending}")
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    for name in ("a", "a.gz"):
        (tmp_path / name).write_bytes(b"before")
        with pytest.raises(UserError, match="stop"), output(str(tmp_path / name)) as file:
            file.write("after")
            raise UserError("stop")
        assert (tmp_path / name).read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_is_said_in_a_line() -> None:
    with pytest.raises(UserError, match=r"-o /dev/full.*\(No.*device\)"):
        written(Path("/dev/full"))


@pytest.mark.parametrize("name", ["/dev/full", "no/such/folder", "a.zip"])
def test_errors_of_an_output_name_its_option(name: str) -> None:
    if name == "/dev/full" and not Path(name).exists():
        pytest.skip("needs Linux")
    with pytest.raises(UserError, match=f"^--report {name}: "), output(name, "--report") as file:
        file.write("after")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_what_a_shell_has_opened_is_added_to_and_not_replaced(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        with output(f"/dev/fd/{file.fileno()}") as opened:
            opened.write("after\n")
    assert (tmp_path / "a").read_bytes() == b"before\nafter\n"


# --- standard streams


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_standard_output_on_a_full_disk_is_an_error_of_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["--help"]) == 2
    said = "standard output: cannot be written (No space left on device); free some disk space"
    assert capsys.readouterr().err == f"headwise: error: {said}\n"


def test_closed_standard_streams_are_an_error_of_a_line_or_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(["--version"]) == 2
    assert capsys.readouterr().err.startswith("headwise: error: standard output is closed; name a file with -o")
    assert sys.stdin.read() == ""
    sys.stdin.close()


# --- lines in


def test_lines_are_handed_over_as_they_arrive() -> None:
    read, write = os.pipe()
    try:
        chunks = arriving(read, most=3)
        os.write(write, "a\né\r\nhal".encode())
        assert next(chunks) == ["a", "é"]  # though more may come
        os.write(write, b"f\n" + b"b\n" * 4)
        assert next(chunks) == ["half", "b", "b"]
        assert next(chunks) == ["b", "b"]
        os.write(write, b"last")
        os.close(write)
        write = -1
        assert list(chunks) == [["last"]]
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)


def test_what_arrives_and_is_no_text_is_said_with_its_line() -> None:
    read, write = os.pipe()
    os.write(write, b"a\nb\n\xff\n")
    os.close(write)
    try:
        with pytest.raises(UserError, match=r"standard input: line 3.*not UTF-8 \(byte 0xff.*byte.*4\)"):
            list(arriving(read, most=2))
    finally:
        os.close(read)


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpus, "LONGEST_LINE", 1000)
    (tmp_path / "a").write_bytes(b"a\n" + b"b" * 1001)
    with pytest.raises(UserError, match=r"line 2.*0 MiB.*text"):
        list(corpus.read_lines(str(tmp_path / "a")))
    (tmp_path / "a").write_bytes(b"a\n" + b"b" * 999 + b"\n")
    assert len(list(corpus.read_lines(str(tmp_path / "a")))) == 2
    monkeypatch.setattr("headwise.cli.files.LONGEST_LINE", 100_000)
    with pytest.raises(UserError, match="standard input: a line is longer"), open("/dev/zero", "rb") as endless:
        list(arriving(endless.fileno(), most=2))


def test_a_line_too_long_to_be_translated_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n" + "b" * (MOST_CHARACTERS + 1) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.txt: line 2.*200,001 characters, 200,000"):
        list(lines_of(str(tmp_path / "a.txt"), "translate"))


@pytest.mark.parametrize("seed", [-1, 2**32, 99999999999999999999])
def test_a_seed_that_no_generator_takes_is_refused(seed: int) -> None:
    with pytest.raises(UserError, match=f"decode.seed = {seed}.*0.*4294967295"):
        check_values("decode", SearchSettings(seed=seed))


def test_more_threads_than_a_machine_starts_are_refused() -> None:
    with pytest.raises(UserError, match=r"train\.threads = 100000.*0.*1024"):
        check_values("train", TrainConfig(threads=100_000))
