"""The command line: `main` imports the module of the requested command, parses its options and runs it.

`COMMANDS` lists the commands; the module of each stands in `commands/` and defines `add_options(parser)`,
`run(options)`, where options exclude each other `RULES`, and where there are many `COMMON`, those that `--help` shows.
The other modules here hold what several commands share.
The list of commands needs no command module, so it comes at once. Modules that only some options need are imported
with these (`NEEDS`), so that nobody else waits for them. What needs PyTorch is imported when a command runs: its help
does without.

Output goes to standard output, messages to standard error. A user's mistake is one line and exit code 2.
"""

import argparse
import errno
import os
import sys
import warnings
from collections.abc import MutableMapping, Sequence
from contextlib import ExitStack
from io import TextIOBase
from typing import Any, NamedTuple

from headwise.cli.help import RED, RESET, has_colours
from headwise.cli.parser import Needs, Parser
from headwise.cli.rules import in_flags, refuse_meaningless, refuse_overwriting, typed_flags
from headwise.device import keep_to_quota
from headwise.errors import FULL, UserError, most_similar, unknown, unwritable
from headwise.importing import named, torch_needed
from headwise.version import __version__

UNWRITABLE = (*FULL, errno.EIO, errno.EBADF)  # numbers of errors of standard output


class Command(NamedTuple):
    """A command and a sentence for the help."""

    name: str
    help: str

    @property
    def module(self) -> str:
        """The name of its module in `commands/`; `import` is a keyword of Python."""
        return "import_checkpoint" if self.name == "import" else self.name.replace("-", "_")

    @property
    def sentence(self) -> str:
        """The description in its help."""
        return f"{self.help[0].upper()}{self.help[1:]}."


# In the order of the help.
COMMANDS = {
    "start": (
        Command("demo", "train to translate dates into four languages"),
        Command("download", "list models that are ready to use, or download one"),
        Command("info", "show what a model is and how it was trained"),
        Command("completion", "print a script that lets a shell complete commands"),
    ),
    "data": (
        Command("check-corpus", "check parallel files for duplicates, leaks and errors"),
        Command("split", "hold out validation and test pairs from a corpus"),
        Command("distill", "translate a corpus, to train a smaller model on"),
        Command("backtranslate", "translate target text back, for more training pairs"),
        Command("annotate", "write term translations into the sources of a corpus"),
    ),
    "train": (
        Command("train", "train a model on your files, for translation or another task"),
        Command("tune", "fine-tune a translation model on your own pairs"),
        Command("settings", "list every training setting: default, range, meaning"),
        Command("sweep", "train with several values of settings on a Ray cluster"),
        Command("join", "combine a ViT and a GPT-2 into a captioner, to be trained"),
        Command("prune", "remove a model's least important attention heads"),
    ),
    "translate": (
        Command("translate", "translate lines of text, or documents"),
        Command("shortlist", "build a shortlist of likely target tokens from a corpus"),
        Command("align", "print word alignments of given translations"),
    ),
    "evaluate": (
        Command("evaluate", "score a model or its output on a test set"),
        Command("score", "compute the probability of given translations or a text"),
        Command("results", "compare runs: a table of scores, and learning curves"),
        Command("study", "measure claims made for attention and write a report"),
    ),
    "look inside": (
        Command("inspect", "show the attention of a model on one input"),
        Command("explore", "serve a page that shows what a model does, live"),
    ),
    "serve and export": (
        Command("serve", "serve translation over HTTP, with a web page"),
        Command("export", "write a model for transformers, CTranslate2, ONNX or the web"),
        Command("import", "convert a Hugging Face folder into a model folder"),
        Command("pack", "store weights ready for inference, for a faster start"),
        Command("seal", "update the checksums of a model folder"),
    ),
    "other tasks": (
        Command("generate", "continue or rewrite a text with a language model"),
        Command("fill", "predict masked words of a text (BERT and similar models)"),
        Command("embed", "compute text embeddings"),
        Command("classify", "predict the label of every line"),
        Command("rerank", "sort texts by a cross-encoder's scores for a query"),
        Command("tag", "find names or other entities in every line"),
        Command("answer", "find the answers to questions in a text"),
        Command("label", "classify a picture (ViT and similar models)"),
        Command("caption", "describe pictures in words (ViT with GPT-2)"),
        Command("transcribe", "transcribe speech (Whisper)"),
        Command("forecast", "continue a time series"),
    ),
}
NEEDS: Needs = {
    "cluster": lambda o: getattr(o, "ray", None) is not None,
    "glossary": lambda o: getattr(o, "glossary", "") or getattr(o, "keep", ""),
}
BY_NAME = {command.name: command for group in COMMANDS.values() for command in group}

