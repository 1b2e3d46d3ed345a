"""The public verbs: `load` a model, `train` one. Everything a program needs to use Sightline as a library.

What only training, scoring or drafts need is imported there: a first translation is not to wait for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline.architectures import decoding_forms, longest_sequence
from sightline.config import DecodeConfig
from sightline.decode.candidates import CandidateTable
from sightline.decode.drafts import CopyDraft, MemoryDraft, ModelDraft
from sightline.decode.speculative import Draft
from sightline.decode.streaming import stream_text
from sightline.decode.translator import Translation, Translator, clean_text
from sightline.device import choose_device
from sightline.errors import UserError
from sightline.model.parameters import count_parameters
from sightline.model_directory import SHORTLIST, ModelDirectory, read_model_directory, read_shortlist, task_of
from sightline.training.allocator import keep_freed_memory
from sightline.workers import translate_in_processes, usable_cores, worth_sharing

if TYPE_CHECKING:
    from sightline.evaluate.score import PairScore
    from sightline.tasks.classification import Classifier
    from sightline.tasks.forecasting import Forecaster


class Model:
    """A trained translation model with its tokenizer and its decoding settings; made by `sightline.load`."""

    def __init__(self, directory: ModelDirectory, device: torch.device, path: Path) -> None:
        self.path = path  # of the model directory
        self.network = directory.network  # the torch module
        self.tokenizer = directory.tokenizer
        self.config = directory.config
        self.about = directory.about
        self.device = device
        max_len = longest_sequence(self.config.model)
        prepare = decoding_forms(self.network)
        if device.type == "cpu":
            keep_freed_memory()  # decoding, too, allocates the same large blocks again and again
        self._translator = Translator(
            self.network, self.tokenizer, self.config.decode, max_len, prepare, cache(self._read_shortlist)
        )

    def _read_shortlist(self) -> CandidateTable:
        shortlist = read_shortlist(self.path, self.tokenizer)
        return CandidateTable(torch.from_numpy(shortlist.frequent), torch.from_numpy(shortlist.likely), self.device)

    @property
    def decode_config(self) -> DecodeConfig:
        """How the model decodes unless a call says otherwise."""
        return self.config.decode

    def translate(
        self, texts: Sequence[str], prefix: str = "", draft: Draft | str = "", **overrides: Any
    ) -> list[Translation]:
        """Translate each text; as many results as texts, in their order.

        Args:
            texts: any strings.
            prefix: what every output must begin with.
            draft: where guesses for greedy search come from, as `draft` takes it: quicker for single sentences.
            **overrides: fields of `sightline.config.DecodeConfig`, such as `beam_size=1`.

        Raises:
            UserError: a setting makes no sense.
        """
        return self._translator.translate(texts, prefix, self.draft(draft), **overrides)

    def draft(self, origin: Draft | str) -> Draft | None:
        """A draft for `translate` and `stream`, to be made once and used often.

        Args:
            origin: "input" (what is copied from the source), the directory of a smaller model with the same tokenizer,
                a translation memory (a file as `sightline.train` takes it), a draft already made, or "" for none.
        """
        if not isinstance(origin, str):
            return origin
        from sightline.data.corpus import parse_corpora, read_pairs

        if origin in ("", "input"):
            return CopyDraft() if origin else None
        if Path(origin).is_dir():
            return self._model_draft(origin)
        pairs = read_pairs(parse_corpora([origin]))
        encode = self.tokenizer.encode
        return MemoryDraft((encode(clean_text(src)), encode(clean_text(tgt))) for src, tgt in pairs)

    def _model_draft(self, path: str) -> Draft:
        small = load_translator(path, str(self.device))
        if small.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise UserError(f"{path}: has another tokenizer than {self.path}; a draft must be trained with the same")
        return ModelDraft(small._translator.form(small.decode_config), self._translator.special)

    def translate_lines(
        self,
        lines: Iterable[str],
        prefix: str = "",
        chunk_lines: int = 2000,
        workers: int = 1,
        draft: Draft | str = "",
        **overrides: Any,
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory.

        With several `workers` as many processes share the lines; 0 is one for each CPU core where there are lines
        enough (see `sightline.workers`).
        """
        if workers < 0:
            raise UserError(f"workers = {workers}: must be a number of processes, or 0 for as many as pay")
        guesses = self.draft(draft)
        if guesses:
            return self._translator.translate_lines(lines, prefix, chunk_lines, guesses, **overrides)
        if workers == 0:
            shared, lines = worth_sharing(lines)
            workers = usable_cores() if shared and self.device.type == "cpu" else 1
        if workers > 1:
            return translate_in_processes(self.path, str(self.device), lines, workers, prefix, overrides)
        return self._translator.translate_lines(lines, prefix, chunk_lines, **overrides)

    def stream(self, text: str, prefix: str = "", draft: Draft | str = "", **overrides: Any) -> Iterator[str]:
        """The greedy translation of one text, handed over piece by piece while it is being written.

        >>> print(*model.stream("A dog runs."), sep="|")  # doctest: +SKIP
        Ein| Hund| läuft|.
        """
        return stream_text(self._translator, text, prefix, self.draft(draft), **overrides)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> "list[PairScore]":
        """How probable the model finds each target as the translation of its source (natural logarithms)."""
        from sightline.evaluate.score import score_texts

        return score_texts(self.network, self.tokenizer, sources, targets, self.config.decode.batch_tokens)

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        return {
            "parameters": count_parameters(self.network),
            "vocabulary": self.tokenizer.vocab_size,
            "shortlist": (self.path / SHORTLIST).is_file(),
            **self.about,
            **self.config.as_dict(),
        }


