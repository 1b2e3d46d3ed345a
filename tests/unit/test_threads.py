"""How many threads there are to be: by affinity, by CPU quotas of control groups, by what the user asks for."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_families import write_tiny

from headwise import device

V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


def laid_out(root: Path, groups: str, mounts: list[str], files: dict[str, str]) -> Path:
    """A root directory with what the kernel shows of control groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/self/mountinfo").write_text("\n".join(["22 1 8:1 / / rw - ext4 /dev/sda rw", *mounts]) + "\n")
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected"),
    [
        ("0::/\n", [V2], {"cpu.max": "300000 100000"}, 3),
        ("0::/\n", [V2], {"cpu.max": "150000 100000"}, 2),
        ("0::/\n", [V2], {"cpu.max": "5000 100000"}, 1),
        ("0::/\n", [V2], {"cpu.max": "max 100000"}, 64),
        ("0::/\n", [V2], {"cpu.max": "9900000 100000"}, 64),
        ("0::/\n", [V2], {}, 64),
        ("0::/a/b\n", [V2], {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4),
        ("0::/a/b\n", [V2], {"a/b/cpu.max": "200000 100000", "a/cpu.max": "400000 100000"}, 2),
        ("0::/../b\n", [V2], {"cpu.max": "500000 100000"}, 5),
        (
            "9:memory:/pod\n4:cpu,cpuacct:/pod\n0::/\n",
            [MEMORY, V1.format(root="/")],
            {"cpu,cpuacct/pod/cpu.cfs_quota_us": "250000", "cpu,cpuacct/pod/cpu.cfs_period_us": "100000"},
            3,
        ),
        (
            "4:cpu,cpuacct:/docker/12\n",
            [V1.format(root="/docker/12")],
            {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "10000"},
            5,
        ),
        (
            "4:cpu,cpuacct:/\n",
            [V1.format(root="/")],
            {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            64,
        ),
    ],
    ids=[
        *("whole cores", "part of a core", "less than one", "no quota", "more than there are", "no file"),
        *("of the group around it", "the smallest", "outside of what is mounted"),
        *("version 1", "version 1 in a container", "version 1 without a quota"),
    ],
)
def test_a_quota_pays_for_fewer_cores(
    groups: str,
    mounts: list[str],
    files: dict[str, str],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "affinity", lambda: 64)
    assert device.usable_cores(laid_out(tmp_path, groups, mounts, files)) == expected


def test_without_proc_there_is_affinity_alone(tmp_path: Path) -> None:
    assert device.usable_cores(tmp_path) == device.affinity()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new control group with a file set, of version 1 or 2, where this user may make one."""
    controller, name, content = request.param
    roots = [path for path in (Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")) if path.is_dir()]
    made = roots[0] / f"headwise-test-{os.getpid()}" if roots else Path("/nowhere")
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        named = [path for path in map(made.joinpath, name.split()) if path.is_file()]
        if not named:
            pytest.skip(f"control groups here have no {name}")
        named[0].write_text(content)
        yield made
    finally:
        made.rmdir()


def said_in(group: Path, code: str, **environment: str) -> str:
    """What a program prints that runs in a control group."""
    enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')"
    kept = {name: value for name, value in os.environ.items() if name != device.THREADS}
    call = [sys.executable, "-c", f"{enter}\n{code}"]
    ran = subprocess.run(call, env={**kept, **environment}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("group", [("cpu", "cpu.cfs_quota_us cpu.max", "50000")], indirect=True)
def test_in_a_real_control_group(group: Path) -> None:
    """With a quota of half a core; a program that has asked for threads keeps them."""
    code = (
        "import os; from headwise import device; device.keep_to_quota(os.environ);"
        "print(device.usable_cores(), device.usable_threads(), os.environ.get('OMP_NUM_THREADS'))"
    )
    kept = "1" if device.affinity() > 1 else "None"
    assert said_in(group, code) == f"1 1 {kept}\n"
    assert said_in(group, code, OMP_NUM_THREADS="3") == "1 3 3\n"


def test_torchs_own_choice_knows_of_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a number that somebody has told it, or the environment, is used."""
    monkeypatch.setattr(device, "usable_cores", lambda: 2)
    monkeypatch.setattr(device, "affinity", lambda: 64)
    for asked, told, expected in (("", 64, 2), ("", 8, 8), ("64", 64, 64), ("4", 1, 1)):
        monkeypatch.setenv(device.THREADS, asked)
        monkeypatch.setattr(torch, "get_num_threads", lambda told=told: told)
        assert device.usable_threads() == expected


def test_threads_are_those_that_torch_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.usable_threads() == torch.get_num_threads()
    monkeypatch.delitem(sys.modules, "torch")
    for asked, expected in (("3", 3), ("2,1", 2), ("", device.usable_cores()), ("0", device.usable_cores())):
        monkeypatch.setenv(device.THREADS, asked)
        assert device.usable_threads() == expected


DECODING = """
import threading
import numpy as np
from pathlib import Path
from headwise.runtime.search.engine import run_in_threads
from headwise.runtime.search import engine
engine.usable_threads = lambda: 4
from concurrent.futures import ThreadPoolExecutor  # and whatever else is imported late
for more in (0, 1, 2, 9):
    Path({limit!r}).write_text(str(threading.active_count() + more))
    used, ready = set(), threading.Event()
    def decode(batch):
        used.add(threading.get_ident())
        ready.wait(0.05)
        return [[i] for i in batch]
    answers = run_in_threads(decode, [[i] for i in range(12)], np.zeros(1, np.int32), "")
    assert dict((batch[0], answer) for batch, answer in answers) == {{i: [[i]] for i in range(12)}}
    print(more, len(used), threading.get_ident() in used)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("group", [("pids", "pids.max", "max")], indirect=True)
def test_batches_are_shared_by_the_threads_that_start(group: Path) -> None:
    """A limit of tasks allows none, one, two or more than enough: no batch is lost (asserted in the program).

    In between, the kernel may still count a thread that has just ended, so fewer threads may start than are allowed.
    """
    code = DECODING.format(limit=str(group / "pids.max"))
    said = said_in(group, code, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    first, *between, last = said.splitlines()
    assert (first, len(between), last) == ("0 1 True", 2, "9 4 False")


CALLING = """
import sys
import headwise
call, opened = getattr(headwise.load(sys.argv[1], "cpu"), sys.argv[2]), []
call(["a dog runs"])
sys.addaudithook(lambda event, values: opened.append(values[0]) if event == "open" else None)
call(["a dog runs"])
print(opened)
"""


@pytest.mark.parametrize(("kind", "method"), [("marian", "translate"), ("bert", "embed"), ("gpt2", "generate")])
def test_a_second_call_opens_no_file(kind: str, method: str, tmp_path: Path) -> None:
    """Reading quotas took a third of the time of a short text, at each call."""
    write_tiny(tmp_path / kind, kind)
    kept = {name: value for name, value in os.environ.items() if name != device.THREADS}
    call = [sys.executable, "-c", CALLING, str(tmp_path / kind), method]
    assert subprocess.run(call, env=kept, check=True, capture_output=True, text=True).stdout == "[]\n"
