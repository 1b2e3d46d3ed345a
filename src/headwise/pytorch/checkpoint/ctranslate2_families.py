"""Encoders and decoders of CTranslate2 as folders in the Hugging Face layout: BERT and its relatives, GPT-2, LLaMA,
Mistral, Qwen 2 and Qwen 3.

The file does not name the family; its variables do. An encoder becomes a BERT, whose network RoBERTa and DistilBERT
have in this format, too. See `ctranslate2_folder` for translation models and `ctranslate2_whisper` for Whisper.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.pytorch.checkpoint.ctranslate2_folder import ACTIVATIONS, EPS, NO_EFFECT, OFF
from headwise.runtime.checkpoint.layout import CONFIG, read_json
from headwise.runtime.formats.converted import converted_folder
from headwise.runtime.formats.ctranslate2_file import (
    MODEL_FILE,
    CTranslate2File,
    added_tokens,
    read_ctranslate2_file,
    read_ctranslate2_settings,
)

SIDES = {"TransformerDecoderSpec": "decoder", "TransformerEncoderSpec": "encoder"}  # start of names, by kind
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
HF_ACTIVATIONS = dict(zip(ACTIVATIONS, ("relu", "gelu_new", "silu", "gelu", "quick_gelu"), strict=True))
CLASSES = {
    **{"bert": "BertModel", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"},
    **{"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"},
}
BERT_LAYER = {
    "self_attention.linear_0": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "self_attention.linear_1": ("attention.output.dense",),
    "self_attention.layer_norm": ("attention.output.LayerNorm",),
    "ffn.linear_0": ("intermediate.dense",),
    "ffn.linear_1": ("output.dense",),
    "ffn.layer_norm": ("output.LayerNorm",),
}
GPT2_LAYER = {
    "self_attention.linear_0": ("attn.c_attn",),
    "self_attention.linear_1": ("attn.c_proj",),
    "self_attention.layer_norm": ("ln_1",),
    "ffn.linear_0": ("mlp.c_fc",),
    "ffn.linear_1": ("mlp.c_proj",),
    "ffn.layer_norm": ("ln_2",),
}
LLAMA_LAYER = {
    "self_attention.linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.linear_1": ("self_attn.o_proj",),
    "self_attention.layer_norm": ("input_layernorm",),
    "self_attention.q_norm": ("self_attn.q_norm",),
    "self_attention.k_norm": ("self_attn.k_norm",),
    "ffn.linear_0": ("mlp.gate_proj",),
    "ffn.linear_0_noact": ("mlp.up_proj",),
    "ffn.linear_1": ("mlp.down_proj",),
    "ffn.layer_norm": ("post_attention_layernorm",),
}
BERT = {
    "encoder.embeddings_0": "embeddings.word_embeddings",
    "encoder.embeddings_1": "embeddings.token_type_embeddings",
    "encoder.position_encodings": "embeddings.position_embeddings",
    "encoder.layernorm_embedding": "embeddings.LayerNorm",
    "pooler_dense": "pooler.dense",
}
GPT2 = {
    "decoder.embeddings": "transformer.wte",
    "decoder.position_encodings": "transformer.wpe",
    "decoder.layer_norm": "transformer.ln_f",
    "decoder.projection": "lm_head",
}
LLAMA = {
    "decoder.embeddings": "model.embed_tokens",
    "decoder.layer_norm": "model.norm",
    "decoder.projection": "lm_head",
}
LAYOUTS = {  # of a family: names outside of layers, the beginning of names in layers, and names in layers
    "bert": (BERT, "encoder.layer.", BERT_LAYER),
    "gpt2": (GPT2, "transformer.h.", GPT2_LAYER),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), (LLAMA, "model.layers.", LLAMA_LAYER)),
}
PARTS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "encodings": "weight"}
SETTINGS = {  # variables that the configuration has
    *("num_heads", "num_heads_kv", "head_dim", "activation", "pre_norm", "sliding_window"),
    *("rotary_dim", "rotary_base", "pooler_activation", *NO_EFFECT),
}
ZERO = (*OFF, "scale_embeddings", "start_from_zero_embedding", "rotary_interleave")  # which are supported only if 0


@contextmanager
def open_encoder_or_decoder(folder: Path) -> Iterator[Path]:
    """A folder in the Hugging Face layout with the model, while the context is open.

    Raises:
        UserError: damaged, without tokenizer.json, or of another family.
    """
    file = read_ctranslate2_file(folder / MODEL_FILE)
    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{folder}: has no {TOKENIZER}; copy it from the original model into the folder")
    values = read_ctranslate2_settings(folder)
    try:
        config = _config(file, SIDES[file.kind], values)
        tensors = dict(_tensors(file, config))
    except (KeyError, IndexError, ValueError, ZeroDivisionError) as error:
        raise UserError(f"{folder}: {MODEL_FILE} is of no supported family, or damaged ({error})") from None
    tokenizer = read_json(folder / TOKENIZER)
    ids = added_tokens(folder / TOKENIZER, tokenizer)
    ends = {f"{name}_token_id": ids[token] for name in ("bos", "eos") if (token := values.get(f"{name}_token")) in ids}
    files: dict[str, Any] = {CONFIG: config, TOKENIZER: tokenizer, "generation_config.json": ends}
    if (folder / TOKENIZER_CONFIG).is_file():
        files[TOKENIZER_CONFIG] = read_json(folder / TOKENIZER_CONFIG)
    with converted_folder(folder, files, tensors.items()) as converted:
        yield converted


def _config(file: CTranslate2File, side: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The content of config.json, by the variables."""
    known, attention = file.variables, f"{side}/layer_0/self_attention"
    embeddings = known[f"{side}/embeddings_0/weight" if side == "encoder" else f"{side}/embeddings/weight"]
    family, heads = _family(file, side), int(file.number(f"{side}/num_heads"))
    norm = "layer" if f"{side}/layer_0/ffn/layer_norm/beta" in known else "rms"
    epsilon = values.get("layer_norm_epsilon") or EPS[norm]
    activation = HF_ACTIVATIONS[ACTIVATIONS[int(file.number(f"{side}/activation"))]]
    sizes = {
        "vocab_size": embeddings.shape[0],
        "hidden_size": embeddings.shape[1],
        "num_hidden_layers": sum(f"{side}/layer_{n}/ffn/linear_0/weight" in known for n in range(len(known))),
        "num_attention_heads": heads,
        "intermediate_size": known[f"{side}/layer_0/ffn/linear_0/weight"].shape[0],
        "hidden_act": activation,
    }
    output = known.get(f"{side}/projection/weight")
    is_tied = output is None or np.array_equal(output, embeddings)
    about: dict[str, Any] = {"model_type": family, "architectures": [CLASSES[family]], "tie_word_embeddings": is_tied}
    if f"{side}/position_encodings/encodings" in known:
        sizes["max_position_embeddings"] = known[f"{side}/position_encodings/encodings"].shape[0]
    if family == "bert":
        types = known.get("encoder/embeddings_1/weight", np.zeros((2, 1))).shape[0]
        return {**about, **sizes, "layer_norm_eps": epsilon, "type_vocab_size": types}
    if family == "gpt2":
        theirs = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
        theirs |= {"intermediate_size": "n_inner", "hidden_act": "activation_function"}
        theirs |= {"max_position_embeddings": "n_positions"}
        renamed = {theirs.get(name, name): value for name, value in sizes.items()}
        return {**about, **renamed, "layer_norm_epsilon": epsilon}
    kv_heads = int(file.number(f"{attention}/num_heads_kv", float(heads)))
    width = known[f"{attention}/linear_0/weight"].shape[0] // (heads + 2 * kv_heads)
    if file.number(f"{attention}/rotary_dim") not in (0, width):
        raise ValueError(f"rotary_dim of {file.number(f'{attention}/rotary_dim'):g} in heads of {width}")
    base = file.number(f"{attention}/rotary_base", 10000.0)
    more: dict[str, Any] = {"num_key_value_heads": kv_heads, "head_dim": width, "rms_norm_eps": epsilon}
    more["rope_theta"] = base
    if family == "mistral":
        more["sliding_window"] = int(file.number(f"{side}/sliding_window"))
    return {**about, **sizes, **more}


