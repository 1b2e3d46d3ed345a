"""Example: headwise completion bash"""

import argparse
from contextlib import suppress
from typing import Any

import shtab

from headwise.cli import BY_NAME, add_command, main_parser
from headwise.cli.rules import in_file, out_file
from headwise.errors import UserError

SHELLS = {  # where each reads the script
    "bash": "~/.local/share/bash-completion/completions/headwise",
    "zsh": "a folder of $fpath, as _headwise",
    "fish": "~/.config/fish/completions/headwise.fish",
}
FOLDERS = ("MODEL", "DIR", "RUN", "VIT", "GPT2", "OUT")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=", ".join(SHELLS))
    places = "\n".join(f"{shell}: {place}" for shell, place in SHELLS.items())
    parser.add_argument_group("where to save the script", f"{places}\nSave it there, and start a new shell.")


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    parser = main_parser()
    commands = parser.add_subparsers()
    for command in BY_NAME.values():
        own = commands.add_parser(command.name, help=command.help, description=command.sentence)
        with suppress(UserError):  # without PyTorch, the options of commands that need it are not known
            add_command(own, command.name)
        for action in own._actions:
            if kind := _completed_as(action):
                action.complete = kind  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell))


def _completed_as(action: argparse.Action) -> Any:
    """How shtab completes a value: as the name of a file or of a folder, or by its choices."""
    if action.type in (in_file, out_file):
        return shtab.FILE
    return shtab.DIRECTORY if action.metavar in FOLDERS else None
