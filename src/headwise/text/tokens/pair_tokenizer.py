"""The interface of a tokenizer of translation pairs: of models trained here and of pretrained ones.

`Tokenizer` (text/tokens/tokenizer.py) and `PretrainedTokenizer` (runtime/tokenizers/pretrained_tokenizer.py) implement
it. Scoring, alignment and inspection need the ids of both texts, the special tokens around them, and the words that
tokens spell. Pretrained models add different special tokens to the two sides (a language code before or after a text),
and some have two vocabularies. Therefore a tokenizer is that of targets, and its `source` is that of source texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headwise.contract import SpecialIds

Tokens = Sequence[int] | NDArray[np.int32]  # the ids of a text


@runtime_checkable
class PairTokenizer(Protocol):
    """Text to token ids and back. Ids come without the special tokens that `batch.collate` adds."""

    @property
    def source(self) -> "PairTokenizer": ...  # the tokenizer of source texts; its own source is itself
    @property
    def fingerprint(self) -> str: ...  # of everything that decides which ids a text has, on both sides
    @property
    def special(self) -> SpecialIds: ...  # for the search
    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...  # the decoder's start token
    @property
    def eos_id(self) -> int: ...  # end of text
    @property
    def unk_id(self) -> int: ...
    @property
    def declared(self) -> Mapping[int, str]: ...  # added tokens, recognised in text
    @property
    def in_bytes(self) -> bool: ...  # whether pieces are written in the byte alphabet
    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]: ...  # with each token's first character
    def decode(self, tokens: Iterable[int]) -> str: ...
    def pieces(self, tokens: Iterable[int]) -> list[str]: ...  # readable subword strings
    def piece(self, token: int) -> str: ...  # as in the vocabulary
    def is_special(self, token: int) -> bool: ...  # whether it adds nothing to a text
