"""Sentence pairs from a dataset of Hugging Face's `datasets` library, from a folder or the Hub; an optional dependency.

`corpus.py` calls this for paths that start with `hf:`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from headwise.errors import UserError, unknown
from headwise.text.files.sources import HF_PREFIX, Pair, changed_file_error, text_field
from headwise.text.prepared.cache import checked_folder, is_intact

FORMAT = 1  # version of a cached copy; raise it when the same rows give other lines
CHECKPOINT_EVERY = 10_000  # pairs between two saved positions


def read_hugging_face(spec: str) -> Iterator[Pair]:
    """Pairs of a Hugging Face dataset: `hf:PATH_OR_NAME[?split=train&src=en&tgt=de&config=NAME]`.

    The columns are `src` and `tgt`, either of the row or of its `translation` column, `{"en": ..., "de": ...}`.
    """
    name, options = parse_hf_spec(spec)
    return _pairs_of_rows(open_dataset(name, options)[0], name, options)


def _pairs_of_rows(
    rows: Iterable[dict[str, Any]], name: str, options: Mapping[str, str], start: int = 1
) -> Iterator[Pair]:
    """The pairs of rows that are numbered from `start`."""
    for number, row in enumerate(rows, start):
        record = row["translation"] if isinstance(row.get("translation"), dict) else row
        location = f"{HF_PREFIX}{name}?src={options['src']}&tgt={options['tgt']}: row {number}"
        yield text_field(record, options["src"], location), text_field(record, options["tgt"], location)


def parse_hf_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name and the options of an `hf:` spec.

    >>> parse_hf_spec("hf:wmt14?config=de-en&src=en&tgt=de")
    ('wmt14', {'split': 'train', 'src': 'en', 'tgt': 'de', 'config': 'de-en'})
    """
    options = {"split": "train", "src": "src", "tgt": "tgt", "config": ""}
    name, _, query = spec.removeprefix(HF_PREFIX).partition("?")
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in options:
            raise unknown(f"option in {spec}", key, options)
        options[key] = value
    return name, options


def open_dataset(name: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """A dataset to stream, and a version string that changes with its files.

    `name` is a folder of data files, a saved dataset or a name on the Hub.
    """
    try:
        datasets = import_module("datasets")  # optional, and slow to import
    except ImportError as error:
        raise UserError(f'{HF_PREFIX}{name}: needs an optional package: pip install "headwise[datasets]"') from error
    try:
        if (Path(name) / "state.json").exists() or (Path(name) / "dataset_dict.json").exists():
            dataset = datasets.load_from_disk(name)
            split = dataset[options["split"]] if isinstance(dataset, datasets.DatasetDict) else dataset
            return split.to_iterable_dataset(), "".join(
                path.read_text(encoding="utf-8") for path in sorted(Path(name).rglob("state.json"))
            )
        builder = datasets.load_dataset_builder(name, options["config"] or None)
        return builder.as_streaming_dataset(split=options["split"]), f"{builder.config_id} {builder.hash}"
    except Exception as error:  # the library raises dozens of types for a wrong name, split, file or network
        reason = " ".join(str(error).split())
        raise UserError(f"{HF_PREFIX}{name}: cannot be opened ({type(error).__name__}: {reason})") from error


def cached_dataset(spec: str, folder: Path) -> Path:
    """Stream a dataset once into a .jsonl file, in a folder in `folder`, which can be read repeatedly.

    The position is saved every `CHECKPOINT_EVERY` pairs (`IterableDataset.state_dict`), so a killed copy resumes there.
    Two processes may write the same file, because the content depends on the dataset only.

    Raises:
        UserError: the dataset cannot be read, or its files have changed meanwhile; then the copy is deleted.
    """
    name, options = parse_hf_spec(spec)
    dataset, version = open_dataset(name, options)
    digest = hashlib.sha256(json.dumps([FORMAT, name, options, version]).encode()).hexdigest()[:16]
    target = folder / f"hf-{re.sub('[^A-Za-z0-9]+', '-', name)[-40:].strip('-')}-{digest}"
    copy = target / f"{target.name}.jsonl"
    if is_intact(target):
        return copy
    shutil.rmtree(target, ignore_errors=True)
    draft, position = target.with_suffix(".part"), target.with_suffix(".position")
    saved = json.loads(position.read_text(encoding="utf-8")) if draft.exists() and position.exists() else None
    if saved:
        dataset.load_state_dict(saved["state"])
    done, size = (saved["rows"], saved["bytes"]) if saved else (0, 0)
    with draft.open("r+b" if saved else "wb") as file:
        file.seek(size)
        for number, (src, tgt) in enumerate(_pairs_of_rows(dataset, name, options, done + 1), start=done + 1):
            file.write(json.dumps({"src": src, "tgt": tgt}).encode() + b"\n")
            if number % CHECKPOINT_EVERY == 0:
                _save_position(position, file, {"rows": number, "bytes": file.tell(), "state": dataset.state_dict()})
        file.truncate()
    if open_dataset(name, options)[1] != version:  # the copy may mix rows of both versions
        draft.unlink()
        position.unlink(missing_ok=True)
        raise changed_file_error([spec])
    with checked_folder(target) as checked:
        draft.replace(checked / copy.name)
    position.unlink(missing_ok=True)
    return copy


def _save_position(position: Path, file: BinaryIO, saved: Mapping[str, Any]) -> None:
    """Save a position, after the pairs before it are on disk."""
    file.flush()
    os.fsync(file.fileno())
    draft = position.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(saved), encoding="utf-8")
    draft.replace(position)
