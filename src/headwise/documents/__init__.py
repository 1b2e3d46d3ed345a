"""Reading and writing of localisation files: PO catalogues, translation memories, HTML, documents, subtitles.

A file is a `Document` of `Unit`s (`unit.py`); each format has a module. `memory.py` turns units into training pairs.
`fill.py` translates the untranslated units of a document; all other bytes stay as they are. In monolingual formats
(`passages.py`) a translation replaces its source. `placeholders.py` finds what must survive a translation (tags,
placeholders, addresses); inline markup is a tree (`inline_tree.py`), which every translation has, too
(`placed_codes.py`). See `cli/commands/translate.py` for translating text line by line.

A new format is a row of `FORMATS`, a function `read_FORMAT(path, data, languages)` that returns a `Document`, and its
entry in `reading.READERS`. For a monolingual format it returns `Passages(Characters(path, data), passages)`: the
position of each text, and how to write its translation. `plain_text.py` is the shortest example. Every text of a file
is in a unit or in `skipped`, which the command line and the server report (`not_translated.py`).
"""

import os

FORMATS = {  # file name endings by format; `reading.READERS` has the readers
    "po": (".po", ".pot"),
    "tmx": (".tmx",),
    "xliff": (".xliff", ".xlf", ".sdlxliff", ".mqxliff"),
    "json_messages": (".json", ".arb"),
    "properties": (".properties",),
    "android": (".xml",),
    "resx": (".resx", ".resw"),
    "qt": (".ts",),
    "rails": (".yml", ".yaml"),
    "fluent_file": (".ftl",),
    "csv_table": (".csv",),
    "apple_strings": (".strings",),
    "stringsdict": (".stringsdict",),
    "xcstrings": (".xcstrings",),
    "subtitles": (".srt", ".vtt"),
    "html_page": (".html", ".htm", ".xhtml"),
    "markdown": (".md", ".markdown"),
    "rst": (".rst", ".rest"),
    "word": (".docx",),
    "presentation": (".pptx",),
    "workbook": (".xlsx",),
    "open_document": (".odt", ".ods", ".odp"),
    "epub": (".epub",),
    "plain_text": (".txt",),
}
MEMORIES = sum((FORMATS[name] for name in ("po", "tmx", "xliff")), ())  # bilingual files, for training


def is_memory(path: str) -> bool:
    """Whether a training file is a translation memory, by its name; so is every folder."""
    return path.lower().endswith(MEMORIES) or os.path.isdir(path)


def is_document(path: str, by_sentences: bool = False, by_lines: bool = False) -> bool:
    """Whether `translate` reads a file unit by unit, by its name; a `.txt` only if it is split into sentences."""
    endings = tuple(e for ends in FORMATS.values() for e in ends if e != ".txt")
    return not by_lines and (by_sentences or path.lower().endswith(endings))
