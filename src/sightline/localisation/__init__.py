"""Files that hold texts to translate, in and out: catalogues, translation memories, pages, documents, subtitles.

A file is a `Document` of `Unit`s (`unit.py`), read by the module of its format. `memory.py`
makes training pairs of units, `fill.py` has a model translate what is untranslated: bytes of a unit that is not filled
stay as they are. Formats without a place for a translation beside its source are read by `passages.py`: there the
translation takes the source's place. What must survive a translation (tags, placeholders, addresses) is found by
`placeholders.py` and carried over by `carrying.py`. Not here: line-by-line text (`cli/translate.py`).
"""

import os

FORMATS = {  # file name endings by format; `reading.READERS` has the readers
    "po": (".po", ".pot"),
    "tmx": (".tmx",),
    "xliff": (".xliff", ".xlf"),
    "json_messages": (".json", ".arb"),
    "properties": (".properties",),
    "subtitles": (".srt", ".vtt"),
    "html_page": (".html", ".htm", ".xhtml"),
    "markdown": (".md", ".markdown"),
    "word": (".docx",),
    "plain_text": (".txt",),
}
MEMORIES = sum((FORMATS[name] for name in ("po", "tmx", "xliff")), ())  # which hold both languages, to learn from


def is_memory(path: str) -> bool:
    """Whether a file to learn from, or a folder of such files, is read unit by unit; by its name."""
    return path.lower().endswith(MEMORIES) or os.path.isdir(path)


def is_document(path: str, by_sentences: bool = False, by_lines: bool = False) -> bool:
    """Whether `translate` fills a file unit by unit, by its name; a `.txt` is lines unless it is cut into sentences."""
    endings = tuple(e for ends in FORMATS.values() for e in ends if e != ".txt")
    return not by_lines and (by_sentences or path.lower().endswith(endings))
