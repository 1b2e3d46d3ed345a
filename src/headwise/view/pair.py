"""One source and its translation as ids, tokens and words: the input of every inspection of a translation model.

The model translates only if no translation is given. Either way it then reads the pair in one pass, as in training; its
states are those of the search, position by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headwise.contract import Hypothesis
from headwise.errors import UserError
from headwise.runtime.search.request import with_start
from headwise.runtime.search.translator import TextTranslator, clean_text, one_line
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.view.record import Axis, Word
from headwise.view.words import words_spelled


@dataclass(frozen=True)
class TranslatedPair:
    """A source and its translation."""

    tokenizer: PairTokenizer
    text: str
    translation: str
    src: list[int]  # with the end token
    tgt: list[int]  # as of `output_ids`

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
        """The input of the decoder, start token first."""
        return self.names(self.tgt_in)

    @property
    def written(self) -> list[str]:
        """The output of the decoder."""
        return self.names(self.tgt)

    def names(self, ids: Sequence[int]) -> list[str]:
        """The target tokens with these ids."""
        return self.tokenizer.pieces(ids)

    @cached_property
    def src_words(self) -> list[Word]:
        """The words of the source."""
        return words_spelled(self.tokenizer.source, self.src)

    @cached_property
    def tgt_words(self) -> list[Word]:
        """The words of the translation."""
        return words_spelled(self.tokenizer, self.tgt)

    @property
    def tgt_in(self) -> list[int]:
        """The input of the decoder: the target shifted right behind the start token."""
        return [self.tokenizer.bos_id, *self.tgt[:-1]]


def read_pair(translator: TextTranslator, src: str, tgt: str | None, prefix: str, config: Any) -> TranslatedPair:
    """A source and its translation: `tgt` if it is given, or else the result of a search.

    Raises:
        UserError: the source is blank, or so long that it would be translated in parts.
    """
    source = read_source(translator, src, config)
    if tgt is None:
        (best, *_) = translator.search([[source]], translator.encode_prefix(prefix), config)[0]
        return found_pair(translator, src, source, with_forced(translator, best))
    return given_pair(translator, src, source, tgt, prefix)


def read_source(translator: TextTranslator, src: str, config: Any) -> list[int]:
    """The ids of a source, without its end token."""
    (parts,) = translator.segment([src], config)
    if not parts:
        raise UserError("the source text is blank: there is nothing to look at")
    if len(parts) > 1:
        raise UserError(
            "the source text is longer than the model reads at once (decode.max_source_length = "
            f"{config.max_source_length} tokens) and would be translated in {len(parts)} parts: look at one sentence "
            "at a time, or set max_source_length"
        )
    return parts[0]


def given_pair(translator: TextTranslator, src: str, source: list[int], tgt: str, prefix: str) -> TranslatedPair:
    """A source and a given translation."""
    if prefix:
        raise UserError("prefix and tgt exclude each other: a prefix is for the model's own translation")
    t, text = translator.tokenizer, clean_text(tgt)
    target = t.encode(text)
    return TranslatedPair(t, clean_text(src), text, [*source, t.source.eos_id], [*target, t.eos_id])


def with_forced(translator: TextTranslator, found: Hypothesis) -> Hypothesis:
    """The hypothesis with the tokens that every output begins with, whose probability is 1."""
    return with_start(found, translator.tokenizer.special.forced)


def found_pair(translator: TextTranslator, src: str, source: list[int], found: Hypothesis) -> TranslatedPair:
    """A source and the hypothesis of a search, token by token as it was generated."""
    t = translator.tokenizer
    text, whole = one_line(t.decode(found.tokens)), t.special.ended(source)
    return TranslatedPair(t, clean_text(src), text, whole, output_ids(found, t.eos_id))


def output_ids(found: Hypothesis, eos_id: int) -> list[int]:
    """The ids of a hypothesis with its end token, unless it stopped at the maximum length."""
    ended = len(found.token_log_probs) > len(found.tokens)
    return [*found.tokens, eos_id] if ended else found.tokens
