"""Run every benchmark once with --quick on generated data, to check the scripts in a few minutes on two cores.

    python benchmarks/quick.py [NAME ...] [--jobs N]

Generates corpora of an artificial language and a small model trained on them, and runs each script in its own process,
several at once, so the figures mean nothing. Results go to `build/bench-quick`. The output of a failed script is
printed, and the exit code is 1. Scripts whose packages are missing are skipped with a message; with `--strict` that is
a failure.
"""

import argparse
import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import wave
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORT = [
    "train.max_steps=2", "train.validate_every=2", "train.checkpoint_every=2", "train.warmup_steps=1",
    "train.log_every=1", "train.validate_bleu=4", "train.threads=1",
]  # fmt: skip
SMALL = ["model.d_model=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "data.vocab_size=300"]
TINY = [*SMALL, "model.d_ff=64", "model.n_heads=2"]
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Run:
    """A script and its arguments; several argument lists run one after the other."""

    arguments: Callable[[Path], Sequence[Sequence[str]]]  # from the data folder
    needs: tuple[str, ...] = ()  # packages beyond those of the tests, or programs


def once(*arguments: str) -> Callable[[Path], Sequence[Sequence[str]]]:
    """One run; `{data}` in an argument is the data folder."""
    return lambda data: [[argument.format(data=data) for argument in arguments]]


def glossaries(data: Path) -> Sequence[Sequence[str]]:
    """First `make`, then `measure`."""
    test = ["--test", f"{data}/test.en", f"{data}/test.de"]
    train = ["--train", f"{data}/train.en", f"{data}/train.de"]
    terms = f"{data}/terms"
    return [
        ["make", *train, *test, "--out", terms],
        ["measure", f"{data}/model", *test, "--glossary", f"{terms}/test.tsv"],
    ]


def python_documentation(data: Path) -> Sequence[Sequence[str]]:
    """All three parts."""
    model = ["--model", f"{data}/model"]
    return [
        ["split", f"{data}/catalogues", f"{data}/catalogues-split"],
        ["score", f"{data}/catalogues", *model],
        ["fill", f"{data}/catalogues", f"{data}/catalogues-filled", *model],
    ]


def quality(data: Path) -> Sequence[Sequence[str]]:
    """Both corpora."""
    short = ["--data", str(data), "--pair", "en-de", "--device", "cpu", "--set", *TINY, *SHORT]
    return [[corpus, *short, "--out", f"{data}/quality-{corpus}"] for corpus in ("multi30k", "tatoeba")]


SOURCE = ["--source", "{data}/test.en"]
PAIR = [*SOURCE, "--target", "{data}/test.de"]
TRAIN = ["--train", "{data}/train.en", "{data}/train.de"]
RUNS = {
    "alignment": Run(once("{data}/model", *PAIR, "--gold", "{data}/test.links", "--attribution", "--steps", "2")),
    "bench": Run(once(), ("ctranslate2", "onnxruntime")),  # not --model: see decoding.check_agreement
    "compare": Run(once("HEAD", "--only", "greedy", "train-d256", "import"), ("git",)),
    "contacts": Run(once()),
    "coreference": Run(once("{data}/model", "--data", "{data}")),
    "course_models": Run(
        once("{data}", "{data}/test.en", "--out", "{data}/course", "--set", *SHORT[:5], "train.threads=1",
             "model.d_model=32", "model.d_ff=64", "model.n_heads=2", "model.n_decoder_layers=1", "data.vocab_size=300"),
        ("ziglang",),
    ),
    "decoding": Run(once(), ("ctranslate2",)),
    "drafts": Run(once("{data}/model", *SOURCE, "--memory", "{data}/train.tsv")),
    "encoders": Run(once(), ("ctranslate2", "onnxruntime", "onnx")),
    "exported": Run(
        once("{data}/model", "--source", "{data}/val.en.gz", "--reference", "{data}/val.de.gz", "--limit", "4"),
        ("ctranslate2",),
    ),
    "families": Run(once()),
    "flags": Run(once()),
    "generation": Run(once()),
    "glossaries": Run(glossaries),
    "growth": Run(once()),
    "installation": Run(once("{data}/model", *SOURCE)),
    "kernels": Run(once()),
    "language_models": Run(once(), ("ctranslate2", "transformers")),
    "peak": Run(once()),
    "lexical_aligner": Run(once(*PAIR, "-o", "{data}/found.links")),
    "loading": Run(once()),
    "minutes": Run(
        once("--data", "{data}", "--out", "{data}/minutes", "--corpora", "multi30k", "tatoeba", "--set",
             *TINY, *SHORT[1:])
    ),
    "monolingual": Run(  # not `back`: a model of two updates translates nothing
        once("multi30k", "--data", "{data}", "--out", "{data}/mono", "--keep", "2", "--lines", "40",
             "--ways", "pairs", "denoise", "--set", *TINY, *SHORT)
    ),
    "opus_mt": Run(once(), ("ctranslate2",)),
    "predecessors": Run(
        once("--data", "{data}", "--out", "{data}/predecessors", "--recipes", "paper-tiny", "lstm", "conv", "--set",
             *SMALL, *SHORT)
    ),
    "preparing": Run(once(*TRAIN, "--complete")),
    "pruning": Run(once("{data}/model", *PAIR, "--judge-source", "{data}/test.en", "--judge-target", "{data}/test.de")),
    "python_documentation": Run(python_documentation, ("msgfmt",)),
    "quality": Run(quality),
    "ranks": Run(once(*TRAIN)),
    "recompute": Run(once()),
    "recording": Run(once("{data}/model", *PAIR)),
    "round_trips": Run(once("{data}/documents")),
    "scaling": Run(once()),
    "sentence_model": Run(once("{data}", "--out", "{data}/sentence-model", "--set", *TINY, *SHORT), ("ziglang",)),
    "serving": Run(once("{data}/model", *SOURCE)),
    "spoken_digits": Run(once("{data}/fsdd-open.tar.gz", "{data}/digits")),
    "tasks": Run(
        once(
            *("--data", "{data}", "--out", "{data}/tasks", "--only", "trec", "sst2", "etth1", "--seeds", "1"),
            *("--set", "model.d_model=32", *SHORT[:5]),
        )
    ),
    "tokenising": Run(once()),
    "training": Run(once(), ()),
    "transcription": Run(once()),
    "tuning": Run(once(), ("accelerate",)),
    "utilisation": Run(once(*TRAIN, "--settings", "", "train.recompute=true")),
    "web": Run(
        once("{data}/model", *SOURCE, "--cores", str(min(os.sched_getaffinity(0)))),
        ("playwright", "ziglang", "chromium"),
    ),
}  # fmt: skip


# --- Data ---


def make_data(data: Path) -> None:
    """Write all input files of the scripts into one folder."""
    pairs = {part: parallel(data, part) for part in ("train", "val", "test")}
    for part, found in pairs.items():
        for side, language in enumerate(("en", "de")):
            lines = [pair[side] for pair in found]
            write(data / f"{part}.{language}", lines)
            for name in TESTS if part == "test" else [part]:
                write(data / f"{name}.{language}.gz", lines)
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        write(data / f"deu-eng.{name}.tsv.gz", ["\t".join(pair) for pair in pairs[part]])
    write(data / "train.tsv", ["\t".join(pair) for pair in pairs["train"]])
    write(data / "test.links", [diagonal(*pair) for pair in pairs["test"]])
    labelled(data, pairs["train"])
    series(data / "ts/ETTh1.csv.gz")
    winobias(data)
    sounds(data / "fsdd-open.tar.gz")
    documents(data / "documents", pairs["test"])
    for number in range(3):
        catalogue(data / f"catalogues/{number}.po", pairs["test"])
    model(data)


def parallel(data: Path, part: str) -> Pairs:
    """Pairs of the study's artificial language; a few words occur in one sentence only, for glossaries."""
    from headwise.lab.study.translators import write_language

    files = dict(zip(("train", "val", "test"), write_language(data, 20), strict=True))
    pairs = [tuple(line.split("\t")) for line in Path(files[part][0]).read_text(encoding="utf-8").splitlines()]
    rare = ["quokab", "quolemi", "quirosa", "quatenu"] * (part != "val")
    return [(f"{s} {word}", f"{t} {word.title()}") for word, (s, t) in zip(rare, pairs, strict=False)] + pairs


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a text, gzipped if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def diagonal(source: str, target: str) -> str:
    """Links of a pair in Pharaoh's format."""
    return " ".join(f"{i}-{i}" for i in range(min(len(source.split()), len(target.split()))))


def labelled(data: Path, pairs: Pairs) -> None:
    """Questions in TREC's format and sentences in SST-2's."""
    for part, chosen in (("train", pairs), ("test", pairs[:9])):
        lines = [f"{('DESC:a', 'HUM:b')[i % 2]} {source}" for i, (source, _) in enumerate(chosen)]
        write(data / f"cls/trec.{part}.txt.gz", lines)
    for part, chosen in (("train", pairs), ("dev", pairs[:20])):
        write(data / f"cls/sst2.{part}.tsv.gz", [f"{source}\t{i % 2}" for i, (source, _) in enumerate(chosen)])


def series(path: Path) -> None:
    """Twenty months of hourly values with ETTh1's columns."""
    rows = [f"2016-07-01 {hour},{','.join(str((hour * n) % 24) for n in range(1, 8))}" for hour in range(20 * 30 * 24)]
    write(path, ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", *rows])


def winobias(data: Path) -> None:
    """Two sentences for each list."""
    lines = ["[The cook] thanked the guard because [she] was hungry.", "The cook paid [the guard] as [he] was kind."]
    for name in [f"{kind}_stereotyped_type{n}" for n in (1, 2) for kind in ("pro", "anti")]:
        write(data / f"winobias.{name}.dev.txt", [f"{number} {line}" for number, line in enumerate(lines * 2, 1)])


def sounds(archive: Path) -> None:
    """Two silent recordings in the archive of spoken digits."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:gz") as packed:
        for name in ("0_theo_0.wav", "1_jackson_9.wav"):
            with wave.open(f"{folder}/{name}", "wb") as sound:
                sound.setparams((1, 2, 8000, 0, "NONE", ""))
                sound.writeframes(bytes(1600))
            packed.add(f"{folder}/{name}", f"fsdd/{name}")


def documents(folder: Path, pairs: Pairs) -> None:
    """One file each of several formats."""
    write(folder / "page.md", ["# A title", "", pairs[0][0], "", f"- {pairs[1][0]}"])
    write(folder / "page.html", [f"<p>{source}</p>" for source, _ in pairs[:3]])
    write(folder / "messages.json", [json.dumps({"one": pairs[0][0], "two": pairs[1][0]})])
    catalogue(folder / "messages.po", pairs)


def catalogue(path: Path, pairs: Pairs) -> None:
    """A gettext catalogue with every third message untranslated."""
    lines = ['msgid ""', 'msgstr "Content-Type: text/plain; charset=UTF-8\\n"', ""]
    for number, (source, target) in enumerate(dict(pairs).items()):
        lines += [f'msgid "{source} :role:`it`"', f'msgstr "{target if number % 3 else ""} :role:`it`"'.strip(), ""]
    write(path, lines)


def model(data: Path) -> None:
    """A translation model trained for a few updates, with a shortlist."""
    import headwise
    from headwise.cli import main

    train, valid = ([data / f"{part}.en", data / f"{part}.de"] for part in ("train", "val"))
    headwise.train(train, valid, data / "model", "paper-tiny", [*TINY, *SHORT], device="cpu", show=False)
    if main(["shortlist", str(data / "model"), "--train", *map(str, train)]):
        raise SystemExit("headwise shortlist failed")


# --- Runs ---


def missing(needs: Sequence[str]) -> list[str]:
    """Missing packages or programs."""
    return [name for name in needs if not (importlib.util.find_spec(name) or shutil.which(name))]


def run(name: str, data: Path) -> tuple[str, float, str]:
    """Run a script; returns its name, seconds, and its output if it failed."""
    started = time.perf_counter()
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}  # waiting threads must not block the core
    environment = os.environ | quiet
    for arguments in RUNS[name].arguments(data):
        command = [sys.executable, str(ROOT / f"benchmarks/{name}.py"), *arguments, "--quick"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, text=True, capture_output=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            output = f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-6000:]}\nexit code {done.returncode}"
            return name, time.perf_counter() - started, output
    return name, time.perf_counter() - started, ""


def main() -> None:
    """Make the data, run the scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*RUNS, []], metavar="NAME", help="run only these scripts")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="scripts to run at once (default: one per core)"
    )
    parser.add_argument("--strict", action="store_true", help="fail where a package is missing")
    options = parser.parse_args()
    chosen = options.names or list(RUNS)
    without = {name: gone for name in chosen if (gone := missing(RUNS[name].needs))}
    for name, gone in without.items():
        print(f"{name}.py: skipped, without {', '.join(gone)}", flush=True)
    failed = bool(options.strict and without)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        os.environ["HEADWISE_CACHE"] = f"{folder}/cache"
        data = Path(folder) / "data"
        data.mkdir()
        make_data(data)
        for done in as_completed(pool.submit(run, name, data) for name in chosen if name not in without):
            name, seconds, output = done.result()
            print(f"{name}.py: {'failed' if output else 'ran'} in {seconds:.0f} s\n{output}".rstrip(), flush=True)
            failed |= bool(output)
    sys.exit(failed)


if __name__ == "__main__":
    main()
