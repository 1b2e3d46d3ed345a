"""Translation quality on a public corpus: train with a recipe, score every test set, print a table.

    python benchmarks/quality.py multi30k --data DATA --pair en-de --out runs/ende [--recipe tiny] [--set KEY=VALUE ...]
                                          [--text published]
    python benchmarks/quality.py tatoeba  --data DATA --pair de-en --out runs/tatoeba --recipe small

DATA holds `train.en.gz`, `val.de.gz`, `test_2016_flickr.en.gz` ... for Multi30k, and `deu-eng.train.tsv.gz` (English,
tab, German) ... for Tatoeba. Interrupted runs are resumed. Detokenised sacreBLEU comes first. The tokenised, lowercased
figure is only for comparison with the Multi30k literature. `--text published` trains like that literature, on
lowercased and tokenised text; all its figures are for such text and say nothing about detokenised output.
"""

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import machine

import headwise
from headwise.evaluate.report import TranslationReport, evaluate_model

TATOEBA = {"de": "deu-eng", "fr": "fra-eng"}


@dataclass(frozen=True)
class Task:
    """Files of training and test sets."""

    train: list[Path]
    valid: list[Path]
    tests: dict[str, tuple[list[str], list[str]]]  # name -> sources, references
    multi30k: str | None  # target language for the tokenised figure


def multi30k(data: Path, src: str, tgt: str) -> Task:
    """Multi30k task 1, raw text."""
    names = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    tests = {name: (lines(data / f"{name}.{src}.gz"), lines(data / f"{name}.{tgt}.gz")) for name in names}
    parts = [[data / f"{part}.{side}.gz" for side in (src, tgt)] for part in ("train", "val")]
    return Task(*parts, tests=tests, multi30k=tgt)


def published(data: Path, src: str, tgt: str, work: Path) -> Task:
    """Multi30k task 1 as in the literature: lowercased, normalised punctuation, Moses tokenisation."""
    raw = multi30k(data, src, tgt)
    prepare = {language: moses(language) for language in (src, tgt)}
    work.mkdir(parents=True, exist_ok=True)
    for path in (*raw.train, *raw.valid):
        language = path.suffixes[-2].removeprefix(".")
        text = "".join(f"{prepare[language](line)}\n" for line in lines(path))
        (work / path.stem).write_text(text, encoding="utf-8")
    parts = [[work / path.stem for path in paths] for paths in (raw.train, raw.valid)]
    tests = {
        name: ([prepare[src](line) for line in sources], [prepare[tgt](line) for line in references])
        for name, (sources, references) in raw.tests.items()
    }
    return Task(*parts, tests=tests, multi30k=tgt)


def moses(language: str) -> Callable[[str], str]:
    """The literature's preprocessing of a line."""
    import sacremoses

    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return lambda line: tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=False)


def tatoeba(data: Path, src: str, tgt: str, work: Path) -> Task:
    """Tatoeba pairs; the files have English first, so columns are swapped for the other direction."""
    stem = TATOEBA[tgt if src == "en" else src]
    paths = {}
    for part in ("train", "valid", "test"):
        rows = [line.split("\t")[:2] for line in lines(data / f"{stem}.{part}.tsv.gz")]
        pairs = rows if src == "en" else [row[::-1] for row in rows]
        paths[part] = work / f"{part}.tsv"
        paths[part].parent.mkdir(parents=True, exist_ok=True)
        paths[part].write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    test = [line.split("\t") for line in paths["test"].read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    tests = {"test": ([src for src, _ in test], [tgt for _, tgt in test])}
    return Task([paths["train"]], [paths["valid"]], tests, multi30k=None)


def lines(path: Path) -> list[str]:
    """Lines of a gzipped text; only line feeds end a line."""
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def table(reports: dict[str, TranslationReport]) -> str:
    """One row per test set, in Markdown, and the signatures below."""
    names = list(next(iter(reports.values())).scores)
    rows = [f"| test set | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for test, report in reports.items():
        rows.append(f"| {test} | {' | '.join(f'{score.score:.2f}' for score in report.scores.values())} |")
    signatures = [f"- {name}: `{score.signature}`" for name, score in next(iter(reports.values())).scores.items()]
    return "\n".join([*rows, "", *signatures])


def read(options: argparse.Namespace, src: str, tgt: str, work: Path) -> Task:
    """The requested corpus."""
    if options.corpus == "tatoeba":
        return tatoeba(options.data, src, tgt, work)
    if options.text == "published":
        return published(options.data, src, tgt, work)
    return multi30k(options.data, src, tgt)


def main() -> None:
    """Train, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=("multi30k", "tatoeba"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de", help="source-target (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="model directory")
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument(
        "--text", choices=("raw", "published"), default="raw", help="text of Multi30k (default: %(default)s)"
    )
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    machine.add_quick_option(parser)
    options = parser.parse_args()

    src, tgt = options.pair.split("-")
    work = options.out.with_name(f"{options.out.name}-corpus")
    task = read(options, src, tgt, work)
    resume = (options.out / "checkpoints").exists()
    model = headwise.train(
        task.train, task.valid, options.out, options.recipe, options.set, resume=resume, device=options.device
    )
    reports = {
        name: evaluate_model(model, sources, [references], multi30k=task.multi30k)
        for name, (sources, references) in task.tests.items()
    }
    print(table(reports))
    print(json.dumps({name: report.as_json() for name, report in reports.items()}))


if __name__ == "__main__":
    main()
