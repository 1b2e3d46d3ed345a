"""Large corpora in shards: as one folder, resumed after a kill, reused when a corpus grows, rebuilt when damaged."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, parse_corpora
from headwise.text.files.sources import Pair
from headwise.text.prepared import file_hashes
from headwise.text.prepared import prepared as module
from headwise.text.prepared.prepared import PreparedCorpus, prepare
from headwise.text.prepared.shortlist import estimate_shortlist
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(vocab_size=280, max_length=20, max_length_ratio=3.0)
SHARD, CHUNK = 20, 5


def pairs(n: int, seed: int = 0) -> list[Pair]:
    """Sentences of one to five words; every tenth pair is dropped."""
    rng = random.Random(seed)
    words = ["dog", "cat", "house", "a", "the", "日本"]
    made = []
    for i in range(n):
        src, tgt = (" ".join(rng.choices(words, k=rng.randint(2, 5))) for _ in "st")
        made.append((src, "" if i % 10 == 3 else tgt))
    return made


TOKENIZER = Tokenizer.train((side for pair in pairs(40) for side in pair), CONFIG)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hashes, "SHARD", SHARD)
    monkeypatch.setattr(module, "CHUNK", CHUNK)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """The pairs that are tokenised."""
    seen, original = list[Pair](), module.tokenize_pairs

    def recorded(chunk: list[Pair], *rest: object) -> object:
        seen.extend(chunk)
        return original(chunk, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "tokenize_pairs", recorded)
    return seen


def written(folder: Path, content: list[Pair], form: str = "aligned") -> list[Corpus]:
    folder.mkdir(exist_ok=True)
    if form == "tsv":
        (folder / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in content), encoding="utf-8")
        return parse_corpora([str(folder / "a.tsv")])
    for name, lines in zip(("a.en", "a.de"), zip(*content, strict=True), strict=True):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return parse_corpora([str(folder / "a.en"), str(folder / "a.de")])


def made(corpora: list[Corpus], cache: Path, **options: object) -> PreparedCorpus:
    return prepare(corpora, TOKENIZER, CONFIG, cache, progress=False, **options)  # type: ignore[arg-type]


def content(corpus: PreparedCorpus) -> list[tuple[list[int], list[int], Pair, int, int]]:
    lengths = zip(corpus.src_lengths.tolist(), corpus.tgt_lengths.tolist(), strict=True)
    rows = enumerate(lengths)
    return [(corpus.src(i).tolist(), corpus.tgt(i).tolist(), corpus.text(i), *both) for i, both in rows]


def folders(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


@pytest.mark.parametrize(
    ("sizes", "workers"), [((21,), 1), ((40,), 1), ((47,), 1), ((40, 3, 25), 1), ((40, 3, 25), 2), ((60, 60), 1)]
)
def test_shards_are_the_corpus(
    tmp_path: Path, cache: Path, sizes: tuple[int, ...], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were one folder: rows, counts and key, which runs record."""
    corpora = [
        corpus
        for i, n in enumerate(sizes)
        for corpus in written(tmp_path / str(i), pairs(n, i), ("aligned", "tsv")[i % 2])
    ]
    monkeypatch.setattr(module, "MIN_PAIRS_PER_WORKER", 10)
    shards = made(corpora, cache, workers=workers)
    assert len(folders(cache)) == 1 + sum(-(-n // SHARD) for n in sizes)
    monkeypatch.setattr(file_hashes, "SHARD", 1000)
    whole = made(corpora, tmp_path / "whole")
    assert len(folders(tmp_path / "whole")) == 1
    assert content(shards) == content(whole)
    assert len(shards) == len(whole)
    counts = [(one.kept, one.read, one.dropped, one.key) for one in (shards, whole)]
    assert counts[0] == counts[1]
    lists = [estimate_shortlist(one, TOKENIZER.vocab_size, candidates=3, frequent=4) for one in (shards, whole)]
    assert lists[0].frequent.tolist() == lists[1].frequent.tolist()
    assert [set(row) for row in lists[0].likely.tolist()] == [set(row) for row in lists[1].likely.tolist()]


def test_a_complete_corpus_is_not_tokenised_again(tmp_path: Path, cache: Path, tokenised: list[Pair]) -> None:
    corpora = written(tmp_path, pairs(47))
    first = made(corpora, cache)
    tokenised.clear()
    assert content(made(corpora, cache)) == content(first)
    assert not tokenised


class Killed(BaseException):
    pass


@pytest.mark.parametrize("after", [0, 3, 4, 7, 8])
def test_a_killed_preparation_continues_after_its_last_shard(
    tmp_path: Path, cache: Path, after: int, tokenised: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = written(tmp_path, pairs(47))
    expected = content(made(corpora, tmp_path / "whole"))
    tokenised.clear()

    def kill_after(read: Iterator[Pair]) -> Iterator[list[Pair]]:
        for number, chunk in enumerate(original(read)):
            if number > after:
                raise Killed
            yield chunk

    original = module.chunks
    with monkeypatch.context() as patch:
        patch.setattr(module, "chunks", kill_after)
        with pytest.raises(Killed):
            made(corpora, cache)
    done = (after + 1) * CHUNK // SHARD
    assert len(folders(cache)) == done
    tokenised.clear()
    assert content(made(corpora, cache)) == expected
    assert tokenised == pairs(47)[done * SHARD :]


@pytest.mark.parametrize("before", [25, 40, 47])
def test_a_grown_corpus_shares_its_full_shards(tmp_path: Path, cache: Path, before: int, tokenised: list[Pair]) -> None:
    made(written(tmp_path, pairs(70)[:before]), cache)
    old = folders(cache)
    tokenised.clear()
    grown = made(written(tmp_path, pairs(70)), cache)
    assert tokenised == pairs(70)[before // SHARD * SHARD :]
    assert old < folders(cache)
    assert content(grown) == content(made(written(tmp_path, pairs(70)), tmp_path / "anew"))


def test_an_inserted_line_shares_only_what_is_before_it(tmp_path: Path, cache: Path, tokenised: list[Pair]) -> None:
    made(written(tmp_path, pairs(60)), cache)
    tokenised.clear()
    changed = [*pairs(60)[:30], ("a new", "line"), *pairs(60)[30:]]
    made(written(tmp_path, changed), cache)
    assert tokenised == changed[SHARD:]


def test_other_settings_and_tokenizers_share_nothing(tmp_path: Path, cache: Path, tokenised: list[Pair]) -> None:
    corpora = written(tmp_path, pairs(47))
    made(corpora, cache)
    other = Tokenizer.train(["another dog"], CONFIG)
    for tokenizer, config in ((other, CONFIG), (TOKENIZER, replace(CONFIG, max_length=19))):
        tokenised.clear()
        prepare(corpora, tokenizer, config, cache, progress=False)
        assert len(tokenised) == 47
    tokenised.clear()
    made(corpora, cache, clean=False)
    assert len(tokenised) == 47


@pytest.mark.parametrize("damage", ["flipped", "absent", "meta"])
def test_only_a_damaged_shard_is_tokenised_again(
    tmp_path: Path, cache: Path, damage: str, tokenised: list[Pair]
) -> None:
    corpora = written(tmp_path, pairs(47))
    expected = content(first := made(corpora, cache))
    second = cache / module.read_meta(cache / first.key)["shards"][1]
    path = second / ("meta.json" if damage == "meta" else "tgt.values")
    data = path.read_bytes()
    path.unlink()
    if damage != "absent":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    tokenised.clear()
    with pytest.warns(UserWarning, match=f"{second.name}.*{path.name}: damaged in the cache"):
        assert content(made(corpora, cache)) == expected
    assert tokenised == pairs(47)[SHARD : 2 * SHARD]


@pytest.mark.parametrize(("n", "at"), [(47, 3), (47, 27), (47, 43), (45, 43), (40, 39)])
def test_a_shard_of_a_changed_file_never_appears(
    tmp_path: Path, cache: Path, n: int, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shards before the change have been verified and stay."""
    corpora = written(tmp_path, pairs(n))
    hashed = module.hash_corpora(corpora)
    changed = pairs(n)
    changed[at] = ("a cat", "the cat")
    written(tmp_path, changed)
    with monkeypatch.context() as patch:
        patch.setattr(module, "hash_corpora", lambda corpora: hashed)
        with pytest.raises(UserError, match="changed while it was being read"):
            made(corpora, cache)
    assert len(folders(cache)) == at // SHARD
    found = made(corpora, cache)
    assert content(found) == content(made(corpora, tmp_path / "anew"))


def test_a_large_corpus_without_a_usable_pair(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=r"47 pairs.*\(one.*47\)"):
        made(written(tmp_path, [("only", "")] * 47), cache)
