"""Answers that stand in a text: an encoder with a head for where they begin and end (extractive question answering).

Question and context are read together. A context that is longer than there is room for is read in passages that
overlap; the best span of all of them is the answer, where it has no more than `LONGEST` tokens. What speaks for no
answer is the first token, in the passage where it speaks least for it. All of it is as in the recipe of `transformers`.
Not here: files (`sightline.data.questions`), scores (`sightline.evaluate.answers`), training (`tasks.answering`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sightline.data.arranging import cut_padded
from sightline.data.labelled import MarkedTexts, collate_marked
from sightline.errors import UserError
from sightline.generation.label import BATCH_TOKENS
from sightline.generation.reading import TextReader

READ, OVERLAP = 384, 128  # tokens, where nothing says how a model was trained
LONGEST = 30  # tokens of an answer


@dataclass(frozen=True)
class Answer:
    """What a model answers."""

    text: str  # "" = nothing
    start: int | None  # its first character in the context
    end: int | None  # the one behind its last
    probability: float  # among all spans that it could have been

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Passage:
    """A question with a part of its context as a network reads them."""

    read: MarkedTexts
    question: int  # which
    first: int  # where the context begins
    places: Sequence[tuple[int, int]]  # the characters of each of its tokens

    def __len__(self) -> int:
        return len(self.read)

    def tokens_of(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last token of some characters of the context; 0 and 0 where they are not all here."""
        inside = [i for i, (a, b) in enumerate(self.places) if a < end and b > start and b > a]
        if not inside or self.places[0][0] > start or self.places[-1][1] < end:
            return 0, 0
        return self.first + inside[0], self.first + inside[-1]


def read_passages(reader: TextReader, given: Sequence[tuple[str, str]], longest: int, overlap: int) -> list[Passage]:
    """Questions with their contexts as passages of at most `longest` tokens, marks included.

    Args:
        overlap: tokens of a context that two neighbouring passages share.

    Raises:
        UserError: the vocabulary knows no mark between two texts or no characters of a token, or there is no room.
    """
    if reader.between is None or reader.placed is None or not reader.before:
        raise UserError("this model's vocabulary cannot say where in a text a token stands, or marks no two texts")
    marks = len(reader.before) + len(reader.between) + len(reader.behind)
    if longest < marks + 2:
        raise UserError(f"data.max_length = {longest} leaves no room for question and context; raise it")
    known: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    found: list[Passage] = []
    for number, (question, context) in enumerate(given):
        begun = [*reader.before, *reader.side.encode(question)[: (longest - marks) // 2], *reader.between]
        if context not in known:
            known[context] = reader.placed(context)
        ids, places = known[context]
        room = longest - len(begun) - len(reader.behind)
        for part in _parts(len(ids), room, min(overlap, room // 2)):
            read = MarkedTexts([*begun, *ids[part], *reader.behind], len(begun))
            found.append(Passage(read, number, len(begun), places[part]))
    return found


def _parts(n: int, room: int, overlap: int) -> list[slice]:
    """Parts of `n` tokens, each as long as there is room, that share `overlap` with the next.

    >>> _parts(9, 5, 2), _parts(3, 5, 2)
    ([slice(0, 5, None), slice(3, 8, None), slice(6, 9, None)], [slice(0, 3, None)])
    """
    starts = range(0, max(1, n - overlap), max(1, room - overlap))
    return [slice(start, min(n, start + room)) for start in starts]


@torch.inference_mode()
def passage_logits(
    network: Any, reader: TextReader, passages: Sequence[Passage], device: torch.device
) -> list[Float[Tensor, "length 2"]]:
    """How much speaks for each token of each passage as the first and as the last of the answer, on the CPU."""
    lengths = np.array([len(one) for one in passages], dtype=np.int64)
    order, found = np.argsort(lengths, kind="stable"), dict[int, Tensor]()
    for some in cut_padded(order, lengths[order], BATCH_TOKENS) if passages else []:
        chosen = some.tolist()
        rows = [passages[i].read for i in chosen]
        batch = collate_marked(rows, [0] * len(rows), reader.side.pad_id, reader.typed)
        logits = network(*batch.to(device).inputs).float().cpu()
        found |= {i: row[: lengths[i]] for i, row in zip(chosen, logits, strict=True)}
    return [found[i] for i in range(len(passages))]


def answers_in(
    given: Sequence[tuple[str, str]], passages: Sequence[Passage], logits: Sequence[Tensor], nothing: bool
) -> list[Answer]:
    """The best answer to each question; with `nothing` none, where more speaks for that."""
    of: list[list[tuple[Passage, Tensor]]] = [[] for _ in given]
    for passage, scores in zip(passages, logits, strict=True):
        of[passage.question].append((passage, scores))
    return [_answer(context, parts, nothing) for (_, context), parts in zip(given, of, strict=True)]


def _answer(context: str, parts: Sequence[tuple[Passage, Tensor]], nothing: bool) -> Answer:
    spans = [span_scores(scores[passage.first : passage.first + len(passage.places)]) for passage, scores in parts]
    none = torch.stack([scores[0].sum() for _, scores in parts]).min()
    best = [float(one.max()) if one.numel() else -float("inf") for one in spans]
    which = max(range(len(parts)), key=best.__getitem__)
    whole = torch.cat([*(one.flatten() for one in spans), none.view(1) if nothing else none.new_zeros(0)])
    if best[which] == -float("inf") or (nothing and float(none) > best[which]):
        return Answer("", None, None, float((none - whole.logsumexp(0)).exp()) if nothing else 0.0)
    first, last = divmod(int(spans[which].argmax()), len(spans[which]))
    places = parts[which][0].places
    start, end = places[first][0], places[last][1]
    text = context[start:end]
    start += len(text) - len(text.lstrip())  # of vocabularies whose pieces have the blank before them
    return Answer(
        text.strip(), start, start + len(text.strip()), float((spans[which].max() - whole.logsumexp(0)).exp())
    )


def span_scores(scores: Float[Tensor, "tokens 2"]) -> Float[Tensor, "tokens tokens"]:
    """How much speaks for each span, by its first and its last token; minus infinity for what is none."""
    n = len(scores)
    sums = scores[:, 0, None] + scores[None, :, 1]
    able = torch.ones(n, n, dtype=torch.bool).triu().tril(LONGEST - 1)
    return sums.masked_fill(~able, -float("inf"))
