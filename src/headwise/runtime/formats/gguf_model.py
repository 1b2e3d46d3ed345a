"""LLaMA, Qwen 2 and Qwen 3 from GGUF files, as folders in the Hugging Face layout.

Names and order of the tensors: https://github.com/ggml-org/llama.cpp/blob/master/conversion/. Mistral and SmolLM are of
the kind "llama". See `gguf_file` for the format of the file and `gguf_tokenizer` for its tokenizer.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.formats.converted import converted_folder
from headwise.runtime.formats.gguf_file import GGUFFile, read_gguf_file
from headwise.runtime.tokenizers.gguf_tokenizer import tokenizer_files, tokenizer_of

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROTARY_FACTORS = "rope_freqs.weight"
KEYS = {  # of the metadata, after the kind of network; and of config.json
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
}
NO_EFFECT = ("vocab_size", "tensor_data_layout", "attention.value_length", "rope.dimension_count")
SCALING = "rope.scaling."
LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@contextmanager
def open_gguf(path: Path) -> Iterator[Path]:
    """A folder in the Hugging Face layout with the model of a file, while the context is open.

    Raises:
        UserError: damaged, of an unsupported kind or type of tensors, one part of several, or with an unsupported
            tokenizer.
    """
    file = read_gguf_file(path)
    values = config_values(file)
    settings, ends = tokenizer_files(file)
    tokenizer = json.loads(tokenizer_of(file).to_str())
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "generation_config.json": ends}
    with converted_folder(path, {**files, CONFIG: values}, _tensors(file, values)) as folder:
        yield folder


def config_values(file: GGUFFile) -> dict[str, Any]:
    """The content of config.json."""
    kind = file.metadata.get("general.architecture")
    if kind not in CLASSES:
        raise UserError(f"{file.path}: GGUF of {str(kind)[:60]}; only {', '.join(CLASSES)} are imported")
    if file.metadata.get("split.count", 1) > 1:
        raise UserError(f"{file.path}: one part of several; join them with llama-gguf-split --merge")
    own = {key.removeprefix(f"{kind}."): value for key, value in file.metadata.items() if key.startswith(f"{kind}.")}
    values = {theirs: own.pop(key) for key, theirs in KEYS.items() if key in own}
    values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
    for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers"):
        if (values.get(key) or 0) < 1:
            raise UserError(f"{file.path}: has no usable {kind}.{_key_of(key)}; the file is damaged")
    width = values.setdefault("head_dim", values["hidden_size"] // values["num_attention_heads"])
    values |= _rotary(file, own, width)
    left = [f"{kind}.{key} = {str(value)[:20]}" for key, value in own.items() if key not in NO_EFFECT and value]
    if own.get("rope.dimension_count", width) != width:
        left.append(f"{kind}.rope.dimension_count = {own['rope.dimension_count']}")
    if left:
        raise UserError(f"{file.path}: {', '.join(left[:5])} is not supported; import the original")
    if "token_embd.weight" not in file.tensors:
        raise UserError(f"{file.path}: has no token_embd.weight; the file is damaged")
    return {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **({"attention_bias": "blk.0.attn_q.bias" in file.tensors} if kind != "qwen2" else {}),
        **values,
    }


def _key_of(theirs: str) -> str:
    return next(key for key, value in KEYS.items() if value == theirs)


def _rotary(file: GGUFFile, own: dict[str, Any], width: int) -> dict[str, Any]:
    """The scaling of rotary positions; takes its keys from `own`."""
    scaling = {key.removeprefix(SCALING): own.pop(key) for key in list(own) if key.startswith(SCALING)}
    if scaling.get("type", "none") != "none":
        names = {"factor": "factor", "original_context_length": "original_max_position_embeddings"}
        more = {names.get(key, key): value for key, value in scaling.items() if key not in ("type", "finetuned")}
        return {"rope_scaling": {"rope_type": scaling["type"], **more}}
    if ROTARY_FACTORS not in file.tensors:
        return {}
    factors = file.tensor(ROTARY_FACTORS)
    if width < 2 or factors.shape != (width // 2,):
        raise UserError(f"{file.path}: {ROTARY_FACTORS} has the shape {factors.shape}; the file is damaged")
    base = float(file.metadata.get(f"{file.metadata['general.architecture']}.rope.freq_base", 10000.0))
    rule = {**LLAMA_3, "factor": float(factors.max())}
    wanted = _llama_3_factors(base, width, rule)
    # Both are computed from the same few numbers; float32 has a relative precision of 1.2e-7, and libraries differ in
    # the last bits of powers.
    if not np.allclose(factors, wanted, rtol=1e-4):
        raise UserError(f"{file.path}: {ROTARY_FACTORS} is not the scaling of LLaMA 3; import the original")
    return {"rope_scaling": {"rope_type": "llama3", **rule}}


def _llama_3_factors(base: float, width: int, rule: Mapping[str, float]) -> NDArray[np.float64]:
    """The numbers that frequencies are divided by (LLaMA 3.1, https://arxiv.org/abs/2407.21783)."""
    wavelengths = 2 * math.pi * base ** (np.arange(0, width, 2) / width)
    turns = rule["original_max_position_embeddings"] / wavelengths
    smooth = (turns - rule["low_freq_factor"]) / (rule["high_freq_factor"] - rule["low_freq_factor"])
    return 1 / ((1 - smooth.clip(0, 1)) / rule["factor"] + smooth.clip(0, 1))


def _tensors(file: GGUFFile, values: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The tensors by their names in the Hugging Face layout."""
    heads = values["num_attention_heads"]
    n_heads = {"attn_q": heads, "attn_k": values["num_key_value_heads"]}
    for name in file.tensors:
        if name == ROTARY_FACTORS:
            continue
        path, _, kind = name.rpartition(".")
        *layer, part = path.split(".")
        if part not in NAMES or (layer and (layer[0] != "blk" or len(layer) != 2)):
            raise UserError(f"{file.path}: the tensor {name[:60]} is not supported; import the original")
        tensor = file.tensor(name)
        if values["model_type"] == "llama" and part in n_heads:
            if tensor.shape[0] % (2 * n_heads[part]):
                raise UserError(f"{file.path}: {name} has {tensor.shape[0]} rows; the file is damaged")
            tensor = _in_halves(tensor, n_heads[part])
        before = f"model.layers.{layer[1]}." if layer else ""
        yield f"{before}{NAMES[part]}.{kind}", np.ascontiguousarray(tensor)


def _in_halves(tensor: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Rows of each head with the first components of all rotated pairs before the second ones; in the file they
    alternate.
    """
    pairs = tensor.reshape(n_heads, -1, 2, *tensor.shape[1:])
    return pairs.swapaxes(1, 2).reshape(tensor.shape)
