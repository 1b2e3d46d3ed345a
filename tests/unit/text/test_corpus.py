"""Reading files of pairs: every line is read, and every bad file gives one line that names it."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, parse_corpora, read_lines, read_pairs

LINES = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), min_size=1, max_size=8)


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, bytes], str]:
    def write(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return write


def error_of(*paths: str) -> str:
    with pytest.raises(UserError) as caught:
        list(read_pairs(parse_corpora(paths)))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r", "\0"])
def test_only_a_line_feed_ends_a_line(make, inside):
    path = make("a.txt", f"one{inside}two\nthree\n".encode())
    assert list(read_lines(path)) == [f"one{inside}two", "three"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\n", ["a", ""]),
        (b"\n", [""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\nb\r", ["a", "b\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\r\nb", ["", "b"]),
        (b" a \t\n", [" a \t"]),
    ],
)
def test_line_ends_and_byte_order_mark(make, content, lines):
    assert list(read_lines(make("a.txt", content))) == lines
    assert list(read_lines(make("a.txt.gz", gzip.compress(content)))) == lines


def test_gzip_is_recognised_without_its_ending(make):
    assert list(read_lines(make("a.txt", gzip.compress(b"a\nb\n")))) == ["a", "b"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\td")))
    assert list(read_pairs(parse_corpora(["-"]))) == [("a", "b"), ("c", "d")]


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_written_lines_are_read_lines(lines, end, final_end, compressed):
    lines = [line.removesuffix("\r").removeprefix("\ufeff") for line in lines]
    if not final_end and not lines[-1]:
        lines[-1] = "last"  # an empty last line needs its end to be there
    content = (end.join(lines) + (end if final_end else "")).encode()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(gzip.compress(content) if compressed else content)
        assert list(read_lines(str(path))) == lines


@given(st.binary(max_size=64), st.sampled_from(["a.tsv", "a.jsonl", "a.tsv.gz", "a.jsonl.gz"]))
def test_arbitrary_bytes_give_pairs_or_one_line(content, name):
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            pairs = list(read_pairs(parse_corpora([str(path)])))
        except UserError as error:
            assert name in str(error)
            assert "\n" not in str(error)
        else:
            assert len(pairs) == content.count(b"\n") + (not content.endswith(b"\n"))


def test_aligned_files(make):
    src, tgt = make("a.en", b"a\nb\n"), make("a.de.gz", gzip.compress(b"x\ny"))
    assert list(read_pairs(parse_corpora([src, tgt]))) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize(("n_src", "n_tgt"), [(2, 5), (5, 2)])
def test_different_line_counts_name_both_files_and_counts(make, n_src, n_tgt):
    message = error_of(make("a.en", b"a\n" * n_src), make("a.de", b"x\n" * n_tgt))
    assert f"a.en has {n_src} lines" in message
    assert f"a.de has {n_tgt}" in message


def test_tsv_ignores_further_columns_and_quotes(make):
    path = make("a.tsv", b'a\tb\tCC-BY "x\n"a\t"b"\n\t\n')
    assert list(read_pairs([Corpus((path,))])) == [("a", "b"), ('"a', '"b"'), ("", "")]


def test_tsv_without_tab_names_the_line(make):
    message = error_of(make("a.tsv", b"a\tb\nno tab\n"))
    assert "a.tsv: line 2 has no tab" in message


def test_jsonl(make):
    records = [{"src": "a\nb\u2028", "tgt": "\U0001f600"}, {"tgt": "", "src": "", "id": 3}]
    path = make("a.jsonl", "\n".join(map(json.dumps, records)).encode())
    assert list(read_pairs([Corpus((path,))])) == [("a\nb\u2028", "\U0001f600"), ("", "")]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"{", "is not JSON"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"src": ' + b"1" * 5000 + b"}", "is not JSON"),
        (b"[1, 2]", "is not an object"),
        (b'{"src": "a"}', 'has no "tgt"'),
        (b'{"src": "a", "tgt": null}', '"tgt" must be a string, not NoneType'),
        (b'{"src": "\\ud800", "tgt": "a"}', "surrogate"),
    ],
)
def test_bad_json_names_the_line(make, line, cause):
    message = error_of(make("a.jsonl", b'{"src": "a", "tgt": "b"}\n' + line + b"\n"))
    assert "a.jsonl: line 2" in message
    assert cause in message


def test_missing_file_names_the_nearest(make):
    near = make("train.tsv", b"a\tb\n")
    assert f"no such file; did you mean '{near}'?" in error_of(near.replace("train", "trian"))
    assert "the folder" in error_of(near.replace("train", "nowhere/train"))


def test_a_folder_or_a_file_of_another_kind_is_not_the_nearest(tmp_path):
    (tmp_path / "xs.tsv").mkdir()
    (tmp_path / "xtsv").write_text("")
    (tmp_path / "o.tsv").write_text("")
    assert "no such file; look at: ls " in error_of(str(tmp_path / "nofile.tsv"))
    assert "no such file; look at: ls " in error_of(str(tmp_path / "x.tsv"))


def test_folder_is_named(tmp_path):
    (tmp_path / "a.tsv").mkdir()
    assert "a.tsv: is a folder" in error_of(str(tmp_path / "a.tsv"))


def test_unreadable_file_is_named(make, monkeypatch):
    path = make("a.tsv", b"a\tb\n")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("headwise.text.files.corpus.open", refuse, raising=False)  # root may read everything
    assert "a.tsv: no permission" in error_of(path)


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0)])
def test_empty_file_is_named(make, content):
    path = make("a.tsv", content)
    assert "a.tsv: is empty" in error_of(path)
    assert list(read_lines(path, allow_empty=True)) == []


@pytest.mark.parametrize(
    ("content", "line", "byte", "offset"),
    [
        (b"a\tb\n\xe9t\xe9\tc\n", 2, "0xe9", 4),
        (b"\xef\xbb\xbfa\xff\tb\n", 1, "0xff", 4),
        (b"a\tb\r\nc\td\xe3\x81\n", 2, "0xe3", 8),
        (b"\xed\xa0\x80\tb\n", 1, "0xed", 0),
    ],
)
def test_invalid_utf8_names_line_byte_and_offset(make, content, line, byte, offset):
    for path in (make("a.tsv", content), make("a.tsv.gz", gzip.compress(content))):
        message = error_of(path)
        assert f"line {line} is not UTF-8 (byte {byte} at byte offset {offset})" in message
        assert "iconv -f WINDOWS-1252" in message


def test_utf16_is_recognised(make):
    assert "iconv -f UTF-16" in error_of(make("a.tsv", "a\tb\n".encode("utf-16")))


def test_damaged_gzip_is_named(make):
    whole = gzip.compress(b"".join(b"%d\tb\n" % number for number in range(5000)))
    flipped = whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]
    for name, content in {"cut": whole[:-9], "flipped": flipped, "plain": b"a\tb\n"}.items():
        assert f"{name}.tsv.gz: the .gz is damaged" in error_of(make(f"{name}.tsv.gz", content))


def test_corpora_are_grouped():
    arguments = ["a.en", "a.de", "b.tsv", "c.jsonl.gz", "hf:wmt14?src=en&tgt=de", "-", "d.en.gz", "d.de"]
    grouped = [corpus.paths for corpus in parse_corpora(arguments)]
    assert grouped == [("a.en", "a.de"), *((name,) for name in arguments[2:6]), ("d.en.gz", "d.de")]


@pytest.mark.parametrize("arguments", [["a.en"], ["a.tsv", "a.en"], ["a.en", "b.tsv", "a.de"]])
def test_a_file_without_partner_is_an_error(arguments):
    with pytest.raises(UserError, match=r"^a\.en: has no partner"):
        parse_corpora(arguments)


@pytest.mark.parametrize("layout", ["flat", "translation"])
def test_hugging_face_parquet_folder(tmp_path, monkeypatch, layout):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("datasets")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    rows = [{"en": "a", "de": "x"}, {"en": "b", "de": "y"}]
    table = arrow.Table.from_pylist(rows if layout == "flat" else [{"translation": row} for row in rows])
    (tmp_path / "set").mkdir()
    parquet.write_table(table, tmp_path / "set" / "train.parquet")
    spec = f"hf:{tmp_path / 'set'}?src=en&tgt=de"
    assert list(read_pairs(parse_corpora([spec]))) == [("a", "x"), ("b", "y")]
    assert "Bad split: nope" in error_of(f"{spec}&split=nope")
    assert 'has no "fr"; it has' in error_of(spec.replace("src=en", "src=fr"))


def test_hugging_face_option_misspelt():
    assert "did you mean 'split'" in error_of("hf:somewhere?splt=train")


def test_hugging_face_library_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert 'pip install "headwise[datasets]"' in error_of("hf:somewhere")


def test_real_corpora(shared_data):
    names = ["multi30k/train.en.gz", "multi30k/train.de.gz", "tatoeba/deu-eng.test.tsv.gz"]
    pairs = list(read_pairs(parse_corpora([str(shared_data / name) for name in names])))
    assert len(pairs) == 29_000 + 2_000
    assert all(src and tgt for src, tgt in pairs)
