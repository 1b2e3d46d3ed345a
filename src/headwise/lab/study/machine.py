"""Where and with what the study was measured, for the head of the report."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def describe_machine(device: str) -> dict[str, Any]:
    """Hardware, load, versions and date; `machine` is part of the key of timings."""
    processor = torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor()
    return {
        "machine": f"{processor}, 1 thread",  # timings have one
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": load_average(),  # before the study
        "system": platform.system(),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), **dict(_versions("headwise", "torch", "numpy"))},
    }


def load_average() -> float:
    """Processes that ran or waited, mean of the last minute."""
    return round(os.getloadavg()[0], 1)


def _versions(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages:
        with suppress(metadata.PackageNotFoundError):  # a source tree that is not installed has no version
            yield package, metadata.version(package)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
