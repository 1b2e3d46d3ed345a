"""The device to compute on, and the number of threads."""

import math
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from headwise.errors import UserError

# Device files of the drivers of NVIDIA (also on Jetson and in WSL) and AMD; torch calls both "cuda".
DRIVERS = ("nvidiactl", "nvidia0", "nvhost-gpu", "nvgpu", "dxg", "kfd")  # in /dev


def device_name(name: str) -> str:
    """The name of the device for `name`: "auto" is the first CUDA device if there is one, else the CPU.

    Torch is imported only if there may be such a device, because importing it takes longer than a translation.

    >>> device_name("cpu")
    'cpu'
    """
    if name == "auto":
        name = "cuda" if _has_cuda() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name != "cpu" and not _has_cuda():
        raise UserError("--device cuda: torch found no CUDA device; use --device cpu")
    return name


def choose_device(name: str) -> Any:
    """The torch device for `name`, as for `device_name`.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    return torch.device(device_name(name))


def decoding_precision(device: str, capability: tuple[int, int], overflows: bool) -> str:
    """The weight precision of decoding for `decode.compute` = "auto".

    Half precision halves the time that a step waits for weights. Devices below 7.0 multiply float16 no faster than
    float32, and those below 8.0 have no bfloat16.

    Args:
        device: "cpu" or "cuda", also "cuda:1".
        capability: compute capability of a CUDA device, such as (8, 0).
        overflows: whether activations may exceed the range of float16 (`families.family.Family.overflows`).

    >>> decoding_precision("cuda", (7, 5), overflows=False)
    'float16'
    >>> decoding_precision("cuda", (8, 0), overflows=True)
    'bfloat16'
    """
    if not device.startswith("cuda") or capability < (7, 0):
        return "float32"
    if not overflows:
        return "float16"
    return "bfloat16" if capability >= (8, 0) else "float32"


def _has_cuda() -> bool:
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


THREADS = "OMP_NUM_THREADS"  # environment variable, read by torch on import, and here


def usable_threads() -> int:
    """The number of threads: as set in torch, else OMP_NUM_THREADS, else `usable_cores`."""
    setting = os.environ.get(THREADS, "").partition(",")[0]  # further numbers are for nested parallelism
    known = int(setting) if setting.isdecimal() else 0
    if "torch" in sys.modules:
        n_threads = sys.modules["torch"].get_num_threads()
        return n_threads if known or n_threads != affinity() else usable_cores()  # its default ignores quotas
    return known or usable_cores()


def usable_cores(root: Path = Path("/")) -> int:
    """The cores of this process's affinity, or fewer if its control groups have a smaller CPU quota; at least 1.

    Part of a core counts as one: threads that share it use all of the quota.

    Args:
        root: where `proc` and the file systems of its mount table are.
    """
    return min([affinity(), *(max(1, math.ceil(quota)) for quota in _quotas(root))])


def affinity() -> int:
    """The cores that this process may run on, regardless of its quota."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_quota(environment: MutableMapping[str, str]) -> None:
    """Limit the threads of torch, before it is imported, to the CPU quota, unless the user has set them."""
    if THREADS not in environment and usable_cores() < affinity():
        environment[THREADS] = str(usable_cores())


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in cores, of the control groups of this process and their parents (cgroups(7)), both versions."""
    try:
        own = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().split("\n") if line]
        mounts = [line.split() for line in (root / "proc/self/mountinfo").read_text().split("\n") if line]
    except (OSError, UnicodeDecodeError):  # not Linux, or no /proc
        return
    for mount in mounts:
        kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
        for _, controllers, path in own:
            is_second = kind == "cgroup2" and not controllers
            if is_second or (kind == "cgroup" and "cpu" in options and "cpu" in controllers.split(",")):
                yield from _quotas_of(root / mount[4].lstrip("/"), os.path.relpath(path, mount[3]))


def _quotas_of(mounted: Path, path: str) -> Iterator[float]:
    """The quotas of a group, given below the mount point, and of its parents."""
    group = mounted if path.startswith("..") else mounted / path  # unknown if the group is not mounted here
    while True:
        yield from _quota(group)
        if group == mounted:
            return
        group = group.parent


def _quota(group: Path) -> Iterator[float]:
    """The quota of one group, if any: "150000 100000" microseconds are 1.5 cores; "max" and -1 mean none."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
