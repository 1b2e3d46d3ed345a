"""Part of `make check`: which tests there are, and their names, depends on nothing but the sources.

Collects the tests twice at once, with other hash seeds and temporary folders, the second time some seconds later, and
compares the names. Names must not contain addresses of objects or the path of the repository. (Bytes get the name of
their parameter: `pytest_make_parametrize_id` in `conftest.py`.)
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LATER = 2.5  # seconds between the two, more than the resolution of any clock in a file format
STRANGE = re.compile(rf"0x[0-9a-f]{{6,}}|{re.escape(str(ROOT))}")


def faults(first: list[str], second: list[str]) -> list[str]:
    """What is wrong with the names of the tests, collected twice.

    >>> faults(["a[1]", "b[<object at 0x7f1234567890>]"], ["a[2]", "b[<object at 0x7f1234567890>]", "c"])
    ... # doctest: +NORMALIZE_WHITESPACE
    ['collected as a[1] and as a[2]', 'collected as None and as c',
     'b[<object at 0x7f1234567890>]: an address or a path in the name']
    """
    found = [f"collected as {a} and as {b}" for a, b in zip_longest(first, second) if a != b]
    found += [f"{name}: an address or a path in the name" for name in first if STRANGE.search(name)]
    found += [f"{name}: twice" for name in first if first.count(name) > 1] if len({*first}) < len(first) else []
    return found


def collecting(seed: int, folder: str) -> "subprocess.Popen[str]":
    """A process that prints the names of all tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "TMPDIR": folder, "HEADWISE_TESTS": "all"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        programs = [collecting(1, one)]
        time.sleep(LATER)
        programs.append(collecting(2, other))
        names = [[line for line in program.communicate()[0].splitlines() if "::" in line] for program in programs]
    if any(program.returncode for program in programs) or not names[0]:
        sys.exit("collection.py: the tests cannot be collected; run pytest --collect-only")
    if found := faults(*names):
        sys.exit("\n".join(["collection.py: names of tests depend on more than the sources:", *found[:20]]))
    print(f"{len(names[0])} tests were collected twice, to the same names")


if __name__ == "__main__":
    main()
