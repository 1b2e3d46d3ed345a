"""Placeholders are recognised by their grammar, ordinary text has none, and a translation keeps them or is refused."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.fill import ICU_CHOICE, TranslatedUnit, targets_of, translation_steps
from headwise.documents.markup.icu_messages import icu_spans
from headwise.documents.markup.placeholder_grammars import DIALECTS, GETTEXT_FLAGS, PRINTF
from headwise.documents.markup.placeholders import OF_MARKUP, PLACEHOLDER_START, is_icu_choice, with_codes
from headwise.documents.reading import parse_document
from headwise.documents.segments import CODES_CHANGED, MARKUP_LOST, SentenceTranslation
from headwise.documents.unit import Document, codes_of, plain

# Parts of ordinary texts that are close to a placeholder.
ORDINARY = (
    "100 % sure", "50% off", "a: b", "10:30", "5 % de", "5 %de", "{not closed", "not opened}", "{see below}", "{a, b}",
    "it's", "l'eau", "100%", "0 % of it", "a < b", "5%, 6%", "10%-20%", "$5", "1:2:3", "C: is full", "50% discount",
    "99 % c", "x % 2", "{ }", "~", "#1", "50\xa0% des", "(100%)", "5% cheaper", "{this: is text}", "{note, date: x}",
    "{one, two, three}", "at 7 p.m.", "see: this", "x::y", "What?!", "a=b",
)  # fmt: skip


def found(text: str, markup: str = "") -> list[str]:
    return [code.text for code in codes_of(with_codes((text,), markup))]


# --- grammars


def numbers(most: int = 99) -> st.SearchStrategy[str]:
    return st.integers(1, most).map(str)


def optional(some: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.just("") | some


def together(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


def printf(
    conversions: str, flags: str = "-+#0", sizes: tuple[str, ...] = (), position: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[str]:
    """Directives, written from the manual of their language."""
    place = together(numbers(9), "$") if position is None else position
    several = st.lists(st.sampled_from(flags), max_size=2, unique=True).map("".join)
    precision = together(".", st.integers(0, 20).map(str))
    size = st.sampled_from(("", *sizes))
    return together(
        "%", optional(place), several, optional(numbers()), optional(precision), size, st.sampled_from(conversions)
    )


NAMES = st.sampled_from(["name", "userName", "n", "user_id", "Größe", "count2"])
ICU_NAMES = NAMES | st.sampled_from(["0", "12", "user.name", "first-name", "$name"])
BLANK = st.sampled_from(["", "", " ", "\n  "])
STYLES = st.sampled_from(["short", "::currency/USD", "::.00", "#,##0.00", "yyyy-MM-dd HH:mm", "EEE 'at' h", "integer"])
SIMPLE_TYPES = st.sampled_from(["number", "date", "time", "spellout", "ordinal", "duration"])
ICU_ARGUMENTS = together("{", BLANK, ICU_NAMES, BLANK, "}") | together(
    *("{", BLANK, ICU_NAMES, BLANK, ",", BLANK, SIMPLE_TYPES, BLANK),
    *(optional(together(",", BLANK, STYLES, BLANK)), "}"),
)


def branches(messages: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Arguments that choose among messages."""
    kind = st.sampled_from(["plural", "select", "selectordinal"])
    selector = st.sampled_from(["one", "few", "=0", "male"])
    each = together(" ", selector, BLANK, "{", messages, "}")
    kinds = together(
        "{", BLANK, ICU_NAMES, BLANK, ",", BLANK, kind, BLANK, ",", each, " other {", messages, "}", BLANK, "}"
    )
    return kinds | together("{", ICU_NAMES, ",choice,0#", messages, "|1<", messages, "}")


