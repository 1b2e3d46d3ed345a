r"""The grammars of placeholders by language or library, as regular expressions.

`PRINTF` has the dialects of `printf`, `DIALECTS` all grammars that apply only where a file says so: by its type, or by
a flag of gettext (`GETTEXT_FLAGS`). `placeholders.py` adds what applies everywhere. In ordinary text `%` follows a
number: a directive with a blank (`% d`) is one only if neither a digit precedes nor a letter follows.

Sources: the format strings chapter of the gettext manual
(https://www.gnu.org/software/gettext/manual/html_node/Translators-for-other-Languages.html) and the manuals of the
languages. ICU has a parser (`icu_messages.py`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PrintfDialect:
    """The parts of a directive, as regular expressions."""

    conversions: str  # the last letter, as the inside of a class
    flags: str = "-+#0"  # the same for flags, without the blank
    position: str = r"\d++\$"  # before the flags
    size: str = ""  # before the conversion
    more: str = ""  # further directives


C_SIZES = "hh?|ll?|[Lqjzt]|I64|I32|w?I|w\\d{1,2}"
JAVA_DATES = r"%(?:\d++\$|<)?[-+#0,(]*+\d*+[tT][A-Za-z]"
C_MACROS = r"%[-+#0 ']*+\d*+(?:\.\d*+)?<PRI[a-zA-Z]++\d*+>"  # `%<PRIu64>`, as xgettext writes it
PRINTF = {
    "c": PrintfDialect("diouxXeEfFgGaAcCsSpnmbB", "-+#0'I", size=C_SIZES, more=C_MACROS),
    "objc": PrintfDialect("diouxXeEfFgGaAcCsSpnmDUO@", "-+#0'", size=C_SIZES, more=r"%(?:\d++\$)?#@\w++@"),
    "gcc-internal": PrintfDialect("diouxXeEfFgGcCsSpnmvDEFTVKJZOPRLHIQXAdw<>{}'r@k", "-+#0q'", size=C_SIZES),
    "java-printf": PrintfDialect("bBhHsScCdoxXeEfgGaAn", "-+#0,(", r"\d++\$|<", more=JAVA_DATES),
    "python": PrintfDialect("diouxXeEfFgGcrsa", position=r"\([^()\n]*+\)", size="[hlL]"),
    "php": PrintfDialect("bcdeEfFgGhHosuxX", "-+#0", more=r"%(?:\d++\$)?[-+]?'.[-+]?\d*+(?:\.\d++)?[bcdeEfFgGhHosuxX]"),
    "go": PrintfDialect("vTtbcdoOqxXUeEfFgGspw", more=r"%[-+#0]*+(?:[.*\d]|\[\d++\])*+[vTtbcdoOqxXUeEfFgGspw]"),
    "perl": PrintfDialect("cdiouxXeEfFgGsnpDUOaAbBv", size="hh?|ll?|[qLVzt]", more=r"%(?:\d++\$)?vd"),
    "ruby-printf": PrintfDialect("diouxXeEfgGcspaAbB", more=r"%\{[^{}]*+\}|%<\w++>[-+ #\d.]*+\w"),
    "lua": PrintfDialect("aAcdeEfgGioqsuxX"),
    "tcl": PrintfDialect("cdiouxXeEfgGs", size="[hlLz]"),
    "awk": PrintfDialect("acdiouxXeEfFgGs"),
    "elisp": PrintfDialect("diouxXeEfgGcsS"),
    "ocaml": PrintfDialect("diouxXeEfFgGhHcCsSBbatnlNL", "-+#0_", position="", size="[lnL]", more="%!|%,|%@"),
    "pascal": PrintfDialect("deufgnmsxpDEUFGNMSXP", "-", r"(?:\d++|\*):"),
    "javascript": PrintfDialect("bcdoOxXfijsS"),
}  # fmt: skip


def printf_pattern(dialect: PrintfDialect) -> str:
    """A regular expression for the directives of a dialect, with `%%`; it has no groups that capture."""
    position, size = (f"(?:{part})?" if part else "" for part in (dialect.position, dialect.size))
    width, precision = r"(?:\*(?:\d++\$)?|\d*+)", r"(?:\.(?:\*(?:\d++\$)?|-?\d*+))?"
    rest = f"{width}{precision}{size}[{dialect.conversions}]"
    sure = f"%{position}[{dialect.flags}]*+{rest}"
    spaced = rf"(?<![\d%])(?<![\d%][ \xa0])%{position}[{dialect.flags} ]*+{rest}(?![A-Za-z])"
    return f"(?=%)(?:{'|'.join(filter(None, (dialect.more, sure, spaced, '%%')))})"


# `{0,-10:N2}`, `{0:yyyy-MM-dd HH:mm}`; https://learn.microsoft.com/dotnet/standard/base-types/composite-formatting
NET = r"\{\d++\s*+(?:,\s*+-?\d++\s*+)?(?::[^{}]*+)?\}"
# https://docs.python.org/3/library/string.html#format-string-syntax, with fields inside the format specification.
PYTHON_FIELD = r"\{(?:[\w.]|\[[^\[\]{}]*+\])*+(?:![rsa])?"
PYTHON_FORMAT = rf"{PYTHON_FIELD}(?::(?:[^{{}}]|\{{[^{{}}]*+\}})*+)?\}}"
# The same where it may be ordinary text in braces: no blank, except in a format of dates (`{when:%d %B %Y}`).
PYTHON_LIKELY = rf"{PYTHON_FIELD}:(?:%[^{{}}]*+|(?:[^{{}}\s]|\{{[\w.]*+\}})*+)\}}"
ESCAPED_BRACES = r"\{\{|\}\}"
# https://laravel.com/docs/localization; not in `10:30`, `a: b`, `::`; Chinese letters may touch it.
LARAVEL = r"(?<![A-Za-z0-9_:/]):[A-Za-z][A-Za-z0-9_]*+"
NUMBERED = r"%L?\d{1,2}"
DIALECTS = {
    **{name: printf_pattern(dialect) for name, dialect in PRINTF.items()},
    "csharp": rf"{ESCAPED_BRACES}|{NET}",
    "python-brace": rf"{ESCAPED_BRACES}|{PYTHON_FORMAT}",
    "rust": rf"{ESCAPED_BRACES}|\{{\w*+(?::[^{{}}]*+)?\}}",
    "perl-brace": r"\{\w++\}",
    "qt-numbered": rf"{NUMBERED}|%n(?![A-Za-z])",
    "shell": r"\$(?:[A-Za-z0-9_]++|\{[^{}]*+\})",
    "lisp": r"~(?:[-+]?\d{1,9}|'.|[vV#,]){0,16}+[:@]{0,2}+[A-Za-z%&|~$*?<>\[\](){}!;^_/]|~[:@]?\n[ \t]*+",
    "boost": rf"%\d++%|%\|[^|\n]*+\||{printf_pattern(PRINTF['c'])}",
    "icu": "",  # `icu_messages.py`, with quoting
    "php": rf"{LARAVEL}|{printf_pattern(PRINTF['php'])}",
    "laravel": LARAVEL,
}
GETTEXT_FLAGS = {  # the dialects of `#, NAME-format`
    "c": "c", "c++": "python-brace", "objc": "objc", "gcc-internal": "gcc-internal", "gfc-internal": "gcc-internal",
    "python": "python", "python-brace": "python-brace", "java": "icu", "java-printf": "java-printf",
    "csharp": "csharp", "javascript": "javascript", "typescript": "javascript", "php": "php", "go": "go",
    "rust": "rust", "ruby": "ruby-printf", "perl": "perl", "perl-brace": "perl-brace", "lua": "lua", "tcl": "tcl",
    "awk": "awk", "elisp": "elisp", "librep": "elisp", "ocaml": "ocaml", "object-pascal": "pascal", "d": "c",
    "modula2": "c", "qt": "qt-numbered", "qt-plural": "qt-numbered", "kde": "qt-numbered", "kde-kuit": "qt-numbered",
    "smalltalk": "qt-numbered", "ycp": "qt-numbered", "sh": "shell", "sh-printf": "c", "lisp": "lisp",
    "scheme": "lisp", "boost": "boost",
}  # fmt: skip
# What is a directive of printf in any text: a letter may follow where a position, a name, a precision or a size makes
# it certain, or where both are a short word, as in `%dMB`. Nothing is one where a number and a blank precede and a
# letter follows, as in `5 %de`.
SIZES = "hh?|ll?|[Lqjzt]|I64|I32"
CONVERSIONS = "diouxXeEfFgGcrsap@"
WIDTH = r"(?:\*|\d++)"
NO_NUMBER = r"(?<![\d%])(?<![\d%][ \xa0])"
LIKELY_PRINTF = "|".join(
    (
        r"(?<!\d)%%\w++%%|%\w++%(?![%\w])",  # %name%, and %d% without a doubled sign
        rf"%\d++\$[-+#0,(']*+(?:\*\d++\$|\d*+)(?:\.\d++)?(?:{SIZES})?(?:[tT][A-Za-z]|[A-Za-z@])",  # %1$,d %1$tY
        rf"%\([\w.-]++\)[-+#0]*+\d*+(?:\.\d++)?(?:{SIZES})?[diouxXeEfFgGcrsa]",  # %(name)s
        rf"{NO_NUMBER}%[-+#0,]*+{WIDTH}?\.{WIDTH}(?:{SIZES})?[eEfFgGsdu@]",  # %.1fs
        rf"{NO_NUMBER}%[-+#0,]*+(?:\*|0\d++)(?:{SIZES})?[{CONVERSIONS}]",  # %*d %02dh
        rf"{NO_NUMBER}%(?:hh?|ll?|[zj]|I64|I32)[diouxX](?![a-z]{{2}})",  # %lldx
        rf"%[-+#0,]*+{WIDTH}?(?:\.\d++)?(?:{SIZES})?[{CONVERSIONS}](?![A-Za-z])",
        rf"{NO_NUMBER}%[-_^E]?[A-Za-z](?![A-Za-z%])",  # dates: %Y
        rf"{NO_NUMBER}%[dfsu](?=[A-Za-z]{{1,3}}(?![A-Za-z%]))",  # %dMB
        rf"(?<!\w){NO_NUMBER}%\d[dfsu](?=[A-Za-z]{{1,3}}(?![A-Za-z%]))",  # %2dx
        "%@|%%",
        r"%\w++%",
    )
)
