"""Options that several commands share, and what they stand for."""

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, out_file
from sightline.config.settings import SETTINGS, SearchSettings
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.models.model import Model

HALF = ("float16", "bfloat16")
CODE = re.compile(r"[a-z]{2,3}([_-]([A-Z]{2}|[A-Z][a-z]{3}|[0-9]{3}))*")  # of a language
SAMPLING = ("temperature", "top_k", "top_p", "seed")


def whole(least: int) -> Callable[[str], int]:
    """The type of an option for a whole number of at least so much."""

    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    parse.__name__ = "int"  # argparse names it where a text is no number
    return parse


def decode_options(parser: argparse.ArgumentParser, without: Collection[str] = (), **texts: str) -> None:
    """An option for every field of `SearchSettings` but those that a command has no use for.

    Those not given leave the model's own setting. What a value must be is the library's to say. `texts` explain those
    that mean something else here.
    """
    group = parser.add_argument_group("decoding (default: the model's own settings)")
    for field in fields(SearchSettings):
        if field.name in without:
            continue
        name, setting = _flag(field.name), SETTINGS[f"decode.{field.name}"]
        text = texts.get(field.name) or re.sub(r"[a-z]+_\w+", lambda found: _flag(found[0]), setting.help)
        if field.type is bool:
            group.add_argument(name, action="store_true", default=None, help=text)
        else:
            choices = setting.choices or None
            group.add_argument(name, type=field.type, choices=choices, metavar=None if choices else "N", help=text)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def decode_overrides(options: argparse.Namespace, usual: Any = None) -> dict[str, Any]:
    """What was given of `decode_options`; `UserError` for what a model whose own settings are `usual` leaves unread."""
    settings = {field.name: getattr(options, field.name, None) for field in fields(SearchSettings)}
    given = {name: value for name, value in settings.items() if value is not None}
    if usual is not None and not isinstance(usual, SearchSettings):
        from sightline.cli.published import as_published

        given = as_published(given, usual)
    if usual is not None:
        refuse_unread(given, usual)
    if getattr(options, "glossary", "") or getattr(options, "keep", ""):
        from sightline.cli.glossary import glossary_asked_for

        given["glossary"] = glossary_asked_for(options, usual)
    return given


def refuse_unread(given: Mapping[str, Any], usual: Any) -> None:
    """`UserError` for a setting that the kind of search leaves unread.

    Args:
        given: settings of the command line by name, of `SearchSettings` or `GenerationSettings`.
        usual: the model's own, an object of either; it says whether the model samples where nobody says so.
    """
    sample = given.get("sample", usual.sample)
    stray = [name for name in SAMPLING if name in given and not sample]
    if stray:
        raise UserError(f"--{stray[0].replace('_', '-')} is for sampling: add --sample, or leave it out")
    if sample and given.get("beam_size", 1) > 1:
        raise UserError(
            "--beam-size does not go with --sample: what is drawn is not searched for; --n-best draws several"
        )


OWN = "model directory"
FAMILY = "folder in the Hugging Face layout, or what `sightline import` made of it"
EITHER = f"{OWN}, or {FAMILY}"
TRANSLATES = f"{EITHER}, of a network that reads a text and writes another"


def model_options(parser: argparse.ArgumentParser, needed: bool = True, what: str = OWN) -> None:
    parser.add_argument("model", metavar="MODEL", nargs=None if needed else "?", help=what)
    device_option(parser)


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def language_options(parser: argparse.ArgumentParser) -> None:
    """What to say to models of many languages or tasks."""
    group = parser.add_argument_group("models that translate or rewrite")
    group.add_argument("--source-language", default="", metavar="CODE", help="as the model has it: de, deu_Latn, de_DE")
    group.add_argument("--target-language", default="", metavar="CODE", help="language to write in")


def document_languages(parser: argparse.ArgumentParser) -> None:
    text = "the two languages of a translation memory that are meant, where it has more or does not say: en-de"
    parser.add_argument("--languages", type=direction, default=("", ""), metavar="FROM-TO", help=text)


