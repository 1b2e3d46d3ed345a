"""reStructuredText (.rst): https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html.

Titles, paragraphs, list items, terms, definitions, fields, line blocks, and the content of directives with text are
units. Code, literal blocks, tables, comments, targets, substitutions, and directives that are not known to have text
stay. A translated paragraph is one line, and lines around a title get its width. A reference by name keeps the name:
`a text`_ becomes `a translation <a text_>`_, and a title that is referenced gets a target with its old name.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from headwise.documents.markup.inline_boundaries import inline_rst, may_follow_markup, may_precede_markup
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, Skipped, join_parts

LINE = re.compile(
    r"([^\r\n\x1c-\x1e\x85\u2028\u2029]*)(?:\r\n?|[\n\x1c-\x1e\x85\u2028\u2029]|$)"
)  # as `str.splitlines`
BLANK = re.compile(r"[\v\f]")  # for docutils
ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
BULLET = re.compile(r"[-+*\u2022\u2023\u2043](?: +|$)")
ENUMERATOR = re.compile(r"\(?(?:\d{1,9}|[a-zA-Z]|#|[ivxlcdmIVXLCDM]{1,9})[.)](?: +|$)")
FIELD = re.compile(r":(?![: ])((?:[^:\\]|\\.|:(?![ `]|$))+)(?<! ):(?: +|$)")
OPTION = re.compile(r"(?:-\w|--[\w-]+|/\w)(?:[ =][\w<>-]+)?(?:, (?:-\w|--[\w-]+|/\w)(?:[ =][\w<>-]+)?)*(?: {2,}|$)")
DIRECTIVE = re.compile(r"\.\. +([\w:+.-]*\w) ?::(?: +|$)")
FOOTNOTE = re.compile(r"\.\. +\[[^\[\]]+\](?: +|$)")
EXPLICIT = re.compile(r"(?:\.\.|__)(?: |$)")
SUBSTITUTION = re.compile(r"\.\. +\|")
DIRECTIVE_OPTION = re.compile(r" *:[\w-]+:(?: |$)")
HEADER = re.compile(r"PEP: \d")  # of a Python enhancement proposal
GRID_TABLE = re.compile(r"\+(?:[-=]+\+)+")
SIMPLE_TABLE = re.compile(r"=+(?: +=+)+")
BLOCK = re.compile(
    rf"{BULLET.pattern}|{ENUMERATOR.pattern}|{FIELD.pattern}|(?:\.\.|__|>>>|\|)(?: |$)|\+-|::|-{{1,2}}\w", re.DOTALL
)
NAMED_REFERENCE = re.compile(r"(?<![\w`:\\])`([^`<>\\]+)`_(?![\w_])")
TARGET = re.compile(r"^[ \t]*\.\. _`?([^`:\r\n]+)`?:", re.MULTILINE)
SIMPLE_REFERENCE = re.compile(r"(?<![\w`.+-])([A-Za-z0-9](?:[\w.+-]{0,80}[A-Za-z0-9])?)_(?![\w_])")
ADMONITIONS = {
    *("attention", "caution", "danger", "error", "hint", "important", "note", "tip", "warning", "seealso", "todo"),
}
PAIR = re.compile(  # code and roles, which may contain stars; a reference; emphasis
    r"``.+?``|:[\w:.+-]{1,64}:`[^`]+`|(?<![\w`:\\])`(?P<name>[^`<>\\]+)`_(?![\w_])|"
    r"(?<![\w*\\])(?P<stars>\*{1,2})(?![\s*)\]}'\"])(?P<emphasis>[^*\\]+)(?<!\s)(?P=stars)(?![\w*])"
)
TITLES = ADMONITIONS | {  # directives whose first line is text
    *("admonition", "topic", "sidebar", "rubric", "epigraph", "highlights", "pull-quote", "list-table", "centered"),
    *("card", "dropdown", "tab-item", "tab", "grid-item-card"),
}
CONTENTS = TITLES | {  # directives whose content is text
    *("versionadded", "versionchanged", "versionremoved", "deprecated", "deprecated-removed", "figure", "container"),
    *("compound", "glossary", "only", "hlist", "tabs", "tab-set", "grid", "grid-item", "impl-detail", "line-block"),
}
OBJECT = re.compile(
    r"(?:\w+:)?(?:function|class|method|attribute|data|exception|decorator|classmethod|staticmethod|property|module|"
    r"option|envvar|cmdoption|confval|setting|opcode|describe|object|macro|type|member|struct|enum|enumerator|var)"
)
DOCUMENT_FIELDS = "a field of the document"
LITERAL_MARK = re.compile(r"\s?::$")  # of a paragraph before a literal block
MAX_DEPTH = 50  # nested blocks
Lines = Sequence[tuple[int, int]]  # of a block, without its indentation


def read_rst(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a reStructuredText file; `languages` are ignored."""
    characters = Characters(path, data)
    blocks = _Blocks(characters)
    passages = list(blocks.read([found.span(1) for found in LINE.finditer(characters.text)], 0))
    return Passages(characters, passages, skipped=blocks.skipped)


