"""Questions with contexts and answers: read files in SQuAD format, version 1.1 or 2.0.

An answer is a span of its context, given by its text and its start; a span that does not match the context is an error.
Version 2.0 has unanswerable questions (`is_impossible`). Inputs of the network are in
`headwise.models.encoding.answer`, scores in `headwise.evaluate.answers`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwise.errors import UserError
from headwise.text.files.corpus import read_raw_lines
from headwise.text.files.sources import display_name

FORMAT = '{"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", "answers": [...]}]}]}]}'


@dataclass(frozen=True)
class AnswerSpan:
    """A span of a text."""

    text: str
    start: int  # offset of the first character

    @property
    def end(self) -> int:
        """The offset after the last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question of a file."""

    id: str
    question: str
    context: str
    answers: tuple[AnswerSpan, ...] | None = ()  # empty: unanswerable; None: not given


def read_questions(path: str, answered: bool = True) -> list[Question]:
    """The questions of a file, in order.

    Args:
        answered: every question must have an answer or be marked as impossible.

    Raises:
        UserError: the file is malformed, an answer does not match its context, or as `read_raw_lines`.
    """
    name = display_name(path)
    try:
        content = json.loads(b"".join(read_raw_lines(path)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: is not JSON ({error}); write {FORMAT}") from error
    found = list(_questions(content, name))
    if not found:
        raise UserError(f"{name}: has no questions; write {FORMAT}")
    unanswered = next((one for one in found if one.answers is None), None)
    if unanswered and answered:
        raise UserError(f'{name}: question {unanswered.id} has neither "answers" nor "is_impossible": true')
    return found


def _questions(content: Any, name: str) -> Iterator[Question]:
    for i, article in enumerate(_items(content, "data", name)):
        for k, paragraph in enumerate(_items(article, "paragraphs", f"{name}: data[{i}]")):
            location = f"{name}: data[{i}].paragraphs[{k}]"
            context = _text(paragraph, "context", location)
            for n, one in enumerate(_items(paragraph, "qas", location)):
                at = f"{location}.qas[{n}]"
                yield Question(str(one.get("id", at)), _text(one, "question", at), context, _answers(one, context, at))


def _answers(one: Mapping[str, Any], context: str, location: str) -> tuple[AnswerSpan, ...] | None:
    if one.get("is_impossible"):
        return ()
    found = [
        _span(answer, context, location) for answer in (one.get("answers") and _items(one, "answers", location)) or []
    ]
    return tuple(found) or None


def _span(answer: Mapping[str, Any], context: str, location: str) -> AnswerSpan:
    text, start = _text(answer, "text", location), answer.get("answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise UserError(f'{location}: "answer_start" must be a number of characters, not {start!r}')
    found = context[start : start + len(text)] if start >= 0 else ""
    if not text or found != text:
        near = context.find(text) if text else -1
        hint = f"; it occurs at {near}" if near >= 0 else ", nor anywhere else in it" if text else ""
        raise UserError(f"{location}: the answer '{text[:60]}' is not at character {start} of its context{hint}")
    return AnswerSpan(text, start)


def _items(value: Any, key: str, location: str) -> list[Any]:
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UserError(f'{location}: has no list "{key}" of objects; write {FORMAT}')
    return items


def _text(value: Mapping[str, Any], key: str, location: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise UserError(f'{location}: has no text "{key}"; write {FORMAT}')
    return text
