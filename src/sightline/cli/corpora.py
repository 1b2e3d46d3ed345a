"""What is written or learnt from a corpus: `sightline distill`, `backtranslate`, `annotate` and `shortlist`."""

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, lines_of, out_file, output, progress
from sightline.cli.options import (
    TRANSLATES,
    decode_options,
    decode_overrides,
    document_languages,
    ensemble_option,
    language_options,
    load_model,
    load_models,
    model_options,
    ray_option,
    whole,
    workers_option,
)
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.data.rows import Pair
    from sightline.decode.translator import Translation

CANDIDATES, FREQUENT = 50, 200  # of a shortlist


def add(commands: Any) -> None:
    """Register the commands."""
    _distill_options(commands)
    _backtranslate_options(commands)
    _annotate_options(commands)
    _shortlist_options(commands)


def _distill_options(commands: Any) -> None:
    parser = commands.add_parser("distill", help="write a model's translations of a corpus, to train a smaller one on")
    model_options(parser, what=TRANSLATES)
    ensemble_option(parser)
    files = "the corpus, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    _corpus_option(parser)
    interpolate = "take the translation of the n-best list that is closest to the reference, not the likeliest"
    parser.add_argument("--interpolate", action="store_true", help=interpolate)
    workers_option(parser)
    ray_option(parser)
    n_best = "translations of each text, a pair for each different one; with --interpolate what there is to choose from"
    language_options(parser)
    decode_options(parser, without=("draft_length",), n_best=n_best)
    parser.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """A corpus with the model's translations for targets."""
    from sightline.corpora.distill import distill
    from sightline.data.corpus import parse_corpora, read_pairs

    as_line = _format(options.output)
    model = load_models(options)
    overrides = decode_overrides(options, model.decode_config)
    if options.interpolate and "n_best" not in overrides:
        overrides["n_best"] = overrides.get("beam_size", model.decode_config.beam_size)

    translate = _translator(options, model, overrides, options.train)
    _write(options.output, as_line, distill(read_pairs(parse_corpora(options.train)), translate, options.interpolate))


def _backtranslate_options(commands: Any) -> None:
    text = "write pairs from text of the target language, which a model of the other direction translates back"
    parser = commands.add_parser("backtranslate", help=text)
    model_options(parser, what=f"{TRANSLATES}, which translates the text into the language to translate from")
    ensemble_option(parser)
    files = "text of the language to translate into, a line each; also .gz"
    parser.add_argument("--text", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    _corpus_option(parser)
    tag = "put this before every source, for example '<bt>', so that the model learns to know what a machine wrote"
    parser.add_argument("--tag", default="", metavar="TOKEN", help=tag)
    workers_option(parser)
    ray_option(parser)
    language_options(parser)
    decode_options(parser, without=("draft_length", "n_best"))
    parser.set_defaults(run=run_backtranslate)


def run_backtranslate(options: argparse.Namespace) -> None:
    """A corpus whose targets are the lines of the text and whose sources are the model's."""
    from sightline.corpora.backtranslation import back_translate

    as_line = _format(options.output)
    model = load_models(options)
    overrides = decode_overrides(options, model.decode_config)

    translate = _translator(options, model, overrides | {"n_best": 1}, options.text)
    left_out: Counter[str] = Counter()
    lines = chain.from_iterable(lines_of(path, "backtranslate") for path in options.text)
    written = _write(options.output, as_line, back_translate(lines, translate, options.tag, left_out))
    reasons = "".join(f"; left out {count:,} for: {reason}" for reason, count in left_out.items())
    said = f"{options.output}: {written:,} pairs of {written + left_out.total():,} lines{reasons}"
    more = f" {shlex.quote(options.output)}" + (f" --special {shlex.quote(options.tag)}" if options.tag else "")
    print(f"{said}\ntrain on them and your pairs with: sightline train --train SRC TGT{more} ...", file=sys.stderr)


def _annotate_options(commands: Any) -> None:
    text = "write terms' translations beside them in sources of a corpus, for a model that learns to heed them"
    parser = commands.add_parser("annotate", help=text)
    files = "the corpus, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    text = "terms, as `translate --glossary` takes them; they may have several translations"
    parser.add_argument("--glossary", type=in_file, required=True, metavar="FILE", help=text)
    document_languages(parser)
    share = "of the pairs, whose terms are annotated; the others teach to do without (default: %(default)s)"
    parser.add_argument("--share", type=_share, default=0.5, metavar="X", help=share)
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="what draws them (default: %(default)s)")
    _corpus_option(parser)
    parser.set_defaults(run=run_annotate)


