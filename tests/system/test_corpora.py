"""Every format of a corpus gives the same corpus: the first training steps have the same losses."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import headwise

SETTINGS = [
    "model.d_model=16",
    "model.d_ff=16",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "data.vocab_size=275",
    "train.max_steps=2",
    "train.tokens_per_batch=300",
    "train.log_every=1",
    "train.validate_bleu=0",
    "train.best_metric=loss",
]


@pytest.fixture(scope="module")
def pairs(task: Any) -> list[tuple[str, str]]:
    return [*task(200, 1), ("e\u0301 \u2028 \x0b x\ry", "ß\u0085 日本"), ("", "lost"), ("lost", " ")]


@pytest.fixture(scope="module")
def losses(cli: Any, tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> Any:
    """Trains on some files and returns the losses."""
    folder = tmp_path_factory.mktemp("runs")
    valid = write(folder / "valid", task(10, 2))

    def train(*files: str | Path, stdin: bytes = b"") -> list[float]:
        out = folder / f"run{len(list(folder.iterdir()))}"
        arguments = ["--recipe", "tiny", "--device", "cpu", "--out", out, "--set", *SETTINGS]
        ran = cli("train", *arguments, "--train", *files, "--valid", *valid, stdin=stdin)
        assert ran.code == 0, ran.err
        assert "training on 201 of 203 pairs; dropped 2: one side is empty" in ran.err
        return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    return train


@pytest.fixture(scope="module")
def expected(losses: Any, write: Any, pairs: Any, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    found = losses(*write(tmp_path_factory.mktemp("aligned") / "train", pairs))
    assert len(found) == 2
    return found


def tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{src}\t{tgt}\tignored\n" for src, tgt in pairs).encode()


def jsonl(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(json.dumps({"tgt": tgt, "id": 7, "src": src}) + "\r\n" for src, tgt in pairs).encode()


def test_tsv(expected: Any, losses: Any, pairs: Any, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b"\xef\xbb\xbf" + tsv(pairs))
    assert losses(tmp_path / "train.tsv") == expected


def test_jsonl(expected: Any, losses: Any, pairs: Any, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(jsonl(pairs))
    assert losses(tmp_path / "train.jsonl") == expected


def test_gzip(expected: Any, losses: Any, write: Any, pairs: Any, tmp_path: Path) -> None:
    packed = []
    for path in write(tmp_path / "train", pairs):
        packed.append(path.with_name(path.name + ".gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    assert losses(*packed) == expected


def test_standard_input(expected: Any, losses: Any, pairs: Any) -> None:
    assert losses("-", stdin=tsv(pairs)) == expected


def test_several_corpora(expected: Any, losses: Any, write: Any, pairs: Any, tmp_path: Path) -> None:
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(tsv(pairs[50:120])))
    (tmp_path / "c.jsonl").write_bytes(jsonl(pairs[120:]))
    assert losses(*write(tmp_path / "a", pairs[:50]), tmp_path / "b.tsv.gz", tmp_path / "c.jsonl") == expected


def test_a_hugging_face_folder(expected: Any, losses: Any, pairs: Any, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    from pyarrow import parquet, table

    columns = dict(zip(("en", "de"), map(list, zip(*pairs, strict=True)), strict=True))
    parquet.write_table(table(columns), tmp_path / "train.parquet")
    assert losses(f"hf:{tmp_path}?src=en&tgt=de") == expected


def test_an_existing_tokenizer_is_used_and_copied(cli: Any, task: Any, write: Any, tmp_path: Path) -> None:
    files = write(tmp_path / "train", task(50, 1))
    run = ["train", "--recipe", "tiny", "--train", *files, "--valid", *files, "--device", "cpu", "--set", *SETTINGS]
    assert cli(*run, "--out", tmp_path / "first").code == 0
    given = tmp_path / "first" / "tokenizer.json"
    assert cli(*run, f"data.tokenizer={given}", "data.vocab_size=999", "--out", tmp_path / "second").code == 0
    assert (tmp_path / "second" / "tokenizer.json").read_bytes() == given.read_bytes()
    assert str(tmp_path) not in (tmp_path / "second" / "config.json").read_text(encoding="utf-8")


def test_special_tokens_are_single_tokens(cli: Any, task: Any, write: Any, tmp_path: Path) -> None:
    files = write(tmp_path / "train", [(f"<2xx> {src}", tgt) for src, tgt in task(50, 1)])
    run = ["train", "--recipe", "tiny", "--train", *files, "--valid", *files, "--device", "cpu", "--set", *SETTINGS]
    assert cli(*run, "--special", "<2xx>", "--out", tmp_path / "model").code == 0
    (translation,) = headwise.load(tmp_path / "model", device="cpu").translate(["<2xx> a b"])
    assert translation.source_pieces[0] == "<2xx>"
    assert translation.source_pieces[-2:] == ["▁a", "▁b"]