ICU_TEXT = st.sampled_from(["a file", "# files", "it's ", "a '{' b", "'{}'", "''", "", "'{a '' b}'"])
ICU_MESSAGES = st.recursive(
    ICU_TEXT | ICU_ARGUMENTS,
    lambda inner: together(inner, " ", inner) | branches(inner),
    max_leaves=6,
)  # fmt: skip
C_SIZES = ("hh", "h", "l", "ll", "q", "L", "j", "z", "t", "I64", "I32")
JAVA_DATES = together("%", optional(together(numbers(9), "$")), st.sampled_from("tT"), st.sampled_from("HMSYmdBbeA"))
PYTHON_FIELDS = st.sampled_from(["", "0", "name", "a.b", "a[0]", "a[key].b"])
PYTHON_SPECS = st.sampled_from(["", ":>10", ":,.2f", ":%d %B %Y", ":{width}", ":{w}.{p}f", ": ^20", ":#x"])
NET_FORMATS = st.sampled_from(["", ":N2", ":yyyy-MM-dd HH:mm", ":dd MMM yyyy", ":#,##0.00", ":'at' HH"])
GRAMMARS = {
    "c": printf("diouxXeEfFgGaAcsp", "-+#0'", C_SIZES)
    | st.sampled_from(["%*d", "%.*f", "%*.*f", "%1$*2$d", "%<PRIu64>"]),
    "objc": printf("diouxXeEfFgGaAcsp@", sizes=C_SIZES),
    "java-printf": printf("bBhHsScCdoxXeEfgGaA", "-+#0,(") | JAVA_DATES | st.sampled_from(["%n", "%<s", "%1$,d"]),
    "python": printf("diouxXeEfFgGcrsa", position=together("(", NAMES | st.just("a b.c"), ")")),
    "php": printf("bcdeEfFgGosuxX") | together(":", st.sampled_from(["name", "COUNT", "Min"])) | st.just("%'.10d"),
    "go": printf("vTtbcdoOqxXUeEfFgGsp", position=st.just("")) | st.sampled_from(["%[1]d", "%+v", "%[2]*[1]d"]),
    "perl": printf("cdiouxXeEfFgGsp") | st.just("%vd"),
    "ruby-printf": printf("diouxXeEfgGcsp", position=st.just("")) | st.sampled_from(["%{name}", "%<n>05.2f"]),
    "lua": printf("cdeEfgGioqsuxX", position=st.just("")),
    "tcl": printf("cdiouxXeEfgGs", sizes=("h", "l")),
    "elisp": printf("diouxXeEfgGcsS"),
    "pascal": printf("deufgnmsxp", "-", position=together(numbers(9), ":")),
    "javascript": printf("bcdoOxXfijs"),
    "csharp": together("{", numbers(9), st.sampled_from(["", ",10", ", -10"]), NET_FORMATS, "}"),
    "python-brace": together("{", PYTHON_FIELDS, st.sampled_from(["", "!r", "!s"]), PYTHON_SPECS, "}"),
    "rust": st.sampled_from(["{}", "{0}", "{name}", "{name:?}", "{:>8.3}", "{x: >5}"]),
    "perl-brace": together("{", NAMES, "}"),
    "qt-numbered": st.sampled_from(["%1", "%99", "%L2", "%n"]),
    "shell": st.sampled_from(["$name", "${name}", "${name:-x y}"]),
    "lisp": st.sampled_from(["~a", "~s", "~2,'0d", "~:d", "~%", "~{", "~}", "~,2f"]),
    "boost": st.sampled_from(["%1%", "%12%", "%|1$+5|", "%5d"]),
    "icu": ICU_ARGUMENTS,
    "laravel": together(":", st.sampled_from(["attribute", "MIN", "Other", "max_size"])),
    "": st.one_of(
        *(ICU_ARGUMENTS, together("{", numbers(9), NET_FORMATS, "}"), together("{{", BLANK, NAMES, BLANK, "}}")),
        together("<%", st.sampled_from(["= ", "- ", " "]), NAMES, " %>"),
        together("{$", NAMES, st.sampled_from(["", " :number", "[0]"]), "}"),
        together("${", NAMES, "}"),
        st.sampled_from(["%s", "%d", "%1$s", "%1$,d", "%.1f", "%*d", "%I64d", "%lld", "%zu", "%02d", "%%", "%(name)s"]),
        st.sampled_from(["%name%", "%Y", "%@", "%-5s", "%%name%%", "%1$tY", "#{x}", "%{x}", "@{x}", "{!! $x !!}"]),
        st.sampled_from(["{when:%d/%m}", "{x:{w}.{p}f}", "<?= $x ?>", "{% x %}", "{{{x}}}", "{0,-10:N2}", "$t(a)"]),
    ),
    "apple": st.sampled_from(["%@", "%1$@", "%lld", "%#@files@", "%2$#@files@"]),
    "ruby": st.sampled_from(["%{name}", "%<n>d"]),
    "qt": st.sampled_from(["%1", "%L2", "%n"]),
    "extension": st.sampled_from(["$NAME$", "$1"]),
}  # fmt: skip
# Ordinary texts that are placeholders in a grammar, if a file says that it is used.
IN_BRACES = ("{this: is text}", "{see below}", "{ }", "{a, b}", "{note, date: x}")
LITERAL: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("shell", "extension"), ("$5",)),
    "lisp": ("~",),
    **dict.fromkeys(("python-brace", "rust"), IN_BRACES),
    **dict.fromkeys((*PRINTF, "boost"), ("5 %de",)),
}


