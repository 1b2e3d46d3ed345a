"""What reading a pair asks of a tokenizer, whichever model's: ours (`tokenizer.py`) or that of a published one.

Scores, alignments and every look inside need the ids of both texts, the marks around them, and the words that pieces
spell. Published models have different marks on the two sides (a language's code before a text, or behind it), some
two vocabularies; so a tokenizer is that of targets, and has the one of sources beside it. Not here: either of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from headwise.contract import SpecialIds


@runtime_checkable
class Side(Protocol):
    """Text to ids and back on one side of a pair. Ids come without what `batch.collate` puts around them."""

    @property
    def source(self) -> "Side": ...  # of texts to translate; a source's own is itself
    @property
    def fingerprint(self) -> str: ...  # of all that decides which ids a text has, on both sides
    @property
    def special(self) -> SpecialIds: ...  # for the search
    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...  # what the decoder begins with
    @property
    def eos_id(self) -> int: ...  # what stands behind a text
    @property
    def unk_id(self) -> int: ...
    @property
    def declared(self) -> Mapping[int, str]: ...  # tokens that are words of their own
    @property
    def in_bytes(self) -> bool: ...  # whether pieces are spelt in the byte alphabet
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]: ...  # the character each piece begins with
    def decode(self, tokens: Iterable[int]) -> str: ...
    def pieces(self, tokens: Iterable[int]) -> list[str]: ...  # readable
    def piece(self, token: int) -> str: ...  # as the vocabulary has it
    def is_mark(self, token: int) -> bool: ...  # which spells nothing
