"""Read translation models of CTranslate2: encoder-decoders that its converters made from Marian, opus-mt, OpenNMT, Eole
or fairseq.

Names of tensors and activations serve reading and export. The network is read from `model.bin` alone: settings from the
variables, positions from their table. Settings that our networks do not have are errors. See `ctranslate2_file` for the
format of the file, `ctranslate2_whisper` for Whisper and `ctranslate2_families` for encoders and decoders.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.core.build import build_empty
from headwise.core.positions import halved_sinusoids, sinusoids, tensor2tensor_sinusoids
from headwise.errors import UserError
from headwise.families.table import entries
from headwise.runtime.formats.ctranslate2_file import (
    MODEL_FILE,
    CTranslate2File,
    read_ctranslate2_file,
    read_ctranslate2_settings,
)
from headwise.runtime.tokenizers.ctranslate2_tokenizer import ForeignTokenizer, foreign_tokenizer, vocabularies_in

LINEAR = {  # of a layer: CTranslate2's name, and ours to concatenate
    "self_attention.linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.linear_1": ("self_attn.o_proj",),
    "self_attention.layer_norm": ("self_attn_sublayer.norm",),
    "attention.linear_0": ("cross_attn.q_proj",),
    "attention.linear_1": ("cross_attn.k_proj", "cross_attn.v_proj"),
    "attention.linear_2": ("cross_attn.o_proj",),
    "attention.layer_norm": ("cross_attn_sublayer.norm",),
    "ffn.linear_1": ("ffn.down_proj",),
    "ffn.layer_norm": ("ffn_sublayer.norm",),
}
PLAIN = {"ffn.linear_0": ("ffn.up_proj",)}
GATED = {"ffn.linear_0": ("ffn.gate_proj",), "ffn.linear_0_noact": ("ffn.up_proj",)}
NAMES = {  # in the notation of `families.table`; positions are computed
    "encoder.embeddings_0": "src_embeddings.tokens",
    "decoder.embeddings": "tgt_embeddings.tokens",
    "encoder.layernorm_embedding": "src_embeddings.norm",
    "decoder.layernorm_embedding": "tgt_embeddings.norm",
    "encoder.layer_norm": "encoder.norm",  # where layers normalise first
    "decoder.layer_norm": "decoder.norm",
    "decoder.projection": "head.output",
}
NORM = {"weight": "gamma", "bias": "beta"}
ACTIVATION_NAMES = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "quick_gelu": "GELUSigmoid",
    "silu": "SWISH",
}
EPS = {"layer": 1e-5, "rms": 1e-6}  # default epsilon of its norms
ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", "quick_gelu")  # by number
SINUSOIDS: dict[str, Callable[[int, int], Float[Tensor, "length d_model"]]] = {
    "sinusoidal_interleaved": sinusoids,
    "sinusoidal": halved_sinusoids,
    "sinusoidal_tensor2tensor": tensor2tensor_sinusoids,
}
# Tables of different kinds differ by about 1; those of one kind by rounding, also to bfloat16 (2^-8).
SAME_POSITIONS = 2e-2
MARIAN = "marian"  # kind of network of its own files
NO_EFFECT = ("alignment_layer", "alignment_heads", "alibi_use_positive_positions", "embeddings_merge")
OFF = ("alibi", "scale_alibi", "multi_query_attention", "rotary_interleave")  # settings that must be 0
RELATIVE_BIAS, RELATIVE_DISTANCE = "relative_attention_bias", "relative_attention_max_distance"
OF_SELF_ATTENTION = ("rotary_dim", "rotary_base", RELATIVE_DISTANCE)  # settings of each layer
OF_ATTENTION = (*OF_SELF_ATTENTION, "num_heads_kv", "head_dim", "queries_scale")
NEVER_BIAS = -1e4  # on the logit of a token that is never generated


def stacks_of(config: NetworkConfig) -> dict[str, StackConfig]:
    """Encoder and decoder by name."""
    assert config.encoder and config.decoder
    return {"encoder": config.encoder, "decoder": config.decoder}


def ctranslate2_names(config: NetworkConfig) -> dict[str, str]:
    """Tensor names of CTranslate2 and ours, for this network."""
    layers = {
        f"{side}.layer_{{i}}.{theirs}": "|".join(f"{side}.layers.{{i}}.{name}" for name in ours)
        for side, stack in stacks_of(config).items()
        for theirs, ours in (LINEAR | (GATED if stack.gated else PLAIN)).items()
    }
    return {**NAMES, **layers}


@dataclass(frozen=True)
class ForeignModel:
    """A model of another program, with everything that its folder needs here."""

    config: NetworkConfig
    tensors: Mapping[str, Tensor]  # by our names
    about: Mapping[str, Any]  # in the form of a config.json of the Hugging Face layout
    lists: Mapping[str, Mapping[str, Any]]  # files of JSON to write, such as tokens with their ids
    copies: Mapping[str, Path]  # files to copy, by their new names


def read_ctranslate2(folder: Path, pieces_from: Path | None = None) -> ForeignModel:
    """The model in a folder.

    Args:
        folder: has `model.bin`, `config.json` in versions since 3, and the vocabulary.
        pieces_from: the SentencePiece model, if it is not in the folder.

    Raises:
        UserError: not a translation model, without a tokenizer, damaged, or with a setting that is not supported.
    """
    file = read_ctranslate2_file(folder / MODEL_FILE)
    if file.kind != "TransformerSpec":
        raise UserError(f"{folder}: a {file.kind[:60]} of CTranslate2, which is not supported: import its original")
    values = read_ctranslate2_settings(folder)
    return translation_model(file, values, folder, vocabularies_in(folder), pieces_from)


def translation_model(
    file: CTranslate2File,
    values: Mapping[str, Any],
    folder: Path,
    vocabularies: tuple[Sequence[str], Sequence[str]],
    pieces_from: Path | None = None,
) -> ForeignModel:
    """A model from its variables.

    Args:
        file: variables by the names of CTranslate2.
        values: settings of its config.json.
        folder: has the tokenizer, if `pieces_from` does not name a SentencePiece model; also for messages.
        vocabularies: tokens of source and target, by id.

    Raises:
        UserError: as for `read_ctranslate2`.
    """
    read, written = vocabularies
    config, start = _network_config(file, values, str(folder))
    tensors = _tensors(file, config, str(folder))
    _check_sizes(folder, config, len(read), len(written) + (start is not None))
    ends = bool(values.get("add_source_eos")) or file.number("decoder/start_from_zero_embedding") > 0
    tokenizer = foreign_tokenizer(folder, read, written, ends, pieces_from)
    about = _about(folder, values, written, start, tokenizer)
    return ForeignModel(replace(config, family=tokenizer.family), tensors, about, tokenizer.lists, tokenizer.copies)


# --- the network


def _network_config(file: CTranslate2File, values: Mapping[str, Any], origin: str) -> tuple[NetworkConfig, int | None]:
    """The configuration, and the id of a start token without an embedding (Marian), which is added."""
    encoder, decoder = (_stack(file, side, values, origin) for side in ("encoder", "decoder"))
    source, target = (file.weight(_embeddings(file, side)) for side in ("encoder", "decoder"))
    starts_from_zero = file.number("decoder/start_from_zero_embedding") > 0
    shared = source.shape == target.shape and np.array_equal(source, target)
    output = file.weight("decoder/projection/weight")
    config = NetworkConfig(
        "marian",
        vocab_size=len(source) + (shared and starts_from_zero),
        encoder=encoder,
        decoder=decoder,
        head_bias="decoder/projection/bias" in file.variables or starts_from_zero,
        share_embeddings=shared,
        tgt_vocab_size=0 if shared else len(target) + starts_from_zero,
        tie_head=output.shape == target.shape and np.array_equal(output, target),
        logit_scale=file.number("decoder/scale_outputs", 1.0) or 1.0,
    )
    return config, len(target) if starts_from_zero else None


def _embeddings(file: CTranslate2File, side: str) -> str:
    name = f"{side}/embeddings_0/weight"
    return name if name in file.variables else f"{side}/embeddings/weight"


def _stack(file: CTranslate2File, side: str, values: Mapping[str, Any], origin: str) -> StackConfig:
    known = file.variables
    first = f"{side}/layer_0"
    needed = [_embeddings(file, side), f"{first}/self_attention/linear_0/weight", f"{first}/ffn/linear_0/weight"]
    for name in needed:
        if name not in known or known[name].ndim != 2:
            raise UserError(f"{origin}: {MODEL_FILE} has no matrix {name}; convert the model again with CTranslate2 4")
    d_model = known[needed[0]].shape[1]
    n_heads = int(file.number(f"{side}/num_heads", file.number("num_heads", 8.0)))
    rows = known[needed[1]].shape[0]
    activation = int(file.number(f"{side}/activation"))
    if n_heads < 1 or not 0 <= activation < len(ACTIVATIONS):
        raise UserError(f"{origin}: {side} with {n_heads} heads over {rows} rows, or with activation {activation}")
    norm = "layer" if f"{first}/ffn/layer_norm/beta" in known else "rms"
    attention = f"{first}/self_attention"
    kv_heads = int(file.number(f"{attention}/num_heads_kv", float(n_heads)))
    d_head = int(file.number(f"{attention}/head_dim")) or rows // (n_heads + 2 * max(kv_heads, 1))
    if kv_heads < 1 or n_heads % kv_heads or rows != (n_heads + 2 * kv_heads) * d_head:
        raise UserError(f"{origin}: {side} with {n_heads} and {kv_heads} heads over {rows} rows; it is damaged")
    scale = file.number(name := f"{side}/scale_embeddings", 1.0)
    kind = known[name].dtype if name in known else np.int8
    bias = f"{first}/self_attention/linear_0/bias" in known
    stack = StackConfig(
        d_model,
        n_layers=sum(f"{side}/layer_{n}/ffn/linear_0/weight" in known for n in range(len(known))),
        n_heads=n_heads,
        d_ff=known[needed[2]].shape[0],
        d_head=d_head,
        n_kv_heads=0 if kv_heads == n_heads else kv_heads,
        score_scale=file.number(f"{attention}/queries_scale"),
        attention_bias="qkvo" if bias else "",
        activation=ACTIVATIONS[activation],
        gated=f"{first}/ffn/linear_0_noact/weight" in known,
        ffn_bias=f"{first}/ffn/linear_0/bias" in known,
        norm=norm,
        norm_eps=float(values.get("layer_norm_epsilon") or EPS[norm]),
        norm_position="pre" if file.number(f"{side}/pre_norm", 1.0) else "post",
        embedding_scale=scale * (d_model**0.5 if kind == np.int8 else 1.0) or 1.0,
        embedding_norm=f"{side}/layernorm_embedding/gamma" in known,
    )
    return replace(stack, **_positions(file, side, stack))


def _positions(file: CTranslate2File, side: str, stack: StackConfig) -> dict[str, Any]:
    """The kind of positions: in attention, by their table, or without one OpenNMT-tf's, which count from 1."""
    attention, d_model = f"{side}/layer_0/self_attention", stack.d_model
    if (width := file.number(f"{attention}/rotary_dim", -1.0)) >= 0:
        base = file.number(f"{attention}/rotary_base", 10000.0)
        return {"rotary": RotaryConfig(int(width) or stack.d_head, base)}
    if (bias := file.variables.get(f"{attention}/{RELATIVE_BIAS}")) is not None and bias.ndim == 2:
        distance = int(file.number(f"{attention}/{RELATIVE_DISTANCE}"))
        return {"relative_buckets": len(bias), "relative_distance": distance}
    name = f"{side}/position_encodings/encodings"
    if name not in file.variables:
        return {"positions": "sinusoidal_tensor2tensor", "position_offset": 1}
    table = file.weight(name)
    for kind, codes in SINUSOIDS.items():
        for offset in (0, 1, 2):
            computed = codes(len(table) + offset, d_model)[offset:].numpy()
            if table.shape == computed.shape and np.abs(table - computed).max(initial=0) < SAME_POSITIONS:
                max_len = 0 if file.kind == MARIAN else len(table)  # Marian has no table
                return {"positions": kind, "position_offset": offset, "max_len": max_len}
    return {"positions": "learned", "max_len": len(table)}


