"""Whisper models of CTranslate2, as faster-whisper uses them, as folders in the Hugging Face layout.

See `ctranslate2_file` for the format of the file and `ctranslate2_folder` for translation models.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import CONFIG, read_json
from headwise.runtime.formats.converted import converted_folder
from headwise.runtime.formats.ctranslate2_file import (
    MODEL_FILE,
    CTranslate2File,
    added_tokens,
    read_ctranslate2_file,
    read_ctranslate2_settings,
)

WHISPER = "WhisperSpec"  # kind of network
TOKENIZER = "tokenizer.json"
MULTILINGUAL = 51865  # tokens of the smallest multilingual vocabulary
PROJECTIONS = {  # of an attention: layers of CTranslate2, each with the projections that it joins
    "self_attention": ("self_attn", (("q_proj", "k_proj", "v_proj"), ("out_proj",))),
    "attention": ("encoder_attn", (("q_proj",), ("k_proj", "v_proj"), ("out_proj",))),
}


@contextmanager
def open_whisper(folder: Path) -> Iterator[Path]:
    """A folder in the Hugging Face layout with the model, while the context is open.

    Raises:
        UserError: damaged, without tokenizer.json, or with other variables than a Whisper's.
    """
    file = read_ctranslate2_file(folder / MODEL_FILE)
    if not (folder / TOKENIZER).is_file():
        raise UserError(f"{folder}: has no {TOKENIZER}; copy it from the original model into the folder")
    tokenizer = read_json(folder / TOKENIZER)
    values = read_ctranslate2_settings(folder)
    try:
        config, tensors = _config(file), dict(_tensors(file))
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(f"{folder}: {MODEL_FILE} is no Whisper, or damaged ({error}); copy it again") from None
    generation = _generation(folder, config, tokenizer, values)
    files = {CONFIG: {**config, **generation}, "generation_config.json": generation, TOKENIZER: tokenizer}
    with converted_folder(folder, files, tensors.items()) as converted:
        yield converted


def _config(file: CTranslate2File) -> dict[str, Any]:
    variables = file.variables
    embeddings = variables["decoder/embeddings/weight"]
    config: dict[str, Any] = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "activation_function": "gelu",
        "vocab_size": embeddings.shape[0],
        "d_model": embeddings.shape[1],
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "max_source_positions": variables["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": variables["decoder/position_encodings/encodings"].shape[0],
    }
    for side in ("encoder", "decoder"):
        config[f"{side}_layers"] = _n_layers(file, side)
        config[f"{side}_attention_heads"] = int(file.number(f"{side}/num_heads"))
        config[f"{side}_ffn_dim"] = variables[f"{side}/layer_0/ffn/linear_0/weight"].shape[0]
    return config


def _n_layers(file: CTranslate2File, side: str) -> int:
    return sum(f"{side}/layer_{n}/ffn/linear_0/weight" in file.variables for n in range(len(file.variables)))


def _tensors(file: CTranslate2File) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The tensors by the names of the Hugging Face layout."""
    yield "model.decoder.embed_tokens.weight", file.weight("decoder/embeddings/weight")
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            yield f"model.encoder.{conv}.{part}", file.weight(f"encoder/{conv}/{part}")
    for side in ("encoder", "decoder"):
        yield f"model.{side}.embed_positions.weight", file.weight(f"{side}/position_encodings/encodings")
        yield from _norm(file, f"model.{side}.layer_norm", f"{side}/layer_norm")
        for layer in range(_n_layers(file, side)):
            name, there = f"model.{side}.layers.{layer}", f"{side}/layer_{layer}"
            for kind in ("self_attention", "attention")[: 1 + (side == "decoder")]:
                yield from _attention(file, name, f"{there}/{kind}", kind)
            yield from _norm(file, f"{name}.final_layer_norm", f"{there}/ffn/layer_norm")
            for number in (0, 1):
                for part in ("weight", "bias"):
                    yield f"{name}.fc{number + 1}.{part}", file.weight(f"{there}/ffn/linear_{number}/{part}")


def _attention(file: CTranslate2File, name: str, there: str, kind: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    ours, layers = PROJECTIONS[kind]
    for number, projections in enumerate(layers):
        for part in ("weight", "bias"):
            pieces = np.split(file.weight(f"{there}/linear_{number}/{part}"), len(projections))
            for projection, piece in zip(projections, pieces, strict=True):
                if (projection, part) != ("k_proj", "bias"):  # zeros, which the original does not have
                    yield f"{name}.{ours}.{projection}.{part}", np.ascontiguousarray(piece)
    yield from _norm(file, f"{name}.{ours}_layer_norm", f"{there}/layer_norm")


def _norm(file: CTranslate2File, name: str, there: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield f"{name}.weight", file.weight(f"{there}/gamma")
    yield f"{name}.bias", file.weight(f"{there}/beta")


def _generation(
    folder: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Special tokens by the tokenizer, suppressed ones by the settings of CTranslate2."""
    ids = added_tokens(folder / TOKENIZER, tokenizer)
    names = {"eos_token_id": "<|endoftext|>", "decoder_start_token_id": "<|startoftranscript|>"}
    names |= {"no_timestamps_token_id": "<|notimestamps|>"}
    if missing := [token for token in names.values() if token not in ids]:
        raise UserError(f"{folder / TOKENIZER}: has no {missing[0]}, so it is not that of a Whisper")
    end = ids[names["eos_token_id"]]
    return {
        **{key: ids[token] for key, token in names.items()},
        "bos_token_id": end,
        "pad_token_id": end,
        "suppress_tokens": values.get("suppress_ids", []),
        "begin_suppress_tokens": values.get("suppress_ids_begin", [220, end]),
        "is_multilingual": config["vocab_size"] >= MULTILINGUAL,
        "max_length": config["max_target_positions"],
        **({"alignment_heads": values["alignment_heads"]} if "alignment_heads" in values else {}),
    }
