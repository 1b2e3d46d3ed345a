"""Translation memories and catalogues, in and out: the files that translators work with.

A file is a `Document` of `Unit`s (`unit.py`), read by the module of its format (`table.py` lists them). `memory.py`
makes training pairs of units, `fill.py` has a model translate what is untranslated: bytes of a unit that is not filled
stay as they are. What must survive a translation (tags, placeholders, addresses) is found by
`placeholders.py` and carried over by `carrying.py`. Not here: line-by-line text (`cli/translate.py`).
"""

import os

MEMORIES = (".po", ".tmx", ".xliff", ".xlf")  # endings of files with both languages, which can be learnt from
DOCUMENTS = (*MEMORIES, ".pot")  # of all that are translated unit by unit


def is_memory(path: str) -> bool:
    """Whether a file to learn from, or a folder of such files, is read unit by unit; by its name."""
    return path.lower().endswith(MEMORIES) or os.path.isdir(path)
