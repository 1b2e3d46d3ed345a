"""One of the processes that train a model together: its rank, and what it says to the others.

The only file that knows torch's process group. What is exchanged are sums of numbers, texts as JSON and random states:
never Python objects, which would be unpickled. Whoever waits for an answer says for what (`during`), and waits for
`timeout` seconds at most; then the error names the rank, the step, what was waited for and who is missing.
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

PREPARING = timedelta(days=2)  # that the others wait while one process reads and cuts the corpus
DONE = b"done"
GRACE = 3.0  # seconds in which those that are stuck say so to each other
WORDS = ("timed out", "timeout", "connection", "socket")  # in an error of a process group


@dataclass
class Ranks:
    """This process among `size` of them; rank 0 speaks and writes for all."""

    rank: int
    size: int
    machine: int  # which one, counted from 0
    local: int  # which process of this machine
    device: torch.device
    timeout: float  # seconds
    store: Any  # torch's, where processes leave each other notes
    doing: str = field(default="", init=False)  # what is waited for

    @property
    def first(self) -> bool:
        """Whether this one speaks and writes for all."""
        return self.rank == 0

    def sums(self, numbers: Sequence[float], what: str) -> list[float]:
        """Each number summed over all processes, in float64: the same bits everywhere."""
        total = torch.tensor(numbers, dtype=torch.float64)
        with self.during(what):
            dist.all_reduce(total)
        return total.tolist()

    def add(self, tensor: Tensor, what: str) -> None:
        """Make a tensor on the device the sum of those of all processes."""
        with self.during(what):
            dist.all_reduce(tensor)

    def gather(self, message: Any, what: str) -> list[Any]:
        """What JSON can say of every process, in the order of ranks, to all of them."""
        with self.during(what):
            return [json.loads(text) for text in _gather_bytes(json.dumps(message).encode())]

    def gather_tensors(self, tensor: Tensor, what: str) -> list[Tensor]:
        """The bytes of every process, on the CPU; a uint8 vector of any length."""
        with self.during(what):
            parts = _gather_bytes(tensor.cpu().numpy().tobytes())
        return [torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in parts]

    def meet(self, what: str) -> None:
        """Go on when all are here."""
        self.sums([], what)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Names what is waited for, for `lost`."""
        self.doing = what
        yield
        self.doing = ""

    @contextmanager
    def one_after_another(self) -> Iterator[None]:
        """Inside, rank 0 is alone; then come the first processes of other machines, then all others at once.

        For what the first leaves on disk for those that follow: the tokenizer, the corpus in its cache.
        """
        if self.rank:
            before = f"prepared on {self.machine if self.local else 0}"
            self.store.wait([before], PREPARING)
            if self.store.get(before) != DONE:
                raise UserError(f"rank {self.rank} of {self.size}: another process could not begin, and says why")
        done = b"failed"
        try:
            yield
            done = DONE
        finally:
            if self.local == 0:
                self.store.set(f"prepared on {self.machine}", done)

    def lost(self, error: BaseException, step: int) -> UserError | None:
        """The error for an answer that did not come, which says whose; None where `error` is about something else."""
        text = " ".join(str(error).split())
        distributed = isinstance(error, dist.DistError) or any(word in text.lower() for word in WORDS)
        if not (self.doing and distributed):
            return None
        missing = self._missing(step)
        who = f"rank {', '.join(map(str, missing))} did not answer" if missing else "all ranks are there, and wait"
        return UserError(
            f"rank {self.rank} of {self.size}: step {step}, {self.doing}: {who} "
            f"(waited {self.timeout:g} s at most, train.timeout): {text[:200]}; the run goes on with --resume"
        )

    def _missing(self, step: int) -> list[int]:
        """Ranks that do not say they are stuck as well: they hang, or are gone."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        with suppress(Exception):  # the store is gone with its process: then nobody can be asked
            self.store.set(f"stuck {self.rank}", str(step))
            deadline = time.monotonic() + GRACE
            while others and time.monotonic() < deadline:
                others = [rank for rank in others if not self.store.check([f"stuck {rank}"])]
                time.sleep(0.1)
        return others


@contextmanager
def joined(device: str, timeout: float, environment: Mapping[str, str] = os.environ) -> Iterator[Ranks]:
    """This process as one of those that torchrun has started, or whatever sets its variables; `device` is "cpu", "cuda"
    or "auto".
    """
    local, here = int(environment.get("LOCAL_RANK", "0")), int(environment.get("LOCAL_WORLD_SIZE", "1"))
    device = _device(device, local, here)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    waiting = timedelta(seconds=timeout)
    try:
        store, rank, size = next(dist.rendezvous("env://"))
    except (ValueError, dist.DistError) as error:
        raise UserError(
            f"WORLD_SIZE is set, but not what torchrun sets with it ({error}): start with torchrun"
        ) from None
    # Where torchrun's store outlives a restart, it has the addresses of those that have ended, and what they noted.
    store = dist.PrefixStore(f"attempt {environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=waiting)
    try:
        machine = int(environment.get("GROUP_RANK", "0"))
        yield Ranks(rank, size, machine, local, torch.device(device), timeout, dist.PrefixStore("headwise", store))
    finally:
        dist.destroy_process_group()


def _device(name: str, local: int, here: int) -> str:
    """One CUDA device for each process of this machine, or the CPU for all."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if name not in ("auto", "cuda"):
        raise UserError(f"--device {name}: {here} processes take a CUDA device each; use --device cuda, auto or cpu")
    if here > torch.cuda.device_count():
        raise UserError(f"{here} processes on this machine, which has {torch.cuda.device_count()} CUDA devices")
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def _gather_bytes(own: bytes) -> list[bytes]:
    """The bytes of every process."""
    size, lengths = dist.get_world_size(), torch.zeros(dist.get_world_size(), dtype=torch.int64)
    lengths[dist.get_rank()] = len(own)
    dist.all_reduce(lengths)
    padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
    padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded)
    return [part[:length].numpy().tobytes() for part, length in zip(parts, lengths.tolist(), strict=True)]


def sum_gradients(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook of DDP: the sum over all ranks, where it would take the mean, for losses that are divided already."""
    done: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    return done.get_future().then(lambda future: future.value()[0])


def whole(parameter: Tensor) -> Tensor:
    """All of a parameter that ranks share out, to each of them."""
    full: Any = getattr(parameter, "full_tensor", None)  # of a DTensor, whose module is slow to import
    return full() if full else parameter


def mesh(device: torch.device) -> DeviceMesh:
    """All processes in a row, on devices of this kind; torch by itself takes CUDA's wherever there are any."""
    return init_device_mesh(device.type, (dist.get_world_size(),))


def writers() -> Any:
    """A group of the same processes for what is written beside the training: collectives of one group must not mix."""
    return dist.new_group(backend="gloo")
