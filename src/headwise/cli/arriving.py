"""Lines of standard input as they arrive: available lines are passed on without waiting for more."""

import os
import select
import stat
import sys
from collections.abc import Iterator

from headwise.data.corpus import LONGEST_LINE, decode_line
from headwise.data.sources import STANDARD_INPUT
from headwise.errors import UserError

BLOCK = 1 << 16  # bytes read at once


def arrives(path: str) -> bool:
    """Whether lines come from a pipe, a socket or a terminal, so that more can arrive at any time."""
    if path != STANDARD_INPUT or sys.platform == "win32":  # select works for sockets only
        return False
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def arriving(file: int, most: int) -> Iterator[list[str]]:
    """The lines of a file by its number, in chunks of at most `most`, as soon as no more are ready.

    Raises:
        UserError: a line is not UTF-8, or longer than `corpus.LONGEST_LINE`.
    """
    waiting: list[str] = []
    number = offset = 0
    for raw in _raw_lines(file):
        if raw:
            number += 1
            waiting.append(decode_line(raw, STANDARD_INPUT, number, offset))
            offset += len(raw)
        if waiting and (len(waiting) == most or not raw):
            yield waiting
            waiting = []


def _raw_lines(file: int) -> Iterator[bytes]:
    """Lines with their line ends; an empty one if the next would have to be waited for, and at the end."""
    partial: list[bytes] = []  # parts of a line without an end
    while True:
        if not select.select([file], [], [], 0)[0]:
            yield b""
        block = os.read(file, BLOCK)
        if not block:
            break
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join([*partial, line, b"\n"])
            partial = []
        partial += [rest] if rest else []
        if len(partial) > LONGEST_LINE // BLOCK and sum(map(len, partial)) > LONGEST_LINE:
            raise UserError(f"standard input: a line is longer than {LONGEST_LINE >> 20} MiB; is it text?")
    if partial:
        yield b"".join(partial)
    yield b""
