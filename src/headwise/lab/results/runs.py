"""Runs, and groups of runs that differ in the seed only."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from headwise.config.settings import RunConfig, meaningful
from headwise.errors import UserError
from headwise.lock import is_held
from headwise.runtime.checkpoint.trained import RUN, read_run, settings_for

SEED = re.compile(r"[-_.]?(seed|s)?[-_.]?\d+$")  # in names of runs


@dataclass(frozen=True)
class Run:
    """The model folder of one run."""

    path: Path
    name: str
    config: RunConfig
    about: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """All settings and data of the run, except the seed."""
        tables = meaningful(self.config)
        del tables["train"]["seed"]
        corpus = self.about.get("corpus", {}).get("key")
        return json.dumps([tables, self.about.get("init"), corpus], sort_keys=True)


@dataclass(frozen=True)
class Group:
    """Runs of one system."""

    name: str
    runs: Sequence[Run]


def read_runs(paths: Sequence[str], tasks: Sequence[str] | None = None) -> list[Run]:
    """Runs named by their folders, or by their paths if folder names repeat.

    Args:
        tasks: tasks that the runs may have been trained for; None = all.

    Raises:
        UserError: a folder is not a run, was trained for another task, or is named twice.
    """
    folders = [Path(path).resolve() for path in paths]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise UserError(f"{paths[number]}: is named twice")
    counts = Counter(folder.name for folder in folders)
    names = [folder.name if counts[folder.name] == 1 else path for path, folder in zip(paths, folders, strict=True)]
    return [Run(Path(path), name, *_settings(path, tasks)) for path, name in zip(paths, names, strict=True)]


def _settings(path: str, tasks: Sequence[str] | None) -> tuple[RunConfig, dict[str, Any]]:
    """The settings; if all tasks are allowed, also of a run whose model has a Hugging Face layout."""
    return settings_for(tasks, path) if tasks or not Path(path, RUN).is_file() else read_run(Path(path))


def without_training(runs: Sequence[Run], say: Callable[[str], None]) -> list[Run]:
    """The runs that have ended; the others are reported to `say` in one line.

    Raises:
        UserError: none has ended.
    """
    ended = [run for run in runs if not is_held(run.path)]
    names = ", ".join(run.name for run in runs if run not in ended)
    if not ended:
        raise UserError(f"{names}: still training, so there are no results yet; wait until the first run has ended")
    if names:
        say(f"left out because they are still training: {names}")
    return ended


def group_runs(runs: Sequence[Run], patterns: Mapping[str, str]) -> list[Group]:
    """The systems, in the order of their first runs.

    Args:
        runs: as returned by `read_runs`.
        patterns: names of systems, and patterns of their runs' names (`tiny-*`). Other runs are grouped if they differ
            in the seed only.

    Raises:
        UserError: no run matches a pattern.
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


# Settings of [train] that decide no result, or only which checkpoint is kept.
IRRELEVANT = ("seed", "threads", "timeout", "log_every", "validate_every", "checkpoint_every", "keep_last", "shard")


def other_differences(groups: Sequence[Group]) -> list[str]:
    """The settings and data, with their values, in which runs differ besides what is compared.

    What is compared is the network, or otherwise the only setting that differs. Settings of search are not listed: the
    table names them.
    """
    values: dict[str, dict[str, None]] = {}
    for run in (run for group in groups for run in group.runs):
        for name, value in _facts(run).items():
            values.setdefault(name, {})[str(value)] = None
    different = {name: ", ".join(shown) for name, shown in values.items() if len(shown) > 1}
    networks_differ = different.pop("network", None)
    listed = [f"{name} ({shown})" if "." in name else name for name, shown in different.items()]
    return listed if networks_differ or len(listed) > 1 else []


def _facts(run: Run) -> dict[str, Any]:
    """What may decide the result of a run, except the seed."""
    tables = meaningful(run.config)
    network = {name: value for name, value in tables["model"].items() if name not in ("vocab_size", "pad_id")}
    settings = {f"{part}.{name}": value for part in ("data", "train") for name, value in tables[part].items()}
    settings = {name: value for name, value in settings.items() if name.removeprefix("train.") not in IRRELEVANT}
    corpus = (run.about.get("corpus") or {}).get("key")
    return {"network": network, **settings, "initial model": run.about.get("init"), "training data": corpus}


def _name_of(runs: Sequence[Run]) -> str:
    """The common name of several runs without their seeds; the name of a single run."""
    stems = {SEED.sub("", run.name) for run in runs}
    return stems.pop() or runs[0].name if len(runs) > 1 and len(stems) == 1 else runs[0].name
