"""Vocabularies of the families, from any of their files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from headwise.errors import UserError
from headwise.runtime.tokenizers.vocabulary import read_vocabulary

TEXTS = ["A dog runs.", "the cat is on the mat", "dogs and cats run"]
SENTENCES = [f"{who} {does} {where}." for who in ("A dog", "The cat", "He") for does in ("runs", "is", "sleeps")
             for where in ("here", "on the mat", "in the house", "there")]  # fmt: skip


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learnt on a few sentences, marks numbered as its library does: <unk>, <s>, </s>."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    folder = tmp_path_factory.mktemp("spm")
    (folder / "text").write_text("\n".join(SENTENCES * 5))
    trainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=45, model_type="bpe", minloglevel=2
    )
    return folder / "m.model"


def model_of(path: Path) -> Any:
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=str(path))


def copy(model: Path, folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(model.read_bytes())
    return folder


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def test_a_complete_tokenizer_wins_over_other_files(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"dog": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("[UNK]\n")
    vocabulary = read_vocabulary(tmp_path, {})
    assert vocabulary.encode("dog cat") == [0, 1]
    assert (vocabulary.id_of("dog"), vocabulary.id_of("cat")) == (0, None)


def test_padding_and_cutting_stored_in_a_tokenizer_are_not_obeyed(tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"dog": 0, "?": 1, "[PAD]": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=3, pad_id=2)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_vocabulary(tmp_path, {})
    assert vocabulary.encode("dog") == [0]
    assert vocabulary.encode("dog cat dog cat dog") == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(("lower", "expected"), [(True, [2, 6, 5, 7, 3]), (False, [2, 1, 5, 7, 3])])
def test_word_pieces(lower: bool, expected: list[int], tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "a", "##s"]))
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": lower})
    vocabulary = read_vocabulary(tmp_path, {"model_type": "bert"})
    assert vocabulary.encode("A dogs") == expected
    assert vocabulary.decode([2, 6, 5, 7, 3]) == "a dogs"


def test_word_pieces_of_mpnet(tmp_path: Path) -> None:
    """Its marks are those of RoBERTa."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>", "a", "dog", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    theirs = pytest.importorskip("transformers").MPNetTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})
    vocabulary = read_vocabulary(tmp_path, {"model_type": "mpnet"})
    for text in ("A dogs", "a <mask> dog", "a cat"):
        assert vocabulary.encode(text) == theirs(text).input_ids
    assert vocabulary.encode("a cat") == [0, 6, 4, 2]
    two = vocabulary.encode_two("a", "dog") if vocabulary.encode_two else None
    assert two == (theirs("a", "dog").input_ids, [0] * 6)


@pytest.mark.parametrize(("family", "ends"), [("gpt2", ()), ("bart", ("<s>", "</s>")), ("roberta", ("<s>", "</s>"))])
def test_merges(family: str, ends: Sequence[str], tmp_path: Path) -> None:
    learnt = tokenizers.ByteLevelBPETokenizer()
    learnt.train_from_iterator(SENTENCES, vocab_size=300, special_tokens=["<s>", "</s>", "<|endoftext|>"])
    learnt.save_model(str(tmp_path))
    vocabulary = read_vocabulary(tmp_path, {"model_type": family})
    for text in [*TEXTS, "Größe \U0001f600"]:
        middle = learnt.encode(text).ids
        around = [learnt.token_to_id(end) for end in ends]
        assert vocabulary.encode(text) == [*around[:1], *middle, *around[1:]]
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_marks_added_to_merges_follow_them(tmp_path: Path) -> None:
    """As a Whisper that was trained further has its languages."""
    learnt = tokenizers.ByteLevelBPETokenizer()
    learnt.train_from_iterator(SENTENCES, vocab_size=300, special_tokens=["<|endoftext|>"])
    learnt.save_model(str(tmp_path))
    size = learnt.get_vocab_size()
    write_json(tmp_path / "added_tokens.json", {"<|de|>": size + 1, "<|en|>": size})
    vocabulary = read_vocabulary(tmp_path, {"model_type": "whisper"})
    assert (vocabulary.id_of("<|en|>"), vocabulary.pieces()["<|de|>"]) == (size, size + 1)
    assert vocabulary.decode([*vocabulary.encode("a dog"), size]) == "a dog"
    write_json(tmp_path / "added_tokens.json", {"<|en|>": size + 7})
    with pytest.raises(
        UserError, match=rf"added_tokens.json: <\|en\|> cannot have the id {size + 7}: it would be {size}"
    ):
        read_vocabulary(tmp_path, {"model_type": "whisper"})


