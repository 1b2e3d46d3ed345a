"""The Transformer of a typical tutorial: pre-norm, one linear layer per projection, attention by its formula.

A contender, not a reference for correctness: it represents code copied from tutorials (the Annotated Transformer,
https://nlp.seas.harvard.edu/annotated-transformer/). It was written for this comparison and contains no code of theirs.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from work import Size


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.n_heads = size.n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(size.d_model, size.d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self.heads(f(y)) for f, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~mask, -1e9).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class Residual(nn.Module):
    """x + dropout(f(norm(x)))."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(size.d_model), nn.Dropout(dropout)

    def forward(self, x: Tensor, function: nn.Module, *arguments: Tensor) -> Tensor:
        return x + self.dropout(function(self.norm(x), *arguments))


def feed_forward(size: Size) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(size.d_model, size.d_ff), nn.ReLU(), nn.Linear(size.d_ff, size.d_model))


class Layer(nn.Module):
    """An encoder layer, or a decoder layer if called with a memory."""

    def __init__(self, size: Size, dropout: float, cross: bool) -> None:
        super().__init__()
        self.self_attention, self.ffn = Attention(size), feed_forward(size)
        self.cross_attention = Attention(size) if cross else None
        self.residuals = nn.ModuleList(Residual(size, dropout) for _ in range(3 if cross else 2))

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None, src_mask: Tensor | None = None) -> Tensor:
        first, *middle, last = self.residuals
        normed = first.norm(x)
        x = x + first.dropout(self.self_attention(normed, normed, mask))
        if middle:
            x = middle[0](x, self.cross_attention, memory, src_mask)
        return last(x, self.ffn)


class PlainTransformer(nn.Module):
    """Log-probabilities of the next token; one table for source, target and output."""

    def __init__(self, size: Size, dropout: float, max_length: int = 128) -> None:
        super().__init__()
        self.scale = math.sqrt(size.d_model)
        self.tokens = nn.Embedding(size.vocab_size, size.d_model)
        nn.init.normal_(self.tokens.weight, std=1 / self.scale)
        self.register_buffer("positions", sinusoids(size.d_model, max_length))
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Layer(size, dropout, cross=False) for _ in range(size.n_layers))
        self.decoder = nn.ModuleList(Layer(size, dropout, cross=True) for _ in range(size.n_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(size.d_model), nn.LayerNorm(size.d_model)

    def forward(self, src: Tensor, tgt_in: Tensor, src_mask: Tensor) -> Tensor:
        src_mask = src_mask[:, None, None, :]
        length = tgt_in.size(1)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        x = self.embed(src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        memory = self.encoder_norm(x)
        x = self.embed(tgt_in)
        for layer in self.decoder:
            x = layer(x, causal, memory, src_mask)
        return F.log_softmax(F.linear(self.decoder_norm(x), self.tokens.weight), dim=-1)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.tokens(tokens) * self.scale + self.positions[: tokens.size(1)])


def sinusoids(d_model: int, length: int) -> Tensor:
    """The paper's sinusoidal positions."""
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def smoothed_divergence(log_probs: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> Tensor:
    """KL divergence from the smoothed target, a row of the vocabulary per token, summed."""
    with torch.no_grad():
        wanted = torch.full_like(log_probs, smoothing / (log_probs.size(1) - 2))
        wanted.scatter_(1, targets[:, None], 1 - smoothing)
        wanted[:, pad_id] = 0
        wanted[targets == pad_id] = 0
    return F.kl_div(log_probs, wanted, reduction="sum")
