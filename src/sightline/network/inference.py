"""A trained `Transformer` prepared for decoding: the same function, packed and arranged for speed.

Same contract as the model it comes from (`encode`, `decode`, `logits`, `start_cache`), so search and engine see no
difference. What is different: projections of one input are one matrix product, in float32 or int8 (`quantized`);
source-side keys and values are made once per sentence; beams never move the cache (`beam_cache`). `Transformer` stays
the readable form, and tests hold this one against it.

Not here: training, batches, search.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.network.attention import MultiHeadAttention, merge_heads, split_heads
from sightline.network.beam_cache import BeamCache, padding_bias
from sightline.network.positions import in_order
from sightline.network.quantized import ChosenOutputs, fuse
from sightline.network.stacks import Decoder
from sightline.network.tracing import Traced
from sightline.network.transformer import Transformer

# Positions that the encoder takes at once: what a layer makes of more of them does not stay in the processor's cache.
_AT_ONCE = 512


class InferenceTransformer(nn.Module):
    """The form for torch. Made by `prepare_for_inference`; decodes, and does nothing else."""

    def __init__(self, model: Transformer, compute: str) -> None:
        super().__init__()
        self.training = False
        self.src_embeddings = _EmbeddingLookup(model.src_embeddings)
        self.tgt_embeddings = _EmbeddingLookup(model.tgt_embeddings)
        self.encoder = Traced(_Encoder(model, compute).eval())
        decoder = _with_even_heads(model.decoder)
        self.step = Traced(_DecoderStep(decoder, compute).eval())
        attentions: list[Any] = [layer.cross_attn for layer in decoder.layers]
        self.n_layers, self.n_heads = len(attentions), attentions[0].n_heads
        self.cross_k = fuse([attention.k_proj for attention in attentions], compute)
        self.cross_v = fuse([attention.v_proj for attention in attentions], compute)
        self.output = Traced(fuse([model.output], compute).eval())
        self.chosen_outputs = ChosenOutputs(model.output, compute)

    def train(self, mode: bool = True) -> "InferenceTransformer":
        """Nothing: there is one mode."""
        return self

    def encode(
        self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> Float[Tensor, "batch src_len d_model"]:
        """As `Transformer.encode`, some sentences at a time."""
        x = self.src_embeddings(src, 0)
        sentences = max(1, _AT_ONCE // src.size(1))
        parts = zip(x.split(sentences), padding_bias(src_mask, x.dtype).split(sentences), strict=True)
        return torch.cat([self.encoder(part, bias) for part, bias in parts])

    def start_cache(
        self, memory: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> BeamCache:
        """As `Transformer.start_cache`; keys and values of the sources are made here."""
        k, v = self._per_layer(self.cross_k(memory)), self._per_layer(self.cross_v(memory))
        return BeamCache(memory, src_mask, k, v)

    def _per_layer(self, x: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "layers batch heads src_len d_head"]:
        return x.unflatten(-1, (self.n_layers, self.n_heads, -1)).permute(2, 0, 3, 1, 4).contiguous()

    def decode(
        self,
        tgt_in: Int[Tensor, "rows new"],
        memory: Float[Tensor, "sentences src_len d_model"],
        src_mask: Bool[Tensor, "sentences src_len"],
        cache: BeamCache | None = None,
    ) -> Float[Tensor, "rows new d_model"]:
        """As `Transformer.decode` with a cache; memory and mask are the cache's own.

        A call adds one position to every hypothesis, or several where each sentence has only one of them: to the
        step, the positions of one hypothesis are what the hypotheses of one position are.
        """
        assert cache is not None
        new = tgt_in.size(1)
        x = self.tgt_embeddings(tgt_in, cache.length)
        if new == 1:
            x = x.unflatten(0, (-1, cache.beams)).squeeze(2)
        bias = cache.advance() if new == 1 else cache.advance_by(new)
        start = torch.tensor(cache.slots - x.size(1))
        x = self.step(x, start, bias, cache.src_bias, cache.self_k, cache.self_v, cache.cross_k, cache.cross_v)
        return x if new > 1 else x.flatten(0, 1).unsqueeze(1)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """As `Transformer.logits`."""
        return self.output(hidden)

    def output_rows(self, ids: Int[Tensor, " n"]) -> Callable[[Tensor], Tensor]:
        """`logits` for some pieces only: a function from hidden states (*any, d_model) to logits (*any, n).

        Each logit is that of `logits`; to the last bit in int8, where every output has a scale of its own.
        """
        return self.chosen_outputs(ids)


class _EmbeddingLookup(nn.Module):
    """Section 3.4 without dropout; table and positions are those of the model."""

    def __init__(self, embeddings: Any) -> None:
        super().__init__()
        self.table = nn.Parameter(embeddings.tokens.weight.detach(), requires_grad=False)
        self.positions = embeddings.positions
        self.scale = embeddings.scale

    def forward(self, tokens: Int[Tensor, "rows length"], start: int) -> Float[Tensor, "rows length d_model"]:
        return F.embedding(tokens, self.table) * self.scale + self.positions(*in_order(tokens, start))


class _Sublayer(nn.Module):
    """Residual connection and norm (3.1); the order of the two is the model's."""

    def __init__(self, sublayer: Any) -> None:
        super().__init__()
        self.norm = _norm(sublayer.norm)
        self.norm_first = bool(sublayer.norm_first)

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + function(self.norm(x))
        return self.norm(x + function(x))


