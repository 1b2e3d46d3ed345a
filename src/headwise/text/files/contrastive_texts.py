"""Read files of pairs and triplets of texts for embeddings.

A line of a `.tsv` file has a text (the anchor), a text that matches it (the positive), such as an answer or a
paraphrase, and optionally a hard negative.
"""

from collections.abc import Sequence

from headwise.errors import UserError
from headwise.text.files.corpus import read_lines
from headwise.text.files.sources import display_name

FORMAT = "write 'text TAB matching text' on every line, optionally with a third text that does not match"
Texts = tuple[str, ...]  # anchor, positive and perhaps negative


def read_contrastive(paths: Sequence[str]) -> list[Texts]:
    """Read files in which all lines have two texts, or all have three.

    Raises:
        UserError: a column is empty, a line has another number of columns than the first, or there is no line.
    """
    lines, columns = list[Texts](), 0
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            texts = tuple(text.strip() for text in line.split("\t"))
            columns = columns or len(texts)
            if len(texts) not in (2, 3) or len(texts) != columns or not all(texts):
                what = "an empty column" if len(texts) == columns in (2, 3) else f"{len(texts)} columns"
                what += f" where the first has {columns}" if len(texts) != columns else ""
                raise UserError(f"{display_name(path)}: line {number} has {what}; {FORMAT}")
            lines.append(texts)
    if not lines:
        raise UserError(f"{', '.join(paths)}: has no line; {FORMAT}")
    return lines
