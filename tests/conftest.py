"""What every test relies on: checked shapes, one thread, a known random state and examples, a cache of its own."""

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from sampling import ALL, pytest_collection_modifyitems  # noqa: F401  # a hook
from shapes import check_calls, next_test

check_calls()  # before anything imports headwise

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
torch.set_num_threads(1)  # a sum over several threads has no fixed order
os.environ["OMP_NUM_THREADS"] = "1"  # the same for programs that tests start

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=300 if ALL else 25)
settings.load_profile("repeatable")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    next_test(item.nodeid)


def pytest_collection_finish() -> None:
    """Leave the modules that are loaded now out of every later garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes get the name of their parameter, and a number where there are several: a name never shows content."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tokenised corpora go into a temporary folder, never into the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def known_random_state() -> None:
    """No test sees how many random numbers the tests before it drew."""
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def no_more_threads() -> Iterator[None]:
    """Python can start no thread: each would want a stack that no memory holds."""
    before = threading.stack_size(1 << 46)
    yield
    threading.stack_size(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real corpora beside the repository; a test that needs them is skipped where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the corpora in {SHARED_DATA}")
    return SHARED_DATA