def test_t5_has_an_end_mark_and_sentinels(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "spiece.model"), model_of(sentencepiece_model)
    vocabulary = read_vocabulary(folder, {"model_type": "t5", "vocab_size": 145})
    for text in TEXTS:
        assert vocabulary.encode(text) == [*model.encode(text), model.eos_id()]
        assert vocabulary.decode([*vocabulary.encode(text), 144]) == model.decode(model.encode(text))
    assert (vocabulary.id_of("<extra_id_0>"), vocabulary.id_of("<extra_id_99>")) == (144, 45)
    assert vocabulary.id_of("no such piece") is None


def test_llama_has_a_start_mark(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "tokenizer.model"), model_of(sentencepiece_model)
    vocabulary = read_vocabulary(folder, {"model_type": "llama"})
    assert vocabulary.encode("A dog") == [model.bos_id(), *model.encode("A dog")]
    write_json(folder / "tokenizer_config.json", {"add_bos_token": False, "add_eos_token": True})
    assert read_vocabulary(folder, {}).encode("A dog") == [*model.encode("A dog"), model.eos_id()]


def test_marian_has_a_model_for_each_side_and_one_list(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "source.spm", "target.spm"), model_of(sentencepiece_model)
    pieces = ["</s>", "<unk>", *(model.id_to_piece(i) for i in range(44, 2, -1)), ">>fra<<", "<pad>"]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    vocabulary = read_vocabulary(folder, {"model_type": "marian"})
    expected = [pieces.index(piece) for piece in model.encode("The cat runs.", out_type=str)]
    assert vocabulary.encode("The cat runs.") == [*expected, 0]
    assert vocabulary.encode(">>fra<< The cat runs.") == [44, *expected, 0]
    assert vocabulary.decode([45, *expected, 0]) == "The cat runs."
    assert vocabulary.id_of(">>fra<<") == 44


def test_fairseqs_marks_come_first(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "sentencepiece.bpe.model"), model_of(sentencepiece_model)
    vocabulary = read_vocabulary(folder, {"model_type": "mbart"})
    shifted = [i + 1 for i in model.encode("The cat is here.")]
    assert vocabulary.encode("The cat is here.") == [*shifted, 2]
    assert vocabulary.decode([0, *shifted, 2, 1]) == "The cat is here."
    assert read_vocabulary(folder, {"model_type": "xlm-roberta"}).encode("The cat is here.") == [0, *shifted, 2]


def test_camemberts_marks_come_first_and_some_twice(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "sentencepiece.bpe.model"), model_of(sentencepiece_model)
    vocabulary = read_vocabulary(folder, {"model_type": "camembert"})
    shifted = [i + 4 for i in model.encode("The cat is here.")]
    assert vocabulary.encode("The cat is here.") == [5, *shifted, 6]
    assert vocabulary.decode([5, *shifted, 6, 1]) == "The cat is here."
    assert (vocabulary.id_of("<pad>"), vocabulary.id_of("<mask>")) == (1, model.get_piece_size() + 4)


def test_pegasus_ids_begin_behind_its_marks(tmp_path: Path) -> None:
    trainer, folder = pytest.importorskip("sentencepiece").SentencePieceTrainer, tmp_path
    trainer.train(sentence_iterator=iter(SENTENCES), model_prefix=str(tmp_path / "spiece"), vocab_size=29,
                  minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)  # fmt: skip
    model = model_of(folder / "spiece.model")
    vocabulary = read_vocabulary(folder, {"model_type": "pegasus"})
    shifted = [i + 103 for i in model.encode("The cat is here.")]
    assert vocabulary.encode("The cat is here.") == [*shifted, 1]
    assert vocabulary.decode([0, 2, *shifted, 1]) == "The cat is here."
    assert (vocabulary.id_of("</s>"), vocabulary.id_of("no such piece")) == (1, None)


@pytest.fixture(scope="module")
def bracketed_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ALBERT has it: lowercase, with the marks [CLS], [SEP] and [MASK]."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    folder = tmp_path_factory.mktemp("spm")
    (folder / "text").write_text("\n".join(f"{sentence} 2021, 1" for sentence in SENTENCES * 5).lower())
    trainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=32, minloglevel=2, pad_id=0, unk_id=1,
        bos_id=-1, eos_id=-1, pad_piece="<pad>", control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )  # fmt: skip
    return folder / "m.model"


