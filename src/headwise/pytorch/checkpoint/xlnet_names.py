"""XLNet in the Hugging Face layout, in and out: the keys of config.json and the names in model.safetensors.

One table serves both directions. See `xlnet` and `published` for reading the files.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.core.build import load_parameters, parameters_of
from headwise.errors import UserError
from headwise.families.keys import Keys
from headwise.pytorch.architectures.xlnet import ACTIVATIONS, DIRECTIONS, XLNet, XLNetShape, build_xlnet


class TensorLayout(NamedTuple):
    """The layout of a parameter in the file, from and to ours; both functions get the number of heads."""

    read: Callable[[Tensor, int], Tensor]
    write: Callable[[Tensor, int], Tensor]


SAME = TensorLayout(lambda x, _: x, lambda x, _: x)
VECTOR = TensorLayout(lambda x, _: x.flatten(), lambda x, _: x[None, None])  # in the file (1, 1, d_model)
INTO_HEADS = TensorLayout(
    lambda x, _: x.flatten(1).T, lambda x, n: x.T.unflatten(1, (n, -1))
)  # (d_model, heads, d_head)
FROM_HEADS = TensorLayout(
    lambda x, _: x.flatten(1), lambda x, n: x.unflatten(1, (n, -1))
)  # the same, ours not transposed

# Theirs -> ours; {i} is the layer.
NAMES: dict[str, tuple[str, TensorLayout]] = {
    "transformer.word_embedding.weight": ("tokens.weight", SAME),
    "transformer.mask_emb": ("query_start", VECTOR),
    "transformer.layer.{i}.rel_attn.q": ("layers.{i}.attn.q_proj.weight", INTO_HEADS),
    "transformer.layer.{i}.rel_attn.k": ("layers.{i}.attn.k_proj.weight", INTO_HEADS),
    "transformer.layer.{i}.rel_attn.v": ("layers.{i}.attn.v_proj.weight", INTO_HEADS),
    "transformer.layer.{i}.rel_attn.r": ("layers.{i}.attn.r_proj.weight", INTO_HEADS),
    "transformer.layer.{i}.rel_attn.o": ("layers.{i}.attn.o_proj.weight", FROM_HEADS),
    "transformer.layer.{i}.rel_attn.r_w_bias": ("layers.{i}.attn.content_bias", SAME),
    "transformer.layer.{i}.rel_attn.r_r_bias": ("layers.{i}.attn.position_bias", SAME),
    "transformer.layer.{i}.rel_attn.r_s_bias": ("layers.{i}.attn.segment_bias", SAME),
    "transformer.layer.{i}.rel_attn.seg_embed": ("layers.{i}.attn.segments", SAME),
    "transformer.layer.{i}.rel_attn.layer_norm.weight": ("layers.{i}.attn_norm.weight", SAME),
    "transformer.layer.{i}.rel_attn.layer_norm.bias": ("layers.{i}.attn_norm.bias", SAME),
    "transformer.layer.{i}.ff.layer_1.weight": ("layers.{i}.ffn.up_proj.weight", SAME),
    "transformer.layer.{i}.ff.layer_1.bias": ("layers.{i}.ffn.up_proj.bias", SAME),
    "transformer.layer.{i}.ff.layer_2.weight": ("layers.{i}.ffn.down_proj.weight", SAME),
    "transformer.layer.{i}.ff.layer_2.bias": ("layers.{i}.ffn.down_proj.bias", SAME),
    "transformer.layer.{i}.ff.layer_norm.weight": ("layers.{i}.ffn_norm.weight", SAME),
    "transformer.layer.{i}.ff.layer_norm.bias": ("layers.{i}.ffn_norm.bias", SAME),
    "lm_loss.weight": ("head.weight", SAME),  # absent where it is the table of tokens
    "lm_loss.bias": ("head.bias", SAME),
    "sequence_summary.summary.weight": ("head.summary.weight", SAME),  # of a head for labels
    "sequence_summary.summary.bias": ("head.summary.bias", SAME),
    "logits_proj.weight": ("head.classes.weight", SAME),
    "logits_proj.bias": ("head.classes.bias", SAME),
}
TIED = "lm_loss.weight", "transformer.word_embedding.weight"

HEADS = {"XLNetLMHeadModel": "language", "XLNetForSequenceClassification": "text_class"}  # by `architectures`
KEYS = {  # of config.json -> fields of XLNetShape
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "n_layer": "n_layers",
    "n_head": "n_heads",
    "d_inner": "d_ff",
    "ff_activation": "activation",
    "attn_type": "direction",
    "layer_norm_eps": "norm_eps",
    "dropout": "dropout",
    "mem_len": "memory_length",
    "reuse_len": "reuse_length",
    "clamp_len": "clamp_length",
    "tie_word_embeddings": "tied_output",
}
# The supported head for labels; ignored for another head.
LABELS = {
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_proj_to_labels": False,
    "summary_activation": "tanh",
    "summary_first_dropout": 0,
}
# Without effect on the network: training, and heads for other tasks.
IGNORED = """
untie_r n_token use_mems_eval use_mems_train use_mems max_position_embeddings start_n_top end_n_top
"""  # untie_r is true of all published models; the names show it


def shape_from_hf(config: Mapping[str, Any]) -> XLNetShape:
    """The shape that a config.json describes.

    Raises:
        UserError: it has keys that are neither handled nor knowingly ignored, or values that are not supported.
    """
    k = Keys({theirs: getattr(XLNetShape, ours) for theirs, ours in KEYS.items()} | dict(config))
    d_model, n_heads, d_head = k.heads("d_model", "n_head", "d_head")
    k.refuse(d_head * n_heads != d_model, f"{n_heads} heads of d_head = {d_head} do not make d_model = {d_model}")
    k.only("bi_data", False)  # a way to pre-train
    k.only("same_length", False)  # of Transformer-XL alone
    labels = k.head(HEADS) == "text_class"
    for name, only in LABELS.items() if labels else ():
        k.only(name, only)
    shape = XLNetShape(
        vocab_size=k.size("vocab_size"),
        d_model=d_model,
        n_layers=k.layers("n_layer"),
        n_heads=n_heads,
        d_ff=k.size("d_inner"),
        activation=k.choice("ff_activation", table={name: name for name in ACTIVATIONS}, default="gelu"),
        direction=k.choice("attn_type", table={name: name for name in DIRECTIONS}, default="bi"),
        norm_eps=k.fraction("layer_norm_eps", default=1e-12),
        dropout=k.fraction("dropout", default=0.1),
        memory_length=_length(k, "mem_len"),
        reuse_length=_length(k, "reuse_len"),
        clamp_length=_length(k, "clamp_len"),
        tied_output=k.flag("tie_word_embeddings", default=True),
        n_classes=k.n_classes() if labels else 0,
        head_dropout=k.fraction("summary_last_dropout", default=0.1) if labels else XLNetShape.head_dropout,
    )
    k.done(ignored=IGNORED)
    return shape


def _length(k: Keys, name: str) -> int:
    """No length is null in some files and -1 in others."""
    return max(0, k.size(name, default=0, least=-1))


def shape_to_hf(shape: XLNetShape) -> dict[str, Any]:
    """The config.json for a shape."""
    config = {theirs: getattr(shape, ours) for theirs, ours in KEYS.items()}
    return {
        "model_type": "xlnet",
        "architectures": ["XLNetLMHeadModel"],
        **config,
        "reuse_len": shape.reuse_length or None,
        "clamp_len": shape.clamp_length or -1,
        "d_head": shape.d_model // shape.n_heads,
    }


def xlnet_from_hf(config: Mapping[str, Any], tensors: Mapping[str, Tensor], origin: str = "model.safetensors") -> XLNet:
    """The network of a checkpoint, in evaluation mode.

    Args:
        config: the content of config.json.
        tensors: those of model.safetensors, under their names there.
        origin: where they come from, for errors.

    Raises:
        UserError: as for `shape_from_hf`; or tensors are missing, unexpected or of the wrong shape, all by their names
            in the file.
    """
    shape = shape_from_hf(config)
    with torch.random.fork_rng(devices=[]):  # random parameters are overwritten; the caller's generator stays as it is
        model = build_xlnet(shape)
    wanted = tensors_for_hf(model)
    output, table = TIED
    given = dict(tensors)
    if shape.tied_output and output in given and table in given and given[output].equal(given[table]):
        del given[output]  # some files have it twice
    problems = [f"missing {name}" for name in wanted if name not in given]
    problems += [f"unexpected {name}" for name in given if name not in wanted]
    problems += [
        f"{name} is {list(given[name].shape)}, should be {list(value.shape)}"
        for name, value in wanted.items()
        if name in given and given[name].shape != value.shape
    ]
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UserError(f"{origin} does not fit its configuration: {'; '.join(problems[:20])}{more}")
    ours = {
        mine: layout.read(given[theirs], shape.n_heads) for theirs, mine, layout in tensor_names(shape.n_layers, given)
    }
    load_parameters(model, ours, origin)
    return model.eval()


def tensors_for_hf(model: XLNet) -> dict[str, Tensor]:
    """The parameters of `model` under the names and in the layouts of the file."""
    first: Any = model.layers[0]
    return xlnet_file_tensors(parameters_of(model), len(model.layers), first.attn.n_heads)


def xlnet_file_tensors(parameters: Mapping[str, Tensor], n_layers: int, n_heads: int) -> dict[str, Tensor]:
    """The same for parameters by our names."""
    theirs = {mine: (name, layout) for name, mine, layout in tensor_names(n_layers)}
    return {theirs[mine][0]: theirs[mine][1].write(value, n_heads).contiguous() for mine, value in parameters.items()}


def tensor_names(n_layers: int, among: Mapping[str, Any] | None = None) -> list[tuple[str, str, TensorLayout]]:
    """`NAMES` for `n_layers` layers: theirs, ours, layout; only those in `among`, if given."""
    rows = []
    for theirs, (ours, layout) in NAMES.items():
        for i in range(n_layers if "{i}" in theirs else 1):
            rows.append((theirs.format(i=i), ours.format(i=i), layout))
    return [row for row in rows if among is None or row[0] in among]
