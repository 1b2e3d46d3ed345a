"""Language detection."""

from collections.abc import Collection, Sequence
from typing import Any

from headwise.errors import UserError
from headwise.text.language_codes import base_language


def detect_languages(text: str, known: Collection[str]) -> list[dict[str, Any]]:
    """The known languages by probability for a text, as percentages among all languages, highest first.

    Raises:
        UserError: the language detector is not installed.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise UserError('language detection needs py3langid: pip install "headwise[serve]"') from None
    if not _identifiers:
        _identifiers.append(LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True))
    shares = dict(_identifiers[0].rank(text))
    found = [
        {"confidence": round(100 * float(shares.get(base_language(code), 0.0)), 1), "language": code} for code in known
    ]
    return sorted(found, key=lambda one: -one["confidence"])


_identifiers: list[Any] = []  # of this process; loading takes a second


def most_likely_language(text: str, known: Sequence[str]) -> dict[str, Any]:
    """The first of `detect_languages`; without detection if there is only one."""
    return detect_languages(text, known)[0] if len(known) > 1 else {"confidence": 100.0, "language": known[0]}
