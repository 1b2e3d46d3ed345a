"""A forecaster of time series."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.core.loss import squared_loss
from headwise.errors import UserError
from headwise.evaluate.forecasts import ForecastReport, forecast_report
from headwise.models.introspection import PrunableModel
from headwise.pytorch.data.time_series import (
    Scaling,
    Table,
    WindowBatch,
    Windows,
    center_windows,
    read_table,
    seasonal_forecast,
)
from headwise.pytorch.inspect.heads import Head
from headwise.pytorch.inspect.importance import Example, importance_over
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.trained import CONFIG, noted


class Forecaster(PrunableModel):
    """A forecaster of a time series."""

    does = "reads time series"
    reads = "series"
    usual_task = "forecast"

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.scaling = _scaling(folder)

    def forecast(self, path: str | Path) -> list[float]:
        """The `data.horizon` values of the target after the last row of a CSV file, in its own units."""
        table = read_table(str(path))
        data = self.config.data
        window = data.window
        if len(table.values) < window:
            raise UserError(f"{path}: {len(table.values)} rows are too few: the model reads {window}")
        latest = self.scaling.standardise(Table(table.path, table.columns, table.values[-window:]))
        batch = center_windows(latest[np.newaxis], window, self.scaling.target_column, data.patch, data.scale_windows)
        return self.scaling.original(self._predict(batch))[0].tolist()

    def _predict(self, batch: WindowBatch) -> NDArray[np.float32]:
        """Standardised forecasts, (windows, horizon)."""
        there = batch.to(self.device)
        with torch.inference_mode():
            return (self.network(there.src, there.src_mask).float() * there.scale + there.last).cpu().numpy()

    def evaluate(self, paths: Sequence[str]) -> ForecastReport:
        """Errors over every window of some CSV files, compared with two naive forecasts."""
        data, windows = self.config.data, self._windows(paths)
        true, found = [], {"model": [], "seasonal": [], "last": []}
        for batch in windows.in_order(self.config.decode.batch_tokens):
            history = batch.history.numpy()
            true.append((batch.targets + batch.last).numpy())
            found["model"].append(self._predict(batch))
            found["seasonal"].append(seasonal_forecast(history, data.horizon, data.season))
            found["last"].append(seasonal_forecast(history, data.horizon, season=1))
        forecasts = {name: np.concatenate(parts) for name, parts in found.items()}
        std = self.scaling.std[self.scaling.target_column]
        return forecast_report(forecasts, np.concatenate(true), std, self.scaling.target, data.season)

    def head_importance(self, paths: Sequence[str]) -> dict[Head, float]:
        """The sensitivity of the squared error over all windows of CSV files to each head."""
        batches = self._windows(paths).in_order(self.config.decode.batch_tokens)
        return importance_over(self.network, (Example(len(batch.src), self._loss_of(batch)) for batch in batches))

    def _loss_of(self, batch: WindowBatch) -> Callable[[nn.Module], Tensor]:
        there = batch.to(self.device)
        return lambda network: squared_loss(network(there.src, there.src_mask) * there.scale, there.targets).objective

    def _windows(self, paths: Sequence[str]) -> Windows:
        data = self.config.data
        shape = data.window, data.horizon, data.patch, data.scale_windows
        return Windows.of([read_table(path) for path in paths], self.scaling, *shape)


def _scaling(folder: Folder) -> Scaling:
    values, file = noted(folder.path, folder.about, "series", dict), folder.path / CONFIG
    try:
        return Scaling.of(values)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file}: 'series' is damaged ({type(error).__name__}: {error})") from None
