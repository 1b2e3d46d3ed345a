"""Lists of recordings with transcripts: `sound file TAB transcript` per line, or JSON lines with "audio" and "text".

File names are relative to the folder of the list.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwise.errors import UserError
from headwise.text.files.audio import sound_seconds
from headwise.text.files.corpus import json_object, read_lines
from headwise.text.files.sources import file_and_text, text_field

FORMAT = "write 'sound file TAB transcript' on every line"
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
        UserError: a line is malformed, a transcript is empty, or as `read_lines`.
    """
    stem = path.removesuffix(".gz")
    if not stem.endswith((".tsv", ".jsonl")):
        raise UserError(f"{path}: recordings must be listed in .tsv or .jsonl files; {FORMAT}")
    is_json = stem.endswith(".jsonl")
    for number, line in enumerate(read_lines(path), start=1):
        origin = f"{path}: line {number}"
        sound, text = _parse_json(line, origin) if is_json else file_and_text(line, origin, FORMAT)
        if not (sound and text):
            raise UserError(f"{origin} names no sound file" if text else f"{origin} has an empty transcript; remove it")
        yield Recording(str(Path(path).parent / sound), text, origin)


def _parse_json(line: str, origin: str) -> tuple[str, str]:
    record = json_object(line, origin, OBJECT)
    return text_field(record, "audio", origin).strip(), text_field(record, "text", origin).strip()


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
