"""`sightline serve`."""

import argparse
from typing import Any

from sightline.cli.files import in_file
from sightline.cli.options import TRANSLATES, decode_options, decode_overrides, device_option, direction, whole

UNSERVED = ("n_best", "sample", "temperature", "top_k", "top_p", "seed", "draft_length", "batch_tokens")


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "serve", help="answer over HTTP: LibreTranslate's API, our own, and a page to translate in"
    )
    parser.add_argument("models", metavar="MODEL", nargs="+", help=TRANSLATES)
    pairs = "languages that a model translates, where its folder does not say so: en-de; of several models one each"
    parser.add_argument("--languages", nargs="+", type=direction, default=[], metavar="FROM-TO", help=pairs)
    host = "address to answer at; anybody who reaches another one than this computer's own may use the models "
    parser.add_argument("--host", default="127.0.0.1", help=host + "(default: %(default)s)")
    parser.add_argument("--port", type=whole(0), default=5000, help="0 is any that is free (default: %(default)s)")
    device_option(parser)
    ray = "answer by replicas on this cluster of Ray's, behind its proxy (default: one of this machine's own)"
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help=ray)
    replicas = "with --ray: servers that share the requests, a processor or GPU each (default: %(default)s)"
    parser.add_argument("--replicas", type=whole(1), default=1, metavar="N", help=replicas)
    _who(parser)
    _how_much(parser)
    decode_options(parser, without=UNSERVED)
    parser.set_defaults(run=run_serve)


def _who(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who may ask")
    keys = "a key a line, one of which every request to translate must have"
    group.add_argument("--api-keys", type=in_file, default="", metavar="FILE", help=keys)
    names = "names that requests may be for beside the address, as those of a proxy"
    group.add_argument("--hosts", nargs="+", default=[], metavar="NAME", help=names)
    origins = "other sites whose pages may ask, such as https://example.org (default: none)"
    group.add_argument("--origins", nargs="+", default=[], metavar="SITE", help=origins)
    group.add_argument("--log-text", action="store_true", help="write what is translated into the log, too")


def _how_much(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how much")
    for name, default, text in (
        ("max-body", 4 * 1024 * 1024, "bytes of a request"),
        ("max-characters", 100_000, "of all texts of a request"),
        ("max-texts", 1000, "in one list"),
        ("max-terms", 1000, "in a request's glossary, and in what it keeps"),
        ("max-seconds", 60, "for an answer"),
        ("arrival-seconds", 30, "for a request to arrive, and between two of a connection"),
        ("max-waiting", 5000, "sentences in line, before others are told to come back later"),
        ("drain", 30, "seconds that requests may go on for after SIGTERM"),
        ("batch-tokens", 4096, "pieces of a batch times hypotheses, roughly"),
    ):
        text += " (default: %(default)s)"
        group.add_argument(f"--{name}", type=whole(1), default=default, metavar="N", help=text)
    wait = "milliseconds that a first sentence waits for others to be translated with (default: %(default)s)"
    group.add_argument("--wait", type=whole(0), default=2, metavar="N", help=wait)
    idle = "give up a model after so many seconds without a request, until the next (default: never)"
    group.add_argument("--idle", type=whole(0), default=0, metavar="N", help=idle)


def run_serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    from sightline.models.load import load_translator
    from sightline.serve.asked import Caps
    from sightline.serve.batching import Pace
    from sightline.serve.gate import Neighbours, read_keys
    from sightline.serve.run import Wanted, serve
    from sightline.serve.served import served

    keys = read_keys(options.api_keys) if options.api_keys else ()
    settings = decode_overrides(options)
    settings.pop("batch_tokens", None)
    models = served(
        options.models,
        options.languages,
        lambda path: load_translator(path, options.device),
        settings,
        not options.idle,
    )
    names, origins = tuple(options.hosts), tuple(options.origins)
    caps = Caps(
        body=options.max_body,
        characters=options.max_characters,
        texts=options.max_texts,
        terms=options.max_terms,
        seconds=float(options.max_seconds),
        body_seconds=float(options.arrival_seconds),
    )
    pace = Pace(options.wait / 1000, options.batch_tokens, options.max_waiting, float(options.idle))
    neighbours = Neighbours(options.host, names, origins, keys)
    wanted = Wanted(options.port, neighbours, caps, pace, options.log_text, options.drain)
    if options.ray is None:
        return serve(models, wanted)
    from sightline.cluster.serving import serve_replicas

    serve_replicas(options.ray, models, options.device, not options.idle, wanted, options.replicas)
