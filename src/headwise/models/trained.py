"""A translation model that was trained here, as `models.translation.translator.LoadedNetwork`; without torch until it
is needed.
"""

from functools import cached_property
from typing import Any

from headwise.config.model import longest_sequence
from headwise.config.settings import meaningful
from headwise.errors import UserError
from headwise.runtime.allocator import keep_freed_memory
from headwise.runtime.checkpoint.folder import Folder, FolderNetwork
from headwise.runtime.checkpoint.sidecar_files import SHORTLIST, read_shortlist
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.translator import TextTranslator


class TrainedNetwork(FolderNetwork):
    """A network from a folder that `headwise train` wrote."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.about = folder.about
        self.hf_config: dict[str, Any] = {}
        self.unused: tuple[str, ...] = ()
        self.tokenizer = folder.tokenizer
        if folder.device == "cpu":
            keep_freed_memory()  # decoding, too, allocates the same large blocks again and again

    def check_languages(self, source: str, target: str) -> None:
        """`UserError` for a language that no token of the tokenizer names."""
        _ = target and self._tag(target)
        if source and not target:
            raise UserError(f"{self.path}: source_language needs target_language, in a model trained here")

    def _tag(self, target: str) -> str:
        tag, declared = f"<2{target}>", [*self.tokenizer.declared.values()]
        if tag not in declared:
            known = ", ".join(name[2:-1] for name in declared if name.startswith("<2") and name.endswith(">"))
            hint = f"it writes {known}" if known else "it was trained for one pair of languages: leave them out"
            raise UserError(f"language '{target}': this model has no token {tag}; {hint}")
        return f"{tag} "

    def translator(self, source: str, target: str, instruction: str) -> TextTranslator:
        """A translator between these languages that puts `instruction` in front of each text."""
        self.check_languages(source, target)
        front = (self._tag(target) if target else "") + instruction
        tokenizer = self.tokenizer.with_source_prefix(front) if front else self.tokenizer
        return TextTranslator(
            self.engine,
            tokenizer,
            self.config.decode,
            longest_sequence(self.config.model),
            lambda: self._shortlist,
            self.torch_module,
        )

    @cached_property
    def _shortlist(self) -> CandidateTable:
        shortlist = read_shortlist(self.path, self.tokenizer)
        return CandidateTable(shortlist.frequent, shortlist.likely)

    def info(self) -> dict[str, Any]:
        """The size, settings and training of the model."""
        return {
            "parameters": self.stored.n_parameters,
            "vocabulary": self.tokenizer.vocab_size,
            "shortlist": (self.path / SHORTLIST).is_file(),
            **self.about,
            **meaningful(self.config),
        }
