"""Shards of a stream: formats, empty and damaged ones."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.text.prepared.stream_shards import find_shards, shard_file

PAIRS = [(f"go {i} ü", f"geh {i} ß") for i in range(40)]


def tar(files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1.5  # which needs an extended header, as those of WebDataset
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def sides(pairs: Sequence[tuple[str, str]], folder: str = "") -> dict[str, bytes]:
    """The files of an archive, and a picture in each record."""
    named = {f"{folder}{i:03}": pair for i, pair in enumerate(pairs)}
    records = (
        {f"{key}.src": src, f"{key}.jpg": "x" * 999, f"{key}.tgt": f"{tgt}\n"} for key, (src, tgt) in named.items()
    )
    return {name: text.encode() for record in records for name, text in record.items()}


def as_json(src: str, tgt: str) -> str:
    return json.dumps({"src": src, "tgt": tgt, "more": 1})


CONTENTS: dict[str, bytes] = {
    "a.tsv": "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS).encode(),
    "a.jsonl": "".join(f"{as_json(*pair)}\n" for pair in PAIRS).encode(),
    "a.tar": tar(sides(PAIRS)),
    "gnu.tar": tar(sides(PAIRS, "folder/" * 20), tarfile.GNU_FORMAT),
    "pax.tar": tar(sides(PAIRS, "ordner/ü/" * 20)),
    "json.tar": tar({f"{i:03}.json": as_json(*pair).encode() for i, pair in enumerate(PAIRS)}),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_format(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / (name if pack is bytes else f"{name}.gz")
    path.write_bytes(pack(CONTENTS[name]))
    assert [*shard_file(str(path)).read()] == [*enumerate(PAIRS, start=1)]


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")])
@pytest.mark.parametrize("ending", ["tsv", "jsonl", "tar"])
def test_a_shard_may_be_empty(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}{'.gz' if content else ''}"
    path.write_bytes(content)
    assert [*shard_file(str(path)).read()] == []
    (tmp_path / "b.tar").write_bytes(tar({}))
    assert [*shard_file(str(tmp_path / "b.tar")).read()] == []


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]


WHOLE = tar(sides(PAIRS))
HEADER = WHOLE.index(b"005.src")
PACKED = gzip.compress(CONTENTS["a.tsv"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv.gz", flipped(PACKED, len(PACKED) - 6), "the .gz is damaged (CRC check failed"),
        ("a.tsv.gz", flipped(PACKED, len(PACKED) // 2), "the .gz is damaged ("),
        ("a.tsv.gz", PACKED[:-20], "the .gz is damaged (Compressed file ended"),
        ("a.tar", flipped(WHOLE, HEADER + 20), "damaged (bad checksum); download or write it again (after 4 records"),
        ("a.tar", WHOLE[:HEADER], "the .tar is damaged (it ends too early); download or"),
        ("a.tar", WHOLE[: HEADER + 700], "the .tar is damaged (it ends too early); download or"),
        ("a.tar", WHOLE[: HEADER + 100], "the .tar is damaged (truncated header); download or"),
        ("a.tar.gz", gzip.compress(WHOLE)[:-90], "the .gz is damaged (Compressed file ended"),
        ("a.tsv", b"a\tb\nc\td\ne\n", "line 3 has no tab; write 'source TAB target' on every line (after 2 records"),
        ("a.jsonl", b'{"src": "a"}\n', "src=en&tgt=de (after 0 records of this shard)"),
        ("a.tar", tar({"1.src": b"a"}), "record 1 has no \"tgt\"; it has 'src' (after 0 records"),
        ("a.tar", tar({"1.jpg": b"a", "1.cls": b"2"}), "record 1 has .jpg, .cls; it needs .src and .tgt, or .json"),
        ("a.tar", tar({"1.src": b"\xff", "1.tgt": b"a"}), "record 1 is not UTF-8 (invalid start byte); write the"),
        ("a.tar", tar({"1.json": b"[]"}), 'record 1 is not an object; write {"src": "...", "tgt": "..."} (after 0'),
        ("a.tar", tar({"1.src": bytes(1 << 25)}), "1.src is longer than 16 MiB; is it text? (after 0 records"),
    ],
)  # fmt: skip
def test_damage_names_shard_and_record(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        for _ in shard_file(str(path)).read():
            pass
    assert str(error.value).startswith(str(path)) and message in str(error.value) and "\n" not in str(error.value)


def test_a_shard_that_changes_while_training(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(CONTENTS["a.tsv"])
    shards = find_shards([f"stream:{tmp_path}/*.tsv"])
    path.write_bytes(CONTENTS["a.tsv"] * 2)
    with pytest.raises(UserError, match="changed while it was being read"):
        next(shards.files[0].read())
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        next(shards.files[0].read())


def test_the_version_follows_names_sizes_and_checksums(tmp_path: Path) -> None:
    def version() -> str:
        return find_shards([f"stream:{tmp_path}/*"]).version

    for name in "ab":
        (tmp_path / f"{name}.tsv.gz").write_bytes(PACKED)
    first = version()
    other = gzip.compress(CONTENTS["a.tsv"].replace(b"20", b"30"), mtime=0)
    (tmp_path / "b.tsv.gz").write_bytes(other)
    assert first.startswith("2 (") and version() != first
    (tmp_path / "b.tsv.gz").write_bytes(PACKED)
    assert version() == first
    (tmp_path / "b.tsv.gz").rename(tmp_path / "c.tsv.gz")
    assert version() != first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stream:{}/none*.tsv"], "none*.tsv: matches no file; quote the pattern"),
        (["stream:{}/*"], "a.csv: a shard is .tsv, .jsonl or .tar, each also as .gz; convert it, or narrow --train"),
        (["stream:{}/*.tsv", "{}/a.tsv"], "a.tsv: does not go with stream: shards; name it stream:FILE"),
    ],
)
def test_arguments_that_name_no_shards(arguments: list[str], message: str, tmp_path: Path) -> None:
    for name in ("a.tsv", "a.csv"):
        (tmp_path / name).write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(UserError) as error:
        find_shards([argument.format(tmp_path) for argument in arguments])
    assert message in str(error.value)
