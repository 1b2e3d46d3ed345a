"""Plural categories of languages, and the plural forms of their gettext catalogues.

Categories are those of CLDR 47 (https://cldr.unicode.org/index/cldr-spec/plural-rules, Unicode License v3). The rules
of forms are its rules for integers, in the syntax of gettext; a test compares them. Forms that only fractions or
millions have are left out, as by gettext.
"""

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
_FEW = "n%10>=2 && n%10<=4 && (n%100<12 || n%100>14)"
_TEENS = "n%100>=11 && n%100<=19"
RULES = {  # the rule: its languages
    "nplurals=1; plural=0;": "ja ko zh yue vi th id ms lo my km jv su bo dz wo yo ig to ii sg sah kde",
    "nplurals=2; plural=(n > 1);": "fr pt hy fa hi bn gu kn am as zu si pa ti mg wa ak ln nso bho ff kab ht doi pcm",
    "nplurals=2; plural=(n != 1);": "en de nl sv nb nn no da fi et it es ca gl eu pt_PT el bg hu tr az uz kk ky tk ka "
    "sq sw ta te ml mr ne ur ps ku ckb or mn af fy lb rm fo eo ia io ug ha so sn st ss xh ts tn ny ee lg om ast fur sc "
    "scn an yi sd dv gsw bal ce os ks",
    "nplurals=2; plural=(n%10!=1 || n%100==11);": "is mk",
    "nplurals=2; plural=(n!=1 && n!=2 && n!=3 && (n%10==4 || n%10==6 || n%10==9));": "fil tl ceb",
    f"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : {_FEW} ? 1 : 2);": "ru uk be sr hr bs",
    "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);": "cs sk",
    f"nplurals=3; plural=(n==1 ? 0 : {_FEW} ? 1 : 2);": "pl",
    "nplurals=3; plural=(n%10==1 && (n%100<11 || n%100>19) ? 0 : n%10>=2 && (n%100<11 || n%100>19) ? 1 : 2);": "lt",
    f"nplurals=3; plural=(n%10==0 || ({_TEENS}) ? 0 : n%10==1 && n%100!=11 ? 1 : 2);": "lv",
    "nplurals=3; plural=(n==1 ? 0 : n==0 || (n%100>=1 && n%100<=19) ? 1 : 2);": "ro mo",
    "nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);": "he iu se smn sma",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl hsb dsb",
    "nplurals=4; plural=(n==1 || n==11 ? 0 : n==2 || n==12 ? 1 : n>=3 && n<=19 ? 2 : 3);": "gd",
    "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n>=3 && n<=6 ? 2 : n>=7 && n<=10 ? 3 : 4);": "ga",
    f"nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n==0 || (n%100>=3 && n%100<=10) ? 2 : {_TEENS} ? 3 : 4);": "mt",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n==3 ? 3 : n==6 ? 4 : 5);": "cy",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);": "ar",
}
_RULE_BY_LANGUAGE = {language: rule for rule, languages in RULES.items() for language in languages.split()}


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


def plural_rule(language: str) -> str:
    """The value of `Plural-Forms` for a language code; "" if it is unknown.

    >>> plural_rule("de-AT"), plural_rule("pt_PT"), plural_rule("zh-Hant"), plural_rule("tlh")
    ('nplurals=2; plural=(n != 1);', 'nplurals=2; plural=(n != 1);', 'nplurals=1; plural=0;', '')
    """
    parts = language.replace("-", "_").split("_")
    return _RULE_BY_LANGUAGE.get("_".join(parts[:2])) or _RULE_BY_LANGUAGE.get(parts[0].lower(), "")
