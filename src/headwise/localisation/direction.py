"""Writing directions of languages, for formats that declare them."""

RTL_LANGUAGES = {
    *("ar", "ara", "arb", "arc", "ckb", "dv", "fa", "fas", "he", "heb", "iw", "nqo", "pes", "prs", "ps", "sd", "syr"),
    *("ug", "ur", "urd", "yi"),
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
