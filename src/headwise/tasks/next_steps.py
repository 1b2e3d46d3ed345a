"""The commands to run after training: those of the model card, with the paths of the run."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from headwise.checkpoint.trained import CARD


def next_steps(folder: Path, files: Mapping[str, Path] = {}) -> str:
    """Commands for the model in `folder`, one per line.

    Args:
        files: paths of files that the model card calls by other names.
    """
    paths = {".": folder, **files}
    program = headwise_command()
    lines = [*card_commands(folder / CARD), "headwise results . --curves curves.png"]
    words = (line.split(" ") for line in lines)
    shown = (" ".join(shlex.quote(str(paths[word])) if word in paths else word for word in line[1:]) for line in words)
    return "\n".join(["Next:", *(f"  {program} {line}" for line in shown)])


def card_commands(card: Path) -> list[str]:
    """The commands in a model card; the model folder is "." in them."""
    blocks = re.findall(r"```sh\n(.*?)```", card.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.split("\n") if line]


def headwise_command() -> str:
    """How to call the program from here."""
    return "headwise" if shutil.which("headwise") else os.path.relpath(Path(sys.executable).with_name("headwise"))