def load(path: str | Path, device: str = "auto") -> Any:
    """The model in a directory that `train` wrote; `UserError` says what is wrong with any other.

    Returns:
        A `Model`, which translates; of `--task classify` a `sightline.tasks.classification.Classifier`, of `--task
        forecast` a `sightline.tasks.forecasting.Forecaster`.
    """
    return {"translate": load_translator, "classify": load_classifier, "forecast": load_forecaster}[task_of(path)](
        path, device
    )


def load_translator(path: str | Path, device: str = "auto") -> Model:
    """`load` for a translation model; `UserError` where it is one of another task."""
    chosen = choose_device(device)
    return Model(read_model_directory(path, chosen), chosen, Path(path))


def load_classifier(path: str | Path, device: str = "auto") -> "Classifier":
    """`load` for a classifier; `UserError` where it is a model of another task."""
    from sightline.model_directory import read_classifier_directory
    from sightline.tasks.classification import Classifier

    chosen = choose_device(device)
    return Classifier(read_classifier_directory(path, chosen), chosen)


def load_forecaster(path: str | Path, device: str = "auto") -> "Forecaster":
    """`load` for a forecaster; `UserError` where it is a model of another task."""
    from sightline.model_directory import read_forecaster_directory
    from sightline.tasks.forecasting import Forecaster

    chosen = choose_device(device)
    return Forecaster(read_forecaster_directory(path, chosen), chosen)


def train(
    train: Sequence[str | Path],
    valid: Sequence[str | Path],
    out: str | Path,
    recipe: str | Path = "small",
    settings: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    special: Sequence[str] = (),
    show: bool = True,
    init: str | Path = "",
    task: str = "",
) -> Any:
    """Train a model on files and return it, as `load` does.

    Args:
        train: source and target file, or one `.tsv`, `.jsonl` or `hf:` dataset, or several of these in a row; to
            classify `.tsv` files of texts and labels, to forecast `.csv` files.
        valid: the same for validation; to forecast it may be empty, then the latest rows validate.
        out: the model directory to write.
        recipe: name of a recipe or path of a `.toml` file.
        settings: `{"train.max_steps": 1000}` or `["train.max_steps=1000"]`, on top of the recipe.
        special: strings that are one piece wherever a text contains them, such as `<2de>`.
        init: a model directory to start from; its shape and tokenizer win over those of the recipe.
        task: "translate", "classify" or "forecast"; "" is the recipe's.

    Raises:
        UserError: a file, a setting or the device is unusable, or the run was interrupted.
    """
    from sightline.pipeline import TrainRequest, train_model

    pairs = settings.items() if isinstance(settings, Mapping) else None
    listed = [f"{key}={value}" for key, value in pairs] if pairs is not None else list(settings)
    request = TrainRequest(
        recipe=str(recipe),
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
    )
    reason = train_model(request)
    if reason.startswith("SIG"):
        raise UserError(f"{out}: training was interrupted by {reason}; call again with resume=True to go on")
    return load(out, device)


def as_record(translation: Translation) -> dict[str, Any]:
    """A translation as plain data, ready for JSON."""
    return asdict(translation)
