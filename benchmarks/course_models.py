"""The page of the course with three small models: dates, English-German sentences, and characters of a text.

    make course-models DATA=deu-eng.zip TEXT=shakespeare.txt

DATA is as for `sentence_model.py`; TEXT is a file of plain text of some hundred thousand characters. The dates are
those of `headwise demo`. An interrupted training is resumed.

OUT gets `course.html` of 8 MB at most, the folders of the models, for `headwise explore`, and `headwise-dates.zip`,
the model of the lesson for a release.
"""

import argparse
from pathlib import Path

import machine
from sentence_model import RECIPE, command, parts_of, release

import headwise
from headwise.lab.demo.corpus import generate_corpus
from headwise.lab.demo.run import demo

LARGEST = 8_000_000  # bytes of the page
HELD_OUT = 20  # of the lines of the text, the last one in so many validates
DATES = {"n_train": machine.pick(30_000, 200), "n_valid": machine.pick(500, 8), "n_test": machine.pick(1_000, 8)}
# Fewer tokens than the sentence model of a release, and a lower learning rate: with its 0.004, all heads of the first
# layer attended to the end token alone, whatever the sentence.
SENTENCES = [
    "train.max_steps=12000", "data.vocab_size=2000", "train.learning_rate=0.0015", "train.warmup_steps=1000",
    "train.clip_norm=1.0", "train.weight_decay=0.1",
]  # fmt: skip
TEXT = [
    "data.subword=characters", "data.block_length=128", "model.d_model=128", "model.d_ff=512",
    "train.max_steps=8000", "train.tokens_per_batch=2048", "train.learning_rate=0.002", "train.validate_every=500",
]  # fmt: skip


def split_text(text: Path, out: Path) -> tuple[Path, Path]:
    """The files of training and validation text; the last lines validate."""
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = len(lines) - len(lines) // HELD_OUT
    paths = (out / "text.train.txt", out / "text.valid.txt")
    for path, part in zip(paths, (lines[:cut], lines[cut:]), strict=True):
        path.write_text("".join(part), encoding="utf-8")
    return paths


def write_page(models: list[Path], path: Path) -> None:
    """A page of these models, written anew.

    Raises:
        SystemExit: it is too large.
    """
    path.unlink(missing_ok=True)
    command("export", models[0], path, "--to", "web", "--with", *models[1:])
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path}: more than {LARGEST / 1e6:.0f} MB: choose smaller models")


def train(files: tuple[Path, Path], run: Path, recipe: str | Path, settings: list[str]) -> Path:
    """A run on these files, new or resumed."""
    resume = (run / "checkpoints").exists()
    headwise.train([files[0]], [files[1]], run, recipe, settings, resume=resume, device="cpu")
    return run


def main() -> None:
    """Train the models, and write their page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="deu-eng.zip, or a folder of its parts")
    parser.add_argument("text", type=Path, metavar="TEXT", help="file of plain text for the language model")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "build/course-models", help="default: %(default)s")
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE", help="for all three")
    machine.add_quick_option(parser)
    options = parser.parse_args()

    out: Path = options.out
    for path in (options.data, options.text):
        if not path.exists():
            raise SystemExit(f"make course-models: {path}: no such file or folder")
    out.mkdir(parents=True, exist_ok=True)
    demo(out / "dates", generate_corpus(**DATES), options.set)
    parts = parts_of(options.data, out)
    train((parts["train"], parts["valid"]), out / "sentences", RECIPE, [*SENTENCES, *options.set])
    train(split_text(options.text, out), out / "characters", "gpt", [*TEXT, *options.set])
    write_page([out / name for name in ("dates", "sentences", "characters")], out / "course.html")
    release(out / "dates", out / "headwise-dates", licence="")


if __name__ == "__main__":
    main()
