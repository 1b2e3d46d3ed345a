"""One source and its translation as ids, pieces and words: what every look into a model starts from.

A translation is made only where none is given. Either way the model then reads the pair in one pass, as in training:
its states are those of the search that wrote the translation, position by position. Not here: what is looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.contract import Hypothesis, Look
from sightline.data.side import Side
from sightline.decode.ending import Ending
from sightline.decode.translator import clean_text, one_line
from sightline.errors import UserError
from sightline.inspect.record import Axis, Word
from sightline.inspect.words import words


@runtime_checkable
class Translating(Protocol):
    """What a look inside needs of a model and its tokenizer: a `Translator`, or that of a published model.

    `config` are the settings of a search, which `settings` checks and changes; nothing here knows their fields.
    """

    @property
    def model(self) -> Any: ...
    @property
    def tokenizer(self) -> Side: ...
    def settings(self, overrides: dict[str, Any]) -> Any: ...
    def segment(self, texts: Sequence[str], config: Any) -> list[list[list[int]]]: ...  # the parts of each text
    def encode_prefix(self, prefix: str) -> list[int]: ...
    def search(self, sources: list[list[list[int]]], prefix: list[int], config: Any) -> list[list[Hypothesis]]: ...
    def watched(self, source: list[int], prefix: list[int], config: Any, look: Look) -> Hypothesis: ...
    def ending(self, config: Any) -> Ending: ...  # its penalty is of all that is written


@runtime_checkable
class Shown(Protocol):
    """Something that a network reads in one pass, with names for all that goes in and comes out."""

    @property
    def described(self) -> dict[str, Any]: ...  # the fields of a record but for the weights, and `read`
    @property
    def read(self) -> list[str]: ...  # by a decoder
    @property
    def written(self) -> list[str]: ...  # at each position that the head speaks of; "" where nobody says
    def names(self, ids: Sequence[int], /) -> list[str]: ...  # of the head's outputs
    def read_by(self, network: Any) -> Tensor: ...  # the last hidden states, (1, positions, d_model)
    def as_shown(self, stack: str, weights: Tensor) -> Tensor: ...  # of (heads, queries, keys) as many as are named


@dataclass(frozen=True)
class TranslatedPair:
    """A source and what was written for it."""

    tokenizer: Side
    text: str
    translation: str
    src: list[int]  # with the end mark
    tgt: list[int]  # as `written`

    @property
    def described(self) -> dict[str, Any]:
        """The fields that all records have in common."""
        src = Axis(self.tokenizer.source.pieces(self.src), self.src_words)
        return {
            "text": self.text,
            "translation": self.translation,
            "src": src,
            "tgt": Axis(self.written, self.tgt_words),
        }

    @property
    def read(self) -> list[str]:
        """What the decoder reads, the start mark first."""
        return self.names([self.tokenizer.bos_id, *self.tgt[:-1]])

    @property
    def written(self) -> list[str]:
        """The pieces that the decoder writes."""
        return self.names(self.tgt)

    def names(self, ids: Sequence[int]) -> list[str]:
        """The pieces of some ids of the target."""
        return self.tokenizer.pieces(ids)

    def as_shown(self, stack: str, weights: Tensor) -> Tensor:
        """Every piece is shown."""
        return weights

    @cached_property
    def src_words(self) -> list[Word]:
        """The words of the source."""
        return words(self.tokenizer.source, self.src)

    @cached_property
    def tgt_words(self) -> list[Word]:
        """The words of the translation."""
        return words(self.tokenizer, self.tgt)

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """`src`, `tgt_in` and `src_mask` of one row: the target shifted right behind the start mark."""
        src = torch.tensor([self.src], device=device)
        tgt_in = torch.tensor([[self.tokenizer.bos_id, *self.tgt[:-1]]], device=device)
        return src, tgt_in, torch.ones_like(src, dtype=torch.bool)

    def read_by(self, network: Any) -> Float[Tensor, "1 tgt_len d_model"]:
        """Hidden states of one pass of a network over the pair."""
        src, tgt_in, src_mask = self.tensors(device_of(network))
        return network.decode(tgt_in, network.encode(src, src_mask), src_mask)


def read_pair(translator: Translating, src: str, tgt: str | None, prefix: str, config: Any) -> TranslatedPair:
    """The pair of a source and its translation: `tgt` if it is given, else the best that a search finds.

    Raises:
        UserError: the source is blank, or so long that it would be translated in parts.
    """
    source = read_source(translator, src, config)
    if tgt is None:
        (best, *_) = translator.search([[source]], translator.encode_prefix(prefix), config)[0]
        return found_pair(translator, src, source, best)
    return given_pair(translator, src, source, tgt, prefix)


def read_source(translator: Translating, src: str, config: Any) -> list[int]:
    """The ids of a source, without its end mark."""
    (parts,) = translator.segment([src], config)
    if not parts:
        raise UserError("the source text is blank: there is nothing to look at")
    if len(parts) > 1:
        raise UserError(
            f"the source text is longer than decode.max_source_length = {config.max_source_length} pieces and would be "
            f"translated in {len(parts)} parts: look at one sentence at a time, or set max_source_length"
        )
    return parts[0]


def given_pair(translator: Translating, src: str, source: list[int], tgt: str, prefix: str) -> TranslatedPair:
    """The pair of a source and a translation that somebody else wrote."""
    if prefix:
        raise UserError("a prefix is for a translation that is still to be made: leave out either prefix or tgt")
    t, text = translator.tokenizer, clean_text(tgt)
    target = t.encode(text)
    return TranslatedPair(t, clean_text(src), text, [*source, t.source.eos_id], [*target, t.eos_id])


def found_pair(translator: Translating, src: str, source: list[int], found: Hypothesis) -> TranslatedPair:
    """The pair of a source and the hypothesis that a search has chosen, piece by piece as it was written."""
    t = translator.tokenizer
    text, whole = one_line(t.decode(found.tokens)), [*source, t.source.eos_id]
    return TranslatedPair(t, clean_text(src), text, whole, written(found, t.eos_id))


def written(found: Hypothesis, eos_id: int) -> list[int]:
    """The ids of a hypothesis with its end mark, unless it stopped at the longest length."""
    ended = len(found.token_log_probs) > len(found.tokens)
    return [*found.tokens, eos_id] if ended else found.tokens


def device_of(network: nn.Module) -> torch.device:
    """Where a network's parameters are."""
    return next(iter(network.parameters())).device
