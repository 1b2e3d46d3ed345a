"""The models that a command line names: of the requested kind, precision and languages, on this machine or on Ray."""

import argparse
import sys
from pathlib import Path
from typing import Any

from headwise.cli.options import HALF, languages_of
from headwise.config.settings import INTEGERS
from headwise.errors import UserError
from headwise.models.commands import check_command, commands_of
from headwise.models.load import load, load_translator, load_translators
from headwise.models.translation.target_language import own_languages
from headwise.text.files.file_checks import check_file_language


def model_of(options: argparse.Namespace, path: str = "", languages_required: bool = True) -> Any:
    """Any model: MODEL or the one in `path`.

    A multilingual model needs both languages, unless `languages_required` is false, because it can generate text
    without them, as in transformers.
    """
    path = path or str(options.model)
    return _set_up(load(path, options.device, _dtype(options)), options, path, languages_required)


def translator_of(options: argparse.Namespace, path: str = "", languages_required: bool = True) -> Any:
    """`model_of` for a translation model; `UserError` for any other model."""
    path = path or str(options.model)
    return _set_up(load_translator(path, options.device, _dtype(options)), options, path, languages_required)


def translating_model(options: argparse.Namespace, languages_required: bool = True) -> Any:
    """`model_or_ensemble` for `headwise translate`, with the model of `--then` behind it."""
    model = model_or_ensemble(options, languages_required)
    if options.then:
        model = options.modules["pivot"].followed_by(model, options)
        options.pair = own_languages(model.first)[0], own_languages(model.second)[1]
    check_file_language("translate", options.input, languages_of(options)[0])
    return model


def model_or_ensemble(options: argparse.Namespace, languages_required: bool = True) -> Any:
    """MODEL, or the ensemble of it and the models of `--ensemble`."""
    files = [path for path in options.ensemble if Path(path).is_file()]
    if files:
        raise UserError(f"{files[0]}: is a file, and --ensemble names model directories; name files before --ensemble")
    if not options.ensemble:
        return translator_of(options, languages_required=languages_required)
    model = load_translators([options.model, *options.ensemble], options.device, _dtype(options))
    return _set_up(model, options, options.model)


def model_with(options: argparse.Namespace, what: str) -> Any:
    """MODEL, if this command works for it; otherwise a `UserError` that says it cannot do `what`."""
    dtype = "auto" if options.compute in (None, *INTEGERS) else options.compute  # made when a model first decodes
    model = load(options.model, options.device, dtype)
    if options.command not in commands_of(model):
        family = getattr(getattr(model, "config", None), "family", "")
        why = f": its file lacks the head of {model.missing_head}" if getattr(model, "missing_head", "") else ""
        raise UserError(f"{options.model}: a model{f' of {family}' if family else ''} that cannot {what}{why}")
    _mention_unused(model, options.model)
    return model


def encoding_model(options: argparse.Namespace, what: str) -> Any:
    """`model_with` for commands of encoders, which the compiled library also runs in integers."""
    return with_integers(model_with(options, what), options)


def with_integers(model: Any, options: argparse.Namespace) -> Any:
    """The encoder, which computes in int8 or int4 if the options request it."""
    if options.compute in INTEGERS:
        if not hasattr(type(model), "compute"):
            raise UserError(f"{options.model}: --compute {options.compute} is for encoders; leave it out")
        model.compute = options.compute
        _ = model.texts  # a `UserError` before any text is read
    return model


def _mention_unused(model: Any, path: str) -> None:
    for name in getattr(model, "unused", ()) or getattr(getattr(model, "generation", None), "unused", ()):
        print(f"{path}: generation_config.json asks for {name}, which is not supported", file=sys.stderr)


def _dtype(options: argparse.Namespace) -> str:
    """The precision to load a model in; integers are a setting of decoding."""
    compute = getattr(options, "compute", None)
    return compute if compute in HALF else "auto"


def _set_up(model: Any, options: argparse.Namespace, path: str, languages_required: bool = True) -> Any:
    """The model with its languages, and with its lines on a cluster if `--ray` is given.

    `UserError` if this command does not work for it.
    """
    check_command(model, options.command)
    source, target = (getattr(options, f"{side}_language", "") for side in ("source", "target"))
    if hasattr(model, "between"):
        _mention_unused(model, path)
        model = model.between(source, target, complete=languages_required or bool(source and target))
    elif (source or target) and getattr(model, "reads", "") != "sound":
        raise UserError("--source-language and --target-language are for multilingual models, and this is none")
    if path == str(options.model):
        options.pair = own_languages(model)  # for `languages_of`
    if getattr(options, "ray", None) is None:
        return model
    return options.modules["cluster"].on_cluster(model, options, _dtype(options))
