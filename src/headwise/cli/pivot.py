"""`--then`: a second model translates the translations of the first into a third language."""

import argparse
from typing import Any

from headwise.cli.loading import translator_of
from headwise.localisation.pivot import PivotTranslator


def followed_by(model: Any, options: argparse.Namespace) -> PivotTranslator:
    """A model, and the one of `options.then` behind it."""
    return PivotTranslator(model, translator_of(options, options.then))
