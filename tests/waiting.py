"""Waiting for other processes and threads, without a limit of its own.

How long something takes depends on the machine and on what else it does, so no test has a deadline. A test that would
wait for ever is ended by `faulthandler_timeout` in `pyproject.toml`, with its traceback.
"""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], pause: float = 0.005) -> Found:
    """What the condition returns as soon as it holds; it is asked again after `pause` seconds."""
    while not (found := condition()):
        time.sleep(pause)
    return found
