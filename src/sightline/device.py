"""Which device to compute on, by its name."""

import re

import torch

from sightline.errors import UserError


def choose_device(name: str) -> torch.device:
    """ "auto" is the first CUDA device if there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    if name != "cpu" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device(name)
