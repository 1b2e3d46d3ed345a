"""The public verbs: `load` a model, `train` one. Everything a program needs to use Sightline as a library.

What only training, scoring or drafts need is imported there: a first translation is not to wait for it. Torch itself is
one of these things where the compiled library can translate (`checkpoint.compiled`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from sightline.checkpoint.compiled import is_for_library
from sightline.checkpoint.folder import Folder, read_folder
from sightline.checkpoint.trained import Trained
from sightline.config import longest_sequence, meaningful
from sightline.data.tokenizer import Tokenizer
from sightline.decode.candidates import CandidateTable
from sightline.decode.translator import Translator
from sightline.device import choose_device, device_name
from sightline.errors import UserError
from sightline.model import Model
from sightline.pairs import PairVerbs
from sightline.tasks.table import TASKS
from sightline.training.allocator import keep_freed_memory
from sightline.verbs import TranslationVerbs

if TYPE_CHECKING:
    from sightline.inspect.alignment import AlignmentHead


class TrainedTranslator(PairVerbs, TranslationVerbs):
    """A trained translation model with its tokenizer and its decoding settings; made by `sightline.load`."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self.config = folder.config
        self.about = folder.about
        self._trained: Trained = folder.weights
        if folder.device == "cpu":
            keep_freed_memory()  # decoding, too, allocates the same large blocks again and again
        trained, tokenizer = self._trained, folder.tokenizer  # not through `self`: without a cycle `del model` frees it
        translator = Translator(
            lambda: trained.network,
            tokenizer,
            self.config.decode,
            longest_sequence(self.config.model),
            trained.form,
            cache(partial(_read_shortlist, folder.path, tokenizer)),
        )
        super().__init__(translator, [folder.path], folder.device, is_for_library(self.config.model))

    @property
    def network(self) -> Any:
        """The torch module, one of `architectures.Network`; made when it is first asked for."""
        return self._trained.network

    @cached_property
    def device(self) -> Any:
        """Where the network is, as torch has it."""
        return choose_device(self._device)

    @property
    def _changed(self) -> bool:
        return self._trained.changed

    @property
    def known_alignment_head(self) -> "AlignmentHead | None":
        """The attention that was chosen in the model directory, or trained to align; None where neither was done."""
        from sightline.inspect.alignment import AlignmentHead
        from sightline.tasks.alignment import supervised_layer

        train = self.config.train
        if (chosen := super().known_alignment_head) or not train.alignment_weight:
            return chosen
        layer = supervised_layer(train.alignment_layer, self.config.model.n_decoder_layers)
        return AlignmentHead(layer, 0, "predicts")

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        from sightline.checkpoint.beside import SHORTLIST

        return {
            "parameters": self._trained.n_parameters,
            "vocabulary": self.tokenizer.vocab_size,
            "shortlist": (self.path / SHORTLIST).is_file(),
            **self.about,
            **meaningful(self.config),
        }


def _read_shortlist(folder: Path, tokenizer: Tokenizer) -> CandidateTable:
    from sightline.checkpoint.beside import read_shortlist

    shortlist = read_shortlist(folder, tokenizer)
    return CandidateTable(shortlist.frequent, shortlist.likely)


def load(path: str | Path | Sequence[str | Path], device: str = "auto", dtype: str = "auto") -> Model:
    """The model in a directory that `train` wrote, or in a folder in the Hugging Face layout; or several as one.

    Args:
        path: the folder; or OWNER/NAME of the Hugging Face hub, if it is in its cache, and hf:OWNER/NAME to fetch it.
            A list of model directories of one tokenizer is an ensemble.
        device: "auto", "cpu" or "cuda".
        dtype: numbers to compute with: "float32", "float16" or "bfloat16". "auto" is float32 on a CPU, elsewhere what
            the file has. Weights that are in the file as they are asked for are mapped into memory, pages that
            processes share and the system may drop; others are converted, a copy of 4 bytes (half precision: 2) a
            parameter beside the file. Networks that Sightline has trained stay float32: these numbers are what they
            decode with, as `translate(..., compute=...)` has it for one call.

    Returns:
        A `Model`. What it can be asked depends on what its network reads and writes; any other verb is a `UserError`
        that says what this model can do.

    Raises:
        UserError: there is no such model, or something in it is missing, not understood or does not fit.
    """
    if not isinstance(path, str | Path):
        return load_translators(path, device, dtype)
    return _model_of(read_folder(path, device_name(device), dtype), dtype)


def _model_of(folder: Folder, dtype: str) -> Model:
    if not isinstance(folder.weights, Trained):
        from sightline.generation.models import with_verbs  # which our own translators are not to wait for

        return with_verbs(folder)
    return resolve_name(TASKS[folder.config.model.task].kind)(_decoding_in(dtype, folder))


