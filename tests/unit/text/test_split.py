"""Held-out validation pairs: none of their sentences is in training, and the split is always the same."""

import gzip
import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, parse_corpora, read_pairs
from headwise.text.files.sources import Pair, display_name
from headwise.text.files.split import Split, parse_validation_size, split_corpora

WORDS = ["a", "Dog", "runs", "ein", "Hund", "läuft", "?", "!"]


def pairs_of(n: int, seed: int = 1) -> list[Pair]:
    """Sentences with duplicates, some in other case and punctuation."""
    rng = Random(seed)

    def sentence(side: str) -> str:
        text = f"{side} sentence {rng.randrange(2 * n)}"
        return rng.choice([text, text.upper() + "!", f"  {text} ."])

    return [(sentence("one"), sentence("two")) for _ in range(n)]


def write(folder: Path, pairs: list[Pair], name: str = "all.tsv") -> str:
    path = folder / name
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return str(path)


def take(amount: str, *paths: str, **rest: Any) -> Split:
    asked = parse_validation_size([amount])
    assert asked is not None
    return split_corpora(parse_corpora(paths), asked, **rest)


def parts(found: Split) -> tuple[list[Pair], list[Pair]]:
    return list(read_pairs(found.train)), list(read_pairs([found.valid]))


def plain(text: str) -> str:
    """An independent definition of equal sentences."""
    kept = [c for c in unicodedata.normalize("NFKC", text).casefold() if unicodedata.category(c)[0] in "LNM"]
    return "".join(kept) or text.strip()


def assert_no_leak(train: list[Pair], valid: list[Pair]) -> None:
    taken = {plain(text) for pair in valid for text in pair}
    assert [pair for pair in train if taken & {plain(text) for text in pair}] == []


SENTENCES = st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join)


@settings(max_examples=60)
@given(
    pairs=st.lists(st.tuples(SENTENCES, SENTENCES), min_size=2, max_size=40),
    amount=st.sampled_from(["1%", "10%", "50%", "1pair", "3pairs"]),
)
def test_no_sentence_of_a_validation_pair_is_in_training(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], amount: str
) -> None:
    try:
        found = take(amount, write(tmp_path_factory.mktemp("corpus"), pairs))
    except UserError as error:
        assert re.search("none is left to train on|leave some to train on|no pair .* has text on both", str(error))
        return
    train, valid = parts(found)
    assert_no_leak(train, valid)
    assert len(valid) == found.taken
    assert len(train) + len(valid) + found.dropped == len(pairs)
    assert not Counter(train + valid) - Counter(pairs)
    assert all(src.strip() and tgt.strip() for src, tgt in valid)


@pytest.mark.parametrize(("amount", "expected"), [("1%", 20), ("0.1%", 2), ("500pairs", 500), ("1pair", 1)])
def test_size_of_the_split(tmp_path: Path, amount: str, expected: int) -> None:
    found = take(amount, write(tmp_path, pairs_of(2000)))
    assert (found.taken, found.dropped) == (expected, 0)
    assert_no_leak(*parts(found))


def test_the_split_does_not_depend_on_the_order_of_pairs(tmp_path: Path) -> None:
    pairs = pairs_of(600)
    first = parts(take("5%", write(tmp_path, pairs)))
    again = parts(take("5%", write(tmp_path, pairs[::-1])))
    assert [Counter(part) for part in first] == [Counter(part) for part in again]


def test_every_pair_is_equally_likely(tmp_path: Path) -> None:
    """Including frequent sentences; otherwise validation would have only rare ones."""
    alone = [(f"alone {i}", f"allein {i}") for i in range(3000)]
    four = [(f"four {i}", f"vier {i} {k}") for i in range(750) for k in range(4)]
    _, valid = parts(take("10%", write(tmp_path, alone + four)))
    assert 0.4 < sum(src.startswith("four") for src, _ in valid) / len(valid) < 0.6


def test_pairs_are_dropped_if_groups_are_too_large(tmp_path: Path) -> None:
    """All questions have one of two answers, one of which is rare."""
    pairs = [(f"question {i}", "no" if i % 50 == 0 else "yes") for i in range(400)]
    found = take("1%", write(tmp_path, pairs))
    train, valid = parts(found)
    assert_no_leak(train, valid)
    assert (found.taken, found.dropped, {tgt for _, tgt in valid}) == (4, 4, {"no"})


def test_nothing_left_to_train_on_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, [(f"question {i}", "yes") for i in range(30)])
    with pytest.raises(UserError, match=r"^--valid 1%: every pair shares a sentence .* none is left to train on; "):
        take("1%", path)
    with pytest.raises(UserError, match=r"^--valid 30pairs.*30 pairs"):
        take("30pairs", path)


def test_pairs_with_a_blank_side_are_not_held_out(tmp_path: Path) -> None:
    pairs = [(f"word {i}", "" if i % 2 else f"Wort {i}") for i in range(40)]
    found = take("19pairs", write(tmp_path, pairs))
    train, valid = parts(found)
    assert (len(valid), found.dropped, len(train)) == (19, 0, 21)
    assert all(tgt for _, tgt in valid)


