"""Runs every command line and every Python snippet of the documentation in reading order.

The lines of a document run in their own folder. The files that they name are made just before, and small: texts of a
few lines, models of two updates, checkpoints of random numbers (`MAKERS`). Lines that name anything else fail, and so
do commands without an entry in `CHECKS`, which checks their output. Training gets settings that make it short
(`SHORT`); the study and the explorer end soon (`short_ways`). Commands and outputs are in build/transcript.
"""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from glob import glob
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from textwrap import dedent
from threading import Thread
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import tokenizers
from starlette.testclient import TestClient
from tiny_families import HEARING, write_tiny

import headwise
from headwise import cli as command_line
from headwise import train
from headwise.cli.commands import download as download_command
from headwise.cli.commands import serve as serving
from headwise.cli.rules import out_file
from headwise.errors import UserError
from headwise.lab.demo.corpus import generate_corpus
from headwise.lab.demo.run import demo
from headwise.lab.study import run as study_run
from headwise.lab.study.claim import Plan
from headwise.lab.study.claims import CLAIMS
from headwise.pytorch.inspect import attribution
from headwise.serve.explorer.server import ExplorerServer
from headwise.serve.server import application

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *ROOT.glob("docs/**/*.md")]
DOCUMENTS = [page for page in sorted(PAGES) if page.is_file()]
TRANSCRIPT = ROOT / "build" / "transcript"

WORDS = ["a", "dog", "runs", "in", "the", "park", "brown", "tall", "grass", "man"]
SMALL = ["model.d_model=16", "train.max_steps=2", "train.tokens_per_batch=900", "train.threads=1"]
TRANSLATING = ["train.validate_bleu=2", "decode.max_length_factor=1.0", "decode.max_length_extra=2"]
SHORT = {  # appended to `train`, by task
    "": [*SMALL, *TRANSLATING, "model.d_ff=32", "data.vocab_size=300"],
    "classify": [*SMALL, "model.d_ff=32", "data.vocab_size=300"],
    "lm": [*SMALL, "model.d_ff=32", "data.vocab_size=300", "data.block_length=32"],
    "label": [*SMALL, "model.d_ff=32"],
    "mlm": [*SMALL, "model.d_ff=32", "data.vocab_size=300", "data.block_length=32"],
    "forecast": [*SMALL, "model.d_ff=32", "data.window=8", "data.patch=4", "data.horizon=4", "data.season=4"],
    "transcribe": SMALL,
    "caption": [*SMALL, "model.d_ff=32", "data.vocab_size=300", "model.image_size=8", "model.patch_size=4"],
    "plm": [*SMALL, "model.d_ff=32", "data.vocab_size=300", "data.block_length=32"],
    "rtd": [*SMALL, "model.d_ff=32", "data.vocab_size=300", "data.block_length=32"],
    "denoise": [*SMALL, *TRANSLATING[1:], "model.d_ff=32", "data.vocab_size=300"],
    **{task: [*SMALL, "model.d_ff=32", "data.vocab_size=300"] for task in ("tag", "answer", "embed")},
}
DEMO = ["model.d_model=16", "model.d_ff=16", *SMALL[1:], "train.validate_every=2", *TRANSLATING[1:]]
TERM = {"en": "dog", "de": "man", "fr": "park"}
STDIN = "A dog runs in the park.\nA man in the tall grass.\n"  # on standard input


# Files that lines name ------------------------------------------------------------------------------------------------


def sentences(n: int, shift: int = 0) -> list[str]:
    return [" ".join(WORDS[(i * k + shift) % len(WORDS)] for k in range(1, 4 + i % 5)) for i in range(n)]


def text(n: int, shift: int = 0) -> Callable[[Path], None]:
    return lambda path: write(path, sentences(n, shift))


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def links(n: int) -> Callable[[Path], None]:
    return lambda path: write(path, ["0-0 1-1"] * n)


def recordings(path: Path) -> None:
    sound(path.with_name("talk.flac"))
    write(path, ["talk.flac\ta dog runs", "talk.flac\tin the park"])