def _decoding_in(dtype: str, folder: Folder) -> Folder:
    """A model that we have trained, whose network is float32: what it can decode with is its decoder's affair."""
    config = folder.config
    if dtype in ("auto", "float32"):
        return folder
    if config.model.task != "translate":
        raise UserError(f"{folder.path}: dtype = {dtype} is for models that translate, and for published ones")
    return replace(folder, config=replace(config, decode=replace(config.decode, compute=dtype)))


def load_translator(path: str | Path, device: str = "auto", dtype: str = "auto") -> Model:
    """`load` for what reads a text and writes another; `UserError`, with what it can do, for any other model."""
    model = _model_of(read_folder(path, device_name(device), dtype, tasks=("translate",)), dtype)
    _ = model.translate
    return model


def load_task(task: str, path: str | Path, device: str = "auto", published: bool = False) -> Model:
    """`load` for a model that `train` wrote for `task`, or a `published` one; `UserError` where it is another."""
    return _model_of(read_folder(path, device_name(device), tasks=(task,), published=published), "auto")


def load_trained(path: str | Path, device: str = "auto") -> TrainedTranslator:
    """`load` for a translation model that `train` wrote; `UserError` where it is one of another task or layout."""
    return TrainedTranslator(read_folder(path, device_name(device), tasks=("translate",), published=False))


def load_translators(paths: Sequence[str | Path], device: str = "auto", dtype: str = "auto") -> Model:
    """One model that translates, or several as an ensemble; a `UserError` names what does not go with them."""
    if not paths:
        raise UserError("load takes a model directory, or a list of them; this list is empty")
    if len(paths) == 1:
        return load_translator(paths[0], device, dtype)
    models = [load_translator(path, device, dtype) for path in paths]
    trained = [model for model in models if isinstance(model, TrainedTranslator)]
    if len(trained) < len(models):
        from sightline.generation.together import together

        return together(models)
    from sightline.ensemble import Ensemble

    return Ensemble(trained)


def train(
    train: Sequence[str | Path],
    valid: Sequence[str | Path],
    out: str | Path,
    recipe: str | Path = "",
    settings: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    special: Sequence[str] = (),
    show: bool = True,
    init: str | Path = "",
    task: str = "",
    alignments: str | Path = "",
    source_language: str = "",
    target_language: str = "",
    languages: Sequence[str] = ("", ""),
    devices: int = 1,
) -> Model:
    """Train a model on files and return it, as `load` does.

    Args:
        train: source and target file, or one `.tsv`, `.jsonl`, `.tmx`, `.po`, `.xliff` or `hf:` dataset, or a folder of
            translation memories, or several of these in a row; to
            classify `.tsv` files of texts and labels, to forecast `.csv` files, to denoise files of plain text, for a
            language model text or `.jsonl` with a document a line.
        valid: the same for validation, or `["1%"]` or `["500pairs"]` of the training files, which are taken out of
            them; to forecast it may be empty, then the latest rows validate.
        out: the model directory to write.
        recipe: name of a recipe or path of a `.toml` file; "" is "small", or with `init` that model's own settings.
        settings: `{"train.max_steps": 1000}` or `["train.max_steps=1000"]`, on top of the recipe.
        special: strings that are one piece wherever a text contains them, such as `<2de>`.
        init: a model directory to start from; shape and tokenizer are its own, and a recipe's [model] must agree. Or a
            folder in the Hugging Face layout of an encoder-decoder of text, of a decoder alone (for "lm"), of an
            encoder alone (for "classify", "mlm") or of Whisper (for "transcribe"); "" as `recipe` is then "tune", or
            "tune-lm" and the like.
        task: one of `sightline.tasks.table.TASKS`; "" is the recipe's.
        alignments: word links of the training pairs (Pharaoh format), for `train.alignment_weight`.
        source_language, target_language: to a published model of many languages, as it has them ("deu_Latn").
        languages: source and target of translation memories, where these hold more or do not say which is which.
        devices: processes that train the model together, each on a CUDA device of its own or a share of the cores. They
            import the program that calls this, so what it does must stand below `if __name__ == "__main__":`.

    Raises:
        UserError: a file, a setting or the device is unusable, or the run was interrupted.
    """
    from sightline.pipeline import TrainRequest, train_model

    pairs = settings.items() if isinstance(settings, Mapping) else None
    listed = [f"{key}={_as_written(value)}" for key, value in pairs] if pairs is not None else list(settings)
    request = TrainRequest(
        recipe=str(recipe) or ("" if init else "small"),
        train=[str(path) for path in train],
        valid=[str(path) for path in valid],
        out=str(out),
        settings=listed,
        resume=resume,
        device=device,
        special=special,
        show=show,
        init=str(init),
        task=task,
        alignments=str(alignments),
        source_language=source_language,
        target_language=target_language,
        languages=languages,
        devices=devices,
    )
    reason = train_model(request)
    if reason.startswith("SIG"):
        raise UserError(f"{out}: training was interrupted by {reason}; call again with resume=True to go on")
    return load(out, device)


def _as_written(value: Any) -> str:
    """A value of Python as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)
