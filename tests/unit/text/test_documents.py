"""From files of running text to one array of tokens: documents, chunks, characters, errors."""

import json
from pathlib import Path

import pytest

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.text.files import documents
from headwise.text.files.documents import (
    DocumentTokenizer,
    document_tokenizer,
    prepare_documents,
    text_chunks,
    train_document_tokenizer,
    train_on_documents,
)
from headwise.text.tokens.tokenizer import Tokenizer

BY_CHARACTERS = TranslationData(subword="characters")
TEXT = "To be,\n\n  or not 2 be:\nthat is\tthe café ?!\n" * 9


def by_letters(**changes: object) -> DocumentTokenizer:
    """A token for each character, its code; 1 before a document, 2 after it."""
    values = {"prefix": [1], "suffix": [2], "fingerprint": "letters", "vocab_size": 1000}
    return DocumentTokenizer(lambda texts: [[*map(ord, text)] for text in texts], **{**values, **changes})


def file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_a_file_is_a_document_and_a_line_of_jsonl_is_one(tmp_path: Path) -> None:
    paths = [file(tmp_path, "a.txt", "ab\n\nc\n")]
    paths.append(file(tmp_path, "b.jsonl", '{"text": "d\\ne", "id": 7}\n{"text": ""}\n{"text": "f"}\n'))
    found = prepare_documents(paths, by_letters(), tmp_path / "cache", progress=False)
    assert found.tokens.tolist() == [1, *map(ord, "ab\n\nc"), 2, 1, *map(ord, "d\ne"), 2, 1, ord("f"), 2]
    assert (found.documents, found.characters) == (3, 9)


@pytest.mark.parametrize(
    "config", [TranslationData(vocab_size=300), BY_CHARACTERS, TranslationData(vocab_size=300, subword="unigram")]
)
def test_round_trip_of_consecutive_texts(config: TranslationData) -> None:
    tokenizer = train_on_documents([TEXT], config, ["<x>"])
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    first, second = TEXT[: TEXT.index("that")], TEXT[TEXT.index("that") :]
    assert tokenizer.encode(first) + tokenizer.encode(second) == tokenizer.encode(TEXT)
    declared = tokenizer.encode("<x>")
    assert len(declared) == 1 and tokenizer.encode("be<x>be") == [
        *tokenizer.encode("be"),
        *declared,
        *tokenizer.encode("be"),
    ]
    assert tokenizer.eos_id not in tokenizer.encode("</s>t")


def test_characters_are_tokens_and_others_are_unknown() -> None:
    tokenizer = train_on_documents(["abba\n", "ba"], BY_CHARACTERS)
    assert tokenizer.vocab_size == 4 + 3
    assert [tokenizer.piece(token) for token in tokenizer.encode("ab\nz")] == ["a", "b", "\n", "<unk>"]
    few = train_on_documents(["aab"], TranslationData(subword="characters", vocab_size=5))
    assert few.vocab_size == 5 and few.piece(4) == "a"  # the most frequent
    with pytest.raises(UserError, match=r"data.vocab_size.*4.*tokens.*4"):
        train_on_documents(["aab"], TranslationData(subword="characters", vocab_size=4))


@pytest.mark.parametrize("size", [1, 5, 20, 10_000])
def test_chunks_concatenate_to_the_document(size: int) -> None:
    parts = list(text_chunks(TEXT.split("\n"), size))
    assert "".join(part.text for part in parts) == TEXT
    assert [part.first for part in parts] == [True, *[False] * (len(parts) - 1)]
    assert [part.last for part in parts] == [*[False] * (len(parts) - 1), True]
    assert (len(parts) > 9) == (size < 1000)
    for part in parts[:-1]:
        assert part.text[-1] == "\n" and not part.text[-2].isspace()
    assert not any(part.text[0].isspace() for part in parts)