class _Encoder(nn.Module):
    """The encoder stack (3.1)."""

    def __init__(self, model: Transformer, compute: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_EncoderLayer(layer, compute) for layer in model.encoder.layers)
        self.norm = _norm(model.encoder.norm)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], bias: Float[Tensor, "batch 1 1 length"]
    ) -> Float[Tensor, "batch length d_model"]:
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


class _EncoderLayer(nn.Module):
    def __init__(self, layer: Any, compute: str) -> None:
        super().__init__()
        self.attn, self.ffn = _SelfAttention(layer.self_attn, compute), _FeedForward(layer.ffn, compute)
        self.attn_sublayer, self.ffn_sublayer = _Sublayer(layer.self_attn_sublayer), _Sublayer(layer.ffn_sublayer)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = self.attn_sublayer(x, lambda h: self.attn(h, bias))
        return self.ffn_sublayer(x, self.ffn)


class _SelfAttention(nn.Module):
    """Section 3.2.2, Q, K and V in one product; the scores' factor d_k ** -0.5 is in W^Q."""

    def __init__(self, attention: Any, compute: str) -> None:
        super().__init__()
        self.n_heads = attention.n_heads
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        self.widths = (q.out_features, k.out_features, v.out_features)
        self.qkv = fuse([q, k, v], compute, [_score_scale(attention), 1.0, 1.0])
        self.out = fuse([attention.o_proj], compute)

    def project(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> tuple[Float[Tensor, "batch heads length d_head"], ...]:
        """Queries, keys and values of each head."""
        return tuple(split_heads(part, self.n_heads) for part in self.qkv(x).split(self.widths, -1))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.project(x)
        return self.out(merge_heads(_attend(q, k, v, bias)))


class _FeedForward(nn.Module):
    def __init__(self, ffn: Any, compute: str) -> None:
        super().__init__()
        self.up, self.down = fuse([ffn.up_proj], compute), fuse([ffn.down_proj], compute, after_relu=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu_())


class _DecoderStep(nn.Module):
    """The decoder stack for one new position of every hypothesis, beams side by side as queries of a sentence."""

    def __init__(self, decoder: Decoder, compute: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_DecoderLayer(layer, compute) for layer in decoder.layers)
        self.norm = _norm(decoder.norm)

    def forward(
        self,
        x: Float[Tensor, "sentences beams d_model"],
        start: Int[Tensor, ""],
        self_bias: Float[Tensor, "#sentences 1 #beams slots"],
        src_bias: Float[Tensor, "sentences 1 1 src_len"],
        self_k: Float[Tensor, "layers sentences heads room d_k"],
        self_v: Float[Tensor, "layers sentences heads room d_v"],
        cross_k: Float[Tensor, "layers sentences heads src_len d_k"],
        cross_v: Float[Tensor, "layers sentences heads src_len d_v"],
    ) -> Float[Tensor, "sentences beams d_model"]:
        """Hidden states; the new keys and values are written into the caches from slot `start` on."""
        for i, layer in enumerate(self.layers):
            x = layer(x, start, self_bias, src_bias, self_k[i], self_v[i], cross_k[i], cross_v[i])
        return self.norm(x)


class _DecoderLayer(nn.Module):
    def __init__(self, layer: Any, compute: str) -> None:
        super().__init__()
        self.self_attn, self.ffn = _SelfAttention(layer.self_attn, compute), _FeedForward(layer.ffn, compute)
        self.cross_q = fuse([layer.cross_attn.q_proj], compute, [_score_scale(layer.cross_attn)])
        self.cross_out = fuse([layer.cross_attn.o_proj], compute)
        self.self_sublayer, self.cross_sublayer, self.ffn_sublayer = (
            _Sublayer(s) for s in (layer.self_attn_sublayer, layer.cross_attn_sublayer, layer.ffn_sublayer)
        )

    def forward(
        self,
        x: Tensor,
        start: Tensor,
        self_bias: Tensor,
        src_bias: Tensor,
        self_k: Tensor,
        self_v: Tensor,
        cross_k: Tensor,
        cross_v: Tensor,
    ) -> Tensor:
        x = self.self_sublayer(x, lambda h: self._attend_to_past(h, start, self_bias, self_k, self_v))
        x = self.cross_sublayer(x, lambda h: self._attend_to_source(h, src_bias, cross_k, cross_v))
        return self.ffn_sublayer(x, self.ffn)

    def _attend_to_past(self, x: Tensor, start: Tensor, bias: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = self.self_attn.project(x)
        keys.narrow(2, start, x.size(1)).copy_(k)
        values.narrow(2, start, x.size(1)).copy_(v)
        slots = bias.size(-1)
        keys, values = keys.narrow(2, 0, slots), values.narrow(2, 0, slots)
        return self.self_attn.out(merge_heads(_attend(q, keys, values, bias)))

    def _attend_to_source(self, x: Tensor, bias: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q = split_heads(self.cross_q(x), self.self_attn.n_heads)
        return self.cross_out(merge_heads(_attend(q, keys, values, bias)))


def _with_even_heads(decoder: Decoder) -> Decoder:
    """The decoder itself, or one of the same function where pruning has left attentions of different width.

    Keys and values of all layers share a buffer, so every attention gets as many heads as the widest; those added are
    of zeros and write nothing.
    """
    attentions = [module for module in decoder.modules() if isinstance(module, MultiHeadAttention)]
    widest = max(attention.n_heads for attention in attentions)
    if all(attention.n_heads == widest for attention in attentions):
        return decoder
    even = copy.deepcopy(decoder)
    for attention in (module for module in even.modules() if isinstance(module, MultiHeadAttention)):
        _add_empty_heads(attention, widest - attention.n_heads)
    return even


def _add_empty_heads(attention: MultiHeadAttention, count: int) -> None:
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        rows = count * projection.out_features // attention.n_heads
        projection.weight = nn.Parameter(F.pad(projection.weight, (0, 0, 0, rows)))
        projection.bias = nn.Parameter(F.pad(projection.bias, (0, rows)))
        projection.out_features += rows
    columns = count * attention.o_proj.in_features // attention.n_heads
    attention.o_proj.weight = nn.Parameter(F.pad(attention.o_proj.weight, (0, columns)))
    attention.o_proj.in_features += columns
    attention.n_heads += count
    attention.n_kv_heads += count


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Equation 1; queries carry the factor d_k ** -0.5. For so few of them torch's fused kernel is slower."""
    scores = (q @ k.transpose(-2, -1)).add_(bias)
    return scores.softmax(-1) @ v


def _score_scale(attention: Any) -> float:
    return 1 / math.sqrt(attention.q_proj.out_features // attention.n_heads)


def _norm(norm: nn.Module) -> nn.Module:
    """A copy of a norm that shares its parameters' values but not their training."""
    if isinstance(norm, nn.Identity):
        return norm
    assert isinstance(norm, nn.LayerNorm), f"{type(norm).__name__} has no prepared form; see `is_plain`"
    copy = nn.LayerNorm(list(norm.normalized_shape), norm.eps)
    copy.weight, copy.bias = (nn.Parameter(p.detach(), requires_grad=False) for p in (norm.weight, norm.bias))
    return copy
