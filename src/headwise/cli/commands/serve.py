"""Example: headwise serve runs/ende runs/deen --languages en-de de-en"""

import argparse
from collections.abc import Mapping
from functools import partial

from headwise.cli.options import (
    TRANSLATION_MODEL,
    decode_options,
    decode_overrides,
    device_option,
    direction,
    file_option,
    host_option,
    memory_option,
    port_option,
    ray_option,
    whole_number,
)
from headwise.cli.rules import FlagRule, in_file, out_file
from headwise.documents.glossary.terms import Glossary
from headwise.documents.segment_memory import SegmentMemory
from headwise.errors import UserError
from headwise.models.load import load_translator
from headwise.serve.access import AccessRules, read_keys
from headwise.serve.batching import BatchSettings
from headwise.serve.cluster.serving import serve_replicas
from headwise.serve.connections import ConnectionLimits
from headwise.serve.documents import DocumentLimits
from headwise.serve.hosts import is_loopback
from headwise.serve.jobs import JobLimits
from headwise.serve.models import load_served_models
from headwise.serve.pair_files import read_glossaries, read_memories
from headwise.serve.parameters import RequestLimits
from headwise.serve.router import ModelRouter
from headwise.serve.routes import proxy_prefix
from headwise.serve.server import ServerSettings, serve
from headwise.serve.storage import StorageLimits
from headwise.text.language_codes import LanguagePair

UNSERVED = ("n_best", "sample", "temperature", "top_k", "top_p", "seed", "draft_length", "batch_tokens")
RULES = (
    FlagRule(("replicas",), lambda o: o.ray is None, "is for --ray: one process has one server"),
    FlagRule(("no_key",), lambda o: o.api_keys, "does not go with --api-keys, which requires a key"),
    FlagRule(("socket",), lambda o: o.ray is not None, "does not go with --ray, whose proxy has the address"),
    FlagRule(("url_prefix",), lambda o: o.ray is not None, "does not go with --ray, whose proxy has the addresses"),
    FlagRule(("suggestions",), lambda o: o.ray is not None, "does not go with --ray, whose replicas share no file"),
    FlagRule(
        ("max_connections", "max_client_connections"),
        lambda o: o.ray is not None,
        "does not go with --ray, whose proxy accepts connections",
    ),
)

COMMON = (
    *("--languages", "--host", "--port", "--api-keys", "--hosts", "--origins", "--compute", "--beam-size", "--idle"),
    "--device",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="+", help=TRANSLATION_MODEL)
    pairs = "language pairs, such as en-de, if the models do not name theirs; with several models, one pair each"
    parser.add_argument("--languages", nargs="+", type=direction, default=[], metavar="FROM-TO", help=pairs)
    memory_option(parser, "; with several language pairs, name the pair: NAME.en-de.po")
    glossary = "glossaries, as for translate, whose terms apply to all requests; with several language pairs, name "
    glossary += "the pair: NAME.en-de.tsv (default: none)"
    parser.add_argument(
        "--glossary", dest="glossaries", nargs="+", type=in_file, default=[], metavar="FILE", help=glossary
    )
    pivot = "language, such as en, through which pairs without a model of their own are translated (default: none)"
    parser.add_argument("--pivot", default="", metavar="LANGUAGE", help=pivot)
    host_option(parser)
    port_option(parser, 5000)
    socket = "path of a Unix socket to listen on, for a proxy on this machine, instead of --host and --port"
    parser.add_argument("--socket", default="", metavar="PATH", help=f"{socket} (default: none)")
    device_option(parser)
    group = parser.add_argument_group("several machines")
    ray_option(group, "serve from a Ray cluster, behind its proxy")
    replicas = "with --ray: servers that share the requests, each on a CPU or GPU (default: %(default)s)"
    group.add_argument("--replicas", type=whole_number(1), default=1, metavar="N", help=replicas)
    _access_options(parser)
    _limit_options(parser)
    decode_options(parser, without=UNSERVED)


def _prefix(text: str) -> str:
    path = text.strip("/")
    found = proxy_prefix(f"/{path}")
    if path and not found:
        raise argparse.ArgumentTypeError(f"{text}: write a path of letters, digits and hyphens, such as /mt")
    return found


def _access_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access")
    file_option(
        group, "--api-keys", "API keys, one per line, with an optional name; requests must then have one of them"
    )
    no_key = "accept requests from other computers without an API key (needed for such a --host without --api-keys)"
    group.add_argument("--no-key", action="store_true", help=no_key)
    names = "more host names that requests may use, such as a proxy's (default: the address alone)"
    group.add_argument("--hosts", nargs="+", default=[], metavar="NAME", help=names)
    prefix = "path in front of all addresses, such as /mt, behind a proxy (default: none; X-Forwarded-Prefix has "
    prefix += "precedence)"
    group.add_argument("--url-prefix", type=_prefix, default="", metavar="PATH", help=prefix)
    origins = "other sites whose pages may send requests, such as https://example.org; '*' allows all (default: none)"
    group.add_argument("--origins", nargs="+", default=[], metavar="SITE", help=origins)
    suggestions = "translation memory (.tmx), to which clients' suggested translations are appended (default: none)"
    group.add_argument("--suggestions", type=out_file, default="", metavar="FILE", help=suggestions)
    group.add_argument("--log-text", action="store_true", help="log the translated texts, too")


