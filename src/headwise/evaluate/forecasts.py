"""Errors of forecasts, compared with two naive baselines: the value a season ago, and the last value."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class Errors:
    """Mean absolute and squared error over all windows and steps, of standardised values and in the series' units."""

    mae: float
    mse: float
    mae_original: float
    mse_original: float


@dataclass(frozen=True)
class ForecastReport:
    """Errors by forecaster: "model", "seasonal" and "last"."""

    errors: dict[str, Errors]
    target: str
    season: int
    n_windows: int
    horizon: int

    def as_json(self) -> dict[str, Any]:
        """`{"model": {"mae": ..., ...}, "seasonal": {...}, "last": {...}, "target": ..., ...}`."""
        rest = {"target": self.target, "season": self.season, "windows": self.n_windows, "horizon": self.horizon}
        return {**{name: asdict(one) for name, one in self.errors.items()}, **rest}

    def render(self) -> str:
        """A report for people."""
        names = {"model": "model", "seasonal": f"value {count_of(self.season, 'row')} before", "last": "last value"}
        width = max(map(len, names.values()))
        lines = [f"{'':<{width}}     MAE     MSE  MAE (own units)  MSE (own units)"]
        for key, one in self.errors.items():
            lines.append(
                f"{names[key]:<{width}}  {one.mae:6.4f}  {one.mse:6.4f}  {one.mae_original:15.4f}  "
                f"{one.mse_original:15.4f}"
            )
        lines.append(f"{self.target}, {count_of(self.n_windows, 'window')}, {count_of(self.horizon, 'row')} ahead")
        return "\n".join(lines)


def errors_of(predicted: NDArray[Any], true: NDArray[Any], std: float) -> Errors:
    """Errors of standardised values; `std` is that of the series, which converts them to its units.

    >>> errors_of(np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]]), std=2.0)
    Errors(mae=1.5, mse=2.5, mae_original=3.0, mse_original=10.0)
    """
    error = predicted.astype(np.float64) - true
    mae, mse = float(np.abs(error).mean()), float(np.square(error).mean())
    return Errors(mae, mse, mae * std, mse * std**2)


def forecast_report(
    forecasts: Mapping[str, NDArray[Any]], true: NDArray[Any], std: float, target: str, season: int
) -> ForecastReport:
    """Errors of several forecasters on the same windows; arrays are (windows, horizon)."""
    errors = {name: errors_of(predicted, true, std) for name, predicted in forecasts.items()}
    return ForecastReport(errors, target, season, *true.shape)
