"""Activation checkpointing (arXiv:1604.06174): memory for a third more time, for models that do not fit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_layers(model: nn.Module) -> None:
    """From now on every layer of every stack (`nn.ModuleList`) of `model` keeps its inputs alone for the backward
    pass, which computes the rest again, with the same dropout masks: gradients stay what they were, bit for bit.
    """
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *inputs: Any) -> Any:
    return checkpoint(forward, *inputs, use_reentrant=False) if torch.is_grad_enabled() else forward(*inputs)
