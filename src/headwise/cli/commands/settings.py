"""Example: headwise settings forecast"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from headwise.config.setting import Setting
from headwise.config.settings import SETTINGS
from headwise.config.tasks import TASKS

WIDTH = 80
COLUMN = 44  # of the range
CHOOSES = ("task", "architecture")  # keys of [model] that decide which settings there are


def add_options(parser: argparse.ArgumentParser) -> None:
    text = f"list only the settings of this task: {', '.join(TASKS)} (default: all settings)"
    parser.add_argument("task", nargs="?", choices=tuple(TASKS), metavar="TASK", help=text)


def run(options: argparse.Namespace) -> None:
    """Print every setting with its default, range and meaning, section by section."""
    section = ""
    for key, setting in SETTINGS.items():
        tasks = setting.only_for.get("task", tuple(TASKS))
        if setting.derived or (options.task and options.task not in tasks):
            continue
        if (start := key.partition(".")[0]) != section:
            print(f"{section and chr(10)}[{start}]")
            section = start
        print("\n".join(setting_lines(key, setting, options.task or "")))


def setting_lines(key: str, setting: Setting, task: str) -> Iterator[str]:
    """A setting in lines of 80 characters; `task` is the one whose settings are listed, "" = all.

    >>> print(*setting_lines("data.window", SETTINGS["data.window"], ""), sep="\\n")
    data.window = 96                            greater than 0
        rows the network reads (task: forecast)
    """
    first = f"{key} = {json.dumps(setting.default)}"
    values = allowed_values(setting)
    if len(values) <= WIDTH - COLUMN and len(first) < COLUMN:
        yield f"{first:<{COLUMN}}{values}"
        meaning = setting.help
    else:
        yield first
        meaning = f"{values}; {setting.help}"
    meaning += _condition(setting, CHOOSES if not task else CHOOSES[1:])
    yield from textwrap.wrap(meaning, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def meaning_of(setting: Setting) -> str:
    """The help of a setting, with the models that have it."""
    return setting.help + _condition(setting, CHOOSES)


def _condition(setting: Setting, keys: Sequence[str]) -> str:
    return "".join(f" ({key}: {', '.join(setting.only_for[key])})" for key in keys if key in setting.only_for)


def allowed_values(setting: Setting) -> str:
    """The values that a setting takes."""
    default: Any = setting.default
    if setting.choices:
        return " | ".join(map(str, setting.choices))
    if isinstance(default, bool):
        return "true | false"
    if isinstance(default, str):
        return "text"
    return f"list, each {setting.range[0]}" if isinstance(default, tuple) else setting.range[0]
