"""What a translation must hold as it stands: addresses, variables of message formats, tags, roles of reStructuredText.

Formats: C and Python (`%s`, `%(name)s`, `%1$d`), braces of Python, .NET and ICU (`{0}`, `{name:.2f}`), templates
(`{{name}}`, `{% if name %}`, `${name}`, `%name%`, `$t(name)`), `$NAME$` of browser extensions, HTML's tags and its
character references. A message of ICU that chooses among texts (`{n, plural, ...}`) holds texts inside its code;
`chooses` tells them, for they are not for a machine.
"""

import re
from collections import Counter
from collections.abc import Iterator

from sightline.localisation.unit import Code, Parts, joined, plain

# Every pattern takes time in proportion to a text of any kind (`test_scanners.py`): what has not been closed where the
# same begins again is no code, so no two searches for an end go over one stretch; `*+` never gives back what it took.
ADDRESS = r"https?://[^\s<>\"'`\]]*[^\s<>\"'`\].,;:!?)]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
TEMPLATE = r"\{%(?:[^%{\n]|%(?!\})|\{(?!%))*+%\}|\{#(?:[^#{\n]|#(?!\})|\{(?!#))*+#\}"
BRACES = rf"\{{\{{[^{{}}]*\}}\}}|{TEMPLATE}|\$\{{[^{{}}]*\}}|\$t\([^()]*\)|\{{[\w.\[\]!:,<>^+#%-]*\}}"
SIZE = r"(?:hh?|ll?|[Lqjzt])?"
PERCENT = rf"%(?:\d++\$)?(?:\(\w+\))?[-+#0]*+\d*+(?:\.\d+)?{SIZE}[diouxXeEfFgGcrsa@](?![A-Za-z])|%%|%\w+%"
COMMENT = r"<!--(?:[^<\n-]|<(?!!--)|-(?!->))*+-->"
TAGS = rf"</?[A-Za-z][\w:.-]*+(?:\s[^<>]*)?/?>|{COMMENT}|&(?:[A-Za-z]\w*|#\d+|#x[0-9A-Fa-f]+);"
ANYWHERE = "|".join((ADDRESS, BRACES, PERCENT, TAGS))
OF_MARKUP = {
    "": re.compile(ANYWHERE),
    # A role with its target, a literal, a substitution, a reference to a note, and of a link with a text its ends; two
    # backticks that nothing closes, too, for whoever writes them where its source has none spoils what follows.
    "rst": re.compile(
        r":[\w:.+-]{1,64}:`[^`]+`|``.+?``|\|[\w.-]+\||\[[#\w*]+\]_|`_{1,2}(?!\w)|\s<[^<>`]+>`_{1,2}|(?<!\w)`(?=[^`\s])|"
        rf"\s?::(?=\s*$)|``|{ANYWHERE}"
    ),
    "extension": re.compile(rf"\$\w+\$|\$\d|{ANYWHERE}"),
    # An escaped character, a reference whose text is code, code, a note, an address, the ends of links and pictures and
    # those of emphasis, which begins or ends at a word; `_` in a word is none.
    "markdown": re.compile(
        r"\\[!-/:-@\[-`{-~]|\[`+[^`\[\]]+`+\](?!\()(?:\[[^\[\]]*\])?|(?<!`)(`{1,9})(?!`).*?(?<!`)\1(?!`)|\[\^[^\s\[\]]+\]:?|"
        r"<[^<>\s:@]*[:@][^<>\s]*>|!?\[(?=[^\]]{0,999}+\][(\[])|\]\[[^\[\]]*\]|"
        r"\]\((?:<[^<>]*>|(?:[^()\s]|\([^()\s]*\))*+)(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)|"
        rf"{ANYWHERE}|(?<!\s)\*+|\*+(?!\s)|(?<!\w)_++(?!\s)|(?<![\s_])_++(?!\w)|~~|`+"
    ),
}
CHOOSES = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")


def with_codes(parts: Parts, markup: str = "") -> Parts:
    """Parts with whatever must survive in their strings as codes.

    >>> [part if isinstance(part, str) else part.text for part in with_codes(("Delete {n} of %(all)s files?",))]
    ['Delete ', '{n}', ' of ', '%(all)s', ' files?']
    >>> with_codes(("100% of us",))
    ('100% of us',)
    >>> [part if isinstance(part, str) else part.text for part in with_codes(("{% if a %}New: {% endif %}{{ b }}",))]
    ['{% if a %}', 'New: ', '{% endif %}', '{{ b }}']
    """
    return joined([piece for part in parts for piece in (_cut(part, markup) if isinstance(part, str) else [part])])


def _cut(text: str, markup: str) -> Iterator[str | Code]:
    at = 0
    for found in OF_MARKUP[markup].finditer(text):
        yield text[at : found.start()]
        yield Code(found[0])
        at = found.end()
    yield text[at:]


def adds_codes(source: Parts, target: Parts, markup: str = "") -> bool:
    """Whether a text, read as it is written, holds codes that its source has not.

    >>> adds_codes(("100 files",), ("100%s",)), adds_codes(("a ", Code("``b``")), ("``a ", Code("``b``")), "rst")
    (True, True)
    >>> adds_codes(("%d of ", Code("%d")), (Code("%d"),))
    False
    """
    pattern = OF_MARKUP[markup]
    found, wanted = (Counter(one[0] for one in pattern.finditer(plain(parts))) for parts in (target, source))
    return bool(found - wanted)


def chooses(parts: Parts) -> bool:
    """Whether a text is an ICU message with texts to choose from inside its code.

    >>> chooses(("{n, plural, one {a file} other {# files}}",)), chooses(("{n} files",))
    (True, False)
    """
    return any(CHOOSES.search(part) for part in parts if isinstance(part, str))
