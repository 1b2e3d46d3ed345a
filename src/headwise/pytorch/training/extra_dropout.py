"""Dropout beyond the paper's: on attention weights, inside the feed-forward network, on stacks, on layers (LayerDrop).

Pretrained models that were trained with these are fine-tuned with them. `add_dropout` wraps modules of the network, and
`without_extra_dropout` unwraps them. Names of parameters do not change. Dropped layers are still computed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.attention import Kernel, MultiHeadAttention
from headwise.core.dropout import Dropout
from headwise.core.layers import Activation, EncoderLayer, FeedForward, GatedFeedForward
from headwise.core.masks import Mask
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer


@dataclass(frozen=True)
class DropoutRates:
    """Probabilities in addition to that of the paper's dropout."""

    attention: float = 0.0  # on attention weights
    activation: float = 0.0  # inside the feed-forward network
    stack: float = 0.0  # on the output of encoder and decoder, after the final norm (T5)
    encoder_layer: float = 0.0  # LayerDrop: the layer becomes the identity (arXiv:1909.11556)
    decoder_layer: float = 0.0
    pool: float = 0.0  # on the input of a text classifier's head (RoBERTa, ELECTRA)
    classes: float = 0.0  # on the input of a classifier's last matrix
    whole_attention: bool = False  # no dropout on the output of self-attention (DistilBERT)
    whole_ffn: bool = False  # no dropout on the output of the feed-forward network (ALBERT)

    def __bool__(self) -> bool:
        """Whether anything is dropped."""
        return any(vars(self).values())


class DroppingKernel(nn.Module):
    """A kernel with dropout on attention weights.

    `add_dropout` wraps every kernel, even at rate 0. So faster implementations (`pytorch/training/packed.py`,
    `pytorch/search/compiled.py`) recognise a network that they do not support.
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
    """dropout(activation(x))."""

    def __init__(self, activation: Activation, p: float) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = Dropout(p)

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """Same shape in and out."""
        return self.dropout(self.activation(x))


def add_dropout(network: Transformer | DecoderOnly | EncoderOnly, rates: DropoutRates) -> None:
    """Add dropout with these rates to the network, in place."""
    if not rates:
        return
    for module in list(network.modules()):
        if isinstance(module, MultiHeadAttention):
            _replace(module, "kernel", DroppingKernel(module.kernel, rates.attention))
        elif isinstance(module, FeedForward | GatedFeedForward) and rates.activation:
            _replace(module, "activation", DroppingActivation(module.activation, rates.activation))
        elif isinstance(module, EncoderLayer):
            for whole, sublayer in (
                (rates.whole_attention, module.self_attn_sublayer),
                (rates.whole_ffn, module.ffn_sublayer),
            ):
                sublayer.dropout.p = 0.0 if whole else sublayer.dropout.p
    for part, p in (("pool", rates.pool), ("classes", rates.classes)):
        if p:
            network.get_submodule(f"head.{part}").register_forward_pre_hook(_input_dropout(p))
    for stack, p in _stacks(network, rates):
        for layer in stack.layers if p else ():
            layer.register_forward_hook(_layer_dropout(p))
        if rates.stack:
            stack.register_forward_hook(_output_dropout(rates.stack))


def _stacks(network: Transformer | DecoderOnly | EncoderOnly, rates: DropoutRates) -> list[tuple[Any, float]]:
    """The network's stacks and their LayerDrop rates."""
    encoder = [] if isinstance(network, DecoderOnly) else [(network.encoder, rates.encoder_layer)]
    return encoder if isinstance(network, EncoderOnly) else [*encoder, (network.decoder, rates.decoder_layer)]


@contextmanager
def without_extra_dropout(network: nn.Module) -> Iterator[None]:
    """Inside, kernels and activations are those from before `add_dropout`."""
    wrapped: list[tuple[nn.Module, str, nn.Module]] = []
    for module in network.modules():
        for name, added in (("kernel", DroppingKernel), ("activation", DroppingActivation)):
            if isinstance(part := getattr(module, name, None), added) and not isinstance(module, added):
                wrapped.append((module, name, part))
    for module, name, part in wrapped:
        _replace(module, name, getattr(part, name))
    try:
        yield
    finally:
        for module, name, part in wrapped:
            _replace(module, name, part.train(module.training))


def _replace(module: nn.Module, name: str, part: Any) -> None:
    delattr(module, name)  # torch does not let a function replace a module
    setattr(module, name, part)


def _layer_dropout(p: float) -> Callable[[nn.Module, Any, Any], Any]:
    def skip(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        return inputs[0] if layer.training and torch.rand(()).item() < p else output

    return skip


def _output_dropout(p: float) -> Callable[[nn.Module, Any, Any], Any]:
    dropout = Dropout(p)

    def drop(stack: nn.Module, _: Any, output: Any) -> Any:
        return dropout(output) if stack.training else output

    return drop


def _input_dropout(p: float) -> Callable[[nn.Module, Any], Any]:
    dropout = Dropout(p)

    def drop(part: nn.Module, inputs: tuple[Any, ...]) -> Any:
        return (dropout(inputs[0]),) if part.training else None

    return drop
