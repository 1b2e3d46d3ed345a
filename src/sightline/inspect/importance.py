"""Which heads matter: how much the loss would change if a head were turned down a little.

Michel et al. 2019 (arXiv:1905.10650, section 4.1): every head gets a gate of 1 that its output is multiplied with, and
its importance is the expected magnitude of the loss's gradient by that gate,

    I_h = E_x | dL(x) / d gate_h |,

L(x) being the negative log-likelihood of one translation. As there, the importances of a layer's heads are divided by
their Euclidean norm, so that layers compare. Not here: taking heads away (`heads.py`, `sightline.pruning`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.data.batch import Batch, collate
from sightline.data.batching import cut_padded
from sightline.data.side import Side
from sightline.decode.steps import evaluating
from sightline.errors import UserError
from sightline.inspect.heads import Head, Place, multi_head_attentions
from sightline.network.attention import MultiHeadAttention


def head_importance(
    model: nn.Module, tokenizer: Side, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096
) -> dict[Head, float]:
    """The importance of every head for translating these sources into these targets.

    Args:
        model: a Transformer; works without dropout, and leaves it, its parameters and their gradients as they were.
        batch_tokens: pieces looked at together, rows times the longer side.

    Raises:
        UserError: another architecture, no pairs, or different numbers of lines.
    """
    if len(sources) != len(targets) or not sources:
        raise UserError(f"{len(sources)} source and {len(targets)} target lines; line n must belong to line n")
    there = multi_head_attentions(model)
    pairs = list(zip(tokenizer.source.encode_batch(sources), tokenizer.encode_batch(targets), strict=True))
    lengths = np.array([max(len(src), len(tgt)) + 1 for src, tgt in pairs])
    order = np.argsort(lengths, kind="stable")
    device = next(model.parameters()).device
    sums = {place: torch.zeros(attention.n_heads, device=device) for place, attention in there.items()}
    for rows in cut_padded(order, lengths[order], batch_tokens):
        marks = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)
        batch = collate([pairs[row] for row in rows], *marks, src_end_id=tokenizer.source.eos_id).to(device)
        for place, gradient in _gate_gradients(model, there, batch, tokenizer.pad_id).items():
            sums[place] += gradient.abs().sum(0)
    shares = {place: (total / total.norm().clamp_min(1e-30)).tolist() for place, total in sums.items()}
    return {Head(*place, n): value for place, values in shares.items() for n, value in enumerate(values)}


def _gate_gradients(
    model: Any, there: Mapping[Place, MultiHeadAttention], batch: Batch, pad_id: int
) -> dict[Place, Float[Tensor, "batch heads"]]:
    """The gradient of each sentence's negative log-likelihood by the gates of all heads."""
    size, device = len(batch.src), batch.src.device
    gates = {place: torch.ones(size, a.n_heads, device=device, requires_grad=True) for place, a in there.items()}
    with evaluating(model), torch.enable_grad(), _gated(there, gates):
        logits = model(batch.src, batch.tgt_in, batch.src_mask)
        # Sentences do not know each other, so the gradient of the sum holds that of each.
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), batch.tgt_out.flatten(), reduction="sum", ignore_index=pad_id
        )
        gradients = torch.autograd.grad(loss, list(gates.values()))
    return dict(zip(gates, gradients, strict=True))


@contextmanager
def _gated(there: Mapping[Place, MultiHeadAttention], gates: Mapping[Place, Tensor]) -> Iterator[None]:
    """Inside, what each head hands to W^O is multiplied with its gate."""

    def hook(gate: Tensor) -> object:
        def apply(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            (heads,) = inputs  # (batch, queries, heads * d_v)
            return (heads * gate.repeat_interleave(heads.size(-1) // gate.size(1), 1).unsqueeze(1),)

        return apply

    handles = [there[place].o_proj.register_forward_pre_hook(hook(gate)) for place, gate in gates.items()]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def least_important(importance: Mapping[Head, float], count: int) -> list[Head]:
    """The heads to do without first, `count` of them, the least important first; each attention keeps one.

    Raises:
        UserError: more heads than can go.
    """
    left: dict[Place, int] = {}
    for head in importance:
        left[head.place] = left.get(head.place, 0) + 1
    most = len(importance) - len(left)
    if not 0 <= count <= most:
        raise UserError(f"{count} heads to remove of {len(importance)}: at most {most}, for every attention keeps one")
    removed: list[Head] = []
    for head in _ascending(importance):
        if len(removed) < count and left[head.place] > 1:
            removed.append(head)
            left[head.place] -= 1
    return removed


def _ascending(importance: Mapping[Head, float]) -> Collection[Head]:
    return sorted(importance, key=lambda head: (importance[head], head))
