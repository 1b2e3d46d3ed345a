"""The layout of help texts: one line of usage, the most used options first, an example to copy, colours.

Colours are written here instead of by `rich-argparse`, whose dependencies would add 12 MB to the installation.
"""

import argparse
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 100  # columns of a line, also on a wider terminal
INDENT = 26  # columns before the meaning of an option
EXAMPLE = "Example: "
BOLD, CYAN, RED, RESET = "\x1b[1m", "\x1b[36m", "\x1b[1;31m", "\x1b[0m"
HEADING = r"^(?:usage:|\S.*:$)"
NAME = r"(?<![\w-])--?\[?[a-z][\w\[\]-]*|(?<=^ {4})[a-z-]+(?= {2})"  # an option or a command


class HelpFormatter(argparse.HelpFormatter):
    """argparse's help with a short usage, each option's value once, and an unbroken example."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, LONGEST) - 2
        super().__init__(prog, max_help_position=INDENT, width=width)

    def _format_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: object, prefix: str | None
    ) -> str:
        """The arguments and the required options; `[options]` stands for all others."""
        if usage is not None:
            return f"usage: {usage}\n\n"
        actions = list(actions)
        words = [self._format_args(one, str(one.metavar or one.dest.upper())) for one in actions if _is_argument(one)]
        words += [self._format_action_invocation(one, short=True) for one in actions if _is_required_option(one)]
        words += ["[options]"] * any(one.option_strings and not one.required and one.dest != "help" for one in actions)
        start = f"usage: {self._prog} "
        spaced = [word.replace(" ", "\0") for word in words]  # an option stays on the line of its value
        lines = textwrap.wrap(" ".join(spaced), self._width - len(start), break_on_hyphens=False)
        return start + f"\n{' ' * len(start)}".join(lines).replace("\0", " ") + "\n\n"

    def _format_args(self, action: argparse.Action, default_metavar: Any) -> str:
        """`FILE...` for several values."""
        several = {"+": "{}...", "*": "[{}...]"}.get(str(action.nargs))
        if several is None:
            return super()._format_args(action, default_metavar)
        return several.format(" ".join(self._metavar_formatter(action, default_metavar)(1)))

    def _format_action_invocation(self, action: argparse.Action, short: bool = False) -> str:
        """`-o, --output FILE`; with `short` the first name only."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        names = list(action.option_strings[:1] if short else action.option_strings)
        if isinstance(action, argparse.BooleanOptionalAction):
            names = [action.option_strings[0].replace("--", "--[no-]")]
        value = "" if action.nargs == 0 else self._format_args(action, action.dest.upper())
        return f"{', '.join(names)} {value}".rstrip()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLE):
            return f"{EXAMPLE.strip()}\n{_example(text.removeprefix(EXAMPLE).strip(), width)}"
        return "\n".join(super(HelpFormatter, self)._fill_text(line, width, indent) for line in text.split("\n"))

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Lines that end between words, so that names of options stay whole."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _is_argument(action: argparse.Action) -> bool:
    return not action.option_strings and action.help is not argparse.SUPPRESS


def _is_required_option(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.required


def _example(command: str, width: int) -> str:
    """A command on several lines that a shell reads as one; quoted texts, and an option with its value, stay whole."""
    if len(command) <= width - 2:
        return f"  {command}"
    words = " ".join(word.replace(" ", "\0") for word in re.findall(r'(?:"[^"]*"|[^\s"])+', command))
    words = re.sub(r"( --?[\w-]+) (?!-)", "\\1\0", words)
    lines = textwrap.wrap(words, width - 8, break_long_words=False, break_on_hyphens=False)
    return "  " + " \\\n      ".join(lines).replace("\0", " ")


def has_colours(stream: Any, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal that shows colours. NO_COLOR and FORCE_COLOR decide first (no-color.org)."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    is_old = environment.get("TERM") == "dumb" or (sys.platform == "win32" and "WT_SESSION" not in environment)
    return stream.isatty() and not is_old


def coloured_help(text: str) -> str:
    """Headings in bold, names of options and commands in cyan.

    >>> coloured_help("options:\\n  --top N")
    '\\x1b[1moptions:\\x1b[0m\\n  \\x1b[36m--top\\x1b[0m N'
    """
    named = re.sub(NAME, lambda found: f"{CYAN}{found[0]}{RESET}", text, flags=re.MULTILINE)
    return re.sub(HEADING, lambda found: f"{BOLD}{found[0]}{RESET}", named, flags=re.MULTILINE)
