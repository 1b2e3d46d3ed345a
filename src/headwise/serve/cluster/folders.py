"""Model folders on the machines of a cluster: every machine loads the files that the command was started with.

A machine whose folder at the same path has these files loads them there. Any other one copies them in parts from the
machine of the command, once, into its temporary folder. See `headwise.serve.cluster.actors` for machines that cannot
run the model.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headwise.errors import UserError, first_line, writing
from headwise.lock import exclusive
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.layout import adapters_in
from headwise.runtime.checkpoint.manifest import Digests, file_digest
from headwise.runtime.checkpoint.modules import module_files
from headwise.text.prepared.cache import draft_folder

LOGS = (".jsonl", ".log", ".svg")  # endings of files that do not change what a model does
PART = 32 << 20  # bytes in memory at once, on both machines


@dataclass(frozen=True)
class ClusterFolder:
    """A model folder as the command found it."""

    path: str
    node: str  # id of the machine that has it
    files: tuple[tuple[str, int, str], ...]  # name, size in bytes and SHA-256; none for adapters, which name a folder

    @property
    def digest(self) -> str:
        """A digest of names and contents."""
        return sha256(repr(self.files).encode()).hexdigest()[:32]

    def on_this_machine(self) -> str:
        """The path from which a worker loads these files.

        Raises:
            UserError: this machine has other files or none, and copying them failed.
        """
        if not self.files or self._is_in(Path(self.path)):
            return self.path
        copies = _copies()
        copy = copies / self.digest
        with writing(copy):
            copies.mkdir(mode=0o700, exist_ok=True)
            if copies.stat().st_uid != os.getuid():
                raise UserError(f"{copies}: belongs to another user; delete it, or set TMPDIR on this machine")
            lock = copies / f"{self.digest}.lock"
            lock.touch()
            with exclusive(lock):  # for the other workers of this machine
                if not self._is_in(copy):
                    shutil.rmtree(copy, ignore_errors=True)
                    with draft_folder(copy, self._is_in) as draft:
                        self._receive(draft)
        return str(copy)

    def _is_in(self, folder: Path) -> bool:
        """Whether the folder has these files; listed digests are checked when the model is loaded."""
        paths = [(folder / name, size) for name, size, _ in self.files]
        if not all(path.is_file() and path.stat().st_size == size for path, size in paths):
            return False
        digests = Digests(folder)
        return all(digests.digest_of(name) == digest for name, _, digest in self.files)

    def _receive(self, draft: Path) -> None:
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(self.node, soft=False)
        read = ray.remote(_read_part).options(num_cpus=0, scheduling_strategy=there)
        for name, size, digest in self.files:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            with (draft / name).open("wb") as file:
                for start in range(0, size, PART):
                    try:
                        file.write(ray.get(read.remote(f"{self.path}/{name}", start)))
                    except RayError as error:
                        why = first_line(getattr(error, "cause", error))
                        raise UserError(f"{self.path}: cannot be copied to this machine ({why})") from None
            if file_digest(draft / name) != digest:
                raise UserError(f"{self.path}/{name}: has changed since the command was started; repeat the command")


def cluster_folder(path: str | Path, node: str) -> ClusterFolder:
    """The folder of a model on this machine, whose id in the cluster is `node`."""
    path = folder_of(path).absolute()
    if adapters_in(path):
        return ClusterFolder(str(path), node, ())
    beside = (file.name for file in path.iterdir() if file.is_file())
    own = {name for name in beside if not (name.startswith(".") or name.endswith(LOGS))}
    digests = Digests(path)
    names = sorted(own | {file.as_posix() for file in module_files(path)})
    files = [(name, (path / name).stat().st_size, digests.digest_of(name)) for name in names]
    return ClusterFolder(str(path), node, tuple(files))


def _copies() -> Path:
    return Path(tempfile.gettempdir()) / f"headwise-models-{os.getuid()}"


def _read_part(path: str, start: int) -> bytes:
    """On the machine of the command."""
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read(PART)
