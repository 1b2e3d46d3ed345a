"""The manifest of a model folder: `SHA256SUMS`, the SHA-256 digests of its files in the format of `sha256sum`.

It is written last. While a file is being replaced, the manifest has both its old and its new digest, so a process
killed at any moment leaves a folder that loads. Folders without a manifest (older ones, or from other programs) are not
checked. Files that users edit (`generation_config.json`, the model card) are not listed, and packed files have their
own checksums (`packed`).

Large files are hashed in threads while the rest of the model is read.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread

from headwise.errors import UserError, writing
from headwise.lock import exclusive
from headwise.runtime.checkpoint.layout import PACKED
from headwise.runtime.checkpoint.modules import module_files

MANIFEST = "SHA256SUMS"
LISTED = (".json", ".safetensors", ".model", ".spm", ".txt", ".jinja", ".bin")  # endings of the files of a model
EDITED = ("generation_config.json",)  # by hand; its settings are checked when it is read
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
CHUNK = 1 << 20  # bytes; fits into the cache of a core
Listing = Mapping[str, Sequence[str]]  # the valid digests of each file


class Digests:
    """Compares the files of a folder with its manifest, each file once and in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        """Reads the manifest; `UserError` if it is damaged. The files must be opened after this."""
        self.folder = folder
        self._listing = read_manifest(folder)
        self._hashing: dict[str, Hashing] = {}
        self._lock = Lock()

    @property
    def names(self) -> list[str]:
        """The listed files; none without a manifest."""
        return [*self._listing]

    def begin(self, names: Iterable[str]) -> None:
        """Start hashing those of `names` that are listed."""
        with self._lock:
            for name in names:
                if name in self._listing and name not in self._hashing:
                    self._hashing[name] = Hashing(self.folder / name)

    def check(self, names: Iterable[str]) -> None:
        """Wait for the digests of those of `names` that are listed; `UserError` for a file with another digest."""
        names = [name for name in names if name in self._listing]
        self.begin(names)
        for name in names:
            found = self._hashing[name].result()
            if found in self._listing[name]:
                continue
            now = read_manifest(self.folder)  # a training may have replaced both since
            if found not in now.get(name, ()):
                raise self._mismatch(name, found)

    def digest_of(self, name: str) -> str:
        """The digest of a file: the listed one, without reading the file, if there is exactly one."""
        listed = self._listing.get(name, ())
        if len(listed) == 1:
            return listed[0]
        with self._lock:
            if name not in self._hashing:
                self._hashing[name] = Hashing(self.folder / name)
        return self._hashing[name].result()

    def _mismatch(self, name: str, found: str) -> UserError:
        path = self.folder / name
        what = "is not the file" if found else "is missing, a file"
        return UserError(
            f"{path}: {what} that {MANIFEST} lists: damaged, incomplete or changed since the model was written; "
            f"restore it, or if the change is intended run `headwise seal {self.folder}`"
        )


class Hashing(Thread):
    """The SHA-256 digest of a file, computed in the background; "" if the file is missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._found = ""
        self._error: OSError | None = None
        self.start()

    def run(self) -> None:
        """Hash the file."""
        try:
            self._found = file_digest(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._error = error

    def result(self) -> str:
        """Wait for the digest; `UserError` if the file cannot be read."""
        self.join()
        if self._error:
            raise UserError(f"{self._path}: cannot be read ({self._error.strerror})") from self._error
        return self._found


def file_digest(path: Path) -> str:
    """The SHA-256 digest of a file in hexadecimal."""
    from hashlib import sha256  # loads OpenSSL, needed for a manifest only

    found = sha256()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(min(CHUNK, os.fstat(file.fileno()).st_size + 1)))
        while size := file.readinto(buffer):
            found.update(buffer[:size])
    return found.hexdigest()


def check_manifest(folder: Path) -> list[str]:
    """Compare every listed file of a folder with its manifest and return their names; `UserError` as for `check`."""
    digests = Digests(folder)
    digests.check(digests.names)
    return digests.names


def seal(folder: Path, again: bool = False) -> list[str]:
    """Write the manifest of a folder that is complete, unless it has one; returns the names of the listed files.

    `again`: also if it has one, for files that were changed on purpose.
    """
    with exclusive(folder):  # another process may change the manifest, too
        if not again and (folder / MANIFEST).is_file():
            return [*read_manifest(folder)]
        listing = {name: [file_digest(folder / name)] for name in _files_of(folder)}
        _write(folder, listing)
    return [*listing]


def replace_listed(draft: Path, path: Path) -> None:
    """Rename `draft` to `path` and update the manifest, if there is one."""
    folder, name = path.parent, path.name
    if not (is_listed(name) and (folder / MANIFEST).is_file()):
        return os.replace(draft, path)
    new = file_digest(draft)
    with exclusive(folder):  # another process may change the manifest, too
        before = read_manifest(folder)
        old = before.get(name, [])
        if old and old != [new]:
            _write(folder, {**before, name: [*dict.fromkeys([*old, new])]})
        os.replace(draft, path)
        if old != [new]:
            _write(folder, {**before, name: [new]})


def is_listed(name: str) -> bool:
    """Whether a file of this name belongs in the manifest.

    >>> is_listed("tokenizer.json"), is_listed("generation_config.json"), is_listed(".lock")
    (True, False, False)
    """
    return name.endswith(LISTED) and name not in EDITED and not name.startswith(".")


def read_manifest(folder: Path) -> Listing:
    """The listed files with their digests; none without a manifest."""
    path = folder / MANIFEST
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it, or run `headwise seal {folder}`") from None
    listing: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if not (found := LINE.fullmatch(line)):
            raise UserError(f"{path}, line {number}: damaged; restore it, or run `headwise seal {folder}`")
        listing.setdefault(found[2], []).append(found[1])
    return listing


def _files_of(folder: Path) -> list[str]:
    """The files of the model and of its modules."""
    beside = {path.name for path in folder.iterdir() if is_listed(path.name) and path.is_file()}
    return sorted({*beside, *(path.as_posix() for path in module_files(folder))})


def _write(folder: Path, listing: Listing) -> None:
    path = folder / MANIFEST
    draft = path.with_name(f".{MANIFEST}.{os.getpid()}")
    lines = [f"{value}  {name}\n" for name, digests in sorted(listing.items()) for value in digests]
    with writing(path):
        try:
            draft.write_text("".join(lines), encoding="utf-8", newline="\n")
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def files_to_check(digests: Digests, weights: Sequence[str]) -> list[str]:
    """The listed files to check when a model is loaded. Weights beside packed files are checked when they are read."""
    packed = any(digests.folder.glob(PACKED.format("*")))
    return [name for name in digests.names if not (packed and name in weights)]
