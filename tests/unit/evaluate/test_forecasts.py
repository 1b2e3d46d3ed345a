"""Forecast errors against figures computed by hand."""

import numpy as np
import pytest

from headwise.evaluate.forecasts import forecast_report

TRUE = np.array([[1.0, 2.0], [3.0, 5.0]])


def test_means_over_windows_and_steps_in_both_units() -> None:
    forecasts = {"model": np.array([[1.0, 0.0], [3.5, 5.0]]), "seasonal": TRUE, "last": TRUE + 1}
    report = forecast_report(forecasts, TRUE, std=3.0, target="OT", season=24)
    model = report.errors["model"]
    assert (model.mae, model.mse) == pytest.approx((2.5 / 4, 4.25 / 4))
    assert (model.mae_original, model.mse_original) == pytest.approx((3 * 2.5 / 4, 9 * 4.25 / 4))
    assert report.errors["seasonal"].mse == 0
    assert report.errors["last"].mae == 1
    assert (report.n_windows, report.horizon) == (2, 2)


def test_what_is_shown_and_what_is_written() -> None:
    report = forecast_report({"model": TRUE, "seasonal": TRUE + 2, "last": TRUE}, TRUE, 0.5, "OT", 24)
    assert "value 24 rows before  2.0000  4.0000           1.0000           1.0000" in report.render()
    assert report.render().endswith("OT, 2 windows, 2 rows ahead")
    assert report.as_json()["seasonal"] == {"mae": 2.0, "mse": 4.0, "mae_original": 1.0, "mse_original": 1.0}
    assert report.as_json()["season"] == 24
