"""A cluster of processes of `ray start` with a token, whose second machine has no model or another one.

The model is at /proc/self/cwd/model: the same path on both machines, and a folder of each one's own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI

import headwise

pytestmark = pytest.mark.distributed

TOKEN = "0123456789abcdef" * 4
MODEL = "/proc/self/cwd/model"


def variables(home: Path, **more: str) -> dict[str, str]:
    """The environment of a machine with its own home and temporary folder."""
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home), "TMPDIR": str(home), **more}


@contextmanager
def machine(folder: Path, *arguments: str, **more: str) -> Iterator[None]:
    """`ray start` in `folder`, until the block ends."""
    start = ["ray", "start", *arguments, "--disable-usage-stats", "--block", "--temp-dir", str(folder)]
    environment = variables(folder, RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", **more)
    with (folder / "log").open("wb") as log, subprocess.Popen(start, cwd=folder, env=environment, stdout=log) as ray:
        try:
            yield
            assert ray.poll() is None, (folder / "log").read_text()
        finally:
            ray.send_signal(signal.SIGTERM)
            ray.wait()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Its path is short, because the paths of Ray's sockets are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def cluster(folder: Path, model_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """The address and the folders of two machines; only the second one has a processor for workers."""
    pytest.importorskip("ray")
    head, second = folder / "1", folder / "2"
    for one in (head, second):
        (one / ".ray").mkdir(parents=True)
        (one / ".ray" / "auth_token").write_text(TOKEN)
    shutil.copytree(model_path, head / "model")
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    beginning = ("--head", "--port", str(port), "--num-cpus=0", "--include-dashboard=false")
    with machine(head, *beginning):
        while b"Ray runtime started" not in (head / "log").read_bytes():
            time.sleep(0.1)
        with machine(second, f"--address={address}", "--num-cpus=1", RAY_AUTH_MODE="token"):
            yield address, head, second


def translate(cluster: tuple[str, Path, Path], lines: list[str], **more: str) -> "subprocess.CompletedProcess[str]":
    """`headwise translate --ray` on the first machine."""
    address, head, _ = cluster
    (head / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "headwise", "translate", MODEL, "in.txt", "--device", "cpu", "--ray", address]
    environment = variables(head, PYTHONPATH=os.pathsep.join(sys.path)) | more
    return subprocess.run(command, cwd=head, env=environment, capture_output=True, text=True, check=False)


def test_a_machine_without_the_model_or_with_another_one_receives_it(
    cluster: tuple[str, Path, Path], model_path: Path, task: Callable[..., Any]
) -> None:
    _, head, second = cluster
    lines = [source for source, _ in task(40, 36)]
    expected = "".join(f"{one.text}\n" for one in headwise.load(model_path, "cpu").translate(lines))
    ran = translate(cluster, lines)
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr
    (copy,) = second.glob("headwise-models-*/*/model.safetensors")
    assert copy.read_bytes() == (head / "model" / "model.safetensors").read_bytes()

    shutil.copytree(model_path, second / "model")
    weights = second / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096] + bytes(4096))
    subprocess.run([sys.executable, "-m", "headwise", "seal", second / "model"], check=True)
    assert headwise.load(second / "model", "cpu").translate(lines) != headwise.load(model_path, "cpu").translate(lines)
    copy.write_bytes(weights.read_bytes())  # a damaged copy is replaced
    (copy.parent / "SHA256SUMS").write_text((second / "model" / "SHA256SUMS").read_text())
    ran = translate(cluster, lines)
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr
    assert copy.read_bytes() == (head / "model" / "model.safetensors").read_bytes()


def test_a_replica_on_a_machine_without_the_model_receives_it(
    cluster: tuple[str, Path, Path], model_path: Path, task: Callable[..., Any]
) -> None:
    address, head, second = cluster
    for kept in (*second.glob("headwise-models-*"), second / "model"):
        shutil.rmtree(kept, ignore_errors=True)
    lines = [source for source, _ in task(3, 37)]
    served = ["serve", MODEL, "--languages", "en-de", "--port", "0", "--ray", address, "--device", "cpu"]
    command = [sys.executable, "-m", "headwise", *served]
    environment = variables(head, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(command, cwd=head, env=environment, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr
            started = next(json.loads(line) for line in program.stderr if line.startswith("{"))
            client = LibreTranslateAPI(started["url"])
            found = [client.translate(line, "en", "de") for line in lines]
            program.send_signal(signal.SIGTERM)
            assert program.wait(60) == 0
        finally:
            program.kill()
    assert found == [one.text for one in headwise.load(model_path, "cpu").translate(lines)]
    assert [*second.glob("headwise-models-*/*/model.safetensors")]


def test_a_machine_that_cannot_receive_the_model_is_named(cluster: tuple[str, Path, Path]) -> None:
    _, _, second = cluster
    shutil.rmtree(second / "model", ignore_errors=True)
    for copies in second.glob("headwise-models-*"):
        shutil.rmtree(copies)
    blocked = second / f"headwise-models-{os.getuid()}"
    blocked.write_text("a file where a folder should be")
    ran = translate(cluster, ["a b"])
    blocked.unlink()
    line = ran.stderr.splitlines()[-1]
    assert ran.returncode == 2 and line.startswith("headwise: error: --ray: "), ran.stderr
    assert f"{blocked}" in line and "cannot be written" in line and "(1" in line


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "this machine has none"),
        ({"RAY_AUTH_MODE": "token"}, "this machine has none"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "nowhere"}, "this machine has none"),
        ({"RAY_AUTH_TOKEN": TOKEN[::-1]}, "this machine has another one"),
    ],
)
def test_a_missing_or_wrong_token_is_one_line(
    cluster: tuple[str, Path, Path], tmp_path: Path, given: dict[str, str], reason: str
) -> None:
    ran = translate(cluster, ["a b"], HOME=str(tmp_path), **given)
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2 and ran.stdout == ""
    assert f"--ray {cluster[0]}: the cluster requires its token, and {reason}; copy ~/.ray/auth_token" in line
