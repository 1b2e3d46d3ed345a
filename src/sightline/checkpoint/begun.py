"""The folder of a model that begins here in the layout of a family: of a language model, masked or not, with a
tokenizer of ours, or of one that names pictures.

From its first validation on it is what a published model's folder is, for every command and for `transformers`.
`training.json` says how it was trained (as in `tuned`). A body of random weights, which a task puts its head on, is
written as a whole, and nobody has trained it (`tasks/from_scratch.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from sightline.checkpoint.layout import CONFIG, PREPROCESSOR, WEIGHTS
from sightline.checkpoint.manifest import seal
from sightline.checkpoint.trained import CARD, FORMAT, GENERATION, RUN, TOKENIZER, write_file, write_json, write_text
from sightline.checkpoint.vocabulary import SETTINGS
from sightline.checkpoint.write import config_to_hf, file_tensors
from sightline.config.settings import RunConfig
from sightline.data.masking import mask_id
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError, writing
from sightline.network.axes import NetworkConfig

PIXELS = {  # what `data.image.Preprocessing` does by default, in the words of the file
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
KEPT = {  # by its head, what a model is, and in which layout it is kept
    "language": ("language", "gpt2 (model.positions=learned) or of llama (rotary)"),
    "masked": ("masked language", "bert"),
    "replaced": ("replaced-token", "electra"),
    "none": ("reading", "bert"),
    "image_class": ("picture", "vit"),
}


@dataclass(frozen=True)
class BegunLayout:
    """A folder in the layout of a family: what its files say, and how its weights are called."""

    files: Mapping[str, Mapping[str, Any]]  # by name: the configuration, and what is beside it but for a tokenizer
    in_file: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]  # of parameters of ours, those of the file

    def write_settings(
        self, folder: Path, config: RunConfig, tokenizer: Tokenizer | None, about: Mapping[str, Any]
    ) -> None:
        """Everything but the weights and the card."""
        self.write_companions(folder, tokenizer)
        write_json(folder / RUN, {"format": FORMAT, **about, **config.as_dict()})

    def write_companions(self, folder: Path, tokenizer: Tokenizer | None) -> None:
        """The tokenizer, and the files that say what the model is."""
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


def begun_text(axes: NetworkConfig, length: int, tokenizer: Tokenizer) -> BegunLayout:
    """Of a language model, masked or not, that reads up to `length` tokens."""
    end, ids = tokenizer.eos_id, {"pad_token_id": tokenizer.pad_id}  # it parts documents: one begins behind it
    longest = {} if axes.family != "llama" else {"max_position_embeddings": length}
    writes = axes.head == "language"
    if writes:
        ids = {"bos_token_id": end, "eos_token_id": end, **ids}
    marks = _writing(tokenizer) if writes else masking_marks(tokenizer)
    files = {
        SETTINGS: {**tokenizer_settings(tokenizer, length), **marks},
        **({GENERATION: ids} if writes else {}),
        CONFIG: {**config_to_hf(axes)[0], **longest, **ids, "dtype": "float32"},
    }
    return BegunLayout(files, partial(file_tensors, config=axes))


def begun_pictures(axes: NetworkConfig, labels: Sequence[str]) -> BegunLayout:
    """Of a network that names pictures, and what is done to one before it reads it."""
    height, width = axes.image_size
    names = {"id2label": {str(i): name for i, name in enumerate(labels)}} if labels else {}
    names |= {"label2id": {name: i for i, name in enumerate(labels)}} if labels else {}
    files = {
        PREPROCESSOR: {**PIXELS, "size": {"height": height, "width": width}},
        CONFIG: {**config_to_hf(axes)[0], **names, "dtype": "float32"},
    }
    return BegunLayout(files, partial(file_tensors, config=axes))


def check_axes(axes: NetworkConfig) -> None:
    """`UserError` where the family in whose layout a network would be kept has no word for an axis."""
    _, lost = config_to_hf(axes)
    if lost:
        kind, kept = KEPT[axes.head]
        said = ", ".join(axis.removeprefix("decoder.").removeprefix("encoder.") for axis in lost)
        raise UserError(f"a {kind} model is kept in the layout of {kept}, and {axes.family} cannot have {said}")


def tokenizer_settings(tokenizer: Tokenizer, length: int) -> dict[str, Any]:
    """What `transformers` reads beside tokenizer.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": tokenizer.piece(tokenizer.pad_id),
        "unk_token": tokenizer.piece(tokenizer.unk_id),
        "clean_up_tokenization_spaces": False,
        "model_max_length": length,
    }


def _writing(tokenizer: Tokenizer) -> dict[str, Any]:
    """The marks of what writes on; text that looks like one stays text."""
    end = tokenizer.piece(tokenizer.eos_id)
    return {"bos_token": end, "eos_token": end, "split_special_tokens": True}


def masking_marks(tokenizer: Tokenizer) -> dict[str, Any]:
    """The marks of what reads a text between two of them, and fills in a third wherever a text has it."""
    first, last = tokenizer.piece(tokenizer.bos_id), tokenizer.piece(tokenizer.eos_id)
    marks = {"cls_token": first, "sep_token": last, "mask_token": tokenizer.piece(mask_id(tokenizer))}
    return {**marks, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
