"""Distributed training: this process's rank, and communication with the other ranks.

Only this module uses torch's process group. Ranks exchange sums of numbers, JSON texts and random states, never pickled
objects. Every wait is labelled (`waiting_for`) and limited to `timeout` seconds; then the error names the rank, the
step, what it waited for and the missing ranks.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from headwise.errors import UserError

PREPARING = timedelta(days=2)  # how long others wait while one process prepares the corpus
DONE = b"done"
GRACE = 3.0  # seconds to find out which ranks are still alive
FRAMES = "Exception raised from"  # begins the C++ stack in errors of torch
WORDS = ("timed out", "timeout", "connection", "socket")  # in errors of a process group


@dataclass
class Ranks:
    """This process among `size`; rank 0 prints and writes for all."""

    rank: int
    size: int
    machine: int  # number of the machine, from 0
    local: int  # local rank on this machine
    device: torch.device
    timeout: float  # seconds
    store: Any  # torch's key-value store
    group: Any = None  # exchanges what is on the CPU; None = the default group
    waiting: str = field(default="", init=False)  # what this process waits for

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which prints and writes for all."""
        return self.rank == 0

    def all_reduce(self, numbers: Sequence[float], what: str) -> list[float]:
        """Each number summed over all ranks in float64, bit-identical on all of them."""
        total = torch.tensor(numbers, dtype=torch.float64)
        with self.waiting_for(what):
            dist.all_reduce(total, group=self.group)
        return total.tolist()

    def add(self, tensor: Tensor, what: str) -> None:
        """Sum a tensor on the device over all ranks, in place."""
        with self.waiting_for(what):
            dist.all_reduce(tensor)

    def gather(self, message: Any, what: str) -> list[Any]:
        """The JSON values of all ranks, in order."""
        with self.waiting_for(what):
            return [json.loads(text) for text in _gather_bytes(json.dumps(message).encode(), self.group)]

    def gather_tensors(self, tensor: Tensor, what: str) -> list[Tensor]:
        """The bytes of all ranks, on the CPU; uint8 vectors of any length."""
        with self.waiting_for(what):
            parts = _gather_bytes(tensor.cpu().numpy().tobytes(), self.group)
        return [torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in parts]

    def barrier(self, what: str) -> None:
        """Wait for all ranks."""
        self.all_reduce([0.0], what)  # gloo would not wait for an empty sum

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Labels a wait, for `timeout_error`."""
        self.waiting = what
        yield
        self.waiting = ""

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """A context manager: rank 0 enters first, then the first rank of every other machine, then all others at once.

        Later ranks find the tokenizer and the cached corpus of the first on disk.
        """
        if self.rank:
            before = f"prepared on {self.machine if self.local else 0}"
            self.store.wait([before], PREPARING)
            if self.store.get(before) != DONE:
                raise UserError(f"rank {self.rank} of {self.size}: another process failed to start; see its message")
        done = b"failed"
        try:
            yield
            done = DONE
        finally:
            if self.local == 0:
                self.store.set(f"prepared on {self.machine}", done)

    def timeout_error(self, error: BaseException, step: int) -> UserError | None:
        """The error for missing ranks; None if `error` has another cause."""
        text = " ".join(str(error).partition(FRAMES)[0].split())
        distributed = isinstance(error, dist.DistError) or any(word in text.lower() for word in WORDS)
        if not (self.waiting and distributed):
            return None
        missing = self._missing(step)
        who = f"rank {', '.join(map(str, missing))} did not answer" if missing else "all ranks are alive and waiting"
        return UserError(
            f"rank {self.rank} of {self.size}: step {step}, {self.waiting}: {who} "
            f"(waited {self.timeout:g} s at most, train.timeout): {text}; resume with --resume"
        )

    def _missing(self, step: int) -> list[int]:
        """Ranks that do not report that they wait, too: they hang or have ended."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        with suppress(Exception):  # the process with the store may have ended
            self.store.set(f"stuck {self.rank}", str(step))
            deadline = time.monotonic() + GRACE
            while others and time.monotonic() < deadline:
                others = [rank for rank in others if not self.store.check([f"stuck {rank}"])]
                time.sleep(0.1)
        return others


@contextmanager
def process_group(device: str, timeout: float, environment: Mapping[str, str] = os.environ) -> Iterator[Ranks]:
    """Join the process group that torchrun has set up by environment variables.

    `device` is "cpu", "cuda" or "auto".
    """
    local, here = int(environment.get("LOCAL_RANK", "0")), int(environment.get("LOCAL_WORLD_SIZE", "1"))
    device = _device(device, local, here)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        store, rank, size = next(dist.rendezvous("env://"))
    except (ValueError, dist.DistError) as error:
        raise UserError(
            f"WORLD_SIZE is set, but not what torchrun sets with it ({error}): start with torchrun"
        ) from None
    # torchrun's store may survive a restart, with entries of processes that have ended.
    store = dist.PrefixStore(f"attempt {environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    waiting = device_timeout(device, timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=waiting)
    try:
        machine, group = int(environment.get("GROUP_RANK", "0")), None
        if device != "cpu":
            group = dist.new_group(timeout=timedelta(seconds=timeout), backend="gloo")
        own = dist.PrefixStore("headwise", store)
        yield Ranks(rank, size, machine, local, torch.device(device), timeout, own, group)
    finally:
        dist.destroy_process_group()


def device_timeout(device: str, timeout: float) -> timedelta:
    """The timeout of exchanges between devices: on CUDA longer than `timeout` seconds, that of those on the CPU.

    NCCL ends the process when its timeout is over, without `timeout_error`. An exchange of devices may have begun long
    before that on the CPU.
    """
    return timedelta(seconds=timeout if device == "cpu" else 2 * timeout + 60)


def _device(name: str, local: int, here: int) -> str:
    """One CUDA device for each process of this machine, or the CPU."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if name not in ("auto", "cuda"):
        raise UserError(f"--device {name}: {here} processes need one CUDA device each; use --device cuda, auto or cpu")
    if here > torch.cuda.device_count():
        raise UserError(f"{here} processes on this machine, which has {torch.cuda.device_count()} CUDA devices")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def _gather_bytes(own: bytes, group: Any) -> list[bytes]:
    """The bytes of all ranks."""
    size, lengths = dist.get_world_size(), torch.zeros(dist.get_world_size(), dtype=torch.int64)
    lengths[dist.get_rank()] = len(own)
    dist.all_reduce(lengths, group=group)
    padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
    padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded, group=group)
    return [part[:length].numpy().tobytes() for part, length in zip(parts, lengths.tolist(), strict=True)]


def sum_gradients_hook(half: bool, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A DDP communication hook: sums gradients over ranks instead of averaging, in bfloat16 if `half`."""
    gradients = bucket.buffer()
    done: Any = dist.all_reduce(gradients.bfloat16() if half else gradients, async_op=True)
    return done.get_future().then(lambda future: gradients.copy_(future.value()[0]))


def full_tensor(parameter: Tensor) -> Tensor:
    """The full value of a sharded parameter, on every rank."""
    full: Any = getattr(parameter, "full_tensor", None)  # a method of DTensor, whose module is slow to import
    return full() if full else parameter


def own_rows(tensor: Tensor) -> Tensor:
    """This rank's rows of a sharded tensor, which share its memory; other tensors are returned as they are."""
    local: Any = getattr(tensor, "to_local", None)  # as above
    return local() if local else tensor


def device_mesh(device: torch.device) -> DeviceMesh:
    """A one-dimensional mesh of all ranks on devices of this kind (by default torch prefers CUDA)."""
    return init_device_mesh(device.type, (dist.get_world_size(),))
