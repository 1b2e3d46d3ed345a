"""The command line as such: one line for a mistake, the nearest valid name, help at once, output that is whole."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import headwise
from headwise import cli
from headwise.cli.commands.translate import format_translation
from headwise.cli.files import lines_of, output
from headwise.cli.options import decode_overrides
from headwise.config.settings import SETTINGS, SearchSettings
from headwise.errors import UserError
from headwise.runtime.search.translator import Translation

TRAIN = ["train", "--recipe", "tiny", "--train", "a", "b", "--valid", "a", "b", "--out", "x"]


def settings(*values: str) -> list[str]:
    return [*TRAIN, "--set", *values]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tranlate", "m"], "unknown command 'tranlate'; did you mean 'translate'?"),
        (["--verbose"], "required: COMMAND"),
        (["translate"], "required: MODEL; see `headwise translate --help`"),
        (["translate", "m", "--beem-size", "3"], "unexpected argument '--beem-size'; did you mean '--beam-size'?"),
        (["translate", "m", "--beem-size=3"], "did you mean '--beam-size'?"),
        (["translate", "m", "--qqqqqq"], "see `headwise translate --help`"),
        (["translate", "m", "--beam-size", "four"], "argument --beam-size: invalid int value: 'four'"),
        (["translate", "m", "--format", "xml"], "choose from"),
        (["info", "runs/absent-model"], "runs/absent-model: no such model directory"),
        (
            ["translate", "owner/name"],
            "owner/name: no such model directory; give the folder that `headwise train --out`",
        ),
        (["inspect", "owner/name", "A dog"], "or write hf:owner/name to download the model of that name"),
        (["train"], "required: --train, --out"),
        ([*TRAIN, "--tensorbord"], "did you mean '--tensorboard'?"),
        ([*TRAIN, "train.seed=2"], "unexpected argument 'train.seed=2'; settings follow --set: --set train.seed=2"),
        ([*TRAIN, "--task", "clasify"], "argument --task: invalid choice: 'clasify'"),
        (["train", "--train", "a", "b", "--valid", "a", "b", "--out", "x"], "--recipe is required"),
        (["train", "--recipe", "tiny", "--train", "a", "b", "--out", "x"], "--valid is required"),
        (
            ["train", "--recipe", "tiny", "--task", "classify", *TRAIN[3:]],
            "--task classify with --recipe tiny: model.n_decoder_layers = 4 is not used by model.task = classify",
        ),
        ([*TRAIN, "--languages", "en"], "--languages: en: write two different codes, such as en-de (or pt-BR:en)"),
        ([*TRAIN, "--languages", "en-en"], "write two different codes"),
        ([*TRAIN, "--languages", "EN-DE"], "write two different codes"),
        (["serve", "m", "--languages", "en-de", "en-de-fr"], "--languages: en-de-fr: write two different codes"),
        ([*TRAIN, "--seed", "x"], "train.seed = 'x': must be of type int"),
        ([*TRAIN, "--device", "gpu"], "--device gpu: use auto, cpu or cuda"),
        ([*TRAIN[:2], "tinny", *TRAIN[3:]], "unknown recipe 'tinny'; did you mean 'tiny'? (valid: "),
        ([*TRAIN[:2], "absent.toml", *TRAIN[3:]], "absent.toml: no such recipe file"),
        (settings("train.max_stepz=3"), "unknown key 'train.max_stepz'; did you mean 'train.max_steps'?"),
        (settings("max_steps=3"), "unknown key 'max_steps'; did you mean 'train.max_steps'?"),
        (settings("train.max_steps"), "write it as section.key=value"),
        (settings("train.max_steps=many"), "train.max_steps = 'many': must be of type int"),
        (settings("train.max_steps=0"), "train.max_steps = 0: must be greater than 0"),
        (settings("train.schedule=cosin"), "did you mean 'cosine'?"),
        (settings("model.dropout=1.5"), "model.dropout = 1.5: must be at least 0 and less than 1"),
        (settings("model.d_model=130"), "is not a multiple of model.n_heads = 4"),
        (settings("train.betas=[0.9]"), "must be two numbers"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: Sequence[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headwise: error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert hint in err


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("[model\n", "not valid TOML"),
        ("[modell]\n", "unknown section 'modell'; did you mean 'model'?"),
        ("[model]\nd_modell = 8\n", "did you mean 'd_model'?"),
        ("model = 3\n", "'model' must be a table"),
    ],
)
def test_a_bad_recipe_file_is_named(
    content: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(content, encoding="utf-8")
    assert cli.main([*TRAIN[:2], str(recipe), *TRAIN[3:]]) == 2
    err = capsys.readouterr().err
    assert str(recipe) in err
    assert hint in err


@pytest.mark.parametrize("arguments", [["forecast", "bert", "a"]], ids=" ".join)
@pytest.mark.parametrize(
    "config", ['{"model_type": "bert"}', '{"format": 1, "family": {"family": "bert", "encoder": {}}}']
)
def test_a_command_for_our_own_models_says_so_of_a_checkpoint(
    arguments: list[str],
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As it was published, and as `import` writes it."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).write_text("a b\nc d\n", encoding="utf-8")
    Path("bert").mkdir()
    Path("bert/config.json").write_text(config, encoding="utf-8")
    assert cli.main(arguments) == 2
    assert "bert: is a checkpoint of a family (bert), and this needs a model that `headwise train` made" in (
        capsys.readouterr().err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "bert"]


def test_output_on_a_file_system_that_is_only_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There even what is not there cannot be removed."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with (
        pytest.raises(UserError, match=r"-o .*out: cannot be written \(Read-only file system\); check that"),
        output(str(tmp_path / "out")),
    ):
        raise AssertionError("there is nothing to write into")


def test_tune_needs_no_settings_and_general_pairs_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: list[list[str]] = []
    monkeypatch.setattr("headwise.cli.commands.tune.train", lambda options: settings.append(options.set))
    general = ["--general", "b.tsv", "--set", "train.seed=2", "--general", "c.en", "c.de"]
    for more in ([], general, []):
        options = cli.parse(["tune", "m", "--train", "a.tsv", "--out", "x", *more])
        options.run(options)
    assert settings == [[], ["train.seed=2", "data.mix=b.tsv,c.en,c.de"], []]


@pytest.mark.parametrize("command", ["translate", "classify", "embed"])
@pytest.mark.parametrize("text", ["A dog runs.", "dog", "a " * 3000])
def test_a_text_in_the_place_of_a_file_is_told_the_way(command: str, text: str) -> None:
    with pytest.raises(UserError, match=f"no such file; for a text itself: echo .* | headwise {command} MODEL"):
        lines_of(text, command)


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(UserError):
        cli.main(["--debug", "info", "absent"])
    with pytest.raises(UserError):
        cli.main(["info", "absent", "--debug"])


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_options: Namespace) -> None:
        raise UserError("first\n  second")

    monkeypatch.setattr(cli, "parse", lambda _: Namespace(command="info", run=fail))
    assert cli.main(["info"]) == 2
    assert capsys.readouterr().err == "headwise: error: first second\n"


def test_memory_that_has_run_out_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exhaust(_: Namespace) -> None:
        raise MemoryError("no memory for a packed layer")

    monkeypatch.setattr(cli, "parse", lambda _: Namespace(command="info", run=exhaust))
    assert cli.main(["translate"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("headwise: error: memory has run out") and told.count("\n") == 1
    with pytest.raises(MemoryError):
        cli.main(["translate", "--debug"])


def test_threads_that_do_not_start_are_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_more_threads: None
) -> None:
    def start(_: Namespace) -> None:
        Thread(target=print).start()

    monkeypatch.setattr(cli, "parse", lambda _: Namespace(command="info", run=start))
    assert cli.main(["train"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("headwise: error: the system starts no more threads") and told.count("\n") == 1
    with pytest.raises(RuntimeError):
        cli.main(["train", "--debug"])


def test_another_error_of_the_interpreter_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Namespace) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(cli, "parse", lambda _: Namespace(command="info", run=fail))
    with pytest.raises(RuntimeError, match="of ours"):
        cli.main(["train"])


def test_an_interruption_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_options: Namespace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", lambda _: Namespace(command="info", run=interrupt))
    assert cli.main(["info"]) == 130
    assert capsys.readouterr().err == "headwise: interrupted\n"


# Help -----------------------------------------------------------------------------------------------------------------

COMMANDS = sorted(cli.BY_NAME)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^    {command}\b", out, re.MULTILINE) for command in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: headwise {command} ")
    for action in cli.command_parser(command)._actions:
        assert action.help, action.dest
        assert not re.search(r"\b([a-z]+)\s+\1\b", action.help)  # "that that"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str) -> None:
    example = str(cli.command_parser(command).epilog)
    words = shlex.split(example.removeprefix("Example: "))
    assert words[:2] == ["headwise", command]
    assert cli.parse(words[1:]).command == command


@pytest.mark.parametrize(
    ("command", "unread"),
    [
        ("translate", set()),
        ("distill", {"draft_length"}),
        ("backtranslate", {"n_best", "draft_length"}),
        ("evaluate", {"n_best", "draft_length"}),
        ("inspect", {"n_best", "draft_length", "batch_tokens"}),
    ],
)
def test_every_decoding_setting_is_an_option_where_it_is_read(command: str, unread: set[str]) -> None:
    explained = {
        action.dest for action in cli.command_parser(command)._actions if action.help and action.option_strings
    }
    assert {field.name for field in fields(SearchSettings)} - explained == unread


def test_a_decoding_option_says_what_its_setting_says_in_flags() -> None:
    said = {action.dest: action.help for action in cli.command_parser("evaluate")._actions}
    default = "(default: the model's, see `headwise info`)"
    assert said["no_repeat_ngram"] == f"{SETTINGS['decode.no_repeat_ngram'].help} {default}"
    assert str(said["max_length_factor"]).startswith("longest output = this * source tokens + --max-length-extra (")


def test_options_not_given_leave_the_setting_of_the_model() -> None:
    options = cli.parse(["translate", "m", "--length-penalty", "1", "--sample"])
    assert decode_overrides(options) == {"length_penalty": 1.0, "sample": True}
    assert decode_overrides(cli.parse(["translate", "m"])) == {}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tranlate"]])
def test_the_list_of_commands_needs_no_command_and_no_time(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from headwise.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'sacrebleu', 'headwise.cli.commands'} & set(sys.modules)\n"
        "print(sorted(heavy), sum(name.startswith('headwise') for name in sys.modules) < 12)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[] True"


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["translate", "m", "a.txt"], set()),
        (["translate", "m", "a.po"], {"documents"}),
        (["translate", "m", "a.po", "--keep", "k", "--languages", "en-de"], {"documents", "glossary"}),
        (["score", "m", "--source", "a", "--target", "b", "--ray"], {"cluster"}),
    ],
)
def test_modules_that_only_some_options_need_are_imported_with_them(arguments: list[str], needed: set[str]) -> None:
    assert cli.parse(arguments).modules.keys() == needed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headwise {headwise.__version__}\n"


def test_the_package_shows_its_verbs() -> None:
    assert {"load", "train", "Model", "Translation", "UserError"} <= set(dir(headwise)) == {*headwise.__all__}
    assert headwise.UserError is UserError
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = headwise.trian  # type: ignore[attr-defined]


def test_no_package_hides_a_verb() -> None:
    for name in ("core.train", "evaluate.bleu", "pytorch.tasks.run"):
        import_module(f"headwise.{name}")
    assert headwise.load is import_module("headwise.models.load").load
    assert headwise.train is import_module("headwise.pytorch.tasks.train").train


# Output ---------------------------------------------------------------------------------------------------------------


def translation(text: str, *others: str) -> Translation:
    alternatives = tuple(translation(other) for other in others)
    return Translation(text, -0.5, -1.0, ["▁a"], [-1.0], ["▁b"], 1, alternatives)


def test_text_output_keeps_a_tab_but_separates_alternatives_by_tabs() -> None:
    assert format_translation(translation("a\tb"), "text") == "a\tb"
    assert format_translation(translation("a\tb", "c", ""), "text") == "a b\tc\t"


def test_jsonl_output_carries_everything() -> None:
    line = format_translation(translation("ä\u2028", "b"), "jsonl")
    assert "ä" in line
    record = json.loads(line)
    assert record["text"] == "ä\u2028"
    assert record["alternatives"][0]["text"] == "b"
    assert record.keys() == {field.name for field in fields(Translation)}


def test_an_output_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("before", encoding="utf-8")
    with pytest.raises(UserError, match="half way"), output(str(target)) as file:
        file.write("half")
        file.flush()
        raise UserError("half way")
    assert target.read_text(encoding="utf-8") == "before"
    with output(str(target)) as file:
        file.write("ä\n")
    assert target.read_bytes() == "ä\n".encode()
    assert list(tmp_path.iterdir()) == [target]


def test_an_output_file_may_be_a_link_or_a_pipe(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.txt", tmp_path / "link.txt", tmp_path / "pipe"
    real.write_text("before", encoding="utf-8")
    link.symlink_to(real)
    os.mkfifo(pipe)  # stands for every file that is no plain one; a device would not survive a failure
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe):
        with output(str(path)) as file:
            file.write("after")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "after"
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"after"
    os.close(reader)


@pytest.mark.parametrize(("name", "cause"), [("", "is a folder"), ("absent/out.txt", "its folder does not exist")])
def test_an_output_file_must_be_possible(tmp_path: Path, name: str, cause: str) -> None:
    with pytest.raises(UserError, match=cause), output(str(tmp_path / name)):
        pytest.fail("nothing may be written")


@pytest.mark.thorough
@pytest.mark.few(1)
@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP is what torch has on Linux")
@pytest.mark.parametrize(
    ("said", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")]
)
def test_threads_of_torch_wait_for_each_other_only_briefly(said: dict[str, str], spins: str) -> None:
    started = "from headwise.cli import main; main(['info', 'absent']); import torch"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    ran = subprocess.run(
        [sys.executable, "-c", started],
        env=environment | said | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in ran.stderr
