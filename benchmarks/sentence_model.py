"""The English-German sentence model of a release: train it on Tatoeba, score it, and write the files to publish.

    make sentence-model DATA=deu-eng.zip

DATA is the archive `deu-eng.zip` of https://www.manythings.org/anki (sentence pairs of tatoeba.org, CC BY 2.0 FR), or a
folder with `deu-eng.train.tsv.gz`, `.valid` and `.test` (English, tab, German). An archive is split here, so that no
sentence of one part is in another. The settings are in `sentence_model.toml`. An interrupted training is resumed.

OUT gets `corpus.html` (the report of `check-corpus`), `run` (the training), `headwise-en-de.zip` (the model, weights in
float16), `headwise-en-de` (the same, also packed) and `headwise-en-de.html` (the model as a web page). Scores and sizes
go to `results`.
"""

import argparse
import json
import shutil
import zipfile
from pathlib import Path

import machine
import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import headwise
from headwise.cli import main as run_command
from headwise.evaluate.report import TranslationReport, evaluate_model
from headwise.runtime.checkpoint.layout import WEIGHTS
from headwise.runtime.checkpoint.manifest import read_manifest, seal
from headwise.runtime.checkpoint.model_card import with_row
from headwise.runtime.checkpoint.pack import pack_model
from headwise.runtime.checkpoint.trained import write_file
from headwise.text.files.corpus import Corpus, read_corpus
from headwise.text.files.split import ValidationSize, split_corpora

NAME = "headwise-en-de"
RECIPE = Path(__file__).with_suffix(".toml")
PARTS = ("train", "valid", "test")
LICENCE = (
    "trained on sentences of [Tatoeba](https://tatoeba.org), in the selection of "
    "[manythings.org](https://www.manythings.org/anki/), [CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/)"
)
HELD_OUT = ValidationSize("2000pairs", pairs=2000)
COMPUTE = ("float32", "int8")
EXAMPLES = 8
Pairs = list[tuple[str, str]]


def parts_of(data: Path, out: Path) -> dict[str, Path]:
    """The files of training, validation and test pairs."""
    return split_archive(data, out) if data.is_file() else {part: data / f"deu-eng.{part}.tsv.gz" for part in PARTS}


def split_archive(archive: Path, out: Path) -> dict[str, Path]:
    """Write the pairs of `deu-eng.zip` into three files; the split depends on the pairs only."""
    with zipfile.ZipFile(archive) as files:
        lines = files.read("deu.txt").decode().splitlines()
    paths = {part: out / f"{part}.tsv" for part in PARTS}
    write_pairs(paths["train"], [tuple(line.split("\t")[:2]) for line in lines])  # the third column is the source
    for part in ("test", "valid"):
        split = split_corpora([Corpus((str(paths["train"]),))], HELD_OUT)
        rest, held = list(read_corpus(split.train[0])), list(read_corpus(split.valid))
        write_pairs(paths["train"], rest)
        write_pairs(paths[part], held)
    return paths


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Write pairs as a TSV file."""
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")


def command(*arguments: str | Path) -> None:
    """Run a command of Headwise."""
    if run_command([str(argument) for argument in arguments]):
        raise SystemExit(f"headwise {arguments[0]} failed")


def release(run: Path, folder: Path, licence: str = LICENCE) -> None:
    """Copy and zip a trained model without checkpoints and logs, with float16 weights and the licence in its card.

    If the run generated its corpus (`headwise demo`), its test pairs are copied, too.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in (*read_manifest(run), "generation_config.json"):
        shutil.copy(run / name, folder)
    for path in (run / "corpus").glob("test.*"):
        (folder / "corpus").mkdir(exist_ok=True)
        shutil.copy(path, folder / "corpus")
    weights = load_file(folder / WEIGHTS)
    halved = {name: array.astype(np.float16) for name, array in weights.items()}
    write_file(folder / WEIGHTS, lambda path: save_file(halved, path))
    card = (run / "README.md").read_text(encoding="utf-8")
    card = with_row(card, "licence of the data", licence) if licence else card
    (folder / "README.md").write_text(card, encoding="utf-8")
    seal(folder)
    shutil.make_archive(str(folder), "zip", folder.parent, folder.name)


def scores_of(folder: Path, test: Pairs) -> dict[str, TranslationReport]:
    """Scores of the released model on the test pairs, by precision."""
    model = headwise.load(folder, "cpu")
    sources, references = map(list, zip(*test, strict=True))
    return {
        compute: evaluate_model(model, sources, [references], overrides={"compute": compute}) for compute in COMPUTE
    }


def sections(reports: dict[str, TranslationReport], test: Pairs, sizes: dict[str, int], run: Path) -> list[str]:
    """The parts of the results page."""
    card = (run / "README.md").read_text(encoding="utf-8")
    scores = next(iter(reports.values())).scores
    rows = [
        [compute, *(f"{score.score:.2f}" for score in report.scores.values())] for compute, report in reports.items()
    ]
    examples = [(src, text, tgt) for (src, tgt), text in zip(test, reports["int8"].hypotheses, strict=True)]
    return [
        f"English to German; {len(test):,} test pairs, no sentence of which is in the training data.",
        machine.table(["precision", *scores], rows),
        "\n".join(f"- {name}: `{score.signature}`" for name, score in scores.items()),
        "## Size",
        machine.table(["file", "MB"], [[f"`{name}`", f"{size / 1e6:.1f}"] for name, size in sizes.items()]),
        "## Training",
        f"{minutes(run):.0f} minutes. The model's card:",
        "\n".join(line for line in card.splitlines() if line.startswith("|")),
        "## Test sentences at equal distances",
        machine.table(["source", "int8", "reference"], examples[:: len(examples) // EXAMPLES]),
    ]


def minutes(run: Path) -> float:
    """How long the training took."""
    records = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return max(record.get("elapsed", 0) for record in records) / 60


def main() -> None:
    """Train, release, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="deu-eng.zip, or a folder of its parts")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "build/sentence-model", help="default: %(default)s")
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    machine.add_quick_option(parser)
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    parts = parts_of(options.data, options.out)
    run, folder, page = options.out / "run", options.out / NAME, options.out / f"{NAME}.html"
    about = machine.description(torch.get_num_threads())
    train, valid, test = parts.values()
    command("check-corpus", train, "--valid", valid, "--test", test, "-o", options.out / "corpus.html")
    resume = (run / "checkpoints").exists()
    headwise.train([train], [valid], run, RECIPE, options.set, resume=resume, device="cpu")
    release(run, folder)
    packed = pack_model(folder, "int8")
    page.unlink(missing_ok=True)
    command("export", folder, page, "--to", "web")
    pairs = list(read_corpus(Corpus((str(test),))))
    reports = scores_of(folder, pairs)
    files = (folder.with_suffix(".zip"), folder / WEIGHTS, packed, page)
    sizes = {path.name: path.stat().st_size for path in files}
    title = "The English-German sentence model"
    data = {"scores": {name: report.as_json() for name, report in reports.items()}, "sizes": sizes}
    machine.write_result(
        machine.result_path("sentence-model"), title, about, sections(reports, pairs, sizes, run), data
    )


if __name__ == "__main__":
    main()
