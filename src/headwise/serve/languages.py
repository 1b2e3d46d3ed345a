"""Language pairs of models, names of languages, and language detection.

Codes are those of the model, or file name endings of its training data. See `runtime.tokenizers.languages` for how a
model selects languages.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.models.translation.target_language import base_language

LanguagePair = tuple[str, str]  # codes of source and target

PAIR_PATTERN = re.compile(r"([a-z]{2,3})[-_ ](?:to )?([a-z]{2,3})$")
LANGUAGE_NAMES = {
    "ar": "Arabic", "az": "Azerbaijani", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish",
    "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian",
    "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh",
    "ko": "Korean", "ky": "Kyrgyz", "lb": "Luxembourgish", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian",
    "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "nl": "Dutch", "nn": "Norwegian Nynorsk",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip


def language_name(code: str) -> str:
    """The English name of a language; the code itself if unknown.

    >>> language_name("de"), language_name("deu_Latn"), language_name("xx")
    ('German', 'German', 'xx')
    """
    return LANGUAGE_NAMES.get(base_language(code), code)


def language_pair_of(model: Any) -> LanguagePair | None:
    """The language pair of a model, from its folder; None if unknown."""
    about = getattr(model, "about", None) or getattr(model, "hf_config", {})
    names = str(about.get("languages", "")), str(about.get("_name_or_path", "")), model.path.name
    return language_pair_in((about.get("corpus") or {}).get("train", ()), names)


def language_pair_in(files: Sequence[str], names: Sequence[str]) -> LanguagePair | None:
    """The language pair that names tell: the endings of two files, or the end of a name, such as `news.en-de.tsv`.

    >>> language_pair_in(["a.en", "a.de.gz"], []), language_pair_in(["news.en-de.tsv"], [])
    (('en', 'de'), ('en', 'de'))
    """
    files = [Path(name.removesuffix(".gz")).name for name in files]
    endings = tuple(name.rpartition(".")[2] for name in files[:2])
    if len(endings) == 2 and endings[0] != endings[1] and all(ending in LANGUAGE_NAMES for ending in endings):
        return endings[0], endings[1]
    for text in (*names, *(Path(name).stem for name in files[:1])):
        found = PAIR_PATTERN.search(text)
        if found and found[1] != found[2] and {found[1], found[2]} <= LANGUAGE_NAMES.keys():
            return found[1], found[2]
    return None


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