def captions(path: Path) -> None:
    lines = []
    for i in range(20):
        picture(path.with_name(f"captioned{i}.png"))
        lines += [f"captioned{i}.png\ta dog {i}", f"captioned{i}.png\tin the park"]
    write(path, lines)


def labelled(path: Path) -> None:
    write(path, [f"{line}\t{'long' if len(line) > 20 else 'short'}" for line in sentences(60)])


def related(path: Path) -> None:
    write(path, [f"{line}\t{line} {i}" for i, line in enumerate(sentences(60))])


def tagged(path: Path) -> None:
    tag = {"dog": "B-X", "man": "B-X", "brown": "B-X"}
    write(
        path,
        [f"{word}\t{tag.get(word, 'O')}" if word else "" for line in sentences(60) for word in [*line.split(), ""]],
    )


def squad(path: Path) -> None:
    paragraphs = []
    for i, line in enumerate(sentences(20)):
        asked = {"id": str(i), "question": "Who?", "answers": [{"text": line, "answer_start": 0}]}
        paragraphs.append({"context": f"{line} and {i}", "qas": [asked]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def labelled_pairs(path: Path) -> None:
    write(path, [f"{line}\t{line[:9]}\t{'long' if len(line) > 20 else 'short'}" for line in sentences(60)])


def pairs(path: Path) -> None:
    write(
        path,
        [f"{src} {i}\t{tgt} {i}" for i, (src, tgt) in enumerate(zip(sentences(60), sentences(60, 3), strict=True))],
    )


def catalogue(path: Path) -> None:
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    rows = zip(sentences(60), sentences(60, 3), range(60), strict=True)
    entries = [f'msgid "{src} {i}"\nmsgstr "{tgt if i % 6 else ""}"\n' for src, tgt, i in rows]
    path.write_text("\n".join([head, *entries]), encoding="utf-8")


def catalogues(path: Path) -> None:
    path.mkdir()
    catalogue(path / "menus.po")


def translation_memory(path: Path) -> None:
    def variant(code: str, line: str) -> str:
        return f'<tuv xml:lang="{code}"><seg>{line}</seg></tuv>'

    rows = zip(sentences(60), sentences(60, 3), strict=True)
    units = (f"<tu>{variant('en', src)}{variant('de', tgt)}{variant('fr', tgt)}</tu>\n" for src, tgt in rows)
    path.write_text(f'<tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>', encoding="utf-8")


def term_base(path: Path) -> None:
    sections = (
        f'<langSec xml:lang="{code}"><termSec><term>{one}</term></termSec></langSec>' for code, one in TERM.items()
    )
    path.write_text(f"<tbx><text><body><conceptEntry>{''.join(sections)}</conceptEntry></body></text></tbx>", "utf-8")


def series(path: Path) -> None:
    write(path, ["hour,load,heat", *(f"{i},{100 + 9 * (i % 4)},{i % 7}" for i in range(120))])


def model(recipe: str, *settings: str) -> Callable[[Path], None]:
    """A translation model of two updates, with the shape in the documents: four layers and heads, where possible."""

    def make(path: Path) -> None:
        corpus = [path.parent / f"{path.name}.{side}" for side in ("src", "tgt")]
        for file, shift in zip(corpus, (0, 3), strict=True):
            write(file, sentences(60, shift))
        shape = [setting for setting in SHORT[""] if recipe == "tiny" or not setting.startswith("model.d_ff")]
        train(corpus, corpus, path, recipe, [*shape, *settings], device="cpu", show=False)

    return make


def short_training(*files: Any, recipe: str, settings: Any, **options: Any) -> Any:
    """`headwise.train` of a snippet, in two updates."""
    short = [setting for setting in SHORT[""] if recipe == "tiny" or not setting.startswith("model.d_ff")]
    named = [f"{key}={value}" for key, value in settings.items()] if isinstance(settings, dict) else settings
    return train(*files, recipe=recipe, settings=[*named, *short], device="cpu", show=False, **options)


def permuted(path: Path) -> None:
    """A permutation language model of two updates, in XLNet's layout."""
    write(path.parent / "permuted.txt", sentences(60))
    files = [path.parent / "permuted.txt"]
    train(files, files, path, "xlnet", SHORT["plm"], task="plm", device="cpu", show=False)


def checkpoint(kind: str, changes: dict[str, Any] | None = None, **rest: Any) -> Callable[[Path], None]:
    return lambda path: write_tiny(path, kind, changes, **rest)


def encoder(path: Path, changes: dict[str, Any] | None = None) -> None:
    """A folder whose tokenizer adds special tokens around a text or a pair of texts, like BERT's."""
    write_tiny(path, "bert", changes, marks=["[MASK]"], mask_token="[MASK]")
    text = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    marks = [("<s>", 0), ("</s>", 2)]
    text.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", marks)
    text.save(str(path / "tokenizer.json"))


def picture(path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    start = crc32("/".join(path.parts[-2:]).encode())  # no two are the same
    image.fromarray((np.arange(start, start + 192) % 251).astype(np.uint8).reshape(8, 8, 3)).save(path)


def pictures(path: Path) -> None:
    for label in ("cats", "dogs"):
        (path / label).mkdir(parents=True)
        for i in range(10):
            picture(path / label / f"{i}.png")


def sound(path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(path, np.sin(np.arange(40_000) / 9) / 3, 16_000)


def cross_encoder(path: Path) -> None:
    """A network with one output for a pair of texts."""
    encoder(path, {"architectures": ["BertForSequenceClassification"], "num_labels": 1})


MAKERS: dict[str, Callable[[Path], None]] = {
    **{f"{name}.{side}": text(60, s) for name in ("corpus", "train", "memory") for side, s in (("en", 0), ("de", 3))},
    **{f"{name}.{side}": text(8, s) for name in ("check", "dev", "test", "text") for side, s in (("en", 0), ("de", 3))},
    **{name: text(8) for name in ("input.txt", "lines.txt", "candidate.de")},
    "memory.new": text(60, 3),
    **{f"mono.{side}": text(60, shift) for side, shift in (("en", 1), ("de", 4))},
    **{name: text(60) for name in ("text.txt", "books.txt", "check.txt")},
    "news.jsonl": lambda path: write(path, [json.dumps({"text": line}) for line in sentences(60)]),
    **{name: links(8) for name in ("dev.links", "test.gold", "fast_align.links")},
    "train.links": links(60),
    **{f"{name}.tsv": pairs for name in ("corpus", "test")},
    "messages.po": catalogue,
    "finished.po": catalogue,
    "catalogues/": catalogues,
    "names.txt": lambda path: write(path, ["# what stays", "park"]),
    "terms.tsv": lambda path: write(path, ["dog\tpark", "tall grass\tbrown dog"]),
    "more-terms.tsv": lambda path: write(path, ["park\tgrass"]),
    "terms.csv": lambda path: write(path, ["source,target", "dog,man"]),
    "terms.tbx": term_base,
    "memory.tmx": translation_memory,
    "train.tsv": labelled,
    "check.tsv": labelled,
    "pairs.tsv": labelled_pairs,
    "several.tsv": lambda path: write(path, ["a dog\tlong,short", "b\tshort", "c\t"] * 4),
    "scores.tsv": lambda path: write(path, ["a dog\ta cat\t1", "b\tno\t0"] * 4),
    "names.conll": tagged,
    "related.tsv": related,
    "squad.json": squad,
    "load.csv": series,
    **{name: model("tiny") for name in ("runs/ende", "runs/deen", "runs/enfr", "runs/large")},
    **{f"runs/{name}{seed}": model("tiny", f"train.seed={seed}") for name in ("tiny-", "seed") for seed in (1, 2, 3)},
    "runs/wide-1": model("tiny", "model.d_model=32"),
    "runs/bahdanau": model("bahdanau"),
    "path/to/gpt2": checkpoint("gpt2"),
    "path/to/checkpoint": checkpoint("gpt2"),
    "path/to/t5": checkpoint("t5"),
    "path/to/pretrained-t5": checkpoint("t5", marks=[f"<extra_id_{i}>" for i in range(100)]),
    "path/to/bart": checkpoint("marian", {"model_type": "bart", "max_position_embeddings": 600}),
    "path/to/opus-mt": checkpoint("marian"),
    "path/to/nllb": checkpoint("m2m", marks=["eng_Latn", "deu_Latn"]),
    "path/to/xlnet": permuted,
    "path/to/llama": checkpoint("llama"),
    "path/to/bert": encoder,
    "path/to/cross-encoder": cross_encoder,
    "path/to/vit": checkpoint("vit"),
    "path/to/vit-gpt2": checkpoint("captions"),
    "path/to/whisper": checkpoint("whisper", {"max_source_positions": 150}, generation=HEARING),
    "picture.jpg": picture,
    "new.jpg": picture,
    "pictures/": pictures,
    "talk.flac": sound,
    "recordings.tsv": recordings,
    "captions.tsv": captions,
    "held.tsv": recordings,
    "DIR": Path.mkdir,  # corpora of the study, which are optional
}
GIVEN = {"sources": sentences(4), "targets": sentences(4, 3)}  # names that snippets assume


def provide(folder: Path, names: list[str]) -> None:
    """Copy the named files that are missing, with what was made beside them."""
    for name in names:
        if name in MAKERS and not (folder / name).exists():
            shutil.copytree(made(name), folder, dirs_exist_ok=True)


@cache
def made(name: str) -> Path:
    """A folder with the named file, made once."""
    folder = Path(mkdtemp(dir=CACHE.name))
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    MAKERS[name](folder / name)
    return folder


CACHE = TemporaryDirectory(prefix="headwise-documentation-")


# Outputs -------------------------------------------------------------------------------------------------------------


def out_of(words: list[str]) -> str:
    """The path after `-o`."""
    return words[words.index("-o") + 1] if "-o" in words else ""


def written(words: list[str], out: str) -> str:
    """The file of a command with `-o`, otherwise its output."""
    return Path(out_of(words)).read_text(encoding="utf-8") if "-o" in words else out


def rows(out: str) -> list[str]:
    """Lines of a file; a model of random numbers also writes unusual line ends."""
    return out.removesuffix("\n").split("\n")


def lines_like(pattern: str, count: int = 0) -> Callable[[list[str], str], bool]:
    """Every line matches; if the number of lines is known, it matches too."""

    def check(words: list[str], out: str) -> bool:
        found = rows(written(words, out))
        return bool(found) and all(re.fullmatch(pattern, line) for line in found) and count in (0, len(found))

    return check


def translated(words: list[str], out: str) -> bool:
    if out_of(words).endswith(".po"):
        return Path(out_of(words)).read_text(encoding="utf-8").count("#, fuzzy") == 10
    source = next((Path(word) for word in words[2:] if word in MAKERS), None)
    lines = rows(written(words, out))
    if "--alignment" in words:
        behind = words[words.index("--alignment") + 1]
        apart = [] if behind == "-" else Path(behind).read_text(encoding="utf-8").splitlines()
        found = apart or [line.rpartition(" ||| ")[2] for line in lines]
        assert all(re.fullmatch(r"(\d+-\d+ ?)*", line) for line in found)
    if "jsonl" in words:
        assert all(len(json.loads(line)["alternatives"]) == 2 for line in lines)
    return len(lines) == len((source.read_text(encoding="utf-8") if source else STDIN).splitlines())


def inspected(words: list[str], out: str) -> bool:
    if out_of(words).endswith(".png"):
        return Path(out_of(words)).read_bytes().startswith(b"\x89PNG")
    if "json" in words:
        return json.loads(out)["attention"]["cross"] != []
    layer = words[words.index("--layer") + 1] if "--layer" in words else "3"
    return f"cross-attention, layer {layer}:" in out if "text" in words else "<html" in written(words, out)


def evaluated(words: list[str], out: str) -> bool:
    of_folder = {
        "runs/books": "perplexity",
        "runs/load": "last value",
        "runs/labels": "accuracy",
        "runs/masked": "accuracy",
        "runs/names": "F1",
        "runs/answers": "F1",
        "runs/pictures": "accuracy",
        "runs/vectors": "found first",
    }
    score = "WER" if "held.tsv" in words else of_folder.get(words[1], "BLEU")
    return ("AER" if "--alignments" in words else score) in out


def scored(words: list[str], out: str) -> bool:
    records = [json.loads(line) for line in out.splitlines()]
    return bool(records) and all(record["log_prob"] < 0 for record in records)


def compared(words: list[str], out: str) -> bool:
    """A table of systems with a baseline, in the format of the line, and a picture of the curves."""
    if "--test" not in words:
        return f"| {Path(words[1]).name} " in out and Path("curves.png").is_file()
    latex = words[words.index("--format") + 1] == "latex" if "--format" in words else False
    seeds = sum("runs/tiny-" in word for word in words)
    row = rf"^tiny \(baseline\) & {seeds} & .*\\\\$" if latex else rf"^\| tiny \(baseline\) +\| +{seeds} \|"
    curves = Path(words[words.index("--curves") + 1]) if "--curves" in words else None
    table = written(words, out)
    significant = r"\$p\$ = " if latex else "p = "
    return bool(
        re.search(row, table, re.MULTILINE) and re.search(significant, table) and (not curves or curves.is_file())
    )


def out_folder(words: list[str]) -> str:
    return words[words.index("--out") + 1]


def loads(flag: str) -> Callable[[list[str], str], bool]:
    """The folder after that flag contains a model."""
    return lambda words, out: bool(headwise.load(words[words.index(flag) + 1], "cpu").info())


def is_there(name: str) -> Callable[[list[str], str], bool]:
    return lambda words, out: (Path(words[1] if "{" in name else ".") / name.format("")).is_file()


CHECKS: dict[str, Callable[[list[str], str], bool]] = {
    "train": loads("--out"),
    "tune": loads("--out"),
    "check-corpus": lambda words, out: out.startswith("training: ") and "<svg" in written(words, out),
    "translate": translated,
    "evaluate": evaluated,
    "results": compared,
    "split": lambda words, out: all(Path(out_folder(words), f"{p}.tsv").stat().st_size for p in ("train", "test")),
    "demo": lambda words, out: "Exact match on 40 dates never seen" in out,
    "score": scored,
    "settings": lambda words, out: "train.max_steps = 100000" in out,
    "info": lambda words, out: "parameters" in out,
    "download": lambda words, out: words[1:] != [] or "Downloaded to" in out,
    "inspect": inspected,
    "explore": lambda words, out: True,  # `served_once` has seen its page
    "serve": lambda words, out: True,  # so has `started_and_stopped`
    "classify": lines_like(r"(long|short)\t[01]\.\d{4}", 8),
    "rerank": lines_like(r"[01]\.\d+(e-\d+)?\t\d\t.*", 8),
    "answer": lambda words, out: (
        len(json.loads(written(words, out))) == 20 if "squad" in words else len(out.split("\t")) == 4
    ),
    "tag": lines_like(r"|\d\t\d+\t\d+\tX\t[01]\.\d{4}\t.+"),
    "forecast": lines_like(r"step,load|\d+,[\d.e+-]+", 5),
    "generate": lambda words, out: bool(out),
    "fill": lambda words, out: len(re.findall(r"^0\.\d{4}  ", out, re.MULTILINE)) == 5,
    "embed": lambda words, out: np.load("vectors.npy").shape == (8, 16),
    "label": lambda words, out: lines_like(r"[01]\.\d{4}  (cats?|dogs?|owl)", 2 if "new.jpg" in words else 3)(
        words, out
    ),
    "caption": lambda words, out: bool(out),
    "transcribe": lambda words, out: (
        ("--out" in words and Path("subtitles/talk.srt").exists())
        or bool(re.match(r" *\d+\.\d\d +\d+\.\d\d  " if "--timestamps" in words else ".", out))
    ),
    "align": lambda words, out: "--choose" in words or lines_like(r"(\d+-\d+ ?)*", 8)(words, out),
    "prune": loads("--out"),
    "join": lambda words, out: "is random until" in out,
    "distill": lines_like(r'\{"src": ".*", "tgt": ".*"\}'),
    "annotate": lambda words, out: "⟦ dog ⇒ park ⟧" in written(words, out),
    "backtranslate": lines_like(r'\{"src": "<bt> .*", "tgt": ".*"\}'),
    "export": lambda words, out: Path(words[-1]).exists(),
    "shortlist": is_there("{}shortlist.safetensors"),
    "pack": is_there("{}packed.int8"),
    "seal": is_there("{}SHA256SUMS"),
    "study": is_there("runs/study/study.html"),
}


KNOWN = (  # lines that the system's own programs take
    "python3 -m venv headwise-env",
    "source headwise-env/bin/activate",
    "py -m venv headwise-env",
    "headwise-envScriptsactivate",  # without its backslashes
    "docker run --read-only --tmpfs /tmp -v $PWD/runs/ende:/model:ro -p 127.0.0.1:5000:5000 headwise",
)


# Documents -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Code of a document."""

    language: str
    code: str


def blocks(document: Path) -> Iterator[Block]:
    """Fenced code in order, also in tabs, and command lines from the text between."""
    content = document.read_text(encoding="utf-8")
    for part in re.split(r"^( *```[^\n]*\n.*?^ *```$)", content, flags=re.MULTILINE | re.DOTALL):
        if part.lstrip(" ").startswith("```"):
            language, _, code = dedent(part)[3:].removesuffix("```").partition("\n")
            yield Block(language or "text", code)
            continue
        for span in re.findall(r"`((?:headwise|make) [^`]+)`", part):
            yield Block("span", " ".join(span.split()))


def lines(block: Block) -> list[str]:
    """The command lines of a block; in a plain block those after a prompt."""
    joined = block.code.replace("\\\n", " ")
    if block.language == "text":
        return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def is_whole(words: list[str]) -> bool:
    """Whether code in the text is a complete command line without placeholders (MODEL)."""
    try:
        command_line.parse(words)
    except UserError as error:
        assert "the following arguments are required" in str(error), error
        known = command_line.command_parser(words[0])._option_string_actions
        assert all(word in known for word in words if word.startswith("--")), "no such flag"
        return False
    except SystemExit:  # --help
        return False
    return not any(re.fullmatch(r"[A-Z_]+|\.\.\.", word) for word in words)


def other(words: list[str]) -> None:
    """Lines for other programs must name existing files and options; `AssertionError` for unknown programs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), words
    elif words[0] == "torchrun":
        command_line.parse(words[words.index("headwise") + 1 :])
    elif words[:2] == ["pip", "install"]:
        named = re.fullmatch(r"(?:headwise|\.)(?:\[([\w,-]+)\])?", words[-1])
        assert named and set((named[1] or "train").split(",")) <= project["optional-dependencies"].keys(), words
    elif words[0] == "uvx":
        other(["pip", "install", words[words.index("--from") + 1] if "--from" in words else words[1]])
        assert words[-1].startswith("--") or words[-1] in command_line.BY_NAME, words
    elif words[0] == "msgfmt":
        if shutil.which("msgfmt"):
            subprocess.run(words, check=True, capture_output=True)
    elif words[:2] == ["python", "-m"] and words[2].startswith("headwise."):
        assert callable(import_module(words[2]).main), words
    elif words[:2] == ["docker", "build"]:
        assert (ROOT / words[words.index("-f") + 1]).is_file(), words
    else:
        assert " ".join(words) in KNOWN, f"{shlex.join(words)}: no line of this kind is known; teach `other`"


def named_inputs(words: list[str]) -> list[str]:
    """The words except names of outputs, which must not exist yet if they are folders."""
    options = command_line.parse(words)
    actions = command_line.command_parser(words[0])._actions
    folders = [action.dest for action in actions if action.dest == "out" or action.metavar == "DIR"]
    folders = [] if words[0] == "study" else folders
    for name in folders:
        shutil.rmtree(getattr(options, name), ignore_errors=True)
    outputs = {getattr(options, name) for name in folders}
    outputs |= {getattr(options, action.dest) for action in actions if action.type is out_file}
    return [word.rpartition("=")[2] for word in words if word not in outputs]  # NAME=FILE also names a file


def shortened(words: list[str]) -> list[str]:
    """Options appended to a line so that it takes seconds with an untrained model."""
    if words[0] in ("train", "tune"):
        task = words[words.index("--task") + 1] if "--task" in words else ""
        start = words[words.index("--init") + 1] if "--init" in words else words[1]
        published = any(word.startswith("path/to/") for word in words)  # with a fixed shape and vocabulary
        published = published or start.startswith("runs/my-")
        settings = [setting for setting in SHORT[task] if not published or setting.startswith("train.")]
        if "--minutes" in words:  # instead of a number of updates
            settings = [setting for setting in settings if not setting.startswith("train.max_steps")]
            settings.append("train.minutes=0.01")
        return ["--set", *settings, "--device", "cpu"]
    if words[0] == "split":
        return ["--valid", "5pairs", "--test", "5pairs"]
    if words[0] == "backtranslate":  # a model of two updates repeats one token
        return ["--sample"] * ("--sample" not in words)
    return ["--port", "0"] if words[0] == "explore" else []


class Reader:
    """Runs a document and keeps its outputs."""

    def __init__(self, folder: Path, run: Callable[..., Any]) -> None:
        self.folder, self.run = folder, run
        self.names: dict[str, Any] = dict(GIVEN)  # of Python
        self.transcript: list[str] = []
        self.wrong: list[str] = []

    def read(self, document: Path) -> None:
        is_chapter = document.parent.name == "tutorial"  # tests/system/test_tutorial.py runs its cells
        for block in blocks(document):
            if block.language.startswith("python") and is_chapter:
                continue
            if block.language == "python":
                self._attempt(block.code, lambda code=block.code: self._snippet(code))
            elif block.language in ("sh", "text", "span"):
                for line in lines(block):
                    self._attempt(line, lambda line=line, prose=block.language == "span": self._line(line, prose))

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        """Continue after a failing line; all failures are reported."""
        try:
            work()
        except pytest.skip.Exception as skipped:
            self.transcript.append(f"$ {what}\n(left out: {skipped})")
        except (Exception, SystemExit) as error:
            if "pip install" in str(error):  # an optional package is missing
                self.transcript.append(f"$ {what}\n(left out: {error})")
                return
            self.wrong.append(f"{what}\n    {type(error).__name__}: {error}")

    def _line(self, line: str, prose: bool) -> None:
        words = shlex.split(line, comments=True)
        piped = f"{words[1]}\n" if words[0] == "echo" and words[2] == "|" else ""
        words = words[3:] if piped else words
        if words[0] != "headwise":
            other(words)
            return
        words = [path for word in words[1:] for path in (sorted(glob(word)) if "*" in word else [word])]
        if words in (["--version"], ["--help"]):
            with pytest.raises(SystemExit, match="0"):
                self.run(*words)
            return
        if prose and not is_whole(words):
            return
        provide(self.folder, named_inputs(words))
        more = shortened(words)
        ran = self.run(*words, *more, stdin=(piped or STDIN).encode())
        assert ran.code == 0, ran.err
        right = ran.out.count("\n") == 1 if piped else CHECKS[words[0]](words, ran.out)
        assert right, f"its output is not what it should be: {ran.out[:300]}"
        note = f"   # here with {shlex.join(more)}" if more else ""
        output = ran.out or ran.err or f"({out_of(words)} is written)"
        self.transcript.append(f"$ headwise {shlex.join(words)}{note}\n{shown(output)}")

    def _snippet(self, code: str) -> None:
        provide(self.folder, re.findall(r'"([^"]+)"', code))
        exec(compile(code, "snippet", "exec"), self.names)
        self.transcript.append("".join(f">>> {line}\n" for line in code.splitlines()))


def downloaded(name: str, folder: Path) -> None:
    """In place of a download."""
    if name == "dates":
        assert command_line.main(["demo", "--out", str(folder)]) == 0
    else:
        shutil.copytree(made("runs/ende") / "runs/ende", folder)


def shown(out: str, most: int = 12) -> str:
    found = [line[:160] for line in out.replace("\r", "\n").splitlines()]
    return "\n".join(found[:most] + [f"... ({len(found) - most} more lines)"] * (len(found) > most)) + "\n"


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The study measures two claims at its quick scale; the explorer serves its page once, and ends.

    Small models stand for those that are downloaded.

    Attribution goes from its baseline to the text in two steps.
    """
    shares = attribution._shares

    def served_once(server: ExplorerServer) -> None:
        Thread(target=super(ExplorerServer, server).serve_forever, daemon=True).start()
        with urllib.request.urlopen(server.url) as answer:
            assert b"<html" in answer.read()
        server.shutdown()

    def started_and_stopped(models: Any, wanted: Any) -> None:
        with TestClient(application(models, wanted, Path())) as client:
            client.headers["host"] = "localhost"
            source, target = models[0].language_pairs[0]
            asked = {"q": "a dog", "source": source, "target": target}
            assert client.post("/translate", json=asked).json()["translatedText"] is not None
            assert "<html" in client.get("/").text

    monkeypatch.setattr(attribution, "_shares", lambda *rest, steps=2: shares(*rest[:4], steps, rest[5]))
    corpus = generate_corpus(n_train=300, n_valid=20, n_test=40)
    monkeypatch.setattr("headwise.lab.demo.run.demo", partial(demo, corpus=corpus, settings=DEMO))
    monkeypatch.setenv("HEADWISE_MODELS", str(tmp_path / "models"))
    for name in ("_release", "_argos_package"):
        monkeypatch.setattr(download_command, name, downloaded)
    monkeypatch.setattr(download_command, "folder_of", Path)
    monkeypatch.setattr(headwise, "train", short_training)
    monkeypatch.setattr(serving, "serve", started_and_stopped)
    monkeypatch.setattr(ExplorerServer, "serve_forever", served_once)
    monkeypatch.setattr(study_run, "Plan", lambda scale, *rest: Plan("quick", *rest))
    for name in CLAIMS.keys() - {"order", "gradients"}:
        monkeypatch.delitem(CLAIMS, name)


@pytest.fixture
def reader(tmp_path: Path, cli: Any, short_ways: None, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(tmp_path)
    return Reader(tmp_path, cli)


def test_every_line_of_the_readme_runs(reader: Reader) -> None:
    reader.read(ROOT / "README.md")
    assert reader.wrong == []


@pytest.mark.thorough
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_line_of_the_documentation_runs(document: Path, reader: Reader) -> None:
    reader.read(document)
    if reader.transcript:
        TRANSCRIPT.mkdir(parents=True, exist_ok=True)
        name = str(document.relative_to(ROOT)).replace("/", "-")
        (TRANSCRIPT / f"{name}.txt").write_text(f"# {name}\n\n" + "\n".join(reader.transcript), encoding="utf-8")
    assert reader.wrong == []


def test_unknown_lines_fail(reader: Reader, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    wrong = ["headwise translate runs/unknown input.txt", "headwise info runs/ende --brief", "curl example.org"]
    tab = ['=== "Linux"', "", "    ```sh", '    pip install "headwise[no]"', "    ```"]
    rest = ["`headwise train --colour` `make up`", "```python", "import nothing", "```", ""]
    block = "\n".join(["```sh", *wrong, "```", *tab, *rest])
    page.write_text(block, encoding="utf-8")
    reader.read(page)
    messages = [message.splitlines()[0] for message in reader.wrong]
    assert messages == [*wrong, 'pip install "headwise[no]"', "headwise train --colour", "make up", "import nothing"]
