"""Read files of pairs and triplets of texts for embeddings.

A line of a `.tsv` file has a text (the anchor), a text that matches it (the positive), such as an answer or a
paraphrase, and optionally a hard negative.
"""

import re
from collections.abc import Sequence

from headwise.errors import UserError
from headwise.text.files.corpus import read_lines
from headwise.text.files.file_checks import has_header
from headwise.text.files.sources import display_name

FORMAT = "write 'text TAB matching text' on every line, optionally with a third text that does not match"
NUMBER = re.compile(r"[-+]?\d*[.,]?\d+")
Texts = tuple[str, ...]  # anchor, positive and perhaps negative


def read_contrastive(paths: Sequence[str]) -> list[Texts]:
    """Read files in which all lines have two texts, or all have three.

    Raises:
        UserError: a column is empty, a line has another number of columns than the first, the third has numbers, a file
            begins with a header, or there is no line.
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
            if number == 1 and has_header([(texts[0], texts[1])]):
                raise UserError(f"{display_name(path)}: line 1 looks like a header; remove it")
            lines.append(texts)
    if columns == 3 and all(NUMBER.fullmatch(texts[2]) for texts in lines):
        what = f"the third column has numbers, such as {lines[0][2]}"
        raise UserError(f"{', '.join(paths)}: {what}; {FORMAT}; scores are for --task classify")
    if not lines:
        raise UserError(f"{', '.join(paths)}: has no line; {FORMAT}")
    return lines