def _limit_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    for name, default, text in (
        ("max-body", 4 * 1024 * 1024, "bytes of a request"),
        ("max-characters", 100_000, "characters of a request, over all texts"),
        ("max-texts", 1000, "texts of a request"),
        ("max-terms", 1000, "terms of a request, in glossary and keep"),
        ("max-body-memory", 256 * 1024 * 1024, "bytes of all requests that are not answered yet"),
        ("max-documents", 4, "files that are translated at the same time; others wait"),
        ("document-memory", 512 * 1024 * 1024, "bytes of memory for reading and filling a file"),
        ("document-seconds", 20, "seconds of processor time for reading and filling the documents of a request"),
        ("max-key-jobs", 5, "document jobs of an API key that wait or run"),
        ("job-seconds", 3600, "seconds until a running document job ends"),
        ("max-stored", 1024**3, "bytes of all stored files: uploads of jobs, translated files, and reports"),
        ("max-connections", 1000, "open connections"),
        ("max-client-connections", 400, "open connections of an IP address; all clients of a proxy are one address"),
        ("max-seconds", 60, "seconds until a request is answered"),
        ("arrival-seconds", 30, "seconds to receive a request, and to wait for the next of a connection"),
        ("max-waiting", 5000, "queued sentences beyond which new requests are rejected"),
        ("drain", 30, "seconds that running requests have after SIGTERM"),
        ("batch-tokens", 4096, "source tokens times hypotheses per batch"),
    ):
        text += " (default: %(default)s)"
        group.add_argument(f"--{name}", type=whole_number(1), default=default, metavar="N", help=text)
    for name in ("requests", "characters"):
        text = f"{name} per hour of an API key or, without keys, of an IP address (default: no limit)"
        group.add_argument(f"--max-{name}-per-hour", type=whole_number(0), default=0, metavar="N", help=text)
    jobs = "document jobs that wait or run, beyond which new ones are rejected; 0: none (default: %(default)s)"
    group.add_argument("--max-jobs", type=whole_number(0), default=20, metavar="N", help=jobs)
    wait = "milliseconds that a sentence waits for others to share its batch (default: %(default)s)"
    group.add_argument("--wait", type=whole_number(0), default=2, metavar="N", help=wait)
    cache = "translated sentences that each model keeps in memory for requests with the same ones (default: none)"
    group.add_argument("--cache", type=whole_number(0), default=0, metavar="N", help=cache)
    idle = "unload a model after this many seconds without a request, until the next one (default: never)"
    group.add_argument("--idle", type=whole_number(0), default=0, metavar="N", help=idle)


def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    keys = read_keys(options.api_keys) if options.api_keys else {}
    if not (keys or options.no_key or is_loopback(options.host)):
        raise UserError(
            f"--host {options.host} lets other computers use the model: require keys with --api-keys FILE, or allow "
            "everyone with --no-key"
        )
    settings = decode_overrides(options)
    settings.pop("batch_tokens", None)
    load = partial(load_translator, device=options.device)
    models = load_served_models(options.models, options.languages, load, settings, not options.idle)
    router = ModelRouter(models, pivot=options.pivot)
    memories = read_memories(options.memory, list(router.by_pair))
    glossaries = read_glossaries(options.glossaries, [pair for model in models for pair in model.language_pairs])
    wanted = _server_settings(options, keys, memories, glossaries)
    if options.ray is None:
        return serve(models, wanted)
    serve_replicas(options.ray, models, options.device, not options.idle, wanted, options.replicas)


def _server_settings(
    options: argparse.Namespace,
    keys: Mapping[str, str],
    memories: Mapping[LanguagePair, SegmentMemory],
    glossaries: Mapping[LanguagePair, Glossary],
) -> ServerSettings:
    connections = ConnectionLimits(
        seconds=float(options.arrival_seconds),
        total=options.max_connections,
        per_client=options.max_client_connections,
    )
    batching = BatchSettings(
        options.wait / 1000, options.batch_tokens, options.max_waiting, float(options.idle), options.cache
    )
    names, origins = tuple(options.hosts), tuple(options.origins)
    access = AccessRules(options.host, names, origins, keys, options.api_keys, options.url_prefix)
    documents = DocumentLimits(
        files=options.max_documents, seconds=options.document_seconds, memory=options.document_memory
    )
    jobs = JobLimits(
        most=0 if options.replicas > 1 else options.max_jobs,  # a replica does not know the jobs of others
        per_key=options.max_key_jobs,
        running=max(1, options.max_documents // 2),  # the others are for requests
        seconds=float(options.job_seconds),
    )
    return ServerSettings(
        options.port,
        options.socket,
        access,
        _request_limits(options),
        connections,
        batching,
        documents,
        jobs,
        StorageLimits(bytes=options.max_stored),
        options.log_text,
        options.suggestions,
        options.drain,
        memories,
        glossaries,
        options.pivot,
    )


def _request_limits(options: argparse.Namespace) -> RequestLimits:
    return RequestLimits(
        body=options.max_body,
        body_memory=options.max_body_memory,
        characters=options.max_characters,
        texts=options.max_texts,
        terms=options.max_terms,
        seconds=float(options.max_seconds),
        body_seconds=float(options.arrival_seconds),
        requests_per_hour=options.max_requests_per_hour,
        characters_per_hour=options.max_characters_per_hour,
    )
