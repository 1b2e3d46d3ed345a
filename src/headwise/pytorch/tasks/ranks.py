"""Distributed training: one model, several processes, started by torchrun or by `--devices N`.

Every process calls `tasks.train.train_model`. Rank 0 prepares the data first and writes the settings. The other ranks
read its tokenizer and corpus like a resumed run, so all are checked against the same settings and files.
"""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import torch
from torch import nn

from headwise.config.settings import RunConfig
from headwise.device import OFFLOAD, capability_of, is_on, trains_in_bfloat16, usable_cores
from headwise.errors import UserError
from headwise.lock import locked
from headwise.pytorch.tasks.job import Job, TrainRequest
from headwise.pytorch.tasks.resuming import check_out, mark_started
from headwise.pytorch.tasks.run import checked_job, make_trainer, run_job
from headwise.pytorch.training.parallel import ParallelTrainer
from headwise.pytorch.training.ranks import Ranks, process_group
from headwise.pytorch.training.sharded import ShardedTrainer, shard

TrainModel = Callable[[TrainRequest], str]  # returns how training ended


def train_in_processes(request: TrainRequest, config: RunConfig, folder: Path, train_model: TrainModel) -> str:
    """Train as one of torchrun's processes, or start `request.devices` processes that call `train_model`."""
    if request.devices < 1:
        raise UserError(f"devices = {request.devices}: must be at least 1")
    if "WORLD_SIZE" not in os.environ:
        if request.devices == 1:
            shard = config.train.shard
            raise UserError(f"train.shard = {shard} is for several processes: start them with --devices N or torchrun")
        return _launch(request, config, train_model)
    if request.devices > 1:
        raise UserError(f"--devices {request.devices}: torchrun has already started the processes; leave it out")
    with process_group(request.device, config.train.timeout) as ranks:
        return _train_rank(ranks, request, config, folder)


def _train_rank(ranks: Ranks, request: TrainRequest, config: RunConfig, folder: Path) -> str:
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # by torchrun --max-restarts
    first, device = ranks.is_main, str(ranks.device)
    request = replace(request, device=device, resume=request.resume or again, show=request.show and first)
    request = replace(request, callbacks=request.callbacks if first else ())
    with locked(folder) if first else nullcontext():
        with ranks.main_process_first():
            if first:
                check_out(folder, request.resume)
            _, job, about = checked_job(
                replace(request, resume=request.resume or not first), config, folder, ranks.size
            )
            if first:
                mark_started(folder)
                job.layout.write_settings(folder, job.config, job.tokenizer, about)
        torch.manual_seed(job.config.train.seed)
        trainer = make_trainer(request, job, about, *network_and_trainer(job, ranks))
        return run_job(trainer, request, job, about)


def network_and_trainer(job: Job, ranks: Ranks) -> tuple[nn.Module, Any]:
    """The network, and the trainer for `train.shard`."""
    network = job.network()
    train = job.config.train
    if train.shard == "none":
        return network.to(ranks.device), partial(ParallelTrainer, ranks)
    if train.shard == "offload" and ranks.device.type == "cpu":
        raise UserError("train.shard = offload needs CUDA devices; on a CPU use train.shard=full")
    if train.shard == "offload" and not is_on(OFFLOAD):
        raise UserError(
            f"train.shard = offload has not run on a GPU yet: use train.shard=full, or set {OFFLOAD}=1 to try it"
        )
    if train.optimizer != "adam":
        raise UserError(f"train.shard = {train.shard}: needs train.optimizer = adam, not {train.optimizer}")
    if train.reduce != "float32":
        raise UserError(f"train.reduce = {train.reduce}: sharded gradients are summed in float32; set train.shard=none")
    replica = deepcopy(network)
    in_half = trains_in_bfloat16(train.precision, capability_of(str(ranks.device)))
    root = shard(network, in_half, ranks.device, offload=train.shard == "offload")
    return network, partial(ShardedTrainer, ranks, root, replica)


def _launch(request: TrainRequest, config: RunConfig, train_model: TrainModel) -> str:
    """Start the processes on this machine; all of them end if one fails or this process ends."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported below
    threads = config.train.threads or max(1, usable_cores() // request.devices)
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=request.devices,
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    launch.signals_to_handle = "SIGHUP,SIGQUIT"  # the others by `passed_on_signals`, with torch 2.9 and later
    with TemporaryDirectory() as error_folder, _kept_signal_handlers(), passed_on_signals() as received:
        try:
            return elastic_launch(launch, _process)(train_model, replace(request, devices=1), threads, error_folder)[0]
        except SignalException as stopped:
            return signal.Signals(stopped.sigval).name
        except ChildFailedError as error:
            if received:  # while a process was starting
                return received[0]
            rank, failure = error.get_first_failure()
            messages = [path.read_text(encoding="utf-8") for path in sorted(Path(error_folder).iterdir())]
            ended = f"rank {rank} ended with exit code {failure.exitcode}; resume with --resume"
            raise UserError(messages[0] if messages else ended) from None


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    """Torch's launcher replaces the handlers of signals that end a process: afterwards they are as before."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextmanager
def passed_on_signals() -> Iterator[list[str]]:
    """A context manager: processes started in it get the first Ctrl-C or SIGTERM, and end; gives the signal's name.

    Torch's launcher would kill them 30 seconds after a signal, because those that have finished wait for it; so it does
    after the second signal.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException

    received, others = list[str](), active_children()

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        if len(received) > 1:
            raise SignalException(f"stopped by a second {received[-1]}", signal.Signals(number))
        for child in active_children():
            if child not in others and child.pid:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    with suppress(ValueError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
    yield received


def _process(train_model: TrainModel, request: TrainRequest, threads: int, error_folder: str) -> str:
    """Run `train_model`; a `UserError` is written to a file for the parent process, other errors to stderr."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    try:
        return train_model(request)
    except UserError as error:
        Path(error_folder, os.environ["RANK"]).write_text(str(error), encoding="utf-8")
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        raise