def _tensors(file: CTranslate2File, config: NetworkConfig, origin: str) -> dict[str, Tensor]:
    """Our tensors; `UserError` if one is missing, or if the file has others."""
    shapes = {name: tuple(one.shape) for name, one in build_empty(config).named_parameters()}
    tensors, used = dict[str, NDArray[np.float32]](), set[str]()
    for side, front in (("encoder", "src_embeddings"), ("decoder", "tgt_embeddings")):
        if f"{front}.positions.table.weight" in shapes:
            tensors[f"{front}.positions.table.weight"] = file.weight(f"{side}/position_encodings/encodings")
        used |= {f"{side}/position_encodings/encodings", f"{side}/layer_norm/gamma", f"{side}/layer_norm/beta"}
        used |= {_embeddings(file, side)}
        relative = [name for name in file.variables if name.startswith(side) and name.endswith(RELATIVE_BIAS)]
        if f"{side}.reach.buckets.weight" in shapes:
            first = file.weight(f"{side}/layer_0/self_attention/{RELATIVE_BIAS}")
            if all(np.array_equal(file.weight(name), first) for name in relative):
                tensors[f"{side}.reach.buckets.weight"] = first
                used |= {*relative}
    left = {name: shape for name, shape in shapes.items() if name not in tensors}
    for entry in entries(ctranslate2_names(config), config, left):
        name = _variable(file, entry.key)
        if name not in file.variables:
            if entry.names == ["head.output.bias"]:
                continue
            raise UserError(f"{origin}: {MODEL_FILE} has no {name}; convert the model again with CTranslate2 4")
        used.add(name)
        ends = np.cumsum([shapes[own][0] for own in entry.names])[:-1]  # keys and values may have fewer heads
        tensors |= zip(entry.names, np.split(file.weight(name), ends), strict=True)
    used |= {"decoder/projection/weight", "decoder/projection/bias"}
    _refuse_others(file, used, config, origin)
    return {name: torch.from_numpy(_with_start(name, tensors.get(name), shape)) for name, shape in shapes.items()}


