"""`headwise check-corpus` on corpora with one fault of each kind: each is found with its line, and no other."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headwise.text.files.sources import Pair

NAMES = ["Anna", "Ben", "Clara", "David", "Emil", "Frieda", "Georg", "Hanna", "Ida", "Jakob"]
PLACES = [("park", "Park"), ("garden", "Garten"), ("school", "Schule"), ("house", "Haus"), ("forest", "Wald")]


def sound(n: int = 50, start: int = 0) -> list[Pair]:
    """Pairs without faults or repeated sentences."""
    pairs = []
    for number in range(start, start + n):
        name, (place, ort) = NAMES[number % 10], PLACES[number // 10 % 5]
        src = f"The child of {name} is reading book {number} in the {place} and is very happy"
        pairs.append((src, f"Das Kind von {name} liest das Buch {number} vor dem {ort} und ist sehr froh"))
    return pairs


FAULTS: dict[str, tuple[Pair, str]] = {  # the content of line 31, and its finding
    "empty": (("A line", " "), "one side is empty: training drops them"),
    "long": ((" ".join(["word"] * 300), " ".join(["Wort"] * 300)), "longer than data.max_length: training drops them"),
    "uneven": (("A", "Ein Hund" + " und noch ein Hund" * 9), "more uneven than data.max_length_ratio"),
    "longer": (
        ("A small dog is here", "Dieser kleine Hund" + " läuft sehr weit weg" * 4),
        "unusual length ratio",
    ),
    "same": (("Nachrichten 77!", "nachrichten 77"), "the same text on both sides"),
    "swapped": (
        ("Das Kind liest und ist froh", "The child is reading and is happy"),
        "swapped: each side in the other",
    ),
    "untranslated": (
        ("The child is very happy here", "The child is reading and is happy"),
        "target: in the source's lang",
    ),
    "no source": (
        ("Das Kind liest und ist froh", "Das Buch und das Kind vor dem Haus"),
        "source: in the target's lang",
    ),
    "mojibake": (("The child reads here", "Das Kind lÃ¤uft hier"), "target: bytes read in a wrong encoding"),
    "lost": (("The child \ufffd here", "Das Kind ist hier"), "source: replacement characters"),
    "control": (("The child is here", "Das Kind\x07 ist hier"), "target: control characters"),
    "invisible": (("The ch\u00adild is here", "Das Kind ist hier"), "source: invisible characters"),
    "no-break": (("The child is here", "Das Kind ist hier\u00a0!"), "target: no-break spaces"),
    "apart": (("The cafe\u0301 is here", "Das Kind ist hier"), "source: letters and accents apart (not NFC)"),
    "entity": (("The child &amp; I are here", "Das Kind ist hier"), "source: HTML entities"),
    "blanks": (("The child  is here", "Das Kind ist hier"), "source: leading, trailing or repeated spaces"),
    "script": (("The child is here", "Ребёнок здесь"), "target: in another script than the rest (Latin)"),
}
REPEATS = {
    "pair": (lambda src, tgt: (src.upper(), f"{tgt} !"), "the same pair as before"),
    "source": (
        lambda src, tgt: (src, "Ein anderes Kind liest ein Buch und ist traurig vor dem Tor"),
        "the same source as",
    ),
    "target": (
        lambda src, tgt: ("Another child is reading and is happy in the park, isn't it", tgt),
        "the same target as",
    ),
}


def tsv(path: Path, pairs: list[Pair]) -> Path:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path


def findings(out: str) -> list[str]:
    """The findings of the training set."""
    part = out.split("\n\n")[0]
    return [match.strip() for match in re.findall(r"^ +[\d,]+ +[\d.]+%  (.*)$", part, re.MULTILINE)]


def test_a_corpus_without_faults(cli: Any, tmp_path: Path) -> None:
    ran = cli("check-corpus", tsv(tmp_path / "a.tsv", sound()))
    assert ran.code == 0, ran.err
    assert ran.lines[0] == f"training: {tmp_path / 'a.tsv'}: 50 pairs"
    assert findings(ran.out) == []
    assert "  nothing looks wrong" in ran.lines


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_once(cli: Any, tmp_path: Path, fault: str) -> None:
    pair, message = FAULTS[fault]
    pairs = sound()
    pairs.insert(30, pair)
    ran = cli("check-corpus", tsv(tmp_path / "a.tsv", pairs))
    assert ran.code == 0, ran.err
    found = [line for line in findings(ran.out) if line.startswith(message)]
    assert len(found) == 1, ran.out
    others = set(findings(ran.out)) - set(found)
    expected = {
        "uneven": {"unusual length ratio"},
        "empty": {"target: leading"},
    }
    assert all(any(other.startswith(start) for start in expected.get(fault, ())) for other in others), others
    assert re.search(rf"      1  1.96%  {re.escape(found[0])}\n +line 31: ({pair[0][:4]}|{pair[1][:4]})", ran.out)


@pytest.mark.parametrize("what", REPEATS)
def test_repeats_name_their_first_line(cli: Any, tmp_path: Path, what: str) -> None:
    change, message = REPEATS[what]
    pairs = sound()
    pairs.insert(30, change(*pairs[4]))
    ran = cli("check-corpus", tsv(tmp_path / "a.tsv", pairs))
    (found,) = findings(ran.out)
    assert message in found
    assert "line 31 (as line 5): " in ran.out


def test_lines_are_those_of_their_file(cli: Any, tmp_path: Path) -> None:
    first, second = tsv(tmp_path / "a.tsv", sound(30)), tsv(tmp_path / "b.tsv", [*sound(10, 30), sound(1)[0]])
    ran = cli("check-corpus", first, second)
    assert f"{second} line 11 (as {first} line 1): The child of Anna" in ran.out


def test_pairs_of_a_catalogue_are_counted(cli: Any, tmp_path: Path) -> None:
    """Pairs of a catalogue stand on lines of an internal file, which mean nothing to the user."""
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    entries = [f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in [*sound(10), ("Yes", "Yes")]]
    (tmp_path / "a.po").write_text(header + "".join(entries), encoding="utf-8")
    assert "pair 11: Yes | Yes" in cli("check-corpus", tmp_path / "a.po").out


def test_leaks_between_all_sets(cli: Any, tmp_path: Path) -> None:
    train, valid, test = sound(50), sound(10, 50), sound(10, 60)
    valid[2] = (train[7][0].lower(), valid[2][1])
    test[3] = (test[3][0], train[8][1] + "!")
    test[4] = valid[5]
    paths = [tsv(tmp_path / f"{name}.tsv", pairs) for name, pairs in (("a", train), ("v", valid), ("t", test))]
    page = tmp_path / "report.html"
    ran = cli("check-corpus", paths[0], "--valid", paths[1], "--test", f"news={paths[2]}", "-o", page)
    assert ran.code == 0, ran.err
    counts = re.findall(r"^ +([\d,]+) +[\d.]+%  (.* also in .*)$", ran.out, re.MULTILINE)
    assert {what: count for count, what in counts if count != "0"} == {
        "validation: source also in training": "1",
        "test news: target also in training": "1",
        "test news: pair also in validation": "1",
        "test news: source also in validation": "1",
        "test news: target also in validation": "1",
    }
    assert "line 3 (as line 8): " in ran.out
    html = page.read_text(encoding="utf-8")
    assert html.count('class="number found"') == 5


def test_pairs_that_valid_1_percent_would_hold_out(cli: Any, tmp_path: Path) -> None:
    ran = cli("check-corpus", tsv(tmp_path / "a.tsv", sound()), "--valid", "10%")
    assert ran.lines[-1].startswith("headwise train --valid 10% would take 5 pairs to validate on, and drop 0 others")


def test_warnings_about_the_files(cli: Any, tmp_path: Path) -> None:
    train = tsv(tmp_path / "a.tsv", [("source", "target"), *sound()])
    valid = tsv(tmp_path / "v.tsv", [(tgt, src) for src, tgt in sound(30, 50)])
    header = f"{train}: line 1 (source TAB target) looks like a header"
    alone = cli("check-corpus", train).out
    assert f"training {header}" in alone and f"validation {header}" not in alone
    ran = cli("check-corpus", train, "--valid", valid)
    assert header in ran.out
    assert f"validation {valid}: looks swapped: its sources resemble the targets of training" in ran.out


def test_the_page_loads_nothing_and_shows_texts_as_texts(cli: Any, tmp_path: Path) -> None:
    pairs = [*sound(), ("<script>alert('x')</script> &amp; <b>", "Ein\u00a0Text")]
    page = tmp_path / "report.html"
    assert cli("check-corpus", tsv(tmp_path / "a.tsv", pairs), "-o", page).code == 0
    html = page.read_text(encoding="utf-8")
    assert "default-src &#x27;none&#x27;; style-src &#x27;sha256-" in html
    assert "<script" not in html and "style=" not in html and "http://" not in html and "https://" not in html
    assert html.count("<svg") >= 4 and "Ein&lt;U+00A0&gt;Text" in html

    class Balanced(HTMLParser):
        open: list[str]

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("meta", "link") and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

        def handle_startendtag(self, tag: str, attrs: Any) -> None:
            pass

    parser = Balanced()
    parser.open = []
    parser.feed(html)
    assert parser.open == []


def test_errors_are_one_line(cli: Any, tmp_path: Path) -> None:
    path = tsv(tmp_path / "a.tsv", sound())
    assert "give it the ending .html" in cli("check-corpus", path, "-o", tmp_path / "report.pdf").complaint
    assert "no such file" in cli("check-corpus", path, "--test", "news=absent.tsv").complaint
    twice = cli("check-corpus", path, "--test", f"a={path}", "--test", f"a={path}").complaint
    assert "there is a 'test a' already" in twice
    page = tsv(tmp_path / "a.html", sound())
    over = cli("check-corpus", path, "--test", f"x={page}", path, "-o", page).complaint
    assert "is the file that is read" in over


@pytest.mark.thorough
def test_real_corpora(cli: Any, shared_data: Path) -> None:
    """The findings match the corpora's own descriptions."""
    folder = shared_data / "multi30k"
    files = {part: [folder / f"{part}.{side}.gz" for side in ("en", "de")] for part in ("train", "val")}
    ran = cli("check-corpus", *files["train"], "--valid", *files["val"])
    assert "\n       44  0.15%  target: no-break spaces" in ran.out
    assert "\n       16  0.06%  source: HTML entities" in ran.out
    assert "\n        1  0.10%  validation: source also in training" in ran.out
