"""`train --resume --add`: a run gets more training files, exactly resumed afterwards, and recorded in the model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killing import killed_at

from headwise import train

SETTINGS = ["model.d_model=16", "model.d_ff=32", "model.dropout=0.0", "data.vocab_size=275", "train.threads=1"]
SETTINGS += ["train.tokens_per_batch=300", "train.log_every=1", "train.checkpoint_every=3", "train.validate_every=9"]
SETTINGS += ["train.validate_bleu=0", "train.average=1", "train.accumulate=2", "train.precision=float32"]
SETTINGS += ["data.bpe_dropout=0.2"]
STEPS = 15  # of all runs; those that get more files have 6 before
LONGER = ["--set", f"train.max_steps={STEPS}"]
MORE = ["--resume", *LONGER]

Files = dict[str, list[str]]
Start = Callable[..., list[str]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> Files:
    """Pairs of each corpus: 300, 200, 30, 40."""
    folder = tmp_path_factory.mktemp("corpora")
    sizes = {"old": 300, "more": 200, "last": 30, "valid": 40}
    (folder / "valid.tsv").write_text("a\ta\n", encoding="utf-8")
    aligned = {name: [*map(str, write(folder / name, task(n, n)))] for name, n in sizes.items()}
    return {**aligned, "valid.tsv": [str(folder / "valid.tsv")]}


@pytest.fixture(scope="module")
def start(files: Files) -> Start:
    """The command of a run, with its training files."""

    def command(*train: str) -> list[str]:
        given = ["--train", *(train or files["old"]), "--valid", *files["valid"], "--device", "cpu"]
        return ["train", "--recipe", "tiny", *given, "--set", *SETTINGS]

    return command


@pytest.fixture(scope="module")
def six_steps(start: Start, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("six") / "model"
    assert cli(*start(), "train.max_steps=6", "--out", out).code == 0
    return out


@pytest.fixture(scope="module")
def whole(six_steps: Path, start: Start, files: Files, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that got more files after six steps and was never killed."""
    out = copied(six_steps, tmp_path_factory.mktemp("whole"))
    ran = cli(*start(), *MORE, "--add", *files["more"], "--out", out)
    assert ran.code == 0, ran.err
    assert (
        f"adding {', '.join(files['more'])} to the training files: this epoch is planned anew, so it repeats some "
        "examples and omits others\n"
    ).replace(str(Path(files["more"][0]).parent) + "/", "") in ran.err
    assert "training on 500 of 500 pairs" in ran.err and "resuming after step 6\n" in ran.err
    return out


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run, to continue."""
    return Path(shutil.copytree(run, folder / "model"))


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def about(out: Path, name: str = "config.json") -> dict[str, Any]:
    return json.loads((out / name).read_text(encoding="utf-8"))


def card(out: Path) -> str:
    return (out / "README.md").read_text(encoding="utf-8")


def assert_same_run(out: Path, other: Path) -> None:
    assert losses(out) == losses(other)
    for name in ("model.safetensors", "tokenizer.json", "README.md"):
        assert (out / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.thorough
def test_the_change_is_recorded(six_steps: Path, whole: Path) -> None:
    assert losses(whole)[:6] == losses(six_steps) and len(losses(whole)) == STEPS
    assert (whole / "tokenizer.json").read_bytes() == (six_steps / "tokenizer.json").read_bytes()
    now = about(whole)
    assert now["corpus"]["train"] == ["old.src", "old.tgt", "more.src", "more.tgt"]
    assert now["corpus"]["pairs"] == 500
    assert {"step": 6, "added": ["more.src", "more.tgt"]} in now["changes"]
    rows = card(whole).splitlines()
    assert f"| changes | after step 6: added more.src, more.tgt, train.max_steps = {STEPS} instead of 6 |" in rows
    assert "| training data | old.src, old.tgt, more.src, more.tgt: 500 pairs (dropped: none) |" in rows


def test_without_the_files_the_run_differs(
    six_steps: Path, whole: Path, start: Start, cli: Any, tmp_path: Path
) -> None:
    out = copied(six_steps, tmp_path)
    assert cli(*start(), *MORE, "--out", out).code == 0
    assert losses(out)[:6] == losses(whole)[:6]
    assert losses(out)[6] != losses(whole)[6]


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_and_resumed_exactly(
    six_steps: Path, whole: Path, start: Start, files: Files, cli: Any, tmp_path: Path
) -> None:
    """Killed before and after the next checkpoint; the same command again, and then all files as --train."""
    out = copied(six_steps, tmp_path)
    command = [*start(), *MORE, "--add", *files["more"], "--out", str(out)]
    for step, more in ((7, ["--set", "train.checkpoint_every=1000"]), (10, [])):
        killed_at(out / "metrics.jsonl", [*command, *more], step)
    ran = cli(*start(*files["old"], *files["more"]), *MORE, "--out", out)
    assert ran.code == 0, ran.err
    assert "resuming after step " in ran.err and "to the training files" not in ran.err
    assert losses(out) == losses(whole)
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [one for one in about(out)["changes"] if "added" in one] == [{"step": 6, "added": ["more.src", "more.tgt"]}]


def test_the_same_command_adds_nothing_again(
    six_steps: Path, whole: Path, start: Start, files: Files, cli: Any, tmp_path: Path
) -> None:
    out = copied(whole, tmp_path)
    for checkpoint in sorted((out / "checkpoints").iterdir())[1:]:
        if checkpoint.name > "step-00000009":
            shutil.rmtree(checkpoint)
    ran = cli(*start(), *MORE, "--add", *files["more"], "--out", out)
    assert ran.code == 0, ran.err
    assert "resuming after step 9\n" in ran.err and "to the training files" not in ran.err
    assert_same_run(out, whole)


@pytest.mark.thorough
def test_before_the_first_checkpoint_the_run_starts_again(start: Start, files: Files, cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    never = ["train.max_steps=1000", "train.checkpoint_every=1000"]
    killed_at(out / "metrics.jsonl", [*start(), *never, "--out", str(out)], 2)
    tokenizer = (out / "tokenizer.json").read_bytes()
    ran = cli(*start(), *MORE, "--add", *files["more"], "--out", out)
    assert ran.code == 0, ran.err
    assert "adding more.src, more.tgt to the training files\n" in ran.err
    assert "no checkpoint yet: starting from step 0\n" in ran.err
    assert (out / "tokenizer.json").read_bytes() == tokenizer
    assert about(out)["corpus"]["pairs"] == 500 and "changes" not in about(out)
    assert len(losses(out)) == STEPS


@pytest.mark.thorough
def test_files_are_added_twice_and_by_two_processes(
    whole: Path, six_steps: Path, start: Start, files: Files, cli: Any, tmp_path: Path
) -> None:
    out = copied(six_steps, tmp_path)
    ran = cli(*start(), *MORE, "train.accumulate=2", "--add", *files["more"], "--devices", "2", "--out", out)
    assert ran.code == 0, ran.err
    assert [one["added"] for one in about(out)["changes"] if "added" in one] == [["more.src", "more.tgt"]]
    assert losses(out) == pytest.approx(losses(whole), rel=1e-3)
    both = [*files["more"], *files["last"]]
    ran = cli(*start(), *MORE, f"train.max_steps={STEPS + 3}", "--add", *both, "--out", out)
    assert ran.code == 0, ran.err
    assert "adding last.src, last.tgt to the training files: this epoch" in ran.err
    added = [one for one in about(out)["changes"] if "added" in one]
    assert [(one["step"], one["added"][0]) for one in added] == [(6, "more.src"), (STEPS, "last.src")]
    assert about(out)["corpus"]["pairs"] == 530


@pytest.mark.thorough
def test_held_out_pairs_stay_those_of_the_run(start: Start, files: Files, cli: Any, tmp_path: Path) -> None:
    out, held = tmp_path / "model", ["--valid", "10%"]
    assert cli(*start(), "train.max_steps=6", *held, "--out", out).code == 0
    before = about(out)["corpus"]
    ran = cli(*start(), *MORE, *held, "--add", *files["more"], "--out", out)
    assert ran.code == 0, ran.err
    after = about(out)["corpus"]
    assert after["valid_key"] == before["valid_key"] and after["held_out"]["taken"] == 30
    assert before["pairs"] < after["pairs"]
    assert after["pairs"] + after["held_out"]["dropped"] == 470
    refused = cli(*start(), *MORE, *held, "--out", out).complaint
    assert "the training files differ from those of the run (old.src, old.tgt, more.src, more.tgt); repeat " in refused
    assert refused.endswith("; repeat --add more.src more.tgt")
    assert cli(*start(), *MORE, *held, "--add", *files["more"], "--out", out).code == 0


def test_patience_counts_anew_when_files_are_added(start: Start, files: Files, cli: Any, tmp_path: Path) -> None:
    out, command = tmp_path / "model", [*start(), "train.patience=2", "train.validate_every=1", "train.max_steps=99"]
    command += ["train.learning_rate=1e-12", "--out", out]  # nothing improves
    assert "the validation stopped improving" in cli(*command).err
    steps = len(losses(out))
    assert "resuming after step" in cli(*command, "--resume").err and len(losses(out)) == steps < 20
    for _ in range(2):  # and the second time, nothing is new
        ran = cli(*command, "--resume", "--add", *files["more"])
        assert ran.code == 0 and "the validation stopped improving" in ran.err
        assert len(losses(out)) == steps + 2


@pytest.mark.thorough
def test_each_added_corpus_may_have_a_weight(start: Start, files: Files, cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    two = start(*files["old"], *files["last"])
    assert cli(*two, "train.max_steps=6", "data.weights=[1,3]", "--out", out).code == 0
    weights = ["--set", "data.weights=[1,3,2]"]
    refused = cli(*two, *MORE, *weights, "--out", out)
    assert refused.code == 2
    ran = cli(*two, *MORE, *weights, "--add", *files["more"], "--out", out)
    assert ran.code == 0, ran.err
    assert "pairs per epoch from " + " + ".join(files["more"]) in ran.err
    assert "data.weights = [1.0, 3.0, 2.0] instead of [1.0, 3.0] |" in card(out)
    assert cli(*two, *MORE, *weights, "--add", *files["more"], "--out", out).code == 0


def test_a_translation_memory_is_added(six_steps: Path, start: Start, cli: Any, tmp_path: Path) -> None:
    out, memory = copied(six_steps, tmp_path), tmp_path / "memory.tmx"
    sides = ("".join(f"<tuv xml:lang='{code}'><seg>{i} a</seg></tuv>" for code in ("en", "de")) for i in range(20))
    units = "".join(f"<tu>{both}</tu>" for both in sides)
    memory.write_text(f"<tmx version='1.4'><header srclang='en'/><body>{units}</body></tmx>", encoding="utf-8")
    for _ in range(2):
        ran = cli(*start(), *MORE, "--add", memory, "--out", out)
        assert ran.code == 0, ran.err
    assert [one["added"] for one in about(out)["changes"] if "added" in one] == [["memory.tmx"]]
    assert about(out)["corpus"]["pairs"] == 320


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["old", "more"], "files differ from those of the run (old.src, old.tgt); give new files with --add"),
        (["old", "more", "--add", "last"], "(old.src, old.tgt); give only new files with --add"),
        (["more"], "the training files differ from those of the run (old.src, old.tgt)"),
        (["more", "--add", "last"], "the training files differ from those of the run (old.src, old.tgt)"),
        (["valid.tsv", "--add", "more"], "the training files differ from those of the run (old.src, old.tgt)"),
        (["old", "--add", "more", "--set", "train.max_steps=6"], "the run has ended after train.max_steps = 6; set"),
        (["old", "--add", "more", "--seed", "7"], "train.seed was 1, now 7; use the run's --seed or"),
        (["old", "--add", "more", "--alignments", "valid"], "--add does not go with --alignments"),
    ],
)
def test_other_files_are_refused(
    given: list[str], complaint: str, six_steps: Path, start: Start, files: Files, cli: Any
) -> None:
    before = {file: file.read_bytes() for file in six_steps.rglob("*") if file.is_file()}
    links = "--alignments" in given
    words = [word for name in given for word in (files.get(name, [name])[: 1 if links else 2])]
    cut = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    ran = cli(*start(*words[:cut]), *MORE, *words[cut:], "--out", six_steps)
    assert complaint in ran.complaint
    assert {file: file.read_bytes() for file in six_steps.rglob("*") if file.is_file()} == before


def test_fewer_files_are_refused(whole: Path, start: Start, files: Files, cli: Any) -> None:
    told = cli(*start(), *MORE, "--out", whole).complaint
    assert "differ from those of the run (old.src, old.tgt, more.src, more.tgt); repeat --add more.src more" in told
    told = cli(*start(), *LONGER, "--add", *files["more"], "--out", whole).complaint
    assert "--add is for a run that --resume continues: a new run gets all files with --train" in told
    half = cli(*start(), *MORE, "--add", files["more"][0], "--out", whole).complaint
    assert "more.src: has no partner" in half


TEXT = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2", "data.vocab_size=275", "train.threads=1"]
TEXT += ["train.tokens_per_batch=200", "train.checkpoint_every=3", "train.log_every=1"]
BLOCKS = [*TEXT, "data.block_length=16"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory, task: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("texts")
    found = {name: folder / f"{name}.txt" for name in ("old", "more", "valid")}
    for path in found.values():
        size = 50 * len(path.stem)
        end = "\n\n" if path.stem == "more" else "\n"  # so a masked language model would read it in blocks
        path.write_text("".join(f"{src}{end}" for src, _ in task(size, size, longest=9)), encoding="utf-8")
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        (["gpt"], BLOCKS),
        (["bert"], BLOCKS),
        (["electra"], [*BLOCKS, "model.d_model=32"]),
        (["xlnet"], BLOCKS),
        (["tiny", "--task", "denoise"], [*TEXT, "train.validate_bleu=0"]),
    ],
    ids=["lm", "mlm", "rtd", "plm", "denoise"],
)
def test_models_of_text_get_more(
    recipe: list[str], settings: list[str], texts: dict[str, Path], cli: Any, tmp_path: Path
) -> None:
    command = ["train", "--recipe", *recipe, "--train", texts["old"], "--valid", texts["valid"], "--device", "cpu"]
    command += ["--set", *settings]
    more, outs = ["--resume", "--add", texts["more"], "--out"], [tmp_path / name for name in ("whole", "parted")]
    for out, last in zip(outs, (12, 9), strict=True):
        assert cli(*command, "train.max_steps=6", "--out", out).code == 0
        ran = cli(*command, f"train.max_steps={last}", *more, out)
        assert ran.code == 0, ran.err
        assert "adding more.txt to the training files: this epoch is planned anew" in ran.err
    assert cli(*command, "train.max_steps=12", *more, outs[1]).code == 0
    assert losses(outs[0]) == losses(outs[1])
    assert "after step 6: added more.txt" in card(outs[1])


def test_held_out_text_would_change(texts: dict[str, Path], cli: Any, tmp_path: Path) -> None:
    command = ["train", "--recipe", "gpt", "--train", texts["old"], "--valid", "10%", "--device", "cpu"]
    command += ["--out", tmp_path / "model", "--set", *BLOCKS]
    assert cli(*command, "train.max_steps=3").code == 0
    told = cli(*command, "train.max_steps=9", "--resume", "--add", texts["more"]).complaint
    assert "--valid 10% holds out part of --train, and --add would change it; train a new model on all files" in told


def test_a_network_that_depends_on_its_data_gets_no_more(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("good\tyes\nbad\tno\n" * 9, encoding="utf-8")
    run = ["train", "--recipe", "classify", "--train", path, "--valid", path, "--out", tmp_path / "model"]
    told = cli(*run, "--device", "cpu", "--resume", "--add", path).complaint
    assert "--add is for --task translate, denoise, lm, mlm, rtd, plm, not for classify" in told


def test_the_function_adds_files(six_steps: Path, files: Files, tmp_path: Path) -> None:
    out = copied(six_steps, tmp_path)
    settings = [*SETTINGS, "train.max_steps=9"]
    train(files["old"], files["valid"], out, "tiny", settings, True, "cpu", show=False, add=files["more"])
    assert about(out)["corpus"]["pairs"] == 500