def _family(file: CTranslate2File, side: str) -> str:
    known, first = file.variables, f"{side}/layer_0"
    pre_norm = bool(file.number(f"{side}/pre_norm", 1.0))
    if side == "encoder":
        if pre_norm or f"{side}/position_encodings/encodings" not in known:
            raise ValueError("an encoder that is no BERT")
        return "bert"
    if f"{side}/position_encodings/encodings" in known and pre_norm and f"{first}/ffn/layer_norm/beta" in known:
        return "gpt2"
    if not pre_norm or f"{first}/ffn/linear_0_noact/weight" not in known or f"{first}/ffn/layer_norm/beta" in known:
        raise ValueError("a decoder that is neither GPT-2 nor LLaMA")
    if f"{first}/self_attention/q_norm/gamma" in known:
        return "qwen3"
    if f"{first}/self_attention/linear_0/bias" in known:
        return "qwen2"
    return "mistral" if file.number(f"{side}/sliding_window") else "llama"


def _tensors(file: CTranslate2File, config: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The tensors by the names of the Hugging Face layout; `ValueError` for variables that are not read."""
    family = config["model_type"]
    outside, start, inside = LAYOUTS[family]
    for name in file.variables:
        *path, part = name.split("/")
        if part in SETTINGS or name.endswith("_scale") or (part in ZERO and not np.any(file.variables[name])):
            continue
        if name == "decoder/projection/weight" and config["tie_word_embeddings"]:
            continue
        if part not in PARTS:
            raise ValueError(f"{name} = {str(file.variables[name])[:20]} is not supported")
        values = file.weight(name)
        layer = re.fullmatch(r"layer_([0-9]+)", path[1]) if len(path) > 1 else None
        names = (
            [f"{start}{layer[1]}.{one}" for one in inside[".".join(path[2:])]] if layer else [outside[".".join(path)]]
        )
        if family == "gpt2" and values.ndim == 2 and names[0].startswith(start):
            values = values.T
        for own, piece in zip(names, _split(values, len(names), config), strict=True):
            yield f"{own}.{PARTS[part]}", np.ascontiguousarray(piece)
    if family == "bert" and "encoder/embeddings_1/weight" not in file.variables:
        yield "embeddings.token_type_embeddings.weight", np.zeros((2, config["hidden_size"]), np.float32)


def _split(values: NDArray[np.float32], count: int, config: Mapping[str, Any]) -> list[NDArray[np.float32]]:
    """Queries, keys and values, of which the latter may have fewer heads."""
    if count == 1:
        return [values]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    width = len(values) // (heads + 2 * kv_heads)
    return np.split(values, [heads * width, (heads + kv_heads) * width])
