"""Logs for TensorBoard beside our own, where `--tensorboard` asks for them."""

from pathlib import Path
from typing import Any

from headwise.errors import UserError


def check_tensorboard() -> None:
    """`UserError` where TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError("--tensorboard needs TensorBoard: pip install 'headwise[tensorboard]'") from None


def tensorboard_writer(folder: Path) -> Any:
    """What writes scalars into a model directory."""
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))
