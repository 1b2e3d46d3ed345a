"""Finds text that a translation must contain unchanged: addresses, placeholders, tags, emoji, reStructuredText roles.

Formats: C and Python (`%s`, `%(name)s`, `%1$d`), braces of Python, .NET and ICU (`{0}`, `{name:.2f}`), templates
(`{{name}}`, `{% if name %}`, `${name}`, `%name%`, `$t(name)`), `$NAME$` of browser extensions, HTML tags and character
references. ICU messages with alternatives (`{n, plural, ...}`) have texts inside their code and are not translated;
`is_icu_choice` recognises them.
"""

import re
from collections import Counter
from collections.abc import Iterator

from headwise.localisation.unit import Code, Parts, join_parts, plain

# Every pattern runs in linear time (`test_scanners.py`): an unclosed opening before another opening is not a code, so
# no two searches for an end scan the same span; possessive quantifiers (`*+`) do not backtrack.
ADDRESS = r"https?://[^\s<>\"'`\]]*[^\s<>\"'`\].,;:!?)]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
TEMPLATE = r"\{%(?:[^%{\n]|%(?!\})|\{(?!%))*+%\}|\{#(?:[^#{\n]|#(?!\})|\{(?!#))*+#\}"
BRACES = rf"\{{\{{[^{{}}]*\}}\}}|{TEMPLATE}|\$\{{[^{{}}]*\}}|\$t\([^()]*\)|\{{[\w.\[\]!:,<>^+#%-]*\}}"
SIZE = r"(?:hh?|ll?|[Lqjzt])?"
PERCENT = rf"%(?:\d++\$)?(?:\(\w+\))?[-+#0]*+\d*+(?:\.\d+)?{SIZE}[diouxXeEfFgGcrsa@](?![A-Za-z])|%%|%\w+%"
COMMENT = r"<!--(?:[^<\n-]|<(?!!--)|-(?!->))*+-->"
TAGS = rf"</?[A-Za-z][\w:.-]*+(?:\s[^<>]*)?/?>|{COMMENT}|&(?:[A-Za-z]\w*|#\d+|#x[0-9A-Fa-f]+);"
# Flags, pictures with their variants and joined ones (https://unicode.org/reports/tr51), keycaps; no digits alone.
PICTURE = "[\u2600-\u27bf\u2b50\u2b55\U0001f000-\U0001f1e5\U0001f200-\U0001faff][\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]?"
PICTURES = f"[\U0001f1e6-\U0001f1ff]{{2}}|{PICTURE}(?:\u200d{PICTURE})*|[0-9#*]\ufe0f?\u20e3"
HIGHLIGHTED = r"\[X\d{1,9}X\]"  # what Weblate sends for a placeholder
ANYWHERE = "|".join((ADDRESS, BRACES, PERCENT, TAGS, PICTURES, HIGHLIGHTED))
# In Markdown: `{: .class }`, `{#id}`, `{ width=3 }`, `:name:`, `$x$`, and `\\(x\\)`.
ATTRIBUTES = r"(?:\{:?[ \t]*(?:[.#][^{}\n]*|[\w-]+=[^{}\n]*)\})"
EMOJI = r"(?<![\w:`]):[a-z][\w+-]*:(?![\w:`])"
MATHS = (
    r"\$\$[^$]+\$\$|(?<![\w$\\])\$(?![\s$])(?:[^$\\]|\\.)*+(?<!\s)\$(?![\w$])|"
    r"\\\((?:[^\\]|\\[^()])*+\\\)"
)
OF_MARKUP = {
    "": re.compile(ANYWHERE),
    # A role with its target, a literal, a substitution, a footnote reference, and both ends of a link with a text; also
    # unclosed double backticks, because they would break the following text.
    "rst": re.compile(
        r":[\w:.+-]{1,64}:`[^`]+`|``.+?``|\|[\w.-]+\||\[[#\w*]+\]_|`_{1,2}(?!\w)|\s<[^<>`]+>`_{1,2}|(?<!\w)`(?=[^`\s])|"
        rf"\s?::(?=\s*$)|``|{ANYWHERE}"
    ),
    "apple": re.compile(rf"%(?:\d+\$)?#@\w+@|{ANYWHERE}"),
    "qt": re.compile(rf"%L?(?:\d{{1,2}}|n\b)|{ANYWHERE}"),
    "ruby": re.compile(rf"%\{{[^{{}}]*\}}|%<\w+>[-+ #\d.]*+\w|{ANYWHERE}"),
    # Of a file: also interpreted text, references by name, citations and escapes.
    "restructuredtext": re.compile(
        r":[\w:.+-]{1,64}:`[^`]+`|``.+?``(?!`)|\|[^\s|](?:[^|\n]{0,80}[^\s|])?\|_{0,2}|\[[#*\w.-]+\]_|\\.|"
        r"(?<![\w`])`[^`<>]+`(?![_`\w])(?::[\w:.+-]{1,64}:)?|`_{1,2}(?!\w)|\s<[^<>`]+>`_{1,2}|(?<!\w)`(?=[^`\s])|"
        r"(?<![\w.+-])[A-Za-z0-9](?:[\w.+-]{0,80}[A-Za-z0-9])?_{1,2}(?![\w])|\s?::(?=\s*$)|``|"
        rf"{ANYWHERE}"
    ),
    "extension": re.compile(rf"\$\w+\$|\$\d|{ANYWHERE}"),
    # An escaped character, a reference whose text is code, a role, code, a footnote, an address, a wiki link, maths, an
    # emoji, an attribute list, a key, critic markup, super- and subscripts, both ends of links, images and emphasis,
    # which starts or ends at a word; not `_` inside a word.
    "markdown": re.compile(
        rf"{MATHS}|"
        r"\\[!-/:-@\[-`{-~]|\[`+[^`\[\]]+`+\](?!\()(?:\[[^\[\]]*\])?|"
        rf"(?:\{{[\w:+.-]{{1,64}}\}})?(?<!`)(`{{1,9}})(?!`).*?(?<!`)\1(?!`){ATTRIBUTES}?|\[\^[^\s\[\]]+\]:?|"
        rf"<[^<>\s:@]*[:@][^<>\s]*>|\[\[[^\[\]\n]+\]\]|{EMOJI}{ATTRIBUTES}?|"
        r"\+\+[\w+-]+\+\+|\{(?:\+\+|--|~~|==|>>)|(?:\+\+|--|~~|==|<<)\}|~>|==|\^\^|"
        r"(?<=\w)~[^~\s]{1,64}~(?!~)|\^[^\^\s\[\]]{1,64}\^|!?\[(?=[^\]]{0,999}+\][(\[])|\]\[[^\[\]]*\]|"
        r"\]\((?:<[^<>]*>|(?:[^()\s]|\([^()\s]*\))*+)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)"
        rf"{ATTRIBUTES}?|{ATTRIBUTES}|"
        rf"{ANYWHERE}|(?<!\s)\*+|\*+(?!\s)|(?<!\w)_++(?!\s)|(?<![\s_])_++(?!\w)|~~|`+"
    ),
}
ICU_CHOICE_PATTERN = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def with_codes(parts: Parts, markup: str = "") -> Parts:
    """Parts with placeholders, tags and addresses in their strings turned into codes.

    >>> [part if isinstance(part, str) else part.text for part in with_codes(("Delete {n} of %(all)s files?",))]
    ['Delete ', '{n}', ' of ', '%(all)s', ' files?']
    >>> with_codes(("100% of us",))
    ('100% of us',)
    >>> [part if isinstance(part, str) else part.text for part in with_codes(("{% if a %}New: {% endif %}{{ b }}",))]
    ['{% if a %}', 'New: ', '{% endif %}', '{{ b }}']
    """
    return join_parts(
        [piece for part in parts for piece in (_split(part, markup) if isinstance(part, str) else [part])]
    )


def _split(text: str, markup: str) -> Iterator[str | Code]:
    at = 0
    for found in OF_MARKUP[markup].finditer(text):
        yield text[at : found.start()]
        yield Code(found[0])
        at = found.end()
    yield text[at:]


def adds_codes(source: Parts, target: Parts, markup: str = "") -> bool:
    """Whether the plain text of a translation has codes that its source does not have.

    >>> adds_codes(("100 files",), ("100%s",)), adds_codes(("a ", Code("``b``")), ("``a ", Code("``b``")), "rst")
    (True, True)
    >>> adds_codes(("%d of ", Code("%d")), (Code("%d"),))
    False
    """
    pattern = OF_MARKUP[markup]
    found, wanted = (Counter(one[0] for one in pattern.finditer(plain(parts))) for parts in (target, source))
    return bool(found - wanted)


def is_icu_choice(parts: Parts) -> bool:
    """Whether a text is an ICU message with alternatives inside its code.

    >>> is_icu_choice(("{n, plural, one {a file} other {# files}}",)), is_icu_choice(("{n} files",))
    (True, False)
    """
    return any(ICU_CHOICE_PATTERN.search(part) for part in parts if isinstance(part, str))
