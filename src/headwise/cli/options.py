"""Options that several commands share, and the check of search settings that a model would ignore."""

import argparse
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from headwise.cli.rules import FlagRule, in_file, out_file
from headwise.config.setting import Setting
from headwise.config.settings import SETTINGS, SearchSettings
from headwise.config.tasks import TASKS
from headwise.errors import UserError
from headwise.text.language_codes import LanguagePair, document_language

TRAINED_HERE = "folder written by `headwise train`"
PRETRAINED = "model: a Hugging Face folder, hf:OWNER/NAME, or a folder written by `headwise import`"
ANY_MODEL = "model: a Headwise or Hugging Face folder, hf:OWNER/NAME, or the name of a downloaded model"
TRANSLATION_MODEL = f"translation {ANY_MODEL}"

CODE = re.compile(r"[a-z]{2,3}([_-]([A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")  # of a language
HALF = ("float16", "bfloat16")
TERMS = ("glossary", "keep")
ONE_PROCESS = FlagRule(TERMS, lambda o: o.ray is not None, "does not go with --ray: terms are counted in one process")
SAMPLING = ("temperature", "top_k", "top_p", "seed")
DECODING = tuple(field.name for field in fields(SearchSettings))
DECODING_GROUPS = {  # in the order of the help
    "search": (
        *("beam_size", "length_penalty", "n_best", "no_repeat_ngram", "repetition_penalty", "early_stopping", "stop"),
    ),
    "length": (
        *("max_length_factor", "max_length_extra", "min_length_factor", "min_length_extra", "max_source_length"),
    ),
    "sampling": ("sample", "temperature", "top_k", "top_p", "seed"),
    "speed": ("compute", "batch_size", "batch_tokens", "shortlist", "draft_length"),
}


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
    text = "where to compute: auto, cpu or cuda (default: %(default)s)"
    parser.add_argument("--device", default="auto", metavar="NAME", help=text)


def files_option(
    parser: argparse._ActionsContainer, flag: str, text: str, metavar: str = "FILE", required: bool = False
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
    text = f"{text} (default: %(default)s)"
    parser.add_argument("--format", choices=choices, default=choices[0], help=text)


def input_option(parser: argparse.ArgumentParser, documents: str = "") -> None:
    """The input file; `documents` are kinds of files that are not read as lines of text."""
    text = f"text, also .gz{', ' * bool(documents)}{documents} (default: standard input)"
    parser.add_argument("input", nargs="?", type=in_file, default="-", metavar="FILE", help=text)


def output_option(parser: argparse.ArgumentParser, what: str = "output file") -> None:
    text = f"{what} (default: standard output)"
    parser.add_argument("-o", "--output", type=out_file, default="-", metavar="FILE", help=text)


def source_option(parser: argparse.ArgumentParser, text: str, required: bool = True) -> None:
    parser.add_argument("--source", type=in_file, required=required, metavar="FILE", help=text)


def target_option(parser: argparse._ActionsContainer, text: str, required: bool = False) -> None:
    parser.add_argument("--target", type=in_file, required=required, metavar="FILE", help=text)


def window_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for reading a long text with a language model."""
    window = "tokens that a language model reads at once (default: as many as it can; 1024 if it has no limit)"
    parser.add_argument("--window", type=whole_number(2), default=0, metavar="N", help=window)
    stride = "for a language model: tokens between the starts of two windows; fewer are slower, and give each token "
    stride += "more context (default: half a window)"
    parser.add_argument("--stride", type=whole_number(1), default=0, metavar="N", help=stride)


def corpus_option(parser: argparse.ArgumentParser) -> None:
    files_option(parser, "--train", "parallel files, as for `headwise train`", required=True)


def language_options(parser: argparse.ArgumentParser) -> None:
    """The languages of a multilingual model."""
    group = parser.add_argument_group("multilingual models")
    source = "source language, by the model's own code, such as de, deu_Latn or de_DE"
    group.add_argument("--source-language", default="", metavar="CODE", help=source)
    group.add_argument("--target-language", default="", metavar="CODE", help="target language, in the same way")


def document_languages(parser: argparse._ActionsContainer, more: str = "") -> None:
    text = f"language pair, such as en-de, to read from files that have several languages or do not name theirs{more}"
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


def memory_option(parser: argparse._ActionsContainer, more: str = "") -> None:
    text = f"translation memories, such as .tmx: exact matches are used instead of a translation{more} (default: none)"
    parser.add_argument("--memory", nargs="+", type=in_file, default=[], metavar="FILE", help=text)


def glossary_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("terms")
    text = "terms that translations must contain: lines of source TAB target, or a .csv or .tbx file"
    file_option(group, "--glossary", text)
    file_option(group, "--keep", "names to leave untranslated, one per line")


def ensemble_option(parser: argparse._ActionsContainer) -> None:
    text = "more models with the same tokenizer, whose predictions are averaged with those of MODEL"
    parser.add_argument("--ensemble", nargs="+", action="extend", default=[], metavar="MODEL", help=text)


def workers_option(parser: argparse._ActionsContainer) -> None:
    workers = "processes that share the lines (default: as many as this machine benefits from)"
    parser.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help=workers)


def ray_option(
    parser: argparse._ActionsContainer,
    text: str = "distribute the lines over the CPUs or GPUs of a Ray cluster",
    default: str | None = None,
) -> None:
    """`--ray ADDRESS` for a cluster that runs, `--ray` to start one; `default` if neither is given."""
    text = f"{text}; without ADDRESS, one that is started on this machine"
    parser.add_argument("--ray", nargs="?", const="", default=default, metavar="ADDRESS", help=text)


def ensemble_options(parser: argparse.ArgumentParser, what: str = TRANSLATION_MODEL) -> argparse._ActionsContainer:
    """Add the options for translating lines: MODEL or an ensemble, languages, processes; returns their group."""
    model_option(parser, what)
    group = parser.add_argument_group("several models, processes or machines")
    ensemble_option(group)
    workers_option(group)
    ray_option(group)
    language_options(parser)
    return group


def seed_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--seed", type=whole_number(0), default=1, metavar="N", help=f"{text} (default: %(default)s)")


def metric_options(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the options for scoring translations."""
    metric = "metrics: BLEU, chrF++, TER; for English summaries ROUGE-1, ROUGE-2, ROUGE-L; comet or comet:MODEL "
    metric += f"(default: {' '.join(default)})"
    parser.add_argument("--metric", nargs="+", default=[*default], metavar="NAME", help=metric)
    multi30k = "also print the tokenized, lowercased BLEU of papers on Multi30k; CODE is the target language"
    parser.add_argument("--multi30k", default="", metavar="CODE", help=multi30k)
    tokenize = "sacreBLEU tokenizer for BLEU (default: 13a, or zh or char for texts without spaces between words)"
    parser.add_argument("--tokenize", default="", metavar="NAME", help=tokenize)


def task_option(parser: argparse.ArgumentParser) -> None:
    text = f"task to train for: {', '.join(TASKS)} (default: the recipe's)"
    parser.add_argument("--task", choices=TASKS, default="", metavar="TASK", help=text)


def host_option(parser: argparse.ArgumentParser) -> None:
    host = "address to listen on; 0.0.0.0 lets everyone who reaches this machine use the model (default: %(default)s)"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=host)


