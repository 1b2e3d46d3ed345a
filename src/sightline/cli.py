"""The command line: one function per subcommand, which parses, calls and prints. Logic lives elsewhere.

Output goes to standard output, everything said to the user to standard error. A mistake of the user's is one line and
exit code 2. Torch is imported by the commands that need it, so that help is instant.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import sightline
from sightline.config import CHOICES, DecodeConfig, recipe_names
from sightline.errors import UserError, unknown

if TYPE_CHECKING:
    from sightline.api import Model
    from sightline.decode.translator import Translation

Item = TypeVar("Item")
CANDIDATES, FREQUENT = 50, 200  # of a shortlist


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a mistake of the user's, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        options = parse([argument for argument in arguments if argument != "--debug"])
        options.run(options)
        sys.stdout.flush()
        return 0
    except UserError as error:
        if debug:
            raise
        print(f"sightline: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sightline: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `UserError` suggests the nearest valid command or option."""
    parser, commands = build_parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        raise unknown("command", arguments[0], commands)
    options, rest = parser.parse_known_args(arguments)
    if rest:
        known = [option for action in commands[options.command]._actions for option in action.option_strings]
        near = get_close_matches(rest[0].split("=")[0], known, n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else f"; see `sightline {options.command} --help`"
        raise UserError(f"sightline {options.command} has no use for '{rest[0]}'{hint}")
    return options


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of the subcommands by name."""
    parser = Parser(prog="sightline", description="Train a translator on your own files, and translate with it.")
    parser.add_argument("--version", action="version", version=f"sightline {sightline.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    _demo_options(commands)
    _train_options(commands)
    _translate_options(commands)
    _classify_options(commands)
    _forecast_options(commands)
    _distill_options(commands)
    _shortlist_options(commands)
    _score_options(commands)
    _evaluate_options(commands)
    _info_options(commands)
    _study_options(commands)
    return parser, dict(commands.choices)


# demo ----------------------------------------------------------------------------------------------------------------


def _demo_options(commands: Any) -> None:
    parser = commands.add_parser("demo", help="train on dates in five languages and show the result, in minutes")
    parser.add_argument("--out", default="runs/demo", help="model directory to write (default: %(default)s)")
    parser.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> None:
    """Train on the generated corpus and show what came out."""
    from sightline.demo.run import demo

    demo(Path(options.out))


# train ---------------------------------------------------------------------------------------------------------------


def _train_options(commands: Any) -> None:
    parser = commands.add_parser("train", help="train a model on aligned text files, or for another task")
    tasks = CHOICES["model.task"]
    parser.add_argument("--task", choices=tasks, default="", help="what to train for (default: the recipe's)")
    parser.add_argument("--recipe", required=True, help=f"{', '.join(recipe_names())}, or a .toml file")
    files = "source and target file, or one .tsv, .jsonl or hf:DATASET; to classify .tsv files of texts and labels, to "
    files += "forecast .csv files; several in a row; each also .gz"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=files)
    valid = "the same, to validate on; without it a forecaster keeps back the latest rows of its training files"
    parser.add_argument("--valid", nargs="+", default=[], metavar="FILE", help=valid)
    parser.add_argument("--out", required=True, metavar="DIR", help="model directory to write")
    setting = "override a setting of the recipe, for example train.max_steps=1000; may be repeated"
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    init = "start from this model's weights and tokenizer: fine-tuning, or a second stage of training"
    parser.add_argument("--init", default="", metavar="MODEL", help=init)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, exactly")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="short for --set train.seed=N")
    special = "string that is one piece wherever a text contains it, for example '<2de>'"
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help=special)
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs into --out as well")
    parser.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> None:
    """Train a model."""
    from sightline.pipeline import TrainRequest, train_model

    seed = [] if options.seed is None else [f"train.seed={options.seed}"]
    request = TrainRequest(
        recipe=options.recipe,
        train=options.train,
        valid=options.valid,
        out=options.out,
        settings=[*options.set, *seed],
        resume=options.resume,
        device=options.device,
        special=options.special,
        tensorboard=options.tensorboard,
        init=options.init,
        task=options.task,
    )
    train_model(request)


# translate -----------------------------------------------------------------------------------------------------------

DECODE_HELP = {
    "beam_size": "hypotheses kept; 1 is greedy",
    "length_penalty": "alpha of the paper's length penalty; higher favours longer output",
    "max_length_factor": "longest output = this * source pieces + --max-length-extra",
    "max_length_extra": "see --max-length-factor",
    "min_length_factor": "shortest output = this * source pieces",
    "no_repeat_ngram": "no n-gram of this size twice in an output; 0 is off",
    "n_best": "translations per line; in text output separated by tabs",
    "sample": "draw at random instead of searching",
    "temperature": "of sampling",
    "top_k": "sample from the k likeliest pieces; 0 is all",
    "top_p": "sample from the likeliest pieces with this total probability",
    "seed": "of sampling",
    "batch_tokens": "source pieces translated at once",
    "max_source_length": "longer lines are translated in parts, pieces",
    "shortlist": "write only what `sightline shortlist` has found likely for the source; faster on a CPU",
    "draft_length": "pieces guessed ahead with --draft",
    "compute": "numbers to compute with; int8 is fastest on a CPU, bfloat16 on CUDA",
}


def _decode_options(parser: argparse.ArgumentParser) -> None:
    """An option for every field of `DecodeConfig`; those not given leave the model's own setting."""
    group = parser.add_argument_group("decoding (default: the model's own settings)")
    for field in fields(DecodeConfig):
        name, text = "--" + field.name.replace("_", "-"), DECODE_HELP[field.name]
        if field.type is bool:
            group.add_argument(name, action="store_true", default=None, help=text)
        else:
            choices = CHOICES.get(f"decode.{field.name}")
            group.add_argument(name, type=field.type, choices=choices, metavar=None if choices else "N", help=text)


def _decode_overrides(options: argparse.Namespace) -> dict[str, Any]:
    given = {field.name: getattr(options, field.name) for field in fields(DecodeConfig)}
    return {name: value for name, value in given.items() if value is not None}


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="model directory")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def _translate_options(commands: Any) -> None:
    parser = commands.add_parser("translate", help="translate a file or standard input, line by line")
    _model_options(parser)
    parser.add_argument("input", nargs="?", default="-", help="text file, also .gz (default: standard input)")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="jsonl adds scores and pieces")
    parser.add_argument("--prefix", default="", help="what every translation must begin with")
    draft = "guess ahead, for a quicker answer to single sentences, the same as with --beam-size 1: 'input', "
    draft += "a smaller model's directory, or a translation memory (a file as `sightline train` takes it)"
    parser.add_argument("--draft", default="", metavar="FROM", help=draft)
    _workers_option(parser)
    _decode_options(parser)
    parser.set_defaults(run=run_translate)


