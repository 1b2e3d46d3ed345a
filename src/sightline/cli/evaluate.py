"""`sightline score`, `sightline evaluate` and `sightline info`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, out_file, output
from sightline.cli.generate import compute_option, finite, score_text
from sightline.cli.options import (
    EITHER,
    TRANSLATES,
    decode_options,
    decode_overrides,
    document_languages,
    ensemble_option,
    glossary_options,
    language_options,
    load_as_asked,
    load_model,
    load_models,
    model_options,
    output_option,
    ray_option,
    whole,
)
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.evaluate.report import TranslationReport
    from sightline.evaluate.tuning import Tuning
    from sightline.models.model import Model

IN_MODEL = ""  # `--save` without a file


def add(commands: Any) -> None:
    """Register the commands."""
    _score_options(commands)
    _evaluate_options(commands)
    _info_options(commands)


def _score_options(commands: Any) -> None:
    parser = commands.add_parser("score", help="how probable a model finds given translations, or a text")
    model_options(parser, what=EITHER)
    compute_option(parser)
    source = "texts that were translated; of a language model the one text to score"
    parser.add_argument("--source", type=in_file, required=True, metavar="FILE", help=source)
    parser.add_argument("--target", type=in_file, metavar="FILE", help="their translations")
    stride = "of a language model: tokens between two windows; fewer take longer (default: half a window)"
    parser.add_argument("--stride", type=whole(1), default=0, metavar="N", help=stride)
    output_option(parser)
    ray_option(parser)
    language_options(parser)
    parser.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """One JSON line per pair, and the corpus perplexity on standard error; of a language model that of one text."""
    from sightline.cli.parallel_texts import parallel_texts, source_text, target_text
    from sightline.evaluate.score import corpus_perplexity

    model = load_as_asked(options)
    if hasattr(model, "perplexity") and not options.target:
        score_text(options, model)
        return
    score = model.score
    if options.stride or not options.target:
        raise UserError("--target is required for a translation model, and --stride is not for it")
    if options.compute not in (None, str(next(model.network.parameters()).dtype).removeprefix("torch.")):
        raise UserError(f"--compute {options.compute}: this model scores in float32, whatever it decodes with")
    sources, targets = parallel_texts([source_text(options.source), target_text(options.target, "--target")])
    scores = score(sources, targets)
    with output(options.output) as file:
        for score in scores:
            record = {
                "log_prob": finite(score.log_prob),
                "perplexity": finite(score.perplexity),
                "token_log_probs": [*map(finite, score.token_log_probs)],
            }
            file.write(json.dumps(record, allow_nan=False) + "\n")
    pieces = sum(len(score.token_log_probs) for score in scores)
    print(f"perplexity {corpus_perplexity(scores):.6g} over {pieces:,} pieces, {len(scores):,} pairs", file=sys.stderr)


def _evaluate_options(commands: Any) -> None:
    what = "score a model or its output on a test set: BLEU, accuracy, forecast errors, perplexity, word errors of "
    what += "transcripts, or the alignment of words"
    parser = commands.add_parser("evaluate", help=what)
    model_options(parser, needed=False, what=TRANSLATES)
    ensemble_option(parser)
    source = "text to translate, or a file of pairs as `train` takes it (.tsv, .po, .tmx, ...), which has references; "
    source += "text that a language model is to predict; of a classifier texts and labels (.tsv), of a forecaster a "
    source += ".csv file, of Whisper recordings with transcripts (.tsv, .jsonl), of a captioner pictures with captions "
    source += "(.tsv)"
    parser.add_argument("--source", type=in_file, metavar="FILE", help=source)
    hypothesis = "translations of whichever system, scored without a MODEL; with --alignments links"
    parser.add_argument("--hypothesis", type=in_file, metavar="FILE", help=hypothesis)
    reference = "one or several references, for translations; lines of text, or files of pairs"
    parser.add_argument("--reference", type=in_file, default=[], nargs="+", metavar="FILE", help=reference)
    against = "another model, with --hypothesis another file of translations, compared by paired bootstrap"
    parser.add_argument("--against", metavar="MODEL", help=against)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    multi30k = "add the tokenised, lowercased BLEU of the Multi30k literature; LANG is the target language"
    parser.add_argument("--multi30k", metavar="LANG", help=multi30k)
    tokenize = "sacreBLEU's tokenizer for BLEU (default: 13a; zh or char for references without spaces between words)"
    parser.add_argument("--tokenize", default="", metavar="NAME", help=tokenize)
    metric = "of BLEU, chrF++, TER, and for summaries in English ROUGE-1, ROUGE-2, ROUGE-L (default: BLEU chrF++ TER)"
    parser.add_argument("--metric", nargs="+", default=["BLEU", "chrF++", "TER"], metavar="NAME", help=metric)
    tune = "search validation data (never a test set) with several values of a setting, and say the best"
    parser.add_argument("--tune", choices=["length_penalty"], help=tune)
    save = "keep the translations; with --tune, and without FILE, keep the best value in MODEL"
    parser.add_argument("--save", type=out_file, nargs="?", const=IN_MODEL, metavar="FILE", help=save)
    normalizer = "of transcripts: english also makes numbers and spellings one (default: basic)"
    parser.add_argument("--normalizer", choices=("basic", "english"), help=normalizer)
    _alignment_options(parser)
    glossary_options(parser)
    ray_option(parser)
    language_options(parser)
    document_languages(parser)
    decode_options(parser, without=("n_best", "draft_length"))
    parser.set_defaults(run=run_evaluate)


def _alignment_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("alignment of words")
    gold = "gold links, i-j sure and ipj possible: the alignment error rate of the model's attention on --source and "
    gold += "--target, or of --hypothesis, links (Pharaoh format) of whichever aligner"
    group.add_argument("--alignments", type=in_file, metavar="GOLD", help=gold)
    group.add_argument(
        "--target", type=in_file, metavar="FILE", help="translation of --source that the links belong to"
    )
    group.add_argument("--reverse", metavar="MODEL", help="a model of the other direction, to join links of both")


def run_evaluate(options: argparse.Namespace) -> None:
    """Of translations BLEU, chrF++ and TER with signatures, and the settings they were decoded with; of a classifier
    accuracy and F1; of a forecaster errors beside those of naive forecasts; of a language model perplexity; of Whisper
    word errors.
    """
    if options.alignments:
        _evaluate_alignment(options)
        return
    if options.hypothesis:
        _evaluate_hypotheses(options)
        return
    if not (options.model and options.source):
        raise UserError("MODEL and --source are required, or --hypothesis")
    model = load_models(options) if options.ensemble else load_as_asked(options)
    hears = getattr(model, "reads", "") == "sound"
    if options.normalizer and not hears:
        raise UserError(f"--normalizer is for transcripts, and {options.model} hears no speech")
    if not hasattr(model, "evaluate"):
        _evaluate_translator(options, model)
        return
    said = {"language": options.source_language, "normalizer": options.normalizer or "basic"} if hears else {}
    known = ("model", "source", "device", "json", *(["source_language", "normalizer"] if said else []))
    stray = [flag for name, flag in options.flags.items() if name not in known]
    if stray:
        raise UserError(f"{stray[0]} is for translation models; {options.model} needs --source alone")
    report = model.evaluate([options.source], **said)
    print(json.dumps(report.as_json(), indent=2) if options.json else report.render())


def _evaluate_hypotheses(options: argparse.Namespace) -> None:
    from sightline.cli.parallel_texts import parallel_texts, target_text
    from sightline.evaluate.report import evaluate_text

    if not options.reference:
        raise UserError("--reference is required: the file or files to compare translations with")
    named = {"--hypothesis": [options.hypothesis], "--reference": options.reference}
    named["--against"] = [options.against] if options.against else []
    files = [target_text(path, option) for option, paths in named.items() for path in paths]
    hypotheses, *texts = parallel_texts(files, options.languages)
    others = texts.pop() if options.against else None
    _print_report(
        options, evaluate_text(hypotheses, texts, others, options.multi30k, options.tokenize, metrics=options.metric)
    )


def _evaluate_translator(options: argparse.Namespace, model: "Model") -> None:
    from sightline.cli.parallel_texts import parallel_texts, texts_to_score
    from sightline.evaluate.report import evaluate_model

    _ = model.translate  # or a `UserError`
    sources, *references = parallel_texts(texts_to_score(options.source, options.reference), options.languages)
    overrides = decode_overrides(options, model.decode_config)
    if options.tune:
        _tune(options, model, sources, references)
        return
    other = load_model(options, options.against) if options.against else None
    report = evaluate_model(
        model, sources, references, other, options.multi30k, options.tokenize, overrides, options.metric
    )
    if "glossary" in overrides:
        print(overrides["glossary"].summary(), file=sys.stderr)
    if options.save:
        with output(options.save) as file:
            file.writelines(f"{line}\n" for line in report.hypotheses)
    _print_report(options, report)


def _print_report(options: argparse.Namespace, report: "TranslationReport") -> None:
    from sightline.evaluate.report import render

    print(json.dumps(report.as_json(), indent=2) if options.json else render(report))


def _tune(options: argparse.Namespace, model: Any, sources: list[str], references: list[list[str]]) -> None:
    from sightline.evaluate.tuning import tune_length_penalty

    print("sightline: a text that a setting was chosen by no longer tests it: tune on validation data", file=sys.stderr)
    tuning = tune_length_penalty(model, sources, references, options.tokenize, decode_overrides(options))
    if options.save == IN_MODEL:
        said = tuning.describe([Path(path).name for path in (options.source, *options.reference)])
        print(f"{_keep(options.model, tuning, said)}: length_penalty is {tuning.best} from now on", file=sys.stderr)
    print(json.dumps(tuning.as_json(), indent=2) if options.json else tuning.render())


def _keep(model: str, tuning: "Tuning", said: str) -> Path:
    """Make the best value the model's own, in the words of its folder, and return that."""
    from sightline.checkpoint.hub import folder_of
    from sightline.checkpoint.model_card import DECODING, with_row
    from sightline.checkpoint.trained import write_decoding
    from sightline.checkpoint.tuned import write_length_penalty
    from sightline.config.settings import SearchSettings

    folder = folder_of(model)
    if isinstance(tuning.decoding, SearchSettings):
        write_decoding(folder, tuning.decoding, lambda card: with_row(card, DECODING, said))
    else:
        write_length_penalty(folder, tuning.best)
    return folder