def port_option(parser: argparse.ArgumentParser, default: int) -> None:
    text = "port; 0 chooses a free one (default: %(default)s)"
    parser.add_argument("--port", type=whole_number(0), default=default, metavar="N", help=text)


def decode_options(parser: argparse.ArgumentParser, without: Collection[str] = (), **texts: str) -> None:
    """An option for every field of `SearchSettings` except `without`.

    Options that are not given leave the model's own settings. The library checks the values. `texts` replace help
    texts for this command.
    """
    for title, names in DECODING_GROUPS.items():
        group = parser.add_argument_group(f"decoding: {title}")
        for name in (name for name in names if name not in without):
            setting_option(group, name, SETTINGS[f"decode.{name}"], texts.get(name, ""))


def setting_option(group: argparse._ActionsContainer, name: str, setting: Setting, text: str = "") -> None:
    """An option for a setting; without it the value is None.

    Args:
        text: replaces the setting's own help.
    """
    text = text or re.sub(r"[a-z]+_\w+", lambda found: flag_of(found[0]), setting.help)
    flag, default = flag_of(name), setting.default
    text += "" if default == () else " (default: the model's, see `headwise info`)"
    if isinstance(default, bool):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
    elif isinstance(default, tuple):
        group.add_argument(flag, action="append", metavar="STRING", help=text)
    elif setting.choices:
        group.add_argument(flag, choices=setting.choices, metavar="NAME", help=f"{', '.join(setting.choices)}: {text}")
    else:
        group.add_argument(flag, type=type(default), metavar="N", help=text)


def languages_of(options: argparse.Namespace) -> LanguagePair:
    """The languages of texts and translations: those given, or else those of the model; "" = unknown."""
    source, target = getattr(options, "languages", ("", ""))
    source = source or document_language(getattr(options, "source_language", ""))
    target = target or document_language(getattr(options, "target_language", ""))
    own = getattr(options, "pair", ("", ""))
    return source or own[0], target or own[1]


def flag_of(name: str) -> str:
    """The option for a setting.

    >>> flag_of("beam_size")
    '--beam-size'
    """
    return "--" + name.replace("_", "-")


def decode_overrides(options: argparse.Namespace, usual: SearchSettings | None = None) -> dict[str, Any]:
    """The given `decode_options`; `UserError` for one that a model with the settings `usual` would ignore."""
    settings = {name: getattr(options, name, None) for name in DECODING}
    given = {name: value for name, value in settings.items() if value is not None}
    if usual is not None:
        refuse_unread(given, usual)
    if getattr(options, "glossary", "") or getattr(options, "keep", ""):
        given["glossary"] = options.modules["glossary"].requested_glossary(options)
    return given


def refuse_unread(given: Mapping[str, Any], usual: Any) -> None:
    """`UserError` for a setting that the kind of search ignores.

    Args:
        given: settings of the command line by name.
        usual: the model's own settings.
    """
    sample = given.get("sample", usual.sample)
    stray = [name for name in SAMPLING if name in given and not sample]
    if stray:
        raise UserError(f"{flag_of(stray[0])} is for sampling: add --sample, or leave it out")
    if sample and given.get("beam_size", 1) > 1:
        raise UserError("--beam-size does not go with --sample, which uses no beam; --n-best samples several outputs")
