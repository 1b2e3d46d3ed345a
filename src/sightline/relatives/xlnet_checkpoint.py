"""XLNet in the Hugging Face layout, in and out: the keys of config.json and the names in model.safetensors.

One table serves both directions. Not here: reading and writing the files themselves.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.model.parameters import load_parameters, parameters_of
from sightline.relatives.xlnet import ACTIVATIONS, DIRECTIONS, XLNet, XLNetShape, build_xlnet


class Layout(NamedTuple):
    """How the file lays a parameter out, to and from ours; both are given the number of heads."""

    read: Callable[[Tensor, int], Tensor]
    write: Callable[[Tensor, int], Tensor]


SAME = Layout(lambda x, _: x, lambda x, _: x)
VECTOR = Layout(lambda x, _: x.flatten(), lambda x, _: x[None, None])  # theirs (1, 1, d_model)
INTO_HEADS = Layout(lambda x, _: x.flatten(1).T, lambda x, n: x.T.unflatten(1, (n, -1)))  # (d_model, heads, d_head)
FROM_HEADS = Layout(lambda x, _: x.flatten(1), lambda x, n: x.unflatten(1, (n, -1)))  # the same, but ours not turned

# Theirs -> ours; {i} is the layer.
NAMES: dict[str, tuple[str, Layout]] = {
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
    "lm_loss.weight": ("output.weight", SAME),  # absent where it is the table of tokens
    "lm_loss.bias": ("output.bias", SAME),
}
TIED = "lm_loss.weight", "transformer.word_embedding.weight"

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
REFUSED = {"bi_data": False, "same_length": False}  # a way to pre-train, and of Transformer-XL alone
IGNORED = frozenset(  # nothing about the network's function
    {
        "architectures",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "d_head",  # checked: d_model / n_head
        "untie_r",  # true of all published models; the names show it
        "n_token",
        "initializer_range",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "use_mems_eval",
        "use_mems_train",
        "max_position_embeddings",
        "task_specific_params",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "is_encoder_decoder",
        "use_cache",
        "chunk_size_feed_forward",  # slices that change no number
        "id2label",
        "label2id",
        "problem_type",
        # heads for other tasks, whose parameters would be unexpected
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_last_dropout",
        "start_n_top",
        "end_n_top",
    }
)


def shape_from_hf(config: Mapping[str, Any], origin: str = "config.json") -> XLNetShape:
    """The shape that a config.json describes.

    Raises:
        UserError: it has keys that are neither handled nor knowingly ignored, or values that are not supported.
    """
    unknown = sorted(config.keys() - KEYS.keys() - REFUSED.keys() - IGNORED)
    problems = [f"{name} is not understood" for name in unknown]
    problems += [f"{name} = {config[name]!r} is not supported" for name in REFUSED if config.get(name)]
    found = {ours: config[theirs] for theirs, ours in KEYS.items() if theirs in config}
    for name in ("memory_length", "reuse_length", "clamp_length"):
        if name in found:
            found[name] = max(found[name] or 0, 0)  # none is None in one, -1 in another
    shape = XLNetShape(**found)
    if shape.activation not in ACTIVATIONS:
        problems.append(f"ff_activation = {shape.activation!r} is none of {', '.join(ACTIVATIONS)}")
    if shape.direction not in DIRECTIONS:
        problems.append(f"attn_type = {shape.direction!r} is none of {', '.join(DIRECTIONS)}")
    if shape.d_model % shape.n_heads or config.get("d_head", shape.d_model // shape.n_heads) * shape.n_heads != (
        shape.d_model
    ):
        problems.append(
            f"{shape.n_heads} heads of d_head = {config.get('d_head')} do not make d_model = {shape.d_model}"
        )
    if problems:
        raise UserError(f"{origin}: {'; '.join(problems)}")
    return shape


def shape_to_hf(shape: XLNetShape) -> dict[str, Any]:
    """A config.json that says the same."""
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
        UserError: as `shape_from_hf`, or tensors are missing, unexpected or misshapen; all are named, in the file's
            own names.
    """
    shape = shape_from_hf(config)
    with torch.random.fork_rng(devices=[]):  # fresh parameters are drawn and overwritten: not at the caller's cost
        model = build_xlnet(shape)
    wanted = tensors_for_hf(model)
    output, table = TIED
    given = dict(tensors)
    if shape.tied_output and output in given and table in given and given[output].equal(given[table]):
        del given[output]  # some files hold it twice
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
    ours = {mine: layout.read(given[theirs], shape.n_heads) for theirs, mine, layout in names(shape.n_layers, given)}
    load_parameters(model, ours, origin)
    return model.eval()


def tensors_for_hf(model: XLNet) -> dict[str, Tensor]:
    """The parameters of `model` under the names and in the layouts of the file."""
    ours = parameters_of(model)
    first: Any = model.layers[0]
    theirs = {mine: (name, layout) for name, mine, layout in names(len(model.layers))}
    return {
        theirs[mine][0]: theirs[mine][1].write(value, first.attn.n_heads).contiguous() for mine, value in ours.items()
    }


def names(n_layers: int, among: Mapping[str, Any] | None = None) -> list[tuple[str, str, Layout]]:
    """`NAMES` written out for that many layers: theirs, ours, layout; only those in `among`, where it is given."""
    rows = []
    for theirs, (ours, layout) in NAMES.items():
        for i in range(n_layers if "{i}" in theirs else 1):
            rows.append((theirs.format(i=i), ours.format(i=i), layout))
    return [row for row in rows if among is None or row[0] in among]
