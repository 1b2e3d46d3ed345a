"""Which device to compute on, by its name."""

import re
import sys
from pathlib import Path
from typing import Any

from sightline.errors import UserError

# What the drivers of NVIDIA (also on Jetson and in WSL) and of AMD put there; torch calls both kinds of device "cuda".
DRIVERS = ("nvidiactl", "nvidia0", "nvhost-gpu", "nvgpu", "dxg", "kfd")  # in /dev


def device_name(name: str) -> str:
    """The name of the device that `name` means: "auto" is the first CUDA device if there is one.

    Torch is asked only where there may be such a device, for importing it takes longer than a translation.

    >>> device_name("cpu")
    'cpu'
    """
    if name == "auto":
        name = "cuda" if _has_cuda() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name != "cpu" and not _has_cuda():
        raise UserError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return name


def choose_device(name: str) -> Any:
    """The torch device that `device_name` means.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    import torch

    return torch.device(device_name(name))


def _has_cuda() -> bool:
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()
