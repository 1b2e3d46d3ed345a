"""Quality flags of `--report`: how many wrong translations are flagged, and how many right ones.

    python benchmarks/flags.py [--data FOLDER]

`flagged_units.tsv` has 100 right and 100 wrong translations, written and checked by hand: right or wrong, source,
translation. The wrong ones are typical of weak models: repetition, lost numbers, cut sentences, untranslated words,
stray punctuation. The last 25 are fluent but wrong in meaning, which no flag can detect. `--data` adds corpora of human
translations. Nearly all of those are right, so the share of flagged ones is an upper bound of false alarms.
Prints a table in Markdown.
"""

import argparse
import gzip
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import machine

from headwise.documents.markup.placeholders import with_codes
from headwise.documents.quality_checks import quality_warnings

UNITS = Path(__file__).with_name("flagged_units.tsv")
CERTAIN = -0.1  # log-probability per token: no unit is flagged as improbable
PAIRS = {
    "Multi30k, en-de": ("multi30k/val.en.gz", "multi30k/val.de.gz"),
    "Multi30k, en-fr": ("multi30k/val.en.gz", "multi30k/val.fr.gz"),
    "Tatoeba, en-de": ("tatoeba/deu-eng.valid.tsv.gz",),
    "Tatoeba, en-fr": ("tatoeba/fra-eng.valid.tsv.gz",),
    "Tatoeba, en-vi": ("tatoeba/vie-eng.3col.tsv.gz",),
    "Tanaka, en-ja": ("tanaka-enja/dev.en.gz", "tanaka-enja/dev.ja.gz"),
    "Python's documentation, en-fr": ("pydocs/en-fr.tsv.gz",),
    "Python's documentation, en-es": ("pydocs/en-es.tsv.gz",),
    "Python's documentation, en-ja": ("pydocs/en-ja.tsv.gz",),
}
SAMPLE = 500  # pairs per corpus


def flags(source: str, target: str, markup: str = "") -> tuple[str, ...]:
    """The flags of a translation."""
    return quality_warnings(with_codes((source,), markup), with_codes((target,), markup), CERTAIN)


def units() -> list[tuple[bool, str, str]]:
    """The units of the file: whether each is right, its source and its translation."""
    rows = [line.split("\t") for line in UNITS.read_text(encoding="utf-8").splitlines()]
    return [(kind == "right", source, target) for kind, source, target in rows]


def pairs(folder: Path, files: Sequence[str]) -> list[tuple[str, str]]:
    """A sample of pairs of a corpus."""
    columns = [gzip.decompress((folder / file).read_bytes()).decode().split("\n")[:-1] for file in files]
    rows = zip(*columns, strict=True) if len(files) == 2 else (line.split("\t") for line in columns[0])
    return random.Random(1).sample([(row[0].strip(), row[1].strip()) for row in rows], SAMPLE)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with the corpora")
    machine.add_quick_option(parser)  # has no effect here
    options = parser.parse_args()
    found = [(right, flags(source, target)) for right, source, target in units()]
    print("| translations | number | flagged |\n|---|---|---|")
    for right, name in ((True, "right, by hand"), (False, "wrong, by hand")):
        chosen = [flagged for is_right, flagged in found if is_right == right]
        print(f"| {name} | {len(chosen)} | {sum(map(bool, chosen))} |")
    for name, files in PAIRS.items() if options.data else ():
        flagged = [flags(*pair, "rst" if "pydocs" in files[0] else "") for pair in pairs(options.data, files)]
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(k for one in flagged for k in one).most_common())
        print(f"| {name} | {len(flagged)} | {sum(map(bool, flagged))} ({kinds}) |")


if __name__ == "__main__":
    main()