class _Blocks:
    """Finds the texts of blocks, and collects the texts that stay."""

    def __init__(self, characters: Characters) -> None:
        self.skipped: list[Skipped] = []
        self._characters = characters
        self._text = BLANK.sub(" ", characters.text)
        targets = {" ".join(found[1].lower().split()) for found in TARGET.finditer(self._text)}
        names = (found[1] for pattern in (NAMED_REFERENCE, SIMPLE_REFERENCE) for found in pattern.finditer(self._text))
        self._referenced = {" ".join(name.lower().split()) for name in names} - targets
        self._begun = False  # whether a block that is no title was read

    def read(self, lines: Lines, depth: int) -> Iterator[TextPassage]:
        """The texts of the blocks in some lines."""
        at = 0
        while at < len(lines):
            line = self._line(lines, at)
            if not line.strip():
                at += 1
                continue
            after = _after_indented(self, lines, at) if line[0] in " \t" else 0
            if after:
                yield from self._nested(lines[at:after], depth)
            else:
                after = yield from self._block(lines, at, line, depth)
            at = max(after, at + 1)

    def _block(self, lines: Lines, at: int, line: str, depth: int) -> Iterator[TextPassage]:
        """The texts of the block that starts in a line; returns the number of the line after it."""
        if (title := self._title(lines, at)) is not None:
            yield from title[0]
            return title[1]
        is_first, self._begun = not self._begun, True
        if is_first and depth == 0 and HEADER.match(line):
            end = at
            while self._line(lines, end).strip():
                end += 1
            self._skip(DOCUMENT_FIELDS, lines[at:end])
            return end
        end = self._kept_block(lines, at, line)
        if end > at:
            return end
        if EXPLICIT.match(line):
            return (yield from self._explicit(lines, at, line, depth))
        if line.startswith("| "):
            return (yield from self._line_block(lines, at))
        if found := self._item(lines, at, line):
            end = _after_indented(self, lines, at + 1)
            if is_first and depth == 0 and FIELD.match(line):
                self._skip(DOCUMENT_FIELDS, lines[at:end])
                self._begun = False
            else:
                is_field = FIELD.match(line) is not None
                is_list = not is_field and not OPTION.match(line)  # an item's marker sets the indentation of its text
                yield from self._marked(lines[at:end], found.end(), depth, is_field, found.end() if is_list else 0)
            return end
        return (yield from self._paragraph(lines, at, depth))

    def _item(self, lines: Lines, at: int, line: str) -> re.Match[str] | None:
        """The marker of a list item, field or option."""
        if found := BULLET.match(line) or FIELD.match(line) or OPTION.match(line):
            return found
        below = self._line(lines, at + 1)
        found = ENUMERATOR.match(line)
        return found if found and (not below.strip() or below[0] == " " or ENUMERATOR.match(below)) else None

    def _paragraph(self, lines: Lines, at: int, depth: int) -> Iterator[TextPassage]:
        end = at + 1
        while end < len(lines) and self._line(lines, end).strip() and self._line(lines, end)[0] not in " \t":
            end += 1
        is_indented = self._line(lines, end)[:1] in (" ", "\t") and bool(self._line(lines, end).strip())
        for passage in self._passages(lines[at:end]):
            if is_indented and end > at + 1:  # in one line it would be a term with a definition
                between = self._text[lines[at][1] : lines[at + 1][0]]
                is_marked = self._text.startswith("::", passage.end)
                passage = replace(passage, to_file=partial(_in_two_lines, between, is_marked))
            yield passage
        if is_indented and end == at + 1:
            after = _after_indented(self, lines, end)  # the definition of a term
            yield from self._nested(lines[end:after], depth)
            return after
        if not self._line(lines, end - 1).rstrip().endswith("::"):
            return end
        first = end
        while first < len(lines) and not self._line(lines, first).strip():
            first += 1
        quote = self._line(lines, first)[:1]
        after = _after_indented(self, lines, end)
        if after <= first and quote and ADORNMENT.match(quote):  # a quoted literal block
            while self._line(lines, first).startswith(quote):
                first += 1
            after = first
        self._skip("literal block", lines[end:after])
        return after

    def _line_block(self, lines: Lines, at: int) -> Iterator[TextPassage]:
        while self._line(lines, at).startswith("|"):
            start, end = lines[at]
            yield from self._passages([(start + 1, end)])
            at += 1
            while self._line(lines, at).startswith(" ") and self._line(lines, at).strip():  # a continued line
                yield from self._passages([lines[at]])
                at += 1
        return at

    def _kept_block(self, lines: Lines, at: int, line: str) -> int:
        """The line after a table, a transition, or an example of a Python session; `at` for other blocks."""
        end = at
        if line.startswith(">>> ") or GRID_TABLE.fullmatch(line.rstrip()):
            while self._line(lines, end).strip():
                end += 1
            self._skip("table" if line[0] == "+" else "code", lines[at:end])
        elif SIMPLE_TABLE.fullmatch(line.rstrip()):
            borders, end = 0, at + 1
            while end < len(lines) and borders < 2:
                if SIMPLE_TABLE.fullmatch(self._line(lines, end).rstrip()):
                    borders += 1 if self._line(lines, end + 1).strip() else 2
                end += 1
            self._skip("table", lines[at:end])
        elif len(line.rstrip()) > 3 and ADORNMENT.fullmatch(line.rstrip()):
            end = at + 1
        return end

    def _explicit(self, lines: Lines, at: int, line: str, depth: int) -> Iterator[TextPassage]:
        """Directives, footnotes, comments, targets and substitutions."""
        end = _after_indented(self, lines, at + 1)
        footnote, directive = FOOTNOTE.match(line), DIRECTIVE.match(line)
        if footnote:
            yield from self._marked(lines[at:end], footnote.end(), depth, hangs=True)
        elif not directive:
            if SUBSTITUTION.match(line):
                self._skip("substitution", lines[at:end])
        elif (name := directive[1].lower()) in CONTENTS or OBJECT.fullmatch(name):
            inner = at + 1
            while inner < end and DIRECTIVE_OPTION.match(self._line(lines, inner)):
                inner += 1
            if name in TITLES and inner == at + 1:
                yield from self._marked(lines[at:end], directive.end(), depth, name in ADMONITIONS)
            else:
                first = (lines[at][0] + directive.end(), lines[at][1])
                yield from self._passages([first] if name in TITLES else [])
                yield from self._nested(lines[inner:end], depth)
        elif end > at + 1:
            self._skip(f"directive {name}", lines[at + 1 : end])
        return end

    # --- texts

    def _title(self, lines: Lines, at: int) -> tuple[list[TextPassage], int] | None:
        """A section title with its adornment, and the line after it."""
        line, below, last = (self._line(lines, at + n).rstrip() for n in range(3))
        over = ADORNMENT.fullmatch(line) is not None and last == line and bool(below.strip()) and len(line) > 1
        title, under, number = (below.strip(), last, at + 1) if over else (line, below, at)
        wide_enough = len(under) >= min(4, _width(title)) and ADORNMENT.fullmatch(under) is not None
        if not wide_enough or ADORNMENT.fullmatch(title) or (not over and not title.strip()):
            return None
        start, end = lines[at][0], lines[number + 1][0] + len(under)
        indent = len(self._line(lines, number)) - len(self._line(lines, number).lstrip())
        name = " ".join(title.replace("`", "").replace("*", "").split())
        target = f".. _{name}:" if name.lower() in self._referenced else ""
        if ":" in name and target:
            target = f".. _`{name}`:"
        break_ = self._text[lines[number][1] : lines[number + 1][0]].rstrip(" \t") or "\n"
        to_file = partial(_to_title, under, " " * indent if over else None, f"{target}{break_}{break_}" * bool(target))
        passage = TextPassage(start, end, self._parts(title), partial(to_file, break_), markup="restructuredtext")
        return [passage], number + 2

    def _passages(self, lines: Lines) -> Iterator[TextPassage]:
        """The text of a paragraph."""
        text = " ".join(self._text[start:end].strip() for start, end in lines)
        mark = LITERAL_MARK.search(text)  # stays where it is, whatever the order of words
        if any(map(str.isalpha, text)):
            start = lines[0][0] + len(self._text[slice(*lines[0])]) - len(self._text[slice(*lines[0])].lstrip())
            end = lines[-1][0] + len(self._text[slice(*lines[-1])].rstrip())
            source = self._parts(text[: mark.start() if mark else None].strip())
            end -= len(mark[0]) if mark else 0
            yield TextPassage(start, end, source, _to_rst, markup="restructuredtext")

    def _parts(self, text: str) -> Parts:
        """The parts of a text, with codes at both ends of emphasis; a reference by name has it in its last code."""
        pieces, at = list[str | Code](), 0
        for found in PAIR.finditer(text):
            if found["name"]:
                ends, inner = ("`", f" <{found['name']}_>`_"), found["name"]
            elif found["stars"]:
                ends, inner = (found["stars"], found["stars"]), found["emphasis"]
            else:
                continue  # code
            if not (
                may_precede_markup(text[max(0, found.start() - 1) : found.start()])
                and may_follow_markup(text[found.end() : found.end() + 1])
            ):
                continue  # characters
            pieces += [text[at : found.start()], Code(ends[0]), inner, Code(ends[1])]
            at = found.end()
        return join_parts([*pieces, text[at:]])

    def _nested(self, lines: Lines, depth: int) -> Iterator[TextPassage]:
        """The texts of indented lines."""
        if depth < MAX_DEPTH:
            yield from self.read(self._dedented(lines), depth + 1)
        else:
            self._skip("block nested too deeply", lines)

    def _marked(
        self, lines: Lines, marker: int, depth: int, hangs: bool = False, indent: int = 0
    ) -> Iterator[TextPassage]:
        """The texts of lines of which the first one has a marker. With `hangs`, the second line sets the indentation.

        Then a paragraph of several lines goes below its marker, so that there still is such a line.
        """
        first = (lines[0][0] + marker, lines[0][1])
        if depth >= MAX_DEPTH:
            return self._skip("block nested too deeply", lines)
        for passage in self.read([first, *self._dedented(lines[1:], indent)], depth + 1):
            if hangs and passage.start < first[1] < passage.end:
                start, end = lines[1]
                below = self._text[first[1] : end - len(self._text[start:end].lstrip(" \t"))]
                passage = replace(passage, to_file=lambda parts, below=below: below + _to_rst(parts))
            yield passage

    def _dedented(self, lines: Lines, indent: int = 0) -> Lines:
        """Lines without the indentation that all have, at most `indent` if it is set."""
        texts = [self._text[start:end] for start, end in lines]
        found = min((len(text) - len(text.lstrip(" \t")) for text in texts if text.strip()), default=0)
        indent = min(found, indent or found)
        return [(min(start + indent, end), end) for start, end in lines]

    def _skip(self, kind: str, lines: Lines) -> None:
        lines = [line for line in lines if self._text[slice(*line)].strip()]
        if any(map(str.isalpha, self._text[lines[0][0] : lines[-1][1]] if lines else "")):
            self.skipped.append(self._characters.skipped(kind, lines[0][0], lines[-1][1]))

    def _line(self, lines: Lines, at: int) -> str:
        return self._text[slice(*lines[at])] if at < len(lines) else ""


