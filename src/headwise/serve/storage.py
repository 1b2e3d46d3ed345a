"""The files of requests on disk: uploads of jobs until they end, and translated files and reports until they expire."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headwise.errors import UserError
from headwise.lock import temporary_folder
from headwise.serve.parameters import RequestError

PREFIX = "headwise-server-"
OTHER_FOLDER = "free some space, or choose another folder with the variable TMPDIR"


@dataclass(frozen=True)
class StorageLimits:
    """Limits of stored files."""

    bytes: int = 1024 * 1024 * 1024  # of all files; the oldest results are deleted first
    seconds: float = 1200.0  # that a result is kept
    results: int = 400  # the oldest are deleted first


@dataclass
class Storage:
    """Files, used on one event loop. A result is some of them under a name, which is kept for a limited time."""

    limits: StorageLimits = field(default_factory=StorageLimits)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _results: dict[str, tuple[float, tuple[Path, ...]]] = field(default_factory=dict)  # oldest first; with their times

    async def write(self, path: Path, content: bytes) -> None:
        """Write a file.

        Raises:
            RequestError: status 507, no space, even without the results of before; nothing is left of the file.
        """
        self.delete(path)
        while sum(self._sizes.values()) + len(content) > self.limits.bytes:
            if not self._results:
                raise RequestError(507, f"the server has no space for another {len(content):,} bytes; try again later")
            self.forget(next(iter(self._results)))
        self._sizes[path] = len(content)
        try:
            await asyncio.to_thread(path.write_bytes, content)
        except BaseException as error:
            self.delete(path)
            if isinstance(error, OSError):
                raise RequestError(507, f"the server cannot store the file: {error.strerror}") from None
            raise

    def delete(self, path: Path) -> None:
        """Delete a file, if it exists."""
        self._sizes.pop(path, None)
        path.unlink(missing_ok=True)

    def keep(self, name: str, *paths: Path) -> None:
        """Keep a result, which may have no files."""
        self._results[name] = time.monotonic(), paths

    def has(self, name: str) -> bool:
        """Whether a result is kept."""
        return name in self._results

    def expire(self) -> None:
        """Delete the results whose time has passed, and the oldest if there are too many."""
        for oldest, (since, _) in list(self._results.items()):
            if since > time.monotonic() - self.limits.seconds and len(self._results) <= self.limits.results:
                return
            self.forget(oldest)

    def forget(self, name: str) -> None:
        """Delete a result with its files."""
        _, paths = self._results.pop(name, (0.0, ()))
        for path in paths:
            self.delete(path)


@contextmanager
def serving_folder() -> Iterator[Path]:
    """A folder of this server, which is deleted at the end; first those of servers that were killed.

    Raises:
        UserError: it cannot be created.
    """
    with ExitStack() as stack:
        parent = Path(tempfile.gettempdir())
        try:
            folder = stack.enter_context(temporary_folder(parent, PREFIX, mode=0o700))
        except OSError as error:
            raise UserError(f"{parent}: {error.strerror}; {OTHER_FOLDER}") from None
        yield folder
