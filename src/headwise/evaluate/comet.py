"""COMET (Rei et al. 2020, arXiv:2009.09025), computed by Unbabel's package: a network rates each translation by its
source and its reference.

A corpus has the mean over its lines, times 100. Weights are float32, as in the package's own `predict`; its command
`comet-score` rounds them to float16, which changes the fourth digit.
"""

import logging
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.evaluate.measure import MeanScore, Signature
from headwise.runtime.checkpoint.hub import FETCH, known_folder
from headwise.text.files.sources import count_of

COMET = "comet"
DEFAULT = "Unbabel/wmt22-comet-da"  # the default of `comet-score`


def is_comet(name: str) -> bool:
    """Whether a metric is "comet" or "comet:MODEL"."""
    return name.partition(":")[0] == COMET


class Comet:
    """A COMET model with the methods that `measure.Measure` calls; it is loaded for the first lines."""

    def __init__(self, name: str, references: int = 1) -> None:
        """`name` is "comet" or "comet:MODEL"; `references` are those of each line.

        Raises:
            UserError: the package is not installed, there is no such model, or there are several references.
        """
        _check_references(name, references)
        self._name = name
        self._model = name.partition(":")[2] or DEFAULT
        self._checkpoint = _checkpoint(name, self._model)

    def _extract_corpus_statistics(
        self, lines: Sequence[str], streams: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> NDArray[np.float64]:
        """The score of each line, and 1: their sums give a mean."""
        _check_references(self._name, len(streams))
        if len(sources) != len(lines):
            counts = f"{len(lines)} translations and {count_of(len(sources), 'source')}"
            raise UserError(f"--metric {self._name} reads the source of each translation, too ({counts}): add --source")
        triples = zip(sources, lines, streams[0], strict=True)
        samples = [{"src": source, "mt": line, "ref": reference} for source, line, reference in triples]
        network = _loaded(self._name, self._checkpoint, online=self._model.startswith(FETCH))
        # On a Mac the package requires processes of its own for reading, elsewhere they would only take time.
        workers = {} if sys.platform == "darwin" else {"num_workers": 0}
        with warnings.catch_warnings(action="ignore"):
            predicted = network.predict(samples, progress_bar=False, **workers)
        return np.array([[score, 1.0] for score in predicted.scores])

    def _compute_score_from_stats(self, stats: NDArray[np.float64]) -> MeanScore:
        return MeanScore.of(stats)

    def get_signature(self) -> Signature:
        """The signature."""
        model = self._model.removeprefix(FETCH)
        return Signature({"nrefs": 1, "comet": _package().__version__, "model": model, "precision": "float32"})


def _check_references(name: str, number: int) -> None:
    if number > 1:
        raise UserError(f"--metric {name} compares with one reference, not {number}: name one")


def _package() -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):
            import comet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError('--metric comet needs a package: pip install "headwise[comet]"') from None
    for chatty in ("comet", "pytorch_lightning"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    return comet


def _checkpoint(metric: str, model: str) -> Path:
    """The checkpoint of a model: a file, in a folder, in the cache of the Hugging Face Hub, or downloaded for hf:NAME.

    `UserError` if there is none.
    """
    package = _package()
    if model.startswith(FETCH):
        try:
            return Path(package.download_model(model.removeprefix(FETCH)))
        except Exception as error:  # of many kinds: no such name, no right to it, no network
            raise UserError(f"--metric {metric}: cannot be downloaded ({type(error).__name__})") from None
    path = known_folder(model)
    checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
    if checkpoint.is_file() and (checkpoint.absolute().parents[1] / "hparams.yaml").is_file():
        return checkpoint
    if model == DEFAULT:
        raise UserError(f"--metric {metric}: {DEFAULT} is not in the cache; comet:{FETCH}{DEFAULT} downloads it")
    what = "is no COMET model (FOLDER/hparams.yaml and FOLDER/checkpoints/model.ckpt) and no name in the cache"
    raise UserError(f"--metric {metric}: {model} {what}; a download is comet:{FETCH}OWNER/NAME")


@cache
def _loaded(metric: str, checkpoint: Path, online: bool) -> Any:
    """The network; `UserError` if it cannot be loaded, for instance because its encoder is in no cache."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return _package().load_from_checkpoint(checkpoint, local_files_only=not online)
    except Exception as error:  # of many kinds, from several libraries
        raise UserError(f"--metric {metric}: {checkpoint} cannot be loaded: {error}") from None
