"""The parameters that a network must have in its files, by name, with their shapes; without torch.

`core.build` makes them, and tests compare both. Only networks that the compiled library supports are described.
"""

from collections.abc import Mapping

from headwise.config.network import NetworkConfig, StackConfig
from headwise.runtime.native.speech import WIDTH as CONVOLUTION

ShapesByName = dict[str, tuple[int, ...]]  # of parameters
HEADS = {  # of an encoder: the layer with an activation, if any, and the output layer
    "masked": ("head.dense", "head.output"),
    "replaced": ("head.dense", "head.output"),
    "text_class": ("head.pool", "head.classes"),
    "token_class": ("", "head.classes"),
    "span": ("", "head.classes"),
}


def fits(c: NetworkConfig, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether these are the shapes of all parameters of that network."""
    return dict(shapes) == parameter_shapes(c)


def parameter_shapes(c: NetworkConfig) -> ShapesByName:
    """The shape of every parameter of a network that the library supports; shared ones under their first name."""
    shapes = _front(c)
    for part, stack in (("encoder", c.encoder), ("decoder", c.decoder)):
        if stack is None:
            continue
        if stack.relative_buckets:
            shapes[f"{part}.reach.buckets.weight"] = (stack.relative_buckets, stack.n_heads)
        for i in sorted(set(stack.first_of_groups)) if stack.layer_groups else range(stack.n_layers):
            shapes |= _layer(f"{part}.layers.{i}", stack, i, part == "decoder" and c.encoder is not None)
        if stack.norm_position == "pre":
            shapes |= _norm(f"{part}.norm", stack)
    return shapes | _head(c)


def _front(c: NetworkConfig) -> ShapesByName:
    stack = c.decoder or c.encoder
    assert stack
    if not (c.encoder and c.decoder):
        return _embeddings("embeddings", stack, c.vocab_size)
    target = _embeddings("tgt_embeddings", stack, c.tgt_vocab_size or c.vocab_size)
    if c.front == "audio":
        return _convolutions(c.n_mels, c.encoder) | target
    target = _without_weight(target, "tgt_embeddings.tokens") if c.share_embeddings else target
    return _embeddings("src_embeddings", c.encoder, c.vocab_size) | target


def _convolutions(n_mels: int, c: StackConfig) -> ShapesByName:
    shapes: ShapesByName = {"src_embeddings.positions": (c.max_len, c.d_model)}
    for name, d_in in (("conv1", n_mels), ("conv2", c.d_model)):
        shapes[f"src_embeddings.{name}.weight"] = (c.d_model, d_in, CONVOLUTION)
        shapes[f"src_embeddings.{name}.bias"] = (c.d_model,)
    return shapes


def _embeddings(name: str, c: StackConfig, size: int) -> ShapesByName:
    width = c.d_embedding or c.d_model
    shapes: ShapesByName = {f"{name}.tokens.weight": (size, width)}
    if c.positions == "learned":
        shapes[f"{name}.positions.table.weight"] = (c.max_len + c.position_offset, width)
    if c.n_types:
        shapes[f"{name}.types.weight"] = (c.n_types, width)
    if c.embedding_norm:
        shapes |= _norm(f"{name}.norm", c, width)
    return shapes | (_linear(f"{name}.project", width, c.d_model) if width != c.d_model else {})


def _layer(name: str, c: StackConfig, i: int, has_cross: bool) -> ShapesByName:
    shapes = _attention(f"{name}.self_attn", c, c.heads[i] if c.heads else c.n_heads)
    if has_cross:
        shapes |= _attention(f"{name}.cross_attn", c, c.cross_heads[i] if c.cross_heads else c.n_heads)
    for projection in ("gate_proj", "up_proj") if c.gated else ("up_proj",):
        shapes |= _linear(f"{name}.ffn.{projection}", c.d_model, c.d_ff, c.ffn_bias)
    shapes |= _linear(f"{name}.ffn.down_proj", c.d_ff, c.d_model, c.ffn_bias)
    return shapes | _norm(f"{name}.ffn_sublayer.norm", c)


def _attention(name: str, c: StackConfig, heads: int) -> ShapesByName:
    shared, d_v = c.n_kv_heads or heads, c.d_v or c.d_head
    widths = {"q": heads * c.d_head, "k": shared * c.d_head, "v": shared * d_v}
    shapes = _norm(f"{name}_sublayer.norm", c)
    for projection, width in widths.items():
        shapes |= _linear(f"{name}.{projection}_proj", c.d_model, width, projection in c.attention_bias)
    if c.normalise_heads:
        shapes |= {f"{name}.{part}_norm.weight": (c.d_head,) for part in "qk"}
    return shapes | _linear(f"{name}.o_proj", heads * d_v, c.d_model, "o" in c.attention_bias)


def _head(c: NetworkConfig) -> ShapesByName:
    if c.decoder and c.head == "language":
        shapes = _linear("head.output", c.decoder.d_model, c.tgt_vocab_size or c.vocab_size, c.head_bias)
        return _without_weight(shapes, "head.output") if c.tie_head else shapes
    if c.decoder or not c.encoder or c.head == "none":
        return {}
    dense, output = head_layers(c)
    width = (c.encoder.d_embedding or c.encoder.d_model) if c.head == "masked" else c.encoder.d_model
    classes = {"masked": c.vocab_size, "replaced": 1, "span": 2}.get(c.head, c.n_classes)
    shapes = _linear(dense, c.encoder.d_model, width, c.head_dense_bias) if dense else {}
    if has_head_norm(c):
        shapes |= _norm("head.norm", c.encoder, width)
    shapes |= _linear(output, width, classes)
    return _without_weight(shapes, output) if c.tie_head and c.head == "masked" else shapes


def head_layers(c: NetworkConfig) -> tuple[str, str]:
    """The names of the layers in `HEADS` of an encoder's head."""
    dense, output = HEADS[c.head]
    return ("head.dense" if c.head_norm and not dense else dense), output


def has_head_norm(c: NetworkConfig) -> bool:
    """Whether an encoder's head has a norm."""
    return c.head == "masked" or c.head_norm


def _without_weight(shapes: ShapesByName, name: str) -> ShapesByName:
    return {one: shape for one, shape in shapes.items() if one != f"{name}.weight"}


def _linear(name: str, d_in: int, d_out: int, bias: bool = True) -> ShapesByName:
    return {f"{name}.weight": (d_out, d_in), **({f"{name}.bias": (d_out,)} if bias else {})}


def _norm(name: str, c: StackConfig, width: int = 0) -> ShapesByName:
    """`width` is d_model by default."""
    shape = (width or c.d_model,)
    return {f"{name}.weight": shape, **({f"{name}.bias": shape} if c.norm == "layer" else {})}
