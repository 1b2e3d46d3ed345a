"""What is learnt or written from a corpus with a model: `sightline distill` and `sightline shortlist`."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, out_file, output, progress
from sightline.cli.options import decode_options, decode_overrides, load_model, model_options, whole, workers_option
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.decode.translator import Translation

CANDIDATES, FREQUENT = 50, 200  # of a shortlist


def add(commands: Any) -> None:
    """Register the commands."""
    _distill_options(commands)
    _shortlist_options(commands)


def _distill_options(commands: Any) -> None:
    parser = commands.add_parser("distill", help="write a model's translations of a corpus, to train a smaller one on")
    model_options(parser)
    files = "the corpus, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    parser.add_argument("-o", "--output", type=out_file, required=True, metavar="FILE.jsonl", help="corpus to write")
    interpolate = "take the translation of the n-best list that is closest to the reference, not the likeliest"
    parser.add_argument("--interpolate", action="store_true", help=interpolate)
    workers_option(parser)
    n_best = "translations of each text, a pair for each different one; with --interpolate what there is to choose from"
    decode_options(parser, without=("draft_length",), n_best=n_best)
    parser.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """A corpus with the model's translations for targets, one JSON object a pair."""
    from sightline.data.corpus import parse_corpora, read_pairs
    from sightline.distill import distill

    if not options.output.endswith(".jsonl"):
        raise UserError(f"-o {options.output}: give it the ending .jsonl, by which `sightline train` knows the format")
    model = load_model(options)
    overrides = decode_overrides(options, model.decode_config)
    if options.interpolate and "n_best" not in overrides:
        overrides["n_best"] = overrides.get("beam_size", model.decode_config.beam_size)

    def translate(lines: Iterable[str]) -> Iterable["Translation"]:
        return progress(model.translate_lines(lines, workers=options.workers, **overrides), *options.train)

    pairs = distill(read_pairs(parse_corpora(options.train)), translate, options.interpolate)
    with output(options.output) as file:
        for src, tgt in pairs:
            file.write(json.dumps({"src": src, "tgt": tgt}, ensure_ascii=False) + "\n")


def _shortlist_options(commands: Any) -> None:
    parser = commands.add_parser("shortlist", help="learn which pieces translate which, for translate --shortlist")
    parser.add_argument("model", metavar="MODEL", help="model directory, which the shortlist is written into")
    files = "the training data, as `sightline train` takes it"
    parser.add_argument("--train", nargs="+", type=in_file, required=True, metavar="FILE", help=files)
    candidates = "target pieces for each source piece (default: %(default)s)"
    parser.add_argument("--candidates", type=whole(1), default=CANDIDATES, metavar="N", help=candidates)
    frequent = "most frequent target pieces, allowed everywhere (default: %(default)s)"
    parser.add_argument("--frequent", type=whole(1), default=FREQUENT, metavar="M", help=frequent)
    parser.set_defaults(run=run_shortlist)


def run_shortlist(options: argparse.Namespace) -> None:
    """Write the shortlist of a model."""
    from sightline.data.corpus import parse_corpora
    from sightline.data.prepared import prepare, spool
    from sightline.data.shortlist import learn_shortlist
    from sightline.model_directory import read_model_directory, write_shortlist

    directory = read_model_directory(options.model)
    corpus = prepare(spool(parse_corpora(options.train)), directory.tokenizer, directory.config.data)
    shortlist = learn_shortlist(corpus, directory.tokenizer.vocab_size, options.candidates, options.frequent)
    path = write_shortlist(Path(options.model), shortlist, directory.tokenizer)
    print(f"{path}: learnt from {len(corpus):,} pairs; use it with --shortlist", file=sys.stderr)
