"""Lists of recordings with transcripts: `sound file TAB transcript` per line, or JSON lines with "audio" and "text".

File names are relative to the folder of the list.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.text.files.audio import sound_seconds
from headwise.text.files.corpus import json_object, read_lines
from headwise.text.files.sources import file_and_text, text_field

FORMAT = "write 'sound file TAB transcript' on every line"
TOLERANCE = 0.5  # seconds by which a rounded duration may differ
PARTS = {"offset", "start", "begin", "start_time", "segment", "segments"}  # fields for parts of a file
LENGTHS = ("duration", "end", "end_time")  # those of the whole file, or of a part
OBJECT = '{"audio": "...", "text": "..."}'


@dataclass(frozen=True)
class Recording:
    """A sound file and its transcript."""

    sound: str  # path
    text: str
    origin: str  # "train.tsv: line 3"


def read_recordings(path: str) -> Iterator[Recording]:
    """The recordings of a .tsv or .jsonl file, which may be .gz; transcripts are stripped.

    Raises:
        UserError: a line is malformed or a part of a file, a transcript is empty, or as `read_lines`.
    """
    stem = path.removesuffix(".gz")
    if not stem.endswith((".tsv", ".jsonl")):
        raise UserError(f"{path}: recordings must be listed in .tsv or .jsonl files; {FORMAT}")
    is_json = stem.endswith(".jsonl")
    for number, line in enumerate(read_lines(path), start=1):
        origin = f"{path}: line {number}"
        record = json_object(line, origin, OBJECT) if is_json else {}
        both = (text_field(record, key, origin).strip() for key in ("audio", "text"))
        sound, text = both if is_json else file_and_text(line, origin, FORMAT)
        if not (sound and text):
            raise UserError(f"{origin} names no sound file" if text else f"{origin} has an empty transcript; remove it")
        recording = Recording(str(Path(path).parent / sound), text, origin)
        _check_whole(recording, record)
        yield recording


def _check_whole(recording: Recording, record: Mapping[str, Any]) -> None:
    """`UserError` if the fields of a recording make it a part of a file."""
    cut = next((field for field in record if field.lower() in PARTS and record[field]), "")
    for field in LENGTHS:
        if isinstance(length := record.get(field), int | float):
            whole = abs(recording_seconds(recording, math.inf) - length) <= TOLERANCE
            cut = cut if whole else field
    if cut:
        what = f"'{cut}' makes it a part of {recording.sound}, and only whole files are read"
        raise UserError(f"{recording.origin}: {what}; cut the file")


def recording_seconds(recording: Recording, longest: float) -> float:
    """The duration of a recording; `UserError` if it is missing, empty, invalid, or longer than `longest` seconds."""
    try:
        seconds = sound_seconds(recording.sound)
    except UserError as error:
        raise UserError(f"{recording.origin}: {error}") from None
    if seconds > longest:
        raise UserError(
            f"{recording.origin}: {recording.sound} is {seconds:.1f} s long, but the model takes at "
            f"most {longest:g} s: split it and its transcript"
        )
    return seconds
