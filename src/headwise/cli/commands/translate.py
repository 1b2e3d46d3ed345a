"""Example: headwise translate runs/ende input.txt -o output.txt"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import islice, tee
from typing import Any

from headwise.cli.files import arrives, arriving, lines_of, not_too_long, output, with_progress_bar
from headwise.cli.loading import translating_model
from headwise.cli.options import (
    ANY_MODEL,
    ONE_PROCESS,
    TERMS,
    decode_options,
    decode_overrides,
    document_languages,
    ensemble_options,
    file_option,
    format_option,
    glossary_options,
    input_option,
    memory_option,
    output_option,
)
from headwise.cli.rules import FlagRule, out_file
from headwise.documents import MEMORIES, is_document
from headwise.documents.formats.unsupported_types import HEAD_BYTES, check_content, check_file_name
from headwise.runtime.search.request import TooLarge
from headwise.runtime.search.translator import CHUNK_LINES, Translation
from headwise.text.files.corpus import read_head
from headwise.text.files.links import format_links
from headwise.text.language_codes import file_language

Linked = Iterable[tuple[Translation, str | None]]  # with word links, if requested


def _is_document(options: argparse.Namespace) -> bool:
    return is_document(options.input, options.sentences, options.lines)


NEEDS = {"documents": lambda o: _is_document(o) or bool(o.memory), "pivot": lambda o: bool(o.then)}
RULES = (
    FlagRule(("sentences",), lambda o: o.lines, "does not go with --lines: say how the file is to be cut, once"),
    FlagRule(
        ("format", "alignment", "prefix", "draft", "n_best", "workers", "ray"),
        _is_document,
        "is for lines of text, and this is a document that is filled unit by unit",
    ),
    FlagRule(
        ("report",),
        lambda o: not _is_document(o),
        f"is for documents (files such as {', '.join(MEMORIES)}), and with --sentences for any text",
    ),
    FlagRule(
        ("languages",),
        lambda o: not (o.glossary or o.memory or _is_document(o) or file_language(o.input)),
        "is for documents, --glossary, --memory and texts whose names end with a language, such as news.de",
    ),
    FlagRule(("memory",), lambda o: o.prefix, "does not go with --prefix: stored translations begin otherwise"),
    FlagRule(("draft_length",), lambda o: not o.draft, "is for --draft, which is not given"),
    FlagRule(
        ("workers", "sample", "shortlist", "n_best", "batch_tokens", *TERMS),
        lambda o: o.draft,
        "does not go with --draft, which is greedy search of one line at a time",
    ),
    FlagRule(("beam_size",), lambda o: o.draft and o.beam_size > 1, "does not go with --draft: it is greedy search"),
    FlagRule(("alignment",), lambda o: o.ensemble, "does not go with --ensemble: links are of one model's attention"),
    FlagRule(("alignment",), lambda o: o.ray is not None, "does not go with --ray: links are read on one machine"),
    FlagRule(
        ("source_language", "target_language"),
        lambda o: o.then,
        "does not go with --then: a multilingual model translates directly",
    ),
    FlagRule(
        ("alignment", "draft", "shortlist", *TERMS),
        lambda o: o.then,
        "does not go with --then: it is for one model; run the command for each model",
    ),
    ONE_PROCESS,
)

COMMON = (
    *("--output", "--beam-size", "--compute", "--source-language", "--target-language", "--glossary", "--sentences"),
    *("--n-best", "--format", "--device"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    several = ensemble_options(parser, ANY_MODEL)
    then = "model that translates the translations of MODEL into a third language (pivoting)"
    several.add_argument("--then", default="", metavar="MODEL", help=then)
    input_option(parser, "or a document: .po, .docx, .xliff, .md ...")
    output_option(parser)
    format_option(parser, "output format; jsonl adds scores and tokens")
    alignment = "file to write word links (i-j) to, one line per translation; - writes them into the output, after "
    alignment += "' ||| ' or in the field 'alignment'"
    parser.add_argument("--alignment", type=out_file, default="", metavar="FILE", help=alignment)
    prefix = "text that every translation must begin with"
    parser.add_argument("--prefix", default="", metavar="TEXT", help=prefix)
    draft = "speculative decoding: faster for single sentences, with the output of --beam-size 1. Drafts come from the "
    draft += "'input', from the folder of a smaller model, or from a translation memory"
    file_option(parser, "--draft", draft, "FROM")
    documents = parser.add_argument_group(
        "documents", "Files such as .po, .xliff, strings.xml, .docx, .md, .html and .srt."
    )
    report = "file to list the translations in, as JSON lines; those with warnings come first"
    documents.add_argument("--report", type=out_file, default="", metavar="FILE", help=report)
    sentences = "split the lines of a text into sentences, and translate each"
    documents.add_argument("--sentences", action="store_true", help=sentences)
    lines = "translate a document as lines of text, with its tags and keys"
    documents.add_argument("--lines", action="store_true", help=lines)
    document_languages(documents)
    memory_option(documents, "; --report lists similar ones")
    glossary_options(parser)
    decode_options(parser, n_best="translations per line, separated by tabs")


def run(options: argparse.Namespace) -> None:
    """Translate line by line, or a document unit by unit."""
    if _is_document(options):
        return options.modules["documents"].fill_document(options)
    if not options.lines and os.path.isfile(options.input):
        check_file_name(options.input)
        check_content(options.input, read_head(options.input, HEAD_BYTES))
    model = translating_model(options, languages_required=bool(options.alignment))
    overrides = decode_overrides(options, model.decode_config)
    apart = options.alignment not in ("", "-")
    aside = output(options.alignment, "--alignment") if apart else nullcontext()
    with output(options.output) as file, aside as links_file:
        for chunk in _chunks(model, options, overrides):
            for translation, links in chunk:
                file.write(format_translation(translation, options.format, None if apart else links) + "\n")
                if links_file:
                    links_file.write(f"{links}\n")
            file.flush()
    if "glossary" in overrides:
        print(overrides["glossary"].summary(), file=sys.stderr)


def _chunks(model: Any, options: argparse.Namespace, overrides: Mapping[str, Any]) -> Iterator[Linked]:
    """The translations of all lines; if lines arrive one by one, as soon as no more are available."""
    if not arrives(options.input) or options.workers > 1 or options.ray is not None:
        lines = lines_of(options.input, "translate")
        translations = _translated(model, lines, options, overrides, options.workers, options.draft)
        yield with_progress_bar(translations, options.input)
        return
    done, draft = 0, getattr(model, "draft", str)(options.draft)  # made once
    for lines in arriving(sys.stdin.fileno(), CHUNK_LINES):
        short = not_too_long(lines, "standard input", done)
        try:
            yield list(_translated(model, short, options, overrides, 1, draft))
        except TooLarge as error:
            raise TooLarge(done + error.index, error.why, "line") from None
        done += len(lines)


def _translated(
    model: Any,
    lines: Iterable[str],
    options: argparse.Namespace,
    overrides: Mapping[str, Any],
    workers: int,
    draft: Any,
) -> Linked:
    settings = {"chunk_lines": CHUNK_LINES, "workers": workers, "draft": draft, **overrides}
    translate = partial(model.translate_lines, prefix=options.prefix, **settings)
    if options.memory:
        memory = options.modules["documents"].requested_memory(options)
        translate = partial(options.modules["documents"].recalled_or_translated, memory, translate)
    if not options.alignment:
        return ((translation, None) for translation in translate(lines))
    lines, again = tee(lines)
    return _with_links(model, again, translate(lines))


def _with_links(model: Any, lines: Iterable[str], translations: Iterable[Translation]) -> Iterator[tuple[Any, str]]:
    """Each translation and its word links; a line that was translated in parts has none."""
    pairs = zip(lines, translations, strict=True)
    while chunk := list(islice(pairs, CHUNK_LINES)):
        whole = [(line, translation.text) if translation.parts == 1 else ("", "") for line, translation in chunk]
        sources, targets = zip(*whole, strict=True)
        for (_, translation), links in zip(chunk, model.align(sources, targets), strict=True):
            yield translation, format_links(links)


def format_translation(translation: Translation, style: str, links: str | None = None) -> str:
    """One line: a JSON object, or the text and its alternatives separated by tabs; with word links if there are any."""
    if style == "jsonl":
        alignment = {} if links is None else {"alignment": links}
        return json.dumps({**asdict(translation), **alignment}, ensure_ascii=False)
    texts = [translation.text, *(other.text for other in translation.alternatives)]
    line = "\t".join(texts) if len(texts) == 1 else "\t".join(text.replace("\t", " ") for text in texts)
    return line if links is None else f"{line} ||| {links}"
