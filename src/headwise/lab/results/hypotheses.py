"""Translations of test sets, cached in the folder of their run.

`RUN/hypotheses/NAME.KEY.txt` has a line for each source line; a `.json` file beside it describes model, text and
settings. The key is a digest of these, so another model or other settings have other files.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.errors import UserError
from headwise.evaluate.report import describe_search, hypotheses_of
from headwise.lab.results.runs import Run
from headwise.models.load import load_translator
from headwise.runtime.checkpoint.sidecar_files import SHORTLIST
from headwise.runtime.checkpoint.trained import TOKENIZER, WEIGHTS, write_text
from headwise.version import __version__

FOLDER = "hypotheses"


@dataclass(frozen=True)
class EvaluationSet:
    """A test set: source, references, and a name that can be part of a file name."""

    name: str
    sources: Sequence[str]
    references: Sequence[Sequence[str]]


class Hypotheses:
    """The translations of one run, read from its folder or computed."""

    def __init__(self, run: Run, device: str, overrides: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """`overrides` replace settings of the model's search; `say` receives messages about progress."""
        self._run = run
        self._device = device
        self._overrides = dict(overrides)
        self._say = say
        self.decoding: SearchSettings = run.config.decode.changed(self._overrides)

    def of(self, texts: EvaluationSet) -> list[str]:
        """A line for each source line.

        Raises:
            UserError: the run has no model yet, or its model changes meanwhile.
        """
        about = self._about(texts)
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
        path = self._run.path / FOLDER / f"{texts.name}.{key}.txt"
        kept = path.read_bytes().decode("utf-8").split("\n")[:-1] if path.is_file() else []
        if len(kept) == len(texts.sources):
            return kept
        self._say(f"{self._run.name}: translating {texts.name}, {len(texts.sources):,} lines")
        lines = hypotheses_of(self._model, texts.sources, self._overrides)
        if self._about(texts) != about:
            raise UserError(f"{self._run.path}: its model changed meanwhile; wait until its training ends")
        write_text(path, "".join(f"{line}\n" for line in lines))
        write_text(path.with_suffix(".json"), json.dumps(about, indent=2) + "\n")
        return lines

    def _about(self, texts: EvaluationSet) -> dict[str, Any]:
        """Everything that the translations depend on."""
        files = [WEIGHTS, TOKENIZER, *([SHORTLIST] if self.decoding.shortlist else [])]
        return {
            "headwise": __version__,
            "files": {name: _digest(self._run.path / name) for name in files},
            "model": asdict(self._run.config.model),
            "decoding": asdict(self.decoding),
            "source": hashlib.sha256("\n".join(texts.sources).encode()).hexdigest(),
        }

    @cached_property
    def _model(self) -> Any:
        return load_translator(self._run.path, self._device)


def describe_decoding(hypotheses: Mapping[str, Hypotheses]) -> list[str]:
    """The decoding settings of runs, by name; one line if all are the same."""
    searches = {name: describe_search(own.decoding) for name, own in hypotheses.items()}
    alike = len(set(searches.values())) == 1
    return [next(iter(searches.values()))] if alike else [f"{name}: {search}" for name, search in searches.items()]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(
            f"{path.parent}: has no {path.name} yet; leave it out, or wait for its first validation"
        ) from None
