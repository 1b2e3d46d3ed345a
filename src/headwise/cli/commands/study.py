"""Example: headwise study --quick --out runs/study"""

import argparse

from headwise.cli.options import device_option, file_option, whole_number


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="runs/study", metavar="DIR", help="folder to write (default: %(default)s)")
    quick = "try every experiment in a minute or two, to see that it runs; gives no verdicts"
    parser.add_argument("--quick", action="store_true", help=quick)
    only = "claims to measure, such as sequential or order (default: all)"
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help=only)
    jobs = "processes that measure at the same time, one core each; times are measured alone (default: %(default)s)"
    parser.add_argument("--jobs", type=whole_number(1), default=1, metavar="N", help=jobs)
    report = "measure nothing, and report what has been measured in --out"
    parser.add_argument("--report-only", action="store_true", help=report)
    file_option(parser, "--measured", "study.json of an earlier study, whose measurements are not repeated")
    data = "folder that may have the corpora multi30k and lm (default: none)"
    parser.add_argument("--data", metavar="DIR", help=data)
    device_option(parser)


def run(options: argparse.Namespace) -> None:
    """Run the experiments that have no results yet, and print the path of the report."""
    from headwise.lab.study.run import request_of, study

    o = options
    request = request_of(o.out, o.quick, o.only, o.data, o.device, o.jobs, o.report_only, o.measured)
    for line in study(request):
        print(line)
