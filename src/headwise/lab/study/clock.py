"""Time of a computation, memory kept for its backward pass, and the speed of matrix products."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

SIZE = 1024  # of the square matrices of `matrix_rate`
LONG = 1.0  # seconds


def seconds(compute: Callable[[], Any], device: str, repeats: int = 5, least: float = 0.02) -> float:
    """Median time of a call after a warm-up; calls shorter than `least` seconds are timed in groups.

    Calls longer than `LONG` seconds are timed once, because their warm-up is relatively short.
    """
    once = _timed(compute, device, 1)
    if once > LONG:
        return _timed(compute, device, 1)
    calls = max(1, round(least / max(once, 1e-7)))
    return median(_timed(compute, device, calls) for _ in range(repeats))


def _timed(compute: Callable[[], Any], device: str, calls: int) -> float:
    _wait(device)
    started = time.perf_counter()
    for _ in range(calls):
        compute()
    _wait(device)
    return (time.perf_counter() - started) / calls


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def matrix_rate(device: str) -> float:
    """Operations per second of a large float32 matrix product; a multiply-add counts as two."""
    a, b = torch.rand(SIZE, SIZE, device=device), torch.rand(SIZE, SIZE, device=device)
    return 2 * SIZE**3 / seconds(lambda: a @ b, device, repeats=3)


def kept_bytes(compute: Callable[[], Tensor]) -> int:
    """Memory that the forward pass `compute` keeps for its backward pass, including parameters."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = compute()
    del result
    return sum(storages.values())