def _variable(file: CTranslate2File, key: str) -> str:
    """The name in the file for a key of the table."""
    path, _, kind = key.rpartition(".")
    if "norm" in path.rpartition(".")[2]:
        kind = NORM[kind]
    name = f"{path}.{kind}".replace(".", "/")
    return _embeddings(file, "encoder") if name == "encoder/embeddings_0/weight" else name


def _with_start(name: str, values: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A tensor with a row for an added start token: an embedding of zeros that is never generated."""
    if values is None:
        values = np.zeros(shape[0] - 1, np.float32)
    if len(values) == shape[0] - 1:
        row = np.full((1, *shape[1:]), NEVER_BIAS if name == "head.output.bias" else 0.0, np.float32)
        values = np.concatenate([values, row])
    if values.shape != shape:
        raise UserError(f"{MODEL_FILE}: {name} has the shape {values.shape} instead of {shape}; it is damaged")
    return np.ascontiguousarray(values)


def _refuse_others(file: CTranslate2File, used: set[str], config: NetworkConfig, origin: str) -> None:
    """`UserError` for variables that change results and have no counterpart here."""
    read = {f"{side}/{name}" for side in stacks_of(config) for name in ("num_heads", "activation", "scale_embeddings")}
    read |= {"num_heads", "decoder/start_from_zero_embedding", "decoder/scale_outputs"}
    read |= {f"{side}/pre_norm" for side in stacks_of(config)} | used | {f"{name}_scale" for name in used}
    read |= _settings_of_attention(file)
    others = [
        name
        for name, value in file.variables.items()
        if name not in read
        and name.rpartition("/")[2] not in NO_EFFECT
        and not (name.rpartition("/")[2] in (*OFF, "scale_outputs") and not np.any(value))
    ]
    if others:
        raise UserError(
            f"{origin}: {MODEL_FILE} has {', '.join(others[:5])}, which is not supported: import its original"
        )


def _settings_of_attention(file: CTranslate2File) -> set[str]:
    """Settings that all layers have as the first one, from which they are read; others are left to be refused."""
    found = set[str]()
    for name, value in file.variables.items():
        side, _, path = name.partition("/layer_")
        part = path.rpartition("/")[2]
        attention = "self_attention" if part in OF_SELF_ATTENTION else "[a-z_]*attention"
        if part in OF_ATTENTION and re.fullmatch(rf"[0-9]+/{attention}/{part}", path):
            first = file.variables.get(f"{side}/layer_0/self_attention/{part}")
            if first is not None and np.array_equal(value, first):
                found.add(name)
    return found


# --- the vocabulary


def _check_sizes(folder: Path, config: NetworkConfig, read: int, written: int) -> None:
    wanted = config.vocab_size, config.tgt_vocab_size or config.vocab_size
    if (written if config.share_embeddings else read, written) != wanted:
        raise UserError(f"{folder}: its vocabularies have {read} and {written} tokens, and the model {wanted}")


def _about(
    folder: Path, values: Mapping[str, Any], written: Sequence[str], start: int | None, tokenizer: ForeignTokenizer
) -> dict[str, Any]:
    """The settings of `generation_config` and `vocabulary`."""
    ids = {token: i for i, token in enumerate(written)}
    eos = ids.get(str(values.get("eos_token") or "</s>"))
    named = values.get("decoder_start_token", "<s>")
    first = start if start is not None else eos if named is None else ids.get(str(named))  # None: that of a language
    if eos is None or first is None:
        raise UserError(f"{folder}: its vocabulary has no end token or no start token of the decoder; copy it again")
    return {
        "model_type": tokenizer.family,
        "decoder_start_token_id": first,
        "eos_token_id": eos,
        "pad_token_id": next((ids[name] for name in ("<blank>", "<pad>") if name in ids), first),
        "num_beams": 4,
        "max_length": 512,
        "add_source_eos": tokenizer.ends_texts,
    }
