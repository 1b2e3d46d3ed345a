"""Writing directions and fonts of languages, for formats that declare them."""

RTL_LANGUAGES = {
    *("ar", "ara", "arb", "arc", "ckb", "dv", "fa", "fas", "he", "heb", "iw", "nqo", "pes", "prs", "ps", "sd", "syr"),
    *("ug", "ur", "urd", "yi"),
}
EAST_ASIAN = {  # languages, and their locales
    **dict.fromkeys(("zh", "zho", "cmn"), "zh-CN"),
    **{"yue": "zh-HK", "ja": "ja-JP", "jpn": "ja-JP", "ko": "ko-KR", "kor": "ko-KR"},
}
CHINESE = {"hant": "zh-TW", "tw": "zh-TW", "hk": "zh-HK", "mo": "zh-HK"}  # by other parts of a language code
COMPLEX = {
    *("hi", "hin", "th", "tha", "bn", "ben", "ta", "tam", "te", "tel", "mr", "mar", "ne", "npi", "km", "khm"),
    *("lo", "lao"),
}
RTL_SCRIPTS = {"adlm", "arab", "hebr", "nkoo", "rohg", "syrc", "thaa"}


def direction_of(language: str) -> str:
    """`rtl` or `ltr`, by the script in a language code or else by its language; "" for "".

    >>> direction_of("ar-EG"), direction_of("uz_Arab"), direction_of("ar-Latn"), direction_of("")
    ('rtl', 'rtl', 'ltr', '')
    """
    base, *subtags = language.lower().replace("_", "-").split("-")
    scripts = {tag for tag in subtags if len(tag) == 4 and tag.isalpha()}
    is_rtl = bool(RTL_SCRIPTS & scripts) if scripts else base in RTL_LANGUAGES
    return "" if not base else "rtl" if is_rtl else "ltr"


def font_variant(language: str) -> str:
    """The suffix of font properties in OpenDocument for the script of a language: `asian`, `complex`, or "" for others.

    >>> font_variant("ja"), font_variant("he-IL"), font_variant("de")
    ('asian', 'complex', '')
    """
    base = language.lower().replace("_", "-").partition("-")[0]
    return "asian" if base in EAST_ASIAN else "complex" if direction_of(language) == "rtl" or base in COMPLEX else ""


def east_asian_locale(language: str) -> str:
    """The locale of an East Asian language, which decides on the shapes of characters; "" for other languages.

    >>> east_asian_locale("ja"), east_asian_locale("zho_Hant"), east_asian_locale("de")
    ('ja-JP', 'zh-TW', '')
    """
    base, *subtags = language.lower().replace("_", "-").split("-")
    locale = EAST_ASIAN.get(base, "")
    return next((CHINESE[tag] for tag in subtags if tag in CHINESE), locale) if locale.startswith("zh") else locale
