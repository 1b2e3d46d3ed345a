"""The input of a pretrained encoder: a text or a pair of texts as ids, with special tokens.

`headwise.models.encoding.reading` makes it from strings, `labelled` batches of it.
"""

from dataclasses import dataclass

from headwise.text.tokens.pair_tokenizer import Tokens


@dataclass(frozen=True)
class EncodedText:
    """The input of a pretrained network: a text or a text pair, with special tokens."""

    ids: Tokens
    n_first: int  # tokens of the first segment
    n_trailing: int = 0  # tokens at the end that belong to no segment (XLNet)

    def __len__(self) -> int:
        return len(self.ids)


def token_types(text: EncodedText) -> list[int]:
    """The type of each token: 0 and 1 for the two texts, 2 for tokens of neither.

    >>> token_types(EncodedText([8, 5, 2, 6, 2], 3))
    [0, 0, 0, 1, 1]
    """
    n = len(text) - text.n_trailing
    return [(i >= text.n_first) + (i >= n) for i in range(len(text))]
