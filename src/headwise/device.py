"""The device to compute on, and the number of threads."""

import math
import os
import re
import sys
from collections.abc import Iterator, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from headwise.errors import UserError

# Device files of the drivers of NVIDIA (also on Jetson and in WSL) and AMD; torch calls both "cuda".
DRIVERS = ("nvidiactl", "nvidia0", "nvhost-gpu", "nvgpu", "dxg", "kfd")  # in /dev

# Environment variables that switch on what no GPU has run yet; `tests/gpu` compares it with the rest of the package.
PACK = "HEADWISE_PACK"  # training without padding
DEFER = "HEADWISE_DEFER"  # updates for whose results the process does not wait
CAPTURE = "HEADWISE_CAPTURE"  # decoding steps as CUDA graphs
OFFLOAD = "HEADWISE_OFFLOAD"  # train.shard=offload


def is_on(switch: str) -> bool:
    """Whether an experimental part for CUDA, such as `PACK`, is switched on: the environment variable is 1.

    Raises:
        UserError: it is neither 1 nor 0.
    """
    value = os.environ.get(switch) or "0"
    if value not in ("0", "1"):
        raise UserError(f"{switch}={value}: use 1 (on) or 0 (off, the default)")
    return value == "1"


def device_name(name: str) -> str:
    """The name of the device for `name`: "auto" is the first CUDA device if there is one, else the CPU.

    Torch is imported only if there may be such a device, because importing it takes longer than a translation.

    >>> device_name("cpu")
    'cpu'
    """
    if name == "auto":
        name = "cuda" if _n_devices() else "cpu"
    if name == "mps":  # the sums of a loss are float64
        raise UserError("--device mps: Apple's GPUs are not supported, because they have no float64; use --device cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name == "cpu":
        return name
    return existing_device(name, _n_devices())


def existing_device(name: str, n_devices: int) -> str:
    """`name` if it is one of `n_devices` CUDA devices, else a `UserError`.

    >>> existing_device("cuda:1", 2)
    'cuda:1'
    """
    if not n_devices:
        raise UserError(f"--device {name}: torch found no CUDA device; use --device cpu")
    if int(name.partition(":")[2] or 0) >= n_devices:
        last = f"cuda:0 to cuda:{n_devices - 1}" if n_devices > 1 else "cuda:0"
        raise UserError(f"--device {name}: this machine has {n_devices} CUDA devices; use {last}")
    return name


def choose_device(name: str) -> Any:
    """The torch device for `name`, as for `device_name`; it becomes torch's current device.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    device = torch.device(device_name(name))
    if device.index is not None:
        torch.cuda.set_device(device)
    return device


def capability_of(device: str) -> tuple[int, int]:
    """The compute capability of a CUDA device, such as (8, 0); (0, 0) for a CPU."""
    if not device.startswith("cuda"):
        return 0, 0
    import torch

    return torch.cuda.get_device_capability(device)


def trains_in_bfloat16(precision: str, capability: tuple[int, int]) -> bool:
    """Whether products are bfloat16 in training: `precision` is `train.precision`, `capability` as by `capability_of`.

    Devices below 8.0 have no bfloat16, which torch would emulate.

    >>> trains_in_bfloat16("auto", (9, 0)), trains_in_bfloat16("auto", (7, 5)), trains_in_bfloat16("bf16", (0, 0))
    (True, False, True)
    """
    return precision == "bf16" or (precision == "auto" and capability >= (8, 0))


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


def _n_devices() -> int:
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in DRIVERS):
        return 0
    import torch

    return torch.cuda.device_count()


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

    Part of a core counts as one: threads that share it use all of the quota. The quota is that of the first call:
    reading it takes as long as a short text takes an encoder.

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


@cache
def _quotas(root: Path) -> tuple[float, ...]:
    """CPU quotas, in cores, of the control groups of this process and their parents (cgroups(7)), both versions."""
    return tuple(_read_quotas(root))


def _read_quotas(root: Path) -> Iterator[float]:
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
