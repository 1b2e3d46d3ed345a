"""argparse with options in any place, help in two lengths, and errors of one line."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

from headwise.cli.help import HelpFormatter, coloured_help, has_colours
from headwise.cli.rules import FlagRule
from headwise.errors import UserError

HIDDEN = (argparse.SUPPRESS, "show this help", "show all options")
Needs = Mapping[str, Callable[[argparse.Namespace], Any]]  # modules of this package, and when they are needed


class ShowHelp(argparse._HelpAction):
    """Print help and exit: the most used options, or all options for `--help-all`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        parser.print_help(everything=self.option_strings == ["--help-all"])
        parser.exit()


class Parser(argparse.ArgumentParser):
    """The parser of a command.

    Attributes:
        rules: options without effect beside others.
        needs: modules that only some options need.
        common: the options that `--help` shows, such as "--top"; () = all. `--help-all` shows all.
    """

    rules: Sequence[FlagRule]
    needs: Needs
    common: Sequence[str]

    def __init__(self, **settings: Any) -> None:
        self.rules, self.needs, self.common = (), {}, ()
        super().__init__(**{"formatter_class": HelpFormatter, **settings, "add_help": False})
        self.color = False  # Python 3.14 colours parts of a text before it is laid out; `print_help` does it afterwards
        self._positionals.title = "arguments"
        self.add_argument("-h", "--help", action=ShowHelp, help="show this help")

    def shorten_help(self, common: Sequence[str]) -> None:
        """Let `--help` show these options only, and `--help-all` every option."""
        self.common = common
        self.add_argument("--help-all", action=ShowHelp, help="show all options")

    def parse_any_order(self, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The values and the unknown arguments.

        Options may stand before, between and after the arguments: both are read one after the other. argparse alone
        gives an optional argument its default at the first option.
        """
        named, others = (
            [a for a in self._actions if a.option_strings],
            [a for a in self._actions if not a.option_strings],
        )
        options, rest = self._with(named).parse_known_args(arguments)
        try:
            return self._with(others).parse_known_args(rest, options)
        except UserError as error:
            greedy = [a.option_strings[0] for a in named if a.nargs == "+" and getattr(options, a.dest) != a.default]
            if not greedy:
                raise
            raise UserError(f"{greedy[0]} takes all words after it, so write it last: {error}") from None

    def _with(self, actions: list[argparse.Action]) -> argparse.ArgumentParser:
        part = copy(self)
        part._actions = actions
        return part

    def format_help(self, everything: bool = True) -> str:
        """The help of all options, or of those in `common`."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, [one for group in self._action_groups for one in group._group_actions], [])
        formatter.add_text(self.description)
        for title, text, actions in self._sections(everything or not self.common):
            formatter.start_section(title)
            formatter.add_text(text)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        text = formatter.format_help()
        number = sum(bool(one.option_strings) and one.help not in HIDDEN for one in self._actions)
        return text if everything or not self.common else f"{text}\nAll {number} options: {self.prog} --help-all\n"

    def _sections(self, everything: bool) -> list[tuple[str | None, str | None, list[argparse.Action]]]:
        """Titles, descriptions and actions."""
        if everything:
            return [(group.title, group.description, group._group_actions) for group in self._action_groups]
        arguments, common = self._positionals, [self._option_string_actions[name] for name in self.common]
        return [(arguments.title, None, arguments._group_actions), ("most used options", None, common)]

    def print_help(self, file: Any = None, everything: bool = True) -> None:
        """Print the help, in colours on a terminal that has them."""
        stream, text = file or sys.stdout, self.format_help(everything)
        stream.write(coloured_help(text) if has_colours(stream) else text)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")
