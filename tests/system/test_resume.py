"""Stop and resume: kill -9 at any moment, Ctrl-C, SIGTERM, a damaged checkpoint; the losses are those of one run."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from holding import Hold, last_step
from killing import killed_at
from programs import Program

from headwise.runtime.checkpoint.model_card import DECODING, with_row
from headwise.runtime.checkpoint.trained import read_settings, write_decoding

STEPS = 45
RECIPE = f"""
[model]
d_model = 16
d_ff = 32
n_heads = 2
n_encoder_layers = 1
n_decoder_layers = 1
dropout = 0.1

[data]
vocab_size = 275
bpe_dropout = 0.2
source_dropout = 0.1
both_directions = 0.33

[train]
max_steps = {STEPS}
tokens_per_batch = 300
accumulate = 2
learning_rate = 0.01
warmup_steps = 10
ema = 0.9
r_drop = 1.0
clip_norm = 1.0
log_every = 3
checkpoint_every = 5
validate_every = 14
validate_bleu = 3
average = 3
keep_last = 50
threads = 1

[decode]
beam_size = 2
max_length_factor = 1.0
max_length_extra = 3
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[str]:
    """The command of the run without its model directory."""
    folder = tmp_path_factory.mktemp("corpus")
    train, valid = write(folder / "train", task(700, 1)), write(folder / "valid", task(8, 2))
    (folder / "run.toml").write_text(RECIPE, encoding="utf-8")
    files = ["--train", *map(str, train), "--valid", *map(str, valid)]
    return ["train", "--recipe", str(folder / "run.toml"), "--device", "cpu", *files]


