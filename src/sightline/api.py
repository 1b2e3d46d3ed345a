"""The public verbs: `load` a model, `train` one. Everything a program needs to use Sightline as a library."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sightline.config import DecodeConfig
from sightline.decode.candidates import CandidateTable
from sightline.decode.streaming import stream_text
from sightline.decode.translator import Translation, Translator
from sightline.errors import UserError
from sightline.evaluate.score import PairScore, score_texts
from sightline.model.build import longest_sequence
from sightline.model.inference import PreparedForms
from sightline.model.parameters import count_parameters
from sightline.model_directory import SHORTLIST, ModelDirectory, read_model_directory, read_shortlist
from sightline.pipeline import TrainRequest, choose_device, train_model
from sightline.training.allocator import keep_freed_memory
from sightline.workers import translate_in_processes, usable_cores, worth_sharing


class Model:
    """A trained model with its tokenizer and its decoding settings; made by `sightline.load`."""

    def __init__(self, directory: ModelDirectory, device: torch.device, path: Path) -> None:
        self.path = path  # of the model directory
        self.network = directory.network  # the torch module
        self.tokenizer = directory.tokenizer
        self.config = directory.config
        self.about = directory.about
        self.device = device
        max_len = longest_sequence(self.config.model)
        prepare = PreparedForms(self.network)
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

    def translate(self, texts: Sequence[str], prefix: str = "", **overrides: Any) -> list[Translation]:
        """Translate each text; as many results as texts, in their order.

        `prefix` is what every output must begin with; `overrides` are fields of
        `sightline.config.DecodeConfig`, such as `beam_size=1`. Raises `UserError` for one that makes no sense.
        """
        return self._translator.translate(texts, prefix, **overrides)

    def translate_lines(
        self, lines: Iterable[str], prefix: str = "", chunk_lines: int = 2000, workers: int = 1, **overrides: Any
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory.

        With several `workers` as many processes share the lines; 0 is one for each CPU core where there are lines
        enough (see `sightline.workers`).
        """
        if workers < 0:
            raise UserError(f"workers = {workers}: must be a number of processes, or 0 for as many as pay")
        if workers == 0:
            shared, lines = worth_sharing(lines)
            workers = usable_cores() if shared and self.device.type == "cpu" else 1
        if workers > 1:
            return translate_in_processes(self.path, str(self.device), lines, workers, prefix, overrides)
        return self._translator.translate_lines(lines, prefix, chunk_lines, **overrides)

    def stream(self, text: str, prefix: str = "", **overrides: Any) -> Iterator[str]:
        """The greedy translation of one text, handed over piece by piece while it is being written.

        >>> print(*model.stream("A dog runs."), sep="|")  # doctest: +SKIP
        Ein| Hund| läuft|.
        """
        return stream_text(self._translator, text, prefix, **overrides)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """How probable the model finds each target as the translation of its source (natural logarithms)."""
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


def load(path: str | Path, device: str = "auto") -> Model:
    """The model in a directory that `train` wrote; `UserError` says what is wrong with any other."""
    chosen = choose_device(device)
    return Model(read_model_directory(path, chosen), chosen, Path(path))


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
) -> Model:
    """Train a model on files and return it.

    Args:
        train: source and target file, or one `.tsv`, `.jsonl` or `hf:` dataset, or several of these in a row.
        valid: the same for validation.
        out: the model directory to write.
        recipe: name of a recipe or path of a `.toml` file.
        settings: `{"train.max_steps": 1000}` or `["train.max_steps=1000"]`, on top of the recipe.
        special: strings that are one piece wherever a text contains them, such as `<2de>`.
        init: a model directory to start from; its shape and tokenizer win over those of the recipe.

    Raises:
        UserError: a file, a setting or the device is unusable, or the run was interrupted.
    """
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
    )
    reason = train_model(request)
    if reason.startswith("SIG"):
        raise UserError(f"{out}: training was interrupted by {reason}; call again with resume=True to go on")
    return load(out, device)


def as_record(translation: Translation) -> dict[str, Any]:
    """A translation as plain data, ready for JSON."""
    return asdict(translation)
