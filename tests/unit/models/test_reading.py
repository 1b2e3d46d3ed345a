"""Special tokens and truncation of texts and pairs equal those of the tokenizers library."""

from pathlib import Path

import pytest
from tiny_families import vocabulary
from tokenizers import processors

from headwise.errors import UserError
from headwise.models.encoding.reading import TextReader, text_reader
from headwise.pytorch.data.labelled import collate_encoded
from headwise.runtime.tokenizers.vocabulary import Vocabulary, read_vocabulary

MARKS = [("<s>", 0), ("</s>", 2)]
TEMPLATES = {
    "BERT's": ("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
    "RoBERTa's": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "XLNet's": ("$A </s> <s>:2", "$A </s> $B:1 </s>:1 <s>:2"),
    "none": ("$A", "$A $B"),
}
TEXTS = ["", "a", "abcd", "abcdefgh"]


def made(folder: Path, kind: str, types: int = 2, max_len: int | None = None) -> tuple[TextReader, Vocabulary]:
    text = vocabulary(behind=False)
    single, pair = TEMPLATES[kind]
    text.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=MARKS)
    text.save(str(folder / "tokenizer.json"))
    found = read_vocabulary(folder, {})
    return text_reader(found, 1, types, max_len, folder, 264), found


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("longest", [6, 7, 9, 12, 40])
def test_special_tokens_and_truncation(tmp_path: Path, kind: str, longest: int) -> None:
    reader, _ = made(tmp_path, kind)
    theirs = vocabulary(behind=False)
    single, pair = TEMPLATES[kind]
    theirs.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=MARKS)
    theirs.enable_truncation(longest, strategy="longest_first")
    for first in TEXTS[1:] if kind == "none" else TEXTS:
        assert list(reader.read([first], longest)[0].ids) == theirs.encode(first).ids
        for second in TEXTS:
            found, expected = reader.read([(first, second)], longest)[0], theirs.encode(first, second)
            assert list(found.ids) == expected.ids
            if kind in ("BERT's", "XLNet's"):
                types = collate_encoded([found], [0], 1, reader.typed).types
                assert types is not None and types[0].tolist() == expected.type_ids


def test_tokens_of_no_text_have_their_own_type(tmp_path: Path) -> None:
    """Also after a single text."""
    reader, _ = made(tmp_path, "XLNet's")
    types = collate_encoded(reader.read(["abc", "a"]), [0, 0], 1, reader.typed).types
    assert types is not None and types.tolist() == [[0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]


def test_token_types(tmp_path: Path) -> None:
    assert made(tmp_path, "BERT's")[0].typed
    assert not made(tmp_path, "BERT's", types=1)[0].typed
    assert not made(tmp_path, "RoBERTa's")[0].typed


def test_the_limit_of_the_network(tmp_path: Path) -> None:
    assert len(made(tmp_path, "BERT's", max_len=5)[0].read(["abcdefgh"])[0]) == 5
    assert len(made(tmp_path, "BERT's")[0].read(["abcdefgh"])[0]) == 10


def test_unsupported_inputs(tmp_path: Path) -> None:
    reader, _ = made(tmp_path, "none")
    with pytest.raises(UserError, match="a text is blank"):
        reader.read([""])
    with pytest.raises(UserError, match="a text or a pair of texts"):
        reader.read([("a", "b", "c")])
    reader, found = made(tmp_path, "BERT's")
    with pytest.raises(UserError, match=r"data.max_length = 4 leaves no room"):
        reader.read([("a", "b")], 4)
    alone = Vocabulary(found.encode, found.decode, found.id_of)
    with pytest.raises(UserError, match="has no separator of two texts"):
        text_reader(alone, 1, 2, None, tmp_path, 264).read([("a", "b")])
