"""One text or a pair as input of an encoder: special tokens around and between texts, and truncation.

Not here: the vocabularies themselves (`headwise.checkpoint.vocabulary`), batches (`headwise.data.labelled`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.checkpoint.vocabulary import EncodeAt, Vocabulary, fingerprint, marks_around
from headwise.data.labelled import EncodedText
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.errors import UserError
from headwise.generation.pretrained_tokenizer import PretrainedTokenizer, encoder_special_ids

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
    before: tuple[int, ...]  # special tokens
    between: tuple[int, ...] | None  # None: it reads single texts only
    behind: tuple[int, ...]
    typed: bool  # the network has types of tokens, for the first and the second text
    longest: int  # limit of the network in tokens, special tokens included; 0 = none
    placed: EncodeAt | None = None  # encodes without special tokens; None: the vocabulary has no offsets
    apart: int = 0  # the last of the tokens behind, which belong to no text (XLNet)
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
        if second is not None and self.between is None:
            raise UserError("this model's vocabulary has no separator of two texts: it reads single texts only")
        between = (self.between or ()) if second is not None else ()
        room = longest - len(self.before) - len(between) - len(self.behind)
        if longest and room < 1 + (second is not None):
            raise UserError(
                f"data.max_length = {longest} leaves no room for a text between the special tokens; raise it"
            )
        n_first, n_second = len(first), len(second or ())
        if longest:
            n_first, n_second = longest_first(n_first, n_second, room)
        prefix = [*self.before, *first[:n_first], *between]
        ids = [*prefix, *(second or ())[:n_second], *self.behind]
        if not ids:
            raise UserError(
                "a text is blank, and this model's vocabulary adds no special tokens: there is nothing to read"
            )
        return EncodedText(ids, len(prefix) if second is not None else len(ids), self.apart)


def reader_of(model: Any) -> TextReader:
    """The reader of a pretrained encoder."""
    stack, pad_id = model.config.encoder, max(0, model.hf_config.get("pad_token_id") or 0)
    size = model.config.vocab_size
    return text_reader(model.tokenizer, pad_id, stack.n_types, stack.longest, model.path, size)


def text_reader(
    vocabulary: Vocabulary, pad_id: int, types: int, max_len: int | None, folder: Path, size: int
) -> TextReader:
    """The reader with the vocabulary in `folder`, of `size` tokens, for a network with so many types of tokens."""
    marks, example = vocabulary.encode(""), vocabulary.encode("a")
    before, behind = marks_around(marks, example)
    between, has_types, apart = None, False, 0
    if vocabulary.encode_two:
        n = len(example) - before - behind
        ids, kinds = vocabulary.encode_two("a", "a")
        between, has_types, apart = tuple(ids[before + n : len(ids) - behind - n]), 1 in kinds, kinds.count(2)

    def bare(text: str) -> list[int]:
        ids = vocabulary.encode(text)
        return ids[before : len(ids) - behind]

    def placed(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        assert vocabulary.encode_at
        ids, places = vocabulary.encode_at(text)
        return ids[before : len(ids) - behind], places[before : len(ids) - behind]

    start, end = (marks[0] if before else -1), (marks[-1] if behind else -1)
    tokenizer = PretrainedTokenizer(
        vocabulary, bare, encoder_special_ids(pad_id, start, end), fingerprint=fingerprint(folder), vocab_size=size
    )
    at = placed if vocabulary.encode_at else None
    typed, ends = has_types and types > 1, tuple(marks[before:])
    return TextReader(tokenizer, tuple(marks[:before]), between, ends, typed, max_len or 0, at, apart)
