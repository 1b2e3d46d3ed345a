"""Time series: a window in, the values after it out; training a forecaster on a CSV file, and using one.

Of many steps ahead all are put out at once, from the pooled state of the encoder. A decoder would feed its own
forecasts back to itself, and its errors with them; a linear map cannot, and is the simplest form of both cases. What is
forecast are changes from the last known row (see `sightline.data.series.centred`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from sightline.architectures import build_pooled
from sightline.checkpoint.folder import Folder
from sightline.checkpoint.trained import CONFIG, noted
from sightline.config import RunConfig, TrainConfig, longest_sequence, meaningful
from sightline.data.batch import TrainingBatch
from sightline.data.batching import EndlessStream
from sightline.data.epochs import walk_epochs
from sightline.data.series import Scaling, Table, WindowBatch, Windows, centred, read_table, seasonal_forecast
from sightline.errors import UserError
from sightline.evaluate.forecasts import ForecastReport, forecast_report
from sightline.model import Model
from sightline.network.parameters import count_parameters
from sightline.network.pooled import PooledEncoder
from sightline.pairs import HeadVerbs
from sightline.tasks.job import OURS, FolderLayout, TrainRequest, file_names, say
from sightline.training.loss import Loss, at_least_float32
from sightline.training.shares import Mine, Said, Validation, mean
from sightline.training.step import Objective

if TYPE_CHECKING:
    from sightline.inspect.heads import Head


@dataclass(frozen=True)
class ForecastJob:
    """See `sightline.tasks.job.Job`."""

    config: RunConfig
    about: dict[str, Any]
    train: Windows
    valid: Windows
    tokenizer: None = None
    signature: str = ""
    baseline: Mapping[str, float] = field(default_factory=dict)
    layout: FolderLayout = OURS

    def network(self) -> PooledEncoder:
        return build_pooled(self.config.model)

    def objective(self, network: nn.Module) -> Objective:
        return forecast_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[WindowBatch]:
        train, seed, tokens = self.train, self.config.train.seed, self.config.train.tokens_per_batch
        return EndlessStream(
            lambda start: walk_epochs(lambda epoch: train.plan(tokens, seed, epoch), train.load, start), state, pin=pin
        )

    def validation(self, network: nn.Module, device: torch.device) -> Validation:
        """Squared ("loss") and absolute error of standardised values over all validation windows."""
        objective = forecast_objective(network, replace(self.config.train, compile=False))
        tokens = self.config.train.tokens_per_batch

        def said(mine: Mine) -> Said:
            return said_by(objective, mine(self.valid.in_order(tokens)), device)

        return Validation(said, mean_figures)


def forecast_job(request: TrainRequest, config: RunConfig, folder: Path) -> ForecastJob:
    """Read, check, split and standardise the series; the statistics are those of the training rows alone."""
    if request.special:
        raise UserError("--init and --special are for texts; a forecaster has neither tokenizer nor a model before it")
    data, limit = config.data, longest_sequence(config.model)
    if limit is not None and data.window > limit:
        raise UserError(f"model.max_len = {limit} is less than data.window = {data.window}; change one of them")
    train = [read_table(path) for path in request.train]
    if request.valid:
        valid = [read_table(path) for path in request.valid]
    else:
        train, valid = map(list, zip(*(table.split(data.valid_share) for table in train), strict=True))
    scaling = Scaling.learn(train, data.target)
    training, validating = (Windows.of(part, scaling, data.window, data.horizon) for part in (train, valid))
    say(
        request, f"training on {len(training):,} windows of {len(scaling.columns)} columns to forecast {scaling.target}"
    )
    shape = f"{data.window} rows in, {data.horizon} out"
    about = {
        "corpus": {
            "train": file_names(request.train),
            "valid": file_names(request.valid) or [f"the last {data.valid_share:.0%} of the rows"],
            "windows": len(training),
            "key": " ".join(table.key for table in train),
            "valid_key": " ".join(table.key for table in valid),
        },
        "series": asdict(scaling),
        "material": {
            "forecasts": f"{scaling.target} from {', '.join(scaling.columns)}: {shape}",
            "training data": f"{', '.join(file_names(request.train))}: {len(training):,} windows",
        },
    }
    model = replace(config.model, n_inputs=len(scaling.columns), n_outputs=data.horizon)
    return ForecastJob(replace(config, model=model), about, training, validating)


def forecast_objective(model: nn.Module, train: TrainConfig) -> Objective:
    """Squared error of the standardised values after a window."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: WindowBatch) -> Loss:
        return squared_loss(forward(batch.src, batch.src_mask), batch.targets)

    return objective


