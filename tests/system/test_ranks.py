"""Several processes that train one model, as users start them: compared with one process; killed, stopped, hung,
resumed.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from holding import Hold
from killing import records
from safetensors.torch import load_file
from together import Program, group

import headwise
from headwise.cli import parse
from headwise.errors import UserError
from headwise.pytorch.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.distributed
STEPS = 24
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

[train]
max_steps = {STEPS}
tokens_per_batch = 300
learning_rate = 0.01
warmup_steps = 10
r_drop = 1.0
log_every = 3
checkpoint_every = 5
validate_every = 12
validate_bleu = 40
average = 3
keep_last = 50
threads = 1
timeout = 60.0

[decode]
beam_size = 2
max_length_factor = 1.0
max_length_extra = 3
"""
PLAIN = ["--set", "model.dropout=0.0", "train.average=1"]  # then one process gives the expected result
TORCHRUN = ["-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nproc-per-node=2"]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[str]:
    """The command of the run without its model directory."""
    folder = tmp_path_factory.mktemp("corpus")
    train, valid = write(folder / "train", task(500, 1)), write(folder / "valid", task(45, 2))
    (folder / "run.toml").write_text(RECIPE, encoding="utf-8")
    files = ["--train", *map(str, train), "--valid", *map(str, valid)]
    return ["-m", "headwise", "train", "--recipe", str(folder / "run.toml"), "--device", "cpu", *files]


@pytest.fixture
def holding(command: list[str]) -> list[str]:
    """The same command of a program that stops at the moment of a `Hold`."""
    return ["-m", "holding", *command[2:]]


@pytest.fixture
def start() -> Iterator[Callable[[Sequence[object]], "Program[str]"]]:
    """Starts a program in its own session, which ends with the test."""
    programs: list[Program[str]] = []

    def popen(arguments: Sequence[object]) -> "Program[str]":
        words = [sys.executable, *map(str, arguments)]
        programs.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True))
        return programs[-1]

    yield popen
    for program in programs:
        with program:  # which closes its pipe
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)


def losses(out: Path) -> list[tuple[int, float, float]]:
    return [(record["step"], record["loss"], record["nll"]) for record in records(out, "metrics.jsonl")]


def processes_of(program: "Program[str]") -> list[int]:
    """The ranks started by a launcher, in order."""
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    named = {int(pid): Path(f"/proc/{pid}/environ").read_bytes() for pid in children}
    ranks = {int(env.split(b"\0RANK=")[1].split(b"\0")[0]): pid for pid, env in named.items() if b"\0RANK=" in env}
    return [ranks[rank] for rank in sorted(ranks)]


def finished(program: "Program[str]") -> str:
    log = program.communicate()[1]
    assert program.returncode == 0, log
    return log


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run of two processes, with dropout."""
    out = tmp_path_factory.mktemp("whole") / "model"
    with group(2, [*command, "--out", out]) as programs:
        logs = [program.communicate()[1] for program in programs]
    assert [program.returncode for program in programs] == [0, 0], logs
    assert ["finished after step" in text for text in logs] == [True, False]  # only one process reports
    return out


@pytest.mark.slow
def test_a_killed_rank_is_started_again(whole: Path, holding: list[str], start: Any, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with Hold(out / "metrics.jsonl", 9) as hold:
        program = start([*TORCHRUN, "--max-restarts=1", *holding, "--out", out])
    hold.wait(program)
    os.kill(processes_of(program)[1], signal.SIGKILL)
    hold.release()
    log = finished(program)
    assert "resuming after step " in log
    assert losses(out) == losses(whole)  # bit for bit, and each line once
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert not list(out.glob(".*"))


@pytest.mark.slow
def test_python_starts_the_same_run(whole: Path, command: list[str], tmp_path: Path) -> None:
    out = tmp_path / "model"
    asked = parse([*command[2:], "--out", str(out)])
    files = asked.train, asked.valid, out
    model = headwise.train(*files, recipe=asked.recipe, device="cpu", show=False, devices=2)
    assert model.info()["parameters"]
    assert losses(out) == losses(whole)  # bit for bit
    with pytest.raises(UserError, match="devices = 0: must be at least 1"):
        headwise.train(*files, recipe=asked.recipe, devices=0)


@pytest.mark.slow
def test_one_process_resumes_a_run_of_two(
    command: list[str], cli: Any, holding: list[str], start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0")  # torch's launcher kills what it has to end
    one, out = tmp_path / "one", tmp_path / "two"
    alone = [*command[2:], *PLAIN, "--set", "train.accumulate=2"]
    assert cli(*alone, "--out", one).code == 0
    with Hold(out / "metrics.jsonl", 6) as hold:
        program = start([*holding, *PLAIN, "--devices", 2, "--out", out, "--set", "train.checkpoint_every=1000"])
    hold.wait(program)
    program.terminate()
    hold.release()
    assert "stopping (SIGTERM): saving a checkpoint after this step\n" in finished(program)
    saved = [path.name for path in (out / "checkpoints").iterdir()]
    assert len(saved) == 1 and int(saved[0].removeprefix("step-")) < STEPS
    ran = cli(*command[2:], *PLAIN, "--out", out, "--resume", "--set", "train.checkpoint_every=1000")
    assert ran.code == 0, ran.err
    assert "resuming with 1 ranks a run of 2: rounding and dropout will differ\n" in ran.err
    assert [step for step, *_ in losses(out)] == [step for step, *_ in losses(one)]
    for ours, theirs in zip(losses(out), losses(one), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    for ours, theirs in zip(*(records(path, "validation.jsonl") for path in (out, one)), strict=False):
        assert (ours["loss"], ours["bleu"]) == pytest.approx((theirs["loss"], theirs["bleu"]), rel=0.02)


@pytest.mark.slow
def test_a_sharded_run_stopped_before_its_first_validation_exports_all_weights(
    holding: list[str], start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0")
    out, later = tmp_path / "model", ["train.shard=full", "train.validate_every=1000", "train.max_steps=1000"]
    with Hold(out / "metrics.jsonl", 6) as hold:
        program = start([*holding, *PLAIN, *later, "--devices", 2, "--out", out])
    hold.wait(program)
    program.terminate()
    hold.release()
    assert "not validated\n" in finished(program)
    exported = load_file(out / "model.safetensors")
    *_, path = sorted((out / "checkpoints").iterdir())
    stored = load_checkpoint(path).model
    for name, weights in exported.items():
        torch.testing.assert_close(weights, stored[name], rtol=0, atol=0)
    assert headwise.load(out).translate(["a b"])


@pytest.mark.slow
def test_two_sharded_processes_resume_a_run_of_one(command: list[str], cli: Any, start: Any, tmp_path: Path) -> None:
    """Its update has one batch, which becomes two; and back."""
    out, shards = tmp_path / "model", ["--devices", 2, "--set", "train.shard=full"]
    assert cli(*command[2:], "--set", "train.max_steps=10", "--out", out).code == 0
    log = finished(start([*command, *shards, "train.max_steps=17", "--out", out, "--resume"]))
    assert "an update has 2 batches of 150 tokens, before 1 of 300: as many tokens; this epoch is planned anew" in log
    assert "resuming with 2 ranks a run of 1: rounding and dropout will differ\n" in log
    assert len([*(out / "checkpoints" / "step-00000017").iterdir()]) == 5
    ran = cli(*command[2:], "--out", out, "--resume")
    assert ran.code == 0, ran.err
    assert "resuming with 1 ranks a run of 2" in ran.err and "an update has" not in ran.err
    assert [step for step, *_ in losses(out)] == [*range(3, STEPS + 1, 3)]
    changes = [change for change in headwise.load(out).info()["changes"] if change["name"] == "ranks"]
    assert [(change["step"], change["now"]) for change in changes] == [(10, 2), (17, 1)]


@pytest.mark.slow
def test_a_hang_ends_and_names_the_rank_the_place_and_the_time(holding: list[str], tmp_path: Path) -> None:
    out = tmp_path / "model"
    many = ["--set", "train.timeout=4", "train.max_steps=100000", "train.validate_every=100000"]
    with Hold(out / "metrics.jsonl", 3) as hold, group(2, [*holding, *many, "--out", out]) as (first, second):
        hold.wait(first)
        second.send_signal(signal.SIGSTOP)
        hold.release()
        log = first.communicate()[1]
        assert first.returncode == 2
    last = log.splitlines()[-1]
    assert (
        last.startswith("headwise: error: rank 0 of 2: step ") and "rank 1 did not answer (waited 4 s at most" in last
    )
    assert ", the sum of the " in last or "checkpoint" in last


def test_errors_are_reported_once(
    command: list[str], cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    short = ["--set", "model.positions=learned", "model.max_len=4"]
    complaint = cli(
        *command[2:], *short, "--devices", 2, "--out", tmp_path / "a"
    ).complaint  # found by its processes only
    assert "model.max_len = 4 is less than data.max_length" in complaint
    assert not (tmp_path / "a").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    complaint = cli(*command[2:], "--devices", 2, "--out", tmp_path / "a").complaint
    assert "--devices 2: torchrun has already started the processes" in complaint
    monkeypatch.delenv("RANK", raising=False)
    complaint = cli(*command[2:], "--out", tmp_path / "a").complaint
    assert "WORLD_SIZE is set, but not what torchrun sets with it" in complaint


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (["train.shard=full", "train.optimizer=muon"], "train.shard = full: needs train.optimizer = adam"),
        (["train.shard=full", "train.reduce=bf16"], "train.reduce = bf16: sharded gradients are summed in float32"),
        (["train.shard=offload"], "train.shard = offload needs CUDA devices"),
    ],
)
def test_options_that_exclude_sharding(
    settings: list[str], refusal: str, command: list[str], cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One process could be started by torchrun; without torchrun, sharding is always refused."""
    asked = [*command[2:], "--out", tmp_path / "a", "--set", *settings]
    assert f"{settings[0].replace('=', ' = ')} is for several processes: start them" in cli(*asked).complaint
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    assert refusal in cli(*asked).complaint


def test_the_file_for_slurm_is_a_shell_script_whose_command_parses() -> None:
    script = Path(__file__).parents[2] / "docs" / "clusters" / "slurm.sh"
    subprocess.run(["bash", "-n", script], check=True)
    line = script.read_text(encoding="utf-8").replace("\\\n", " ").split("-m headwise ")[1]
    assert parse(shlex.split(line)[:-1]).devices == 1
