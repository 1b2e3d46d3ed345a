"""Training time-series forecasters on CSV files: a window in, the values after it out.

A linear layer on the pooled encoder state predicts all steps at once, so that errors are not fed back as by a decoder.
Targets are changes from the last known row (see `headwise.pytorch.data.time_series.center_windows`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from headwise.config.model import longest_sequence
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.extensions.pooled import PooledEncoder
from headwise.core.loss import Loss, squared_loss
from headwise.core.train import Objective
from headwise.errors import UserError
from headwise.evaluate.baselines import AT_ONCE, MOST_WINDOWS, Baseline, evenly, linear_forecaster
from headwise.pytorch.architectures.registry import build_pooled_network
from headwise.pytorch.data.stream import BatchShare, EndlessStream, batches_of_epochs
from headwise.pytorch.data.time_series import Scaling, WindowBatch, Windows, read_table
from headwise.pytorch.tasks.job import Job, TrainRequest, base_names, notify
from headwise.pytorch.tasks.pretrained import TaskJobs
from headwise.pytorch.training.validation import Outputs, Shard, mean_over_shards


@dataclass(frozen=True)
class ForecastJob(Job):
    """The next values of a time series."""

    train: Windows
    valid: Windows

    @property
    def baseline(self) -> dict[str, float]:
        """The errors of repeating the last value."""
        return self._errors(lambda batch: torch.zeros_like(batch.targets))

    def simple_baseline(self) -> Baseline:
        """A linear model of the target's own past."""
        rows = evenly(len(self.train), MOST_WINDOWS)
        known = (self.train.load(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE))
        own = [(one.differences.numpy(), one.targets.numpy().copy()) for one in known]
        forecast = linear_forecaster(*map(np.concatenate, zip(*own, strict=True)))
        errors = self._errors(lambda batch: torch.from_numpy(forecast(batch.differences.numpy())))
        advice = "use that, or try data.window, more rows, or a file with this column alone"
        return Baseline("a linear model of the differences from the last value", errors, advice)

    def _validation(self) -> Iterator[WindowBatch]:
        return self.valid.in_order(self.config.train.tokens_per_batch)

    def _errors(self, forecast: Callable[[WindowBatch], Tensor]) -> dict[str, float]:
        outputs: Outputs = {"loss": [], "mae": [], "targets": []}
        for batch in self._validation():
            _count_errors(outputs, squared_loss(forecast(batch).to(batch.targets), batch.targets), batch)
        return self.figures(outputs)

    def network(self) -> PooledEncoder:
        return build_pooled_network(self.config.model)

    def objective(self, network: nn.Module) -> Objective:
        return forecast_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[WindowBatch]:
        train, seed, tokens = self.train, self.config.train.seed, self.config.train.tokens_per_batch
        return EndlessStream(
            lambda start: batches_of_epochs(lambda epoch: train.plan(tokens, seed, epoch), train.load, start),
            state,
            share,
        )

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each batch the squared ("loss") and absolute error of standardised values, and the number of windows."""
        objective = forecast_objective(network, replace(self.config.train, compile=False))
        outputs: Outputs = {"loss": [], "mae": [], "targets": []}
        for batch in shard.of(self._validation()):
            _count_errors(outputs, objective(batch.to(device)), batch)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Both errors per window."""
        return {name: mean_over_shards(outputs, name, "targets") for name in ("loss", "mae")}


def _count_errors(outputs: Outputs, loss: Loss, batch: WindowBatch) -> None:
    outputs["loss"].append(loss.objective.item())
    outputs["mae"].append(loss.figures["mae"].item())
    outputs["targets"].append(batch.n_targets)


def forecast_job(request: TrainRequest, config: RunConfig, folder: Path) -> ForecastJob:
    """Read, check, split and standardise the series, with the statistics of the training rows."""
    if request.special:
        raise UserError("--special is for texts; a forecaster has no tokenizer")
    data, limit = config.data, longest_sequence(config.model)
    if limit is not None and data.window // data.patch > limit:
        raise UserError(
            f"model.max_len = {limit} is less than data.window / data.patch = {data.window // data.patch}; "
            "change one of them"
        )
    train = [read_table(path) for path in request.train]
    valid = [read_table(path) for path in request.valid]
    for table in (*train, *valid):
        if table.note:
            notify(request, f"warning: {table.note}")
    if not valid:
        train, valid = map(list, zip(*(table.split(data.valid_share) for table in train), strict=True))
    scaling = Scaling.fit(train, data.target, data.inputs)
    shape = data.window, data.horizon, data.patch, data.scale_windows
    training, validating = (Windows.of(part, scaling, *shape) for part in (train, valid))
    columns = "one column" if len(scaling.columns) == 1 else f"{len(scaling.columns)} columns"
    notify(request, f"training on {len(training):,} windows of {columns} to forecast {scaling.target}")
    rows = f"{data.window} rows in, {data.horizon} out"
    about = {
        "corpus": {
            "train": base_names(request.train),
            "valid": base_names(request.valid) or [f"the last {data.valid_share:.0%} of the rows"],
            "windows": len(training),
            "key": " ".join(table.key for table in train),
            "valid_key": " ".join(table.key for table in valid),
        },
        "series": asdict(scaling),
        "material": {
            "forecasts": f"{scaling.target} from {', '.join(scaling.columns)}: {rows}",
            "training data": f"{', '.join(base_names(request.train))}: {len(training):,} windows",
        },
    }
    model = replace(config.model, n_inputs=len(scaling.columns) * data.patch, n_outputs=data.horizon)
    return ForecastJob(replace(config, model=model), None, about, training, validating)


JOBS = TaskJobs(forecast_job)


def forecast_objective(model: nn.Module, train: TrainConfig) -> Objective:
    """Squared error of the standardised values after the window."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: WindowBatch) -> Loss:
        return squared_loss(forward(batch.src, batch.src_mask) * batch.scale, batch.targets)

    return objective
