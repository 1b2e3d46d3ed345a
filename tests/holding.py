"""A program that stops itself at a moment of its work, so that a test finds it there on any machine, however busy.

The moment is a file or folder that exists, or a training log with the record of a step. The program looks whenever it
opens a file, and stops (`SIGSTOP`) before that. It knows the moment from its environment:

    with Hold(out / "metrics.jsonl", step=9) as hold:
        program = Program(["train", ...])
    hold.wait(program)
    program.kill()  # or send a signal and `hold.release()`

`Program` looks by itself; `python -m holding ARGUMENTS` is `python -m headwise ARGUMENTS` that does. Of several ranks
the first one stops, and a program that is started again does not stop again.
"""

import json
import os
import shutil
import signal
import sys
import threading
import weakref
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from waiting import wait_until

VARIABLE = "HOLD_AT"


class Hold:
    """A moment at which programs stop that start within the `with` block.

    Args:
        path: of the file or folder.
        step: what the last complete line of the file must have reached.
        passed: files that may still be opened after the moment.
    """

    def __init__(self, path: Path, step: int = 0, passed: int = 0) -> None:
        folder = mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder)
        self._marker = Path(folder) / "process"
        self._moment = json.dumps([str(path), step, passed, str(self._marker)])

    def __enter__(self) -> "Hold":
        self._before = dict(os.environ)
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ.update({VARIABLE: self._moment, "PYTHONPATH": os.pathsep.join(paths)})
        return self

    def __exit__(self, *error: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)

    def wait(self, program: Any) -> None:
        """Wait until the running `program`, or its first rank, has stopped itself."""
        wait_until(lambda: self._stopped() or ended(program), pause=0.002)

    def _stopped(self) -> bool:
        if not self._marker.exists() or not (text := self._marker.read_text(encoding="utf-8")).endswith("\n"):
            return False
        return Path(f"/proc/{text.strip()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"

    def release(self) -> None:
        """Let it go on."""
        os.kill(int(self._marker.read_text(encoding="utf-8")), signal.SIGCONT)


def ended(program: Any) -> bool:
    """False as long as a program runs, which it must."""
    assert program.poll() is None, program.communicate()[1]
    return False


def last_step(path: Path) -> int:
    """The last step in a training log, from complete lines only."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


def stop_when_told() -> None:
    """In the program: stop at the moment in the environment, if there is one."""
    if VARIABLE not in os.environ:
        return
    path, step, passed, marker = json.loads(os.environ[VARIABLE])
    looking, opened = threading.Lock(), 0

    def look(event: str, _: Any) -> None:
        nonlocal opened
        launches = "--devices" in sys.argv and "RANK" not in os.environ
        if event != "open" or launches or os.environ.get("RANK", "0") != "0" or not looking.acquire(blocking=False):
            return
        if last_step(Path(path)) >= step if step else Path(path).exists():
            opened += 1
            if opened > passed:
                Path(marker).write_text(f"{os.getpid()}\n", encoding="utf-8")
                os.kill(os.getpid(), signal.SIGSTOP)
                return  # never to look again
        looking.release()

    if not Path(marker).exists():
        sys.addaudithook(look)


if __name__ in ("__main__", "__mp_main__"):  # also in the processes that a launcher starts
    stop_when_told()
if __name__ == "__main__":
    from headwise.cli import main

    sys.exit(main(sys.argv[1:]))