def squared_loss(predicted: Float[Tensor, "batch horizon"], true: Float[Tensor, "batch horizon"]) -> Loss:
    """Squared error of forecasts, a mean over the steps of each; the absolute error is logged beside it."""
    error = at_least_float32(predicted) - true
    return Loss(error.square().mean(1).sum(), {"mae": error.detach().abs().mean(1).sum()})


@torch.inference_mode()
def said_by(objective: Objective, batches: Iterable[TrainingBatch], device: torch.device) -> Said:
    """The objective's value, its figures and the targets of each batch; the model is in evaluation mode."""
    said: Said = {"loss": [], "mae": [], "targets": []}
    for batch in batches:
        loss = objective(batch.to(device))
        said["loss"].append(loss.objective.item())
        said["mae"].append(loss.figures["mae"].item())
        said["targets"].append(batch.n_targets)
    return said


def mean_figures(said: Said) -> dict[str, float]:
    """The two errors per window."""
    return {name: mean(said, name, "targets") for name in ("loss", "mae")}


class Forecaster(HeadVerbs, Model):
    """A trained forecaster of a time series; made by `sightline.load`."""

    does = "reads time series"
    reads = "series"
    tokenizer = None  # nothing is text

    def __init__(self, directory: Folder) -> None:
        self.path = directory.path
        self.network = directory.network
        self.scaling = _scaling(directory)
        self.config = directory.config
        self.about = directory.about
        self.device = torch.device(directory.device)

    def forecast(self, path: str | Path) -> list[float]:
        """The `data.horizon` values of the target after the last row of a CSV file, in its own units."""
        table = read_table(str(path))
        window = self.config.data.window
        if len(table.values) < window:
            raise UserError(f"{path}: {len(table.values)} rows are too few, the model reads {window}")
        latest = self.scaling.standardise(Table(table.path, table.columns, table.values[-window:]))
        batch = centred(latest[np.newaxis], window, self.scaling.target_column)
        return self.scaling.original(self._predict(batch))[0].tolist()

    def _predict(self, batch: WindowBatch) -> NDArray[np.float32]:
        """Standardised forecasts, (windows, horizon)."""
        there = batch.to(self.device)
        with torch.inference_mode():
            return (self.network(there.src, there.src_mask).float() + there.last).cpu().numpy()

    def evaluate(self, paths: Sequence[str]) -> ForecastReport:
        """Errors over every window of some CSV files, beside those of the two naive forecasts."""
        data, windows = self.config.data, self._windows(paths)
        true, found = [], {"model": [], "seasonal": [], "last": []}
        for batch in windows.in_order(self.config.decode.batch_tokens):
            history = (batch.src[:, :, windows.target_column] + batch.last).numpy()
            true.append((batch.targets + batch.last).numpy())
            found["model"].append(self._predict(batch))
            found["seasonal"].append(seasonal_forecast(history, data.horizon, data.season))
            found["last"].append(seasonal_forecast(history, data.horizon, season=1))
        forecasts = {name: np.concatenate(parts) for name, parts in found.items()}
        std = self.scaling.std[self.scaling.target_column]
        return forecast_report(forecasts, np.concatenate(true), std, self.scaling.target, data.season)

    def head_importance(self, paths: Sequence[str]) -> "dict[Head, float]":
        """How much the squared error over every window of some CSV files would change with each head."""
        from sightline.inspect.importance import Example, importance_over

        batches = self._windows(paths).in_order(self.config.decode.batch_tokens)
        return importance_over(self.network, (Example(len(batch.src), self._loss_of(batch)) for batch in batches))

    def _loss_of(self, batch: WindowBatch) -> Callable[[nn.Module], Tensor]:
        there = batch.to(self.device)
        return lambda network: squared_loss(network(there.src, there.src_mask), there.targets).objective

    def _windows(self, paths: Sequence[str]) -> Windows:
        data = self.config.data
        return Windows.of([read_table(path) for path in paths], self.scaling, data.window, data.horizon)

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        return {"parameters": count_parameters(self.network), **self.about, **meaningful(self.config)}


def _scaling(directory: Folder) -> Scaling:
    said, file = noted(directory.path, directory.about, "series", dict), directory.path / CONFIG
    try:
        return Scaling.of(said)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file}: 'series' is damaged ({type(error).__name__}: {error})") from None
