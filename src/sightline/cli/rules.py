"""Flags beside each other, and files: what a command would leave unread, or overwrite, is refused before it begins.

Silence about a flag is worse than a refusal. `RULES` has what the command line alone shows. Not here: what hangs on the
settings of a model (`options.refuse_unread`), and the range of a single value (`options.whole`, and the library's own
checks).
"""

import argparse
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sightline.cli.files import in_file, out_file
from sightline.cli.options import SAMPLING
from sightline.config.settings import SearchSettings
from sightline.errors import UserError
from sightline.localisation import MEMORIES, is_document

TERMS = ("glossary", "keep")
ONE_PROCESS = "does not go with --ray: terms that have come through are counted in one process"
DECODING = tuple(field.name for field in fields(SearchSettings))


@dataclass(frozen=True)
class FlagRule:
    """Flags, by the names of their values, that mean nothing where `holds`; `why` ends the line that says so."""

    flags: Sequence[str]
    holds: Callable[[argparse.Namespace], Any]
    why: str


def _few(options: argparse.Namespace) -> bool:
    return not options.sample and 1 in (options.n_best, options.beam_size)


def _shows_everything(options: argparse.Namespace) -> bool:
    from sightline.cli.inspect import format_of

    return format_of(options) in ("html", "json")


RULES: dict[str, tuple[FlagRule, ...]] = {
    "translate": (
        FlagRule(("sentences",), lambda o: o.lines, "does not go with --lines: say how the file is to be cut, once"),
        FlagRule(
            ("format", "alignment", "prefix", "draft", "n_best", "workers", "ray"),
            lambda o: is_document(o.input, o.sentences, o.lines),
            "is for lines of text, and this is a document that is filled unit by unit",
        ),
        FlagRule(
            ("report",),
            lambda o: not is_document(o.input, o.sentences, o.lines),
            f"is for documents (files such as {', '.join(MEMORIES)}), and with --sentences for any text",
        ),
        FlagRule(
            ("languages",),
            lambda o: not (o.glossary or is_document(o.input, o.sentences, o.lines)),
            "is for documents and for --glossary, which may have several",
        ),
        FlagRule(("draft_length",), lambda o: not o.draft, "is for --draft, which is not given"),
        FlagRule(
            ("workers", "sample", "shortlist", "n_best", "batch_tokens", *TERMS),
            lambda o: o.draft,
            "does not go with --draft, which is greedy search of one line at a time",
        ),
        FlagRule(
            ("beam_size",), lambda o: o.draft and o.beam_size > 1, "does not go with --draft: it is greedy search"
        ),
        FlagRule(
            ("alignment",), lambda o: o.ensemble, "does not go with --ensemble: links are of one model's attention"
        ),
        FlagRule(("alignment",), lambda o: o.ray is not None, "does not go with --ray: links are read on one machine"),
        FlagRule(TERMS, lambda o: o.ray is not None, ONE_PROCESS),
    ),
    "distill": (
        FlagRule(("interpolate",), _few, "chooses among several translations: leave out --n-best 1 and --beam-size 1"),
    ),
    "align": (
        FlagRule(("output", "reverse"), lambda o: o.choose, "does not go with --choose, which writes into MODEL alone"),
    ),
    "evaluate": (
        FlagRule(("target", "reverse"), lambda o: not o.alignments, "is for --alignments: name gold links"),
        FlagRule(TERMS, lambda o: o.ray is not None, ONE_PROCESS),
        FlagRule(
            ("ensemble", "reference", "against", "multi30k", "tokenize", "tune", "save", "ray", *TERMS, *DECODING),
            lambda o: o.alignments,
            "does not go with --alignments, which measures links, not translations",
        ),
        FlagRule(
            ("model", "ensemble", "source", "target", "reverse", "device", "tune", "save", "ray", *TERMS, *DECODING),
            lambda o: o.hypothesis,
            "does not go with --hypothesis, which is scored as it is",
        ),
        FlagRule(
            ("against", "multi30k", "length_penalty", "sample", *TERMS, *SAMPLING),
            lambda o: o.tune,
            "does not go with --tune, which compares values of one setting of the beam",
        ),
        FlagRule(("save",), lambda o: o.tune and o.save, "takes no FILE with --tune: the best value is kept in MODEL"),
        FlagRule(
            ("ensemble", *DECODING),
            lambda o: o.tune and o.save is not None,
            "does not go with --save: tune MODEL's own settings",
        ),
        FlagRule(("save",), lambda o: not o.tune and o.save == "", "needs a FILE to keep the translations in"),
    ),
    "serve": (FlagRule(("replicas",), lambda o: o.ray is None, "is for --ray: one process has one server"),),
    "embed": (
        FlagRule(
            ("output",),
            lambda o: Path(o.output).suffix not in ("", ".npy", ".json", ".jsonl", ".txt"),
            "is for an array (.npy) or for lines of JSON (.jsonl, .json, .txt): name one of these endings",
        ),
    ),
    "results": (
        FlagRule(
            ("metric", "multi30k", "tokenize", "baseline", "device", "languages", *DECODING),
            lambda o: not o.test,
            "is for test sets: add --test NAME SOURCE REFERENCE",
        ),
        FlagRule(("axis",), lambda o: not o.curves, "is for --curves FILE"),
    ),
    "inspect": (
        FlagRule(
            ("part", "layer", "head"),
            _shows_everything,
            "is for pictures and text (-o FILE.png, --format text): a page, like json, has every layer and head",
        ),
        FlagRule(
            ("prefix", *(name for name in DECODING if name != "max_source_length")),
            lambda o: o.target is not None,
            "does not go with --target: nothing is searched for where the translation is given",
        ),
    ),
}


