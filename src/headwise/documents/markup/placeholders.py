"""Finds text that a translation must contain unchanged: addresses, placeholders, tags, emoji, reStructuredText roles.

Formats: printf (`%s`, `%(name)s`, `%1$d`), braces of Python, .NET and ICU (`{0}`, `{name:.2f}`, `{when, date, short}`),
templates (`{{name}}`, `{% if name %}`, `<%= name %>`, `${name}`, `%name%`, `$t(name)`), `$NAME$` of browser extensions,
HTML tags and character references. A unit's `markup` adds a markup language and grammars of placeholders
(`placeholder_grammars.py`), such as "rst c". ICU messages with alternatives (`{n, plural, ...}`) have texts inside
their code and are not translated; `is_icu_choice` recognises them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from headwise.documents.markup.icu_messages import CHOICES, icu_spans
from headwise.documents.markup.inline_pairs import with_kinds
from headwise.documents.markup.placeholder_grammars import DIALECTS, LIKELY_PRINTF, NET, PYTHON_LIKELY
from headwise.documents.unit import Code, Parts, codes_of, join_parts, plain

# Every pattern runs in linear time (`test_scanners.py`): an unclosed opening before another opening is not a code, so
# no two searches for an end scan the same span; possessive quantifiers (`*+`) do not backtrack.
ADDRESS = r"https?://[^\s<>\"'`\]]*[^\s<>\"'`\].,;:!?)]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
TEMPLATE = r"\{%(?:[^%{\n]|%(?!\})|\{(?!%))*+%\}|\{#(?:[^#{\n]|#(?!\})|\{(?!#))*+#\}"
EMBEDDED = r"<%(?:[^%<]|%(?!>)|<(?!%))*+%>|<\?(?:[^?<]|\?(?!>)|<(?!\?))*+\?>"  # ERB, EJS, JSP, PHP
VARIABLE = r"\{\$[\w.-]++(?:\[[^\[\]{}]*+\])*+(?:\s[^{}]*+)?\}"  # {$NAME}, {$date :datetime}
BRACES = (
    rf"\{{{{2,3}}[^{{}}]*\}}{{2,3}}|\{{!![^{{}}]*!!\}}|{TEMPLATE}|{EMBEDDED}|[$%#@]\{{[^{{}}]*\}}|\$t\([^()]*\)|{VARIABLE}|{NET}|{PYTHON_LIKELY}|"
    r"\{[\w.\[\]!:,|<>^+#%-]*\}"
)
COMMENT = r"<!--(?:[^<\n-]|<(?!!--)|-(?!->))*+-->"
TAGS = rf"</?\d{{1,3}}/?>|</?[A-Za-z][\w:.-]*+(?:\s[^<>]*)?/?>|{COMMENT}|&(?:[A-Za-z]\w*|#\d+|#x[0-9A-Fa-f]+);"
# Flags, pictures with their variants and joined ones (https://unicode.org/reports/tr51), keycaps; no digits alone.
PICTURE = "[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f1e5\U0001f200-\U0001faff][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]?"
PICTURES = f"[\U0001f1e6-\U0001f1ff]{{2}}|{PICTURE}(?:\u200d{PICTURE})*|[0-9#*]\ufe0f?\u20e3"
IN_ORDER = re.compile(  # placeholders whose order is that of their values: `%s`, `{}`, `~a`
    r"%[-+#0 ,'*.\d]*+(?:hh?|ll?|[Lqjzt]|I64|I32)?[diouxXeEfFgGcrsap@]|\{(?:![rsa])?(?::[^{}]*)?\}|~[^~]*[adsrxobcefg]",
    re.IGNORECASE,
)
DATE = re.compile(r"%[-_^E]?[YmBbAHMSyjZIkl]")  # of `strftime`, in any order
HIGHLIGHTED = r"\[X\d{1,9}X\]"  # what Weblate sends for a placeholder
PLACEHOLDERS = f"(?=[{{$%#@<])(?:{BRACES}|{LIKELY_PRINTF})"  # the assertion spares most characters the alternatives
PLACEHOLDER_START = re.compile(r"[%{}$#@:~<']")  # one of these begins every placeholder, in every grammar
ANYWHERE = "|".join((ADDRESS, PLACEHOLDERS, TAGS, PICTURES, HIGHLIGHTED))
# In Markdown: `{: .class }`, `{#id}`, `{ width=3 }`, `:name:`, `$x$`, and `\\(x\\)`.
ATTRIBUTES = r"(?:\{:?[ \t]*(?:[.#][^{}\n]*|[\w-]+=[^{}\n]*)\})"
EMOJI = r"(?<![\w:`]):[a-z][\w+-]*:(?![\w:`])"
MATHS = (
    r"\$\$[^$]+\$\$|(?<![\w$\\])\$(?![\s$])(?:[^$\\]|\\.)*+(?<!\s)\$(?![\w$])|"
    r"\\\((?:[^\\]|\\[^()])*+\\\)"
)
OF_MARKUP = {  # regular expressions; those of `DIALECTS` precede them
    "": ANYWHERE,
    # A role with its target, a literal, a substitution, a footnote reference, and both ends of a link with a text; also
    # unclosed double backticks, because they would break the following text.
    "rst": (
        r":[\w:.+-]{1,64}:`[^`]+`|``.+?``|\|[\w.-]+\||\[[#\w*]+\]_|`_{1,2}(?!\w)|\s<[^<>`]+>`_{1,2}|(?<!\w)`(?=[^`\s])|"
        rf"\s?::(?=\s*$)|``|{ANYWHERE}"
    ),
    "apple": rf"%(?:\d+\$)?#@\w+@|{ANYWHERE}",
    "qt": rf"%L?(?:\d{{1,2}}|n\b)|{ANYWHERE}",
    "ruby": rf"%\{{[^{{}}]*\}}|%<\w+>[-+ #\d.]*+\w|{ANYWHERE}",
    # Of a file: also interpreted text, references by name, citations and escapes.
    "restructuredtext": (
        r":[\w:.+-]{1,64}:`[^`]+`|``.+?``(?!`)|(?<![\w|])\|[^\s|](?:[^|\n]{0,80}[^\s|])?\|_{0,2}(?!\w)|\[[#*\w.-]+\]_|\\.|"
        r"(?<![\w`])`[^`<>]+`(?![_`\w])(?::[\w:.+-]{1,64}:)?|`_{1,2}(?!\w)|\s<[^<>`]+>`_{1,2}|(?<!\w)`(?=[^`\s])|"
        r"(?<![\w!#-&)-.;=>?@\\\]^`|}~])[A-Za-z0-9](?:[\w.+-]{0,80}[A-Za-z0-9])?_{1,2}(?![\w#-&(*+<=@\[^`{|~])|"
        r"\s?::(?=\s*$)|``|"
        rf"{ANYWHERE}"
    ),
    "extension": rf"\$\w+\$|\$\d|{ANYWHERE}",
    # An escaped character, a reference whose text is code, a role, code, a footnote, an address, a wiki link, maths, a
    # comment of MDX, an emoji, an attribute list, a key, critic markup, super- and subscripts, ends of links and images
    # (`inline_pairs.py` finds their beginnings), and emphasis, which starts or ends at a word; not `_` inside a word.
    "markdown": (
        rf"{MATHS}|\{{/\*(?:[^*]|\*(?!/))*+\*/\}}|"
        r"\\[!-/:-@\[-`{-~]|\[`+[^`\[\]]+`+\](?!\()(?:\[[^\[\]]*\])?|"
        rf"(?:\{{[\w:+.-]{{1,64}}\}})?(?<!`)(`{{1,9}})(?!`).*?(?<!`)\1(?!`){ATTRIBUTES}?|\[\^[^\s\[\]]+\]:?|"
        rf"<[^<>\s:@]*[:@][^<>\s]*>|\[\[[^\[\]\n]+\]\]|{EMOJI}{ATTRIBUTES}?|"
        r"\+\+[\w+-]+\+\+|\{(?:\+\+|--|~~|==|>>)|(?:\+\+|--|~~|==|<<)\}|~>|==|\^\^|"
        r"(?<=\w)~[^~\s]{1,64}~(?!~)|\^[^\^\s\[\]]{1,64}\^|\]\[[^\[\]]*\]|"
        r"\]\(\s*+(?:<[^<>]*>|(?:[^()\s]|\([^()\s]*\))*+)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)"
        rf"{ATTRIBUTES}?|{ATTRIBUTES}|"
        rf"{ANYWHERE}|(?<!\s)\*+|\*+(?!\s)|(?<!\w)_++(?!\s)|(?<![\s_])_++(?!\w)|~~|`+"
    ),
}


def with_codes(parts: Parts, markup: str = "") -> Parts:
    """Parts with placeholders, tags and addresses in their strings turned into codes, and every code with its kind.

    >>> [part if isinstance(part, str) else part.text for part in with_codes(("Delete {n} of %(all)s files?",))]
    ['Delete ', '{n}', ' of ', '%(all)s', ' files?']
    >>> with_codes(("100% of us",))
    ('100% of us',)
    >>> [part if isinstance(part, str) else part.text for part in with_codes(("{% if a %}New: {% endif %}{{ b }}",))]
    ['{% if a %}', 'New: ', '{% endif %}', '{{ b }}']
    """
    pieces: list[str | Code] = []
    for part in parts:
        pieces += _split(part, markup) if isinstance(part, str) else [part]
    return with_kinds(join_parts(pieces), markup)


def _split(text: str, markup: str) -> Iterator[str | Code]:
    at = 0
    for start, end in _spans(text, markup):
        yield text[at:start]
        yield Code(text[start:end])
        at = end
    yield text[at:]


def _spans(text: str, markup: str, everything: bool = True) -> Iterator[tuple[int, int]]:
    """The spans of all codes of a text, or only of its placeholders; where two overlap, the first or longer one."""
    pattern, at = _pattern(markup, everything), 0
    found = pattern.search(text)
    for argument in icu_spans(text, "icu" in markup.split()):
        while found and found.start() < argument.start:
            yield found.span()
            at = found.end()
            found = pattern.search(text, at)
        if argument.start < at or argument.kind in CHOICES:
            continue
        at = max(argument.end, found.end() if found and found.start() == argument.start else 0)
        yield argument.start, at
        if found and found.start() < at:
            found = pattern.search(text, at)
    while found:
        yield found.span()
        found = pattern.search(text, found.end())


@cache
def _pattern(markup: str, everything: bool) -> re.Pattern[str]:
    """For a `Unit.markup`: at most one key of `OF_MARKUP` and any of `DIALECTS`, separated by blanks."""
    names = markup.split()
    grammars = [DIALECTS[name] for name in names if name not in OF_MARKUP]
    if everything:
        grammars.append(OF_MARKUP[next((name for name in names if name in OF_MARKUP), "")])
    else:
        grammars.append(PLACEHOLDERS)
    return re.compile("|".join(filter(None, grammars)))


def adds_codes(source: Parts, target: Parts, markup: str = "") -> bool:
    """Whether the plain text of a translation has codes that its source does not have.

    >>> adds_codes(("100 files",), ("100%s",)), adds_codes(("a ", Code("``b``")), ("``a ", Code("``b``")), "rst")
    (True, True)
    >>> adds_codes(("%d of ", Code("%d")), (Code("%d"),))
    False
    """
    found = _codes_in(plain(target), markup)
    return bool(found and found - _codes_in(plain(source), markup))


def same_placeholders(source: Parts, target: Parts, markup: str = "") -> bool:
    """Whether two texts have the same placeholders, each as often; codes of the file format do not count.

    >>> same_placeholders((Code("%d"), "MB of ", Code("%s")), (Code("%s"), ": ", Code("%d"), "MB"))
    True
    >>> same_placeholders(("in ", Code(":name")), ("in", Code(":name")), "laravel")
    False
    """
    texts = _without_inline(target), _without_inline(source)
    if not any(map(PLACEHOLDER_START.search, texts)):
        return True
    found, wanted = (_codes_in(text, markup, everything=False) for text in texts)
    return found == wanted


def in_order(source: Parts, target: Parts) -> bool:
    """Whether placeholders that take their values one after the other have the order of the source.

    The codes of the target are those of the source, as the same objects.

    >>> name, number = Code("%s"), Code("%d")
    >>> in_order((name, ": ", number), (number, " ", name)), in_order((name, ": ", number), (name, number))
    (False, True)
    """
    codes = codes_of(source)
    numbers = {id(code): n for n, code in enumerate(codes) if IN_ORDER.fullmatch(code.text)}
    if len(numbers) < 2 or any(DATE.fullmatch(code.text) for code in codes):
        return True
    order = [numbers[id(code)] for code in codes_of(target) if id(code) in numbers]
    return order == sorted(order)


def _codes_in(text: str, markup: str, everything: bool = True) -> Counter[str]:
    return Counter(text[start:end] for start, end in _spans(text, markup, everything))


def _without_inline(parts: Parts) -> str:
    """The text with a null character for each inline code but templates, so that nothing joins across it."""
    return plain(tuple("\0" if _is_markup(part) else part for part in parts))


def _is_markup(part: str | Code) -> bool:
    return isinstance(part, Code) and part.inline and not part.text.startswith(("<%", "<?"))


def is_icu_choice(parts: Parts, markup: str = "") -> bool:
    """Whether a text is an ICU message with alternatives inside its code.

    >>> is_icu_choice(("{n, plural, one {a file} other {# files}}",)), is_icu_choice(("{n} files",))
    (True, False)
    """
    quotes = "icu" in markup.split()
    return any(one.kind in CHOICES for part in parts if isinstance(part, str) for one in icu_spans(part, quotes))