def run_annotate(options: argparse.Namespace) -> None:
    """A corpus of which some sources say how their terms are translated."""
    from sightline.data.corpus import parse_corpora, read_pairs
    from sightline.glossary.annotation import BEGIN, annotate
    from sightline.glossary.reading import read_glossary

    as_line, found = _format(options.output), Counter[str]()

    def counted(pairs: Iterable["Pair"]) -> Iterator["Pair"]:
        for pair in pairs:
            found.update(terms=pair[0].count(BEGIN), sources=BEGIN in pair[0])
            yield pair

    terms = read_glossary(options.glossary, options.languages)
    pairs = annotate(read_pairs(parse_corpora(options.train)), terms, options.share, options.seed)
    written = _write(options.output, as_line, counted(pairs))
    said = f"{options.output}: {written:,} pairs, {found['terms']:,} terms annotated in {found['sources']:,} sources"
    print(f"{said}\ntrain on them with: sightline train --train {shlex.quote(options.output)} ...", file=sys.stderr)


def _share(text: str) -> float:
    """The type of a share, from 0 to 1."""
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return share


_share.__name__ = "float"  # argparse names it where a text is no number


def _translator(
    options: argparse.Namespace, model: Any, overrides: Mapping[str, Any], files: Sequence[str]
) -> Callable[[Iterable[str]], Iterable["Translation"]]:
    """What translates a stream of lines, which come from `files`, and shows how far it is."""
    return lambda lines: progress(model.translate_lines(lines, workers=options.workers, **overrides), *files)


def _corpus_option(parser: argparse.ArgumentParser) -> None:
    name = "corpus to write, .jsonl or .tsv"
    parser.add_argument("-o", "--output", type=out_file, required=True, metavar="FILE.jsonl", help=name)


def _format(path: str) -> Callable[["Pair"], str]:
    """How a corpus of that name puts a pair in a line; `UserError` for a name by which nobody would know it again."""
    lines = {".jsonl": _json_line, ".tsv": _tsv_line}
    if Path(path).suffix not in lines:
        raise UserError(f"-o {path}: give it the ending .jsonl or .tsv, by which `sightline train` knows the format")
    return lines[Path(path).suffix]


def _json_line(pair: "Pair") -> str:
    return json.dumps({"src": pair[0], "tgt": pair[1]}, ensure_ascii=False)


def _tsv_line(pair: "Pair") -> str:
    return "\t".join(text.replace("\t", " ") for text in pair)


def _write(path: str, as_line: Callable[["Pair"], str], pairs: Iterable["Pair"]) -> int:
    """Write a corpus, which appears when it is complete; returns how many pairs it has."""
    count = 0
    with output(path) as file:
        for pair in pairs:
            file.write(as_line(pair) + "\n")
            count += 1
    if not count:
        print(f"sightline: {path}: has no pair", file=sys.stderr)
    return count


def _shortlist_options(commands: Any) -> None:
    parser = commands.add_parser("shortlist", help="learn which pieces translate which, for translate --shortlist")
    parser.add_argument("model", metavar="MODEL", help=f"{TRANSLATES}; the shortlist is written into it")
    files = "the training data, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    candidates = "target pieces for each source piece (default: %(default)s)"
    parser.add_argument("--candidates", type=whole(1), default=CANDIDATES, metavar="N", help=candidates)
    frequent = "most frequent target pieces, allowed everywhere (default: %(default)s)"
    parser.add_argument("--frequent", type=whole(1), default=FREQUENT, metavar="M", help=frequent)
    language_options(parser)
    parser.set_defaults(run=run_shortlist)


def run_shortlist(options: argparse.Namespace) -> None:
    """Write the shortlist of a model."""
    from sightline.checkpoint.beside import write_shortlist
    from sightline.config.settings import DataConfig
    from sightline.data.corpus import parse_corpora
    from sightline.data.prepared import prepare, spool
    from sightline.data.shortlist import learn_shortlist

    options.device = "cpu"
    model: Any = load_model(options)
    tokenizer, data = model.sides, getattr(model.config, "data", DataConfig())
    corpus = prepare(spool(parse_corpora(options.train)), tokenizer, data)
    shortlist = learn_shortlist(corpus, model.n_pieces, options.candidates, options.frequent)
    path = write_shortlist(model.path, shortlist, tokenizer)
    print(f"{path}: learnt from {len(corpus):,} pairs; use it with --shortlist", file=sys.stderr)