def typed_flags(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, str]:
    """The flags that say something else than their default, by the names of their values."""
    return {
        action.dest: action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)
        for action in parser._actions
        if hasattr(options, action.dest) and getattr(options, action.dest) != action.default
    }


def refuse_meaningless(command: str, flags: Mapping[str, str], options: argparse.Namespace) -> None:
    """`UserError` for the first flag that means nothing beside the others."""
    for rule in RULES.get(command, ()):
        for name in rule.flags:
            if name in flags and rule.holds(options):
                raise UserError(f"{flags[name]} {rule.why}")


def in_flags(message: str, flags: Mapping[str, str]) -> str:
    """A message of the library in the words of the command line.

    >>> in_flags("decode.n_best = 9 is more than decode.beam_size = 2", {"n_best": "--n-best"})
    '--n-best 9 is more than decode.beam_size = 2'
    """

    def flag(found: re.Match[str]) -> str:
        return f"{flags[found[1]]} " if found[1] in flags else found[0]

    return re.sub(r"(?<![\w.])(?:decode\.)?(\w+) = ", flag, message)


# --- files


def refuse_overwriting(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """`UserError` where a command would write over a file that it reads, under whatever name, or one file twice."""
    read, written = list(_files(parser, options, in_file)), list(_files(parser, options, out_file))
    for flag, path in written:
        same = next((other for _, other in read if _same(path, other)), None)
        if same is not None:
            what = "standard output" if path == "-" else f"{flag} {path}"
            source = "standard input" if same == "-" else same
            raise UserError(f"{what}: is the file that is read ({source}); write into another one")
    files = [(flag, Path(path).resolve()) for flag, path in written if path != "-"]
    for number, (flag, file) in enumerate(files):
        for earlier, other in files[:number]:
            if file == other:
                raise UserError(f"{flag} {file}: {earlier} writes this file already; name another one")


def _files(
    parser: argparse.ArgumentParser, options: argparse.Namespace, kind: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.type is kind:
            value = getattr(options, action.dest)
            flag = action.option_strings[0] if action.option_strings else ""
            for path in _flat(value):
                named = path.partition("=")[2] if path and kind is in_file else ""  # of NAME=FILE
                yield from ((flag, name) for name in (path, named) if name)


def _flat(value: Any) -> Iterator[str]:
    """What an option holds that may take several files, and be given several times."""
    if not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _flat(item)


def _same(written: str, read: str) -> bool:
    """Whether both are one plain file; a device or a pipe may be read and written."""
    try:
        one = os.fstat(sys.stdout.fileno()) if written == "-" else os.stat(written)
        other = os.fstat(sys.stdin.fileno()) if read == "-" else os.stat(read)
    except (OSError, ValueError):  # no such file, or a stream without one
        return False
    return stat.S_ISREG(one.st_mode) and os.path.samestat(one, other)