def _workers_option(parser: argparse.ArgumentParser) -> None:
    workers = "processes that share the lines (default: as many as pay on this machine)"
    parser.add_argument("--workers", type=int, default=0, metavar="N", help=workers)


def run_translate(options: argparse.Namespace) -> None:
    """Translate; line in, line out."""
    from sightline.data.corpus import read_lines

    overrides = _decode_overrides(options)
    model = _load(options)
    interactive = options.input == "-" and sys.stdin.isatty()
    translations = model.translate_lines(
        _stdin_lines() if interactive else read_lines(options.input, allow_empty=True),
        options.prefix,
        chunk_lines=1 if interactive else 1000,
        workers=1 if interactive else options.workers,
        draft=options.draft,
        **overrides,
    )
    with _output(options.output) as file:
        for translation in _progress(translations, options.input):
            file.write(_format(translation, options.format) + "\n")
            if interactive:
                file.flush()


def _progress(items: Iterable[Item], *paths: str) -> Iterable[Item]:
    """A progress bar with sentences a second and time left, where somebody watches and `paths` are files."""
    from tqdm import tqdm

    if not sys.stderr.isatty() or "-" in paths:
        return items
    total = None if any(path.endswith(".gz") for path in paths) else _count_lines(paths[0])
    return tqdm(items, total=total, unit=" sentences", smoothing=0.05)


