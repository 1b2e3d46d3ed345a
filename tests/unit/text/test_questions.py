"""Files of questions in SQuAD format."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.text.files.questions import AnswerSpan, Question, read_questions

CONTEXT = "The Rhine flows through Basel."


def written(folder: Path, *asked: dict[str, Any], context: Any = CONTEXT, name: str = "q.json") -> str:
    content = {"version": "1.1", "data": [{"title": "Rhine", "paragraphs": [{"context": context, "qas": list(asked)}]}]}
    path, text = folder / name, json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return str(path)


def asks(answer: Any = "Basel", start: Any = 24, **more: Any) -> dict[str, Any]:
    return {"id": "a", "question": "Where?", "answers": [{"text": answer, "answer_start": start}], **more}


@pytest.mark.parametrize("name", ["q.json", "q.json.gz"])
def test_questions(tmp_path: Path, name: str) -> None:
    none = {"id": "b", "question": "Why?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    assert read_questions(written(tmp_path, asks(), none, name=name)) == [
        Question("a", "Where?", CONTEXT, (AnswerSpan("Basel", 24),)),
        Question("b", "Why?", CONTEXT, ()),
    ]
    bare = written(tmp_path, {"id": "c", "question": "Who?"})
    assert read_questions(bare, answered=False) == [Question("c", "Who?", CONTEXT, None)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (asks(start=23), "q.json: data[0].paragraphs[0].qas[0]: the answer 'Basel' is not at character 23 of"),
        (asks(start=-6), "is not at character -6"),
        (asks(start=999), "is not at character 999 of its context; it occurs at 24"),
        (asks("Bern"), "the answer 'Bern' is not at character 24 of its context, nor anywhere else in it"),
        (asks(""), "the answer '' is not at character"),
        (asks(start="24"), "\"answer_start\" must be a number of characters, not '24'"),
        (asks(7), 'has no text "text"'),
        ({"id": "c", "question": "Who?"}, 'question c has neither "answers" nor "is_impossible": true'),
        ({"id": "c", "question": "Who?", "answers": []}, 'question c has neither "answers"'),
        ({"id": "c"}, 'qas[0]: has no text "question"'),
    ],
)  # fmt: skip
def test_bad_questions(tmp_path: Path, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read_questions(written(tmp_path, asked))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "q.json: is not JSON"),
        ("[1]", 'q.json: has no list "data" of objects; write {"data": [{"paragraphs"'),
        ('{"data": []}', "q.json: has no questions"),
        ('{"data": [{"paragraphs": 3}]}', 'q.json: data[0]: has no list "paragraphs"'),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', 'data[0].paragraphs[0]: has no text "context"'),
    ],
)
def test_bad_files(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "q.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_questions(str(tmp_path / "q.json"))
    assert expected in str(caught.value)
