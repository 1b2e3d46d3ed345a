"""Callbacks that send a run's figures to TensorBoard, Weights & Biases or MLflow; all are optional dependencies.

Figures have the same names everywhere: "train/loss", "valid/bleu" and so on, by update. The services are configured as
usual, by their environment variables (`WANDB_PROJECT`, `WANDB_MODE`, `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`)
and configuration files. A resumed run continues its run there, whose id stands in the model folder.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import UserError, writing
from headwise.pytorch.training.callbacks import Callback, TrainingStart


class Tracker(Callback):
    """A callback that forwards all numbers; subclasses say where to.

    Raises:
        UserError: the package is not installed.
    """

    name = ""  # of the option and the extra

    def __init__(self) -> None:
        try:
            self._module()
        except ImportError:
            raise UserError(f'--{self.name} needs a package: pip install "headwise[{self.name}]"') from None

    def _module(self) -> Any:
        """The package; `ImportError` if it is not installed."""
        raise NotImplementedError

    def send(self, figures: Mapping[str, float], step: int) -> None:
        """Forward figures by name, such as "train/loss"."""
        raise NotImplementedError

    def on_log(self, record: dict[str, Any]) -> None:
        """Forward the figures of an interval."""
        self.send(_numbers(record, "train"), record["step"])

    def on_validation(self, record: dict[str, Any]) -> None:
        """Forward the figures of a validation."""
        self.send(_numbers(record, "valid"), record["step"])


class TensorBoard(Tracker):
    """Writes event files into the folder `tensorboard` of the model folder."""

    name = "tensorboard"

    def _module(self) -> Any:
        import torch.utils.tensorboard

        return torch.utils.tensorboard

    def on_start(self, start: TrainingStart) -> None:
        """Open the event file."""
        self._writer = self._module().SummaryWriter(str(start.folder / "tensorboard"))

    def send(self, figures: Mapping[str, float], step: int) -> None:
        """Add scalars."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def on_end(self, reason: str) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WandB(Tracker):
    """Logs to Weights & Biases; its run has the name of the model folder, in which its files are.

    With `WANDB_MODE=offline` nothing is sent; `wandb sync` sends the files later.
    """

    name = "wandb"

    def _module(self) -> Any:
        import wandb  # pyright: ignore[reportMissingImports]

        return wandb

    def on_start(self, start: TrainingStart) -> None:
        """Start or continue the run; `UserError` without a login."""
        wandb = self._module()
        name, config = start.folder.absolute().name, {**start.config, "n_parameters": start.n_parameters}
        path = start.folder / "wandb-run-id"
        try:
            self._run = wandb.init(dir=start.folder, name=name, config=config, id=_stored_id(path), resume="allow")
        except wandb.errors.Error as error:
            raise UserError(f"--wandb: {str(error).rstrip('.')}; or set WANDB_MODE=offline") from None
        _store_id(path, self._run.id)
        self._run.define_metric("*", step_metric="step")  # a resumed run may repeat some

    def send(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures with their step."""
        self._run.log({**figures, "step": step})

    def on_end(self, reason: str) -> None:
        """Finish the run, as failed after an error."""
        self._run.finish(exit_code=int(reason == "error"))


class MLflow(Tracker):
    """Logs to MLflow; its run has the name of the model folder, and the settings are its parameters."""

    name = "mlflow"

    def _module(self) -> Any:
        import mlflow  # pyright: ignore[reportMissingImports]

        return mlflow

    def on_start(self, start: TrainingStart) -> None:
        """Start or continue the run."""
        mlflow = self._module()
        path = start.folder / "mlflow-run-id"
        run_id = _stored_id(path)
        run = mlflow.start_run(run_id, run_name=start.folder.absolute().name, nested=True)
        _store_id(path, run.info.run_id)
        if run_id is None:  # parameters of a run cannot change
            settings = {f"{part}.{key}": value for part, table in start.config.items() for key, value in table.items()}
            mlflow.log_params({**settings, "n_parameters": start.n_parameters})

    def send(self, figures: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        self._module().log_metrics({**figures}, step)

    def on_end(self, reason: str) -> None:
        """End the run, as failed after an error, as killed after a signal."""
        self._module().end_run("FAILED" if reason == "error" else "KILLED" if reason.startswith("SIG") else "FINISHED")


TRACKERS: Sequence[type[Tracker]] = (TensorBoard, WandB, MLflow)


def _numbers(record: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """
    >>> _numbers({"step": 5, "loss": 1.5, "what": "step 5"}, "valid")
    {'valid/loss': 1.5}
    """
    return {f"{prefix}/{key}": float(v) for key, v in record.items() if isinstance(v, int | float) and key != "step"}


def _stored_id(path: Path) -> str | None:
    """The id of the run that is continued."""
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def _store_id(path: Path, run_id: str) -> None:
    with writing(path):
        path.write_text(f"{run_id}\n", encoding="utf-8")
