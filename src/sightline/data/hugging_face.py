"""Pairs out of a dataset in the format of Hugging Face's library, from a folder or the hub; the library is optional.

Files of text are `corpus.py`'s, which asks for this where a path begins with `hf:`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sightline.data.corpus import HF_PREFIX, Pair, text_field
from sightline.errors import UserError, unknown


def read_hugging_face(spec: str) -> Iterator[Pair]:
    """Pairs of a Hugging Face dataset: `hf:PATH_OR_NAME[?split=train&src=en&tgt=de&config=NAME]`.

    The columns may be flat (named by `src` and `tgt`) or lie in one `translation` column, `{"en": ..., "de":
    ...}`.
    """
    name, options = parse_hf_spec(spec)
    for number, row in enumerate(open_dataset(name, options), start=1):
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


def open_dataset(name: str, options: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The rows of a dataset, streamed; `name` is a folder of data files, a saved dataset or a hub name."""
    try:
        datasets = import_module("datasets")  # optional, and slow to import
    except ImportError as error:
        raise UserError(f"{HF_PREFIX}{name}: needs one more package: pip install 'sightline[datasets]'") from error
    try:
        if (Path(name) / "state.json").exists() or (Path(name) / "dataset_dict.json").exists():
            saved = datasets.load_from_disk(name)
            return iter(saved[options["split"]] if isinstance(saved, datasets.DatasetDict) else saved)
        config = options["config"] or None
        return iter(datasets.load_dataset(name, config, split=options["split"], streaming=True))
    except Exception as error:  # the library raises dozens of types for a wrong name, split, file or network
        reason = " ".join(str(error).split())
        raise UserError(f"{HF_PREFIX}{name}: cannot be opened ({type(error).__name__}: {reason})") from error