def test_a_document_in_chunks_has_the_tokens_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "a.txt", TEXT)
    tokenizer = train_document_tokenizer([path], TranslationData(vocab_size=300), cache_dir=tmp_path)
    whole = [*tokenizer.encode(TEXT.removesuffix("\n")), tokenizer.eos_id]
    monkeypatch.setattr(documents, "CHUNK_CHARACTERS", 8)
    monkeypatch.setattr(documents, "GROUP_CHARACTERS", 40)
    monkeypatch.setattr(documents.text_chunks, "__defaults__", (8,))
    found = prepare_documents([path], document_tokenizer(tokenizer), tmp_path, progress=False)
    assert found.tokens.tolist() == whole


def test_the_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, "a.txt", TEXT)
    tokenizer = train_document_tokenizer([path], BY_CHARACTERS, cache_dir=tmp_path)
    first = prepare_documents([path], document_tokenizer(tokenizer), tmp_path, progress=False)
    monkeypatch.setattr(Tokenizer, "encode_batch", None)
    monkeypatch.setattr(documents, "train_on_documents", None)
    assert train_document_tokenizer([path], BY_CHARACTERS, cache_dir=tmp_path).fingerprint == tokenizer.fingerprint
    again = prepare_documents([path], uncalled_tokenizer(tokenizer), tmp_path, progress=False)
    assert (again.key, again.tokens.tolist()) == (first.key, first.tokens.tolist())
    monkeypatch.undo()
    expected = first.tokens.tolist()
    for damaged in (b"", first.tokens[::-1].tobytes()):
        (tmp_path / first.key / "tokens.values").unlink()  # because `first` has mapped it
        (tmp_path / first.key / "tokens.values").write_bytes(damaged)
        with pytest.warns(UserWarning, match=r"tokens\.values: damaged in the cache"):
            again = prepare_documents([path], document_tokenizer(tokenizer), tmp_path, progress=False)
        assert again.tokens.tolist() == expected


def uncalled_tokenizer(tokenizer: Tokenizer) -> DocumentTokenizer:
    """A tokenizer that must not be called."""
    return DocumentTokenizer(lambda texts: [], [], [tokenizer.eos_id], tokenizer.fingerprint, tokenizer.vocab_size)


def test_the_last_part_of_a_text_is_held_out(tmp_path: Path) -> None:
    path = file(tmp_path, "a.txt", "0123456789")
    whole = prepare_documents([path], by_letters(), tmp_path, progress=False)
    train, valid = whole.hold_out(0.25)
    assert (len(train), len(valid)) == (9, 3)
    assert [*train.tokens, *valid.tokens] == whole.tokens.tolist()
    assert len({train.key, valid.key, whole.key, whole.hold_out(0.3)[0].key}) == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "a.txt: has no text, which a language model needs"),
        ("a.txt", "\n \n\t\u00a0\n", "a.txt: has no text"),
        ("a.jsonl", '{"text": ""}\n{"text": " \\n"}\n', "a.jsonl: has no text"),
        ("a.jsonl", '{"text": "x"}\nno\n', "a.jsonl: line 2 is not JSON"),
        ("a.jsonl", "[1]\n", 'a.jsonl: line 1 is not an object; write {"text": "..."}'),
        ("a.jsonl", json.dumps({"texts": "x"}) + "\n", "a.jsonl: line 1 has no \"text\"; it has 'texts'"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        prepare_documents([file(tmp_path, name, text)], by_letters(), tmp_path / "cache", progress=False)
    assert message in str(caught.value)
    assert [*(tmp_path / "cache").iterdir()] == []


def test_an_id_outside_the_vocabulary(tmp_path: Path) -> None:
    path = file(tmp_path, "a.txt", "az")
    with pytest.raises(UserError, match=r"122.*122 tokens.*model's"):
        prepare_documents([path], by_letters(vocab_size=122), tmp_path / "cache", progress=False)
    assert [*(tmp_path / "cache").iterdir()] == []


def test_a_dataset_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"hf:x: language models are trained on text files"):
        prepare_documents(["hf:x"], by_letters(), tmp_path, progress=False)
