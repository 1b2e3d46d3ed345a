"""Example: headwise sweep small --train train.tsv --valid valid.tsv --set model.dropout=0.1,0.3 --out runs/sweep"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from headwise.cli.files import output
from headwise.cli.options import device_option, files_option, ray_option, task_option
from headwise.errors import UserError
from headwise.evaluate.pages.figures import render_figure
from headwise.lab.results.curves import learning_curves, validation_table
from headwise.lab.results.formats import FORMATS
from headwise.lab.results.runs import group_runs, read_runs
from headwise.runtime.checkpoint.hub import folder_of
from headwise.serve.cluster.sweep import Sweep, sweep, trials_from
from headwise.text.files.sources import count_of

TABLE, CURVES = "results.md", "curves.svg"


def add_options(parser: argparse.ArgumentParser) -> None:
    as_train = "as for `headwise train`"
    parser.add_argument("recipe", metavar="RECIPE", help=f"recipe, {as_train}")
    files_option(parser, "--train", f"training files, {as_train}", required=True)
    files_option(parser, "--valid", f"validation files, {as_train}")
    task_option(parser)
    out = f"folder to write: a run for each combination of values, {TABLE} and {CURVES}"
    parser.add_argument("--out", required=True, metavar="DIR", help=out)
    setting = "values to try for a setting: train.learning_rate=1e-3,3e-3; with several settings, every combination"
    parser.add_argument("--set", nargs="+", action="extend", required=True, metavar="KEY=VALUE,VALUE", help=setting)
    parser.add_argument("--init", default="", metavar="MODEL", help=f"model to start from, {as_train}")
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help=f"special tokens, {as_train}")
    to_the_end = "complete all runs (default: runs with a worse validation loss are stopped early, by ASHA)"
    parser.add_argument("--to-the-end", action="store_true", help=to_the_end)
    parser.add_argument("--resume", action="store_true", help="continue the sweep in --out, with the same command")
    ray_option(parser, "Ray cluster to train on, with a CPU or GPU per run", default="")
    device_option(parser)


def run(options: argparse.Namespace) -> None:
    """Train all combinations and compare them."""
    from headwise.pytorch.tasks.run import TrainRequest, run_config

    out, trials = Path(options.out).absolute(), trials_from(options.set)
    if out.exists() and any(out.iterdir()) and not options.resume:
        raise UserError(f"--out {options.out}: is not empty; add --resume to continue its sweep, or name another")
    init = str(folder_of(options.init)) if options.init else ""
    request = TrainRequest(options.recipe, options.train, options.valid, options.out, init=init, task=options.task)
    configs = [run_config(replace(request, settings=settings)) for settings in trials.values()]
    if any(config.train.minutes for config in configs):
        raise UserError("train.minutes: a sweep compares runs after equally many updates; set train.max_steps instead")
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
    print(
        f"headwise: {count_of(len(trials), 'run')} of {count_of(train.max_steps, 'update')} at most, into {out}",
        file=sys.stderr,
    )
    failed = sweep(wanted, options.ray)
    _compare([name for name in trials if name not in failed], out)
    if failed:
        raise UserError(f"{', '.join(failed)}: did not train; the output is in {out / failed[0]}.log")


def _arguments(options: argparse.Namespace) -> list[str]:
    """The arguments of `headwise train`, except settings and folder."""
    recipe = str(Path(options.recipe).absolute()) if options.recipe.endswith(".toml") else options.recipe
    files = {"--train": options.train, "--valid": options.valid}
    given = [word for flag, paths in files.items() if paths for word in (flag, *map(_absolute, paths))]
    given += ["--task", options.task] if options.task else []
    given += ["--init", _absolute(options.init)] if options.init else []
    given += ["--special", *options.special] if options.special else []
    return ["--recipe", recipe, *given, "--device", options.device]


def _absolute(path: str) -> str:
    """A file of this folder for a process in another folder; an amount such as 1% stays."""
    return str(Path(path).absolute()) if Path(path).exists() else path


def _compare(names: list[str], out: Path) -> None:
    if not names:
        return
    groups = group_runs(read_runs([str(out / name) for name in names]), {})
    table = FORMATS["markdown"](validation_table(groups))
    print(table, end="")
    with output(str(out / TABLE), "--out") as file:
        file.write(table)
    with output(str(out / CURVES), "--out") as file:
        file.buffer.write(render_figure(learning_curves(groups, "updates"), "svg"))