def _after_indented(blocks: _Blocks, lines: Lines, at: int) -> int:
    """The number of the line after the indented ones from `at` on, without blank lines at the end."""
    end = at
    for number in range(at, len(lines)):
        line = blocks._line(lines, number)
        if not line.strip():
            continue
        if line[0] not in " \t":
            break
        end = number + 1
    return end


# --- output


def _to_rst(parts: Parts) -> str:
    """A translation as one line that starts no other block."""
    text = " ".join(inline_rst(parts).split())
    return f"\\{text}" if BLOCK.match(text) else text


def _in_two_lines(between: str, is_marked: bool, parts: Parts) -> str:
    """A translation in two lines; a mark of a literal block follows if it `is_marked`."""
    text = _to_rst(parts)
    blanks = sorted((one.start() for one in re.finditer(" ", text)), key=lambda at: abs(2 * at - len(text)))
    at = next((at for at in blanks if not BLOCK.match(text[at + 1 :])), None)
    if at is None:  # with an escaped line end
        return f"\\{between}{text}" if is_marked else f"{text}{between}\\"
    return f"{text[:at]}{between}{text[at + 1 :]}"


def _to_title(under: str, indent: str | None, target: str, line_end: str, parts: Parts) -> str:
    title = _to_rst(parts)
    adornment = under[0] * max(len(under), _width(title) + 2 * len(indent or ""))
    over = "" if indent is None else adornment + line_end + indent
    return f"{target}{over}{title}{line_end}{adornment}"


def _width(text: str) -> int:
    """The width in a terminal, as docutils counts it.

    >>> _width("Hunde"), _width("狗")
    (5, 2)
    """
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )
