"""Ctrl-C and SIGTERM, sent to real programs during work that would take more than a minute."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from programs import Program

from headwise.runtime.native.library import library

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="measures with /proc")
SOON = 10.0  # seconds of processor time until the program ends; its work would take a minute
SEARCH = """
import sys
import torch
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.runtime.search.engine import decode_tokens
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.compiled import pack_network

threads, compute = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(threads)
shape = {"vocab_size": 4000, "d_model": 256, "d_ff": 1024, "n_encoder_layers": 1, "n_decoder_layers": 3}
model = pack_network(build_model(TransformerConfig(**shape)), compute)
sources = [[5] * 20] * 150
config = SearchSettings(beam_size=4, min_length_factor=90.0, max_length_factor=100.0, batch_tokens=15000 // threads)
print("begin", flush=True)
decode_tokens(engine_of(model), sources, config)
print("end", flush=True)
"""
STEPS = """
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.runtime.search.engine import begin
from headwise.runtime.search.request import SearchRequest
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.compiled import pack_network

shape = {"vocab_size": 4000, "d_model": 256, "d_ff": 1024, "n_encoder_layers": 1, "n_decoder_layers": 3}
model = pack_network(build_model(TransformerConfig(**shape)), "int8")
config = SearchSettings(beam_size=4, min_length_factor=9000.0, max_length_factor=10000.0)
search = begin(model, SearchRequest([[5] * 20], [[]], config, SpecialIds()))
assert search.advance()
print("begin", flush=True)
try:
    while search.advance():
        pass
except KeyboardInterrupt:
    assert search.advance(), "a search that was interrupted between two steps goes on"
    raise
print("end", flush=True)
"""
RECIPE = """
[model]
d_model = 128
d_ff = 256
n_heads = 2
n_encoder_layers = 1
n_decoder_layers = 3
dropout = 0.0

[data]
vocab_size = 2000

[train]
max_steps = 3
tokens_per_batch = 200
log_every = 1
validate_every = 1
validate_bleu = 3000
threads = 1

[decode]
beam_size = 12
batch_tokens = 40000
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program and reads its output."""
    programs: list[subprocess.Popen[str]] = []

    def popen(*arguments: str) -> "subprocess.Popen[str]":
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        programs.append(subprocess.Popen([sys.executable, *arguments], **pipes))
        return programs[-1]

    yield popen
    for program in programs:
        program.kill()
        program.communicate()


def answer(program: "Program | subprocess.Popen[str]", number: signal.Signals) -> tuple[float, str]:
    """The processor time in seconds that the program takes after a signal until it ends, and its output."""
    assert program.poll() is None, program.communicate()[1]
    before = last = processor_time(program.pid)
    program.send_signal(number)
    while program.poll() is None:
        last = max(last, processor_time(program.pid))
        time.sleep(0.01)
    return last - before, program.communicate()[1]


def processor_time(process: int) -> float:
    """The seconds that a process has computed, on all processors; 0 after it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.few(1)
@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
@pytest.mark.parametrize(("threads", "compute"), [(1, "float32"), (2, "int8")])
def test_ctrl_c_ends_a_batch_of_the_compiled_search(start: Start, threads: int, compute: str) -> None:
    program = start("-c", SEARCH, str(threads), compute)
    assert program.stdout and program.stdout.readline() == "begin\n"
    time.sleep(1)
    seconds, err = answer(program, signal.SIGINT)
    assert err.endswith("KeyboardInterrupt\n") and program.returncode == -signal.SIGINT
    assert seconds < SOON


@pytest.mark.thorough
@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
def test_ctrl_c_between_two_steps_of_a_search(start: Start) -> None:
    program = start("-c", STEPS)
    assert program.stdout and program.stdout.readline() == "begin\n"
    time.sleep(1)
    seconds, err = answer(program, signal.SIGINT)
    assert err.endswith("KeyboardInterrupt\n") and program.returncode == -signal.SIGINT
    assert seconds < SOON


def lines(path: Path, sentences: Sequence[Sequence[str]]) -> list[str]:
    for name, side in zip(("src", "tgt"), zip(*sentences, strict=True), strict=True):
        path.with_suffix(f".{name}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return [str(path.with_suffix(f".{name}")) for name in ("src", "tgt")]


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [6, 0.5])
def test_sigterm_ends_a_validation(task: Any, tmp_path: Path, seconds: float) -> None:
    """Early and late: during the loss, or during the search of an untrained model."""
    train, valid = lines(tmp_path / "train", task(200, 1)), lines(tmp_path / "valid", task(3000, 2, longest=60))
    (tmp_path / "run.toml").write_text(RECIPE, encoding="utf-8")
    out = tmp_path / "model"
    files = ["--train", *train, "--valid", *valid, "--recipe", str(tmp_path / "run.toml"), "--out", str(out)]
    with Program(["train", *files, "--device", "cpu"]) as program:
        while not (out / "metrics.jsonl").is_file() or "\n" not in (out / "metrics.jsonl").read_text():
            assert program.poll() is None, program.communicate()[1]
            time.sleep(0.01)
        time.sleep(seconds)
        took, err = answer(program, signal.SIGTERM)
    assert program.returncode == 0 and "stopping (SIGTERM): saving a checkpoint after this step\n" in err, err
    assert "stopped after step 1; add --resume to the same command to resume" in err
    assert not (out / "validation.jsonl").exists() and "validating" not in err  # progress is shown on terminals only
    state = json.loads((out / "checkpoints" / "step-00000001" / "state.json").read_text())
    assert state["validation_due"] is True
    assert f"so far, the model in {out} is that of step 1, not validated\n" in err
    card = (out / "README.md").read_text(encoding="utf-8")
    assert (out / "model.safetensors").is_file() and "| weights | step 1, not validated |" in card
    assert took < SOON
