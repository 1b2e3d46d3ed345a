"""Files that change while they are read: nothing is cached, and the error is one line."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.text.files import documents, split
from headwise.text.files.corpus import Corpus, parse_corpora, read_pairs
from headwise.text.files.documents import document_tokenizer, prepare_documents, train_document_tokenizer
from headwise.text.files.sources import Pair
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared import prepared
from headwise.text.prepared.prepared import prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(vocab_size=280)
PAIRS = [(f"a dog {i}", f"ein Hund {i}") for i in range(40)]
OTHERS = [("a cat", "eine Katze"), *PAIRS[1:]]
TOKENIZER = Tokenizer.train(["a dog 0123456789", "ein Hund"], CONFIG)
CHANGED = "changed while it was being read; run the command again"
FORMS = ("tsv", "tsv.gz", "jsonl", "aligned")
Write = Callable[[Path, bytes], object]


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def replaced(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)


CHANGES: dict[str, tuple[list[Pair], Write]] = {
    "appended": ([*PAIRS, ("one", "more")], in_place),
    "truncated": (PAIRS[:20], in_place),
    "rewritten": (OTHERS, in_place),
    "replaced": (OTHERS, replaced),
}


def corpus(folder: Path, pairs: list[Pair], form: str, write: Write = Path.write_bytes) -> list[Corpus]:
    """Write the pairs to files of a format, or overwrite these files."""
    if form == "aligned":
        contents = {f"a.{side}": [pair[i] for pair in pairs] for i, side in enumerate(("en", "de"))}
    elif form == "jsonl":
        contents = {"a.jsonl": [f'{{"src": "{src}", "tgt": "{tgt}"}}' for src, tgt in pairs]}
    else:
        contents = {f"a.{form}": [f"{src}\t{tgt}" for src, tgt in pairs]}
    for name, lines in contents.items():
        data = "".join(f"{line}\n" for line in lines).encode()
        write(folder / name, gzip.compress(data) if name.endswith(".gz") else data)
    return parse_corpora([str(folder / name) for name in contents])


def once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, action: Callable[[], object]) -> None:
    """Run `action` after the first call of a function."""
    original, waiting = getattr(module, name), [action]

    def called(*arguments: Any) -> Any:
        result = original(*arguments)
        while waiting:
            waiting.pop()()
        return result

    monkeypatch.setattr(module, name, called)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_corpus_that_changes_after_it_was_hashed(
    form: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora, cache = corpus(tmp_path, PAIRS, form), tmp_path / "cache"
    pairs, write = CHANGES[change]
    once(monkeypatch, prepared, "hash_corpora", lambda: corpus(tmp_path, pairs, form, write))
    with pytest.raises(UserError, match=CHANGED) as raised:
        prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    assert str(raised.value).startswith(f"{corpora[0]}: ") and not [*cache.iterdir()]
    again = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    assert [again.text(row) for row in range(len(again))] == pairs
    corpus(tmp_path, PAIRS, form)
    before = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    assert [before.text(row) for row in range(len(before))] == PAIRS


LONG = [(f"a dog {i} " * 8, f"ein Hund {i} " * 8) for i in range(4000)]  # uncompressed, more than lies in buffers


@pytest.mark.parametrize("form", ["tsv", "tsv.gz", "aligned"])
@pytest.mark.parametrize("change", ["appended", "truncated", "rewritten", "replaced", "saved again"])
def test_a_corpus_that_changes_while_it_is_tokenised(
    form: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing a file while it is open changes nothing: the hashed file stays open. Nor does saving it again."""
    monkeypatch.setattr(prepared, "CHUNK", 100)
    corpora, cache = corpus(tmp_path, LONG, form), tmp_path / "cache"
    for path in corpora[0].paths:
        os.utime(path, (1, 1))  # long ago: a file system's clock may stand still for milliseconds
    pairs, write = {
        "appended": ([*LONG, *PAIRS], in_place),
        "truncated": (LONG[:3000], in_place),
        "rewritten": ([("a cat 0 " * 8, LONG[0][1]), *LONG[1:]], in_place),  # what was read before, at the same length
        "replaced": (LONG[1:], replaced),
        "saved again": (LONG, in_place),
    }[change]
    once(monkeypatch, prepared, "tokenize_pairs", lambda: corpus(tmp_path, pairs, form, write))
    if change in ("replaced", "saved again"):
        found = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
        assert [found.text(row) for row in range(len(found))] == LONG
        return
    with pytest.raises(UserError, match=CHANGED):
        prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    assert not [*cache.iterdir()]


