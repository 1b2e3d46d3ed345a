"""Processes that train together on a CPU, started as torchrun would start them, without its agent."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Program = subprocess.Popen


@contextmanager
def group(size: int, arguments: Sequence[object]) -> Iterator[list["Program[str]"]]:
    """Processes of `python ARGUMENTS`, by their ranks; they are ended at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    programs: list[Program[str]] = []
    try:
        for rank in range(size):
            said = {**common, "RANK": rank, "LOCAL_RANK": rank}
            environment = {**os.environ, **{name: str(value) for name, value in said.items()}}
            command = [sys.executable, *map(str, arguments)]
            programs.append(Program(command, env=environment, stderr=subprocess.PIPE, text=True))
        yield programs
    finally:
        for program in programs:
            with program:  # which closes its pipe
                program.kill()


def all_end_well(programs: Sequence["Program[str]"]) -> list[str]:
    """What each has said, which must have ended without an error."""
    said = [program.communicate()[1] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs), "\n".join(said)
    return said
