"""Training on a stream of shards: killed and resumed, by several processes, with damaged and changed shards."""

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from killing import killed_and_resumed, killed_at, records
from together import all_end_well, group

SETTINGS = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2", "data.vocab_size=275", "train.threads=1"]
SETTINGS += ["train.tokens_per_batch=200", "train.log_every=1", "train.checkpoint_every=10", "train.validate_every=20"]
SETTINGS += ["train.max_steps=40", "train.schedule=constant", "train.average=1", "train.validate_bleu=0"]
SETTINGS += ["train.precision=float32", "train.learning_rate=0.003", "train.warmup_steps=1"]
SETTINGS += ["data.bpe_dropout=0.1", "data.shuffle_buffer=90", "train.accumulate=2"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, task: Any) -> Path:
    """Two shards of each format, one of them empty, and validation pairs in `valid.tsv`."""
    folder = tmp_path_factory.mktemp("shards")
    for i, name in enumerate(("a.tsv.gz", "b.tsv.gz")):
        (folder / name).write_bytes(gzip.compress(tsv(task(130, i))))
    (folder / "c.jsonl").write_text(
        "".join(f"{json.dumps({'src': src, 'tgt': tgt})}\n" for src, tgt in task(60, 2)), encoding="utf-8"
    )
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(b""))
    with tarfile.open(folder / "e.tar", "w") as archive:
        for number, pair in enumerate(task(70, 3)):
            for side, text in zip(("src", "tgt"), pair, strict=True):
                member = tarfile.TarInfo(f"{number:04}.{side}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    (folder.parent / "valid.tsv").write_bytes(tsv(task(40, 9)))
    return folder


def tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{src}\t{tgt}\n" for src, tgt in pairs).encode()


def command(shards: Path, pattern: str = "*") -> list[str]:
    files = ["--train", f"stream:{shards}/{pattern}", "--valid", str(shards.parent / "valid.tsv")]
    return ["train", "--recipe", "tiny", *files, "--device", "cpu", "--set", *SETTINGS]


@pytest.fixture(scope="module")
def whole(shards: Path, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was never killed."""
    out = tmp_path_factory.mktemp("whole") / "model"
    ran = cli(*command(shards), "--out", out)
    assert ran.code == 0, ran.err
    assert "training on a stream of 5 shards" in ran.err
    return out


def losses(out: Path) -> list[float]:
    return [row["loss"] for row in records(out, "metrics.jsonl")]


def test_it_learns_and_says_what_it_read(whole: Path) -> None:
    assert losses(whole)[-1] < 0.8 * losses(whole)[0]
    assert records(whole, "metrics.jsonl")[-1]["epoch"] > 0
    card = (whole / "README.md").read_text(encoding="utf-8")
    assert "| training data | *: a stream of 5 (" in card and ") shards |" in card


@pytest.mark.thorough
@pytest.mark.parametrize("step", [10, 30])
def test_killed_and_resumed_exactly(step: int, shards: Path, whole: Path, cli: Any, tmp_path: Path) -> None:
    killed_and_resumed(cli, command(shards), step, tmp_path / "model", whole)


@pytest.mark.thorough
def test_killed_twice_between_checkpoints(shards: Path, whole: Path, cli: Any, tmp_path: Path) -> None:
    out, more = tmp_path / "model", list[str]()
    for step in (13, 27):
        killed_at(out / "metrics.jsonl", [*command(shards), "--out", out, *more], step)
        more = ["--resume"]
    assert cli(*command(shards), "--out", out, "--resume").code == 0
    assert losses(out) == losses(whole)
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("pattern", ["*", "a.tsv.gz"])  # one shard only: each process reads a part of it
def test_two_processes_are_like_one(pattern: str, shards: Path, cli: Any, tmp_path: Path) -> None:
    """Also if one of them goes on alone."""
    one, two = tmp_path / "one", tmp_path / "two"
    plain = ["model.dropout=0.0", "train.max_steps=24"]
    assert cli(*command(shards, pattern), *plain, "--out", one).code == 0
    both = [*command(shards, pattern), *plain, "train.accumulate=1", "train.checkpoint_every=8"]
    with group(2, ["-m", "headwise", *both, "train.max_steps=16", "--out", two]) as programs:
        all_end_well(programs)
    saved = json.loads((two / "checkpoints" / "step-00000016" / "state.json").read_text(encoding="utf-8"))
    assert [unit % 2 for unit, *_ in saved["data"]["lanes"]] == [0, 1]
    ran = cli(*both, "--out", two, "--resume")
    assert ran.code == 0, ran.err
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)


@pytest.mark.thorough
def test_a_damaged_shard_is_replaced(shards: Path, cli: Any, tmp_path: Path) -> None:
    folder, out = tmp_path / "shards", tmp_path / "model"
    shutil.copytree(shards, folder)
    shutil.copy(shards.parent / "valid.tsv", tmp_path)
    path = folder / "b.tsv.gz"
    content = path.read_bytes()
    given = [*command(folder, "*.tsv.gz"), "data.tokenizer_sample=9", "train.checkpoint_every=1", "--out", out]
    path.write_bytes(content[:300] + bytes([content[300] ^ 0x55]) + content[301:])
    said = cli(*given).complaint
    assert f"{path}: the .gz is damaged (" in said and said.endswith(" records of this shard)")
    path.write_bytes(content)
    ran = cli(*given, "--resume")
    assert ran.code == 0, ran.err


def test_a_new_shard_is_reported(shards: Path, whole: Path, cli: Any, tmp_path: Path) -> None:
    folder, out = shutil.copytree(shards, tmp_path / "shards"), shutil.copytree(whole, tmp_path / "model")
    shutil.copy(shards.parent / "valid.tsv", tmp_path)
    shutil.copy(folder / "a.tsv.gz", folder / "f.tsv.gz")
    longer = [*command(folder), "train.max_steps=45", "--out", out, "--resume"]
    ran = cli(*longer)
    assert ran.code == 0, ran.err
    assert "shards was '5 (" in ran.err and "begins the next epoch\n" in ran.err
    assert records(out, "metrics.jsonl")[40]["epoch"] == records(out, "metrics.jsonl")[39]["epoch"] + 1
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "after step 40: " in card and "shards = 6 (" in card
    assert "the training files differ" in cli(*longer, "--train", folder / "a.tsv.gz").complaint


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--valid", "1%"], "--valid 1%: nothing is held out of a stream; name validation files"),
        (["--valid", "stream:x.tsv"], "--valid stream:x.tsv: validation reads the same pairs every time; name files"),
        (["--set", "data.weights=[1]"], "data.weights does not go with a stream; leave it out"),
        (["--set", "data.both_directions=0.3"], "data.both_directions does not go with a stream; leave it out"),
        (["--alignments", "x"], "--alignments does not go with a stream; leave it out"),
        (["--resume", "--add", "x.tsv"], "--add x.tsv: a resumed run reads all shards that match stream:"),
        (["--train", "stream:none/*.tsv"], "--train stream:none/*.tsv: matches no file; quote the pattern"),
    ],
)
def test_what_does_not_go_with_a_stream(
    given: list[str], complaint: str, shards: Path, cli: Any, tmp_path: Path
) -> None:
    assert complaint in cli(*command(shards), "--out", tmp_path / "model", *given).complaint
    assert not (tmp_path / "model").exists()


def test_streams_are_for_translation(shards: Path, cli: Any, tmp_path: Path) -> None:
    files = ["--train", "stream:x.tsv", "--valid", shards.parent / "valid.tsv", "--out", tmp_path / "model"]
    told = cli("train", "--recipe", "classify", *files).complaint
    assert told.endswith("--train stream:x.tsv: streams are for --task translate, not for classify")
