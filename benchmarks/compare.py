"""Two versions of Headwise in turns: how many times as fast the working tree is as an earlier commit.

    make bench-compare BASE=REV [ARGS='--only greedy train-base --turns 9']

REV is a commit, branch or tag. Its sources go to `build/compare`, with a C library of their own. Each version has a
process for each row, which uses the version's own benchmark modules. In a turn both do the same work once (`turns.py`),
with one thread. The table shows medians of the seconds, and median and quartiles of the ratios within a turn: more than
1 means that the working tree is faster. "Same results" compares translated tokens, or losses.
"""

import argparse
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import machine
from machine import ROOT
from turns import speed_ratio, take_turns

NATIVE = Path("src/headwise/runtime/native")
WARM_UP = 2
Reply = tuple[float, int, str]  # seconds, peak memory in bytes, a digest of the results
Work = Callable[[int], Reply]  # of the turn with this number
BASE, TREE = "base", "working tree"


# --- Rows: what the process of a version does. Modules are those of the version, hence the imports in functions ---


def translations(beam: int, batch: int, sentences: int, folder: Path, turns: int) -> Work:
    """Translations in int8 by a model with random parameters, outputs of a forced length."""
    import decoders
    import decoding
    import exports
    from workers import Worker

    size = machine.pick("base", "tiny")
    exports.random_model(size, folder)
    count = machine.pick(sentences, 2)
    sources = decoding.random_turns(WARM_UP + turns, count, decoding.SIZES[size].vocab_size)
    job = decoders.Job(beam, batch, decoding.FORCED)
    return partial(reply_of, Worker(decoders.ours, folder, "int8", keep_memory=True), sources, job)


def reply_of(worker: Any, sources: Any, job: Any, turn: int) -> Reply:
    """The translations of a turn by a `Worker`."""
    reply = worker(sorted(sources[WARM_UP + turn], key=len), job)
    return reply.seconds, reply.peak_bytes, repr(reply.value)


def updates(size: str, folder: Path, turns: int) -> Work:
    """One training step."""
    from training_contenders import contender
    from workers import Worker

    worker = Worker(contender, "ours", machine.pick(size, "tiny"), WARM_UP + turns, keep_memory=True)

    def work(turn: int) -> Reply:
        reply = worker(WARM_UP + turn)
        return reply.seconds, reply.peak_bytes, repr(reply.value)

    return work


def cold_starts(name: str, folder: Path, turns: int) -> Work:
    """A new process that translates one sentence."""
    import decoding
    import exports

    exports.random_model(machine.pick("base", "tiny"), folder)
    decoding.pack_all(folder / "headwise", folder / "packed")
    code = decoding.COLD[name].format(ours=str(folder / "headwise"), packed=str(folder / "packed"))
    return commands(code, folder, turns)


def commands(code: str, folder: Path, turns: int) -> Work:
    """A new interpreter that runs `code`, with byte code in `folder`."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    peak = "; print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"

    def work(turn: int) -> Reply:
        started = machine.children_now()
        done = subprocess.run(
            [sys.executable, "-c", code + peak], check=True, stdout=subprocess.PIPE, text=True, env=os.environ | kept
        )
        return machine.children_now() - started, 1024 * int(done.stdout.split()[-2]), ""

    return work


ROWS: dict[str, Callable[[Path, int], Work]] = {
    "greedy": partial(translations, 1, 64, 128),
    "beam4": partial(translations, 4, 32, 64),
    "single": partial(translations, 1, 1, 8),
    "train-d256": partial(updates, "d256"),
    "train-base": partial(updates, "base"),
    "cold-int8": partial(cold_starts, "ours int8"),
    "cold-float32": partial(cold_starts, "ours float32"),
    "import": partial(commands, "import headwise"),
}


def serve(row: str, turns: int) -> None:
    """Answer the number of each turn, a line of the input, with a line of JSON."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not get between the replies
    with tempfile.TemporaryDirectory() as folder:
        work = ROWS[row](Path(folder), turns)
        for line in sys.stdin:
            print(json.dumps(work(int(line))), file=replies, flush=True)


# --- Versions ---


def git(*arguments: str) -> bytes:
    """The output of git in the repository; `SystemExit` if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def checked_out(base: str) -> Path:
    """The folder of a commit's sources and compiled library, made unless it exists."""
    commit = git("rev-parse", "--verify", "--short=12", f"{base}^{{commit}}").decode().strip()
    folder = ROOT / "build/compare" / commit
    if (folder / "ready").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src", "benchmarks/*.py"))) as archive:
        archive.extractall(folder, filter="data")
    unchanged = subprocess.run(["git", "diff", "--quiet", commit, "--", NATIVE], cwd=ROOT).returncode == 0
    for library in (ROOT / NATIVE).glob("_library*.so") if unchanged else ():
        shutil.copy2(library, folder / NATIVE)
    for build in folder.glob("src/headwise/**/native/build.py") if not unchanged else ():
        print(f"compiling the library of {commit}", file=sys.stderr)
        subprocess.run([sys.executable, str(build)], check=True, stdout=subprocess.DEVNULL)
    (folder / "ready").touch()
    return folder


class Version:
    """The process of a version for a row; calling it with the number of a turn gives the reply."""

    def __init__(self, tree: Path, row: str, turns: int) -> None:
        path = {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'benchmarks'}", "PYTHONSAFEPATH": "1"}
        command = [sys.executable, __file__, "--serve", row, "--turns", str(turns), *["--quick"] * machine.QUICK]
        environment = os.environ | path | {"OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def __call__(self, turn: int) -> Reply:
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):  # it has failed; there is no reply
            print(turn, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of a version has failed")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(row: str, trees: dict[str, Path], turns: int) -> list[object]:
    """The line of a row in the table; dashes if a version cannot do it."""
    versions = {name: Version(tree, row, turns) for name, tree in trees.items()}
    replies: dict[str, list[Reply]] = {name: [] for name in trees}

    def run(name: str, turn: int) -> float:
        replies[name].append(versions[name](turn))
        return replies[name][-1][0]

    try:
        seconds = take_turns({name: partial(run, name) for name in trees}, turns, WARM_UP)
    except RuntimeError:
        return [row, *"------"]
    finally:
        for version in versions.values():
            version.close()
    medians = [f"{statistics.median(seconds[name]):.3f}" for name in trees]
    peaks = [f"{replies[name][-1][1] / 2**20:,.0f}" for name in trees]
    same = [reply[2] for reply in replies[BASE]] == [reply[2] for reply in replies[TREE]]
    return [row, *medians, speed_ratio(seconds[TREE], seconds[BASE]), *peaks, "yes" if same else "no"]


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", default="HEAD", metavar="REV", help="the other version (default: HEAD)")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--turns", type=int, default=machine.pick(7, 1), help="(default: %(default)s)")
    machine.add_machine_options(parser)
    parser.add_argument("--serve", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return serve(options.serve, options.turns)
    machine.prepare(options)
    trees = {BASE: checked_out(options.base), TREE: ROOT}
    head = [
        "row",
        f"seconds, {options.base}",
        "working tree",
        "times as fast",
        "peak MiB",
        "working tree",
        "same results",
    ]
    rows = (measure(row, trees, options.turns) for row in options.only)
    for line in itertools.chain([head, ["---"] * len(head)], rows):
        print("| " + " | ".join(map(str, line)) + " |", flush=True)


if __name__ == "__main__":
    main()
