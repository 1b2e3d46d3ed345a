"""Token classification: names of persons and places, or parts of speech, by an encoder with a head for tokens.

As in `transformers`, words are tokenized one by one, with a blank before all but the first, and the first token of a
word gives its tag. A sentence that is too long for the network is read in parts, split between words. See
`headwise.text.files.tagged_texts` for files and `headwise.pytorch.tasks.tagging` for training.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from headwise.errors import UserError
from headwise.evaluate.entities import entities
from headwise.models.encoding.library_encoder import EncoderNetwork
from headwise.models.encoding.reading import TextReader
from headwise.text.files.scripts import word_pattern
from headwise.text.files.tagged_texts import TaggedSentence, check_tags, read_tagged
from headwise.text.prepared.encoded import EncodedText

JOINTS = "-.'\u2019"  # characters that may occur inside a word
VANISHED = "?"  # replaces a word without tokens


@dataclass(frozen=True)
class Span:
    """A named entity, or another group of words with one label."""

    text: str
    label: str
    start: int  # characters of the whole text
    end: int
    probability: float  # the mean of its words'


@dataclass(frozen=True)
class Tagging:
    """The tags of a text."""

    text: str  # given words are joined by blanks
    words: list[str]
    tags: list[str]  # of each word
    spans: list[Span]

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class PartOfSentence:
    """Some words of a sentence, as input of the network."""

    read: EncodedText
    sentence: int  # its number
    words: range  # of the sentence
    firsts: list[int]  # position of the first token of each

    def __len__(self) -> int:
        return len(self.read)


def read_words(reader: TextReader, sentences: Sequence[Sequence[str]], longest: int = 0) -> list[PartOfSentence]:
    """Sentences as parts of at most `longest` tokens, special tokens included; 0 = the limit of the network.

    A word that is longer than a part is truncated.
    """
    longest = longest or reader.longest
    room = longest - len(reader.prefix) - len(reader.suffix) if longest else 0
    if longest and room < 1:
        raise UserError(f"data.max_length = {longest} leaves no room for a word between the special tokens; raise it")
    spelt = _tokens_of(reader, sentences)
    found: list[PartOfSentence] = []
    for number, words in enumerate(sentences):
        pieces = [spelt[" " * (i > 0) + word] for i, word in enumerate(words)]
        for part in _parts([len(one) for one in pieces], room):
            found.append(_part(reader, [pieces[i][: room or None] for i in part], number, part))
    return found


def _tokens_of(reader: TextReader, sentences: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """The tokens of every word, with a blank before all but the first of a sentence."""
    words = {" " * (i > 0) + word: None for sentence in sentences for i, word in enumerate(sentence)}
    found = dict(zip(words, reader.tokenizer.encode_batch([*words]), strict=True))
    instead = reader.tokenizer.encode(VANISHED) if not all(found.values()) else []
    return {word: pieces or instead for word, pieces in found.items()}


def _parts(lengths: Sequence[int], room: int) -> list[range]:
    """Which words are read together in `room` tokens; 0 = all.

    >>> _parts([2, 2, 9, 1], 4)
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    found, start, filled = list[range](), 0, 0
    for i, length in enumerate(lengths):
        if room and filled and filled + length > room:
            found.append(range(start, i))
            start, filled = i, 0
        filled += min(length, room or length)
    return [*found, range(start, len(lengths))]


def _part(reader: TextReader, pieces: Sequence[Sequence[int]], number: int, words: range) -> PartOfSentence:
    lengths = [len(reader.prefix), *map(len, pieces)]
    ids = [*reader.prefix, *(i for one in pieces for i in one), *reader.suffix]
    return PartOfSentence(EncodedText(ids, len(ids)), number, words, np.cumsum(lengths)[:-1].tolist())


def word_logits(
    network: EncoderNetwork, typed: bool, parts: Sequence[PartOfSentence]
) -> list[Float32[np.ndarray, "words classes"]]:
    """The logits of each word, a matrix for each sentence; `typed` as for `TextReader`."""
    n = max((one.sentence for one in parts), default=-1) + 1
    together: list[list[np.ndarray]] = [[] for _ in range(n)]
    for part, logits in zip(parts, network.outputs([one.read for one in parts], typed), strict=True):
        together[part.sentence].append(logits[part.firsts])
    return [np.concatenate(one) for one in together]


def read_known_tags(path: str, tags: Sequence[str]) -> list[TaggedSentence]:
    """The sentences of a file; `UserError` for a tag that is not among `tags`."""
    found = read_tagged(path)
    check_tags(found, tags, path)
    return found


def word_offsets(given: str | Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """A text with the offsets of its words.

    >>> word_offsets("U.S. firms, 2."), word_offsets(["New York", "is"])
    (('U.S. firms, 2.', [(0, 3), (3, 4), (5, 10), (10, 11), (12, 13), (13, 14)]), ('New York is', [(0, 8), (9, 11)]))
    >>> word_offsets("हिन्दी, 北京")
    ('हिन्दी, 北京', [(0, 6), (6, 7), (8, 9), (9, 10)])
    """
    if isinstance(given, str):
        return given, [word.span() for word in word_pattern(JOINTS).finditer(given)]
    ends = np.cumsum([len(word) + 1 for word in given]).tolist()
    return " ".join(given), [(end - 1 - len(word), end - 1) for word, end in zip(given, ends, strict=True)]


def tagging(text: str, offsets: Sequence[tuple[int, int]], best: Sequence[tuple[str, float]]) -> Tagging:
    """A text with the best tag and probability of each of its words, whose characters are `offsets`."""
    tags, spans = [tag for tag, _ in best], list[Span]()
    for kind, first, behind in entities(tags):
        start, end = offsets[first][0], offsets[behind - 1][1]
        probability = sum(p for _, p in best[first:behind]) / (behind - first)
        spans.append(Span(text[start:end], kind, start, end, probability))
    return Tagging(text, [text[start:end] for start, end in offsets], tags, spans)