def test_one_of_several_corpora_that_several_processes_tokenise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "MIN_PAIRS_PER_WORKER", 10)
    monkeypatch.setattr(prepared, "CHUNK", 10)
    (tmp_path / "second").mkdir()
    corpora = [*corpus(tmp_path, PAIRS, "aligned"), *corpus(tmp_path / "second", PAIRS, "tsv.gz")]
    once(monkeypatch, prepared, "chunks", lambda: corpus(tmp_path / "second", OTHERS, "tsv.gz", replaced))
    with pytest.raises(UserError, match=CHANGED) as raised:
        prepare(corpora, TOKENIZER, CONFIG, tmp_path / "cache", progress=False, workers=2)
    assert str(raised.value).startswith(f"{corpora[1]}: ") and not [*(tmp_path / "cache").iterdir()]


def test_an_error_of_an_unchanged_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\nno tab\n", encoding="utf-8")
    corpora = parse_corpora([str(tmp_path / "a.tsv")])
    with pytest.raises(UserError, match="line 2 has no tab"):
        prepare(corpora, TOKENIZER, CONFIG, tmp_path / "cache", progress=False)
    once(monkeypatch, prepared, "hash_corpora", lambda: (tmp_path / "a.tsv").write_text("a\tb\nno\n", encoding="utf-8"))
    with pytest.raises(UserError, match=CHANGED):
        prepare(corpora, TOKENIZER, CONFIG, tmp_path / "cache", progress=False)
    once(monkeypatch, prepared, "hash_corpora", lambda: os.remove(tmp_path / "a.tsv"))
    with pytest.raises(UserError, match=CHANGED):
        prepare(corpora, TOKENIZER, CONFIG, tmp_path / "cache", progress=False)


@pytest.mark.parametrize("sources_only", [False, True])
def test_a_tokenizer_of_a_changed_file_is_not_cached(
    sources_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = corpus(tmp_path, PAIRS, "tsv")
    once(monkeypatch, prepared, "hash_corpora", lambda: corpus(tmp_path, OTHERS, "tsv", in_place))
    with pytest.raises(UserError, match=CHANGED):
        train_tokenizer(corpora, CONFIG, cache_dir=tmp_path / "cache", sources_only=sources_only)
    assert not [*(tmp_path / "cache").iterdir()]


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("moment", ["hash_corpora", "_choose"])
def test_a_split_of_a_changed_file_is_not_cached(
    labelled: bool, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora, amount = corpus(tmp_path, PAIRS, "tsv"), parse_validation_size(["5pairs"])
    assert amount
    once(monkeypatch, split, moment, lambda: corpus(tmp_path, OTHERS, "tsv", replaced))
    with pytest.raises(UserError, match=CHANGED):
        split.split_corpora(corpora, amount, labelled, tmp_path / "cache")
    assert not [*(tmp_path / "cache").iterdir()]
    found = split.split_corpora(corpora, amount, labelled, tmp_path / "cache")
    assert sorted([*read_pairs(found.train), *read_pairs([found.valid])]) == sorted(OTHERS)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
def test_running_text_that_changes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tmp_path / name, tmp_path / "cache"

    def write(text: str) -> None:
        text = f'{{"text": "{text}"}}\n' if name.endswith(".jsonl") else text
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())

    def tokenise() -> Any:
        return prepare_documents([str(path)], document_tokenizer(TOKENIZER), cache, progress=False)

    for work in (tokenise, lambda: train_document_tokenizer([str(path)], CONFIG, cache_dir=cache)):
        write("a dog")
        with monkeypatch.context() as patch:
            once(patch, documents, "_hash_file", lambda: write("a cat, and a dog"))
            with pytest.raises(UserError, match=CHANGED):
                work()
        assert not [*cache.iterdir()]
    assert tokenise().characters == len("a cat, and a dog")
