"""`python -m headwise.cli.trial`: `headwise train` in a process that ends with the process that started it."""

import os
import signal
import sys
from threading import Thread

from headwise.cli import main


def run_trial() -> int:
    """Train; when the other end of standard input closes, end as after SIGTERM, which saves a checkpoint."""

    def watch() -> None:
        os.read(0, 1)  # nothing is ever written, so this returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()
    return main(["train", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(run_trial())
