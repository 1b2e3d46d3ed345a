"""`sightline sweep`."""

import argparse
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from sightline.cli.files import output
from sightline.cli.options import device_option
from sightline.config.tasks import TASKS
from sightline.errors import UserError

TABLE, CURVES = "results.md", "curves.svg"


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("sweep", help="train with several values of settings on Ray, and compare the runs")
    parser.add_argument("recipe", metavar="RECIPE", help="as of `sightline train`")
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help="as of `sightline train`")
    parser.add_argument("--valid", nargs="+", default=[], metavar="FILE", help="as of `sightline train`")
    parser.add_argument("--task", choices=TASKS, default="", help="what to train for (default: the recipe's)")
    out = f"folder to write: a run for each combination of values, {TABLE} and {CURVES}"
    parser.add_argument("--out", required=True, metavar="DIR", help=out)
    setting = "values of a setting, such as train.learning_rate=1e-3,3e-3; of several settings every combination"
    parser.add_argument("--set", nargs="+", action="extend", required=True, metavar="KEY=VALUE,VALUE", help=setting)
    parser.add_argument("--init", default="", metavar="MODEL", help="as of `sightline train`")
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help="as of `sightline train`")
    to_the_end = "train every run to its end; without it those that are behind in validation loss are stopped (ASHA)"
    parser.add_argument("--to-the-end", action="store_true", help=to_the_end)
    parser.add_argument("--resume", action="store_true", help="go on with the sweep in --out: the same command again")
    ray = "cluster of Ray's to train on, a processor or GPU a run (default: one of this machine's own)"
    parser.add_argument("--ray", default="", metavar="ADDRESS", help=ray)
    device_option(parser)
    parser.set_defaults(run=run_sweep)


def run_sweep(options: argparse.Namespace) -> None:
    """Train, compare, say which is best."""
    from sightline.checkpoint.hub import folder_of
    from sightline.cluster.sweep import Sweep, sweep, trials_of
    from sightline.tasks.run import TrainRequest, run_config

    out, trials = Path(options.out).absolute(), trials_of(options.set)
    if out.exists() and any(out.iterdir()) and not options.resume:
        raise UserError(f"--out {options.out}: is not empty; add --resume to go on with its sweep, or name another")
    init = str(folder_of(options.init)) if options.init else ""
    asked = TrainRequest(options.recipe, options.train, options.valid, options.out, init=init, task=options.task)
    configs = [run_config(replace(asked, settings=settings)) for settings in trials.values()]
    out.mkdir(parents=True, exist_ok=True)
    arguments = {name: [*_arguments(options), "--set", "train.threads=1", *own] for name, own in trials.items()}
    train = configs[0].train
    wanted = Sweep(
        arguments,
        out,
        max(config.train.max_steps for config in configs),
        min(config.train.validate_every for config in configs),
        options.device == "cuda",
        options.to_the_end,
    )
    print(f"sightline: {len(trials)} runs of {train.max_steps:,} updates at most, into {out}", file=sys.stderr)
    failed = sweep(wanted, options.ray)
    _compare([name for name in trials if name not in failed], out)
    if failed:
        raise UserError(f"{', '.join(failed)}: did not train; what was said is in {out / failed[0]}.log")


def _arguments(options: argparse.Namespace) -> list[str]:
    """Of `sightline train`, without the settings and the folder."""
    recipe = str(Path(options.recipe).absolute()) if options.recipe.endswith(".toml") else options.recipe
    files = {"--train": options.train, "--valid": options.valid}
    said = [word for flag, paths in files.items() if paths for word in (flag, *map(_anywhere, paths))]
    said += ["--task", options.task] if options.task else []
    said += ["--init", _anywhere(options.init)] if options.init else []
    said += ["--special", *options.special] if options.special else []
    return ["--recipe", recipe, *said, "--device", options.device]


def _anywhere(path: str) -> str:
    """A file of this folder as a process in another folder finds it; an amount such as 1% stays."""
    return str(Path(path).absolute()) if Path(path).exists() else path


def _compare(names: list[str], out: Path) -> None:
    from sightline.report.figures import render
    from sightline.results import formats
    from sightline.results.curves import learning_curves, validation_table
    from sightline.results.runs import group_runs, read_runs

    if not names:
        return
    groups = group_runs(read_runs([str(out / name) for name in names]), {})
    table = formats.FORMATS["markdown"](validation_table(groups))
    with output(str(out / TABLE)) as file:
        file.write(table)
    with output(str(out / CURVES)) as file:
        file.buffer.write(render(learning_curves(groups, "updates"), "svg"))
    print(table, end="")


def run_trial() -> None:
    """`sightline train`, which ends, and keeps what it has, when whoever started it is gone."""
    from sightline.cli import main

    def watch() -> None:
        os.read(0, 1)  # nobody writes, so this returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()
    sys.exit(main(["train", *sys.argv[1:]]))
