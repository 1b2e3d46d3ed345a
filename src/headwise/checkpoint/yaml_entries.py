"""The keys and values of a file of YAML that has nothing nested in them but lists: settings and vocabularies of Marian.

Everything is text, as Marian reads tokens: `no`, `null` and `1` are three words. U+0085 and U+2028 end lines in YAML
1.1, which PyYAML writes, but not in YAML 1.2, which Marian writes; a file is read as the one that it fits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwise.errors import UserError

BREAKS = "\u0085\u2028\u2029"
# These and others that YAML 1.1 forbids are exchanged for characters that no text has.
STRANGE = [*BREAKS, "\ufeff", "\ufffe", "\uffff", *map(chr, (*range(9), 11, 12, *range(14, 32), *range(127, 160)))]
HIDDEN = {ord(one): chr(0xF0000 + i) for i, one in enumerate(dict.fromkeys(STRANGE))}
SHOWN = {ord(hidden): chr(one) for one, hidden in HIDDEN.items()}
YamlEntry = tuple[str, str | list[str], int]  # key, value, line from 1


def yaml_entries(path: Path, text: str) -> list[YamlEntry]:
    """The entries of the object in a file, in order, also of keys that are repeated.

    Raises:
        UserError: the text is no YAML, or no such object; PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise UserError(f'{path}: .yml files need PyYAML: pip install "headwise[files]"') from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    hidden = text.translate(HIDDEN)
    if any(one in text for one in BREAKS):
        try:
            shown = {ord(HIDDEN[ord(one)]): one for one in BREAKS}
            return [*_entries(path, yaml.parse(hidden.translate(shown), loader))]
        except (yaml.YAMLError, UserError):
            pass  # they end no line
    try:
        return [*_entries(path, yaml.parse(hidden, loader))]
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"{path}: line {mark.line + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or "a character that YAML forbids"
        raise UserError(f"{where}: invalid YAML ({what}); the file is damaged") from None


def _entries(path: Path, events: Iterator[Any]) -> Iterator[YamlEntry]:
    inside, key, values = "", None, None
    for event in events:
        kind, line = type(event).__name__.removesuffix("Event"), event.start_mark.line + 1
        if kind == "Scalar" and inside:
            word = event.value.translate(SHOWN)
            if values is not None:
                values.append(word)
            elif key is None:
                key = word
            else:
                yield key, word, line
                key = None
        elif kind == "MappingStart" and not inside:
            inside = "object"
        elif kind == "SequenceStart" and key is not None and values is None:
            values = []
        elif kind == "SequenceEnd" and values is not None and key is not None:
            yield key, values, line
            key, values = None, None
        elif kind not in ("StreamStart", "StreamEnd", "DocumentStart", "DocumentEnd", "MappingEnd"):
            raise UserError(f"{path}: line {line}: must be keys with a value each; the file is damaged")
