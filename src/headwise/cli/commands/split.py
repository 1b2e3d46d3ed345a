"""Example: headwise split corpus.tsv --valid 2% --test 1000pairs --out data"""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from headwise.cli.corpus_files import pair_format, write_pairs
from headwise.cli.files import output
from headwise.cli.options import document_languages
from headwise.cli.parallel_texts import training_corpora
from headwise.cli.rules import in_file
from headwise.errors import UserError, writing
from headwise.runtime.checkpoint.model_card import headwise_command
from headwise.text.files.corpus import Corpus, read_pairs
from headwise.text.files.split import ValidationSize, parse_held_out_size, split_corpora

PARTS = ("test", "valid")  # in this order they are taken from the pairs


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "files of pairs, as for `headwise train --train`"
    parser.add_argument("files", nargs="+", type=in_file, metavar="FILE", help=text)
    share = "1%% or 500pairs (default: none)"
    parser.add_argument("--valid", metavar="SIZE", help=f"pairs to hold out for validation: {share}")
    parser.add_argument("--test", metavar="SIZE", help=f"pairs to hold out as a test set: {share}")
    folder = "folder to write train.tsv, valid.tsv and test.tsv into"
    parser.add_argument("--out", required=True, metavar="DIR", help=folder)
    document_languages(parser)


def run(options: argparse.Namespace) -> None:
    """Write the parts, which share no sentence."""
    sizes: dict[str, ValidationSize] = {}
    for name in (name for name in PARTS if getattr(options, name)):
        before = "".join(f"after {size}, " for size in sizes.values())
        sizes[name] = parse_held_out_size(getattr(options, name), f"{before}--{name}")
    if not sizes:
        raise UserError("headwise split: add --valid SIZE or --test SIZE, such as --valid 1%")
    folder = Path(options.out)
    if taken := [name for name in ("train", *PARTS) if (folder / f"{name}.tsv").exists()]:
        raise UserError(f"--out {folder}: has a {taken[0]}.tsv already; name another folder")
    corpora = training_corpora("split", options.files, options.languages)
    rest, held_out, dropped = corpora, dict[str, Sequence[Corpus]](), 0
    for name, size in sizes.items():
        parts = split_corpora(rest, size)
        rest, held_out[name], dropped = parts.train, [parts.valid], dropped + parts.dropped
    counts = _write(folder, {"train": rest, **held_out})
    sides = ", ".join(f"{folder / name}.tsv {count:,}" for name, count in counts.items())
    print(f"pairs: {sides}; dropped {dropped:,} that share a sentence with another part", file=sys.stderr)
    train, *others = (shlex.quote(str(folder / f"{name}.tsv")) for name in counts)
    valid = others[-1] if "valid" in sizes else "1%"
    command = f"{headwise_command()} train --recipe tiny --train {train} --valid {valid} --out runs/m"
    print(f"Next: {command}", file=sys.stderr)


def _write(folder: Path, parts: Mapping[str, Sequence[Corpus]]) -> dict[str, int]:
    """Write a file for each part, all or none; returns their numbers of pairs."""
    with writing(f"--out {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with ExitStack() as files:  # they appear when it closes
        for name, corpora in parts.items():
            path = str(folder / f"{name}.tsv")
            file = files.enter_context(output(path, "--out"))
            counts[name] = write_pairs(file.write, pair_format(path), read_pairs(corpora))
            file.flush()  # a full disk ends it before any part has its name
    return counts