def ordinary(markup: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text for text in ORDINARY if text not in LITERAL.get(markup, ())])


@pytest.mark.parametrize("markup", GRAMMARS)
@given(st.data())
def test_generated_texts_of_each_grammar_have_exactly_their_placeholders(markup: str, data: st.DataObject) -> None:
    placeholders = data.draw(st.lists(GRAMMARS[markup], min_size=1, max_size=4))
    texts = ordinary(markup)
    pieces = [data.draw(texts)]
    for placeholder in placeholders:
        pieces += [": ", placeholder, ", ", data.draw(texts)]
    assert found("".join(pieces), markup) == placeholders
    assert all(map(PLACEHOLDER_START.match, placeholders))


@pytest.mark.parametrize("markup", GRAMMARS)
@given(st.data())
def test_ordinary_text_has_no_placeholders(markup: str, data: st.DataObject) -> None:
    text = ". ".join(data.draw(st.lists(ordinary(markup), min_size=1, max_size=4)))
    assert (found(text, markup), is_icu_choice((text,), markup)) == ([], False)


def test_every_grammar_is_tested() -> None:
    assert {*DIALECTS} - {*GRAMMARS} == {"gcc-internal", "awk", "ocaml"}  # like those of C
    assert {*GETTEXT_FLAGS.values()} <= {*DIALECTS} and not {*DIALECTS} & {*OF_MARKUP}


@given(st.lists(ICU_MESSAGES, min_size=1, max_size=3).map(" ".join), BLANK)
def test_choices_of_generated_messages_are_found(message: str, blank: str) -> None:
    spans = [message[one.start : one.end] for one in icu_spans(message)]
    assert "".join(spans).count("{") == message.count("{")  # every brace is in an argument or quoted
    choice = "{" + blank + "user.first-name" + blank + ", select, a {" + message + "} other {}}"
    assert [one.end - one.start for one in icu_spans(f"a {choice} b")] == [len(choice)]
    assert is_icu_choice((f"a {choice}",), "icu") and is_icu_choice((choice[:-1],), "icu")


@pytest.mark.parametrize(
    "text,markup,expected",
    [
        ("%dh %dm left, %dMB, %.1fs", "", ["%d", "%d", "%d", "%.1f"]),
        ("%dh %dMB of %1$sbytes", "c", ["%d", "%d", "%1$s"]),
        ("%s%% of %d%d", "", ["%s", "%%", "%d", "%d"]),
        ("%s%", "", ["%s%"]),
        ("%2dx a%20desk %2$'d {a|b}", "", ["%2d", "%2$'d", "{a|b}"]),
        ("{n, upper} {d, datetime, short} {n, select} {n, other}", "", ["{n, upper}", "{d, datetime, short}"]),
        ("``%s`` is % d", "rst c", ["``%s``", "% d"]),
        ("`{0:N2}` and {0:dd MMM}", "markdown", ["`{0:N2}`", "{0:dd MMM}"]),
        ("don't '{quote}' it: {a}", "icu", ["'{quote}'", "{a}"]),
        ("l'{a} et d'{b}", "", ["{a}", "{b}"]),
        ("l'{a} et", "icu", ["'{a} et"]),  # ICU reads all of it as text
        ("{a {b} {c, date}", "", ["{b}", "{c, date}"]),
        ("{{a}} {b{c}}", "", ["{{a}}", "{c}"]),
        (":nameは:length文字", "laravel", [":name", ":length"]),
        ("$nameは%1個", "shell", ["$name"]),
        ("%n개 %1個", "qt-numbered", ["%n", "%1"]),
        (":a/:b http://c:d ::e f:g", "laravel", [":a", "http://c:d"]),
    ],
)
def test_placeholders_among_others(text: str, markup: str, expected: list[str]) -> None:
    assert found(text, markup) == expected


# --- files


def fill(
    document: Document, translate: Callable[[str], str], markers: bool = False, aligns: bool = True
) -> list[TranslatedUnit]:
    """The units by a model that translates so, and that `aligns` the words in order."""
    steps = translation_steps(document, "en", markers)
    try:
        wanted = next(steps)
        while True:
            texts = [translate(text) for text in wanted.texts]
            links = [
                frozenset((i, i) for i in range(len(text.split()))) if aligns and wanted.aligned else None
                for text in texts
            ]
            wanted = steps.send(
                [
                    SentenceTranslation(t, log_prob=-0.1, n_tokens=(0, 1), links=a)
                    for t, a in zip(texts, links, strict=True)
                ]
            )
    except StopIteration as end:
        return end.value


