"""A Hugging Face dataset is streamed once into a file, and a killed copy resumes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.text.files import hugging_face
from headwise.text.files.corpus import Corpus, read_pairs
from headwise.text.prepared.prepared import spool

datasets = pytest.importorskip("datasets")

N = 50
PAIRS = [(f"a\u2028 {i}", f"b\t{i}") for i in range(N)]
KILLED = """
import os, signal, sys
from pathlib import Path
from headwise.text.files import hugging_face
hugging_face.CHECKPOINT_EVERY = 10
read = hugging_face.text_field
def text_field(record, key, location):
    if location.endswith(": row 37"):
        os.kill(os.getpid(), signal.SIGKILL)
    return read(record, key, location)
hugging_face.text_field = text_field
hugging_face.cached_dataset(sys.argv[1], Path(sys.argv[2]))
"""


def write(folder: Path, kind: str, pairs: list[tuple[str, str]] = PAIRS) -> str:
    """Write a dataset of these pairs, in two files or in the library's format; returns its spec."""
    rows = {"en": [src for src, _ in pairs], "de": [tgt for _, tgt in pairs]}
    if kind == "saved":
        datasets.Dataset.from_dict(rows).save_to_disk(folder)
    else:
        folder.mkdir(exist_ok=True)
        for half, part in enumerate((slice(0, 20), slice(20, None))):
            made = datasets.Dataset.from_dict({name: column[part] for name, column in rows.items()})
            write_to = {"parquet": made.to_parquet, "jsonl": made.to_json}[kind]
            write_to(folder / f"train-{half}.{kind}")
    return f"hf:{folder}?src=en&tgt=de"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the numbers of the rows that are read."""
    rows: list[int] = []
    read = hugging_face._pairs_of_rows

    def pairs(*given: Any) -> Iterator[Any]:
        for number, pair in enumerate(read(*given), start=given[3]):
            rows.append(number)
            yield pair

    monkeypatch.setattr(hugging_face, "_pairs_of_rows", pairs)
    monkeypatch.setattr(hugging_face, "CHECKPOINT_EVERY", 10)
    return rows


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "saved"])
def test_a_killed_copy_resumes(tmp_path: Path, seen: list[int], kind: str) -> None:
    spec, cache = write(tmp_path / "set", kind), tmp_path / "cache"
    cache.mkdir()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", KILLED, spec, str(cache)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert {path.suffix for path in cache.iterdir()} == {".part", ".position"}
    (corpus,) = spool([Corpus((spec,))], cache)
    assert seen == [*range(31, N + 1)]
    assert list(read_pairs([corpus])) == PAIRS
    assert [path.suffix for path in cache.iterdir()] == [""]
    (tmp_path / "anew").mkdir()
    anew = hugging_face.cached_dataset(spec, tmp_path / "anew")
    assert anew.read_bytes() == Path(*corpus.paths).read_bytes() and anew.name == Path(*corpus.paths).name


def test_a_copy_is_cached_until_rows_change(tmp_path: Path, seen: list[int]) -> None:
    spec = write(tmp_path / "set", "jsonl")
    first = hugging_face.cached_dataset(spec, tmp_path)
    del seen[:]
    assert hugging_face.cached_dataset(spec, tmp_path) == first and seen == []
    content = first.read_bytes()
    first.write_bytes(content.replace(b"49", b"48"))
    with pytest.warns(UserWarning, match=f"{first.name}: damaged in the cache"):
        assert hugging_face.cached_dataset(spec, tmp_path) == first
    assert first.read_bytes() == content
    write(tmp_path / "set", "jsonl", [("another", "one"), *PAIRS[1:]])
    for path in (tmp_path / "set").iterdir():
        os.utime(path, (1, 1))
    other = hugging_face.cached_dataset(spec, tmp_path)
    assert other != first
    assert json.loads(other.read_text(encoding="utf-8").splitlines()[0]) == {"src": "another", "tgt": "one"}


def test_a_row_that_is_not_a_pair_is_an_error(tmp_path: Path) -> None:
    spec = write(tmp_path / "set", "jsonl").replace("tgt=de", "tgt=fr")
    with pytest.raises(UserError, match=r"tgt=fr: row 1.*no \"fr\".*'en', 'de'"):
        hugging_face.cached_dataset(spec, tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "saved"])
def test_a_dataset_that_changes_during_the_copy_is_not_cached(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, cache = write(tmp_path / "set", kind), tmp_path / "cache"
    cache.mkdir()
    read = hugging_face._pairs_of_rows

    def pairs(*given: Any) -> Iterator[Any]:
        for number, pair in enumerate(read(*given), start=1):
            if number == 25:
                shutil.rmtree(tmp_path / "set")
                write(tmp_path / "set", kind, [("another", "one"), *PAIRS])
            yield pair

    with monkeypatch.context() as patch:
        patch.setattr(hugging_face, "_pairs_of_rows", pairs)
        with pytest.raises(UserError, match="changed while it was being read") as raised:
            spool([Corpus((spec,))], cache)
    assert str(raised.value).startswith(f"{spec}: ") and not [*cache.iterdir()]
    assert list(read_pairs(spool([Corpus((spec,))], cache))) == [("another", "one"), *PAIRS]
