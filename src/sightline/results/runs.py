"""Runs, and which of them are one model trained with several seeds."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sightline.checkpoint.trained import RUN, read_run, settings_for
from sightline.config.settings import RunConfig
from sightline.errors import UserError
from sightline.training.lock import is_held

SEED = re.compile(r"[-_.]?(seed|s)?[-_.]?\d+$")  # how names of runs say it


@dataclass(frozen=True)
class Run:
    """The model directory of one run."""

    path: Path
    name: str
    config: RunConfig
    about: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Everything the run was made of but its seed."""
        tables = self.config.as_dict()
        del tables["train"]["seed"]
        corpus = self.about.get("corpus", {}).get("key")
        return json.dumps([tables, self.about.get("init"), corpus], sort_keys=True)


@dataclass(frozen=True)
class Group:
    """Runs that count as one system."""

    name: str
    runs: Sequence[Run]


def read_runs(paths: Sequence[str], tasks: Sequence[str] | None = None) -> list[Run]:
    """Runs by the names of their folders, or by their paths where those are the same.

    Args:
        tasks: what they were trained for; None = anything.

    Raises:
        UserError: one is no folder of a run, was trained for another task, or is named twice.
    """
    folders = [Path(path).resolve() for path in paths]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise UserError(f"{paths[number]}: is named twice")
    counts = Counter(folder.name for folder in folders)
    names = [folder.name if counts[folder.name] == 1 else path for path, folder in zip(paths, folders, strict=True)]
    return [Run(Path(path), name, *_settings(path, tasks)) for path, name in zip(paths, names, strict=True)]


def _settings(path: str, tasks: Sequence[str] | None) -> tuple[RunConfig, dict[str, Any]]:
    """Where any task will do, also those of a run whose model lies in a family's layout."""
    return settings_for(tasks, path) if tasks or not Path(path, RUN).is_file() else read_run(Path(path))


def without_training(runs: Sequence[Run], say: Callable[[str], None]) -> list[Run]:
    """Those that no process trains any more; `say` is told of the others in one line.

    Raises:
        UserError: none is left.
    """
    ended = [run for run in runs if not is_held(run.path)]
    names = ", ".join(run.name for run in runs if run not in ended)
    if not ended:
        raise UserError(f"{names}: still training, so there are no results yet; wait until the first run has ended")
    if names:
        say(f"left out, for they are still training: {names}")
    return ended


def group_runs(runs: Sequence[Run], patterns: Mapping[str, str]) -> list[Group]:
    """The systems, in the order of their first runs.

    Args:
        runs: as `read_runs` gives them.
        patterns: names of systems, and what the names of their runs look like (`tiny-*`). Other runs belong together
            where everything but the seed is equal.

    Raises:
        UserError: no run looks like a pattern.
    """
    for name, pattern in patterns.items():
        if not any(fnmatchcase(run.name, pattern) for run in runs):
            raise UserError(f"--group {name}={pattern}: no run has such a name: {', '.join(run.name for run in runs)}")
    together: dict[tuple[bool, str], list[Run]] = {}
    for run in runs:
        chosen = next((name for name, pattern in patterns.items() if fnmatchcase(run.name, pattern)), None)
        together.setdefault((chosen is not None, chosen or run.kind), []).append(run)
    groups: dict[str, Group] = {}
    for (is_named, key), members in together.items():
        name = key if is_named else _name_of(members)
        name = members[0].name if name in groups else name
        groups[name] = Group(name, members)
    return list(groups.values())


def _name_of(runs: Sequence[Run]) -> str:
    """What the names of several runs are without their seeds; a run alone has its own name."""
    stems = {SEED.sub("", run.name) for run in runs}
    return stems.pop() or runs[0].name if len(runs) > 1 and len(stems) == 1 else runs[0].name
