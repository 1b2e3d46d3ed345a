"""Completing human translation catalogues with models trained on them: Python's French documentation.

    tar xzf ../shared/data/pydocs/po-fr.tar.gz -C runs
    python benchmarks/python_documentation.py split runs/python-docs-fr runs/docs
    headwise train --recipe tiny --train runs/docs/train.tsv --valid runs/docs/valid.tsv --out runs/docs/model ...
    python benchmarks/python_documentation.py fill runs/python-docs-fr runs/docs/filled --model runs/docs/model
    python benchmarks/python_documentation.py score runs/docs/test --model runs/docs/model runs/docs/tuned

`split` is by file, so no part of a test file is in the training data. `score` translates units of held-out files that
have a human translation, and compares. `fill` translates the units without one, runs `msgfmt --check` on every file
before and after (with fuzzy entries), and counts the codes (roles, literals, links, placeholders, addresses) of each
source in its translation.
"""

import argparse
import hashlib
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import machine
import torch

import headwise
from headwise.documents.fill import TranslatedUnit, targets_of, translate_units
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.memory import read_memory_pairs
from headwise.documents.reading import read_document
from headwise.documents.unit import Code, UnitState, codes_of, plain
from headwise.evaluate.bleu import corpus_scores

KINDS = {":": "roles", "`": "literals and links", "%": "placeholders", "{": "placeholders", "h": "addresses"}


