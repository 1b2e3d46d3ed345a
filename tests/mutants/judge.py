"""The plugin of `run.py` that runs, for each mutation, the tests that reach it in a forked copy of this process.

All tests are collected once; a child makes its mutation active and runs until a test fails. HEADWISE_MUTANTS_PLAN is a
file in JSON: for each number its tests with their seconds. Results are written beside it, line by line.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SECONDS, TIMES = 60, 8  # limits of a child: seconds, and a multiple of what its tests took without a mutation


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    plan_path = Path(os.environ["HEADWISE_MUTANTS_PLAN"])
    plan: dict[str, dict[str, float]] = json.loads(plan_path.read_text(encoding="utf-8"))
    jobs = int(os.environ["HEADWISE_MUTANTS_JOBS"])
    items = {item.nodeid: item for item in session.items}
    results = plan_path.with_name("results.jsonl")
    done = {json.loads(line)["number"] for line in results.read_text().splitlines()} if results.exists() else set()
    waiting = [number for number in plan if number not in done]
    running: dict[int, tuple[str, float, Path]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number = waiting.pop(0)
            tests = [name for name in plan[number] if name in items]
            folder = Path(tempfile.mkdtemp(prefix="headwise-mutant-"))
            child = os.fork()
            if not child:
                _child(number, [items[name] for name in tests], folder)
            limit = SECONDS + TIMES * sum(plan[number][name] for name in tests)
            running[child] = (number, time.monotonic() + limit, folder)
        ended, status = os.waitpid(-1, os.WNOHANG)
        late = [child for child, (_, end, _) in running.items() if time.monotonic() > end]
        for child in [ended] if ended in running else late[:1]:
            _end_group(child)
            if child != ended:
                os.waitpid(child, 0)
            number, _, folder = running.pop(child)
            report = folder / "failed"
            failed = report.read_text(encoding="utf-8") if report.exists() else ""
            if not failed and child != ended:
                failed = "(its time limit)"
            if not failed and os.waitstatus_to_exitcode(status):
                failed = f"(exit code {os.waitstatus_to_exitcode(status)})"
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"number": number, "failed": failed, "ran": len(plan[number])}) + "\n")
            print(f"mutant {number}: {failed or 'survived'}", file=sys.__stderr__, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
    return True


def _end_group(child: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _child(number: str, items: list[Any], folder: Path) -> None:
    """Run the tests with the mutation; never returns."""
    try:
        os.setsid()
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ |= {"HEADWISE_MUTANT": number, "TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}
        tempfile.tempdir = None
        for item, following in zip(items, [*items[1:], None], strict=True):
            failed = _Failures()
            item.config.pluginmanager.register(failed, "failures")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item.config.pluginmanager.unregister(failed)
            if failed.found:
                (folder / "failed").write_text(item.nodeid, encoding="utf-8")
                os._exit(0)
        os._exit(0)
    except BaseException as error:
        (folder / "failed").write_text(f"({type(error).__name__}: {error})", encoding="utf-8")
        os._exit(1)


class _Failures:
    """Whether a part of a test failed."""

    def __init__(self) -> None:
        self.found = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.found = self.found or report.failed