def _count_lines(path: str) -> int:
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _stdin_lines() -> Iterator[str]:
    for line in sys.stdin:
        yield line.removesuffix("\n")


def _format(translation: "Translation", style: str) -> str:
    if style == "jsonl":
        from sightline.api import as_record

        return json.dumps(as_record(translation), ensure_ascii=False)
    texts = [translation.text, *(other.text for other in translation.alternatives)]
    return "\t".join(texts) if len(texts) == 1 else "\t".join(text.replace("\t", " ") for text in texts)


# classify, forecast --------------------------------------------------------------------------------------------------


def _classify_options(commands: Any) -> None:
    parser = commands.add_parser("classify", help="find the label of every line, with a model of --task classify")
    _model_options(parser)
    parser.add_argument("input", nargs="?", default="-", help="text file, also .gz (default: standard input)")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    style = "text: label, tab, probability; jsonl adds the probabilities of all labels (default: %(default)s)"
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help=style)
    parser.set_defaults(run=run_classify)


def run_classify(options: argparse.Namespace) -> None:
    """Line in, label out."""
    from sightline.api import load_classifier
    from sightline.data.corpus import read_lines
    from sightline.data.prepared import chunks

    model = load_classifier(options.model, options.device)
    with _output(options.output) as file:
        for lines in chunks(read_lines(options.input, allow_empty=True)):
            for found in model.classify(lines):
                text = f"{found.label}\t{found.probability:.4f}"
                line = text if options.format == "text" else json.dumps(found.as_record(), ensure_ascii=False)
                file.write(line + "\n")


def _forecast_options(commands: Any) -> None:
    parser = commands.add_parser("forecast", help="continue a time series, with a model of --task forecast")
    _model_options(parser)
    parser.add_argument("input", metavar="INPUT.csv", help="CSV file with the columns of the training; also .gz")
    parser.add_argument("-o", "--output", default="-", help="CSV file to write (default: standard output)")
    parser.set_defaults(run=run_forecast)


def run_forecast(options: argparse.Namespace) -> None:
    """The values after the last row, one a line."""
    from sightline.api import load_forecaster

    model = load_forecaster(options.model, options.device)
    values = model.forecast(options.input)
    with _output(options.output) as file:
        file.write(f"step,{model.scaling.target}\n")
        file.writelines(f"{step},{value:.6g}\n" for step, value in enumerate(values, start=1))


# distill -------------------------------------------------------------------------------------------------------------


def _distill_options(commands: Any) -> None:
    parser = commands.add_parser("distill", help="write a model's translations of a corpus, to train a smaller one on")
    _model_options(parser)
    files = "the corpus, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=files)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.jsonl", help="corpus to write")
    interpolate = "take the translation of the n-best list that is closest to the reference, not the likeliest"
    parser.add_argument("--interpolate", action="store_true", help=interpolate)
    _workers_option(parser)
    _decode_options(parser)
    parser.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """A corpus with the model's translations for targets, one JSON object a line."""
    from sightline.data.corpus import parse_corpora, read_pairs
    from sightline.distill import distill

    if not options.output.endswith(".jsonl"):
        raise UserError(f"-o {options.output}: give it the ending .jsonl, by which `sightline train` knows the format")
    model = _load(options)
    overrides = _decode_overrides(options)
    if options.interpolate and "n_best" not in overrides:
        overrides["n_best"] = overrides.get("beam_size", model.decode_config.beam_size)

    def translate(lines: Iterable[str]) -> Iterator["Translation"]:
        return model.translate_lines(lines, workers=options.workers, **overrides)

    pairs = distill(read_pairs(parse_corpora(options.train)), translate, options.interpolate)
    with _output(options.output) as file:
        for src, tgt in _progress(pairs, *options.train):
            file.write(json.dumps({"src": src, "tgt": tgt}, ensure_ascii=False) + "\n")


