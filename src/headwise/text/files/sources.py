"""Sentence pairs, and the names of the files they come from."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import UserError, most_similar

Pair = tuple[str, str]
HF_PREFIX = "hf:"
STREAM_PREFIX = "stream:"
STANDARD_INPUT = "-"
OUTSIDE_TAG = "O"  # the tag of words outside every entity


def text_field(record: Mapping[str, Any], key: str, location: str, fix: str = "") -> str:
    """`record[key]`, which must be a string that can be encoded as UTF-8; `fix` is for the message if there is none."""
    if key not in record:
        raise UserError(f'{location} has no "{key}"; it has {", ".join(map(repr, record)) or "nothing"}{fix}')
    value = record[key]
    if not isinstance(value, str):
        raise UserError(f'{location}: "{key}" must be a string, not {type(value).__name__}')
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(
            f'{location}: "{key}" contains an unpaired surrogate, which is not valid text; remove the \\ud... escape'
        )
    return value


def file_and_text(line: str, location: str, advice: str) -> tuple[str, str]:
    """The two columns of a line `file TAB text`, stripped; `UserError` for another number of columns."""
    columns = line.split("\t")
    if len(columns) != 2:
        tabs = count_of(len(columns) - 1, "tab") if len(columns) > 1 else "no tab"
        raise UserError(f"{location} has {tabs}; {advice}")
    return columns[0].strip(), columns[1].strip()


def changed_file_error(paths: Sequence[str]) -> UserError:
    """The error for files that changed while they were read."""
    return UserError(
        f"{' + '.join(map(display_name, paths))}: changed while it was being read; "
        "run the command again when nothing writes to it"
    )


class CachedCopy(str):
    """The path of a copy in the cache; messages show the names of the original files."""

    names: tuple[str, ...]

    def __new__(cls, path: str, names: Sequence[str] = ()) -> "CachedCopy":
        copy = super().__new__(cls, path)
        copy.names = tuple(names)
        return copy


def count_of(number: int | float, noun: str, plural: str = "") -> str:
    """A number with its noun in messages.

    >>> count_of(1, "unit"), count_of(2048, "unit"), count_of(0, "query", "queries"), count_of(0.5, "minute")
    ('1 unit', '2,048 units', '0 queries', '0.5 minutes')
    """
    return f"{number:,.15g} {noun if number == 1 else plural or noun + 's'}"


def display_name(path: str) -> str:
    """The name of a path in messages."""
    return " + ".join(names_of(path))


def names_of(path: str) -> tuple[str, ...]:
    """The names that the user gave for the files behind a path.

    >>> names_of("a.tsv"), names_of(CachedCopy("/cache/memory-3f.tsv", ["a.po", "b.tmx"]))
    (('a.tsv',), ('a.po', 'b.tmx'))
    """
    if isinstance(path, CachedCopy):
        return path.names
    return ("standard input" if path == STANDARD_INPUT else path,)


def unreadable(path: str, error: OSError) -> UserError:
    """The error for a path that cannot be opened."""
    name = display_name(path)
    if error.errno == errno.ENOENT:
        return UserError(f"{name}: no such file{nearest_file(path)}")
    if error.errno == errno.EISDIR:
        return UserError(f"{name}: is a folder; name a file in it, or write hf:{path} for a folder of data files")
    if error.errno == errno.EACCES:
        return UserError(f"{name}: no permission to read it; try: chmod +r {path}")
    return UserError(f"{name}: cannot be read ({error.strerror or error})")


def nearest_file(path: str) -> str:
    """A hint for a mistyped name: the most similar file with its ending or its stem, or the missing folder."""
    folder, stem, ending = Path(path).parent, Path(path).stem, Path(path).suffix
    if not folder.is_dir():
        return f"; the folder {folder} does not exist"
    files = filter(Path.is_file, folder.iterdir()) if os.access(folder, os.R_OK) else ()
    names = [
        file.name for file in files if file.stem == stem or (file.suffix == ending and most_similar(stem, [file.stem]))
    ]
    near = most_similar(Path(path).name, names)
    return f"; did you mean '{folder / near}'?" if near else f"; look at: ls {folder}"
