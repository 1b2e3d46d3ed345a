"""ZIP archives that must not grow without a limit when they are read: Argos, `.npz`, PyTorch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from headwise.errors import UserError

MOST = 20  # times its size; weights shrink to a half at best
SLACK = 1 << 20  # bytes: small files of text shrink more


@contextmanager
def bounded_archive(path: Path, most: int = MOST) -> Iterator[ZipFile]:
    """An archive whose files have at most `most` times its size together.

    Raises:
        UserError: they have more.
        BadZipFile, OSError: damaged; reading a file raises further errors.
    """
    with ZipFile(path) as archive:
        if sum(one.file_size for one in archive.infolist()) > most * path.stat().st_size + SLACK:
            raise UserError(f"{path}: unpacks to more than {most} times its size, as no model does; download it again")
        yield archive
