"""Folders in the Hugging Face layout for models trained from scratch: language models, masked or not, with a tokenizer
trained here, and image classifiers.

From the first validation on, every command and `transformers` can read the folder. `training.json` says how the model
was trained (as in `tuned`). A body of random weights that gets a head is written too (`pytorch/tasks/from_scratch.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from headwise.config.network import NetworkConfig
from headwise.config.settings import RunConfig
from headwise.errors import UserError, writing
from headwise.pytorch.checkpoint.write import config_to_hf, file_tensors
from headwise.runtime.checkpoint.layout import CONFIG, PREPROCESSOR, WEIGHTS
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.trained import (
    CARD,
    FORMAT,
    GENERATION,
    RUN,
    TOKENIZER,
    write_file,
    write_json,
    write_text,
)
from headwise.runtime.tokenizers.vocabulary import SETTINGS
from headwise.text.prepared.masking import mask_id
from headwise.text.tokens.tokenizer import Tokenizer

PIXELS = {  # the defaults of `pytorch.data.image.Preprocessing` in the format of the file
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
FORMATS = {  # by head: the kind of model, and the layout that it is saved in
    "language": ("language", "gpt2 (model.positions=learned) or of llama (rotary)"),
    "masked": ("masked language", "bert"),
    "replaced": ("replaced-token", "electra"),
    "none": ("reading", "bert"),
    "image_class": ("picture", "vit"),
}


@dataclass(frozen=True)
class ScratchLayout:
    """A folder in the layout of a family: the contents of its files, and the names of its weights."""

    files: Mapping[str, Mapping[str, Any]]  # by name: the configuration and other files, without the tokenizer
    in_file: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]  # from our parameters to tensors of the file

    def write_settings(
        self, folder: Path, config: RunConfig, tokenizer: Tokenizer | None, about: Mapping[str, Any]
    ) -> None:
        """Write all files but the weights and the card."""
        self.write_companions(folder, tokenizer)
        write_json(folder / RUN, {"format": FORMAT, **about, **config.as_dict()})

    def write_companions(self, folder: Path, tokenizer: Tokenizer | None) -> None:
        """The tokenizer, and the files that describe the model."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if tokenizer:
            write_file(folder / TOKENIZER, tokenizer.save)
        for name, values in self.files.items():
            write_json(folder / name, values)

    def write_weights(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """The weights by the names of the family, and the model card."""
        self.write_tensors(folder, parameters)
        write_text(folder / CARD, card)
        seal(folder)

    def write_tensors(self, folder: Path, parameters: Mapping[str, Tensor]) -> None:
        """The weights alone."""
        own = {name: value.detach().float().cpu().contiguous() for name, value in parameters.items()}
        tensors = dict(self.in_file(own))
        write_file(folder / WEIGHTS, lambda path: save_file(tensors, path, {"format": "pt"}))


def text_layout(axes: NetworkConfig, length: int, tokenizer: Tokenizer) -> ScratchLayout:
    """The layout of a language model, masked or not, that reads up to `length` tokens."""
    end, ids = tokenizer.eos_id, {"pad_token_id": tokenizer.pad_id}  # it separates documents, so it also starts one
    longest = {} if axes.family != "llama" else {"max_position_embeddings": length}
    writes = axes.head == "language"
    if writes:
        ids = {"bos_token_id": end, "eos_token_id": end, **ids}
    special = _generation_tokens(tokenizer) if writes else masking_tokens(tokenizer)
    files = {
        SETTINGS: {**tokenizer_config(tokenizer, length), **special},
        **({GENERATION: ids} if writes else {}),
        CONFIG: {**config_to_hf(axes)[0], **longest, **ids, "dtype": "float32"},
    }
    return ScratchLayout(files, partial(file_tensors, config=axes))


def picture_layout(axes: NetworkConfig, labels: Sequence[str]) -> ScratchLayout:
    """The layout of an image classifier, with its preprocessing."""
    height, width = axes.image_size
    names = {"id2label": {str(i): name for i, name in enumerate(labels)}} if labels else {}
    names |= {"label2id": {name: i for i, name in enumerate(labels)}} if labels else {}
    files = {
        PREPROCESSOR: {**PIXELS, "size": {"height": height, "width": width}},
        CONFIG: {**config_to_hf(axes)[0], **names, "dtype": "float32"},
    }
    return ScratchLayout(files, partial(file_tensors, config=axes))


def check_layout(axes: NetworkConfig) -> None:
    """`UserError` if the layout that a network is saved in cannot express one of its axes."""
    _, lost = config_to_hf(axes)
    if lost:
        kind, layout = FORMATS[axes.head]
        listed = ", ".join(axis.removeprefix("decoder.").removeprefix("encoder.") for axis in lost)
        raise UserError(f"a {kind} model is saved in the layout of {layout}, and {axes.family} cannot have {listed}")


def tokenizer_config(tokenizer: Tokenizer, length: int) -> dict[str, Any]:
    """The values that `transformers` reads beside tokenizer.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": tokenizer.piece(tokenizer.pad_id),
        "unk_token": tokenizer.piece(tokenizer.unk_id),
        "clean_up_tokenization_spaces": False,
        "model_max_length": length,
    }


def _generation_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """The special tokens of a language model; text that looks like one stays text."""
    end = tokenizer.piece(tokenizer.eos_id)
    return {"bos_token": end, "eos_token": end, "split_special_tokens": True}


def masking_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """The special tokens of a masked language model."""
    first, last = tokenizer.piece(tokenizer.bos_id), tokenizer.piece(tokenizer.eos_id)
    special = {"cls_token": first, "sep_token": last, "mask_token": tokenizer.piece(mask_id(tokenizer))}
    return {**special, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