# shortlist -----------------------------------------------------------------------------------------------------------


def _shortlist_options(commands: Any) -> None:
    parser = commands.add_parser("shortlist", help="learn which pieces translate which, for translate --shortlist")
    parser.add_argument("model", metavar="MODEL", help="model directory, which the shortlist is written into")
    files = "the training data, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=files)
    candidates = "target pieces for each source piece (default: %(default)s)"
    parser.add_argument("--candidates", type=int, default=CANDIDATES, metavar="N", help=candidates)
    frequent = "most frequent target pieces, allowed everywhere (default: %(default)s)"
    parser.add_argument("--frequent", type=int, default=FREQUENT, metavar="M", help=frequent)
    parser.set_defaults(run=run_shortlist)


def run_shortlist(options: argparse.Namespace) -> None:
    """Write the shortlist of a model."""
    from sightline.data.corpus import parse_corpora
    from sightline.data.prepared import prepare, spool
    from sightline.data.shortlist import learn_shortlist
    from sightline.model_directory import read_model_directory, write_shortlist

    if options.candidates < 1 or options.frequent < 1:
        raise UserError("--candidates and --frequent must be at least 1")
    directory = read_model_directory(options.model)
    corpus = prepare(spool(parse_corpora(options.train)), directory.tokenizer, directory.config.data)
    shortlist = learn_shortlist(corpus, directory.tokenizer.vocab_size, options.candidates, options.frequent)
    path = write_shortlist(Path(options.model), shortlist, directory.tokenizer)
    print(f"{path}: learnt from {len(corpus):,} pairs; use it with --shortlist", file=sys.stderr)


# score, evaluate, info -----------------------------------------------------------------------------------------------


def _score_options(commands: Any) -> None:
    parser = commands.add_parser("score", help="how probable a model finds given translations")
    _model_options(parser)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    parser.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """One JSON line per pair, and the corpus perplexity on standard error."""
    from sightline.evaluate.score import corpus_perplexity

    sources, targets = _aligned(options.source, options.target)
    scores = _load(options).score(sources, targets)
    with _output(options.output) as file:
        for score in scores:
            record = {
                "log_prob": score.log_prob,
                "perplexity": score.perplexity,
                "token_log_probs": score.token_log_probs,
            }
            file.write(json.dumps(record) + "\n")
    pieces = sum(len(score.token_log_probs) for score in scores)
    print(f"perplexity {corpus_perplexity(scores):.4f} over {pieces:,} pieces, {len(scores):,} pairs", file=sys.stderr)


def _evaluate_options(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="score a model on a test set: BLEU, accuracy, or forecast errors")
    _model_options(parser)
    source = "text to translate; of a classifier texts and labels (.tsv), of a forecaster a .csv file"
    parser.add_argument("--source", required=True, metavar="FILE", help=source)
    reference = "one or several references, for a translation model"
    parser.add_argument("--reference", default=[], nargs="+", metavar="FILE", help=reference)
    parser.add_argument("--against", metavar="MODEL", help="another model, compared by paired bootstrap")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    multi30k = "add the tokenised, lowercased BLEU of the Multi30k literature; LANG is the target language"
    parser.add_argument("--multi30k", metavar="LANG", help=multi30k)
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's tokenizer for BLEU (default: %(default)s)")
    parser.add_argument("--save", metavar="FILE", help="keep the translations")
    _decode_options(parser)
    parser.set_defaults(run=run_evaluate)


