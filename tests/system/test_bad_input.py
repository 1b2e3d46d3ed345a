"""User errors: one line with the file and the fix, exit code 2, no files left behind, no traceback."""

import gzip
import itertools
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

TINY = [
    "model.d_model=8",
    "model.d_ff=8",
    "model.n_heads=2",
    "model.n_encoder_layers=1",
    "model.n_decoder_layers=1",
    "data.vocab_size=270",
    "train.max_steps=1",
    "train.tokens_per_batch=512",
    "train.validate_bleu=2",
    "decode.max_length_factor=1.0",
    "decode.max_length_extra=2",
]
GOOD = {"good.src": b"a b\nc d\n", "good.tgt": b"b a\nd c\n"}
JSON = '{"src": "a", "tgt": "b"}\n'

# files to make, arguments of --train, expected message
TABLE: dict[str, tuple[dict[str, bytes], list[str], list[str]]] = {
    "missing": ({}, ["absent.src", "good.tgt"], ["absent.src: no such file; look at: ls"]),
    "mistyped": ({}, ["good.scr", "good.tgt"], ["good.scr: no such file; did you mean", "good.src'?"]),
    "folder missing": ({}, ["no/good.src", "good.tgt"], ["no such file; the folder", "does not exist"]),
    "folder": ({}, [".", "good.tgt"], ["is a folder; name a file in it"]),
    "empty": ({"x.src": b""}, ["x.src", "good.tgt"], ["x.src has 0 lines but", "good.tgt has 2"]),
    "both empty": ({"x.src": b"", "x.tgt": b""}, ["x.src", "x.tgt"], ["x.src: is empty; it must hold one sentence"]),
    "empty tsv": ({"x.tsv": b""}, ["x.tsv"], ["x.tsv: is empty"]),
    "bytes": (
        {"x.src": b"fine\n\xe4rger\n"},
        ["x.src", "good.tgt"],
        ["x.src: line 2 is not UTF-8 (byte 0xe4 at byte offset 5)", "iconv -f WINDOWS-1252"],
    ),
    "utf-16": ({"x.src": "a\n".encode("utf-16")}, ["x.src", "good.tgt"], ["x.src", "iconv -f UTF-16"]),
    "gz cut off": (
        {"x.src.gz": gzip.compress(os.urandom(99))[:-9]},
        ["x.src.gz", "good.tgt"],
        ["x.src.gz: the .gz is damaged", "compress it again"],
    ),
    "no gz": ({"x.src.gz": b"plain text\n"}, ["x.src.gz", "good.tgt"], ["x.src.gz: the .gz is damaged"]),
    "line counts": (
        {"x.src": b"a\nb\nc\n"},
        ["x.src", "good.tgt"],
        ["x.src has 3 lines but", "good.tgt has 2; line i of one must translate line i"],
    ),
    "no tab": ({"x.tsv": b"a\tb\nno tab\n"}, ["x.tsv"], ["x.tsv: line 2 has no tab; write 'source TAB target'"]),
    "no json": ({"x.jsonl": (JSON + "{\n").encode()}, ["x.jsonl"], ["x.jsonl: line 2 is not JSON", "write {"]),
    "no object": ({"x.jsonl": (JSON + "[1]\n").encode()}, ["x.jsonl"], ["x.jsonl: line 2 is not an object"]),
    "no key": ({"x.jsonl": b'{"src": "a", "target": "b"}\n'}, ["x.jsonl"], ['line 1 has no "tgt"', "'target'"]),
    "no string": ({"x.jsonl": b'{"src": "a", "tgt": 7}\n'}, ["x.jsonl"], ['line 1: "tgt" must be a string']),
    "no partner": ({}, ["good.src"], ["good.src: has no partner; give a source and a target file"]),
    "same file": ({}, ["good.src", "good.src"], ["good.src", ": source and target are the same file"]),
    "tmx": (
        {"x.tmx": b"<?xml version='1.0'?>\n<tmx>\n"},
        ["x.tmx"],
        ["x.tmx: line 3: invalid XML", "export the file again"],
    ),
    "nothing usable": ({"x.tsv": b" \tb\na\t\n"}, ["x.tsv"], ["x.tsv: nothing to train on", "one side is empty: 2"]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in GOOD.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def train(cli: Any, folder: Path, files: list[str], *more: Any, valid: list[str] | None = None, **options: Any) -> Any:
    def there(names: list[str]) -> list[Any]:
        return [folder / name for name in names]

    arguments = {"recipe": "tiny", "out": folder / "out", "device": "cpu", **options}
    named = [part for name, value in arguments.items() for part in (f"--{name}", value)]
    files_of = ["--train", *there(files), "--valid", *there(valid or ["good.src", "good.tgt"])]
    return cli("train", *named, *files_of, "--set", *TINY, *more)


CASES = [(case, role) for case in TABLE for role in ("train", "valid")]
CASES.remove(("nothing usable", "valid"))  # a validation set keeps every pair


@pytest.mark.parametrize(("case", "role"), CASES)
def test_bad_files(case: str, role: str, cli: Any, folder: Path) -> None:
    files, arguments, expected = TABLE[case]
    for name, content in files.items():
        (folder / name).write_bytes(content)
    good = ["good.src", "good.tgt"]
    ran = train(cli, folder, arguments, valid=good) if role == "train" else train(cli, folder, good, valid=arguments)
    for part in expected:
        assert part in ran.complaint
    assert not (folder / "out").exists()


@pytest.mark.parametrize("role", ["--train", "--valid"])
def test_a_bad_path_is_named_with_its_option(role: str, cli: Any, folder: Path) -> None:
    files = {"--train": "good.src", "--valid": "good.src", role: "absent.src"}
    arguments = [part for name, path in files.items() for part in (name, folder / path, folder / "good.tgt")]
    ran = cli("train", "--recipe", "tiny", *arguments, "--out", folder / "out", "--device", "cpu", "--set", *TINY)
    assert f"error: {role} {folder / 'absent.src'}: no such file" in ran.complaint
    assert ran.err.count("\n") == 1  # nothing was trained or tokenised before


def test_standard_input_is_not_read_while_a_file_is_missing(
    cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(folder / "cache"))
    run = ["train", "--recipe", "tiny", "--train", "-", "--valid", folder / "absent.tsv", "--out", folder / "out"]
    assert "absent.tsv: no such file" in cli(*run, "--set", *TINY, stdin=b"a\tb\n").complaint
    assert not (folder / "cache").exists()


def test_warnings_come_before_training(cli: Any, folder: Path) -> None:
    (folder / "x.tsv").write_bytes(b"source\ttarget\na b\tb a\tc\n")
    ran = train(cli, folder, ["x.tsv"])
    assert ran.code == 0
    warnings = ran.err.splitlines()
    assert warnings[0].startswith(
        f"warning: --train {folder / 'x.tsv'}: line 1 (source TAB target) looks like a header"
    )
    assert warnings[1].endswith("only two are read; line 2 loses 'c'")


def test_a_diverging_run_is_reported(cli: Any, folder: Path) -> None:
    steep = ["train.max_steps=6", "train.validate_every=3", "train.learning_rate=30", "train.warmup_steps=1"]
    ran = train(cli, folder, ["good.src", "good.tgt"], *steep)
    assert ran.code == 0
    assert "best so far" not in ran.err
    assert re.search(r"step 6: validation loss \d+, bleu .* \(no better than guessing\)\n", ran.err)
    assert "is no better than guessing: lower train.learning_rate" in ran.err.splitlines()[-1]
    assert max(map(len, re.findall(r"\d+", ran.err))) < 30
    assert "| weights | step 6, no better than guessing |" in (folder / "out" / "README.md").read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(cli: Any, folder: Path) -> None:
    (folder / "good.src").chmod(0)
    complaint = train(cli, folder, ["good.src", "good.tgt"]).complaint
    assert "good.src: no permission to read it; try: chmod +r" in complaint


@pytest.mark.parametrize(
    ("more", "options", "expected"),
    [
        ([], {"recipe": "smal"}, "unknown recipe 'smal'; did you mean 'small'?"),
        ([], {"recipe": "absent.toml"}, "absent.toml: no such recipe file"),
        ([], {"device": "cdua"}, "--device cdua: use auto, cpu or cuda"),
        ([], {"device": "meta"}, "--device meta: use auto, cpu or cuda"),
        (["train.max_step=1"], {}, "did you mean 'train.max_steps'?"),
        (["data.vocab_size=100"], {}, "data.vocab_size is 100; bytes and special tokens alone need 260"),
        (["data.tokenizer=absent.json"], {}, "absent.json: no such file"),
        (["model.architecture=transfomer"], {}, "did you mean 'transformer'?"),
        (["data.subword=unigram", "data.bpe_dropout=0.1"], {}, "data.bpe_dropout needs byte-level BPE"),
        (["train.betas=[0.9, 1.5]"], {}, "train.betas"),
        (["train.learning_rate=nan"], {}, "train.learning_rate"),
        (["model.positions=learned", "model.max_len=2"], {}, "model.max_len"),
    ],
)
def test_bad_settings(more: list[str], options: dict[str, str], expected: str, cli: Any, folder: Path) -> None:
    assert expected in train(cli, folder, ["good.src", "good.tgt"], *more, **options).complaint
    assert not (folder / "out").exists()


@pytest.mark.parametrize("out", ["good.src", "good.src/model"])
def test_an_unwritable_folder(out: str, cli: Any, folder: Path) -> None:
    complaint = train(cli, folder, ["good.src", "good.tgt"], out=folder / out).complaint
    assert str(folder / out) in complaint
    assert (folder / "good.src").read_bytes() == GOOD["good.src"]


def test_a_folder_that_contains_a_model(cli: Any, model_path: Path, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in model_path.rglob("*")}
    complaint = train(cli, folder, ["good.src", "good.tgt"], out=model_path).complaint
    assert f"--out {model_path}: already holds a run; add --resume to resume it or name another folder" in complaint
    assert {path: path.stat().st_mtime_ns for path in model_path.rglob("*")} == before


def test_a_validation_pair_beyond_learned_positions(cli: Any, folder: Path) -> None:
    (folder / "long.tsv").write_bytes(b"a " * 60 + b"\t" + b"b " * 60 + b"\n")
    settings = ["model.positions=learned", "model.max_len=40", "data.max_length=40"]
    complaint = train(cli, folder, ["good.src", "good.tgt"], *settings, valid=["long.tsv"]).complaint
    assert "model.max_len" in complaint
    assert "long.tsv" in complaint


def test_too_little_data_gives_warnings(cli: Any, folder: Path) -> None:
    words = ["".join(chr(97 + i * k % 26) for k in (1, 3, 7, 11, 5)) for i in range(23)]  # each in two pairs
    for side in ("src", "tgt"):
        lines = [f"{word} {after}\n" for word, after in itertools.pairwise(words)]
        (folder / f"few.{side}").write_text("".join(lines), encoding="utf-8")
    few = ["few.src", "few.tgt"]
    log = train(cli, folder, few, "data.vocab_size=320", valid=few).err
    for part in (
        "\nwarning: --train has 22 pairs, few for training from scratch: with 1,000 pairs of captions, `tiny` had ",
        "\nwarning: --valid has 22 pairs, too few to compare models (at least 200)",
        "\nwarning: a vocabulary of 3",
        ": add --set data.vocab_size=300\n",
        "warning: --valid has pairs of --train (22 of the first 22 pairs), so validation scores will be too high",
    ):
        assert part in log


# Random files ---------------------------------------------------------------------------------------------------------

LINE = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=8),
    st.sampled_from(
        [b"a b", b"\t", b"a\tb", b'{"src": "a", "tgt": "b"}', b"{}", b"\xef\xbb\xbf", b"\r", b"\xed\xa0\x80"]
    ),
)
CONTENT = st.tuples(st.lists(LINE, max_size=4), st.sampled_from([b"\n", b"\r\n"]), st.booleans()).map(
    lambda drawn: drawn[1].join(drawn[0]) + (drawn[1] if drawn[2] else b"")
)
PACKED = st.tuples(CONTENT, st.integers(0, 3)).map(lambda drawn: gzip.compress(drawn[0], mtime=0)[: -drawn[1] or None])
FILE = st.one_of(CONTENT, CONTENT, CONTENT, PACKED, st.binary(max_size=20))
CORPUS = st.one_of(
    st.fixed_dictionaries({"x.src": FILE, "x.tgt": FILE}),
    st.sampled_from(["x.tsv", "x.jsonl", "x.tsv.gz"]).flatmap(lambda name: st.fixed_dictionaries({name: FILE})),
)
FUZZ = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@FUZZ
@example({"x.src": b"a\n\nb", "x.tgt": b"b\r\n\r\na\r\n"}, {"x.jsonl": JSON.encode()})
@given(CORPUS, CORPUS)
def test_any_files_train_or_are_refused(cli: Any, train_files: dict[str, bytes], valid_files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in train_files.items():
            (folder / file).write_bytes(content)
        (folder / "valid").mkdir()
        for file, content in valid_files.items():
            (folder / "valid" / file).write_bytes(content)
        ran = train(cli, folder, list(train_files), valid=[f"valid/{file}" for file in valid_files])
        if ran.code:
            assert any(str(folder) in part for part in ran.complaint.split())
            assert not (folder / "out").exists()
        else:
            assert (folder / "out" / "model.safetensors").exists()


@FUZZ
@example(b"\xef\xbb\xbfa b\r\n\n\x00")
@given(FILE)
def test_any_bytes_are_translated_or_refused(cli: Any, model_path: Path, content: bytes) -> None:
    ran = cli("translate", model_path, "--beam-size", 1, "--device", "cpu", stdin=content)
    if ran.code:
        assert "standard input: line " in ran.err.splitlines()[-1] or "standard input: the .gz" in ran.err
        assert "Traceback" not in ran.err
    else:
        assert len(ran.lines) == content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