def split(source: Path, out: Path) -> None:
    """Copy a tenth of the catalogues for testing; write pairs of another twentieth for validation, of the rest for
    training.

    The part of a file follows from its name. Paragraphs that also occur in a held-out file are removed from training.
    """
    parts = dict[str, list[Path]](test=[], valid=[], train=[])
    for file in sorted(source.rglob("*.po")):
        number = int(hashlib.sha256(str(file.relative_to(source)).encode()).hexdigest(), 16) % 20
        parts["test" if number < 2 else "valid" if number == 2 else "train"].append(file)
    for file in parts["test"]:
        to = out / "test" / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
    pairs = {part: read_memory_pairs([str(file) for file in files])[0] for part, files in parts.items()}
    held = {text for part in ("test", "valid") for text, _ in pairs[part]}
    pairs["train"] = [pair for pair in pairs["train"] if pair[0] not in held]
    for part, found in pairs.items():
        (out / f"{part}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in found), encoding="utf-8")
        print(f"{part}: {len(parts[part])} files, {len(found):,} pairs")


def scored(model: Any, files: Sequence[Path]) -> dict[str, Any]:
    """Translations of units that have a human translation, scored against it, with codes restored."""
    hypotheses, references = [], []
    kept = Counter[str]()
    for file in files:
        for one in translate_units(read_document(file), model, "en", again=True):
            if one.unit.state is UnitState.TRANSLATED:
                hypotheses.append(_line(plain(one.target)))
                references.append(_line(plain(one.unit.target)))
                kept += _fate(one)
    scores = corpus_scores(hypotheses, references, ("BLEU", "chrF++"))
    return {"units": len(hypotheses), "scores": {k: round(v.score, 2) for k, v in scores.items()}, "codes": dict(kept)}


def _line(text: str) -> str:
    return " ".join(text.split())


def _fate(one: TranslatedUnit) -> Counter[str]:
    """Counts of a unit's codes: kept, lost and so on; untranslated units lose none."""
    if not one.target:
        return Counter({"units left open": 1})
    wanted = Counter(codes_of(with_codes(one.unit.source, one.unit.markup)))
    found = Counter(codes_of(with_codes(one.target, one.unit.markup)))
    kept = wanted & found
    rows = Counter({"units filled": 1, "codes": wanted.total(), "codes kept": kept.total()})
    rows["units with codes"] = bool(wanted)
    rows["units with all their codes and no other"] = bool(wanted) and wanted == found
    for code, count in wanted.items():
        rows[f"{_kind(code)}"] += count
        rows[f"{_kind(code)} kept"] += kept[code]
    return rows + Counter(f"{warning} (units)" for warning in one.warnings)


def _kind(code: Code) -> str:
    return KINDS.get(code.text.strip()[:1], "others")


def filled(model: Any, source: Path, out: Path, compute: str) -> Iterator[tuple[Path, Counter[str]]]:
    """Each catalogue with its untranslated units filled, written below `out`, and counts of units and codes."""
    for file in sorted(source.rglob("*.po")):
        document = read_document(file)
        done = translate_units(document, model, "en", compute=compute)
        to = out / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(document.filled(targets_of(done)))
        yield to, sum(map(_fate, done), Counter())


def complaints(file: Path) -> int:
    """Number of lines that `msgfmt --check` writes about a catalogue, with fuzzy entries."""
    call = ["msgfmt", "--check", "--use-fuzzy", "-o", "/dev/null", str(file)]
    ran = subprocess.run(call, capture_output=True, text=True)
    return len(ran.stderr.splitlines()) if ran.returncode else 0


def report_scores(options: argparse.Namespace) -> None:
    """BLEU of every model on held-out files."""
    about = machine.description(torch.get_num_threads())
    files = sorted(options.folder.rglob("*.po"))[: options.files]
    found = {}
    for path in options.model:
        started = time.perf_counter()
        found[path.name] = scored(headwise.load(str(path), "cpu"), files) | {"seconds": time.perf_counter() - started}
    rows = []
    for name, one in found.items():
        codes = one["codes"]
        intact = codes["units with all their codes and no other"] / codes["units with codes"]
        share = codes["codes kept"] / codes["codes"]
        rows.append((name, one["units"], *one["scores"].values(), f"{100 * share:.1f} %", f"{100 * intact:.1f} %"))
    header = ("model", "units", "BLEU", "chrF++", "codes kept", "units with all their codes and no other")
    machine.write_result(
        machine.result_path("python-documentation-score"),
        f"Python's documentation into French: {len(files)} held-out files",
        about,
        [machine.table(header, rows)],
        found,
    )
    print(machine.table(header, rows))


def report_filled(options: argparse.Namespace) -> None:
    """Fill the untranslated units of every file."""
    about = machine.description(torch.get_num_threads())
    model = headwise.load(str(options.model[0]), "cpu")
    total, worse, started = Counter[str](), [], time.perf_counter()
    wrong = [0, 0]
    for to, fate in filled(model, options.folder, options.out, options.compute):
        total += fate
        before, after = complaints(options.folder / to.relative_to(options.out)), complaints(to)
        wrong = [wrong[0] + bool(before), wrong[1] + bool(after)]
        worse += [str(to.relative_to(options.out))] * (after > before)
        print(f"{sum(1 for _ in to.parent.iterdir()):>4} {to.name}: {fate['units filled']:,} units", flush=True)
    seconds = time.perf_counter() - started
    rows = [(what, f"{count:,}") for what, count in sorted(total.items())]
    rows += [("files that msgfmt --check refuses, before", wrong[0]), ("and after", wrong[1])]
    rows += [("files with more complaints than before", len(worse)), ("minutes", f"{seconds / 60:.1f}")]
    data = {"fates": dict(total), "refused": wrong, "worse": worse, "seconds": seconds}
    title = "Python's documentation into French: untranslated units"
    path = machine.result_path("python-documentation-filled")
    machine.write_result(path, title, about, [machine.table(("", ""), rows)], data)
    print(machine.table(("", ""), rows), *worse, sep="\n")


def main() -> None:
    """Split, fill or score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("split", "fill", "score"))
    parser.add_argument("folder", type=Path, help="catalogues")
    parser.add_argument("out", type=Path, nargs="?", help="for split and fill")
    parser.add_argument("--model", type=Path, nargs="+")
    parser.add_argument("--compute", default="int8", help="for fill")
    parser.add_argument("--files", type=int, help="score only the first N files")
    machine.add_quick_option(parser)
    options = parser.parse_args()
    if options.what == "split":
        split(options.folder, options.out)
    elif options.what == "fill":
        report_filled(options)
    else:
        report_scores(options)


if __name__ == "__main__":
    main()
