"""Help is short, complete and readable at 80 columns; an option means the same in every command."""

import argparse
import os
import pty
import re
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from headwise import cli
from headwise.cli.help import BOLD, CYAN, HelpFormatter, coloured_help, has_colours

PARSERS = {name: cli.command_parser(name) for name in cli.BY_NAME}
MANY = 12  # options that are all shown
HELP = ("--help", "--help-all")
PRIVATE = re.compile(
    r"\b(pieces?|verbs?|learnt|doubts?|draws|drawn|told|said|kin|likewise|begun|beside|ours|places?|marks?|refused)\b"
)


def options(name: str) -> list[argparse.Action]:
    """The options that help can show."""
    actions = (action for action in PARSERS[name]._actions if action.option_strings)
    return [a for a in actions if a.help is not argparse.SUPPRESS and long_name(a) not in HELP]


def long_name(action: argparse.Action) -> str:
    return action.option_strings[0 if isinstance(action, argparse.BooleanOptionalAction) else -1]


def listed(text: str) -> set[str]:
    """The options that a help explains, by their long names."""
    return {f"--{name}" for name in re.findall(r"^  (?:-\w, )?--(?:\[no-\])?([\w-]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("name", cli.BY_NAME)
@pytest.mark.parametrize("everything", [False, True])
def test_help_is_readable_at_80_columns(name: str, everything: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = PARSERS[name].format_help(everything)
    assert max(map(len, text.splitlines())) <= 80
    assert not PRIVATE.findall(text)
    assert text.startswith(f"usage: headwise {name}") and f"\nExample:\n  headwise {name}" in text


@pytest.mark.parametrize("name", cli.BY_NAME)
def test_help_shows_ten_options_and_help_all_the_rest(name: str) -> None:
    parser, known = PARSERS[name], {long_name(action) for action in options(name)}
    assert listed(parser.format_help()) - {*HELP} == known
    assert bool(parser.common) == (len(known) > MANY)
    if not parser.common:
        assert "--help-all" not in parser._option_string_actions
        return
    text = parser.format_help(everything=False)
    assert listed(text) == {*parser.common} and len(parser.common) <= 10
    assert text.endswith(f"\nAll {len(known)} options: headwise {name} --help-all\n")
    required = {long_name(action) for action in options(name) if action.required}
    assert required <= {*parser.common}


def test_help_all_prints_what_help_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, shown in (("--help", False), ("-h", False), ("--help-all", True)):
        with pytest.raises(SystemExit) as ended:
            cli.main(["translate", "m", flag])
        assert ended.value.code == 0
        assert ("--temperature" in capsys.readouterr().out) == shown


@pytest.mark.parametrize("name", cli.BY_NAME)
def test_every_default_is_shown(name: str) -> None:
    silent = [
        long_name(action)
        for action in options(name)
        if action.nargs != 0 and action.default not in (None, "", [], ("", "")) and "(default: " not in str(action.help)
    ]
    assert silent == []


def test_a_long_example_is_a_command_for_a_shell() -> None:
    text = HelpFormatter("x")._fill_text('Example: echo one "two  three" --four five --six seven', 40, "")
    first, *others = text.splitlines()
    assert first == "Example:" and len(others) == 2 and others[0].endswith('three" \\')
    said = subprocess.run("\n".join(others), shell=True, capture_output=True, text=True, check=True).stdout
    assert said == "one two  three --four five --six seven\n"


def test_usage_names_what_is_required() -> None:
    first = PARSERS["align"].format_help().split("\n\n")[0]
    assert first == "usage: headwise align MODEL --source FILE --target FILE [options]"


# Colours --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {"TERM": "xterm", "WT_SESSION": "1"}, True),
        (False, {"TERM": "xterm"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, {"NO_COLOR": "", "TERM": "xterm", "WT_SESSION": "1"}, True),
        (False, {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_are_for_terminals_that_have_them(terminal: bool, environment: dict[str, str], expected: bool) -> None:
    assert has_colours(SimpleNamespace(isatty=lambda: terminal), environment) == expected


def test_colours_change_no_letter() -> None:
    for text in (cli.main_parser().format_help(), PARSERS["evaluate"].format_help()):
        painted = coloured_help(text)
        assert re.sub(r"\x1b\[[\d;]*m", "", painted) == text
    assert f"\n  {CYAN}-o\x1b[0m, {CYAN}--output\x1b[0m FILE" in coloured_help(PARSERS["align"].format_help())
    assert f"    {CYAN}check-corpus\x1b[0m " in coloured_help(cli.main_parser().format_help())


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from headwise.cli import main; main()", *arguments]
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    subprocess.run(command, stdout=theirs, stderr=theirs, env={**plain, "TERM": "xterm", **environment}, check=True)
    os.close(theirs)
    return os.read(ours, 1 << 16).decode()


@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of Linux")
def test_a_terminal_shows_colours() -> None:
    assert on_a_terminal("--help").startswith(f"{BOLD}usage:\x1b[0m ")
    assert "\x1b[1;31mheadwise: error:\x1b[0m unknown command" in on_a_terminal("halp")
    assert "\x1b" not in on_a_terminal("--help", NO_COLOR="1")


# Meaning --------------------------------------------------------------------------------------------------------------

SEVERAL = "takes several where the others take one"
DIFFERENT = {  # options whose value is not the same in every command, and why
    "--source": SEVERAL,
    "--text": SEVERAL,
    "--languages": SEVERAL,
    "--glossary": "a server has one for each language pair",
    "--seed": "one of the settings of a training",
    "--set": "a sweep takes several values of a setting",
    "--test": "each table names its test sets, and check-corpus needs no references",
    "--valid": "split writes the validation file, so it takes a size",
}


def test_an_option_takes_the_same_in_every_command() -> None:
    kinds: dict[str, set[Any]] = defaultdict(set)
    for name in cli.BY_NAME:
        for action in options(name):
            metavar = "CHOICE" if action.choices else action.metavar
            kind = getattr(action.type, "__name__", "str") if action.nargs != 0 else "flag"
            kinds[long_name(action)].add((kind, metavar, action.nargs if action.type is not int else None))
    assert {option for option, found in kinds.items() if len(found) > 1} == {*DIFFERENT}


@pytest.mark.parametrize("name", cli.BY_NAME)
def test_no_option_works_that_help_does_not_list(name: str) -> None:
    words = [word for word in PARSERS[name]._option_string_actions if word.startswith("--")]
    unlisted = {*words} - {*HELP} - listed(PARSERS[name].format_help(True))
    assert not {word for word in unlisted if not word.startswith("--no-")}
