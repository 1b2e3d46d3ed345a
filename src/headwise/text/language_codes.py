"""Codes of languages as models and files write them: `de`, `deu_Latn`, `pt-BR`, `de_DE`, `sr@latin`.

The language pair of a model is in its folder, or in the names of its training files. See `runtime.tokenizers.languages`
for how a model selects languages.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from headwise.text.files.sources import HF_PREFIX

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
# By ISO 639-1; also those of bibliographies, and of NLLB for languages of which it has one variety
THREE_LETTER_CODES = {
    "ar": "ara arb", "az": "aze azj", "bg": "bul", "bn": "ben", "ca": "cat", "cs": "ces cze", "cy": "cym wel",
    "da": "dan", "de": "deu ger", "el": "ell gre", "en": "eng", "eo": "epo", "es": "spa", "et": "est ekk",
    "eu": "eus baq", "fa": "fas per pes", "fi": "fin", "fr": "fra fre", "ga": "gle", "gl": "glg", "he": "heb",
    "hi": "hin", "hr": "hrv", "hu": "hun", "hy": "hye arm", "id": "ind", "is": "isl ice", "it": "ita", "ja": "jpn",
    "ka": "kat geo", "kk": "kaz", "ko": "kor", "ky": "kir", "lb": "ltz", "lt": "lit", "lv": "lav lvs",
    "mk": "mkd mac", "ms": "msa may zsm", "mt": "mlt", "nb": "nob", "nl": "nld dut", "nn": "nno", "no": "nor",
    "pl": "pol", "pt": "por", "ro": "ron rum", "ru": "rus", "sk": "slk slo", "sl": "slv", "sq": "sqi alb als",
    "sr": "srp", "sv": "swe", "sw": "swa swh", "ta": "tam", "te": "tel", "th": "tha", "tl": "tgl", "tr": "tur",
    "uk": "ukr", "ur": "urd", "vi": "vie", "zh": "zho chi",
}  # fmt: skip
TWO_LETTER_CODES = {code: two for two, codes in THREE_LETTER_CODES.items() for code in codes.split()}
SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}
# Names of several languages, which have codes of three letters: https://iso639-3.sil.org/about/scope
MACROLANGUAGES = {"ar", "az", "et", "fa", "hbs", "lv", "ms", "no", "sq", "sw", "tl", "zh"}  # tl: also `fil`
NO_LANGUAGE = ("mis", "mul", "und", "zxx")  # https://www.loc.gov/standards/iso639-2/php/code_list.php


def _parts(code: str) -> list[str]:
    return re.split("[_.@-]", code)


def base_language(code: str) -> str:
    """A code without script and region, in two letters if it has such a code.

    >>> base_language("deu_Latn"), base_language("pt-BR"), base_language("de_DE")
    ('de', 'pt', 'de')
    """
    first = _parts(code)[0].lower()
    return TWO_LETTER_CODES.get(first, first)


def document_language(code: str) -> str:
    """The language of a code as documents declare it; "" for codes of no language.

    >>> document_language("deu_Latn"), document_language("pt_BR"), document_language("formal")
    ('de', 'pt', '')
    """
    base = base_language(code)
    return base if re.fullmatch("[a-z]{2,3}", base) and base not in NO_LANGUAGE else ""


def same_language(code: str, wanted: str) -> bool:
    """Whether two codes are equal, or one is a region of the other.

    >>> same_language("en-US", "en"), same_language("ENG", "en_GB"), same_language("pt_BR", "pt-PT")
    (True, True, False)
    """
    one, other = ("-".join([base_language(one), *_parts(one.lower())[1:]]) for one in (code, wanted))
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(short + "-")


def contradicts(code: str, other: str) -> bool:
    """Whether two codes are certainly of different languages, regions or scripts.

    A macrolanguage may be one of its languages, an unknown code of two letters one of three, and a region cannot be
    compared with a script.

    >>> contradicts("fr", "de_DE"), contradicts("fr-CA", "fra_Latn"), contradicts("nb", "no"), contradicts("zh", "yue")
    (True, False, False, False)
    >>> contradicts("en", "pcm"), contradicts("ar", "arz"), contradicts("sr", "hbs"), contradicts("ig", "ibo")
    (True, False, False, False)
    >>> contradicts("pt-BR", "pt_PT"), contradicts("zh-Hans", "zho_Hant"), contradicts("pt-BR", "pt")
    (True, True, False)
    """
    one, two = (SAME.get(base, base) for base in map(document_language, (code, other)))
    if one != two:
        known = min(one, two, key=len) in THREE_LETTER_CODES and not MACROLANGUAGES & {one, two}
        return len(one) == len(two) or known
    rests = [rest for one in (code, other) for rest in _parts(one.lower())[1:2] if rest != "xx"]  # any region
    return len(rests) == 2 and rests[0] != rests[1] and len(rests[0]) == len(rests[1])


def language_name(code: str) -> str:
    """The English name of a language; the code itself if unknown.

    >>> language_name("de"), language_name("deu_Latn"), language_name("xx")
    ('German', 'German', 'xx')
    """
    return LANGUAGE_NAMES.get(base_language(code), code)


def language_pair_of(model: Any) -> LanguagePair | None:
    """The language pair of a model, from its folder; None if unknown."""
    about = getattr(model, "about", None) or getattr(model, "hf_config", {})
    path = getattr(model, "path", None)
    names = str(about.get("languages", "")), str(about.get("_name_or_path", "")), path.name if path else ""
    return language_pair_in((about.get("corpus") or {}).get("train", ()), names)


def file_language(path: str, is_target: bool = False) -> str:
    """The code of a language that the name of a file of text ends with, or that a column of a dataset has; "" if none.

    >>> file_language("hf:wmt14?config=de-en&src=en&tgt=de", is_target=True)
    'de'
    >>> file_language("news.de.gz"), file_language("news.eng_Latn.txt"), file_language("news.src")
    ('de', 'eng_Latn', '')
    >>> file_language("news.sl"), file_language("news.tl", is_target=True)  # source and target language
    ('', '')
    """
    ending = Path(path).name.removesuffix(".gz").removesuffix(".txt").rpartition(".")[2]
    if path.startswith(HF_PREFIX):
        ending = dict(parse_qsl(path.partition("?")[2])).get(("src", "tgt")[is_target], "")
    known = document_language(ending) in LANGUAGE_NAMES and ending != ("sl", "tl")[is_target]
    return ending if known else ""


def language_pair_in(files: Sequence[str], names: Sequence[str]) -> LanguagePair | None:
    """The language pair that names tell: the endings of two files, or the end of a name, such as `news.en-de.tsv`.

    >>> language_pair_in(["a.en", "a.de.gz"], []), language_pair_in(["news.en-de.tsv"], [])
    (('en', 'de'), ('en', 'de'))
    """
    sides = [*files[:1]] * 2 if files and files[0].startswith(HF_PREFIX) else files[:2]
    if len(sides) > 1:
        source, target = file_language(sides[0]), file_language(sides[1], is_target=True)
        if source and target and not same_language(source, target):
            return document_language(source), document_language(target)
    for text in (*names, *(Path(name.removesuffix(".gz")).stem for name in files[:1])):
        found = PAIR_PATTERN.search(text)
        if found and found[1] != found[2] and {found[1], found[2]} <= LANGUAGE_NAMES.keys():
            return found[1], found[2]
    return None
