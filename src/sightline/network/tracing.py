"""Modules run without Python: a TorchScript graph, recorded on the first call and used from then on.

A decoding step is hundreds of small operations, and for a few rows calling them from Python costs as much as the
work itself. TorchScript is deprecated and may leave torch one day; a module that cannot be recorded is simply called.
"""

import warnings
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

ONE_AT_A_TIME = Lock()  # neither torch's tracer nor Python's filter of warnings is meant for several threads


class Traced(nn.Module):
    """Calls `module`, after the first time as a graph. For modules with these properties only:

    - inputs are tensors, the output is one tensor, and nothing but their shapes differs from call to call;
    - no Python branch or number depends on an input, but for sizes used as sizes.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._graph: Any = None

    def forward(self, *inputs: Tensor) -> Tensor:
        """What `module` returns."""
        if self._graph is None:
            self._graph = _record(self.module, inputs)
        return self._graph(*inputs)


def _record(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    copies = tuple(x.clone() for x in inputs)  # recording runs the module, which may write into its inputs
    with ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TorchScript's deprecation, and about sizes that are checked
        try:
            return torch.jit.freeze(torch.jit.trace(module, copies, check_trace=False))
        except (AttributeError, RuntimeError):
            return module
