"""Options that several commands share."""

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields

from headwise.cli.rules import FlagRule, in_file, out_file
from headwise.config.settings import SETTINGS, SearchSettings

TRAINED_HERE = "folder of a model trained here"
PRETRAINED = "Hugging Face folder, or hf:OWNER/NAME, or a folder written by `headwise import`"
ANY_MODEL = "model to use: a Headwise or Hugging Face folder, or hf:OWNER/NAME"
TRANSLATION_MODEL = f"{ANY_MODEL} (translation model)"

CODE = re.compile(r"[a-z]{2,3}([_-]([A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")  # of a language
HALF = ("float16", "bfloat16")
TERMS = ("glossary", "keep")
ONE_PROCESS = FlagRule(TERMS, lambda o: o.ray is not None, "does not go with --ray: terms are counted in one process")
SAMPLING = ("temperature", "top_k", "top_p", "seed")
DECODING = tuple(field.name for field in fields(SearchSettings))


def whole_number(least: int) -> Callable[[str], int]:
    """The type of an option for a whole number of at least `least`."""

    def parse_whole(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    parse_whole.__name__ = "int"  # argparse shows it if a text is not a number
    return parse_whole


def model_option(parser: argparse.ArgumentParser, what: str, needed: bool = True) -> None:
    """MODEL and --device."""
    parser.add_argument("model", metavar="MODEL", nargs=None if needed else "?", help=what)
    device_option(parser)


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def files_option(
    parser: argparse.ArgumentParser, flag: str, text: str, metavar: str = "FILE", required: bool = False
) -> None:
    """An option for several input files."""
    default = None if required else []
    parser.add_argument(flag, nargs="+", type=in_file, required=required, default=default, metavar=metavar, help=text)


def file_option(
    parser: argparse._ActionsContainer, flag: str, text: str, metavar: str = "FILE", required: bool = False
) -> None:
    """An option for an input file; "" if it is not given."""
    parser.add_argument(flag, type=in_file, required=required, default="", metavar=metavar, help=text)


def format_option(parser: argparse.ArgumentParser, text: str, choices: Sequence[str] = ("text", "jsonl")) -> None:
    text = f"output format; {text} (default: %(default)s)"
    parser.add_argument("--format", choices=choices, default=choices[0], help=text)


def input_option(parser: argparse.ArgumentParser) -> None:
    text = "text file, also .gz (default: standard input)"
    parser.add_argument("input", nargs="?", type=in_file, default="-", help=text)


def output_option(parser: argparse.ArgumentParser, what: str = "output file") -> None:
    parser.add_argument("-o", "--output", type=out_file, default="-", help=f"{what} (default: standard output)")


def source_option(parser: argparse.ArgumentParser, text: str, required: bool = True) -> None:
    parser.add_argument("--source", type=in_file, required=required, metavar="FILE", help=text)


def target_option(parser: argparse._ActionsContainer, text: str, required: bool = False) -> None:
    parser.add_argument("--target", type=in_file, required=required, metavar="FILE", help=text)


def corpus_option(parser: argparse.ArgumentParser) -> None:
    files_option(parser, "--train", "parallel files, as `headwise train` takes them", required=True)


def language_options(parser: argparse.ArgumentParser) -> None:
    """The languages of a multilingual model."""
    group = parser.add_argument_group("multilingual models")
    source = "source language, as the model writes it: de, deu_Latn, de_DE"
    group.add_argument("--source-language", default="", metavar="CODE", help=source)
    group.add_argument("--target-language", default="", metavar="CODE", help="target language")


def document_languages(parser: argparse.ArgumentParser) -> None:
    text = "language pair to read from a translation memory with several or none: en-de"
    parser.add_argument("--languages", type=direction, default=("", ""), metavar="FROM-TO", help=text)


def direction(text: str) -> tuple[str, str]:
    """The type of `--languages`: two codes separated by a hyphen, or by a colon if a code contains a hyphen.

    >>> direction("en-de"), direction("pt-BR:en")
    (('en', 'de'), ('pt-BR', 'en'))
    """
    source, _, target = text.partition(":" if ":" in text else "-")
    if not (CODE.fullmatch(source) and CODE.fullmatch(target)) or source == target:
        raise argparse.ArgumentTypeError(f"{text}: write two different codes, such as en-de (or pt-BR:en)")
    return source, target


def glossary_options(parser: argparse.ArgumentParser) -> None:
    text = "terms that translations must contain: lines of source TAB target, or a .csv or .tbx file"
    file_option(parser, "--glossary", text)
    file_option(parser, "--keep", "names to leave untranslated, one per line")


def ensemble_option(parser: argparse.ArgumentParser) -> None:
    text = "more models with the same tokenizer; their log-probabilities are averaged"
    parser.add_argument("--ensemble", nargs="+", action="extend", default=[], metavar="MODEL", help=text)


def workers_option(parser: argparse.ArgumentParser) -> None:
    workers = "worker processes that share the lines (default: as many as this machine benefits from)"
    parser.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help=workers)


def ray_option(parser: argparse.ArgumentParser) -> None:
    ray = "distribute the lines over the CPUs or GPUs of this Ray cluster (default: start one on this machine)"
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help=ray)


def ensemble_options(parser: argparse.ArgumentParser, what: str = TRANSLATION_MODEL) -> None:
    """What translates many lines: MODEL or an ensemble, its languages and processes."""
    model_option(parser, what)
    ensemble_option(parser)
    workers_option(parser)
    ray_option(parser)
    language_options(parser)


def seed_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--seed", type=whole_number(0), default=1, metavar="N", help=f"{text} (default: %(default)s)")


def metric_options(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """How translations are scored."""
    metric = f"any of BLEU, chrF++, TER, and for English summaries ROUGE-1, -2, -L (default: {' '.join(default)})"
    parser.add_argument("--metric", nargs="+", default=[*default], metavar="NAME", help=metric)
    multi30k = "also print the tokenized, lowercased BLEU of the Multi30k literature; LANG is the target language"
    parser.add_argument("--multi30k", default="", metavar="LANG", help=multi30k)
    tokenize = "sacreBLEU tokenizer for BLEU (default: 13a; zh or char for references without spaces between words)"
    parser.add_argument("--tokenize", default="", metavar="NAME", help=tokenize)


def host_option(parser: argparse.ArgumentParser) -> None:
    host = "address to listen on; with another one than this computer's own, anyone who reaches it can use the model "
    parser.add_argument("--host", default="127.0.0.1", help=host + "(default: %(default)s)")


def decode_options(parser: argparse.ArgumentParser, without: Collection[str] = (), **texts: str) -> None:
    """An option for every field of `SearchSettings` except `without`.

    Options that are not given leave the model's own settings. The library checks the values. `texts` replace help
    texts for this command.
    """
    group = parser.add_argument_group("decoding (default: the model's own settings)")
    for name in (name for name in DECODING if name not in without):
        setting = SETTINGS[f"decode.{name}"]
        text = texts.get(name) or re.sub(r"[a-z]+_\w+", lambda found: flag_of(found[0]), setting.help)
        if isinstance(setting.default, bool):
            group.add_argument(flag_of(name), action="store_true", default=None, help=text)
        elif isinstance(setting.default, tuple):
            group.add_argument(flag_of(name), action="append", metavar="STRING", help=text)
        else:
            choices = setting.choices or None
            metavar = None if choices else "N"
            group.add_argument(flag_of(name), type=type(setting.default), choices=choices, metavar=metavar, help=text)


def flag_of(name: str) -> str:
    """The option for a setting.

    >>> flag_of("beam_size")
    '--beam-size'
    """
    return "--" + name.replace("_", "-")
