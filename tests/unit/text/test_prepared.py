"""The tokenised corpus on disk: complete, cleaned, cached, rebuilt when damaged, never half-written."""

import io
import multiprocessing
import os
import pickle
import shutil
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from headwise.config.data import TranslationData
from headwise.documents.memory import memories_as_tsv
from headwise.errors import UserError
from headwise.pytorch.tasks.job import base_names
from headwise.text.files.columns import column_files
from headwise.text.files.corpus import Corpus, parse_corpora
from headwise.text.files.split import parse_validation_size, split_corpora
from headwise.text.prepared import prepared as module
from headwise.text.prepared.cache import SUMS, is_intact
from headwise.text.prepared.prepared import prepare, spool, train_tokenizer
from headwise.text.tokens import tokenize_pairs
from headwise.text.tokens.tokenize_pairs import COLUMNS
from headwise.text.tokens.tokenizer import Tokenizer

FILES = [*chain.from_iterable(map(column_files, COLUMNS)), module.META]
CONFIG = TranslationData(vocab_size=280, max_length=20, max_length_ratio=3.0)
PAIRS = [("A dog.", "Ein Hund."), ("a  \u2028b", "日本\u0085"), ("dog", "Hund"), ("", "leer"), ("x", " \t")]
PAIRS += [("word " * 20, "word"), ("a", "a b c d"), ("a", "a b c"), ("e\u0301", "\u00e9")]
TOKENIZER = Tokenizer.train((side for pair in PAIRS for side in pair), CONFIG)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def aligned(folder: Path, pairs: list[tuple[str, str]]) -> list[Corpus]:
    for name, lines in zip(("a.en", "a.de"), zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
    return parse_corpora([str(folder / "a.en"), str(folder / "a.de")])


def test_nothing_is_dropped_without_cleaning(tmp_path, cache):
    corpus = prepare(aligned(tmp_path, PAIRS), TOKENIZER, CONFIG, cache, progress=False, clean=False)
    assert (len(corpus), corpus.read, corpus.dropped) == (len(PAIRS), len(PAIRS), {})
    assert [corpus.text(row) for row in range(len(corpus))] == PAIRS
    assert [corpus.src(row).tolist() for row in range(len(corpus))] == [TOKENIZER.encode(src) for src, _ in PAIRS]
    assert [corpus.tgt(row).tolist() for row in range(len(corpus))] == [TOKENIZER.encode(tgt) for _, tgt in PAIRS]
    assert corpus.src_lengths.tolist() == [len(TOKENIZER.encode(src)) + 1 for src, _ in PAIRS]
    assert corpus.tgt_lengths.tolist() == [len(TOKENIZER.encode(tgt)) + 1 for _, tgt in PAIRS]


def test_cleaning_drops_both_sides_and_counts_reasons(tmp_path, cache):
    pairs = [pair for pair in PAIRS if "\u2028" not in pair[0]]
    limits = replace(CONFIG, max_length_ratio=3.5)
    corpus = prepare(aligned(tmp_path, pairs), TOKENIZER, limits, cache, progress=False)
    assert corpus.dropped == {
        "one side is empty": 2,
        "longer than data.max_length": 1,
        "more uneven than data.max_length_ratio": 1,
    }
    kept = [corpus.text(row) for row in range(len(corpus))]
    assert kept == [PAIRS[0], PAIRS[2], PAIRS[7], PAIRS[8]]
    assert corpus.read == len(pairs)


def test_max_length_includes_eos(tmp_path, cache):
    n_pieces = len(TOKENIZER.encode(PAIRS[0][1]))
    pairs = [PAIRS[0], ("a", "a")]
    for max_length, n_kept in ((n_pieces, 1), (n_pieces + 1, 2)):
        limits = replace(CONFIG, max_length=max_length)
        assert len(prepare(aligned(tmp_path, pairs), TOKENIZER, limits, cache, progress=False)) == n_kept


def test_chunks_follow_each_other(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    pairs = [("", "all of this chunk"), ("is dropped", ""), *PAIRS[:3] * 3]
    corpus = prepare(aligned(tmp_path, pairs), TOKENIZER, CONFIG, cache, progress=False)
    assert [corpus.text(row) for row in range(len(corpus))] == PAIRS[:3] * 3
    assert [corpus.tgt(row).tolist() for row in (0, 8)] == [TOKENIZER.encode(PAIRS[i][1]) for i in (0, 2)]


def test_several_processes_write_the_same_bytes(tmp_path, monkeypatch):
    """Several corpora with dropped pairs, and more chunks than are in flight at once."""
    monkeypatch.setattr(module, "CHUNK", 1)
    monkeypatch.setattr(module, "MIN_PAIRS_PER_WORKER", 2)
    (tmp_path / "more.tsv").write_text("".join(f"a dog {i}\tein Hund {i}\n" for i in range(9)), encoding="utf-8")
    started, start = [], tokenize_pairs.tokenizing_processes
    monkeypatch.setattr(module, "tokenizing_processes", lambda n, *how: started.append(n) or start(n, *how))
    pairs = [pair for pair in PAIRS if "\u2028" not in pair[0]]
    corpora = [*aligned(tmp_path, pairs), Corpus((str(tmp_path / "more.tsv"),))]
    one, two = (
        prepare(corpora, TOKENIZER, CONFIG, tmp_path / f"by-{workers}", progress=False, workers=workers)
        for workers in (1, 2)
    )
    assert (one.kept, one.dropped, one.key) == (two.kept, two.dropped, two.key)
    for name in FILES:
        by_one, by_two = (tmp_path / f"by-{workers}" / one.key / name for workers in (1, 2))
        assert by_one.read_bytes() == by_two.read_bytes(), name
    assert started == [2]


def test_a_killed_process_is_an_error(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(module, "MIN_PAIRS_PER_WORKER", 2)

    def chunks(pairs):
        for pair in pairs:
            yield [pair]
            if len(begun := multiprocessing.active_children()) == 2:
                begun[0].kill()

    monkeypatch.setattr(module, "chunks", chunks)
    with pytest.raises(UserError, match=r"a tokenising process was killed.*: use fewer processes \(--workers 1\)"):
        prepare(aligned(tmp_path, PAIRS[:1] * 50), TOKENIZER, CONFIG, cache, progress=False, workers=2)
    assert not [path for path in cache.iterdir() if path.is_dir()]


DAMAGES = {
    "shorter": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"}",
    "empty": lambda content: b"",
    "flipped": lambda content: bytes([content[0] ^ 1]) + content[1:],
}


@pytest.fixture
def builds(monkeypatch) -> list[Path]:
    """Records the folders that are built."""
    seen: list[Path] = []
    original = module.build_corpus

    def counting(target: Path, *rest: object) -> None:
        seen.append(target)
        original(target, *rest)

    monkeypatch.setattr(module, "build_corpus", counting)
    return seen


def test_the_same_content_uses_the_cache(tmp_path, cache, builds):
    corpora = aligned(tmp_path, PAIRS)
    first = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    (tmp_path / "other").mkdir()
    again = prepare(aligned(tmp_path / "other", PAIRS), TOKENIZER, CONFIG, cache, progress=False)
    assert len(builds) == 1
    assert (again.key, again.read, again.dropped) == (first.key, first.read, first.dropped)
    assert [again.text(row) for row in range(len(again))] == [first.text(row) for row in range(len(first))]


def test_what_changes_the_result_changes_the_key(tmp_path, cache, builds):
    def run(pairs=PAIRS, tokenizer=TOKENIZER, config=CONFIG, clean=True) -> str:
        return prepare(aligned(tmp_path, pairs), tokenizer, config, cache, progress=False, clean=clean).key

    keys = {
        run(),
        run(pairs=PAIRS[:-1]),
        run(tokenizer=Tokenizer.train(["a"], CONFIG)),
        run(config=replace(CONFIG, max_length=19)),
        run(config=replace(CONFIG, max_length_ratio=2.0)),
        run(clean=False),
    }
    assert len(keys) == len(builds) == 6
    run(config=replace(CONFIG, bpe_dropout=0.1))
    assert len(builds) == 6


@pytest.mark.parametrize("name", [*FILES, SUMS])
@pytest.mark.parametrize("damage", ["shorter", "longer", "absent", "empty", "flipped"])
def test_a_damaged_cache_is_rebuilt(tmp_path, cache, builds, name, damage):
    corpora = aligned(tmp_path, PAIRS)
    first = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    path = cache / first.key / name
    content = path.read_bytes()
    path.unlink()
    if damage != "absent":
        path.write_bytes(DAMAGES[damage](content))
    unknown = name == SUMS and damage == "absent"  # as in folders of earlier versions
    with nullcontext() if unknown else pytest.warns(UserWarning, match=f"{first.key}.*damaged in the cache"):
        again = prepare(corpora, TOKENIZER, CONFIG, cache, progress=False)
    assert len(builds) == 2
    assert path.read_bytes() == content
    assert [again.text(row) for row in range(len(again))] == [first.text(row) for row in range(len(first))]


@pytest.mark.parametrize("pairs", [[("", "")], [("a", ""), ("", "b")], [("a", "\u3000"), (" ", "\t")]])
def test_validation_pairs_without_text_are_an_error(tmp_path, cache, pairs):
    for _ in "again":
        with pytest.raises(UserError, match=r"a\.en.*a\.de.*no line has text on both sides"):
            prepare(aligned(tmp_path, pairs), TOKENIZER, CONFIG, cache, progress=False, clean=False)
    blank_and_whole = aligned(tmp_path, [*pairs, PAIRS[0]])
    assert len(prepare(blank_and_whole, TOKENIZER, CONFIG, cache, progress=False, clean=False)) == len(pairs) + 1


@pytest.mark.parametrize("bad", [b"a\tb\nno tab\n", b"a\tb\n\xff\tb\n", b"\tb\n"])
def test_a_failure_leaves_no_files(tmp_path, cache, bad):
    (tmp_path / "a.tsv").write_bytes(bad)
    with pytest.raises(UserError, match=r"a\.tsv"):
        prepare([Corpus((str(tmp_path / "a.tsv"),))], TOKENIZER, CONFIG, cache, progress=False)
    assert list(cache.iterdir()) == []


def test_nothing_left_names_the_reasons(tmp_path, cache):
    with pytest.raises(UserError, match=r"2 pairs.*\(one.*1.*data.max_length: 1\)"):
        prepare(aligned(tmp_path, [PAIRS[3], PAIRS[5]]), TOKENIZER, CONFIG, cache, progress=False)


def test_misaligned_files_are_reported_before_tokenising(tmp_path, cache, builds):
    corpora = aligned(tmp_path, PAIRS)
    with (tmp_path / "a.de").open("a") as more:
        more.write("one more\n")
    for work in (
        lambda: prepare(corpora, TOKENIZER, CONFIG, cache),
        lambda: train_tokenizer(corpora, CONFIG),
    ):
        with pytest.raises(UserError, match=r"a\.en has 9 lines but .*a\.de has 10"):
            work()
    assert builds == []


def test_progress_is_shown_only_on_terminals(tmp_path, cache, capsys):
    prepare(aligned(tmp_path, PAIRS), TOKENIZER, CONFIG, cache, progress=True)
    assert capsys.readouterr() == ("", "")


def test_progress_goes_to_standard_error(tmp_path, cache, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    prepare(aligned(tmp_path, PAIRS), TOKENIZER, CONFIG, cache, progress=True)
    shown = capsys.readouterr()
    assert f"{len(PAIRS)}/{len(PAIRS)}" in shown.err
    assert shown.out == ""


def test_standard_input_is_read_once_and_used_twice(cache, monkeypatch):
    content = "".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS[:3]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    corpora = spool(parse_corpora(["-"]), cache)
    tokenizer = train_tokenizer(corpora, CONFIG, cache_dir=cache)
    corpus = prepare(corpora, tokenizer, CONFIG, cache, progress=False, clean=False)
    assert [corpus.text(row) for row in range(len(corpus))] == PAIRS[:3]


def test_messages_show_the_names_of_copied_files(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nno tab\n")))
    with pytest.raises(UserError, match=r"^standard input: line 2 has no tab"):
        prepare(parse_corpora(["-"]), TOKENIZER, CONFIG, cache, progress=False)
    (tmp_path / "a.tsv").write_text("".join(f"a{i}\t{f'b{i} ' * 99}\n" for i in range(9)), encoding="utf-8")
    parts = split_corpora(parse_corpora([str(tmp_path / "a.tsv")]), parse_validation_size(["2pairs"]), cache_dir=cache)
    for corpus, name in ((parts.train[0], f"{tmp_path}/a.tsv"), (parts.valid, f"2pairs of {tmp_path}/a.tsv")):
        with pytest.raises(UserError, match=f"^{name}: nothing to train on"):
            prepare([corpus], TOKENIZER, CONFIG, cache, progress=False)
    for name in ("one", "two"):
        (tmp_path / f"{name}.po").write_text(f'msgid "{name}"\nmsgstr "x"\n', encoding="utf-8")
    monkeypatch.setenv("HEADWISE_CACHE", str(cache))
    (made, other), _ = memories_as_tsv([f"{tmp_path}/one.po", "b.tsv", f"{tmp_path}/two.po"])
    assert made.startswith(str(cache)) and base_names([made, other]) == ["one.po", "two.po", "b.tsv"]
    assert str(pickle.loads(pickle.dumps(Corpus((made,))))) == f"{tmp_path}/one.po + {tmp_path}/two.po"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_once_and_used_twice(tmp_path, cache):
    pipe = tmp_path / "a.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\tb\n",))
    writer.start()
    corpora = spool([Corpus((str(pipe),))], cache)
    writer.join()
    assert [corpus.text(0) for corpus in [prepare(corpora, TOKENIZER, CONFIG, cache, False)] * 2] == [("a", "b")] * 2


def test_a_trained_tokenizer_is_cached(tmp_path, cache, monkeypatch):
    corpora = aligned(tmp_path, PAIRS)
    config = replace(CONFIG, subword="unigram", vocab_size=262)  # whose training is not repeatable
    first = train_tokenizer(corpora, config, ["<2de>"], cache)
    key = prepare(corpora, first, config, cache, progress=False).key
    monkeypatch.setattr(Tokenizer, "train", None)
    again = train_tokenizer(corpora, config, ["<2de>"], cache)
    assert prepare(corpora, again, config, cache, progress=False).key == key


def test_a_damaged_tokenizer_is_trained_again(tmp_path, cache):
    corpora = aligned(tmp_path, PAIRS)
    first = train_tokenizer(corpora, CONFIG, cache_dir=cache)
    (folder,) = cache.glob("tokenizer-*")
    path = folder / module.TOKENIZER
    path.write_text(path.read_text(encoding="utf-8").replace('"A"', '"\u0100"'), encoding="utf-8")
    assert Tokenizer.load(path).fingerprint != first.fingerprint
    with pytest.warns(UserWarning, match=r"tokenizer\.json: damaged in the cache"):
        assert train_tokenizer(corpora, CONFIG, cache_dir=cache).fingerprint == first.fingerprint
    assert is_intact(folder) and Tokenizer.load(path).fingerprint == first.fingerprint


def test_a_large_corpus_trains_the_tokenizer_on_a_sample(tmp_path, cache, monkeypatch):
    """The same one every time, from the whole of all files; a corpus that is not larger is used in full."""
    trained_on: list[list[str]] = []

    def train(texts, config, special):
        trained_on.append(list(texts))
        return TOKENIZER

    monkeypatch.setattr(Tokenizer, "train", train)
    files = [tmp_path / "a.tsv", tmp_path / "b.tsv"]
    for name, path in zip("ab", files, strict=True):
        path.write_text("".join(f"{name}{i}\t{name.upper()}{i}\n" for i in range(50)), encoding="utf-8")
    corpora, said = parse_corpora(list(map(str, files))), list[str]()
    for sample in (10, 10, 100, 0):
        shutil.rmtree(cache, ignore_errors=True)
        train_tokenizer(corpora, replace(CONFIG, tokenizer_sample=sample), cache_dir=cache, report=said.append)
    first, again, *complete = trained_on
    assert first == again
    assert len(first) == 2 * 10
    assert [src.upper() for src in first[::2]] == first[1::2]
    tens = [(src[0], int(src[1:]) // 10) for src in first[::2]]
    assert tens == [(name, i) for name in "ab" for i in range(5)]
    assert len({int(src[1:]) % 10 for src in first[::2]}) > 3
    assert [len(texts) for texts in complete] == [200, 200]
    assert said == ["the tokenizer is trained on 10 of 100 pairs (data.tokenizer_sample)"] * 2


def test_a_sample_has_its_own_tokenizer_in_the_cache(tmp_path, cache):
    corpora = aligned(tmp_path, PAIRS)
    for sample in (3, 4, 100, 0):
        train_tokenizer(corpora, replace(CONFIG, tokenizer_sample=sample), cache_dir=cache)
    assert len(list(cache.glob("tokenizer-*"))) == 3  # the last two are the same


def test_a_file_that_changes_behind_the_sample_is_an_error(tmp_path, cache, monkeypatch):
    corpora = aligned(tmp_path, PAIRS)
    hashed = module.hash_corpora(corpora)
    aligned(tmp_path, [*PAIRS[:-1], ("other", "anders")])
    monkeypatch.setattr(module, "hash_corpora", lambda corpora: hashed)
    with pytest.raises(UserError, match="changed while it was being read"):
        train_tokenizer(corpora, replace(CONFIG, tokenizer_sample=1), cache_dir=cache)
    assert not list(cache.glob("tokenizer-*"))


def test_the_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "elsewhere"))
    corpus = prepare(aligned(tmp_path, PAIRS), TOKENIZER, CONFIG, progress=False)
    assert (tmp_path / "elsewhere" / corpus.key).is_dir()


def test_an_unusable_cache_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"the cache cannot be used .*set HEADWISE_CACHE"):
        prepare(aligned(tmp_path, PAIRS), TOKENIZER, CONFIG, tmp_path / "file", progress=False)


def test_real_messy_corpus(shared_data, cache):
    corpora = [Corpus((str(shared_data / "messy-tsv" / "lafand-eng-pcm.train.tsv"),))]
    corpus = prepare(
        corpora, TOKENIZER, replace(CONFIG, max_length=10_000, max_length_ratio=1e9), cache, progress=False
    )
    assert (corpus.read, corpus.dropped, len(corpus)) == (5048, {"one side is empty": 257}, 4791)
    assert corpus.src(0).dtype == np.int32
