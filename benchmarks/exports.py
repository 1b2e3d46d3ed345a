"""The same weights for every decoder: a Headwise model as a model directory, for CTranslate2 and for transformers.

The formats are those of `headwise export`. Tokens have names that every library can hold, and none is suppressed, so
that logits can be compared.
"""

from pathlib import Path
from typing import Any

import tokenizers
import torch
from work import BOS, EOS, PAD, SIZES, UNK

from headwise.config.settings import RunConfig
from headwise.core.build import parameters_of
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.export import ctranslate2, hf, onnx
from headwise.pytorch.export.exported import exported_model
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.sidecar_files import SHORTLIST, read_shortlist
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.text.tokens.tokenizer import Tokenizer

SPECIAL = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}


def vocabulary(size: int) -> list[str]:
    """A name for every id, for libraries that need strings: `w17` for 17, and the special tokens.

    >>> vocabulary(6)
    ['<pad>', '<s>', '</s>', '<unk>', 'w4', 'w5']
    """
    return [SPECIAL.get(i, f"w{i}") for i in range(size)]


def random_model(size_name: str, folder: Path) -> Path:
    """A model of that size with random parameters in all formats; its tokenizer reads text such as `w17 w29`."""
    size = SIZES[size_name]
    torch.manual_seed(1)
    model = _decided(build_model(size.config()).eval())
    words = {word: i for i, word in enumerate(vocabulary(size.vocab_size))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=SPECIAL[UNK]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(list(SPECIAL.values()))
    config = RunConfig(model=size.config())
    write_settings(folder / "headwise", config, Tokenizer(backend), {})
    write_weights(folder / "headwise", parameters_of(model), "random parameters, for measuring speed")
    return export(folder / "headwise", folder)


def _decided(model: Transformer) -> Transformer:
    """The model with large weights in every layer. With the small initial weights of the residual branches it would
    repeat its input, such as the start token, which some libraries allow and some do not.
    """
    for stack in (model.encoder, model.decoder):
        for module in stack.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
    return model


def export(model_directory: Path, folder: Path) -> Path:
    """Write the formats of all peers into `folder`, and return it."""
    exported = exported_model(read_folder(model_directory))
    for compute in ("float32", "int8"):
        there = folder / f"ctranslate2-{compute}"
        there.mkdir(parents=True, exist_ok=True)
        ctranslate2.write_model(exported, there, vocabulary(exported.config.vocab_size), compute)
        if (model_directory / SHORTLIST).is_file():
            (there / "vmap.txt").write_text(vocabulary_map(model_directory), encoding="utf-8")
    (folder / "transformers").mkdir(exist_ok=True)
    hf.write_hf(exported, folder / "transformers", example="")
    if model_directory.parent != folder and not (folder / "headwise").exists():
        (folder / "headwise").symlink_to(model_directory.absolute())
    return folder


def export_graphs(folder: Path, compute: str) -> Path:
    """Write the model in `folder` as graphs for ONNX Runtime and OpenVINO."""
    there = folder / f"onnx-{compute}"
    there.mkdir()
    onnx.write_onnx(exported_model(read_folder(folder / "headwise")), there, "", compute == "int8")
    return there


def vocabulary_map(model_directory: Path) -> str:
    """Our shortlist in CTranslate2's format: a source token, a tab, and its target tokens. The line without a source
    token has the target tokens that are always allowed.
    """
    exported = exported_model(read_folder(model_directory))
    shortlist = read_shortlist(model_directory, exported.tokenizer)
    names = vocabulary(exported.config.vocab_size)
    rows = [("", shortlist.frequent), *zip(names, shortlist.likely, strict=True)]
    return "".join(f"{name}\t{' '.join(dict.fromkeys(names[i] for i in row))}\n" for name, row in rows)


def load_transformers(folder: Path) -> Any:
    """The exported checkpoint, without suppressed tokens."""
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    model.generation_config.suppress_tokens = None
    return model
