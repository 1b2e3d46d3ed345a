"""One model trained by several processes: those that torchrun has started, or that `--devices N` starts here.

Every process calls `tasks.train.train_model`. Rank 0 prepares first and writes the settings; the others read its
tokenizer and its corpus as a resumed run does, so that all are checked against the same settings and files.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from headwise.checkpoint.trained import CONFIG, read_run
from headwise.config.settings import RunConfig
from headwise.device import usable_cores
from headwise.errors import UserError
from headwise.tasks.job import Job, TrainRequest
from headwise.tasks.out_folder import check_out, mark_started
from headwise.tasks.run import checked_job, make_trainer, run
from headwise.training.lock import locked
from headwise.training.parallel import ParallelTrainer
from headwise.training.ranks import Ranks, joined
from headwise.training.sharded import ShardedTrainer, shard

TrainModel = Callable[[TrainRequest], str]  # how the training of one process ended


def train_in_processes(request: TrainRequest, config: RunConfig, folder: Path, train_model: TrainModel) -> str:
    """Train as one of the processes that torchrun has started, or start `request.devices` processes.

    `train_model` is what each process that is started here calls.
    """
    if request.devices < 1:
        raise UserError(f"devices = {request.devices}: must be at least 1, processes that train one model")
    if "WORLD_SIZE" not in os.environ:
        if request.devices == 1:
            shard = config.train.shard
            raise UserError(f"train.shard = {shard} is for several processes: start them with --devices N or torchrun")
        return _launch(request, config, train_model)
    if request.devices > 1:
        raise UserError(f"--devices {request.devices}: torchrun has started the processes already; leave it out")
    with joined(request.device, config.train.timeout) as ranks:
        return _train_as(ranks, request, config, folder)


def _train_as(ranks: Ranks, request: TrainRequest, config: RunConfig, folder: Path) -> str:
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # a process had died: torchrun --max-restarts
    first, device = ranks.first, str(ranks.device)
    request = replace(request, device=device, resume=request.resume or again, show=request.show and first)
    request = replace(request, tensorboard=request.tensorboard and first)
    with locked(folder) if first else nullcontext():
        with ranks.one_after_another():
            if first:
                check_out(folder, request.resume)
            config = _of_all(ranks.size, config, folder, resume=request.resume or not first)
            _, job, about = checked_job(replace(request, resume=request.resume or not first), config, folder)
            about = {**about, "ranks": ranks.size}
            if first:
                mark_started(folder)
                job.layout.write_settings(folder, job.config, job.tokenizer, about)
        torch.manual_seed(job.config.train.seed)
        return run(make_trainer(request, job, about, *network_and_kind(job, ranks)), request, job)


def network_and_kind(job: Job, ranks: Ranks) -> tuple[nn.Module, Any]:
    """The network, and the trainer that the setting asks for."""
    network = job.network()
    train = job.config.train
    if train.shard == "none":
        return network.to(ranks.device), partial(ParallelTrainer, ranks)
    if train.shard == "offload" and ranks.device.type == "cpu":
        raise UserError("train.shard = offload is for CUDA devices: on a CPU everything is there, use train.shard=full")
    if train.optimizer != "adam" or train.accumulate % ranks.size:
        raise UserError(
            f"train.shard = {train.shard}: takes train.optimizer = adam, and updates that {ranks.size} ranks can share "
            f"evenly: a multiple of {ranks.size} batches, not {train.accumulate}"
        )
    replica = deepcopy(network)
    root = shard(network, train.precision, ranks.device, offload=train.shard == "offload")
    return network, partial(ShardedTrainer, ranks, root, replica)


def _of_all(size: int, config: RunConfig, folder: Path, resume: bool) -> RunConfig:
    """The configuration with the batches of an update by all: `accumulate` of each, or as many as the run had before,
    which any number of ranks can share.
    """
    own = config.train.accumulate
    total = own * size
    if resume and (folder / CONFIG).is_file():
        before, about = read_run(folder)
        if before.train.accumulate in (own, own * about.get("ranks", 1)):
            total = before.train.accumulate
    if total < size:
        raise UserError(f"an update of this run has {total} batches, which {size} ranks cannot share: start {total}")
    return replace(config, train=replace(config.train, accumulate=total))


def _launch(request: TrainRequest, config: RunConfig, train_model: TrainModel) -> str:
    """Start processes on this machine; they end with this one, and all end if one fails."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what has failed is said here
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
    with TemporaryDirectory() as complaints:
        try:
            return elastic_launch(launch, _process)(train_model, replace(request, devices=1), threads, complaints)[0]
        except SignalException as stopped:
            return signal.Signals(stopped.sigval).name
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            said = [path.read_text(encoding="utf-8") for path in sorted(Path(complaints).iterdir())]
            ended = f"rank {rank} has ended with exit code {failure.exitcode}; go on with --resume"
            raise UserError(said[0] if said else ended) from None


def _process(train_model: TrainModel, request: TrainRequest, threads: int, complaints: str) -> str:
    """How the training of one process ended; a `UserError` is passed on to the process that started it."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    try:
        return train_model(request)
    except UserError as error:
        Path(complaints, os.environ["RANK"]).write_text(str(error), encoding="utf-8")
        sys.exit(2)
