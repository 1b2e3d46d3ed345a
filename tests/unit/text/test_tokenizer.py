"""Subwords: exact round trip, text is never a special token, dropout depends on its seed."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.text.files.corpus import parse_corpora, read_pairs
from headwise.text.tokens.bpe_dropout import Drops
from headwise.text.tokens.tokenizer import Tokenizer, normalization

WORDS = [
    "the",
    "dog",
    "runs",
    "fast",
    "and",
    "a",
    "man",
    "walks",
    "his",
    "brown",
    "dogs",
    "over",
    "green",
    "hills",
    "wild",
    "fox",
]
LETTERS = st.text(st.characters(codec="utf-8"), max_size=30)
FRAGMENTS = [
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<2de>",
    " ",
    "  ",
    "\t",
    "\0",
    "\u2581",
    "Ġ",
    "\U0001f469‍\U0001f692",
]
FRAGMENTS += [
    "dog.",
    "Dog",
    "3.14",
    "日本語です。",
    "e\u0301",
    "\u0301",
    "\ufeff",
    "\u2028",
    "\u200d",
    "ﬁ",
    "İ",
    "...",
]
TEXTS = st.one_of(LETTERS, st.lists(st.one_of(LETTERS, st.sampled_from(FRAGMENTS)), max_size=6).map("".join))


def sentences() -> Iterator[str]:
    generator = random.Random(1)
    for _ in range(300):
        yield " ".join(generator.choices(WORDS, k=6)) + "."


CONFIGS = {
    "bpe": TranslationData(vocab_size=310),
    "unigram": TranslationData(subword="unigram", vocab_size=310),
    "folded": TranslationData(vocab_size=310, normalization="nfkc", lowercase=True),
    "raw": TranslationData(vocab_size=310, normalization="none"),
}
TRAINED = {name: Tokenizer.train(sentences(), config, special=["<2de>"]) for name, config in CONFIGS.items()}
BPE = TRAINED["bpe"]


def normalised(text: str, config: TranslationData) -> str:
    """The result of a round trip: each part between declared tokens, normalised."""
    steps = normalizers.Sequence(normalization(config))
    return "<2de>".join(steps.normalize_str(part) for part in text.split("<2de>"))


@pytest.mark.parametrize("name", CONFIGS)
@given(text=TEXTS)
@example(text="")
@example(text=" ")
@example(text="  a  dog \u2581 ")
@example(text="\0</s><s> <pad>\x1f")
@example(text="<2de> <2de><2de>a<2de>")
def test_every_text_survives_the_round_trip(name, text):
    tokenizer = TRAINED[name]
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == normalised(text, CONFIGS[name])
    assert not {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id} & set(tokens)
    assert all(token < tokenizer.vocab_size for token in tokens)


@given(st.lists(TEXTS, max_size=4))
def test_a_batch_gives_the_same_as_single_texts(texts):
    assert BPE.encode_batch(texts) == [BPE.encode(text) for text in texts]


@given(st.lists(st.integers(0, BPE.vocab_size - 1), max_size=20))
def test_any_ids_can_be_decoded(tokens):
    assert "</s>" not in BPE.decode([*tokens, BPE.eos_id, BPE.pad_id]).replace("<2de>", "")
    assert len(BPE.pieces(tokens)) == len(tokens)
    assert all(piece.isprintable() and " " not in piece and piece for piece in BPE.pieces(tokens))


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_pieces_are_shared_and_readable(name):
    tokenizer = TRAINED[name]
    assert tokenizer.pieces(tokenizer.encode("dog dog.")) == ["▁dog", "▁dog", "."]
    assert tokenizer.pieces(tokenizer.encode("2021")) in (["▁2", "0", "2", "1"], ["▁", "2", "0", "2", "1"])
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert tokenizer.pieces(tokenizer.encode("\n"))[-1] == "<0x0A>"


def test_declared_tokens_are_one_token_and_others_are_text():
    tokens = BPE.encode("<2de>dog</s>")
    assert BPE.pieces(tokens) == ["<2de>", "▁dog", "<", "/", "s", ">"]
    assert BPE.vocab_size == 310


def test_training_twice_gives_the_same_bpe():
    assert Tokenizer.train(sentences(), CONFIGS["bpe"], ["<2de>"]).fingerprint == BPE.fingerprint
    assert Tokenizer.train(sentences(), CONFIGS["bpe"]).fingerprint != BPE.fingerprint


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    tokenizer = TRAINED[name]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "</s> Die <2de> dogs\u00a0laufen.  日本"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))
    assert loaded.fingerprint == tokenizer.fingerprint
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.decode(plain.encode("the dog runs.").ids) == "the dog runs."


def test_foreign_tokenizer_with_other_names(tmp_path):
    backend = tokenizers.Tokenizer(models.WordLevel({"dog": 0, "[UNK]": 1, "cat": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["[CLS]", "[SEP]", "[UNK]", "[PAD]"])
    backend.enable_padding(length=9)
    backend.enable_truncation(1)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (5, 3, 4, 1)
    assert tokenizer.encode("dog cat bird") == [0, 2, 1]
    assert tokenizer.decode([3, 0, 2, 4, 5]) == "dog cat"
    with pytest.raises(UserError, match="bpe_dropout"):
        tokenizer.encode_with_dropout("dog", 0.1, 1)


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match="no such file"):
        Tokenizer.load(path)
    for content in (b"", b"{}", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"tokenizer\.json: is not a tokenizer"):
            Tokenizer.load(path)
    backend = tokenizers.Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1}))
    backend.add_tokens([AddedToken("</s>", special=True)])
    backend.save(str(path))
    with pytest.raises(UserError, match=r"tokenizer\.json.*no <unk>"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TranslationData(vocab_size=259), "data.vocab_size is 259; bytes and special tokens alone need 260"),
        (TranslationData(subword="bpee"), "did you mean 'bpe'"),
        (TranslationData(normalization="nfx"), "did you mean 'nfc'"),
    ],
)
def test_bad_settings(config, message):
    with pytest.raises(UserError, match=message):
        Tokenizer.train(["a"], config)


@given(text=TEXTS, seed=st.integers(0, 2**64))
def test_dropout_keeps_the_text_and_depends_on_the_seed(text, seed):
    tokens = BPE.encode_with_dropout(text, 0.3, seed)
    assert BPE.decode(tokens) == normalised(text, CONFIGS["bpe"])
    assert BPE.encode_with_dropout(text, 0.3, seed) == tokens
    assert len(tokens) >= len(BPE.encode(text))


@given(TEXTS)
def test_dropout_of_nothing_is_encode(text):
    assert BPE.encode_with_dropout(text, 0.0, 1) == BPE.encode(text)
    assert BPE.merges.segment(text, 1e-12, 1) == BPE.encode(text)


def test_dropout_of_everything_leaves_bytes():
    assert len(BPE.encode_with_dropout("dogs über", 1.0, 1)) == len(" dogs über".encode())


def test_dropout_varies_with_the_seed_only():
    text = "the dog runs over the green hills"
    drawn = {tuple(BPE.encode_with_dropout(text, 0.2, seed)) for seed in range(20)}
    assert len(drawn) > 10
    fresh = Tokenizer(BPE.backend)  # nothing remembered from other texts
    assert fresh.encode_with_dropout(text, 0.2, 7) == BPE.encode_with_dropout(text, 0.2, 7)


def test_dropout_is_algorithm_1_of_the_paper():
    """Compared with a naive implementation of the paper: collect merges, drop each, apply the best."""
    word, probability, n = "Ġwalks", 0.3, 4000
    generator = random.Random(1)

    def naive() -> tuple[int, ...]:
        symbols = list(word)
        while True:
            merges = ((BPE.merges.rank.get(pair), at) for at, pair in enumerate(pairwise(symbols)))
            kept = [(rank, at) for rank, at in merges if rank is not None and generator.random() >= probability]
            if not kept:
                return tuple(BPE.merges.vocab[symbol] for symbol in symbols)
            at = min(kept)[1]
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]

    expected = Counter(naive() for _ in range(n))
    drops = Drops(probability, generator)
    drawn = Counter(tuple(BPE.merges.segment_word(word, drops)) for _ in range(n))
    assert len(expected) > 5
    assert all(abs(expected[tokens] - drawn[tokens]) / n < 0.03 for tokens in expected | drawn)


def test_dropout_needs_bpe():
    with pytest.raises(UserError, match=r"data\.bpe_dropout needs byte-level BPE"):
        TRAINED["unigram"].encode_with_dropout("dog", 0.1, 1)


def test_fingerprint_depends_on_the_pieces():
    assert len({tokenizer.fingerprint for tokenizer in TRAINED.values()}) == len(TRAINED)
    assert json.loads(BPE.backend.to_str())["model"]["type"] == "BPE"


def test_real_text(shared_data):
    names = ["multi30k/val.fr.gz", "multi30k/val.de.gz", "tanaka-enja/dev.ja.gz", "tanaka-enja/dev.en.gz"]
    texts = [side for pair in read_pairs(parse_corpora([str(shared_data / n) for n in names])) for side in pair]
    steps = normalizers.Sequence(normalization(CONFIGS["bpe"]))
    for name in ("bpe", "unigram"):
        tokens = TRAINED[name].encode_batch(texts)
        assert [TRAINED[name].decode(row) for row in tokens] == [steps.normalize_str(text) for text in texts]
