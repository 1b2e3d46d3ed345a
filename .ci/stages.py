"""Run the stages of continuous integration, and skip those whose inputs have not changed since they last passed.

    python3 .ci/stages.py [--full | --hashes] [STAGE ...]

`stages.toml` names the stages in order: the command of each, the paths that its result depends on, if it may be
skipped, and programs of which it needs one. The hash of these files, of `common` and of the command is recorded in
`passed.json` when the stage passes, and removed when it fails. Commit that file with your change: a stage whose
recorded hash is still right is skipped. `--full` skips nothing; `--hashes` prints the hashes and runs nothing. Needs
only the standard library.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Stages = dict[str, dict[str, Any]]


def read_stages(path: Path) -> tuple[Stages, list[str]]:
    """The stages, and the paths that all of them depend on. An unknown or a missing key is an error."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    stages: Stages = content.pop("stage")
    common: list[str] = content.pop("common")
    for name, stage in stages.items():
        if not {"run"} <= stage.keys() <= {"run", "paths", "needs"}:
            raise ValueError(f"{path}: stage {name} has the keys {sorted(stage)}; expected run (paths, needs)")
    if content:
        raise ValueError(f"{path}: unknown keys {sorted(content)}")
    return stages, common


def present_hash(root: Path, stage: dict[str, Any], common: list[str]) -> str | None:
    """The hash of what a stage depends on; None for one that always runs."""
    return hash_of(root, stage["run"], [*common, *stage["paths"]]) if "paths" in stage else None


def can_run(command: str) -> bool:
    """Whether a program is installed and starts."""
    try:
        return subprocess.run([command, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def hash_of(root: Path, command: str, paths: list[str]) -> str:
    """The hash of a command and of the files in its paths: tracked ones, and others that git does not ignore.

    Raises `ValueError` for a path without any file, which would never start its stage.
    """
    digest = hashlib.sha256(f"{command}\n".encode())
    for path in sorted(set(paths)):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path],
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout.split(b"\0")
        files = [file for name in sorted(set(listed)) if name and (file := root / name.decode()).is_file()]
        if not files:
            raise ValueError(f"stages.toml: there is no file in {path}")
        for file in files:
            executable = "x" if file.stat().st_mode & 0o100 else "-"
            content = hashlib.sha256(_without_comments(file)).hexdigest()
            digest.update(f"{file.relative_to(root)} {executable} {content}\n".encode())
    return digest.hexdigest()


def _without_comments(file: Path) -> bytes:
    """What is in a file; of the Makefile without its comments, which belong to every stage otherwise."""
    content = file.read_bytes()
    if file.name != "Makefile":
        return content
    return b"\n".join(line for line in content.split(b"\n") if not line.startswith(b"#"))


class Records:
    """The hash with which each stage last passed, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hashes: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def set(self, stage: str, value: str | None) -> None:
        """Record a stage that has passed, or forget one (None)."""
        self.hashes.pop(stage, None)
        if value:
            self.hashes[stage] = value
        lines = json.dumps(dict(sorted(self.hashes.items())), indent=2)
        self.path.write_text(lines + "\n", encoding="utf-8")


def run(root: Path, here: Path, full: bool, wanted: list[str]) -> int:
    """Run the stages; returns how many failed."""
    stages, common = read_stages(here / "stages.toml")
    if unknown := set(wanted) - stages.keys():
        raise ValueError(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(stages)}")
    records, failed = Records(here / "passed.json"), []
    for name in [name for name in stages if not wanted or name in wanted]:
        command, before = stages[name]["run"], present_hash(root, stages[name], common)
        if before and not full and records.hashes.get(name) == before:
            print(f"--- {name}: skipped, it passed with these files", flush=True)
            continue
        if "needs" in stages[name] and not any(map(can_run, stages[name]["needs"])):
            print(f"--- {name}: cannot run here, it needs {' or '.join(stages[name]['needs'])}", flush=True)
            continue
        print(f"--- {name}: {command}", flush=True)
        begin = time.monotonic()
        passed = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=root, check=False).returncode == 0
        print(f"--- {name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - begin:.0f} s", flush=True)
        if not passed:
            failed.append(name)
        if before:
            records.set(name, before if passed and present_hash(root, stages[name], common) == before else None)
    if failed:
        print(f"--- failed: {', '.join(failed)}", flush=True)
    return len(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="skip nothing")
    parser.add_argument("--hashes", action="store_true", help="print the hashes of the files, and run nothing")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="only these")
    options = parser.parse_args()
    try:
        if options.hashes:
            stages, common = read_stages(HERE / "stages.toml")
            for name, stage in stages.items():
                if found := present_hash(HERE.parent, stage, common):
                    print(name, found)
            return
        sys.exit(1 if run(HERE.parent, HERE, options.full, options.stages) else 0)
    except ValueError as error:
        sys.exit(f"stages.py: {error}")


if __name__ == "__main__":
    main()