@pytest.fixture(scope="module")
def whole(command: list[str], cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "model"
    assert cli(*command, "--out", out).code == 0
    assert len(losses(out)) == STEPS // 3
    assert epochs(out)[-1] >= 3
    return out


@pytest.fixture
def start(command: list[str]) -> Iterator[Callable[..., Program]]:
    """Starts the run in its own process."""
    programs: list[Program] = []

    def run(out: Path, *more: str) -> Program:
        programs.append(Program([*command, *more, "--out", out]))
        return programs[-1]

    yield run
    for program in programs:
        program.kill()
        program.close()


def records(out: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]


def losses(out: Path) -> list[tuple[int, float, float]]:
    return [(record["step"], record["loss"], record["nll"]) for record in records(out)]


def epochs(out: Path) -> list[int]:
    return [record["epoch"] for record in records(out)]


def assert_same_run(out: Path, whole: Path) -> None:
    """Every loss, every validation and the exported model, bit for bit."""
    assert losses(out) == losses(whole)
    validations = [
        [(v["step"], v["loss"], v["bleu"], v["best"]) for v in records(path, "validation.jsonl")]
        for path in (out, whole)
    ]
    assert validations[0] == validations[1]
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.thorough
@pytest.mark.slow
def test_kill_9_before_the_first_checkpoint_and_within_an_epoch(
    whole: Path, start: Any, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    killed_at(out / "metrics.jsonl", [*command, "--set", "train.checkpoint_every=1000", "--out", out], 15)
    assert (out / "model.safetensors").exists()  # from the validation at step 14
    assert not list((out / "checkpoints").glob("step-*"))
    assert "already holds a run; add --resume" in cli(*command, "--out", out).complaint

    with Hold(out / "metrics.jsonl", 18) as hold:
        program = start(out, "--resume")
    hold.wait(program)
    program.kill()
    assert program.wait() == -signal.SIGKILL
    assert "no checkpoint yet: starting from step 0\n" in program.stderr.read()
    assert 18 <= last_step(out / "metrics.jsonl") < STEPS

    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0
    assert "resuming after step " in ran.err
    assert_same_run(out, whole)


@pytest.mark.thorough
@pytest.mark.slow
def test_two_trainings_into_one_folder(whole: Path, start: Any, command: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with Hold(out / "metrics.jsonl", 3) as hold:
        program = start(out)
    hold.wait(program)
    for more in ([], ["--resume"]):
        complaint = cli(*command, "--out", out, *more).complaint
        assert f"--out {out}: process {program.pid} on this machine trains into it" in complaint
    program.kill()
    program.wait()
    assert cli(*command, "--out", out, "--resume").code == 0
    assert_same_run(out, whole)
    assert not (out / ".lock").exists()


@pytest.mark.slow
def test_ctrl_c_and_sigterm_save_and_exit_cleanly(
    whole: Path, start: Any, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    resumed, last = list[str](), 0
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")):
        step = last + 6
        with Hold(out / "metrics.jsonl", step) as hold:
            program = start(out, *resumed, "--set", "train.checkpoint_every=1000")
        hold.wait(program)
        program.send_signal(number)
        hold.release()
        _, err = program.communicate()
        assert program.returncode == 0, err
        assert f"stopping ({name}): saving a checkpoint after this step\n" in err
        last = max(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").iterdir())
        assert step <= last < STEPS
        assert f"stopped after step {last}; add --resume to the same command to resume\n" in err
        resumed = ["--resume"]
    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0
    assert f"resuming after step {last}\n" in ran.err
    assert_same_run(out, whole)


@pytest.fixture
def with_full_disk(command: list[str]) -> Callable[..., str]:
    """Runs the training with a limit on the size of files, and returns its one line of error."""

    def run(limit: int, *more: str) -> str:
        program = Program([*command, *more], largest_file=limit)
        _, err = program.communicate()
        assert program.returncode == 2, err
        assert "Traceback" not in err
        return err.splitlines()[-1]

    return run


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_the_last_checkpoint(
    whole: Path, with_full_disk: Any, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    for path in (out / "checkpoints").iterdir():
        if path.name > "step-00000020":
            shutil.rmtree(path)
    room = (out / "checkpoints" / "step-00000020" / "training.safetensors").stat().st_size - 1
    message = with_full_disk(room, "--out", str(out), "--resume")
    full = out / "checkpoints" / "step-00000025"
    assert message.startswith(f"headwise: error: {full}: cannot be written (File too large); free some disk space")
    assert message.endswith("then resume with --resume; the last checkpoint is step-00000020")
    assert max(path.name for path in (out / "checkpoints").iterdir()) == "step-00000020"
    assert not list((out / "checkpoints").glob(".*"))
    assert cli(*command, "--out", out, "--resume").code == 0
    assert_same_run(out, whole)


@pytest.mark.thorough
@pytest.mark.slow
def test_no_space_for_the_first_model(whole: Path, with_full_disk: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    room = (whole / "model.safetensors").stat().st_size - 1
    message = with_full_disk(room, "--out", str(out), "--set", "train.checkpoint_every=1000")
    assert f"error: {out / 'model.safetensors'}: cannot be written (File too large); free some disk space" in message
    assert message.endswith("then start again with --resume; nothing was saved yet")
    assert {path.name for path in out.iterdir()} >= {"config.json", "tokenizer.json", "metrics.jsonl"}
    assert not list(out.glob(".*"))  # no temporary file, no lock


def test_no_space_for_tokenised_text(with_full_disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    message = with_full_disk(1000, "--out", str(tmp_path / "out"))
    assert (
        f"error: {tmp_path / 'cache'}: the cache cannot be used (File too large); free some space there or" in message
    )
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_checkpoint_is_skipped(whole: Path, command: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    newest, before = sorted((out / "checkpoints").iterdir(), reverse=True)[:2]
    content = bytearray((newest / "training.safetensors").read_bytes())
    content[-100] ^= 1
    (newest / "training.safetensors").write_bytes(content)
    with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 48, "lo')
    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0
    assert "checkpoint damaged, using the one before it" in ran.err
    assert newest.name in ran.err
    assert f"resuming after step {int(before.name.removeprefix('step-'))}\n" in ran.err
    assert_same_run(out, whole)


def content(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_model_without_checkpoints_is_never_replaced(
    whole: Path, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out, ignore=shutil.ignore_patterns("checkpoints"))
    before = content(out)
    complaint = cli(*command, "--out", out).complaint
    assert f"--out {out}: holds a model already; name another folder, or move the model away first" in complaint
    complaint = cli(*command, "--out", out, "--resume").complaint
    assert f"--out {out}: holds a model without checkpoints, so it cannot be resumed; name another folder" in complaint
    (out / "checkpoints").mkdir()  # as if only its contents had been deleted
    assert "cannot be resumed" in cli(*command, "--out", out, "--resume").complaint
    assert content(out) == before


def test_a_run_with_only_damaged_checkpoints_is_not_changed(
    whole: Path, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    paths = sorted((out / "checkpoints").iterdir())
    for path in paths:
        state = path / "state.json"
        state.write_text(state.read_text(encoding="utf-8").replace('"step": ', '"step": 1'), encoding="utf-8")
    before = content(out)
    for resume in ([], ["--resume"]):
        complaint = cli(*command, "--out", out, *resume).complaint
        damage = f"{paths[-1] / 'state.json'}: checksum does not match"
        assert f"--out {out}: all {len(paths)} checkpoints are damaged ({damage}), so the run cannot be" in complaint
        assert "restore one from a backup or train into another folder" in complaint and "--resume" not in complaint
    assert content(out) == before


def test_resuming_a_finished_run_changes_nothing(whole: Path, command: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0
    assert_same_run(out, whole)


def test_a_setting_tuned_for_earlier_weights_is_removed_and_named(
    whole: Path, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    settings, card = (whole / "generation_config.json").read_bytes(), (whole / "README.md").read_text(encoding="utf-8")
    decoding = replace(read_settings(out)[0].decode, length_penalty=1.25)
    write_decoding(out, decoding, lambda text: with_row(text, DECODING, "length penalty 1.25"))
    assert "1.25" in (out / "README.md").read_text(encoding="utf-8")
    ran = cli(*command, "--out", out, "--resume")
    assert "decode.length_penalty was 1.25, now 0.6: restored the settings of the run" in ran.err
    assert (out / "generation_config.json").read_bytes() == settings
    assert (out / "README.md").read_text(encoding="utf-8") == card
    assert "settings of the run" not in cli(*command, "--out", out, "--resume").err


def copy_after_step_10(run: Path, folder: Path) -> Path:
    """A copy of a run whose newest checkpoint is that of step 10."""
    out = folder / "model"
    shutil.copytree(run, out)
    for checkpoint in (out / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > 10:
            shutil.rmtree(checkpoint)
    return out


@pytest.mark.thorough
def test_changes_that_are_not_numerical_keep_every_bit(
    whole: Path, command: list[str], cli: Any, tmp_path: Path
) -> None:
    out = copy_after_step_10(whole, tmp_path)
    settings = ["train.recompute=true", "train.checkpoint_every=20", "train.average=1"]
    ran = cli(*command, "--set", *settings, "--out", out, "--resume")
    assert ran.code == 0, ran.err
    assert "train.recompute was False, now True: results stay the same\n" in ran.err
    assert_same_run(out, whole)
    row = "| changes | after step 10: train.checkpoint_every = 20 instead of 5, train.average = 1 instead of 3, train."
    assert f"{row}recompute = True instead of False |" in (out / "README.md").read_text(encoding="utf-8")


def test_more_steps_resume_from_the_end(whole: Path, command: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shutil.copytree(whole, out)
    assert cli(*command, "--set", f"train.max_steps={STEPS + 4}", "--out", out, "--resume").code == 0
    assert losses(out)[:-1] == losses(whole)
    assert losses(out)[-1][0] == STEPS + 3


def test_a_run_that_ends_before_its_first_validation_is_validated(
    whole: Path, command: list[str], cli: Any, tmp_path: Path
) -> None:
    """It was interrupted, and is resumed with fewer steps."""
    out = copy_after_step_10(whole, tmp_path)
    for name in ("model.safetensors", "SHA256SUMS", "validation.jsonl", "README.md"):
        (out / name).unlink()
    ran = cli(*command, "--set", "train.max_steps=10", "--out", out, "--resume")
    assert ran.code == 0, ran.err
    assert [record["step"] for record in records(out, "validation.jsonl")] == [10]
    assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--set", "model.d_model=32"], "model.d_model was 16, now 32; use the run's --set or"),
        (["--seed", "2"], "train.seed was 1, now 2; use the run's --seed or"),
        (["--recipe", "tiny"], "; use the run's --recipe run or"),
        (["--set", "data.vocab_size=300"], "data.vocab_size was 275, now 300"),
    ],
)
def test_another_run_is_not_resumed(more: list[str], complaint: str, whole: Path, command: list[str], cli: Any) -> None:
    before = {file: file.read_bytes() for file in whole.rglob("*") if file.is_file()}
    told = cli(*command, *more, "--out", whole, "--resume").complaint
    assert complaint in told
    assert str(whole) in told
    assert {file: file.read_bytes() for file in whole.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("option", "what"), [("--train", "training"), ("--valid", "validation")])
def test_a_run_is_not_resumed_with_other_files(
    option: str, what: str, whole: Path, command: list[str], cli: Any, tmp_path: Path, task: Any, write: Any
) -> None:
    other = write(tmp_path / "other", task(700, 9))
    at = command.index(option) + 1
    changed = [*command[:at], *map(str, other), *command[at + 2 :]]
    assert f"the {what} files differ from those" in cli(*changed, "--out", whole, "--resume").complaint
