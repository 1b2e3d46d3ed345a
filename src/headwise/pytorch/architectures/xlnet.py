"""XLNet (arXiv:1906.08237): permutation language modelling with two-stream attention.

Tokens are predicted in a random order z: x_{z_t} from x_{z_<t} and its own position. A hidden state that contains
x_{z_t} cannot predict it, and one without it would be useless for later predictions, so there are two (section 2.3).
The content stream h is that of a Transformer. The query stream g knows only the position: it starts as one trained
vector and attends to the content stream with the same parameters. The order is only in the masks; tokens keep their
positions. Relative positions and `mems`, the hidden states of the previous segment as additional keys, come from
Transformer-XL (arXiv:1901.02860); relative segments are new (section 2.5).

Reading a text needs only the content stream, predicting tokens both. `XLNetClassifier` has a classification head.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.dropout import Dropout
from headwise.core.masks import causal_mask

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
FAR = 1 << 30  # more than any distance


def full_mask(length: int, _: int, device: torch.device) -> Bool[Tensor, "length length"]:
    """The mask of "bi"; that of "uni" is `causal_mask`."""
    return torch.ones(length, length, dtype=torch.bool, device=device)


DIRECTIONS = {"bi": full_mask, "uni": causal_mask}


@dataclass(frozen=True)
class XLNetShape:
    """Hyperparameters; the defaults are XLNet-Large's."""

    vocab_size: int = 32000
    d_model: int = 1024
    n_layers: int = 24
    n_heads: int = 16
    d_ff: int = 4096
    activation: str = "gelu"  # one of ACTIVATIONS
    direction: str = "bi"  # one of DIRECTIONS; "uni": Transformer-XL
    norm_eps: float = 1e-12
    dropout: float = 0.1
    memory_length: int = 512  # newest hidden states kept as `mems`; 0 = all
    reuse_length: int = 0  # first hidden states of a segment to keep; 0 = all
    clamp_length: int = 0  # maximum distance; 0 = no limit
    tied_output: bool = True
    n_classes: int = 0  # classes of a classification head; 0 = language model
    head_dropout: float = 0.1  # on the input of the classifier's last matrix

    family = "xlnet"

    @property
    def head(self) -> str:
        """The head, as in `NetworkConfig.head`."""
        return "text_class" if self.n_classes else "language"


def build_xlnet(shape: XLNetShape) -> "XLNet":
    """A network with random initial parameters from torch's global generator: N(0, 0.02), as in the paper."""
    layers = [
        TwoStreamLayer(
            RelativeAttention(shape.d_model, shape.n_heads, shape.dropout),
            XLNetFeedForward(shape.d_model, shape.d_ff, ACTIVATIONS[shape.activation], shape.dropout),
            partial(nn.LayerNorm, shape.d_model, eps=shape.norm_eps),
            shape.dropout,
        )
        for _ in range(shape.n_layers)
    ]
    kind, head = XLNet, nn.Linear(shape.d_model, shape.vocab_size)
    if shape.n_classes:
        kind, head = XLNetClassifier, LastStateHead(shape.d_model, shape.n_classes, shape.head_dropout)
    model = kind(
        nn.Embedding(shape.vocab_size, shape.d_model),
        layers,
        head,
        DIRECTIONS[shape.direction],
        Memory(shape.memory_length, shape.reuse_length or None),
        shape.clamp_length or FAR,
        shape.dropout,
    )
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.zeros_(parameter) if name.endswith(".bias") else nn.init.normal_(parameter, std=0.02)
    if shape.tied_output and isinstance(head, nn.Linear):
        head.weight = model.tokens.weight
    return model


