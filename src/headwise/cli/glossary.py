"""`--glossary` and `--keep`: the terms that translations must contain."""

import argparse
from collections.abc import Iterable

from headwise.cli.options import languages_of
from headwise.documents.glossary.files import read_glossary
from headwise.documents.glossary.terms import Glossary, Term
from headwise.errors import UserError

SHOWN = 10  # missing terms that are listed


class CountedGlossary(Glossary):
    """A glossary that counts how many of its terms appear in the translations."""

    def __init__(self, terms: Iterable[Term]) -> None:
        super().__init__(terms)
        self._texts = self._wanted = 0
        self._lost: list[str] = []

    def note(self, source: str, translation: str) -> None:
        """Count the terms of a text."""
        self._texts += 1
        self._wanted += len({match.term for match in self.matches(source)})
        lost = self.missing(source, translation)
        self._lost += [f"text {self._texts}: '{term.source}' without '{term.target}'" for term in lost]

    def summary(self) -> str:
        """The number of terms of the sources that are in the translations, and some that are missing."""
        kept = self._wanted - len(self._lost)
        more = [f"and {len(self._lost) - SHOWN:,} more"] if len(self._lost) > SHOWN else []
        head = f"{kept:,} of {self._wanted:,} required terms are in the translations"
        return "\n  ".join([head, *self._lost[:SHOWN], *more])


def requested_glossary(options: argparse.Namespace) -> CountedGlossary:
    """The terms of the files; `UserError` for sampling."""
    flag = "--glossary" if options.glossary else "--keep"
    if getattr(options, "sample", False):
        raise UserError(f"{flag} does not go with --sample: sampling cannot guarantee terms")
    files = [path for path in (options.glossary, options.keep) if path]
    return CountedGlossary(term for path in files for term in read_glossary(path, languages_of(options)))