NO_THREADS = (
    "the system starts no more threads for this user or container: raise the limit (`ulimit -u`, pids.max, "
    "`docker run --pids-limit`), end other programs, or set OMP_NUM_THREADS=1"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    warnings.formatwarning = format_warning
    limit_spinning(os.environ)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        open_streams()
    keep_to_quota(os.environ)
    flags: dict[str, str] = {}
    try:
        options = _parsed([argument for argument in arguments if argument != "--debug"] or ["--help"])
        flags = getattr(options, "flags", flags)
        with ExitStack() as options.closing, torch_needed(f"headwise {options.command}"):
            options.run(options)
        sys.stdout.flush()
        return 0
    except UserError as error:
        if debug:
            raise
        return _failed(in_flags(" ".join(str(error).split()), flags))
    except MemoryError:  # where no better message is known, such as while a model is loaded
        if debug:
            raise
        return _failed("memory has run out: end other programs, or take a smaller model")
    except RuntimeError as error:
        if debug or "can't start new thread" not in str(error):
            raise
        return _failed(NO_THREADS)
    except KeyboardInterrupt:
        print("headwise: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has ended
        _discard_output()
        return 0
    except OSError as error:
        if debug or error.filename or error.errno not in UNWRITABLE:
            raise
        _discard_output()
        return _failed(str(unwritable("standard output", error)))


def _failed(message: str) -> int:
    start, end = (RED, RESET) if has_colours(sys.stderr) else ("", "")
    print(f"{start}headwise: error:{end} {message}", file=sys.stderr)
    return 2


def _discard_output() -> None:
    """Discard output that is still unwritten: nobody reads it, and Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """`parse`; printed help is flushed before the program ends."""
    try:
        return parse(arguments)
    except SystemExit:
        sys.stdout.flush()
        raise


def limit_spinning(environment: MutableMapping[str, str]) -> None:
    """Let torch's threads spin for a fraction of a millisecond only before they sleep.

    GNU OpenMP, which torch uses on Linux, spins 300,000 times by default. If another program occupies a core, the
    thread waited for does not run meanwhile, and two threads are slower than one. The variable is read when torch is
    imported; a setting of the user's is kept. https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")


def format_warning(warning: Warning | str, *where: Any) -> str:
    """A warning in one line, without the position in our source code."""
    return f"headwise: warning: {' '.join(str(warning).split())}\n"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; `flags` holds those that were typed, `run` the function to call.

    `UserError` suggests the nearest valid command or option, and refuses options without effect and files that would
    be overwritten.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    before = arguments[: arguments.index(name)] if name else arguments
    if not name or {"-h", "--help", "--version"} & {*before}:
        main_parser().parse_known_args(before)
        raise UserError("the following arguments are required: COMMAND; see `headwise --help`")
    if name not in BY_NAME:
        raise unknown("command", name, BY_NAME)
    parser = command_parser(name)
    options, rest = parser.parse_any_order([*before, *arguments[len(before) + 1 :]])
    if rest:
        import re  # for this error alone
        import shlex

        known = [option for action in parser._actions for option in action.option_strings]
        near = most_similar(rest[0].split("=")[0], known)
        hint = f"; did you mean '{near}'?" if near else f"; see `headwise {name} --help`"
        if "--set" in known and re.match(r"\w+\.\w+=", rest[0]):
            hint = f"; settings follow --set: --set {shlex.join(rest)}"
        raise UserError(f"headwise {name}: unexpected argument '{rest[0]}'{hint}")
    options.command, options.flags = name, typed_flags(parser, options)
    refuse_meaningless(parser.rules, options.flags, options)
    refuse_overwriting(parser, options)
    needed = [module for module, is_needed in parser.needs.items() if is_needed(options)]
    options.modules = {module: named(f"headwise.cli.{module}") for module in needed}
    return options


def main_parser() -> Parser:
    """The options before a command, and the help that lists all commands."""
    groups = "\n\n".join(
        f"{title}:\n" + "\n".join(f"    {command.name:<14} {command.help}" for command in commands)
        for title, commands in COMMANDS.items()
    )
    parser = Parser(
        prog="headwise",
        usage="headwise [-h] [--version] [--debug] COMMAND ...",
        description="Train a translator on your own files, and translate with it.",
        epilog=f"{groups}\n\nOptions of a command: headwise COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headwise {__version__}", help="print the version")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def command_parser(name: str) -> Parser:
    """The parser of a command, whose module is imported here."""
    parser = Parser(prog=f"headwise {name}", description=BY_NAME[name].sentence)
    add_command(parser, name)
    return parser


def add_command(parser: Parser, name: str) -> None:
    """Give a parser the options of a command, its rules and its function."""
    module = named(f"headwise.cli.commands.{BY_NAME[name].module}")
    parser.epilog = module.__doc__
    parser.rules, parser.needs = getattr(module, "RULES", ()), {**NEEDS, **getattr(module, "NEEDS", {})}
    parser.set_defaults(run=module.run)
    module.add_options(parser)
    if hasattr(module, "COMMON"):
        parser.shorten_help(module.COMMON)


class ClosedOutput(TextIOBase):
    """Replaces a closed standard output."""

    def reconfigure(self, **how: Any) -> None:
        """Like the method of text streams; without effect."""

    def write(self, text: str) -> int:
        """`UserError`."""
        raise UserError("standard output is closed; name a file with -o, or write to one: > FILE")

    @property
    def buffer(self) -> "ClosedOutput":
        """The stream for bytes."""
        return self


def open_streams() -> None:
    """Replace closed standard streams, so that no file gets their numbers."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  (for as long as the program runs)
    if sys.stdout is None:
        os.open(os.devnull, os.O_WRONLY)
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
