"""A trained `Transformer` handed to the compiled library (`sightline.native`): prepared for decoding, like
`inference.InferenceTransformer`, and able to search by itself.

Same contract as the model it comes from. What it yields for a hypothesis is the same to the last bit in any batch, in
float32 and in int8. Not here: what the library does, and whether to use it (`inference.prepare_for_inference`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.native.library import library
from sightline.native.network import LANES, Decoding, Found, Linear, Network, Shape
from sightline.native.positions import sinusoids
from sightline.network.embeddings import Embeddings
from sightline.network.positions import LearnedPositions
from sightline.network.transformer import Transformer


def native_available(model: Transformer) -> bool:
    """Whether the library is there and takes a model like this one."""
    d_model = model.tgt_embeddings.tokens.embedding_dim
    in_float32 = all(p.dtype == torch.float32 for p in model.parameters())
    return library() is not None and in_float32 and d_model % LANES == 0


class NativeTransformer(nn.Module):
    """Made by `prepare_for_inference`; decodes, and does nothing else."""

    def __init__(self, model: Transformer, compute: str) -> None:
        super().__init__()
        self.training = False
        self.device_mark = nn.Parameter(torch.zeros(0), requires_grad=False)  # says that this is on a CPU
        parameters = {name: value.detach().numpy() for name, value in model.state_dict().items()}
        tables = (model.src_embeddings, model.tgt_embeddings)

        def positions(length: int) -> tuple[Any, Any]:
            source, target = (_positions(table, length) for table in tables)
            return source, target

        self.network = Network(parameters, _shape(model), positions, int8=compute == "int8")

    def train(self, mode: bool = True) -> "NativeTransformer":
        """Nothing: there is one mode."""
        return self

    def encode(self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]) -> Decoding:
        """The sources with all that decoding needs of them; padding stands right of everything real."""
        lengths = src_mask.sum(1).tolist()
        return self.network.start([row[:length] for row, length in zip(src.tolist(), lengths, strict=True)])

    def start_cache(self, memory: Decoding, src_mask: Bool[Tensor, "batch src_len"]) -> "NativeCache":
        """As `Transformer.start_cache`; an encoding can be decoded once."""
        return NativeCache(memory, src_mask)

    def decode(
        self,
        tgt_in: Int[Tensor, "rows new"],
        memory: Decoding,
        src_mask: Bool[Tensor, "sentences src_len"],
        cache: "NativeCache | None" = None,
    ) -> Float[Tensor, "rows new d_model"]:
        """As `Transformer.decode` with a cache; memory and mask are the cache's own."""
        assert cache is not None
        return cache.step(tgt_in)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """As `Transformer.logits`."""
        return _through(self.network.output, hidden)

    def output_rows(self, ids: Int[Tensor, " n"]) -> Callable[[Tensor], Tensor]:
        """`logits` for some pieces only, the same to the last bit: hidden (*any, d_model) to logits (*any, n)."""
        few = self.network.output.rows(ids.numpy())
        return lambda hidden: _through(few, hidden)

    def search(
        self, sources: Sequence[Sequence[int]], limits: Any, options: Any, few: Any, stop: Any = None
    ) -> list[list[Found]]:
        """What `decode.search` finds, without a step of it in Python; arguments as `decode.contract.OwnSearch`."""
        return self.network.search(sources, limits, options, few, stop)


class NativeCache:
    """The hypotheses of a decoding, each known by its path; same contract as `cache.DecoderCache`."""

    def __init__(self, decoding: Decoding, src_mask: Bool[Tensor, "sentences src_len"]) -> None:
        self.memory = decoding
        self.src_mask = src_mask
        self.length = 0  # target positions decoded so far
        self.sentences = torch.arange(decoding.sentences, dtype=torch.int32)  # of each row
        self.paths = torch.zeros(decoding.sentences, 16, dtype=torch.int32)

    def step(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows new d_model"]:
        """Hidden states after new tokens, positions of one hypothesis like hypotheses that follow each other."""
        rows, new = tokens.shape
        if self.length + new > self.paths.size(1):
            self.paths = F.pad(self.paths, (0, self.length + new))
        self.memory.make_room(rows * new, self.paths.numpy(), self.length)
        end, first = self.length + new, self.memory.places
        self.paths[:, self.length : end] = torch.arange(first, first + rows * new, dtype=torch.int32).view(rows, new)
        positions = torch.arange(self.length, end, dtype=torch.int32).repeat(rows)
        self.length = end
        sentences, paths = (x if new == 1 else x.repeat_interleave(new, 0) for x in (self.sentences, self.paths))
        newest = tokens.flatten().int()
        hidden = self.memory.step(newest.numpy(), positions.numpy(), sentences.numpy(), paths.numpy())
        return torch.from_numpy(hidden).view(rows, new, -1)

    def truncate(self, length: int) -> None:
        """Take steps back: forget all positions from `length` on, of a single hypothesis."""
        assert len(self.paths) == 1, "only a single hypothesis has its places to itself"
        if length < self.length:
            self.memory.forget(int(self.paths[0, length]))
            self.length = length

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row index[i] was."""
        self.select(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        self.paths, self.sentences = self.paths.index_select(0, index), self.sentences.index_select(0, index)


def _through(layer: Linear, x: Tensor) -> Tensor:
    return torch.from_numpy(layer(x.reshape(-1, layer.d_in).numpy())).view(*x.shape[:-1], layer.d_out)


def _positions(embeddings: Embeddings, length: int) -> Any:
    if isinstance(embeddings.positions, LearnedPositions):
        return embeddings.positions.table.detach().numpy()
    return sinusoids(0, length, embeddings.tokens.embedding_dim)


def _shape(model: Transformer) -> Shape:
    encoder: Any = model.encoder.layers
    decoder: Any = model.decoder.layers
    sublayer: Any = next(module for module in model.modules() if hasattr(module, "norm_first"))
    return Shape(
        tuple(layer.self_attn.n_heads for layer in encoder),
        tuple(layer.self_attn.n_heads for layer in decoder),
        tuple(layer.cross_attn.n_heads for layer in decoder),
        bool(sublayer.norm_first),
        float(sublayer.norm.eps),
    )
