"""Export to ONNX as two graphs: the encoder, and one step of the decoder with its KV cache.

    encoder.onnx   src, src_mask -> cross_k.{i}, cross_v.{i}
    decoder.onnx   tgt_in, src_mask, cross_k.{i}, cross_v.{i}, self_k.{i}, self_v.{i} -> logits, self_k.{i}, self_v.{i}

src and tgt_in are int64 (batch, length). src_mask is boolean (batch, src_len), True for real tokens. Keys and values
are (batch, heads, length, d_head) of layer i. The decoder takes one or more new tokens. Its own keys and values have
length 0 at the start, and are then the outputs of the last step. All lengths and the batch size are dynamic. Added
and rotary positions come from tables, which end after `exported.N_POSITIONS` tokens.

The export has no search. `greedy_by_onnxruntime` is the shortest one; it checks the export.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.attention import MultiHeadAttention
from headwise.core.cache import LayerCache
from headwise.core.extensions.relative import RelativeBias, relative_buckets
from headwise.core.extensions.rotary import Rotary
from headwise.core.masks import Causal
from headwise.core.positions import NoPositions
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.export.exported import MAX_NEW_TOKENS, N_POSITIONS, ExportedModel, position_table

INSTALL = 'pip install "headwise[onnx]"'
ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
OPSET = 20

USE = """\
A translation model as two ONNX graphs, made by Headwise: `encoder.onnx` reads a text once, `decoder.onnx` writes one
token at a time and returns the keys and values for the next step. `tokenizer.json` is for the `tokenizers`
library.

```python
import numpy as np, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file(FOLDER + "/tokenizer.json")
encoder, decoder = (onnxruntime.InferenceSession(FOLDER + "/" + n + ".onnx") for n in ("encoder", "decoder"))
src = np.array([tokenizer.encode("{example}").ids + [{eos_id}]])
mask = src != {pad_id}
names = [output.name for output in encoder.get_outputs()]
source = dict(zip(names, encoder.run(None, {{"src": src, "src_mask": mask}})))
own = [i for i in decoder.get_inputs() if i.name.startswith("self")]
past = {{i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in own}}
found = [{bos_id}]
while found[-1] != {eos_id} and len(found) < 100:
    new = np.array([found[-1:]])
    logits, *values = decoder.run(None, {{"tgt_in": new, "src_mask": mask, **source, **past}})
    past = dict(zip(past, values))
    logits[:, :, {suppressed}] = -np.inf
    found.append(int(logits[0, -1].argmax()))
print(tokenizer.decode(found))
```
"""


def check_onnx(exported: ExportedModel) -> None:
    """`UserError` where a library is not installed; every Transformer can be exported."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"--to onnx needs {error.name}: {INSTALL}") from None


def write_onnx(exported: ExportedModel, folder: Path, example: str, int8: bool) -> None:
    """Both graphs, the tokenizer, and a README with an example."""
    check_onnx(exported)
    write_graphs(exported.network, folder)
    if int8:
        for name in (ENCODER, DECODER):
            _quantize(folder / name)
    exported.tokenizer.save(folder / "tokenizer.json")
    t = exported.tokenizer
    text = USE.format(
        example=example, pad_id=t.pad_id, bos_id=t.bos_id, eos_id=t.eos_id, suppressed=list(exported.suppressed)
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def write_graphs(network: Transformer, folder: Path) -> None:
    """Both graphs in float32."""
    network = with_tables(network)
    encoder, decoder = EncoderGraph(network).eval(), DecoderGraph(network).eval()
    n = len(network.decoder.layers)
    # Lengths other than 0 and 1, which the exporter would specialise.
    src, src_mask, tgt_in = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5) > 0, torch.ones(2, 4, dtype=torch.long)
    batch, src_len, new, past = (torch.export.Dim(name) for name in ("batch", "src_len", "new", "past"))
    with torch.no_grad():
        cross = encoder(src, src_mask)
        own = tuple(torch.zeros(2, *heads) for heads in own_shapes(network, 3))
        on_source = {0: batch, 1: src_len}
        _export(
            encoder,
            (src, src_mask),
            folder / ENCODER,
            ["src", "src_mask"],
            cache_names("cross", n),
            (on_source, on_source),
        )
        keys = ({0: batch, 2: src_len},) * 2 * n, ({0: batch, 2: past},) * 2 * n
        _export(
            decoder,
            (tgt_in, src_mask, cross, own),
            folder / DECODER,
            ["tgt_in", "src_mask", *cache_names("cross", n), *cache_names("self", n)],
            ["logits", *cache_names("new_self", n)],
            ({0: batch, 1: new}, on_source, *keys),
        )


def own_shapes(network: Transformer, length: int) -> Iterator[tuple[int, int, int]]:
    """Heads, length and width of the keys and values of each layer's self-attention."""
    for layer in network.decoder.layers:
        attention: Any = layer.self_attn
        for projection in (attention.k_proj, attention.v_proj):
            yield attention.n_kv_heads, length, projection.out_features // attention.n_kv_heads