def filled(name: str, content: str, translate: Callable[[str], str] = str.upper) -> str:
    document = parse_document(name, content.encode())
    return document.filled(targets_of(fill(document, translate))).decode()


@pytest.mark.parametrize(
    "flag,source,expected",
    [
        ("c-format", "%*d of %I64d items", "%*d OF %I64d ITEMS"),
        ("c-format", "%dh, 100% sure, 50% off", "%dH, 100% SURE, 50% OFF"),
        ("java-printf-format", "%1$,d on %<tY items", "%1$,d ON %<tY ITEMS"),
        ("python-format", "%(user name)s is in", "%(user name)s IS IN"),
        ("python-brace-format", "until {when:at %H} now", "until {when:at %H} NOW"),
        ("csharp-format", "until {0:dd MMM} now", "until {0:dd MMM} NOW"),
        ("kde-format", "from %1 to %2 now", "FROM %1 TO %2 NOW"),
        ("sh-format", "from $a now", "FROM $a NOW"),
        ("lisp-format", "from ~a now", "FROM ~a NOW"),
        ("unknown-format", "from %s now", "FROM %s NOW"),
        ("no-c-format", "100% done now", "100% DONE NOW"),
    ],
)
def test_a_flag_of_gettext_names_the_grammar(flag: str, source: str, expected: str) -> None:
    text = filled("a.po", f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n')
    assert f'msgstr "{expected}"' in text.replace("UNTIL", "until")


def test_a_directive_of_lisp_keeps_its_line_end_at_the_end_of_a_text() -> None:
    document = parse_document("a.po", b'#, lisp-format\nmsgid "one ~\\n  two"\nmsgstr ""\n')
    one, directive, two = with_codes(document.units[0].source, document.units[0].markup)
    filled = document.filled({0: (two, " ", one, directive)})
    assert plain(parse_document("a.po", filled).units[0].target) == "two one ~\n  "


@pytest.mark.parametrize(
    "name,content,expected",
    [
        ("a.json", {"a": "The :attribute of {when, date, short}"}, {"a": "THE :attribute OF {when, date, short}"}),
        ("a.json", {"a": "Hello <%= name %> and { you }"}, {"a": "HELLO <%= name %> AND { you }"}),
        ("a.arb", {"@@locale": "en", "a": "On {d, date, ::yMd} it"}, {"@@locale": "en", "a": "ON {d, date, ::yMd} IT"}),
        ("a.json", {"a": {"defaultMessage": "in '{x}' {y}"}}, {"a": {"defaultMessage": "IN '{x}' {y}"}}),
    ],
)
def test_the_file_names_the_grammar(name: str, content: object, expected: object) -> None:
    assert json.loads(filled(name, json.dumps(content))) == expected


def test_choices_stay_and_are_reported() -> None:
    source = "files={0,choice,0#no files|1#one file|1<{0} files} found\ndue=due {1, date, short}\n"
    document = parse_document("a.properties", source.encode())
    units = fill(document, str.upper)
    assert [one.warnings for one in units] == [(ICU_CHOICE,), units[1].warnings] and not units[0].target
    assert document.filled(targets_of(units)).decode() == source.replace("due=due", "due=DUE")


def test_templates_of_a_page_are_not_lost_as_tags_are() -> None:
    document = parse_document("a.html", b"<p>one <%= x %> two</p><p>one <b>two</b> three</p>")
    lost = fill(document, str.upper, aligns=False)
    assert [(len(one.target), one.warnings[:1]) for one in lost] == [(0, (CODES_CHANGED,)), (1, (MARKUP_LOST,))]


def test_doubled_apostrophes_beside_placeholders_do_not_quote_them() -> None:
    source = "a=File ''{0}'' is '{1}' big, don''t open '{'\n"
    assert filled("a.properties", source, str) == source


@pytest.mark.parametrize(
    "name,source,target",
    [
        ("a.json", '{"a": "Free :count now"}', "Frei:⓵x jetzt"),
        ("a.json", '{"a": "Free {count} now"}', "Frei ⓵ {count, number} jetzt"),
        ("a.json", '{"a": "Free :count now"}', "Frei a⓵ jetzt"),
        ("a.json", '{"a": {"defaultMessage": "The end of {name}"}}', "La fin d'⓵"),  # the apostrophe quotes it
    ],
)
def test_a_unit_with_other_placeholders_is_not_filled_but_reported(name: str, source: str, target: str) -> None:
    document = parse_document(name, source.encode())
    wrong = fill(document, lambda text: target if "⓵" in text else "a %s", markers=True)
    assert [(one.target, one.warnings) for one in wrong] == [((), (CODES_CHANGED,))]
