"""Compose a captioner from two pretrained models: a ViT or DeiT as encoder, a GPT-2 as decoder.

Weights come from the two folders, except the cross-attention, its norms and, where widths differ, a projection. These
are random as in `transformers` (`VisionEncoderDecoderModel.from_encoder_decoder_pretrained`), and so is the pooler,
which a ViT with a head lacks. Captions make no sense before fine-tuning. See `families/vision_encoder_decoder.py` for
the network and `pytorch/tasks/captioning.py` for its training.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from headwise.config.network import NetworkConfig
from headwise.core.build import build_empty, parameters_of
from headwise.errors import UserError
from headwise.families.vision_encoder_decoder import FAMILY
from headwise.pytorch.checkpoint.from_scratch import PIXELS
from headwise.pytorch.checkpoint.published import unread_tensors
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.runtime.checkpoint.companions import copy_companions
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.layout import CONFIG, PREPROCESSOR, WEIGHTS, read_json
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.trained import GENERATION, write_file, write_json
from headwise.runtime.checkpoint.writing import write_atomically

STD = 0.02  # of random weights, GPT-2's `initializer_range`
HEAD = ("id2label", "label2id", "num_labels", "problem_type")  # of the head, which is dropped


def write_composed(encoder_path: Path, decoder_path: Path, out: Path, seed: int = 1) -> None:
    """Write the captioner of two folders to the new folder `out`.

    Raises:
        UserError: they are not a ViT or DeiT and a GPT-2, the GPT-2 has no end token, or `out` exists.
    """
    encoder, decoder = (read_folder(path, dtype="float32") for path in (encoder_path, decoder_path))
    values = _values(encoder, decoder)
    config = FAMILY.config_from_hf(values)
    own = _parameters_of_both(encoder, decoder)
    new = _random(config, own, seed)
    tensors = {**_pooler(encoder, seed), **file_tensors({**own, **new}, config)}

    def write(draft: Path) -> None:
        draft.mkdir()
        copy_companions(decoder.path, draft)
        _write_settings(encoder, values, draft)
        write_json(draft / CONFIG, values)
        write_file(draft / WEIGHTS, lambda path: save_file(tensors, path, {"format": "pt"}))
        seal(draft)

    write_atomically(out, write)


def _values(encoder: Folder, decoder: Folder) -> dict[str, Any]:
    """The config.json of both; captions start with the start token of the GPT-2."""
    for folder, part, kinds in ((encoder, "encoder", ("vit", "deit")), (decoder, "decoder", ("gpt2",))):
        if getattr(folder.config, "family", "") not in kinds:
            raise UserError(f"{folder.path}: the {part} must be a folder of {' or '.join(kinds)}")
    end = decoder.about.get("eos_token_id")
    if not isinstance(end, int):
        raise UserError(f"{decoder.path}: config.json has no eos_token_id, which ends captions")
    start, pad = (decoder.about.get(f"{name}_token_id") for name in ("bos", "pad"))
    decoder_values = {**decoder.about, "is_decoder": True, "add_cross_attention": True}
    return {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "encoder": {key: value for key, value in encoder.about.items() if key not in HEAD},
        "decoder": {**decoder_values, "tie_word_embeddings": decoder.config.tie_head},
        "is_encoder_decoder": True,
        "tie_word_embeddings": False,
        "decoder_start_token_id": end if start is None else start,
        "eos_token_id": end,
        "pad_token_id": end if pad is None else pad,
        "dtype": "float32",
    }


def _parameters_of_both(encoder: Folder, decoder: Folder) -> dict[str, Tensor]:
    """Parameters by their names in the captioner, without the head of the encoder."""
    kept = {name: value for name, value in parameters_of(encoder.network).items() if not name.startswith("head.")}
    found = {f"src_{name}" if name.startswith("embeddings.") else name: value for name, value in kept.items()}
    for name, value in parameters_of(decoder.network).items():
        found[f"tgt_{name}" if name.startswith("embeddings.") else name] = value
    return found


def _random(config: NetworkConfig, own: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Parameters that neither folder has; output projections of attention are smaller, as in GPT-2."""
    assert config.decoder
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: value.shape for name, value in build_empty(config).named_parameters() if name not in own}
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            found[name] = torch.ones(shape)
        elif name.endswith("bias"):
            found[name] = torch.zeros(shape)
        else:
            deviation = STD / (2 * config.decoder.n_layers) ** 0.5 if "o_proj" in name else STD
            found[name] = torch.randn(shape, generator=generator) * deviation
    return found


def _pooler(encoder: Folder, seed: int) -> dict[str, Tensor]:
    """The pooler of the folder, or a random one."""
    there = {key: value for key, value in unread_tensors(encoder.path).items() if ".pooler." in key}
    if there:
        return {f"encoder.{key.partition('.')[2]}": value.float() for key, value in there.items()}
    width = encoder.config.encoder.d_model
    weight = torch.randn(width, width, generator=torch.Generator().manual_seed(seed)) * STD
    return {"encoder.pooler.dense.weight": weight, "encoder.pooler.dense.bias": torch.zeros(width)}


def _write_settings(encoder: Folder, values: Mapping[str, Any], out: Path) -> None:
    """Write the preprocessing of images and the special tokens of captions."""
    if (encoder.path / PREPROCESSOR).is_file():
        shutil.copyfile(encoder.path / PREPROCESSOR, out / PREPROCESSOR)
    else:
        height, width = encoder.config.image_size
        write_json(out / PREPROCESSOR, {**PIXELS, "size": {"height": height, "width": width}})
    there = read_json(out / GENERATION) if (out / GENERATION).is_file() else {}
    ids = {name: values[name] for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id")}
    write_json(out / GENERATION, {**there, **ids})
