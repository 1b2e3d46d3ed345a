"""Files from the web in one attempt, checked, and the model folder in a zip archive."""

import zlib
from collections.abc import Generator
from contextlib import closing
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from zipfile import BadZipFile

from tqdm import tqdm

from headwise.errors import UserError, first_line, writing
from headwise.runtime.checkpoint.layout import CONFIG, is_outside
from headwise.runtime.formats.archives import bounded_archive
from headwise.version import __version__

TIMEOUT = 30  # seconds without an answer
CHUNK = 1 << 16  # bytes


def download(address: str, file: Path, size: int = 0, digest: str = "", otherwise: str = "") -> None:
    """Download a file in one attempt, with a progress bar on a terminal.

    Args:
        size: bytes, after which the download ends; 0: as many as the server sends.
        digest: the SHA-256 digest that it must have, in hexadecimal; "": not checked.
        otherwise: what helps if the server does not answer, for the message.

    Raises:
        UserError: the server does not answer, the file is incomplete, or it is another one; `WriteError` if it cannot
            be written. Delete `file` then.
    """
    found, received = sha256(), 0
    with writing(file), file.open("wb") as target, closing(_blocks(address, size, otherwise)) as blocks:
        for block in blocks:
            target.write(block)
            found.update(block)
            received += len(block)
            if size and received > size:
                break
    if digest and found.hexdigest() != digest:
        raise UserError(
            f"{address}: is not the file that was released ({received:,} bytes, SHA-256 {found.hexdigest()[:16]}...), "
            "so it was deleted; download it again, from another network if this one changes files"
        )


def _blocks(address: str, size: int, otherwise: str) -> Generator[bytes, None, None]:
    """The bytes of a file on a server."""
    fix = f"check the network{otherwise and f', or {otherwise}'}"
    try:
        request = Request(address, headers={"User-Agent": f"headwise/{__version__}"})
        with urlopen(request, timeout=TIMEOUT) as response:
            if address.startswith("https:") and not response.url.startswith("https:"):
                raise UserError(f"{address}: leads to {response.url}, which is not encrypted, so it is not read; {fix}")
            total = size or getattr(response, "length", None)
            with tqdm(total=total, unit="B", unit_scale=True, disable=None) as bar:
                while block := response.read(CHUNK):
                    yield block
                    bar.update(len(block))
            if getattr(response, "length", None):  # of bytes that were announced
                raise UserError(f"{address}: the connection ended {response.length:,} bytes too early; download again")
    except UserError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: no address
        if isinstance(error, HTTPError):
            error.close()  # it is the response
        reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise UserError(f"{address}: cannot be downloaded ({first_line(reason)}); {fix}") from error


def unpack_model(archive: Path, folder: Path) -> Path:
    """Unpack a zip archive into `folder`, and return the model folder in it.

    Raises:
        UserError: the archive is damaged, names files outside of the folder, or contains no model.
    """
    try:
        with writing(folder), bounded_archive(archive) as files:
            outside = [name for name in files.namelist() if is_outside(name)]
            if outside:
                raise UserError(f"{archive.name}: names {outside[0]}, which is outside of the folder; do not use it")
            files.extractall(folder)
    except (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{archive.name}: not a zip archive, or damaged ({error}); download it again") from error
    models = [path.parent for path in sorted(folder.glob(f"*/{CONFIG}"))]
    if len(models) != 1:
        raise UserError(f"{archive.name}: contains {len(models)} model folders, expected one; download another file")
    return models[0]
