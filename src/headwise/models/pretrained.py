"""A pretrained encoder-decoder (T5, BART, Marian, M2M-100, NLLB, ...), as
`models.translation.translator.LoadedNetwork`.
"""

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from headwise.config.network import StackConfig, compact_config
from headwise.runtime.checkpoint.folder import Folder, FolderNetwork
from headwise.runtime.checkpoint.generation_config import GenerationConfig, read_generation_config
from headwise.runtime.checkpoint.sidecar_files import read_shortlist
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.translator import TextTranslator
from headwise.runtime.tokenizers.languages import Languages, read_languages
from headwise.runtime.tokenizers.pretrained_tokenizer import (
    PretrainedTokenizer,
    pretrained_tokenizer,
    shortlist_candidates,
)
from headwise.runtime.tokenizers.vocabulary import Vocabulary, fingerprint, read_vocabulary


def longest_text(stack: StackConfig) -> int | None:
    """The number of positions: learned ones, or rows of a table (Marian, Pegasus, M2M-100); None without a limit."""
    return None if stack.positions == "none" else stack.max_len or None


class PretrainedNetwork(FolderNetwork):
    """A network from a folder in the Hugging Face layout, or from one that `headwise import` made."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.folder, self.hf_config = folder, folder.about
        self.about: dict[str, Any] = {}

    def with_network(self, network: Any) -> "PretrainedNetwork":
        """The same with another network of its kind, such as one that is being trained."""
        return PretrainedNetwork(replace(self.folder, stored=self.stored.with_network(network)))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, which converts between text and ids; `UserError` if the folder has none."""
        return read_vocabulary(self.path, self.hf_config)

    @cached_property
    def generation(self) -> GenerationConfig:
        """The search settings in its files."""
        return read_generation_config(self.path, self.hf_config, has_encoder=True)

    @property
    def unused(self) -> tuple[str, ...]:
        """Settings that its files ask for and that are not supported."""
        return self.generation.unused

    @cached_property
    def languages(self) -> Languages:
        """The languages of the model, and how it selects them."""
        return read_languages(self.path, self.config.family, self.vocabulary, self.hf_config)

    def check_languages(self, source: str, target: str) -> None:
        """`UserError` if it lacks one of the languages, or if it needs one that is not given."""
        self.languages.check(source, target, self.generation.special)

    def translator(self, source: str, target: str, instruction: str) -> TextTranslator:
        """The translator between these languages that puts `instruction` in front of each text."""
        size = self.config.tgt_vocab_size or self.config.vocab_size
        ids, origin = self.generation.special, fingerprint(self.path)
        side = pretrained_tokenizer(self.languages, ids, source, target, origin, size, instruction)
        return TextTranslator(
            self.engine,
            side,
            self.generation.settings,
            longest_text(self.config.decoder),
            partial(self._shortlist, source, target, side),
            self.torch_module,
            longest_text(self.config.encoder),
        )

    def _shortlist(self, source: str, target: str, side: PretrainedTokenizer) -> CandidateTable:
        self.check_languages(source, target)
        size = max(self.config.vocab_size, self.config.tgt_vocab_size)
        return shortlist_candidates(read_shortlist(self.path, side, size), side)

    def info(self) -> dict[str, Any]:
        """The family, the number of parameters and the axes of the network."""
        axes = compact_config(self.config)
        return {"family": self.config.family, "parameters": self.stored.n_parameters, **axes}
