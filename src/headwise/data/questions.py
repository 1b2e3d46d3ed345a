"""Questions with a text that holds their answer: files as SQuAD has them, of version 1.1 or 2.0.

An answer is a stretch of its context, said by its text and its first character, and must stand there: a span outside of
its context is refused. Version 2.0 has questions without an answer (`is_impossible`). Not here: what a network reads of
them (`headwise.generation.answer`), scores (`headwise.evaluate.answers`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwise.data.corpus import read_raw_lines
from headwise.data.sources import display_name
from headwise.errors import UserError

FORMAT = '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", "answers": [...]}]}]}]}'


@dataclass(frozen=True)
class AnswerSpan:
    """A stretch of a text."""

    text: str
    start: int  # first character

    @property
    def end(self) -> int:
        """The character behind the last."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """One of a file."""

    id: str
    question: str
    context: str
    answers: tuple[AnswerSpan, ...] | None = ()  # none: the context does not say; None: nobody has written them down


def read_questions(path: str, answered: bool = True) -> list[Question]:
    """The questions of a file, in its order.

    Args:
        answered: each must have an answer, or say that it has none.

    Raises:
        UserError: it is no such file, an answer stands outside of its context, or what `read_raw_lines` raises.
    """
    name = display_name(path)
    try:
        content = json.loads(b"".join(read_raw_lines(path)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: is not JSON ({error}); questions come as {FORMAT}") from error
    found = list(_questions(content, name))
    if not found:
        raise UserError(f"{name}: has no question; write {FORMAT}")
    bare = next((one for one in found if one.answers is None), None)
    if bare and answered:
        raise UserError(f'{name}: question {bare.id} has no "answers", and no "is_impossible": true either')
    return found


def _questions(content: Any, name: str) -> Iterator[Question]:
    for i, article in enumerate(_items(content, "data", name)):
        for k, paragraph in enumerate(_items(article, "paragraphs", f"{name}: data[{i}]")):
            place = f"{name}: data[{i}].paragraphs[{k}]"
            context = _text(paragraph, "context", place)
            for n, one in enumerate(_items(paragraph, "qas", place)):
                at = f"{place}.qas[{n}]"
                yield Question(str(one.get("id", at)), _text(one, "question", at), context, _answers(one, context, at))


def _answers(one: Mapping[str, Any], context: str, place: str) -> tuple[AnswerSpan, ...] | None:
    if one.get("is_impossible"):
        return ()
    found = [_span(answer, context, place) for answer in (one.get("answers") and _items(one, "answers", place)) or []]
    return tuple(found) or None


def _span(answer: Mapping[str, Any], context: str, place: str) -> AnswerSpan:
    text, start = _text(answer, "text", place), answer.get("answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise UserError(f'{place}: "answer_start" must be a number of characters, not {start!r}')
    there = context[start : start + len(text)] if start >= 0 else ""
    if not text or there != text:
        near = context.find(text) if text else -1
        hint = f"; it stands at {near}" if near >= 0 else ", nor anywhere else in it" if text else ""
        raise UserError(f"{place}: the answer '{text[:60]}' does not stand at character {start} of its context{hint}")
    return AnswerSpan(text, start)


def _items(value: Any, key: str, place: str) -> list[Any]:
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UserError(f'{place}: has no list "{key}" of objects; write {FORMAT}')
    return items


def _text(value: Mapping[str, Any], key: str, place: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise UserError(f'{place}: has no text "{key}"; write {FORMAT}')
    return text
