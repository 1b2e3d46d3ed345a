"""A program that is killed in the middle of its work, as a power cut would."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def killed_at(path: Path, arguments: Sequence[object], seconds: float = 240) -> None:
    """Run `sightline` until `path` exists, which it must within so many seconds, and kill it there."""
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + seconds
        while not path.exists():
            assert program.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        program.kill()
        assert program.wait() == -signal.SIGKILL
        assert program.stderr
        program.stderr.close()
