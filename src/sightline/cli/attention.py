"""`sightline align` and `sightline prune`: putting attention to use."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, output
from sightline.cli.options import (
    EITHER,
    TRANSLATES,
    language_options,
    load_as_asked,
    load_model,
    model_options,
    output_option,
)
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.decode.translator import Translation


def add(commands: Any) -> None:
    """Register the commands."""
    _align_options(commands)
    _prune_options(commands)


def _align_options(commands: Any) -> None:
    parser = commands.add_parser("align", help="which source word each target word of given translations comes from")
    model_options(parser, what=TRANSLATES)
    parser.add_argument("--source", type=in_file, required=True, metavar="FILE", help="texts that were translated")
    parser.add_argument("--target", type=in_file, required=True, metavar="FILE", help="their translations")
    output_option(parser, "file of links (i-j) to write")
    reverse = "a model of the other direction; links of both are joined (grow-diag)"
    parser.add_argument("--reverse", metavar="MODEL", help=reverse)
    choose = "links of these pairs, people's or another aligner's: find the attention that comes closest, and keep "
    choose += "that choice in the model directory"
    parser.add_argument("--choose", type=in_file, metavar="LINKS", help=choose)
    language_options(parser)
    parser.set_defaults(run=run_align)


def run_align(options: argparse.Namespace) -> None:
    """Links of each pair, a line each; or the choice of the attention that they are read from."""
    from sightline.cli.parallel_texts import parallel_texts, source_text, target_text
    from sightline.data.links import format_links

    sources, targets = parallel_texts([source_text(options.source), target_text(options.target, "--target")])
    model = load_model(options)
    if options.choose:
        _choose_head(model, sources, targets, options.choose)
        return
    reverse = load_model(options, options.reverse) if options.reverse else None
    with output(options.output) as file:
        file.writelines(f"{format_links(links)}\n" for links in model.align(sources, targets, reverse=reverse))


def with_links(
    model: Any, lines: Iterable[str], translations: Iterable["Translation"], chunk_lines: int
) -> Iterator[tuple["Translation", str]]:
    """Each translation and its word links; a line that was translated in parts has none."""
    from sightline.data.links import format_links

    pairs = zip(lines, translations, strict=True)
    while chunk := list(islice(pairs, chunk_lines)):
        whole = [(line, translation.text) if translation.parts == 1 else ("", "") for line, translation in chunk]
        sources, targets = zip(*whole, strict=True)
        for (_, translation), links in zip(chunk, model.align(sources, targets), strict=True):
            yield translation, format_links(links)


def _choose_head(model: Any, sources: list[str], targets: list[str], path: str) -> None:
    from sightline.checkpoint.beside import write_alignment
    from sightline.data.links import check_links, read_gold

    gold = read_gold(path)
    check_links(path, [pair.possible for pair in gold], sources, targets)
    ranked = model.rank_heads(sources, targets, gold)
    for head, score in list(ranked.items())[:5]:
        print(f"{head!s:<40} {score.render()}")
    best = next(iter(ranked))
    print(f"{write_alignment(model.path, best.as_json())}: {best}", file=sys.stderr)


def _prune_options(commands: Any) -> None:
    parser = commands.add_parser("prune", help="write a model without the attention heads that matter least")
    model_options(parser, what=f"{EITHER}, of a network with attention")
    heads = "how many heads to leave out: a share of all, such as 30%%, or a number; every attention keeps one"
    parser.add_argument("--heads", required=True, metavar="SHARE", help=heads)
    source = "what to judge by what matters: a file of texts, or files of pictures, sounds or series, or of texts with "
    source += "labels for a model of --task classify"
    parser.add_argument("--source", type=in_file, nargs="+", required=True, metavar="FILE", help=source)
    target = "what belongs to it, a line each: translations; labels of pictures and texts; transcripts"
    parser.add_argument("--target", type=in_file, metavar="FILE", help=target)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="model directory to write")
    language_options(parser)
    parser.set_defaults(run=run_prune)


def run_prune(options: argparse.Namespace) -> None:
    """Measure the heads, leave out the least important, say which."""
    from sightline.inspect.heads import all_heads, listed
    from sightline.inspect.importance import least_important
    from sightline.models.pruning import SILENT, heads_can_go, parse_count

    model: Any = load_as_asked(options)
    measure = model.head_importance  # what has no heads says so here
    count = parse_count(options.heads, len(all_heads(model.network)))
    removed = listed(least_important(measure(*_measured_on(options, model.reads)), count))
    folder = model.prune(removed, options.output)
    said = f"{folder}: without {count} heads, {dict(removed)}"
    print(said if heads_can_go(model.config) else f"{said}; {SILENT}", file=sys.stderr)


def _measured_on(options: argparse.Namespace, reads: str) -> list[list[str]]:
    """What `head_importance` takes of a model that reads that; `UserError` for files of another kind."""
    from sightline.cli.parallel_texts import parallel_texts, source_text, target_text

    targets = [target_text(options.target, "--target")] if options.target else []
    if reads in ("labelled", "series"):
        if options.target:
            raise UserError(f"--target: the files of --source say it all; this model reads files of its own ({reads})")
        return [options.source]
    if reads in ("picture", "sound"):
        return [options.source, *parallel_texts(targets)]
    if len(options.source) > 1 or (reads == "pairs" and not options.target):
        raise UserError("one file of texts is --source, and for a model that translates --target has the translations")
    return parallel_texts([source_text(options.source[0]), *targets])
