import os
import signal
from concurrent.futures import ProcessPoolExecutor

import pytest

from headwise.errors import UserError
from headwise.text.prepared.processes import ordered_results, worker_processes

ENDED = r"^a working process was killed, perhaps because memory ran out: use fewer processes \(--workers 1\)$"


def begin(name: str) -> None:
    os.environ["HEADWISE_TESTED"] = name


def work(chunk: list[int]) -> list[str]:
    return [f"{os.environ['HEADWISE_TESTED']} {number}" for number in chunk]


def end(chunk: list[int]) -> list[str]:
    os.kill(os.getpid(), signal.SIGKILL)
    return work(chunk)


def test_results_are_in_the_order_of_the_work() -> None:
    chunks = [[1], [2, 3], [], [4]]
    with worker_processes(2, "a working process", begin, "worked on") as submit:
        done = [*ordered_results(chunks, lambda chunk: submit(work, chunk), lambda: 2)]
    assert done == ["worked on 1", "worked on 2", "worked on 3", "worked on 4"]


def test_a_killed_process_is_an_error() -> None:
    with pytest.raises(UserError, match=ENDED), worker_processes(1, "a working process", begin, "") as submit:
        submit(end, [1]).result()


@pytest.mark.parametrize("error", [ValueError("bad value(s) in fds_to_keep"), OSError("handle is closed")])
def test_a_process_that_starts_with_closed_pipes_is_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `submit` raises in the microseconds while the pool notices that another process was killed."""

    def submit(*given: object) -> None:
        raise error

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    with pytest.raises(UserError, match=ENDED), worker_processes(1, "a working process", begin, "") as give:
        give(work, [1])