def cache_names(kind: str, n_layers: int) -> list[str]:
    """Names of the keys and values of all layers.

    >>> cache_names("self", 2)
    ['self_k.0', 'self_v.0', 'self_k.1', 'self_v.1']
    """
    return [f"{kind}_{part}.{i}" for i in range(n_layers) for part in "kv"]


def _export(
    module: nn.Module,
    arguments: tuple[Any, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: tuple[Any, ...],
) -> None:
    with _quiet():
        program = torch.onnx.export(
            module,
            arguments,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            verbose=False,
        )
        assert program is not None
        program.save(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without log messages of exporter and quantizer."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def with_tables(network: Transformer) -> Transformer:
    """A copy of a network whose rotary and relative positions come from tables of constant size."""
    network = deepcopy(network)
    rotations: dict[nn.Module, nn.Module] = {}  # layers share one
    for module in network.modules():
        if isinstance(module, MultiHeadAttention) and isinstance(module.rotate, Rotary):
            module.rotate = rotations.setdefault(module.rotate, RotationTable(module.rotate))
    network.decoder.reach = Earlier() if isinstance(network.decoder.reach, Causal) else network.decoder.reach
    for stack in (network.encoder, network.decoder):
        if isinstance(stack.reach, RelativeBias):
            stack.reach = BiasTable(stack.reach)
    return network


class RotationTable(nn.Module):
    """`Rotary` for positions that the exporter follows as symbols."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        angles = torch.arange(N_POSITIONS).float().unsqueeze(1) * torch.cat([rotary.rates, rotary.rates])
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(
        self, x: Float[Tensor, "batch heads length d_head"], start: int
    ) -> Float[Tensor, "batch heads length d_head"]:
        """Like `Rotary`."""
        at = torch.arange(start, start + x.size(2), device=x.device)
        cos, sin = (F.embedding(at, self.get_buffer(name)) for name in ("cos", "sin"))
        turned, rest = x[..., : cos.size(-1)], x[..., cos.size(-1) :]
        first, second = turned.chunk(2, -1)
        return torch.cat([turned * cos + torch.cat([-second, first], -1) * sin, rest], -1)


class Earlier(nn.Module):
    """`Causal` without a case for single tokens."""

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> Bool[Tensor, "1 1 queries keys"]:
        """Like `Causal`; there is no padding."""
        at = torch.arange(start, start + queries, device=device)
        return (torch.arange(start + queries, device=device) <= at.unsqueeze(1))[None, None]


class BiasTable(nn.Module):
    """`RelativeBias` from a table of distances: an exporter's logarithm may round to another bucket."""

    def __init__(self, relative: RelativeBias) -> None:
        super().__init__()
        self.reach = Earlier() if isinstance(relative.reach, Causal) else relative.reach
        self.farthest = relative.max_distance  # all distances beyond have the same bucket
        distances = torch.arange(-self.farthest, self.farthest + 1)
        n_buckets = relative.buckets.num_embeddings
        buckets = relative_buckets(distances, n_buckets, relative.max_distance, relative.bidirectional)
        self.register_buffer("table", relative.buckets(buckets).detach())

    def forward(
        self, mask: Bool[Tensor, "batch keys"] | None, start: int, queries: int, device: torch.device
    ) -> Float[Tensor, "#batch heads queries keys"]:
        """Like `RelativeBias`."""
        at = torch.arange(start, start + queries, device=device)
        distance = torch.arange(start + queries, device=device) - at.unsqueeze(1)
        rows = distance.clamp(-self.farthest, self.farthest) + self.farthest
        bias = F.embedding(rows, self.get_buffer("table")).permute(2, 0, 1).unsqueeze(0)
        return bias.masked_fill(~self.reach(mask, start, queries, device), torch.finfo(bias.dtype).min)


class PositionedEmbedding(nn.Module):
    """Section 3.4 with positions, if any are added, from a table, and no dropout."""

    table: Tensor | None

    def __init__(self, embeddings: Any) -> None:
        super().__init__()
        self.tokens = embeddings.tokens
        self.scale = embeddings.scale
        added = not isinstance(embeddings.positions, NoPositions)
        self.register_buffer("table", position_table(embeddings) if added else None)

    def forward(self, tokens: Int[Tensor, "batch new"], start: int) -> Float[Tensor, "batch new d_model"]:
        """Like `Embeddings`."""
        x = self.tokens(tokens) * self.scale
        if self.table is None:
            return x
        return x + F.embedding(torch.arange(start, start + tokens.size(1), device=tokens.device), self.table)


class EncoderGraph(nn.Module):
    """From a source to the cross-attention keys and values of all decoder layers."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.embed = PositionedEmbedding(network.src_embeddings)
        self.encoder = network.encoder
        self.decoder = network.decoder

    def forward(
        self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> tuple[Float[Tensor, "batch _ src_len _"], ...]:
        """k of the first layer, v of the first layer, k of the second, ..."""
        memory = self.encoder(self.embed(src, 0), src_mask)
        attentions: list[Any] = [layer.cross_attn for layer in self.decoder.layers]
        return tuple(x for attention in attentions for x in attention.keys_and_values(memory, None))


class GivenCache(LayerCache):
    """Keys and values from input tensors; `append` concatenates instead of writing in place."""

    def __init__(self, k: Tensor, v: Tensor, grows: bool) -> None:
        super().__init__(grows)
        self._k, self._v, self.length = k, v, k.size(2)

    def append(
        self, k: Float[Tensor, "rows heads new d_k"], v: Float[Tensor, "rows heads new d_v"]
    ) -> tuple[Float[Tensor, "rows heads keys d_k"], Float[Tensor, "rows heads keys d_v"]]:
        """Like `LayerCache`."""
        assert self._k is not None and self._v is not None
        self._k, self._v = torch.cat([self._k, k], 2), torch.cat([self._v, v], 2)
        return self._k, self._v


class DecoderGraph(nn.Module):
    """One step: new tokens, given the keys and values of the preceding ones."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.embed = PositionedEmbedding(network.tgt_embeddings)
        self.decoder = network.decoder
        self.head = network.head

    def forward(
        self,
        tgt_in: Int[Tensor, "batch new"],
        src_mask: Bool[Tensor, "batch src_len"],
        cross: tuple[Float[Tensor, "batch _ src_len _"], ...],
        own: tuple[Float[Tensor, "batch _ past _"], ...],
    ) -> tuple[Float[Tensor, "..."], ...]:
        """Logits, (batch, new, vocab), then the extended keys and values, in the order of `own`."""
        past = own[0].size(2)
        x = self.embed(tgt_in, past)
        tgt_mask = self.decoder.reach(None, past, tgt_in.size(1), x.device)
        caches = [GivenCache(own[i], own[i + 1], grows=True) for i in range(0, len(own), 2)]
        for i, layer in enumerate(self.decoder.layers):
            source = GivenCache(cross[2 * i], cross[2 * i + 1], grows=False)
            x = layer(x, x, tgt_mask, src_mask[:, None, None, :], caches[i], source)
        logits = self.head(self.decoder.norm(x))
        return logits, *(values for cache in caches for values in (cache._k, cache._v) if values is not None)


def _quantize(path: Path) -> None:
    """Quantize the weights of matrix products to int8; activations dynamically, one scale per batch."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    draft = path.with_suffix(".int8")
    with _quiet():
        quantize_dynamic(path, draft, weight_type=QuantType.QInt8)
    draft.replace(path)


class OnnxGraphs:
    """The two graphs in ONNX Runtime."""

    def __init__(self, exported: ExportedModel, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        sessions: list[Any] = [
            onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        ]
        self.encoder, self.decoder = sessions
        self.exported = exported

    def source(self, src: NDArray[np.int64], src_mask: NDArray[np.bool_]) -> dict[str, Any]:
        """The initial state of the decoder for these sources."""
        found = self.encoder.run(None, {"src": src, "src_mask": src_mask})
        cross = dict(zip((output.name for output in self.encoder.get_outputs()), found, strict=True))
        shapes = own_shapes(self.exported.network, 0)
        names = cache_names("self", len(self.exported.network.decoder.layers))
        own = {name: np.zeros((len(src), *heads), np.float32) for name, heads in zip(names, shapes, strict=True)}
        return {"src_mask": src_mask, **cross, **own}

    def step(self, tgt_in: NDArray[np.int64], state: dict[str, Any]) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Logits after the new tokens, and the next state."""
        logits, *own = self.decoder.run(None, {"tgt_in": tgt_in, **state})
        return logits, {**state, **dict(zip([name for name in state if name.startswith("self")], own, strict=True))}


def greedy_by_onnxruntime(exported: ExportedModel, folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Greedy translations of the exported model by ONNX Runtime: ids without EOS, up to MAX_NEW_TOKENS."""
    graphs, t = OnnxGraphs(exported, folder), exported.tokenizer
    return [_greedy(graphs, tokens, t.bos_id, t.eos_id) for tokens in t.encode_batch(texts)]


def _greedy(graphs: OnnxGraphs, tokens: list[int], bos_id: int, eos_id: int) -> list[int]:
    src = np.array([[*tokens, eos_id]])
    state, found = graphs.source(src, np.ones_like(src, bool)), [bos_id]
    for _ in range(MAX_NEW_TOKENS):
        logits, state = graphs.step(np.array([found[-1:]]), state)
        logits[:, :, list(graphs.exported.suppressed)] = -np.inf
        found.append(int(logits[0, -1].argmax()))
        if found[-1] == eos_id:
            return found[1:-1]
    return found[1:]