def run_evaluate(options: argparse.Namespace) -> None:
    """Of a translation model BLEU, chrF++ and TER with signatures, and the settings they were decoded with; of a
    classifier accuracy and F1; of a forecaster errors beside those of naive forecasts.
    """
    from sightline.api import load
    from sightline.model_directory import task_of

    if task_of(options.model) == "translate":
        _evaluate_translator(options)
        return
    given = ["--reference"] if options.reference else []
    given += [f"--{name}" for name in ("against", "multi30k", "save") if getattr(options, name)]
    given += ["--" + name.replace("_", "-") for name in _decode_overrides(options)]
    if given:
        raise UserError(f"{given[0]} is for translation models; {options.model} needs --source alone")
    report = load(options.model, options.device).evaluate([options.source])
    print(json.dumps(report.as_json(), indent=2) if options.json else report.render())


def _evaluate_translator(options: argparse.Namespace) -> None:
    from sightline.evaluate.report import evaluate_model, render

    if not options.reference:
        raise UserError("--reference is required: the file or files to compare translations with")
    sources, *references = _aligned(options.source, *options.reference)
    model = _load(options)
    other = _load(options, options.against) if options.against else None
    report = evaluate_model(
        model, sources, references, other, options.multi30k, options.tokenize, _decode_overrides(options)
    )
    if options.save:
        with _output(options.save) as file:
            file.writelines(f"{line}\n" for line in report.hypotheses)
    print(json.dumps(report.as_json(), indent=2) if options.json else render(report))


def _info_options(commands: Any) -> None:
    parser = commands.add_parser("info", help="what a model is and how it was made")
    _model_options(parser)
    parser.set_defaults(run=run_info)


def run_info(options: argparse.Namespace) -> None:
    """The configuration of a model, section by section."""
    from sightline.api import load

    for name, value in load(options.model, options.device).info().items():
        if isinstance(value, dict):
            print(f"\n[{name}]")
            for key, inner in value.items():
                print(f"{key} = {json.dumps(inner)}")
        else:
            print(f"{name} = {json.dumps(value)}")


# study ---------------------------------------------------------------------------------------------------------------


def _study_options(commands: Any) -> None:
    parser = commands.add_parser("study", help="measure the claims made for attention and write a report")
    parser.add_argument("--out", default="runs/study", metavar="DIR", help="folder to write (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="everything small, in some minutes on two CPU cores")
    only = "measure these claims alone, for example sequential or order"
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help=only)
    seeds = "repeat each measurement so often (default: what each claim needs)"
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help=seeds)
    data = "folder of the corpora multi30k, tatoeba and lm, each used where it is there"
    parser.add_argument("--data", metavar="DIR", help=data)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.set_defaults(run=run_study)


def run_study(options: argparse.Namespace) -> None:
    """Measure what is not measured yet, and say where the report is."""
    from sightline.study.run import request_of, study

    for line in study(
        request_of(options.out, options.quick, options.only, options.seeds, options.data, options.device)
    ):
        print(line)


# files ---------------------------------------------------------------------------------------------------------------


def _load(options: argparse.Namespace, path: str | None = None) -> "Model":
    """A translation model."""
    from sightline.api import load_translator

    return load_translator(path or options.model, options.device)


def _aligned(*paths: str) -> list[list[str]]:
    """The lines of files that must have as many lines each."""
    from sightline.data.corpus import read_lines

    columns = [list(read_lines(path)) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            raise UserError(
                f"{paths[0]} has {len(columns[0]):,} lines but {path} has {len(column):,}; line n must belong to line n"
            )
    return columns


@contextmanager
def _output(path: str) -> Iterator[TextIO]:
    """Standard output, or a file that appears under its name when it is complete."""
    if path == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise UserError(f"-o {path}: {'is a folder' if target.is_dir() else 'its folder does not exist'}; name a file")
    special = target.exists() and not target.is_file()  # a device or a pipe is written to, never replaced
    target = target if special else target.resolve()
    draft = target if special else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        if not special:
            draft.replace(target)
    except OSError as error:
        raise UserError(f"-o {path}: cannot be written ({error.strerror})") from None
    finally:
        if not special:
            draft.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
