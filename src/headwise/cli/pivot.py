"""`--then`: a second model translates the translations of the first into a third language."""

import argparse
import os
from typing import Any

from headwise.cli.loading import translator_of
from headwise.documents.pivot import PivotTranslator
from headwise.errors import UserError
from headwise.models.translation.target_language import TAGS, language_arguments, own_languages, tagged_targets
from headwise.text.files.corpus import read_head
from headwise.text.language_codes import contradicts, language_pair_of


def followed_by(model: Any, options: argparse.Namespace) -> PivotTranslator:
    """A model, and the one of `options.then` behind it, whose source language the first must write."""
    second = translator_of(options, options.then)
    targets = tagged_targets(model)
    if len(targets) < 2 or _has_tag(options.input):
        written, read = own_languages(model)[1], own_languages(second)[0]
        if contradicts(written, read):
            raise UserError(f"{options.then} translates from {read}, but {options.model} into {written}")
        return PivotTranslator(model, second)
    pair = language_pair_of(second)
    if not pair:
        why = f"its source language is unknown, and {options.model} translates into {', '.join(targets[:20])}"
        raise UserError(f"{options.then}: {why}; name its folder by its languages, such as {targets[0]}-fr")
    try:
        return PivotTranslator(model.between(**language_arguments(model, "", pair[0])), second)
    except UserError as error:
        raise UserError(f"{options.then} translates from {pair[0]}, but {options.model}: {error}") from error


def _has_tag(path: str) -> bool:
    """Whether the first text of a file chooses its target language itself, such as `<2de> A dog`."""
    return os.path.isfile(path) and read_head(path, 3).startswith(tuple(map(str.encode, TAGS)))
