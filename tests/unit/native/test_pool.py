"""The threads that share the products of a batch: `runtime/native/pool.c`."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from headwise.runtime.native import library as c
from headwise.runtime.native.build import FOLDER, compiler
from headwise.runtime.native.linear import NUMBERS, Linear
from headwise.runtime.native.threads import SharedThreads, use_threads

pytestmark = pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")

MEET = """
#include "pool.h"
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static atomic_int met;

/* Each part waits until both have begun, so one thread alone never gets there. */
static void meet(void *data, int part, int parts) {
    const time_t end = time(NULL) + 300;
    (void)part, (void)parts;
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < 2 && !*(int *)data) *(int *)data = time(NULL) > end;
}

static atomic_int sums[7];

static void count(void *data, int part, int parts) {
    (void)data, (void)parts;
    atomic_fetch_add(&sums[part], 1);
}

int main(void) {
    int alone = 0;
    headwise_set_threads(2, NULL);
    run_parts(2, meet, &alone);
    for (int i = 0; i < 100000; i++) run_parts(7, count, NULL); /* every part of every task, once */
    for (int i = 0; i < 7; i++)
        if (sums[i] != 100000) return printf("part %d: %d times", i, sums[i]), 1;
    atomic_int shared = 1; /* of at most 2 */
    headwise_set_threads(2, &shared);
    for (int expected = 1; shared < 4; shared++, expected = 8)
        if (parts_for(1 << 30) != expected) return printf("%d threads: %d parts", shared, parts_for(1 << 30)), 1;
    return printf(alone ? "alone" : "together"), 0;
}
"""


@pytest.mark.skipif(compiler() is None or os.name == "nt", reason="needs a C compiler and threads")
def test_threads_work_at_once_and_do_each_part_once(tmp_path: Path) -> None:
    program = tmp_path / "meet"
    (tmp_path / "meet.c").write_text(MEET)
    sources = [str(tmp_path / "meet.c"), str(FOLDER / "pool.c")]
    call = [*(compiler() or []), "-std=gnu11", "-O1", "-w", f"-I{FOLDER}", *sources, "-o", str(program), "-pthread"]
    subprocess.run(call, check=True)
    ran = subprocess.run([program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "together")


@pytest.mark.parametrize("numbers", NUMBERS)
def test_results_do_not_depend_on_threads(numbers: str) -> None:
    """Of products large enough to be shared, with as many panels as do not divide evenly."""
    draw = np.random.default_rng(1)
    layer = Linear(draw.standard_normal((1003, 700), np.float32), draw.standard_normal(1003, np.float32), numbers)
    for rows in (1, 5, 70):
        x = draw.standard_normal((rows, 700), np.float32)
        use_threads(1)
        wanted = layer(x)
        for threads in (2, 3, 8):
            use_threads(threads)
            assert np.array_equal(layer(x), wanted), (rows, threads)
    use_threads(1)


def test_the_last_tasks_have_the_threads_of_finished_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five threads: three tasks have one each, two have two, the last has all; afterwards the thread has one."""
    seen: list[int] = []
    settings: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        "headwise.runtime.native.threads.c.library",
        lambda: SimpleNamespace(headwise_set_threads=lambda most, shared: settings.append((most, shared is not None))),
    )
    shared = SharedThreads(5, 3)

    def task() -> None:
        seen.append(int(shared.each[0]))

    for _ in range(3):
        shared.run(task)
    with pytest.raises(ZeroDivisionError):
        shared.run(lambda: 1 // 0)  # one that is run again
    assert seen == [1, 2, 5]
    assert settings == [(5, True), (1, False)] * 4


def test_callers_at_once_get_their_own_results() -> None:
    """One has the threads, the others compute alone."""
    draw = np.random.default_rng(2)
    layer = Linear(draw.standard_normal((1003, 700), np.float32), None, "int8")
    inputs = [draw.standard_normal((3, 700), np.float32) for _ in range(4)]
    wanted = [layer(x) for x in inputs]
    wrong: list[int] = []

    def call(i: int) -> None:
        use_threads(3)
        wrong.extend(i for _ in range(300) if not np.array_equal(layer(inputs[i]), wanted[i]))

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FORKED = """
import os, sys, numpy as np
from headwise.runtime.native.linear import Linear
from headwise.runtime.native.threads import use_threads
layer, x = Linear(np.ones((1003, 700), np.float32), None), np.ones((3, 700), np.float32)
use_threads(3)
wanted = layer(x)
for _ in range(20):
    child = os.fork()
    if not child:
        use_threads(3)
        os._exit(0 if np.array_equal(layer(x), wanted) else 1)
    layer(x)
    if os.waitpid(child, 0)[1]:
        sys.exit("a child computed something else")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_wait_for_threads_it_does_not_have() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_idle_threads_sleep() -> None:
    layer, x = Linear(np.ones((1003, 700), np.float32), None), np.ones((3, 700), np.float32)
    use_threads(3)
    layer(x)
    use_threads(1)
    time.sleep(0.05)
    started = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - started < 0.25, "threads that wait in a loop would use 1 s"
