"""Plural categories of languages, from CLDR 47 (https://cldr.unicode.org/index/cldr-spec/plural-rules)."""

CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_LANGUAGES = {
    "other": "bm bo dz hnj id ig ii ja jbo jv kde kea km ko lkt lo ms my nqo osa sah ses sg su th to vi wo yo yue zh",
    "one two other": "he iu naq sat se sma smj smn sms",
    "one few many other": "be cs lt pl ru sk uk",
    "one many other": "ca es fr it lld pt pt-pt scn vec",
    "zero one other": "blo ksh lag lv prg",
    "zero one two few many other": "ar cy kw",
    "one two few other": "dsb gd hsb sl",
    "one few other": "bs hr ro sh shi sr",
    "one two few many other": "br ga gv mt",
    "one other": "af ak am an as asa ast az bal bem bez bg bho bn brx ce ceb cgg chr ckb csw da de doi dv ee el en eo "
    "et eu fa ff fi fil fo fur fy gl gsw gu guw ha haw hi hu hy ia io is jgo jmc ka kab kaj kcg kk kkj kl kn ks ksb "
    "ku ky lb lg lij ln mas mg mgo mk ml mn mr nah nb nd ne nl nn nnh no nr nso ny nyn om or os pa pap pcm ps rm rof "
    "rwk saq sc sd sdh seh si sn so sq ss ssy st sv sw syr ta te teo ti tig tk tl tn tr ts tzm ug ur uz ve vo vun wa "
    "wae xh xog yi zu",
}
_BY_LANGUAGE = {code: names.split() for names, codes in _LANGUAGES.items() for code in codes.split()}


def plural_categories(language: str) -> list[str]:
    """The plural categories of a language, "other" last; none for an unknown language.

    >>> plural_categories("ru"), plural_categories("pt-BR"), plural_categories("tlh")
    (['one', 'few', 'many', 'other'], ['one', 'many', 'other'], [])
    """
    base = language.lower().replace("_", "-").partition("-")[0]
    return list(_BY_LANGUAGE.get(base, ()))


def missing_categories(present: list[str], language: str) -> list[str]:
    """The categories of a language that a set of plural texts lacks, if it has "other".

    >>> missing_categories(["one", "other"], "pl"), missing_categories(["one", "other"], "ja")
    (['few', 'many'], [])
    """
    return [name for name in plural_categories(language) if name not in present] if "other" in present else []
