"""`sightline classify`, `sightline tag`, `sightline answer` and `sightline forecast`: models of other tasks at work."""

import argparse
import json
from itertools import count
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, lines_of, output
from sightline.cli.generate import compute_option, family_model
from sightline.cli.options import EITHER, FAMILY, input_option, model_options, output_option

if TYPE_CHECKING:
    from sightline.generation.answer import Answer
    from sightline.generation.tag import Tagging


def add(commands: Any) -> None:
    """Register the commands."""
    _classify_options(commands)
    _tag_options(commands)
    _answer_options(commands)
    _forecast_options(commands)


def _classify_options(commands: Any) -> None:
    parser = commands.add_parser("classify", help="find the label of every line")
    model_options(parser, what=EITHER)
    input_option(parser)
    output_option(parser)
    style = "text: label, tab, probability; jsonl adds the probabilities of all labels (default: %(default)s)"
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help=style)
    parser.set_defaults(run=run_classify)


def run_classify(options: argparse.Namespace) -> None:
    """Line in, label out."""
    from sightline.data.prepared import chunks
    from sightline.models.load import load_task

    model: Any = load_task("classify", options.model, options.device, published=True)
    classify, published = model.classify, model.reads == "text"  # or a `UserError`
    with output(options.output) as file:
        for lines in chunks(lines_of(options.input, "classify")):
            for found in classify([tuple(line.split("\t")) for line in lines] if published else lines):
                text = f"{found.label}\t{found.probability:.4f}"
                line = text if options.format == "text" else json.dumps(found.as_record(), ensure_ascii=False)
                file.write(line + "\n")


def _tag_options(commands: Any) -> None:
    parser = commands.add_parser("tag", help="find names, or whatever a model of --task tag marks, in every line")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    input_option(parser)
    output_option(parser)
    parser.add_argument("--words", action="store_true", help="the lines are cut into words already, by blanks")
    style = "text: line, first character, the one behind the last, what it is, probability and text of each find, with "
    style += "tabs; conll: word and tag a line; jsonl has both for each line (default: %(default)s)"
    parser.add_argument("--format", choices=("text", "conll", "jsonl"), default="text", help=style)
    parser.set_defaults(run=run_tag)


def run_tag(options: argparse.Namespace) -> None:
    """Line in, what is marked in it out."""
    from sightline.data.prepared import chunks

    model, numbers = family_model(options, "tag", "tag words; train --task tag teaches it"), count(1)
    with output(options.output) as file:
        for lines in chunks(lines_of(options.input, "tag")):
            for found in model.tag([line.split() for line in lines] if options.words else lines):
                file.write(format_tags(found, next(numbers), options.format))


def format_tags(found: "Tagging", number: int, style: str) -> str:
    """What is written of line `number`, with its line ends."""
    if style == "jsonl":
        return json.dumps(found.as_record(), ensure_ascii=False) + "\n"
    if style == "conll":
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(found.words, found.tags, strict=True)) + "\n"
    rows = ((number, s.start, s.end, s.label, f"{s.probability:.4f}", " ".join(s.text.split())) for s in found.spans)
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def _answer_options(commands: Any) -> None:
    parser = commands.add_parser("answer", help="find the answer to a question in a text, or those of a SQuAD file")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    parser.add_argument(
        "input", type=in_file, metavar="FILE", help="questions as SQuAD has them; or the text to look in"
    )
    parser.add_argument("--question", default="", metavar="TEXT", help="what is asked of the text in FILE")
    parser.add_argument("--unanswerable", action="store_true", help="where more speaks for it, the answer is none")
    output_option(parser)
    style = "text: the question's id in a file, answer, probability, first character and the one behind the last, with "
    style += "tabs; jsonl; squad: the answer of each id, for SQuAD's own script (default: %(default)s)"
    parser.add_argument("--format", choices=("text", "jsonl", "squad"), default="text", help=style)
    parser.set_defaults(run=run_answer)


def run_answer(options: argparse.Namespace) -> None:
    """Questions in, stretches of their texts out."""
    from sightline.data.corpus import read_lines
    from sightline.data.questions import Question, read_questions

    model = family_model(options, "answer", "answer questions; train --task answer teaches it")
    if options.question:
        asked = [Question("", options.question, "\n".join(read_lines(options.input)))]
    else:
        asked = read_questions(options.input, answered=False)
    found = model.answer([(one.question, one.context) for one in asked], unanswerable=options.unanswerable)
    with output(options.output) as file:
        if options.format == "squad":
            answers = {one.id: answer.text for one, answer in zip(asked, found, strict=True)}
            file.write(json.dumps(answers, ensure_ascii=False, indent=2) + "\n")
            return
        for one, answer in zip(asked, found, strict=True):
            file.write(format_answer(one.id, answer, options.format) + "\n")


def format_answer(name: str, answer: "Answer", style: str) -> str:
    """One answer as a line; `name` is its question's, "" where there is none."""
    named = {"id": name} if name else {}
    if style == "jsonl":
        return json.dumps(named | answer.as_record(), ensure_ascii=False)
    places = ("" if place is None else str(place) for place in (answer.start, answer.end))
    return "\t".join([*named.values(), " ".join(answer.text.split()), f"{answer.probability:.4f}", *places])


def _forecast_options(commands: Any) -> None:
    parser = commands.add_parser("forecast", help="continue a time series, with a model of --task forecast")
    model_options(parser)
    parser.add_argument(
        "input", type=in_file, metavar="INPUT.csv", help="CSV file with the columns of the training; also .gz"
    )
    output_option(parser, "CSV file to write")
    parser.set_defaults(run=run_forecast)


def run_forecast(options: argparse.Namespace) -> None:
    """The values after the last row, one a line."""
    from sightline.models.load import load_task

    model: Any = load_task("forecast", options.model, options.device)
    values = model.forecast(options.input)
    with output(options.output) as file:
        file.write(f"step,{model.scaling.target}\n")
        file.writelines(f"{step},{value:.6g}\n" for step, value in enumerate(values, start=1))
