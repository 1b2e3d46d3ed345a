"""Dropout where the paper has none: on attention weights, inside the feed-forward network, on stacks, on whole layers.

Models trained with these are trained on with them. They are put around the modules of a network that is trained, and
taken away where it is only used (`without`): nothing in sections 3.1 to 3.5 knows of them, and parameters keep their
names. Layers that are dropped are computed all the same, in vain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.network.attention import Kernel, MultiHeadAttention
from headwise.network.dropout import Dropout
from headwise.network.feed_forward import Activation, FeedForward, GatedFeedForward
from headwise.network.halves import DecoderOnly, EncoderOnly
from headwise.network.layers import EncoderLayer
from headwise.network.masks import Mask
from headwise.network.transformer import Transformer


@dataclass(frozen=True)
class DropoutRates:
    """Probabilities, beside that of the paper's dropout."""

    attention: float = 0.0  # of a weight of attention
    activation: float = 0.0  # of a number inside a feed-forward network
    stack: float = 0.0  # of a number that encoder or decoder put out, behind the last norm (T5)
    encoder_layer: float = 0.0  # of a layer, which then passes on what it was given (arXiv:1909.11556)
    decoder_layer: float = 0.0
    pool: float = 0.0  # of the state that a head for classes of a text reads (RoBERTa, ELECTRA)
    classes: float = 0.0  # of what the last matrix of a head for classes reads
    whole_attention: bool = False  # of what attention puts out nothing is dropped, not even by the paper's (DistilBERT)

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return any(vars(self).values())


class DroppingKernel(nn.Module):
    """A kernel some of whose weights are dropped in training.

    Every attention is given one where anything is dropped at all: by it, whoever computes a network in another form
    (`training/packed.py`, `network/compiled.py`) sees that this is not the paper's.
    """

    def __init__(self, kernel: Kernel, p: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.dropout = Dropout(p)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Float[Tensor, "batch heads queries d_v"]:
        """As `Kernel`."""
        if not self.training or self.dropout.p == 0.0:
            return self.kernel(q, k, v, mask)
        return self.dropout(self.kernel.weights(q, k, mask)) @ v.repeat_interleave(q.size(1) // v.size(1), 1)

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """As `Kernel`."""
        return self.kernel.weights(q, k, mask)


class DroppingActivation(nn.Module):
    """dropout(activation(x)); of a gated network the product with the gate loses the same numbers."""

    def __init__(self, activation: Activation, p: float) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(p)

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Same shape in and out."""
        return self.dropout(self.activation(x))


def add_dropout(network: Transformer | DecoderOnly | EncoderOnly, rates: DropoutRates) -> None:
    """Drop at these rates while the network trains."""
    if not rates:
        return
    for module in list(network.modules()):
        if isinstance(module, MultiHeadAttention):
            _give(module, "kernel", DroppingKernel(module.kernel, rates.attention))
        elif isinstance(module, FeedForward | GatedFeedForward) and rates.activation:
            _give(module, "activation", DroppingActivation(module.activation, rates.activation))
        elif isinstance(module, EncoderLayer) and rates.whole_attention:
            module.self_attn_sublayer.dropout.p = 0.0
    for part, p in (("pool", rates.pool), ("classes", rates.classes)):
        if p:
            network.get_submodule(f"head.{part}").register_forward_pre_hook(_reads_dropped_at(p))
    for stack, p in _stacks(network, rates):
        for layer in stack.layers if p else ():
            layer.register_forward_hook(_skipped_at(p))
        if rates.stack:
            stack.register_forward_hook(_dropped_at(rates.stack))


def _stacks(network: Transformer | DecoderOnly | EncoderOnly, rates: DropoutRates) -> list[tuple[Any, float]]:
    """Those that there are, and the rate of a layer in each."""
    encoder = [] if isinstance(network, DecoderOnly) else [(network.encoder, rates.encoder_layer)]
    return encoder if isinstance(network, EncoderOnly) else [*encoder, (network.decoder, rates.decoder_layer)]


@contextmanager
def without(network: nn.Module) -> Iterator[None]:
    """Inside, kernels and activations are those from before `add_dropout`, for whoever computes in another form."""
    put_back: list[tuple[nn.Module, str, nn.Module]] = []
    for module in network.modules():
        for name, added in (("kernel", DroppingKernel), ("activation", DroppingActivation)):
            if isinstance(own := getattr(module, name, None), added) and not isinstance(module, added):
                put_back.append((module, name, own))
    for module, name, own in put_back:
        _give(module, name, getattr(own, name))
    try:
        yield
    finally:
        for module, name, own in put_back:
            _give(module, name, own.train(module.training))


def _give(module: nn.Module, name: str, part: Any) -> None:
    delattr(module, name)  # torch lets no function take the place of a module
    setattr(module, name, part)


def _skipped_at(p: float) -> Callable[[nn.Module, Any, Any], Any]:
    def skip(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        return inputs[0] if layer.training and torch.rand(()).item() < p else output

    return skip


def _dropped_at(p: float) -> Callable[[nn.Module, Any, Any], Any]:
    dropout = Dropout(p)

    def drop(stack: nn.Module, _: Any, output: Any) -> Any:
        return dropout(output) if stack.training else output

    return drop


def _reads_dropped_at(p: float) -> Callable[[nn.Module, Any], Any]:
    dropout = Dropout(p)

    def drop(part: nn.Module, inputs: tuple[Any, ...]) -> Any:
        return (dropout(inputs[0]),) if part.training else None

    return drop
