"""Example: headwise annotate --train train.en train.de --glossary terms.tsv -o annotated.jsonl"""

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from headwise.cli.corpus_files import corpus_output_option, pair_format, write_corpus
from headwise.cli.options import corpus_option, document_languages, file_option, seed_option
from headwise.cli.parallel_texts import training_corpora
from headwise.documents.glossary.annotation import BEGIN, annotate_pairs
from headwise.documents.glossary.files import read_glossary
from headwise.text.files.corpus import read_pairs
from headwise.text.files.sources import Pair, count_of


def add_options(parser: argparse.ArgumentParser) -> None:
    corpus_option(parser)
    text = "terms, as for `headwise translate --glossary`; a term may have several translations"
    file_option(parser, "--glossary", text, required=True)
    document_languages(parser)
    share = "share of the pairs to annotate, from 0 to 1; from the others a model learns to translate without terms "
    parser.add_argument("--share", type=_share, default=0.5, metavar="X", help=f"{share}(default: %(default)s)")
    seed_option(parser, "random seed for choosing the pairs")
    corpus_output_option(parser)


def _share(text: str) -> float:
    """The type of `--share`, from 0 to 1."""
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return share


_share.__name__ = "float"  # argparse shows it if a text is not a number


def run(options: argparse.Namespace) -> None:
    """Write a corpus with the translations of terms in a share of the sources."""
    as_line, found = pair_format(options.output), Counter[str]()

    def counted(pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            found.update(terms=pair[0].count(BEGIN), sources=BEGIN in pair[0])
            yield pair

    terms = read_glossary(options.glossary, options.languages)
    corpora = training_corpora("--train", options.train, options.languages)
    pairs = annotate_pairs(read_pairs(corpora), terms, options.share, options.seed)
    written = write_corpus(options.output, as_line, counted(pairs))
    annotated, sources = count_of(found["terms"], "term"), count_of(found["sources"], "source")
    counts = f"{options.output}: {count_of(written, 'pair')}, {annotated} annotated in {sources}"
    print(f"{counts}\ntrain on them with: headwise train --train {shlex.quote(options.output)} ...", file=sys.stderr)
