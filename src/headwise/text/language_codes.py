"""Codes of languages as models and files write them: `de`, `deu_Latn`, `pt-BR`, `de_DE`, `sr@latin`."""

import re

TWO_LETTER_CODES = {
    "eng": "en", "deu": "de", "fra": "fr", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "rus": "ru", "zho": "zh",
    "jpn": "ja", "arb": "ar", "pol": "pl", "ces": "cs", "tur": "tr", "ukr": "uk", "swe": "sv", "fin": "fi",
}  # fmt: skip
SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}
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

    >>> same_language("en-US", "en"), same_language("EN", "en_GB"), same_language("pt_BR", "pt-PT")
    (True, True, False)
    """
    one, other = code.lower().replace("_", "-"), wanted.lower().replace("_", "-")
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(short + "-")


def contradicts(code: str, other: str) -> bool:
    """Whether two codes are certainly of different languages, regions or scripts.

    Codes of two and of three letters may be of the same language; a region cannot be compared with a script.

    >>> contradicts("fr", "de_DE"), contradicts("fr-CA", "fra_Latn"), contradicts("nb", "no"), contradicts("zh", "yue")
    (True, False, False, False)
    >>> contradicts("pt-BR", "pt_PT"), contradicts("zh-Hans", "zho_Hant"), contradicts("pt-BR", "pt")
    (True, True, False)
    """
    one, two = (SAME.get(base, base) for base in map(document_language, (code, other)))
    if one != two:
        return len(one) == len(two)
    rests = [rest for one in (code, other) for rest in _parts(one.lower())[1:2] if rest != "xx"]  # any region
    return len(rests) == 2 and rests[0] != rests[1] and len(rests[0]) == len(rests[1])
