"""A tokenizer of texts that all have the same in front: the token of a language, or an instruction."""

from collections.abc import Sequence

from headwise.data.tokenizer import Tokenizer


class TaggedTokenizer(Tokenizer):
    """The tokenizer of targets; that of their sources is a `TaggedSource`."""

    def __init__(self, plain: Tokenizer, front: str) -> None:
        vars(self).update(vars(plain))
        self._source = TaggedSource(plain, front)

    @property
    def source(self) -> Tokenizer:
        """What texts to translate are encoded with."""
        return self._source


class TaggedSource(Tokenizer):
    """Puts `front` in front of each text."""

    def __init__(self, plain: Tokenizer, front: str) -> None:
        vars(self).update(vars(plain))
        self._plain, self._front = plain, front

    def encode(self, text: str) -> list[int]:
        """The ids of a text with what stands in front."""
        return self._plain.encode(self._front + text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return self._plain.encode_batch([self._front + text for text in texts])

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """As of `Tokenizer`; what stands in front belongs to no word of the text."""
        ids, starts = self._plain.encode_with_starts(self._front + text)
        own = [start - len(self._front) for start in starts]
        return ids, [start if start >= 0 else len(text) for start in own]
