"""Flags that would be left unread and files that would be overwritten are refused, by construction everywhere."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise import cli
from headwise.cli.options import refuse_unread
from headwise.cli.rules import in_file, in_flags, out_file
from headwise.errors import UserError

PARSERS = {name: cli.command_parser(name) for name in cli.BY_NAME}
ACTIONS = [(name, action) for name, parser in PARSERS.items() for action in parser._actions]
# Numbers that the library checks, and names in its errors: all of these two groups, and
SETTINGS = ("decoding", "generation")
CHECKED_ELSEWHERE = {("inspect", "layer"), ("transcribe", "beam_size"), ("classify", "threshold")}

DISTILL = ["distill", "m", "--train", "a.tsv", "-o", "b.jsonl"]
ALIGN = ["align", "m", "--source", "a", "--target", "b"]
SCORED = ["evaluate", "--alignments", "gold", "--hypothesis", "links"]
TUNE = ["evaluate", "m", "--source", "a", "--reference", "b", "--tune", "length_penalty"]
UNREAD: list[tuple[list[str], str]] = [
    (["translate", "m", "a.po", "--format", "jsonl"], "--format is for lines of text"),
    (["translate", "m", "a.TMX", "--n-best", "2"], "--n-best is for lines of text"),
    (["translate", "m", "a.txt", "--sentences", "--lines"], "--sentences does not go with --lines"),
    (["translate", "m", "a.po", "--lines", "--report", "r.jsonl"], "--report is for documents"),
    (["translate", "m", "a.txt", "--report", "r.jsonl"], "--report is for documents (files such as .po"),
    (
        ["translate", "m", "a.txt", "--languages", "en-de"],
        "--languages is for documents, --glossary, --memory",
    ),
    (["translate", "m", "a.txt", "--memory", "m.tmx", "--prefix", "p"], "--memory does not go with --prefix"),
    (["serve", "m", "--suggestions", "s.tmx", "--ray"], "--suggestions does not go with --ray"),
    (["translate", "m", "--draft", "input", "--keep", "k"], "--keep does not go with --draft"),
    ([*TUNE, "--glossary", "g"], "--glossary does not go with --tune"),
    (["translate", "m", "--then", "n", "--source-language", "de"], "--source-language does not go with --then"),
    (["translate", "m", "--then", "n", "--keep", "k"], "--keep does not go with --then"),
    (["translate", "m", "--draft-length", "3"], "--draft-length is for --draft"),
    (["translate", "m", "--draft", "input", "--workers", "2"], "--workers does not go with --draft"),
    (["translate", "m", "--draft", "input", "--sample"], "--sample does not go with --draft"),
    (["translate", "m", "--draft", "input", "--beam-size", "4"], "--beam-size does not go with --draft"),
    (["translate", "m", "--ensemble", "n", "--alignment", "-"], "--alignment does not go with --ensemble"),
    (["translate", "m", "a.txt", "--ray", "--alignment", "-"], "--alignment does not go with --ray"),
    (["translate", "m", "a.po", "--ray"], "--ray is for lines of text"),
    (["translate", "m", "a.txt", "--ray", "--glossary", "g.tsv"], "--glossary does not go with --ray"),
    (["evaluate", "m", "--source", "a", "--ray", "--keep", "k"], "--keep does not go with --ray"),
    ([*SCORED, "--ray"], "--ray does not go with --alignments"),
    ([*DISTILL, "--interpolate", "--n-best", "1"], "--interpolate chooses among several"),
    ([*DISTILL, "--interpolate", "--beam-size", "1"], "--interpolate chooses among several"),
    ([*ALIGN, "--choose", "c", "-o", "d"], "-o does not go with --choose"),
    ([*ALIGN, "--choose", "c", "--reverse", "n"], "--reverse does not go with --choose"),
    (["evaluate", "m", "--source", "a", "--target", "b"], "--target is for --alignments"),
    (["evaluate", "m", "--hypothesis", "b", "--reference", "a"], "MODEL does not go with --hypothesis"),
    (["evaluate", "--hypothesis", "b", "--reference", "a", "--save", "c"], "--save does not go with --hypothesis"),
    ([*TUNE, "--length-penalty", "1"], "--length-penalty does not go with --tune"),
    ([*TUNE, "--sample"], "--sample does not go with --tune"),
    ([*TUNE, "--save", "c"], "--save takes no FILE with --tune"),
    ([*TUNE, "--ensemble", "n", "--save"], "--ensemble does not go with --save"),
    ([*TUNE, "--beam-size", "8", "--save"], "--beam-size does not go with --save"),
    (["evaluate", "m", "--source", "a", "--reference", "b", "--save"], "--save needs a FILE"),
    (["evaluate", "m", "--alignments", "g", "--save", "b"], "--save does not go with --alignments"),
    (["evaluate", "m", "--alignments", "g", "--beam-size", "2"], "--beam-size does not go with --alignments"),
    ([*SCORED, "--ensemble", "n"], "--ensemble does not go with --"),
    ([*SCORED, "--source", "a"], "--source does not go with --hypothesis"),
    ([SCORED[0], "m", *SCORED[1:]], "MODEL does not go with --hypothesis"),
    (["serve", "m", "--replicas", "2"], "--replicas is for --ray"),
    (["serve", "m", "--api-keys", "f", "--no-key"], "--no-key does not go with --api-keys"),
    (["serve", "m", "--ray", "--max-connections", "9"], "--max-connections does not go with --ray"),
    (["embed", "m", "-o", "x.npz"], "-o is for an array (.npy) or for lines of JSON"),
    (["results", "m", "--beam-size", "4"], "--beam-size is for test sets"),
    (["results", "m", "--baseline", "n"], "--baseline is for test sets"),
    (["results", "m", "--axis", "hours"], "--axis is for --curves"),
    (["transcribe", "m", "a", "--format", "srt", "--timestamps"], "--timestamps is for --format text"),
    (["inspect", "m", "a", "--layer", "9"], "--layer is for pictures and text"),
    (["inspect", "m", "a", "-o", "x.html", "--head", "77"], "--head is for pictures and text"),
    (["inspect", "m", "a", "--format", "json", "--part", "encoder"], "--part is for pictures and text"),
    (["inspect", "m", "a", "--format", "json", "--full-walk"], "--full-walk is for pages"),
    (["inspect", "m", "a", "--translation", "b", "--prefix", "c"], "--prefix does not go with --translation"),
    (["inspect", "m", "a", "--translation", "b", "--beam-size", "2"], "--beam-size does not go with --translation"),
]


def complaint(arguments: Sequence[str]) -> str:
    with pytest.raises(UserError) as raised:
        cli.parse(arguments)
    return str(raised.value)


@pytest.mark.parametrize(("arguments", "expected"), UNREAD)
def test_a_flag_that_would_be_left_unread_is_refused(arguments: list[str], expected: str) -> None:
    assert complaint(arguments).startswith(expected)


def test_every_rule_has_a_case_above_and_flags_that_exist() -> None:
    seen = {(arguments[0], expected.split(" ", 1)[1]) for arguments, expected in UNREAD}
    for command, parser in PARSERS.items():
        known = {action.dest for action in parser._actions}
        for rule in parser.rules:
            assert any(name in known for name in rule.flags)
            assert any(command == case and rule.why.startswith(why) for case, why in seen), rule.why


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "m", "--draft", "input", "--beam-size", "1", "--draft-length", "3"],
        ["translate", "m", "a.txt", "--glossary", "g.tbx", "--languages", "en-de"],
        [*DISTILL, "--interpolate"],
        [*DISTILL, "--n-best", "3"],
        [*DISTILL, "--interpolate", "--n-best", "3"],
        [*ALIGN, "--reverse", "n", "-o", "c"],
        SCORED,
        ["evaluate", "--hypothesis", "a", "--reference", "b", "--against", "c"],
        [*TUNE, "--beam-size", "8"],
        [*TUNE, "--save"],
        ["inspect", "m", "a", "--format", "text", "--layer", "0", "--head", "1"],
        ["inspect", "m", "a", "-o", "a.pdf", "--layer", "0"],
        ["inspect", "m", "a", "-o", "a.html", "--full-walk"],
    ],
)
def test_flags_that_mean_something_are_not(arguments: list[str]) -> None:
    cli.parse(arguments)


@pytest.mark.parametrize(
    ("given", "sample", "expected"),
    [
        ({"top_k": 5}, False, "--top-k is for sampling"),
        ({"seed": 2, "sample": False}, True, "--seed is for sampling"),
        ({"temperature": 2.0}, True, ""),
        ({"top_p": 0.5, "sample": True}, False, ""),
        ({"sample": True, "beam_size": 4}, False, "--beam-size does not go with --sample"),
        ({"sample": True, "beam_size": 1}, False, ""),
        ({"sample": False, "beam_size": 4}, True, ""),
    ],
)
def test_settings_of_the_other_kind_of_search_are_refused(given: dict[str, Any], sample: bool, expected: str) -> None:
    """Whether a model samples is its own affair unless the command line says."""
    if not expected:
        refuse_unread(given, SimpleNamespace(sample=sample))
        return
    with pytest.raises(UserError, match=expected):
        refuse_unread(given, SimpleNamespace(sample=sample))


def test_every_number_has_a_range() -> None:
    grouped = {
        (name, action.dest)
        for name, parser in PARSERS.items()
        for group in parser._action_groups
        if (group.title or "").startswith(SETTINGS)
        for action in group._group_actions
    }
    bare = {(name, action.dest) for name, action in ACTIONS if action.type in (int, float)}
    assert bare - grouped == CHECKED_ELSEWHERE


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["translate", "m", "--workers", "-1"], "--workers"),
        (["score", "m", "--source", "a", "--stride", "0"], "--stride"),
        (["shortlist", "m", "--train", "a", "--candidates", "0"], "--candidates"),
        (["fill", "m", "a", "--top", "0"], "--top"),
        (["label", "m", "a", "--top", "-3"], "--top"),
        (["embed", "m", "--batch-size", "0"], "--batch-size"),
        (["study", "--jobs", "0"], "--jobs"),
        (["inspect", "m", "a", "--format", "text", "--head", "-1"], "--head"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_its_flag(arguments: list[str], flag: str) -> None:
    assert f"argument {flag}: {arguments[-1]} is less than " in complaint(arguments)


@pytest.mark.parametrize(
    ("message", "flags", "expected"),
    [
        ("decode.beam_size = 0: must be", {"beam_size": "--beam-size"}, "--beam-size 0: must be"),
        ("stride = 9: must be", {"stride": "--stride"}, "--stride 9: must be"),
        ("model.json: decode.beam_size = 0", {}, "model.json: decode.beam_size = 0"),
        ("train.seed = 1", {"seed": "--seed"}, "train.seed = 1"),
    ],
)
def test_a_message_names_what_was_typed(message: str, flags: dict[str, str], expected: str) -> None:
    assert in_flags(message, flags) == expected


# Files ----------------------------------------------------------------------------------------------------------------

WRITERS = [
    ["translate", "m", "{}", "-o", "{}"],
    ["translate", "m", "{}", "--alignment", "{}"],
    ["translate", "m", "--draft", "{}", "-o", "{}"],
    ["classify", "m", "{}", "-o", "{}"],
    ["forecast", "m", "{}", "-o", "{}"],
    ["distill", "m", "--train", "a", "{}", "-o", "{}"],
    ["backtranslate", "m", "--text", "a", "{}", "-o", "{}"],
    ["annotate", "--train", "a", "b", "--glossary", "{}", "-o", "{}"],
    ["score", "m", "--source", "{}", "--target", "a", "-o", "{}"],
    ["evaluate", "m", "--source", "a", "--reference", "b", "{}", "--save", "{}"],
    ["align", "m", "--source", "a", "--target", "{}", "-o", "{}"],
    ["embed", "m", "{}", "-o", "{}"],
    ["results", "m", "--test", "a", "b", "c", "--test", "a", "{}", "c", "-o", "{}"],
]


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard"])
@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_no_command_writes_over_what_it_reads(arguments: list[str], link: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("kept\n", encoding="utf-8")
    make = {
        "itself": lambda: None,
        "symbolic": lambda: target.symlink_to(source),
        "hard": lambda: os.link(source, target),
    }
    make[link]()
    places = iter([source, source if link == "itself" else target])
    told = complaint([str(next(places)) if part == "{}" else part for part in arguments])
    assert f"is the file that is read ({source})" in told
    other = iter([source, tmp_path / "other.txt"])
    cli.parse([str(next(other)) if part == "{}" else part for part in arguments])


def test_standard_output_may_not_be_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.txt"
    path.write_text("kept\n", encoding="utf-8")
    with path.open("a") as out, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        assert complaint(["translate", "m", str(path)]).startswith("standard output: is the file that is read")
    with path.open() as stdin, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        assert "is the file that is read (standard input)" in complaint(["translate", "m", "-o", str(path)])


def test_a_device_may_be_both() -> None:
    cli.parse(["translate", "m", "/dev/null", "-o", "/dev/null"])


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    one = str(tmp_path / "out")
    told = complaint(["translate", "m", "in", "-o", one, "--alignment", f"{tmp_path}/../{tmp_path.name}/out"])
    assert "-o writes this file already" in told


def names_a_file(action: argparse.Action) -> bool:
    said = str(action.metavar or "")
    return action.dest in ("input", "output", "save") or said.startswith(("FILE", "IMAGE", "AUDIO"))


def test_every_file_is_known_as_read_or_written() -> None:
    """`train`, `tune` and `sweep` write folders of their own; so do those whose output is DIR."""
    loose = {
        (name, action.dest)
        for name, action in ACTIONS
        if name not in ("train", "tune", "sweep") and names_a_file(action) and action.metavar != "DIR"
        if action.type not in (in_file, out_file)
    }
    assert loose == set()
