"""A published encoder-decoder as what looks inside ask for (`sightline.inspect.pair.PairTranslator`).

The search is that of `rewrite`, with the model's own settings. Not here: its text verbs (`models`), and how texts
become ids (`sides`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.config.settings import SearchSettings
from sightline.contract import Hypothesis, Look
from sightline.decode.ending import Ending, ending_of
from sightline.errors import UserError
from sightline.generation.rewrite import form_for, rewrite, watch_rewriting, with_beginning
from sightline.generation.settings import GenerationSettings
from sightline.generation.sides import FamilySide, prefix_ids
from sightline.generation.stopping import stop_at
from sightline.network.prepared import PreparedForms
from sightline.network.transformer import Transformer

COMPUTES = ("float32", "int8", "bfloat16")  # numbers that an encoder with a decoder can be decoded with


@dataclass(frozen=True)
class FamilyTranslator:
    """A model, its tokenizer and the settings it writes with unless a call says otherwise."""

    model: Transformer
    tokenizer: FamilySide
    config: GenerationSettings  # with the language to write in
    forms: PreparedForms
    max_len: int | None  # of sources and outputs, where the network has a limit

    @property
    def batch_tokens(self) -> int:
        """Pieces of pairs that are looked at together."""
        return SearchSettings().batch_tokens

    def settings(self, overrides: Mapping[str, Any]) -> GenerationSettings:
        """The settings of a call."""
        return self.config.changed(overrides, COMPUTES)

    def segment(self, texts: Sequence[str], config: GenerationSettings) -> list[list[list[int]]]:
        """Each text in one part: these models read what they are given; none for a blank text."""
        found = [[self.tokenizer.source.encode(text)] if text.strip() else [] for text in texts]
        for parts in found:
            if self.max_len and any(len(part) >= self.max_len for part in parts):
                raise UserError(f"the text has {len(parts[0]) + 1} pieces, and this model reads {self.max_len}")
        return found

    def encode_prefix(self, prefix: str) -> list[int]:
        """The ids of what outputs must begin with, behind what is the model's own."""
        return [*prefix_ids(self.tokenizer, self.config, prefix)]

    def search(
        self, sources: list[list[list[int]]], prefix: list[int], config: GenerationSettings
    ) -> list[list[Hypothesis]]:
        """What is written for each part, with what it had to begin with in front."""
        config = replace(config, begins=tuple(prefix))
        parts = [[*tokens, self.tokenizer.source.eos_id] for parts in sources for tokens in parts]
        stop = stop_at(config.stop, self.tokenizer.vocabulary.decode)
        found = rewrite(self.form(config), parts, config, self.max_len, stop)
        return [[with_beginning(one, config) for one in ranked] for ranked in found]

    def form(self, config: GenerationSettings) -> Any:
        """The network in the form that these settings ask for."""
        return form_for(config, self.forms)

    def watched(self, source: list[int], prefix: list[int], config: GenerationSettings, look: Look) -> Hypothesis:
        """What the search finds for one source, while `look` is shown each step."""
        whole = [*source, self.tokenizer.source.eos_id]
        return watch_rewriting(self.form(config), whole, replace(config, begins=tuple(prefix)), self.max_len, look)

    def ending(self, config: GenerationSettings) -> Ending:
        """That of `transformers`."""
        return ending_of(config.options())
