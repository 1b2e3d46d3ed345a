"""Example: headwise explore runs/ende --port 8000"""

import argparse
import sys
from pathlib import Path

from headwise.cli.loading import model_of
from headwise.cli.options import ANY_MODEL, host_option, language_options, model_option, port_option
from headwise.serve.explorer.answers import ExplorerModel, PageContents
from headwise.serve.explorer.server import ExplorerServer
from headwise.view.page.contents import page_contents
from headwise.view.page.walks import one_walk


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, f"{ANY_MODEL}; one with attention")
    parser.add_argument("--against", metavar="MODEL", help="second model to compare MODEL with")
    port_option(parser, 8000)
    host_option(parser)
    language_options(parser)


def run(options: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    models = []
    for path in (options.model, *([options.against] if options.against else [])):
        model = model_of(options, path)
        models.append(ExplorerModel(Path(path).name, model, contents()))
    with ExplorerServer(models, options.host, options.port) as server:
        print(f"{server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
        server.serve_forever()


def contents() -> PageContents:
    """What the page shows."""
    from headwise.pytorch.inspect.page_models import model_contents

    return PageContents(model_contents, page_contents, one_walk)
