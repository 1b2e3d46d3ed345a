"""For pytest (-p sanitized): the library's builds are those of the folder HEADWISE_SANITIZED, made by `run.py`."""

import os
from pathlib import Path

from headwise.runtime.native import build, library

FOLDER = os.environ.get("HEADWISE_SANITIZED")
if FOLDER:
    library.library_of = lambda name: build.library_of(name, Path(FOLDER))
    library.usable_builds = lambda: [name for name in build.builds() if library.library_of(name).is_file()]
