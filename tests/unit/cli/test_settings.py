"""`headwise settings` lists every setting, or those of a task, at 80 columns."""

import re

import pytest

from headwise.cli import main
from headwise.config.settings import SETTINGS, flatten, from_dict, meaningful
from headwise.config.tasks import TASKS

KEY = re.compile(r"^(\w+\.\w+) = ", re.MULTILINE)


def listed(capsys: pytest.CaptureFixture[str], *task: str) -> str:
    assert main(["settings", *task]) == 0
    return capsys.readouterr().out


def test_all_settings_stand_there_with_default_range_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    output = listed(capsys)
    assert KEY.findall(output) == [key for key, setting in SETTINGS.items() if not setting.derived]
    assert max(map(len, output.splitlines())) <= 80
    words = " ".join(output.split())
    assert all(" ".join(setting.help.split()) in words for setting in SETTINGS.values() if not setting.derived)
    assert "train.max_steps = 100000                    greater than 0\n" in output
    assert 'model.cell = "gru"                          gru | lstm | rnn\n' in output
    assert "task: forecast" in output and "architecture: recurrent" in output


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_settings_that_a_run_of_it_reads(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = KEY.findall(listed(capsys, task))
    there = set[str]()
    for architecture in SETTINGS["model.architecture"].choices:
        config = from_dict({"model": {"architecture": architecture, "task": task}}, "test")
        there |= {key for key in flatten(config) if key.split(".")[1] in meaningful(config).get(key.split(".")[0], {})}
    assert {*found} == {key for key in there if not SETTINGS[key].derived}


def test_an_unknown_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "translation"]) == 2
    assert "invalid choice: 'translation'" in capsys.readouterr().err
