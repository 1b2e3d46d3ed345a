"""A walk through a Transformer along figure 1 of the paper, with the values for one sentence at each step.

One layer and one head are followed from the embeddings to the output. Values come from hooks on the modules during one
pass; only scores, softmax and weighted sum, which fused kernels do not return, are computed here (equation 1). A test
checks that they equal those of the kernel. Transformers only.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.decode.ranking import best
from headwise.decode.stepwise import evaluating
from headwise.errors import UserError
from headwise.inspect.pair import PairTranslator, read_pair
from headwise.inspect.pair_tensors import PairTensors, with_tensors
from headwise.inspect.record import WalkStep
from headwise.inspect.recording import outputs
from headwise.network.feed_forward import ACTIVATIONS, GatedFeedForward
from headwise.network.positions import NoPositions
from headwise.network.transformer import Transformer

N_OUTPUTS = 24  # tokens of the vocabulary that are shown at the output


def walk_steps(
    translator: PairTranslator,
    src: str,
    tgt: str | None = None,
    stack: str = "encoder",
    layer: int = 0,
    head: int = 0,
    prefix: str = "",
    **overrides: Any,
) -> list[WalkStep]:
    """The steps of one layer and head, first to last.

    Args:
        translator, src, tgt, prefix, **overrides: as of `attend`.
        stack: "encoder" or "decoder".
        layer: of that stack, from 0.
        head: of that layer's attentions, from 0.

    Raises:
        UserError: as of `attend`; or the model is not a Transformer.
    """
    network = translator.model
    if not isinstance(network, Transformer):
        raise UserError("the walk follows the paper's figure 1: this model is of another architecture")
    _check(network, stack, layer, head)
    pair = with_tensors(read_pair(translator, src, tgt, prefix, translator.settings(overrides)))
    with evaluating(network), torch.inference_mode(), outputs(dict(network.named_modules())) as seen:
        hidden = pair.read_by(network)
        likely = _output(network, pair, hidden) if stack == "decoder" else None
    numbers = {name: value[0] for name, value in seen.items() if isinstance(value, Tensor) and value.dim() == 3}
    return [*_Walk(network, pair, numbers, stack, layer, head).stops(), *([likely] if likely else [])]


def _check(network: Transformer, stack: str, layer: int, head: int) -> None:
    stacks: dict[str, Any] = {"encoder": network.encoder, "decoder": network.decoder}
    if stack not in stacks:
        raise UserError(f"stack '{stack}' is neither encoder nor decoder")
    layers = stacks[stack].layers
    if not 0 <= layer < len(layers):
        raise UserError(f"the {stack} has no layer {layer}: they go from 0 to {len(layers) - 1}")
    heads = min(module.n_heads for name, module in layers[layer].named_children() if name.endswith("_attn"))
    if not 0 <= head < heads:
        raise UserError(f"{stack} layer {layer} has no head {head}: they go from 0 to {heads - 1}")


class _Walk:
    """The values of one layer and head, by the names of the modules that returned them."""

    def __init__(
        self,
        network: Transformer,
        pair: PairTensors,
        numbers: Mapping[str, Tensor],
        stack: str,
        layer: int,
        head: int,
    ) -> None:
        self.network, self.numbers, self.stack, self.layer, self.head = network, numbers, stack, layer, head
        self.here = f"{stack}.layers.{layer}"
        self.module: Any = network.get_submodule(self.here)
        self.table = "src_embeddings" if stack == "encoder" else "tgt_embeddings"
        src, tgt_in, _ = pair.tensors(next(network.parameters()).device)
        self.ids = src[0] if stack == "encoder" else tgt_in[0]
        self.src = pair.tokenizer.source.pieces(pair.src)
        self.rows = self.src if stack == "encoder" else pair.tokenizer.pieces(self.ids.tolist())

    def stops(self) -> Iterator[WalkStep]:
        """First to last."""
        yield from self.embeddings()
        if self.layer:
            below = self.numbers[f"{self.stack}.layers.{self.layer - 1}"]
            yield self.stop("embedding", f"Input of layer {self.layer}", f"x = output of layer {self.layer - 1}", below)
        for place in ("self_attn", "cross_attn") if self.stack == "decoder" else ("self_attn",):
            yield from self.attention(place)
        yield from self.feed_forward()
        yield self.stop("output", f"Output of the {self.stack}", "after all its layers", self.numbers[self.stack])

    def embeddings(self) -> Iterator[WalkStep]:
        """Sections 3.4 and 3.5."""
        table: Any = self.network.get_submodule(self.table)
        formula = "E" if table.scale == 1 else "E · √d_model"
        yield self.stop("embedding", "Embeddings", formula, table.tokens(self.ids) * table.scale)
        if not isinstance(table.positions, NoPositions):
            codes, formula = table.positions(*table.numbering(self.ids.unsqueeze(0)))[0], f"{formula} + PE"
            yield self.stop("positions", "Positional encoding", "PE", codes)
        formula = formula if isinstance(table.norm, nn.Identity) else f"{_name(table.norm)}({formula})"
        yield self.stop("positions", "Embedded tokens", formula, self.numbers[self.table])

    def attention(self, place: str) -> Iterator[WalkStep]:
        """Sections 3.2.1 and 3.2.2, then "Add & Norm"."""
        keys = self.src if place == "cross_attn" else self.rows
        if self.norm_first(place):
            yield self.stop(place, "Norm", f"{self.norm_name(place)}(x)", self.at(f"{place}_sublayer.norm"))
        q, k, v = (self.of_head(place, projection) for projection in ("q_proj", "k_proj", "v_proj"))
        yield self.stop(place, "Queries", f"Q = x W^Q{self.plus_b(place, 'q_proj')}", q)
        origin = "memory" if place == "cross_attn" else "x"
        yield self.stop(place, "Keys", f"K = {origin} W^K{self.plus_b(place, 'k_proj')}", k, keys)
        yield self.stop(place, "Values", f"V = {origin} W^V{self.plus_b(place, 'v_proj')}", v, keys)
        scores, formula = self.scores(place, q, k)
        yield self.stop(place, "Scores", formula, scores, columns=keys)
        weights = scores.softmax(-1)
        yield self.stop(place, "Softmax", f"softmax({formula}), rows sum to one", weights, columns=keys)
        yield self.stop(place, "Weighted sum", f"head {self.head} = softmax(...) V", weights @ v)
        yield self.stop(place, "All heads together", f"Concat(heads) W^O{self.plus_b(place, 'o_proj')}", self.at(place))
        yield self.added(place)

    def scores(self, place: str, q: Tensor, k: Tensor) -> tuple[Float[Tensor, "queries keys"], str]:
        """The scores of the head, masked positions at -inf, with the relative biases of T5; and their formula."""
        scale = getattr(getattr(self.module, place).kernel, "scale", 0.0)
        scores, formula = (q @ k.T * scale, "Q K^T") if scale else (q @ k.T / math.sqrt(q.size(-1)), "Q K^T / √d_k")
        formula = formula if scale in (0, 1) else f"{scale:.3g} {formula}"
        if place == "cross_attn":
            return scores, formula
        reach: Any = self.network.get_submodule(self.stack).get_submodule("reach")
        visible = reach(None, 0, len(q), q.device)
        if visible is None:
            return scores, formula
        if visible.dtype == torch.bool:
            return scores.masked_fill(~visible[0, 0], -math.inf), formula
        bias = visible[0, self.head]
        hidden = bias == torch.finfo(bias.dtype).min
        return (scores + bias).masked_fill(hidden, -math.inf), f"{formula} + B"

    def feed_forward(self) -> Iterator[WalkStep]:
        """Section 3.3, then "Add & Norm"."""
        if self.norm_first("ffn"):
            yield self.stop("ffn", "Norm", f"{self.norm_name('ffn')}(x)", self.at("ffn_sublayer.norm"))
        inside, formula = self.inside()
        yield self.stop("ffn", "Feed-forward, inside", formula, inside)
        outside = f"{formula.partition('(')[0]}(...) W_2{'' if self.module.ffn.down_proj.bias is None else ' + b_2'}"
        yield self.stop("ffn", "Feed-forward, outside", outside.replace("max(...)", "max(0, ...)"), self.at("ffn"))
        yield self.added("ffn")

    def inside(self) -> tuple[Float[Tensor, "row d_ff"], str]:
        """The activation of the first product, times the other one in a gated network."""
        ffn, up = self.module.ffn, self.at("ffn.up_proj")
        name = next((name for name, one in ACTIVATIONS.items() if one is ffn.activation), "act")
        if isinstance(ffn, GatedFeedForward):
            return ffn.activation(self.at("ffn.gate_proj").clone()) * up, f"{name}(x W_g) · x W_1"
        product = "x W_1" if ffn.up_proj.bias is None else "x W_1 + b_1"
        # ReLU is applied in place, so the recorded value is its output already; a second time it changes nothing.
        return ffn.activation(up.clone()), f"max(0, {product})" if name == "relu" else f"{name}({product})"

    def added(self, place: str) -> WalkStep:
        """The residual connection, around or before the norm."""
        pre = self.norm_first(place)
        name, formula = (
            ("Add", "x + sublayer(...)") if pre else ("Add & Norm", f"{self.norm_name(place)}(x + sublayer(x))")
        )
        return self.stop(place, name, formula, self.at(f"{place}_sublayer"))

    def at(self, name: str) -> Tensor:
        """The output of a module of the layer, (tokens, width)."""
        return self.numbers[f"{self.here}.{name}"]

    def of_head(self, place: str, projection: str) -> Tensor:
        """The head's part of a projection, (tokens, d_head)."""
        return self.at(f"{place}.{projection}").unflatten(-1, (getattr(self.module, place).n_heads, -1))[:, self.head]

    def plus_b(self, place: str, projection: str) -> str:
        """The bias of a projection, if it has one."""
        return "" if getattr(getattr(self.module, place), projection).bias is None else " + b"

    def norm_name(self, place: str) -> str:
        return _name(getattr(self.module, f"{place}_sublayer").norm)

    def norm_first(self, place: str) -> bool:
        return getattr(self.module, f"{place}_sublayer").norm_first

    def stop(
        self,
        place: str,
        name: str,
        formula: str,
        values: Float[Tensor, "row column"],
        rows: Sequence[str] | None = None,
        columns: Sequence[str] = (),
    ) -> WalkStep:
        shown = values.detach().float().cpu().numpy()
        return WalkStep(place, name, formula, list(rows if rows is not None else self.rows), list(columns), shown)


def _name(norm: nn.Module) -> str:
    return type(norm).__name__


def _output(network: Transformer, pair: PairTensors, hidden: Float[Tensor, "1 tgt_len d_model"]) -> WalkStep:
    """The most probable tokens of all positions, each with its probability at every position."""
    probabilities = network.logits(hidden)[0].float().softmax(-1)
    _, ids = best(probabilities.amax(0, keepdim=True), min(N_OUTPUTS, probabilities.size(1)))
    rows = pair.tokenizer.pieces([pair.tokenizer.bos_id, *pair.tgt[:-1]])
    columns, values = pair.tokenizer.pieces(ids[0].tolist()), probabilities[:, ids[0]].cpu().numpy()
    return WalkStep("output", "Output probabilities", "softmax(x W), the most probable tokens", rows, columns, values)
