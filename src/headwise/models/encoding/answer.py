"""Extractive question answering: an encoder with a head for the start and the end of answers.

Question and context are read together, long contexts in overlapping passages. The answer is the best span of all
passages, at most `LONGEST` tokens long. The score of no answer is that of the first token, the lowest over all
passages. All this is as in the example of `transformers`. See `headwise.text.files.questions` for files,
`headwise.evaluate.answers` for scores and `pytorch.tasks.answering` for training.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from headwise.errors import UserError
from headwise.models.encoding.library_encoder import EncoderNetwork
from headwise.models.encoding.reading import TextReader
from headwise.text.prepared.encoded import EncodedText

READ, OVERLAP = 384, 128  # tokens, unless the folder says how the model was trained
LONGEST = 30  # tokens of an answer


@dataclass(frozen=True)
class Answer:
    """The answer to a question."""

    text: str  # "" = no answer
    start: int | None  # its first character in the context
    end: int | None  # the one after its last
    probability: float  # among all possible spans

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Passage:
    """A question with a part of its context, as input of the network."""

    read: EncodedText
    question: int  # its number
    first: int  # position of the first token of the context
    offsets: Sequence[tuple[int, int]]  # the characters of each of its tokens

    def __len__(self) -> int:
        return len(self.read)

    def tokens_of(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last token of some characters of the context; 0 and 0 if some are not in here."""
        inside = [i for i, (a, b) in enumerate(self.offsets) if a < end and b > start and b > a]
        if not inside or self.offsets[0][0] > start or self.offsets[-1][1] < end:
            return 0, 0
        return self.first + inside[0], self.first + inside[-1]


def read_passages(reader: TextReader, given: Sequence[tuple[str, str]], longest: int, overlap: int) -> list[Passage]:
    """Questions with their contexts as passages of at most `longest` tokens, special tokens included.

    Args:
        overlap: tokens of a context that two neighbouring passages share.

    Raises:
        UserError: the vocabulary has no separator of two texts or no offsets of tokens, or there is no room.
    """
    if reader.separator is None or reader.encode_with_offsets is None or not reader.prefix:
        raise UserError("this model's vocabulary has no offsets of tokens, or no separator of two texts")
    n_special = len(reader.prefix) + len(reader.separator) + len(reader.suffix)
    if longest < n_special + 2:
        raise UserError(f"data.max_length = {longest} leaves no room for question and context; raise it")
    known: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    found: list[Passage] = []
    for number, (question, context) in enumerate(given):
        prefix = [*reader.prefix, *reader.tokenizer.encode(question)[: (longest - n_special) // 2], *reader.separator]
        if context not in known:
            known[context] = reader.encode_with_offsets(context)
        ids, offsets = known[context]
        room = longest - len(prefix) - len(reader.suffix)
        for part in _parts(len(ids), room, min(overlap, room // 2)):
            read = EncodedText([*prefix, *ids[part], *reader.suffix], len(prefix))
            found.append(Passage(read, number, len(prefix), offsets[part]))
    return found


def _parts(n: int, room: int, overlap: int) -> list[slice]:
    """Parts of `n` tokens with `room` tokens each, which share `overlap` with the next.

    >>> _parts(9, 5, 2), _parts(3, 5, 2)
    ([slice(0, 5, None), slice(3, 8, None), slice(6, 9, None)], [slice(0, 3, None)])
    """
    starts = range(0, max(1, n - overlap), max(1, room - overlap))
    return [slice(start, min(n, start + room)) for start in starts]


def passage_logits(
    network: EncoderNetwork, typed: bool, passages: Sequence[Passage]
) -> list[Float32[np.ndarray, "length 2"]]:
    """The logits of each token of each passage for the start and the end of the answer; `typed` as for `TextReader`."""
    return network.outputs([one.read for one in passages], typed)


def answers_in(
    given: Sequence[tuple[str, str]], passages: Sequence[Passage], logits: Sequence[np.ndarray], nothing: bool
) -> list[Answer]:
    """The best answer to each question; with `nothing` also no answer, if its score is higher."""
    of: list[list[tuple[Passage, np.ndarray]]] = [[] for _ in given]
    for passage, scores in zip(passages, logits, strict=True):
        of[passage.question].append((passage, scores))
    return [_answer(context, parts, nothing) for (_, context), parts in zip(given, of, strict=True)]


def _answer(context: str, parts: Sequence[tuple[Passage, np.ndarray]], nothing: bool) -> Answer:
    spans = [span_scores(scores[passage.first : passage.first + len(passage.offsets)]) for passage, scores in parts]
    none = min(float(scores[0].sum()) for _, scores in parts)
    best = [float(one.max()) if one.size else -float("inf") for one in spans]
    which = max(range(len(parts)), key=best.__getitem__)
    whole = _log_sum([*(one.ravel() for one in spans), np.array([none] if nothing else [])])
    if best[which] == -float("inf") or (nothing and none > best[which]):
        return Answer("", None, None, math.exp(none - whole) if nothing else 0.0)
    first, last = divmod(int(spans[which].argmax()), len(spans[which]))
    offsets = parts[which][0].offsets
    start, end = offsets[first][0], offsets[last][1]
    text = context[start:end]
    start += len(text) - len(text.lstrip())  # offsets may include the space before a word
    return Answer(text.strip(), start, start + len(text.strip()), math.exp(best[which] - whole))


def _log_sum(parts: Sequence[np.ndarray]) -> float:
    """log sum exp of all numbers, in float64; minus infinity if there is none."""
    scores = np.concatenate(parts).astype(np.float64)
    highest = scores.max(initial=-np.inf)
    return float(highest + np.log(np.exp(scores - highest).sum())) if np.isfinite(highest) else float(highest)


def span_scores(scores: Float32[np.ndarray, "tokens 2"]) -> Float32[np.ndarray, "tokens tokens"]:
    """The score of each span, by its first and its last token; minus infinity for impossible ones."""
    n = len(scores)
    sums = scores[:, :1] + scores[:, 1]
    possible = np.tril(np.triu(np.ones((n, n), bool)), LONGEST - 1)
    return np.where(possible, sums, np.float32(-np.inf))
