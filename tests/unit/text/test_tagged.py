"""Files of tagged words, and batches of them."""

import gzip
from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.pytorch.data.labelled import collate_encoded, hold_out_examples
from headwise.pytorch.data.tagged import collate_tagged
from headwise.text.files.tagged_texts import TaggedSentence, check_tags, count_tags, read_tagged
from headwise.text.prepared.encoded import EncodedText

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
EU = (("EU", "rejects"), ("B-ORG", "O"))
PETER = (("Peter", "Blackburn"), ("B-PER", "I-PER"))


def written(folder: Path, text: str, name: str = "a.conll") -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def test_columns(tmp_path: Path) -> None:
    """The first column is the word, the last the tag; blanks or tabs; documents; no empty line at the end."""
    expected = [TaggedSentence(*EU, (3, 4)), TaggedSentence(*PETER, (6, 7))]
    assert read_tagged(written(tmp_path, CONLL)) == expected
    assert read_tagged(written(tmp_path, CONLL, "b.conll.gz")) == expected
    assert read_tagged(written(tmp_path, "\n\nNew York\tLOC\nis\tO\n\n\n")) == [
        TaggedSentence(("New York", "is"), ("LOC", "O"), (3, 4))
    ]


UNIVERSAL = """# sent_id = 1
# text = Ich gehe zum Arzt
1	Ich	ich	PRON	PPER	Case=Nom	2	nsubj	_	_
2	gehe	gehen	VERB	VVFIN	_	0	root	_	Gloss=to go
3-4	zum	_	_	_	_	_	_	_	_
3	zu	zu	ADP	APPR	_	5	case	_	_
4	dem	der	DET	ART	_	5	det	_	_
4.1	guten	_	ADJ	_	_	_	_	_	_
5	#Arzt	Arzt	NOUN	NN	_	2	obl	_	SpaceAfter=No

# sent_id = 2
1	Ja	ja	INTJ	_	_	0	root	_	_

"""


def test_conll_u(tmp_path: Path) -> None:
    """https://universaldependencies.org/format.html: comments, ranges of words and empty nodes are no words."""
    assert read_tagged(written(tmp_path, UNIVERSAL, "a.conllu")) == [
        TaggedSentence(("Ich", "gehe", "zu", "dem", "#Arzt"), ("PRON", "VERB", "ADP", "DET", "NOUN"), (3, 4, 6, 7, 9)),
        TaggedSentence(("Ja",), ("INTJ",), (12,)),
    ]
    assert read_tagged(written(tmp_path, "# O\nTEAM B-ORG\n\n2 O\n")) == [
        TaggedSentence(("#", "TEAM"), ("O", "B-ORG"), (1, 2)),
        TaggedSentence(("2",), ("O",), (4,)),
    ]
    assert read_tagged(written(tmp_path, "# id 7 domain=en\n# O\nEU _ _ B-ORG\nis _ _ O\n")) == [
        TaggedSentence(("EU", "is"), ("B-ORG", "O"), (3, 4))  # as in MultiCoNER
    ]


def test_json(tmp_path: Path) -> None:
    lines = '{"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}\n{"tokens": [], "tags": []}\n'
    assert read_tagged(written(tmp_path, lines, "a.jsonl")) == [TaggedSentence(*EU, (1, 1))]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.conll", "a\tO\nb\n", "a.conll: line 2 has a word without a tag, or a tag without a word; write 'word TAB"),
        ("a.conll", "a\t \n", "line 1 has a word without a tag"),
        ("a.conll", "\tO\n", "line 1 has a word without a tag, or a tag without a word"),
        ("a.conll", "\n\n", "a.conll: has no sentence"),
        ("a.conll", "a\tO\nNew York LOC\n", "line 2 has 3 columns, but the lines before have 2; separate them by tabs"),
        ("a.conll", "#\tsource\n1\tEU\tB-ORG\tO\n2\tis\tO\tO\n", "line 2: the first column numbers the words; write"),
        ("a.conllu", "1-2" + "\tzum" + "\t_" * 8, "line 1: a sentence without words"),
        ("a.conllu", UNIVERSAL.replace("INTJ", "_"), "line 12 has no UPOS in column 4"),
        ("a.conllu", UNIVERSAL.replace("4.1", "x"), "line 8 is not CoNLL-U: ten columns"),
        ("a.conllu", UNIVERSAL.replace("\t_\tSpaceAfter=No", ""), "line 9 is not CoNLL-U: ten columns"),
        ("a.conll", "", "a.conll: is empty"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}\n', "line 1 has 1 token and 0 tags"),
        ("a.jsonl", '{"tokens": ["a"], "tags": [0]}\n', 'line 1: "tags" must be a list of strings'),
        ("a.jsonl", '{"tokens": ["a", " "], "tags": ["O", "O"]}\n', '"tokens" must be a list of strings, none of them'),
        ("a.jsonl", '{"words": ["a"]}\n', '"tokens" must be a list of strings'),
        ("a.jsonl", "a O\n", "line 1 is not JSON"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read_tagged(written(tmp_path, text, name))
    assert expected in str(caught.value)


def test_tags_are_counted_and_checked(tmp_path: Path) -> None:
    sentences = read_tagged(written(tmp_path, CONLL))
    assert count_tags(sentences, "a") == {"B-ORG": 1, "B-PER": 1, "I-PER": 1, "O": 1}
    with pytest.raises(UserError, match="b: every word has the tag 'O'; training needs two tags"):
        count_tags([TaggedSentence(("a",), ("O",), (1,))], "b")
    check_tags(sentences, ["B-ORG", "B-PER", "I-PER", "O"], "a")
    with pytest.raises(UserError, match=r"a: line 7: unknown tag 'I-PER'.*B-PER.*; it does not occur in training"):
        check_tags(sentences, ["B-ORG", "B-PER", "O"], "a")


def test_only_first_tokens_of_words_have_a_class() -> None:
    rows = [EncodedText([8, 5, 6, 7, 2], 5), EncodedText([8, 5, 2], 3)]
    batch = collate_tagged(rows, [[-100, 1, -100, 0, -100], [-100, 2, -100]], pad_id=9, typed=True)
    assert batch.labels.tolist() == [[-100, 1, -100, 0, -100], [-100, 2, -100, -100, -100]]
    assert (batch.n_targets, batch.n_real, batch.n_cells) == (3, 8, 10)
    assert batch.src.equal(collate_encoded(rows, [0, 0], 9, typed=True).src)
    assert batch.to("cpu").n_targets == 3


def test_the_held_out_part_is_always_the_same() -> None:
    kept, taken = hold_out_examples(range(20), 5)
    assert sorted([*kept, *taken]) == list(range(20)) and len(taken) == 5
    assert (kept, taken) == hold_out_examples(range(20), 5)
    assert taken != list(range(15, 20)) and taken != list(range(5))
