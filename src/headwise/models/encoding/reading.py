"""One text or a pair as input of an encoder: special tokens around and between texts, and truncation.

See `headwise.runtime.tokenizers.vocabulary` for the vocabularies and `headwise.pytorch.data.labelled` for batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.runtime.tokenizers.pretrained_tokenizer import PretrainedTokenizer, encoder_special_ids
from headwise.runtime.tokenizers.vocabulary import EncodeAt, Vocabulary, bare, fingerprint
from headwise.text.prepared.encoded import EncodedText
from headwise.text.tokens.pair_tokenizer import PairTokenizer

OneOrTwo = str | tuple[str, ...]  # a text; or one, or two, in a tuple


def longest_first(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts truncated to `room` tokens: the longer one first, then both alike.

    As "longest_first" of the tokenizers library.

    >>> longest_first(3, 9, 8), longest_first(9, 3, 8), longest_first(9, 9, 7)
    ((3, 5), (5, 3), (3, 4))
    """
    if n_first + n_second <= room:
        return n_first, n_second
    less = min(n_first, n_second)
    more = max(less, room - less)
    if less + more > room:
        less, more = room // 2, room - room // 2
    return (more, less) if n_first > n_second else (less, more)


@dataclass(frozen=True)
class TextReader:
    """Turns texts into the input of a network."""

    tokenizer: PairTokenizer  # without special tokens
    prefix: tuple[int, ...]  # special tokens
    separator: tuple[int, ...] | None  # None: it reads single texts only
    suffix: tuple[int, ...]
    typed: bool  # the network has types of tokens, for the first and the second text
    longest: int  # limit of the network in tokens, special tokens included; 0 = none
    encode_with_offsets: EncodeAt | None = None  # without special tokens; None: the vocabulary has no offsets
    n_apart: int = 0  # tokens at the end of `suffix` that belong to no text (XLNet)
    clean: Callable[[str], str] = str  # applied to a text first

    def read(self, given: Sequence[OneOrTwo], longest: int = 0) -> list[EncodedText]:
        """Texts, or pairs of texts, of at most `longest` tokens, special tokens included; 0 = the limit of the network.

        Raises:
            UserError: pairs are not supported, or there is no room for text.
        """
        longest = longest or self.longest
        parts = [(one,) if isinstance(one, str) else one for one in given]
        if any(len(texts) not in (1, 2) for texts in parts):
            raise UserError("each input is a text or a pair of texts; one of these is neither")
        ids = iter(self.tokenizer.encode_batch([self.clean(text) for texts in parts for text in texts]))
        return [self._with_specials([next(ids) for _ in texts], longest) for texts in parts]

    def _with_specials(self, texts: list[list[int]], longest: int) -> EncodedText:
        first, second = texts[0], texts[1] if len(texts) == 2 else None
        if second is not None and self.separator is None:
            raise UserError("this model's vocabulary has no separator of two texts: it reads single texts only")
        separator = (self.separator or ()) if second is not None else ()
        room = longest - len(self.prefix) - len(separator) - len(self.suffix)
        if longest and room < 1 + (second is not None):
            raise UserError(
                f"data.max_length = {longest} leaves no room for a text between the special tokens; raise it"
            )
        n_first, n_second = len(first), len(second or ())
        if longest:
            n_first, n_second = longest_first(n_first, n_second, room)
        prefix = [*self.prefix, *first[:n_first], *separator]
        ids = [*prefix, *(second or ())[:n_second], *self.suffix]
        if not ids:
            raise UserError(
                "a text is blank, and this model's vocabulary adds no special tokens: there is nothing to read"
            )
        return EncodedText(ids, len(prefix) if second is not None else len(ids), self.n_apart)


def reader_of(model: Any) -> TextReader:
    """The reader of a pretrained encoder."""
    stack, pad_id = model.config.encoder, max(0, model.hf_config.get("pad_token_id") or 0)
    size = model.config.vocab_size
    return text_reader(model.tokenizer, pad_id, stack.n_types, stack.longest, model.path, size)


def text_reader(
    vocabulary: Vocabulary, pad_id: int, types: int, max_len: int | None, folder: Path, size: int
) -> TextReader:
    """The reader with the vocabulary in `folder`, of `size` tokens, for a network with `types` token types."""
    encode, prefix, suffix = bare(vocabulary)
    n_prefix, n_suffix = len(prefix), len(suffix)
    separator, has_types, n_apart = None, False, 0
    if vocabulary.encode_two:
        n = len(encode("a"))
        ids, kinds = vocabulary.encode_two("a", "a")
        separator, has_types, n_apart = tuple(ids[n_prefix + n : len(ids) - n_suffix - n]), 1 in kinds, kinds.count(2)

    def encode_with_offsets(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        assert vocabulary.encode_at
        ids, offsets = vocabulary.encode_at(text)
        inner = slice(n_prefix, len(ids) - n_suffix)
        return ids[inner], offsets[inner]

    start, end = (prefix[0] if prefix else -1), (suffix[-1] if suffix else -1)
    tokenizer = PretrainedTokenizer(
        vocabulary, encode, encoder_special_ids(pad_id, start, end), fingerprint=fingerprint(folder), vocab_size=size
    )
    offsets = encode_with_offsets if vocabulary.encode_at else None
    typed = has_types and types > 1
    return TextReader(tokenizer, tuple(prefix), separator, tuple(suffix), typed, max_len or 0, offsets, n_apart)