def direction(text: str) -> tuple[str, str]:
    """The type of `--languages`: two codes with a hyphen between them, or a colon where a code has a hyphen itself.

    >>> direction("en-de"), direction("pt-BR:en")
    (('en', 'de'), ('pt-BR', 'en'))
    """
    source, _, target = text.partition(":" if ":" in text else "-")
    if not (CODE.fullmatch(source) and CODE.fullmatch(target)) or source == target:
        raise argparse.ArgumentTypeError(f"{text}: write two different codes, such as en-de (or pt-BR:en)")
    return source, target


def glossary_options(parser: argparse.ArgumentParser) -> None:
    text = "terms that translations keep to: lines of a source, a tab and its target; or a .csv or .tbx file"
    parser.add_argument("--glossary", type=in_file, default="", metavar="FILE", help=text)
    text = "what is to stay as it is: a name on each line"
    parser.add_argument("--keep", type=in_file, default="", metavar="FILE", help=text)


def ensemble_option(parser: argparse.ArgumentParser) -> None:
    text = "further models of the same tokenizer, to translate with all of them: their log-probabilities are averaged"
    parser.add_argument("--ensemble", nargs="+", action="extend", default=[], metavar="MODEL", help=text)


def input_option(parser: argparse.ArgumentParser) -> None:
    text = "text file, also .gz (default: standard input)"
    parser.add_argument("input", nargs="?", type=in_file, default="-", help=text)


def output_option(parser: argparse.ArgumentParser, what: str = "file to write") -> None:
    parser.add_argument("-o", "--output", type=out_file, default="-", help=f"{what} (default: standard output)")


def workers_option(parser: argparse.ArgumentParser) -> None:
    workers = "processes that share the lines (default: as many as pay on this machine)"
    parser.add_argument("--workers", type=whole(0), default=0, metavar="N", help=workers)


def ray_option(parser: argparse.ArgumentParser) -> None:
    ray = "share the lines among all processors or GPUs of this cluster of Ray's (default: one of this machine's own)"
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help=ray)


def load_as_asked(options: argparse.Namespace, path: str = "", told: bool = True) -> "Model":
    """Any model, in the numbers that were asked for; one of many languages between those that were.

    It must be `told` which, unless it is only to write, as it does without in `transformers`.
    """
    from sightline.models.load import load

    path = path or str(options.model)
    return _between(load(path, options.device, _numbers(options)), options, path, told)


def load_model(options: argparse.Namespace, path: str = "", told: bool = True) -> "Model":
    """`load_as_asked` for what translates; `UserError` for any other model."""
    from sightline.models.load import load_translator

    path = path or str(options.model)
    return _between(load_translator(path, options.device, _numbers(options)), options, path, told)


def load_models(options: argparse.Namespace, told: bool = True) -> "Model":
    """What translates: MODEL, or an ensemble of it and those of `ensemble_option`."""
    from sightline.models.load import load_translators

    files = [path for path in options.ensemble if Path(path).is_file()]
    if files:
        raise UserError(f"{files[0]}: is a file, and --ensemble names model directories; name files before --ensemble")
    if not options.ensemble:
        return load_model(options, told=told)
    model = load_translators([options.model, *options.ensemble], options.device, _numbers(options))
    return _between(model, options, options.model)


def _numbers(options: argparse.Namespace) -> str:
    """The numbers that a model is to be loaded in; others are a setting of decoding."""
    compute = getattr(options, "compute", None)
    return compute if compute in HALF else "auto"


def _between(model: Any, options: argparse.Namespace, path: str, told: bool = True) -> Any:
    languages = [getattr(options, f"{side}_language", "") for side in ("source", "target")]
    if hasattr(model, "between"):
        from sightline.cli.published import between

        model = between(model, languages, path, told)
    elif any(languages) and getattr(model, "reads", "") != "sound":
        raise UserError("--source-language and --target-language are for models of many languages, and this is none")
    if getattr(options, "ray", None) is None:
        return model
    from sightline.cli.cluster import on_cluster

    return on_cluster(model, options, _numbers(options))
