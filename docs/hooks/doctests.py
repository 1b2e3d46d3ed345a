"""Examples in docstrings as code. An extension of griffe, which reads the docstrings for mkdocstrings."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1.*\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts fences around examples, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object that griffe has read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """A docstring whose examples are blocks of code.

    >>> fenced("Adds.\\n\\n" + ">>> 1 + 1\\n2\\n\\nMore.")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nMore.'
    """
    return EXAMPLE.sub(lambda found: _block(found[0], found[1]), docstring)


def _block(example: str, indent: str) -> str:
    code = re.sub(r"  # doctest:.*", "", example)
    return f"{indent}```pycon\n{code}\n{indent}```"
