"""A translation model trained here."""

from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from sightline.checkpoint.compiled import is_for_library
from sightline.checkpoint.folder import Folder
from sightline.checkpoint.trained_network import Trained
from sightline.config.model import longest_sequence
from sightline.config.settings import meaningful
from sightline.data.tokenizer import Tokenizer
from sightline.decode.candidates import CandidateTable
from sightline.decode.translator import Translator
from sightline.device import choose_device
from sightline.models.pairs import PairVerbs
from sightline.models.translation import TranslationVerbs
from sightline.training.allocator import keep_freed_memory


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

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        from sightline.checkpoint.sidecar_files import SHORTLIST

        return {
            "parameters": self._trained.n_parameters,
            "vocabulary": self.tokenizer.vocab_size,
            "shortlist": (self.path / SHORTLIST).is_file(),
            **self.about,
            **meaningful(self.config),
        }


def _read_shortlist(folder: Path, tokenizer: Tokenizer) -> CandidateTable:
    from sightline.checkpoint.sidecar_files import read_shortlist

    shortlist = read_shortlist(folder, tokenizer)
    return CandidateTable(shortlist.frequent, shortlist.likely)