def partial_order_mask(rank: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch length length"]:
    """The mask `visible` for partial prediction: `rank` is the order from 0, and -1 for tokens that all may see.

    >>> partial_order_mask(torch.tensor([[-1, 1, 0]])).int().tolist()  # position 2 first, then 1
    [[[1, 0, 0], [1, 0, 1], [1, 0, 0]]]
    """
    return (rank < 0).unsqueeze(1) | (rank.unsqueeze(1) < rank.unsqueeze(2))


class XLNetStates(NamedTuple):
    """The output of the layers."""

    hidden: Float[Tensor, "batch queries d_model"]  # of the query stream if there is one, else of the content stream
    mems: list[Float[Tensor, "batch memory d_model"]]  # for the next segment, one per layer


class XLNet(nn.Module):
    """Embedding, two-stream layers, and an output projection with bias. Build one with `build_xlnet`."""

    def __init__(
        self,
        tokens: nn.Embedding,
        layers: Sequence["TwoStreamLayer"],
        head: nn.Module,
        direction: Callable[[int, int, torch.device], Tensor],
        memory: "Memory",
        clamp_length: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.query_start = nn.Parameter(torch.empty(tokens.embedding_dim))
        self.layers = nn.ModuleList(layers)
        self.head = head
        self.dropout = Dropout(dropout)
        self._direction = direction
        self._memory = memory
        self._clamp_length = clamp_length

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        visible: Bool[Tensor, "batch length length"] | None = None,
        targets: Int[Tensor, "batch predictions"] | None = None,
        mems: Sequence[Float[Tensor, "batch memory d_model"]] | None = None,
    ) -> Float[Tensor, "batch queries vocab"]:
        """Logits at `targets`, or at all positions without targets; see `states`."""
        return self.logits(self.states(tokens, mask, segments, visible, targets, mems).hidden)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the tokens."""
        return self.head(hidden)

    def states(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"] | None = None,
        segments: Int[Tensor, "batch length"] | None = None,
        visible: Bool[Tensor, "batch length length"] | None = None,
        targets: Int[Tensor, "batch predictions"] | None = None,
        mems: Sequence[Float[Tensor, "batch memory d_model"]] | None = None,
    ) -> XLNetStates:
        """Hidden states and the memory for the next segment.

        Args:
            tokens: one segment of text.
            mask: True on real tokens; padding may be on either side.
            segments: the segment of each token, such as 0 for a question and 1 for a text; only equality matters.
                `mems` are segment 0.
            visible: True where position i (rows) may see position j; see `partial_order_mask`. In the content
                stream positions always see themselves.
            targets: positions that the query stream predicts. Without it there is only the content stream.
            mems: `XLNetStates.mems` of the previous segment, visible to all positions.
        """
        batch, length = tokens.shape
        past = mems[0].size(1) if mems else 0
        visibility = self._visibility(tokens, mask, segments, visible, past)
        h = self.dropout(self.tokens(tokens))
        content = visibility.including_self()
        query = None if targets is None else visibility.at(targets)
        g = None if targets is None else self.dropout(self.query_start.expand(batch, targets.size(1), -1))
        positions = self.dropout(relative_positions(length, past + length, self._clamp_length, h))
        kept = []
        for i, layer in enumerate(self.layers):
            before = mems[i] if mems else h[:, :0]
            kept.append(self._memory(before, h))
            h, g = layer(h, g, torch.cat([before, h], 1), positions, content, query)
        return XLNetStates(self.dropout(h if g is None else g), kept)

    def _visibility(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"] | None,
        segments: Int[Tensor, "batch length"] | None,
        visible: Bool[Tensor, "batch length length"] | None,
        past: int,
    ) -> "Visibility":
        """What each position sees, for both streams."""
        batch, length = tokens.shape
        seen = self._direction(length, length, tokens.device).expand(batch, -1, -1)
        if mask is not None:
            seen = seen & mask.unsqueeze(1)
        if visible is not None:
            seen = seen & visible
        own = torch.zeros_like(tokens) if segments is None else segments
        at = torch.arange(length, device=tokens.device).unsqueeze(1)
        key = torch.arange(-past, length, device=tokens.device)
        return Visibility(
            mask=F.pad(seen, (past, 0), value=True),
            distance=(at - key + length - 1).expand(batch, -1, -1),
            other_segment=(own.unsqueeze(2) != F.pad(own, (past, 0)).unsqueeze(1)).long(),
        )


class XLNetClassifier(XLNet):
    """XLNet for text classification, from the content stream's state of the last token, <cls>."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"],
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch classes"]:
        """Logits of the labels. Padding may be on either side; other arguments as in `states`."""
        last = mask.size(1) - 1 - mask.flip(1).int().argmax(1)
        rows = torch.arange(len(tokens), device=tokens.device)
        return self.logits(self.states(tokens, mask, segments).hidden[rows, last])


class LastStateHead(nn.Module):
    """W_2 dropout(tanh(W_1 h + b_1)) + b_2 of a text's last state, the default of `transformers`."""

    def __init__(self, d_model: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        self.summary = nn.Linear(d_model, d_model)
        self.classes = nn.Linear(d_model, n_classes)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch classes"]:
        """Unnormalised scores of the labels."""
        return self.classes(self.dropout(self.summary(hidden).tanh()))


@dataclass(frozen=True)
class Memory:
    """Selects the hidden states that the next segment gets."""

    length: int  # newest states to keep; 0 = all
    reuse: int | None  # first new states to keep

    def __call__(
        self, before: Float[Tensor, "batch memory d_model"], h: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch kept d_model"]:
        """The memory with `h` appended, truncated, without gradient."""
        return torch.cat([before, h[:, : self.reuse]], 1)[:, -self.length :].detach()


@dataclass(frozen=True)
class Visibility:
    """Mask, distances and segments for queries and keys."""

    mask: Bool[Tensor, "batch queries keys"]  # may attend
    distance: Int[Tensor, "batch queries keys"]  # row of `relative_positions`
    other_segment: Int[Tensor, "batch queries keys"]  # 0 the same segment, 1 another

    def including_self(self) -> "Visibility":
        """For the content stream, where positions see themselves. The queries are the last of the keys."""
        queries, keys = self.mask.shape[1:]
        itself = torch.eye(queries, dtype=torch.bool, device=self.mask.device)
        return Visibility(self.mask | F.pad(itself, (keys - queries, 0)), self.distance, self.other_segment)

    def at(self, targets: Int[Tensor, "batch predictions"]) -> "Visibility":
        """For the query stream: the rows of the predicted positions."""
        rows = targets.unsqueeze(2).expand(-1, -1, self.mask.size(2))
        return Visibility(self.mask.gather(1, rows), self.distance.gather(1, rows), self.other_segment.gather(1, rows))


def relative_positions(
    queries: int, keys: int, clamp_length: int, like: Float[Tensor, "..."]
) -> Float[Tensor, "distances d_model"]:
    """Sines, then cosines, of the distances from -(queries - 1), a key after the query, to keys - 1.

    Computed in float32, as pretrained models were trained: rounding of large distances affects the fifth decimal.
    """
    d_model = like.size(-1)
    distance = torch.arange(1 - queries, keys, device=like.device).clamp(-clamp_length, clamp_length).float()
    rate = 1 / 10000.0 ** (torch.arange(0, d_model, 2, device=like.device).float() / d_model)
    angle = distance.unsqueeze(1) * rate
    return torch.cat([angle.sin(), angle.cos()], -1).to(like.dtype)


class TwoStreamLayer(nn.Module):
    """h = norm(h + attention(h)), then norm(h + ffn(h)); the same for g, with the keys of h."""

    def __init__(
        self, attn: "RelativeAttention", ffn: "XLNetFeedForward", norm: Callable[[], nn.LayerNorm], dropout: float
    ) -> None:
        super().__init__()
        self.attn = attn
        self.attn_norm = norm()
        self.ffn = ffn
        self.ffn_norm = norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        h: Float[Tensor, "batch length d_model"],
        g: Float[Tensor, "batch predictions d_model"] | None,
        memory: Float[Tensor, "batch keys d_model"],
        positions: Float[Tensor, "distances d_model"],
        content: Visibility,
        query: Visibility | None,
    ) -> tuple[Float[Tensor, "batch length d_model"], Float[Tensor, "batch predictions d_model"] | None]:
        """Both streams; `memory` is the memory of the previous segment followed by `h`."""
        k, v, r = self.attn.keys(memory, positions)

        def stream(x: Tensor, visibility: Visibility) -> Tensor:
            x = self.attn_norm(x + self.dropout(self.attn(x, k, v, r, visibility)))
            return self.ffn_norm(x + self.dropout(self.ffn(x)))

        return stream(h, content), None if g is None or query is None else stream(g, query)


class RelativeAttention(nn.Module):
    """Scores ((q + u) k_j + (q + v) W_r R_{i-j} + (q + w) s_ij) / sqrt(d), with trained u, v, w per head.

    The terms are content, distance (Transformer-XL, section 3.3) and equality of segments (section 2.5).

    As in the original, a query that may see nothing attends to all keys equally.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        d_head = d_model // n_heads
        self.n_heads = n_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.r_proj = nn.Linear(d_model, d_model, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)
        self.content_bias = nn.Parameter(torch.empty(n_heads, d_head))
        self.position_bias = nn.Parameter(torch.empty(n_heads, d_head))
        self.segment_bias = nn.Parameter(torch.empty(n_heads, d_head))
        self.segments = nn.Parameter(torch.empty(2, n_heads, d_head))  # same, other
        self.dropout = Dropout(dropout)

    def keys(
        self, memory: Float[Tensor, "batch keys d_model"], positions: Float[Tensor, "distances d_model"]
    ) -> tuple[
        Float[Tensor, "batch heads keys d_head"],
        Float[Tensor, "batch heads keys d_head"],
        Float[Tensor, "1 heads distances d_head"],
    ]:
        """Keys and values of the content, and the keys of distances; both streams use them."""
        k, v = self.split_heads(self.k_proj(memory)), self.split_heads(self.v_proj(memory))
        return k, v, self.split_heads(self.r_proj(positions).unsqueeze(0))

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        k: Float[Tensor, "batch heads keys d_head"],
        v: Float[Tensor, "batch heads keys d_head"],
        r: Float[Tensor, "1 heads distances d_head"],
        visibility: Visibility,
    ) -> Float[Tensor, "batch queries d_model"]:
        """The attention of one stream."""
        q = self.split_heads(self.q_proj(x))
        distance, other_segment = (
            index.unsqueeze(1).expand(-1, self.n_heads, -1, -1)
            for index in (visibility.distance, visibility.other_segment)
        )
        scores = (q + self.content_bias.unsqueeze(1)) @ k.mT
        scores = scores + ((q + self.position_bias.unsqueeze(1)) @ r.mT).gather(-1, distance)
        scores = scores + ((q + self.segment_bias.unsqueeze(1)) @ self.segments.permute(1, 2, 0)).gather(
            -1, other_segment
        )
        scores = (scores / math.sqrt(q.size(-1))).masked_fill(~visibility.mask.unsqueeze(1), torch.finfo(x.dtype).min)
        return self.o_proj((self.dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))

    def split_heads(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch heads length d_head"]:
        """(batch, length, heads * d_head) -> (batch, heads, length, d_head)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class XLNetFeedForward(nn.Module):
    """W_2 dropout(f(W_1 x + b_1)) + b_2."""

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], dropout: float) -> None:
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        self._activation = activation

    def forward(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """Same shape in and out."""
        return self.down_proj(self.dropout(self._activation(self.up_proj(x))))
