"""Translation quality after `headwise export`: BLEU of the same sentences in every format, with beam search.

    python benchmarks/exported.py MODEL --source FILE ... --reference FILE ... [--beam-size 4]
                                  [--formats ctranslate2 hf] [--limit N]

The libraries of these formats rank finished hypotheses by log-probability / length^alpha, Headwise by the paper's
penalty. So each is measured with its own penalty for the same alpha, and all without a penalty. float32 throughout.
Writes `results/exported_*`.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import torch
from quality import lines

import headwise
from headwise.evaluate.bleu import corpus_scores
from headwise.pytorch.export.exported import exported_model
from headwise.pytorch.export.run import export_model
from headwise.runtime.checkpoint.read import read_folder

Translate = Callable[[Sequence[str], int, float], list[str]]  # texts, beam size, alpha -> translations
PENALTIES = (0.0, 0.6)
BATCH = 32
STEPS = 256


@dataclass(frozen=True)
class Test:
    """Sentences and their references."""

    name: str
    sources: list[str]
    references: list[str]


def ours(model: str, folder: Path) -> Translate:
    """The model itself."""
    loaded = headwise.load(model, "cpu")

    def translate(texts: Sequence[str], beams: int, alpha: float) -> list[str]:
        return [found.text for found in loaded.translate(texts, beam_size=beams, length_penalty=alpha)]

    return translate


def ctranslate2(model: str, folder: Path) -> Translate:
    """CTranslate2 as in its documentation, with pieces as input and output."""
    import ctranslate2

    export_model(model, "ctranslate2", folder)
    exported = exported_model(read_folder(model))
    names, tokenizer = exported.pieces, exported.tokenizer
    ids = {name: i for i, name in enumerate(names)}
    translator = ctranslate2.Translator(str(folder), intra_threads=torch.get_num_threads())

    def translate(texts: Sequence[str], beams: int, alpha: float) -> list[str]:
        sources = [[names[i] for i in [*row, tokenizer.eos_id]] for row in tokenizer.encode_batch(texts)]
        found = translator.translate_batch(
            sources, beam_size=beams, length_penalty=alpha, max_batch_size=BATCH, max_decoding_length=STEPS
        )
        return [tokenizer.decode([ids[piece] for piece in result.hypotheses[0]]) for result in found]

    return translate


def hf(model: str, folder: Path) -> Translate:
    """transformers' `generate`, on the exported folder."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    export_model(model, "hf", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    @torch.inference_mode()
    def translate(texts: Sequence[str], beams: int, alpha: float) -> list[str]:
        found: list[str] = []
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(list(texts[start : start + BATCH]), return_tensors="pt", padding=True)
            rows = network.generate(**batch, num_beams=beams, length_penalty=alpha, max_new_tokens=STEPS)
            found += tokenizer.batch_decode(rows, skip_special_tokens=True)
        return found

    return translate


FORMATS: dict[str, Callable[[str, Path], Translate]] = {"headwise": ours, "ctranslate2": ctranslate2, "hf": hf}


def measure(model: str, formats: Sequence[str], tests: Sequence[Test], beams: int) -> tuple[list[list[str]], Any]:
    """A row for each format and penalty, and every score."""
    rows, every, wanted = [], {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("headwise", *formats):
            translate = FORMATS[name](model, Path(scratch) / name)
            for alpha in PENALTIES:
                outputs = [translate(test.sources, beams, alpha) for test in tests]
                scores = [
                    corpus_scores(found, test.references, metrics=["BLEU"])["BLEU"].score
                    for test, found in zip(tests, outputs, strict=True)
                ]
                flat = [text for found in outputs for text in found]
                same = sum(a == b for a, b in zip(flat, wanted.setdefault(alpha, flat), strict=True)) / len(flat)
                rows.append([name, str(alpha), *(f"{score:.2f}" for score in scores), f"{same:.1%}"])
                every[f"{name}, {alpha}"] = {"BLEU": scores, "same": same}
                print(" | ".join(rows[-1]), flush=True)
    return rows, every


def main() -> None:
    """Translate, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model directory")
    parser.add_argument("--source", type=Path, nargs="+", required=True, help="test sets, gzipped")
    parser.add_argument("--reference", type=Path, nargs="+", required=True)
    parser.add_argument("--formats", nargs="+", choices=[*FORMATS][1:], default=[*FORMATS][1:])
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--limit", type=int, help="use the first N sentences of each test set")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    torch.set_num_threads(cores)
    tests = [
        Test(src.name.split(".")[0], lines(src)[: options.limit], lines(ref)[: options.limit])
        for src, ref in zip(options.source, options.reference, strict=True)
    ]
    rows, every = measure(options.model, options.formats, tests, options.beam_size)
    header = ["format", "alpha", *(f"BLEU {test.name} ({len(test.sources)})" for test in tests), "same as ours"]
    section = f"Beam {options.beam_size}.\n\n{machine.table(header, rows)}"
    path = machine.result_path(f"exported-{Path(options.model).name}")
    machine.write_result(path, "Exported models", machine.description(cores), [section], every)
    print(section)


if __name__ == "__main__":
    main()
