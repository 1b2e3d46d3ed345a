"""Logs of a run: appended, truncated on resume, without incomplete lines."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import UserError, WriteError
from headwise.evaluate.logs import TRAINING_LOG, VALIDATION_LOG, TrainingHistory, read_log, training_history
from headwise.pytorch.training.metrics import MetricsLog, Terminal

INTERVAL = {
    "step": 20,
    "loss": 1.5,
    "perplexity": 4.0,
    "tokens_per_second": 1234.5,
    "seconds_left": 3723.0,
    "padding": 0.05,
    "data_wait": 0.25,
}


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_one_line_per_record(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "new", after_step=0)
    log.training({"step": 5, "loss": 0.1 + 0.2})
    log.training({"step": 10, "loss": 0.25})
    log.validation({"step": 10, "loss": 0.5})
    text = (tmp_path / "new" / TRAINING_LOG).read_text(encoding="utf-8")
    assert text == '{"step": 5, "loss": 0.30000000000000004}\n{"step": 10, "loss": 0.25}\n'
    assert steps(tmp_path / "new" / VALIDATION_LOG) == [10]


@pytest.mark.parametrize("torn", ['{"step": 20, "lo', '{"loss": 2', "7", "\x00\x00\x00", ""])
def test_resuming_removes_later_and_incomplete_lines(tmp_path: Path, torn: str) -> None:
    whole = "".join(json.dumps({"step": step, "loss": step / 7}) + "\n" for step in (5, 10, 15))
    write(tmp_path, TRAINING_LOG, whole + torn)
    write(tmp_path, VALIDATION_LOG, whole + torn)
    log = MetricsLog(tmp_path, after_step=10)
    assert (tmp_path / TRAINING_LOG).read_text(encoding="utf-8") == "".join(whole.splitlines(keepends=True)[:2])
    log.training({"step": 12})
    assert steps(tmp_path / TRAINING_LOG) == [5, 10, 12]
    assert steps(tmp_path / VALIDATION_LOG) == [5, 10]
    assert sorted(path.name for path in tmp_path.iterdir()) == [TRAINING_LOG, VALIDATION_LOG]


def test_incomplete_lines_are_skipped(tmp_path: Path) -> None:
    assert read_log(tmp_path / VALIDATION_LOG) == []
    write(tmp_path, VALIDATION_LOG, '{"step": 5, "loss": 1.5}\n[]\n{"loss": 2}\n{"step": 10, "lo')
    assert read_log(tmp_path / VALIDATION_LOG) == [{"step": 5, "loss": 1.5}]


def test_the_history_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no metrics\.jsonl or validation\.jsonl"):
        training_history(tmp_path)
    log = MetricsLog(tmp_path, after_step=0)
    records = [{"step": 5, "loss": 2.5}, {"step": 10, "loss": 1.5}]
    for record in records:
        log.training(record)
    assert training_history(str(tmp_path)).training == records
    assert training_history(tmp_path).validation == []
    log.validation({"step": 10, "bleu": 1.0})
    assert training_history(tmp_path).validation == [{"step": 10, "bleu": 1.0}]


def test_the_history_as_columns(tmp_path: Path) -> None:
    """Records may differ in their keys; texts and nested values are left out."""
    log = MetricsLog(tmp_path, after_step=0)
    log.training({"step": 1, "loss": 2.5, "gradient_norm": 3.0})
    log.training({"step": 2, "loss": None, "nll": 2.0})
    log.validation({"step": 2, "what": "step 2", "bleu": 12.5, "best": True, "sample": {"source": "a"}})
    history = training_history(tmp_path)
    training = history.columns()
    assert [*training] == ["step", "loss", "gradient_norm", "nll"]
    assert all(values.dtype == np.float64 for values in training.values())
    np.testing.assert_array_equal(np.stack([*training.values()]), [[1, 2], [2.5, np.nan], [3, np.nan], [np.nan, 2]])
    assert {name: values.tolist() for name, values in history.columns("validation").items()} == {
        "step": [2.0],
        "bleu": [12.5],
        "best": [1.0],
    }
    assert TrainingHistory([], []).columns() == {}
    with pytest.raises(UserError, match=r"'validations'.*'validation'"):
        history.columns("validations")


@pytest.mark.parametrize("damage", ["\x00\x00", "{", '{"loss": 2}', "[1]", "", "[" * 100_000])
def test_a_damaged_history_names_the_line(tmp_path: Path, damage: str) -> None:
    """An incomplete last line is still being written."""
    write(tmp_path, TRAINING_LOG, '{"step": 1}\n{"step": 2, "lo')
    assert training_history(tmp_path).training == [{"step": 1}]
    write(tmp_path, TRAINING_LOG, f'{{"step": 1}}\n{damage}\n{{"step": 2}}\n')
    with pytest.raises(UserError) as error:
        training_history(tmp_path)
    assert "metrics.jsonl, line 2: is not a record of a run" in str(error.value) and "\n" not in str(error.value)


def test_a_folder_instead_of_a_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / TRAINING_LOG).mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be read"):
        training_history(tmp_path)


def test_a_new_run_starts_with_empty_logs(tmp_path: Path) -> None:
    write(tmp_path, TRAINING_LOG, '{"step": 1}\n')
    MetricsLog(tmp_path, after_step=0)
    assert steps(tmp_path / TRAINING_LOG) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, after_step=0)
    (tmp_path / VALIDATION_LOG).symlink_to("/dev/full")
    log.training({"step": 1})
    with pytest.raises(WriteError, match=rf"{VALIDATION_LOG}.*\(No.*device\)"):
        log.validation({"step": 1})


def test_one_line_per_interval_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Terminal(total=100, done=0)) as terminal:
        terminal.step()
        terminal.interval(INTERVAL)
    assert capsys.readouterr().err == (
        "step 20: loss 1.5000, perplexity 4.00, 1,234 tokens/s, 1:02:03 left, padding 5.0%, waiting for data 25.0%\n"
    )


def test_utilisation_on_a_known_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Terminal(total=100, done=0)) as terminal:
        terminal.interval({**INTERVAL, "mfu": 0.352})
    assert "1,234 tokens/s, MFU 35.2%, 1:02:03 left" in capsys.readouterr().err


def test_large_figures_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Terminal(total=100, done=0)) as terminal:
        terminal.interval({**INTERVAL, "loss": 7e8, "perplexity": 1e304})
    assert capsys.readouterr().err.startswith("step 20: loss 7.0e+08, perplexity 1.0e+304, 1,234 tokens/s")


def test_no_output_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Terminal(total=100, done=0, show=False)) as terminal:
        terminal.interval(INTERVAL)
        terminal.say("nothing")
    assert capsys.readouterr() == ("", "")
