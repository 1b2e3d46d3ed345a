"""`sightline study`."""

import argparse
from typing import Any

from sightline.cli.options import whole


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("study", help="measure the claims made for attention and write a report")
    parser.add_argument("--out", default="runs/study", metavar="DIR", help="folder to write (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="everything small, in some minutes on two CPU cores")
    only = "measure these claims alone, for example sequential or order"
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help=only)
    seeds = "repeat each measurement so often (default: what each claim needs)"
    parser.add_argument("--seeds", type=whole(1), default=0, metavar="N", help=seeds)
    data = "folder of the corpora multi30k, tatoeba and lm, each used where it is there"
    parser.add_argument("--data", metavar="DIR", help=data)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.set_defaults(run=run_study)


def run_study(options: argparse.Namespace) -> None:
    """Measure what is not measured yet, and say where the report is."""
    from sightline.study.run import request_of, study

    for line in study(
        request_of(options.out, options.quick, options.only, options.seeds, options.data, options.device)
    ):
        print(line)