def _evaluate_alignment(options: argparse.Namespace) -> None:
    from sightline.cli.parallel_texts import parallel_texts, source_text, target_text
    from sightline.data.links import check_links, read_gold, read_links
    from sightline.evaluate.alignment import score_alignment

    gold = read_gold(options.alignments)
    if options.hypothesis:
        score = score_alignment(read_links(options.hypothesis), gold)
        print(json.dumps(score.as_json(), indent=2) if options.json else score.render())
        return
    if not (options.model and options.source and options.target):
        raise UserError("--alignments needs links to score: --hypothesis, or MODEL, --source and --target")
    texts = [source_text(options.source), target_text(options.target, "--target")]
    sources, targets = parallel_texts(texts, options.languages)
    check_links(options.alignments, [pair.possible for pair in gold], sources, targets)
    model = load_model(options)
    reverse = load_model(options, options.reverse) if options.reverse else None
    score, head = score_alignment(model.align(sources, targets, reverse=reverse), gold), model.alignment_head
    report = {**score.as_json(), "head": head.as_json()}
    print(json.dumps(report, indent=2) if options.json else f"{score.render()}\n{head}")


def _info_options(commands: Any) -> None:
    parser = commands.add_parser("info", help="what a model is and how it was made, in ten lines")
    model_options(parser, what=EITHER)
    parser.add_argument("--all", action="store_true", help="every setting of the model and of its training")
    parser.set_defaults(run=run_info)


def run_info(options: argparse.Namespace) -> None:
    """Ten lines, or the configuration of a model, section by section."""
    from sightline.checkpoint.hub import folder_of
    from sightline.models.load import load
    from sightline.models.summary import summary

    model = load(options.model, options.device)
    if not options.all:
        for name, text in summary(folder_of(options.model), model).items():
            print(f"{name:<14} {text}")
        return
    info = model.info()
    for name, value in info.items():
        if not isinstance(value, dict):
            print(f"{name} = {json.dumps(value)}")
    for name, table in info.items():
        if isinstance(table, dict):
            print(f"\n[{name}]")
            for key, value in table.items():
                print(f"{key} = {json.dumps(value)}")
