"""Question answering as in docs/how-to/questions.md: `headwise train --task answer --init FOLDER`.

The models are tiny and random. They learn a few lines by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_families import vocabulary, write_tiny
from tokenizers import processors

import headwise
from headwise.models.encoding.answer import Passage, answers_in, read_passages
from headwise.text.prepared.encoded import EncodedText

Cli = Callable[..., Any]
QUICK = ["train.max_steps=90", "train.validate_every=45", "train.checkpoint_every=45", "train.log_every=45",
         "train.learning_rate=0.02", "train.warmup_steps=5", "train.threads=1", "data.max_length=30",
         "data.overlap=6"]  # fmt: skip
CONTEXTS = ["Ann is in Rome", "In Rome, Bob", "It is old, Ann says so to Bob and to all"]


def write(folder: Path, kind: str = "bert", **changes: Any) -> Path:
    """A folder whose tokenizer adds special tokens around a text or a pair of texts, like BERT's."""
    write_tiny(folder, kind, changes)
    text = vocabulary(behind=False)
    text.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    text.save(str(folder / "tokenizer.json"))
    return folder


def squad(path: Path, nothing: bool = False) -> Path:
    """Questions `who?` (Ann or Bob) and `where?` (Rome, in contexts that contain it)."""
    paragraphs = []
    for n, context in enumerate(CONTEXTS):
        who = {"id": f"who{n}", "question": "who?", "answers": [at(context, "Ann" if "Ann" in context else "Bob")]}
        where: dict[str, Any] = {"id": f"where{n}", "question": "where?", "answers": []}
        if "Rome" in context:
            where["answers"] = [at(context, "Rome")]
        elif nothing:
            where["is_impossible"] = True
        asked = [one for one in (who, where) if one["answers"] or one.get("is_impossible")]
        paragraphs.append({"context": context, "qas": asked})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def at(context: str, text: str) -> dict[str, Any]:
    return {"text": text, "answer_start": context.index(text)}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options for training and validation questions."""
    path = str(squad(tmp_path / "q.json"))
    return ["--train", path, "--valid", path]


def validations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "validation.jsonl").read_text().splitlines()]


def test_answers_are_trained_and_found(cli: Cli, files: list[str], tmp_path: Path) -> None:
    ran = cli("train", "--task", "answer", "--init", write(tmp_path / "model"), *files, "--out", tmp_path / "out",
              "--set", *QUICK)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training on 5 questions in " in ran.err
    assert "a new head for answer spans on model, instead of its head (masked)" in ran.err
    figures = validations(tmp_path / "out")
    assert [row["step"] for row in figures] == [0, 45, 90]
    assert figures[-1]["f1"] > 0.9 > figures[0]["f1"] and figures[-1]["exact_match"] >= 0.8
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["architectures"] == ["BertForQuestionAnswering"] and "id2label" not in values
    found = json.loads(cli("evaluate", tmp_path / "out", "--source", files[1], "--format", "json").out)
    best = max(figures, key=lambda row: row["f1"])
    assert found == {"exact_match": best["exact_match"], "f1": best["f1"], "questions": 5}
    rows = [line.split("\t") for line in cli("answer", tmp_path / "out", files[1]).lines]
    assert [row[0] for row in rows] == ["who0", "where0", "who1", "where1", "who2"]
    for row, n in zip(rows, (0, 0, 1, 1, 2), strict=True):
        assert CONTEXTS[n][int(row[3]) : int(row[4])] == row[1] and 0 < float(row[2]) <= 1
    official = json.loads(cli("answer", tmp_path / "out", files[1], "--format", "squad").out)
    assert official == {row[0]: row[1] for row in rows}
    (tmp_path / "text.txt").write_text(CONTEXTS[0] + "\n", encoding="utf-8")
    line = cli("answer", tmp_path / "out", tmp_path / "text.txt", "--question", "where?", "--format", "jsonl").out
    assert json.loads(line)["text"] == official["where0"]
    assert "answer, evaluate" in cli("info", tmp_path / "out").out


def test_questions_without_an_answer(cli: Cli, tmp_path: Path) -> None:
    """The answer is empty if that is likelier and allowed; files with such questions are scored this way."""
    path = squad(tmp_path / "q.json", nothing=True)
    files = ["--train", path, "--valid", path]
    ran = cli("train", "--task", "answer", "--init", write(tmp_path / "model"), *files, "--out", tmp_path / "out",
              "--set", *QUICK)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training on 6 questions in" in ran.err and ", 1 without an answer" in ran.err
    found = json.loads(cli("evaluate", tmp_path / "out", "--source", path, "--format", "json").out)
    assert found["without"] == 1 and found["f1"] == max(row["f1"] for row in validations(tmp_path / "out"))
    output = cli("answer", tmp_path / "out", path, "--unanswerable", "--format", "squad").out
    assert json.loads(output)["where2"] == "" or found["right_without"] == 0.0
    assert json.loads(cli("answer", tmp_path / "out", path, "--format", "squad").out)["where2"] != ""


def test_an_existing_head_is_fine_tuned(cli: Cli, files: list[str], tmp_path: Path) -> None:
    start = write(tmp_path / "model", architectures=["BertForQuestionAnswering"])
    ran = cli("train", "--init", start, *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=1", "train.learning_rate=1e-9")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training the head of model for answer spans" in ran.err
    before, after = (load_file(f / "model.safetensors")["qa_outputs.weight"] for f in (start, tmp_path / "out"))
    assert torch.allclose(before, after, atol=1e-6)


def test_a_resumed_run_repeats_the_uninterrupted_one(cli: Cli, files: list[str], tmp_path: Path) -> None:
    settings = [*QUICK, "train.schedule=constant", "train.tokens_per_batch=60", "train.max_steps=8"]
    settings += ["train.validate_every=4", "train.checkpoint_every=4"]
    command = ["train", "--task", "answer", "--init", write(tmp_path / "model"), *files]
    assert cli(*command, "--out", tmp_path / "whole", "--set", *settings).code == 0
    assert cli(*command, "--out", tmp_path / "parts", "--set", *settings, "train.max_steps=4").code == 0
    ran = cli(*command, "--out", tmp_path / "parts", "--set", *settings, "--resume")
    assert ran.code == 0 and "resuming after step 4" in ran.err, ran.err
    whole, parts = (load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


def test_long_contexts_are_read_in_passages(tmp_path: Path) -> None:
    """Each token is in a passage, and no passage is too long; passages with the label contain the whole answer."""
    write(tmp_path / "model", architectures=["BertForQuestionAnswering"])
    reader = headwise.load(tmp_path / "model", "cpu").reader  # type: ignore[attr-defined]
    context = CONTEXTS[2]
    found = read_passages(reader, [("who?", context), ("a" * 99, context)], 20, 4)
    assert {one.question for one in found} == {0, 1} and all(len(one) <= 20 for one in found)
    for number in (0, 1):
        own = [one for one in found if one.question == number]
        assert {place for one in own for place in one.offsets} == {(i, i + 1) for i in range(len(context))}
        assert all(set(a.offsets) & set(b.offsets) for a, b in pairwise(own))
    labelled = [one.tokens_of(11, 14) for one in found if one.question == 0]
    whole = [(one, ends) for one, ends in zip(found, labelled, strict=False) if ends != (0, 0)]
    assert whole and any(ends == (0, 0) for ends in labelled)
    for one, (first, last) in whole:
        inside = one.offsets[first - one.first : last - one.first + 1]
        assert context[inside[0][0] : inside[-1][1]] == "Ann"


def test_the_best_span_is_found_by_hand() -> None:
    """Spans that end before they start do not count; probabilities are over all spans, including the empty one on
    request.
    """
    passage = Passage(EncodedText([0, 9, 2, 5, 6, 2], 3), 0, 3, [(0, 3), (3, 8)])
    logits = np.array([[3.0, 3.0], [9, 9], [9, 9], [1, 4], [2, 0], [9, 9]], np.float32)  # spans: 5, 1 and 2
    (found,) = answers_in([("q", "Ann Lees")], [passage], [logits], nothing=False)
    assert (found.text, found.start, found.end) == ("Ann", 0, 3)
    assert found.probability == pytest.approx(float(torch.tensor([5.0, 1, 2]).softmax(0)[0]))
    (found,) = answers_in([("q", "Ann Lees")], [passage], [logits], nothing=True)
    assert (found.text, found.start) == ("", None)
    assert found.probability == pytest.approx(float(torch.tensor([5.0, 1, 2, 6]).softmax(0)[3]))
    logits[3, 1] = -9
    (found,) = answers_in([("q", "Ann Lees")], [passage], [logits], nothing=False)
    assert (found.text, found.start, found.end) == ("Lees", 4, 8)  # without the space before it


def test_bad_questions_and_options(cli: Cli, files: list[str], tmp_path: Path) -> None:
    start = write(tmp_path / "model")
    command = ["train", "--task", "answer", "--init", start, *files, "--out", tmp_path / "out"]
    assert "data.max_length = 4 leaves no room" in cli(*command, "--set", "data.max_length=4").complaint
    text = Path(files[1]).read_text(encoding="utf-8")
    Path(files[1]).write_text(text.replace('"answer_start": 10', '"answer_start": 11', 1), encoding="utf-8")
    complaint = cli(*command).complaint
    assert "q.json: data[0].paragraphs[0].qas[1]: the answer 'Rome' is not at character 11" in complaint
    assert "; it occurs at 10" in complaint
    assert "a model of bert that cannot answer questions" in cli("answer", start, files[1]).complaint
    assert not (tmp_path / "out" / "config.json").exists()


def test_part_of_the_contexts_is_held_out(cli: Cli, files: list[str], tmp_path: Path) -> None:
    ran = cli("train", "--task", "answer", "--init", write(tmp_path / "model"), *files[:2], "--valid", "30%",
              "--out", tmp_path / "out", "--set", *QUICK, "train.max_steps=2")  # fmt: skip
    assert ran.code == 0, ran.err
    corpus = json.loads((tmp_path / "out" / "training.json").read_text())["corpus"]
    assert corpus["questions"] + corpus["held_out"]["taken"] == 5 and corpus["held_out"]["taken"] in (1, 2)
