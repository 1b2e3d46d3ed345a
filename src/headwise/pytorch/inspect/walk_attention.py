"""The steps of one attention head, sections 3.2.1 and 3.2.2, with the variants of other families."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.attention import Capped, NoRotation, Windowed
from headwise.core.extensions.disentangled import RelativeVectors
from headwise.core.masks import Everywhere, RelativePositions, within_window
from headwise.pytorch.inspect.walk_steps import Steps, bias_of, is_norm


def attention_steps(steps: Steps, place: str, x: str) -> str:
    """From the input of an attention to its output projection; the id of the last step."""
    attention: Any = getattr(steps.module, place)
    cross = place == "cross_attn"
    source, keys = ("memory", "src") if cross else (x, steps.rows)
    if cross:
        steps.add("memory", "given", "memory = encoder(...)", steps.returned["encoder"], place=place, rows=keys)
    q = _projected(steps, place, "queries", attention.q_proj, x, steps.head, attention.n_heads)
    q = _positioned(steps, place, "queries", attention.q_norm, attention.rotate, q)
    shared = steps.head * attention.n_kv_heads // attention.n_heads  # grouped queries share keys and values
    k = _projected(steps, place, "keys", attention.k_proj, source, shared, attention.n_kv_heads)
    k = _positioned(steps, place, "keys", attention.k_norm, attention.rotate, k)
    v = _projected(steps, place, "values", attention.v_proj, source, shared, attention.n_kv_heads)
    weights = _weights(steps, place, attention.kernel, q, k)
    where: dict[str, Any] = {"place": place, "of_head": True}
    values = steps.value(weights) @ steps.value(v)
    steps.add(f"{place}.weighted-sum", "weighted-sum", "head_i = softmax(...) V", values, [weights, v], **where)
    joined, concat = steps.taken[f"{steps.here}.{place}.o_proj"], f"{place}.concat"
    steps.add(concat, "concat", "Concat(head_0, ..., head_(h-1))", joined, [f"{place}.weighted-sum"], place=place)
    return steps.project(
        f"{place}.heads", "Concat(...) W^O" + bias_of(attention.o_proj, "^O"), attention.o_proj, concat, place=place
    )


def _projected(steps: Steps, place: str, what: str, linear: nn.Linear, x: str, head: int, heads: int) -> str:
    """The part of one head in a projection."""
    width, letter = linear.out_features // heads, what[0].upper()
    part = slice(head * width, (head + 1) * width)
    origin, rows = ("memory", "src") if x == "memory" else ("x", "")
    formula = f"{letter} = {origin} W^{letter}{bias_of(linear, f'^{letter}')}"
    values = linear(steps.value(x))[:, part]
    tensors: dict[str, Any] = {
        "weight": linear.weight[part].T,
        "bias": None if linear.bias is None else linear.bias[part],
    }
    where: dict[str, Any] = {"place": place, "rows": rows, "of_head": True}
    return steps.add(f"{place}.{what}", "projection", formula, values, [x], **where, **tensors)


def _positioned(steps: Steps, place: str, what: str, norm: nn.Module, rotate: Any, x: str) -> str:
    """Queries or keys after the norm of heads (Qwen3) and the rotation (RoPE), where there are any."""
    if is_norm(norm):
        x = steps.norm(f"{place}.normed-{what}", norm, x, place=place, of_head=True)
    if isinstance(rotate, NoRotation):
        return x
    values = rotate(steps.value(x)[None, None], 0)[0, 0]
    formula = "x_i cos(pos θ_i) - x_(i+n) sin(pos θ_i), ..."
    where: dict[str, Any] = {"place": place, "of_head": True, "weight": rotate.rates}
    return steps.add(f"{place}.rotated-{what}", "rotate", formula, values, [x], **where)


def _weights(steps: Steps, place: str, kernel: Any, q: str, k: str) -> str:
    """Scores and softmax."""
    keys = "src" if place == "cross_attn" else steps.rows
    where: dict[str, Any] = {"place": place, "columns": keys, "of_head": True}
    scale, cap, width = _kernel_settings(kernel, steps.value(q).size(1))
    scores = steps.value(q) @ steps.value(k).T * scale
    operands, formula = [q, k], _score_formula(kernel, steps.value(q).size(1))
    scores = cap * torch.tanh(scores / cap) if cap else scores
    visible, bias = _reach(steps, place, width)
    if bias is not None:
        relative = f"{place}.relative-bias"
        vectors = isinstance(steps.network.get_submodule(steps.stack).reach, RelativeVectors)
        meaning = "s (Q K_d^T + Q_d K^T)" if vectors else "b_(bucket(i - j))"
        operands.append(steps.add(relative, "given", f"B = {meaning}", bias, **where))
        scores, formula = scores + bias, f"{formula} + B"
    finite, mask = torch.finfo(scores.dtype), ""
    scores = scores.clamp(finite.min, finite.max)  # -inf is masked, not too large for the numbers of the network
    if visible is not None and not bool(visible.all()):
        reach: Any = steps.network.get_submodule(steps.stack).reach
        sees_later = isinstance(getattr(reach, "reach", reach), Everywhere)
        mask = "local" if sees_later else "window" if width and len(visible) > width else "causal"
        scores = scores.masked_fill(~visible, -math.inf)
    settings = {"scale": scale, **({"cap": cap} if cap else {}), "mask": mask}
    steps.add(f"{place}.scores", "scores", formula, scores, operands, **where, **settings)
    weights = scores.softmax(-1)
    return steps.add(f"{place}.softmax", "softmax", f"softmax({formula})", weights, [f"{place}.scores"], **where)


def _kernel_settings(kernel: Any, d_k: int) -> tuple[float, float, int]:
    """Scale, cap (0 = none) and width of the window (0 = none)."""
    if isinstance(kernel, Windowed):
        scale, cap, _ = _kernel_settings(kernel.kernel, d_k)
        return scale, cap, kernel.width
    return getattr(kernel, "scale", 0.0) or d_k**-0.5, kernel.cap if isinstance(kernel, Capped) else 0.0, 0


def _score_formula(kernel: Any, d_k: int) -> str:
    scale, cap, _ = _kernel_settings(kernel, d_k)
    formula = f"{scale:.3g} Q K^T" if scale != 1 else "Q K^T"
    formula = "Q K^T / √d_k" if math.isclose(scale, d_k**-0.5) else formula
    return f"{cap:g} tanh({formula} / {cap:g})" if cap else formula


def _reach(
    steps: Steps, place: str, width: int
) -> tuple[Float[Tensor, "queries keys"] | Any, Float[Tensor, "queries keys"] | None]:
    """Which pairs of positions are visible (None = all), and the relative biases of the head (None = none)."""
    if place == "cross_attn":
        return None, None
    length = steps.returned[steps.here].size(1)
    device = steps.returned[steps.here].device
    reach: Any = steps.network.get_submodule(steps.stack).reach
    found, bias = reach(None, 0, length, device), None
    if isinstance(found, RelativePositions):
        attention, x = getattr(steps.module, place), steps.taken[f"{steps.here}.{place}"]
        found = attention.kernel_mask(attention.queries(x, 0), attention.keys_and_values(x, None)[0], found)
    if found is not None and found.dtype != torch.bool:
        bias = found[0, steps.head]
        visible = bias != torch.finfo(bias.dtype).min
        bias = bias.masked_fill(~visible, 0.0)
    else:
        visible = None if found is None else found[0, 0]
    if width and length > width:
        near = within_window(length, length, width, device)
        visible = near if visible is None else visible & near
    return visible, bias
