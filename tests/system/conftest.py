"""The program as users run it: files in, files out, on the command line and through the two public functions.

One small model, trained once to copy letters, serves every test that needs any model.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from programs import Program

import headwise
from headwise.cli import main
from headwise.lock import exclusive

Pairs = list[tuple[str, str]]
RECIPE = """
[model]
d_model = 48
d_ff = 96
n_heads = 4
n_encoder_layers = 1
n_decoder_layers = 1
dropout = 0.0
norm_position = "post"

[data]
vocab_size = 280

[train]
tokens_per_batch = 700
learning_rate = 0.007
warmup_steps = 50
schedule = "linear"
label_smoothing = 0.0
validate_bleu = 0
average = 1
threads = 1
log_every = 50

[decode]
beam_size = 5
length_penalty = 0.6
max_length_factor = 1.0
max_length_extra = 3
"""


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of the output; each ends with a line feed."""
        *lines, rest = self.out.split("\n")
        assert rest == ""
        return lines

    @property
    def complaint(self) -> str:
        """The one-line error of exit code 2; progress may come before it, nothing after it."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        assert self.err.count("headwise: error: ") == 1
        assert self.err.endswith("\n")
        line = self.err.replace("\r", "\n").splitlines()[-1]
        assert line.startswith("headwise: error: ")
        return line


@pytest.fixture(scope="session")
def cli() -> Callable[..., Ran]:
    """Runs the command line in this process."""

    def run(*arguments: Any, stdin: bytes = b"") -> Ran:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = main([str(argument) for argument in arguments])
        finally:
            sys.stdin = before
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
        return Ran(code, *texts)

    return run


@pytest.fixture(scope="session")
def task() -> Callable[..., Pairs]:
    """Makes pairs of a toy task: letters, and the letters after `change`."""

    def make(n: int, seed: int, change: Callable[[list[str]], Sequence[str]] = list, longest: int = 6) -> Pairs:
        rng = Random(seed)
        words = [[rng.choice("abcdefghij") for _ in range(rng.randint(1, longest))] for _ in range(n)]
        return [(" ".join(letters), " ".join(change(letters))) for letters in words]

    return make


@pytest.fixture(scope="session")
def write() -> Callable[[Path, Pairs], list[Path]]:
    """Writes pairs into two aligned files, `NAME.src` and `NAME.tgt`."""

    def write_aligned(stem: Path, pairs: Pairs) -> list[Path]:
        stem.parent.mkdir(parents=True, exist_ok=True)
        paths = [stem.with_suffix(".src"), stem.with_suffix(".tgt")]
        for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
            path.write_bytes("".join(line + "\n" for line in side).encode())
        return paths

    return write_aligned


@pytest.fixture(scope="session")
def learn(
    tmp_path_factory: pytest.TempPathFactory, task: Callable[..., Pairs], write: Callable[[Path, Pairs], list[Path]]
) -> Callable[..., tuple[headwise.Model, Path]]:
    """Trains a model with one layer a side on a toy task, in its own process; checking shapes halves the speed."""

    def train(change: Callable[[list[str]], Sequence[str]], steps: int) -> tuple[headwise.Model, Path]:
        folder = tmp_path_factory.mktemp("learn")
        recipe = folder / "toy.toml"
        recipe.write_text(RECIPE, encoding="utf-8")
        train, valid = write(folder / "train", task(6000, 1, change)), write(folder / "valid", task(100, 2, change))
        files = ["--train", *train, "--valid", *valid, "--recipe", recipe, "--out", folder / "model"]
        with Program(["train", *files, "--device", "cpu", "--set", f"train.max_steps={steps}"]) as program:
            _, err = program.communicate()
        assert program.returncode == 0, err
        return headwise.load(folder / "model", device="cpu"), folder / "model"

    return train


@pytest.fixture(scope="session")
def copying(
    learn: Callable[..., tuple[headwise.Model, Path]], tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> tuple[headwise.Model, Path]:
    """A trained copying model and its directory; read only. One training serves all test processes."""
    own = tmp_path_factory.getbasetemp()
    link = (own if worker_id == "master" else own.parent) / "copying"
    with exclusive(link.parent):
        if not link.exists():
            link.symlink_to(learn(list, steps=500)[1])
    return headwise.load(link.resolve(), device="cpu"), link.resolve()


@pytest.fixture(scope="session")
def pace(model_path: Path) -> float:
    """Seconds in which a command starts, loads the model and translates here and now, half a second at least.

    Limits of time are multiples of it: about ten for work, which on a quiet machine takes one.
    """
    begin = time.monotonic()
    with Program(["translate", model_path, Path(__file__).with_name("line.txt"), "-o", os.devnull]) as program:
        _, err = program.communicate()
    assert program.returncode == 0, err
    return max(0.5, time.monotonic() - begin)


@pytest.fixture(scope="session")
def model_path(copying: tuple[headwise.Model, Path]) -> Path:
    """The directory of the shared model; read only."""
    return copying[1]
