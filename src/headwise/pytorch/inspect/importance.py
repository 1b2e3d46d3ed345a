"""Importance of attention heads: how much the loss would change if a head were scaled down a little.

Michel et al. 2019 (arXiv:1905.10650, section 4.1): the output of every head is multiplied with a gate of 1, and its
importance is the expected magnitude of the gradient of the loss with respect to that gate,

    I_h = E_x | dL(x) / d gate_h |,

where L(x) is the loss of an `Example`, such as the negative log-likelihood of a translation. As in the paper, the
importances of a layer are divided by their Euclidean norm, so that layers are comparable. See `heads.py` and
`headwise.pytorch.models.pruning` for removing heads.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.attention import MultiHeadAttention
from headwise.core.batches import Batch, collate
from headwise.errors import UserError
from headwise.pytorch.inspect.heads import Head, LayerName, multi_head_attentions
from headwise.pytorch.search.stepwise import evaluating
from headwise.text.prepared.batch_planning import cut_padded
from headwise.text.tokens.pair_tokenizer import PairTokenizer


@dataclass(frozen=True)
class Example:
    """A batch and the sum of the losses of its rows."""

    rows: int
    loss: Callable[[Any], Float[Tensor, ""]]  # of a network


def head_importance(
    model: nn.Module, tokenizer: PairTokenizer, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096
) -> dict[Head, float]:
    """The importance of every head for translating these sources into these targets.

    Args:
        model: a Transformer. It runs without dropout; its mode, parameters and gradients are left as they were.
        batch_tokens: tokens in a batch, rows times the longer side.

    Raises:
        UserError: another architecture, no pairs, or different numbers of lines.
    """
    if len(sources) != len(targets) or not sources:
        raise UserError(f"{len(sources)} source and {len(targets)} target lines; line n must belong to line n")
    pairs = list(zip(tokenizer.source.encode_batch(sources), tokenizer.encode_batch(targets), strict=True))
    lengths = np.array([max(len(src), len(tgt)) + 1 for src, tgt in pairs])
    order = np.argsort(lengths, kind="stable")
    special = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)
    batches = (
        collate([pairs[row] for row in rows], *special, src_end_id=tokenizer.source.eos_id)
        for rows in cut_padded(order, lengths[order], batch_tokens)
    )
    return importance_over(model, (_translating(batch, tokenizer.pad_id) for batch in batches))


def _translating(batch: Batch, pad_id: int) -> Example:
    def loss(model: Any) -> Float[Tensor, ""]:
        moved = batch.to(next(model.parameters()).device)
        logits = model(moved.src, moved.tgt_in, moved.src_mask)
        targets = moved.tgt_out.flatten()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="sum", ignore_index=pad_id)

    return Example(len(batch.src), loss)


def importance_over(model: nn.Module, examples: Iterable[Example]) -> dict[Head, float]:
    """The importance of every head for these examples."""
    there, device = multi_head_attentions(model), next(model.parameters()).device
    sums = {where: torch.zeros(attention.n_heads, device=device) for where, attention in there.items()}
    for example in examples:
        for where, gradient in _gate_gradients(model, there, example).items():
            sums[where] += gradient.abs().sum(0)
    shares = {where: (total / total.norm().clamp_min(1e-30)).tolist() for where, total in sums.items()}
    return {Head(*where, n): value for where, values in shares.items() for n, value in enumerate(values)}


def _gate_gradients(
    model: Any, there: Mapping[LayerName, MultiHeadAttention], example: Example
) -> dict[LayerName, Float[Tensor, "batch heads"]]:
    """The gradient of each row's loss by the gates of all heads."""
    weights = next(model.parameters())
    gates = {where: weights.new_ones(example.rows, a.n_heads).requires_grad_() for where, a in there.items()}
    with evaluating(model), torch.enable_grad(), _gated(there, gates):
        # Rows are independent, so the gradient of the sum contains that of each.
        gradients = torch.autograd.grad(example.loss(model), list(gates.values()))
    return {where: gradient.float() for where, gradient in zip(gates, gradients, strict=True)}


@contextmanager
def _gated(there: Mapping[LayerName, MultiHeadAttention], gates: Mapping[LayerName, Tensor]) -> Iterator[None]:
    """Inside, the output of each head is multiplied with its gate."""

    def hook(gate: Tensor) -> object:
        def apply(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            (heads,) = inputs  # (batch, queries, heads * d_v)
            return (heads * gate.repeat_interleave(heads.size(-1) // gate.size(1), 1).unsqueeze(1),)

        return apply

    handles = [there[where].o_proj.register_forward_pre_hook(hook(gate)) for where, gate in gates.items()]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def least_important(importance: Mapping[Head, float], count: int) -> list[Head]:
    """The `count` least important heads, least important first; each attention keeps one.

    Raises:
        UserError: more heads than can be removed.
    """
    left: dict[LayerName, int] = {}
    for head in importance:
        left[head.layer_name] = left.get(head.layer_name, 0) + 1
    most = len(importance) - len(left)
    if not 0 <= count <= most:
        raise UserError(f"{count} heads to remove of {len(importance)}: at most {most}, as every attention keeps one")
    removed: list[Head] = []
    for head in _ascending(importance):
        if len(removed) < count and left[head.layer_name] > 1:
            removed.append(head)
            left[head.layer_name] -= 1
    return removed


def _ascending(importance: Mapping[Head, float]) -> Collection[Head]:
    return sorted(importance, key=lambda head: (importance[head], head))
