"""Example: headwise answer runs/squad questions.json --format squad -o answers.json"""

import argparse
import json
from typing import Any

from headwise.cli.files import output
from headwise.cli.generation import pretrained_options
from headwise.cli.loading import encoding_model
from headwise.cli.options import format_option, output_option
from headwise.cli.rules import in_file
from headwise.config.settings import INTEGERS
from headwise.text.files.corpus import read_lines
from headwise.text.files.questions import Question, read_questions


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    text = "questions in SQuAD format; with --question, the text to search"
    parser.add_argument("input", type=in_file, metavar="FILE", help=text)
    parser.add_argument("--question", default="", metavar="TEXT", help="answer this question about the text in FILE")
    unanswerable = "give no answer where that is more probable than the best one"
    parser.add_argument("--unanswerable", action="store_true", help=unanswerable)
    output_option(parser)
    style = "text: answer, probability, start and end character, separated by tabs, after the id of the question; "
    style += "jsonl: the same as JSON lines; squad: for SQuAD's evaluation script"
    format_option(parser, style, ("text", "jsonl", "squad"))


def run(options: argparse.Namespace) -> None:
    """Questions in, spans of their texts out."""
    model = encoding_model(options, "answer questions; train --task answer teaches it")
    if options.question:
        questions = [Question("", options.question, "\n".join(read_lines(options.input)))]
    else:
        questions = read_questions(options.input, answered=False)
    found = model.answer([(one.question, one.context) for one in questions], unanswerable=options.unanswerable)
    with output(options.output) as file:
        if options.format == "squad":
            answers = {one.id: answer.text for one, answer in zip(questions, found, strict=True)}
            file.write(json.dumps(answers, ensure_ascii=False, indent=2) + "\n")
            return
        for one, answer in zip(questions, found, strict=True):
            file.write(_format_answer(one.id, answer, options.format) + "\n")


def _format_answer(name: str, answer: Any, style: str) -> str:
    """One answer as a line; `name` is its question's id, or "" without one."""
    named = {"id": name} if name else {}
    if style == "jsonl":
        return json.dumps(named | answer.as_record(), ensure_ascii=False)
    span = ("" if position is None else str(position) for position in (answer.start, answer.end))
    return "\t".join([*named.values(), " ".join(answer.text.split()), f"{answer.probability:.4f}", *span])
