"""How well a training run uses its device: model FLOPs utilisation (MFU), arXiv:2204.02311, appendix B.

Only matrix products with parameters count, for real positions: no padding, no recomputation, no second pass of R-Drop,
and not the products of queries and keys, which are a few per cent for sentences. So the figure is a lower bound.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headwise.core.batches import Batch, TrainingBatch

# Dense bfloat16 products with float32 sums, in 10^12 operations per second, from NVIDIA's data sheets. Of several names
# that are part of a device's name, the longest counts.
PEAKS = {
    "A100": 312,
    "H100": 989,
    "H100 PCIe": 756,
    "H200": 989,
    "GH200": 989,
    "L4": 121,
    "L40S": 362,
    "RTX 4090": 165,
}

FACTORS = ("weight", "direction", "lora_")  # parameters of products, rather than of tables; "weight_ih_l0" is one, too

POSITIONS: dict[str, Callable[[TrainingBatch], int]] = {  # of a batch, by kind
    "all": lambda batch: batch.n_real,
    "source": lambda batch: batch.n_real - batch.n_tokens,
    "target": lambda batch: batch.n_tokens,
    "predicted": lambda batch: batch.n_targets,
}


def peak_of(device_name: str) -> float | None:
    """The peak of a CUDA device in operations per second; None if it is not known.

    >>> peak_of("NVIDIA H100 80GB HBM3"), peak_of("NVIDIA H100 PCIe"), peak_of("NVIDIA L40S"), peak_of("Tesla T4")
    (989000000000000.0, 756000000000000.0, 362000000000000.0, None)
    """
    words = f"{device_name.replace('-', ' ')} "
    known = [name for name in PEAKS if f"{name} " in words]
    return 1e12 * PEAKS[max(known, key=len)] if known else None


def operations_of(network: nn.Module) -> Callable[[TrainingBatch], int]:
    """A function that returns the floating-point operations of a training step of `network` with a batch.

    A parameter of a product takes two operations for each position, as many for the gradient of the input and, if it is
    trained, for its own gradient. The result is 0 for an encoder of sounds or pictures with a decoder, because batches
    do not know the encoder's positions.
    """
    per_position = Counter[str]()
    for name, module in network.named_modules():
        if not isinstance(module, nn.Embedding):
            kind = _positions_of(network, name)
            for leaf, parameter in module.named_parameters(recurse=False):
                if parameter.dim() > 1 and leaf.startswith(FACTORS):
                    per_position[kind] += parameter.numel() * (6 if parameter.requires_grad else 4)

    def count(batch: TrainingBatch) -> int:
        if "source" in per_position and not isinstance(batch, Batch):
            return 0
        return sum(number * POSITIONS[kind](batch) for kind, number in per_position.items())

    return count


def _positions_of(network: Any, name: str) -> str:
    """The kind of positions that the module called `name` processes."""
    if name.rpartition(".")[2] == "output":
        return "predicted"
    if not (hasattr(network, "encoder") and hasattr(network, "decoder")):
        return "all"
    of_memory = name.endswith(("cross_attn.k_proj", "cross_attn.v_proj"))
    return "source" if of_memory or name.startswith(("encoder.", "src_embeddings.")) else "target"


def device_peak(device: torch.device) -> float | None:
    """See `peak_of`; None for a CPU."""
    return peak_of(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