def test_albert_is_lowercase_between_marks(bracketed_model: Path, tmp_path: Path) -> None:
    folder = copy(bracketed_model, tmp_path, "spiece.model")
    theirs = pytest.importorskip("transformers").AlbertTokenizer.from_pretrained(folder)
    vocabulary = read_vocabulary(folder, {"model_type": "albert"})
    for text in [*TEXTS, "The [MASK] runs.", "The C\u00e1t ``is'' in  2021, here"]:
        assert vocabulary.encode(text) == theirs(text).input_ids
    assert vocabulary.decode(vocabulary.encode("The Cat is here.")) == "the cat is here."
    two, types = vocabulary.encode_two("A dog", "The cat") if vocabulary.encode_two else ([], [])
    assert two == theirs("A dog", "The cat").input_ids
    assert types == [0] * len(vocabulary.encode("A dog")) + [1] * (len(vocabulary.encode("The cat")) - 1)
    write_json(folder / "tokenizer_config.json", {"do_lower_case": False})
    assert vocabulary.id_of("<unk>") in read_vocabulary(folder, {"model_type": "albert"}).encode("The")


def test_deberta_has_its_marks_in_its_model_but_for_the_mask(tmp_path: Path) -> None:
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    (tmp_path / "text").write_text("\n".join(SENTENCES * 5))
    trainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "spm"), vocab_size=30, minloglevel=2, pad_id=0,
        bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]",
    )  # fmt: skip
    theirs = pytest.importorskip("transformers").DebertaV2Tokenizer.from_pretrained(tmp_path)
    vocabulary = read_vocabulary(tmp_path, {"model_type": "deberta-v2"})
    for text in [*TEXTS, "the cat  is on the mat", "The [MASK] runs."]:
        assert vocabulary.encode(text) == theirs(text).input_ids
    assert vocabulary.id_of("[MASK]") == vocabulary.encode("[MASK]")[-2] == 30
    assert vocabulary.decode(vocabulary.encode("The [MASK] runs.")) == "The runs."
    two = vocabulary.encode_two("A dog", "The cat") if vocabulary.encode_two else None
    found = theirs("A dog", "The cat")
    assert two == (found.input_ids, found.token_type_ids)


def test_m2m_has_a_list_of_its_own(sentencepiece_model: Path, tmp_path: Path) -> None:
    folder, model = copy(sentencepiece_model, tmp_path, "sentencepiece.bpe.model"), model_of(sentencepiece_model)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(i) for i in range(44, 2, -1))]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    vocabulary = read_vocabulary(folder, {"model_type": "m2m_100"})
    expected = [pieces.index(piece) for piece in model.encode("The cat is here.", out_type=str)]
    assert vocabulary.encode("The cat is here.") == [*expected, 2]
    assert vocabulary.decode(expected) == "The cat is here."
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["__af__", {"content": "__de__"}]})
    vocabulary = read_vocabulary(folder, {"model_type": "m2m_100"})
    assert (vocabulary.id_of("__af__"), vocabulary.id_of("__de__")) == (len(pieces), len(pieces) + 1)
    assert vocabulary.decode([len(pieces) + 1, *expected]) == "The cat is here."


def test_a_folder_without_a_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no.*tokenizer.json; source.spm.*target.spm"):
        read_vocabulary(tmp_path, {})


DAMAGED: dict[str, dict[str, str]] = {
    "torn tokenizer.json": {"tokenizer.json": '{"version": "1.0", "model": {"type": "BPE", "voc'},
    "another tokenizer.json": {"tokenizer.json": '{"hello": 1}'},
    "torn settings": {"vocab.txt": "[UNK]\n[CLS]\n[SEP]\na\n", "tokenizer_config.json": '{"a": '},
    "torn vocab.json": {"vocab.json": '{"a": 0, "b"', "merges.txt": "#version: 0.2\na b\n"},
    "merges of something else": {"vocab.json": '{"a": 0, "b": 1}', "merges.txt": "#version: 0.2\na b c d\n"},
    "no model of SentencePiece": {"spiece.model": "hello"},
    "torn ids of Marian": {"source.spm": "x", "target.spm": "x", "vocab.json": "[1, 2"},
}


@pytest.mark.parametrize("files", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_vocabulary_is_one_line(files: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(str(tmp_path))) as caught:
        read_vocabulary(tmp_path, {"model_type": "t5", "eos_token_id": 1})
    assert "\n" not in str(caught.value)
    assert any(name in str(caught.value) for name in files)