def test_the_split_is_stratified_by_label(tmp_path: Path) -> None:
    rows = [(f"text {i % 900}", "rare" if i % 10 == 0 else "usual") for i in range(1000)]
    found = take("10%", write(tmp_path, rows), labelled=True)
    train, valid = parts(found)
    assert Counter(label for _, label in valid) == {"rare": 10, "usual": 90}
    assert {text for text, _ in train} & {text for text, _ in valid} == set()
    assert found.dropped == 0


def test_labelled_files(tmp_path: Path) -> None:
    path = write(tmp_path, [("text", "label"), ("text", "label\tmore")])
    with pytest.raises(UserError, match="line 2 has 2 tabs"):
        take("1pair", path, labelled=True)


def test_all_formats_give_the_same_parts(tmp_path: Path) -> None:
    pairs = pairs_of(300)
    whole = [Counter(part) for part in parts(take("5%", write(tmp_path, pairs)))]
    for name, side in (("a.src", 0), ("a.tgt", 1)):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs[:100]), encoding="utf-8")
    lines = "".join(json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in pairs[100:200])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    files = [str(tmp_path / name) for name in ("a.src", "a.tgt", "b.jsonl.gz")]
    assert [Counter(part) for part in parts(take("5%", *files, write(tmp_path, pairs[200:], "c.tsv")))] == whole


def test_any_text_survives(tmp_path: Path) -> None:
    pairs = [(f"tab\t{i}", f"line\nend\r {i}\u2028") for i in range(20)]
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps({"src": src, "tgt": tgt}) + "\n" for src, tgt in pairs), encoding="utf-8")
    train, valid = parts(take("3pairs", str(path)))
    assert sorted(train + valid) == sorted(pairs)


def test_the_cache_is_used_and_repaired(tmp_path: Path) -> None:
    path, cache = write(tmp_path, pairs_of(100)), tmp_path / "cache"
    first = take("5%", path, cache_dir=cache)
    before = parts(first)
    stamp = Path(first.valid.paths[0]).stat().st_mtime_ns
    assert take("5%", path, cache_dir=cache) == first
    assert Path(first.valid.paths[0]).stat().st_mtime_ns == stamp
    train = Path(first.train[0].paths[0])
    train.write_bytes(train.read_bytes().replace(b"7", b"8", 1))
    with pytest.warns(UserWarning, match=f"{train.name}: damaged in the cache"):
        assert parts(take("5%", path, cache_dir=cache)) == before
    train.unlink()
    with pytest.warns(UserWarning, match=f"{train.name}: damaged in the cache"):
        assert parts(take("5%", path, cache_dir=cache)) == before
    assert [entry.name for entry in cache.iterdir()] == [Path(first.train[0].paths[0]).parent.name]


def test_input_that_can_be_read_only_once_is_an_error() -> None:
    with pytest.raises(UserError, match=r"^--valid 1%: standard input.*only"):
        split_corpora([Corpus(("-",))], parse_validation_size(["1%"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0%", "100%", "250%", "0pairs", "500"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(UserError, match=rf"^--valid {text}.*not.*1%.*500pairs"):
        parse_validation_size([text])


@pytest.mark.parametrize("files", [[], ["500", "pairs"], ["a.en", "a.de"], ["1%", "a.tsv"], ["pairs.tsv"], ["-"]])
def test_files_are_not_sizes(files: list[str]) -> None:
    assert parse_validation_size(files) is None


def test_each_corpus_keeps_its_remaining_pairs(tmp_path: Path) -> None:
    """So each can have its own weight; a corpus that is held out completely has no file."""
    pairs = pairs_of(200)
    files = [write(tmp_path, some, name) for name, some in (("a.tsv", pairs[:150]), ("b.tsv", pairs[150:]))]
    found = take("10%", *files)
    left = [list(read_pairs([corpus])) for corpus in found.train]
    assert set(left[0]) < set(pairs[:150]) and set(left[1]) < set(pairs[150:])
    assert sum(map(len, left)) == 180
    alone = write(tmp_path, list(read_pairs([found.valid]))[:1], "c.tsv")
    assert len(take("180pairs", *files, alone).train) <= 3


def test_added_files_change_neither_validation_pairs_nor_the_rest(tmp_path: Path) -> None:
    first, cache = write(tmp_path, pairs_of(300)), tmp_path / "cache"
    alone = take("5%", first, cache_dir=cache)
    rest, valid = parts(alone)
    (source, target), other = valid[0], ("one new sentence", "two new sentence")
    leaks = [(source.upper() + "!", other[1]), (other[0], f"  {target}"), (target, source)]
    added = parse_corpora([write(tmp_path, [other, *leaks, ("", other[1]), *rest[:5]], "added.tsv")])
    found = take("5%", first, cache_dir=cache, added=added)
    assert list(read_pairs([found.valid])) == valid
    assert [*read_pairs(found.train[:1])] == rest
    assert [*read_pairs(found.train[1:])] == [other, ("", other[1]), *rest[:5]]
    assert (found.taken, found.dropped) == (alone.taken, alone.dropped + 3)
    assert_no_leak(parts(found)[0], valid)
    assert display_name(found.valid.paths[0]) == f"5% of {first}"
