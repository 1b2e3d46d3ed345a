"""Files whose lines belong together: sources, translations, references of a test set, which fit into memory."""

from sightline.data.corpus import read_lines
from sightline.errors import UserError


def aligned(*paths: str) -> list[list[str]]:
    """The lines of files that must have as many lines each.

    Raises:
        UserError: a file cannot be read, or they have different numbers of lines.
    """
    columns = [list(read_lines(path)) for path in paths]
    for path, column in zip(paths, columns, strict=True):
        if len(column) != len(columns[0]):
            raise UserError(
                f"{paths[0]} has {len(columns[0]):,} lines but {path} has {len(column):,}; line n must belong to line n"
            )
    return columns
