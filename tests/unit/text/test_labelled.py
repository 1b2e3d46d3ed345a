"""Labelled texts: every error is one line with file, line and fix; long texts are truncated."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.pytorch.data.labelled import LabelledCorpus
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.text.files.labelled_texts import (
    check_label_column,
    check_labels,
    count_labels,
    labelled_corpora,
    read_labelled,
)
from headwise.text.prepared.prepared import prepare, train_tokenizer

GOOD = "a good film\tpos\na bad film\t neg \nso so\tpos\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.tsv"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_texts_and_labels_in_order(path: Path) -> None:
    assert list(read_labelled(str(path))) == [("a good film", "pos"), ("a bad film", "neg"), ("so so", "pos")]
    packed = path.with_suffix(".tsv.gz")
    packed.write_bytes(gzip.compress(GOOD.encode()))
    corpora = labelled_corpora([str(path), str(packed)])
    assert [*count_labels(corpora)] == ["neg", "pos"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nno tab\n", "x.tsv: line 2 has no tab; write 'text TAB label' on every line"),
        ("a\tb\tc\n", "x.tsv: line 1 has 2 tabs; write 'text TAB label'"),
        ("a\tb\na\t \n", "x.tsv: line 2 has an empty label; write 'text TAB label' on every line, or remove the line"),
        ("", "x.tsv: is empty"),
        ("a\tx\nb\tx\n", "x.tsv: every line has the label 'x'; training needs two labels"),
    ],
)
def test_bad_files(path: Path, content: str, message: str) -> None:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        count_labels(labelled_corpora([str(path)]))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "hf:name", "x.csv.gz"])
def test_other_file_types_are_errors(name: str) -> None:
    with pytest.raises(UserError, match=r"\.tsv.*\.tsv\.gz"):
        labelled_corpora([name])


@given(
    labels=st.lists(st.sampled_from(["ham", "spam", "3"]), min_size=50, max_size=90),
    repeated=st.booleans(),
    pairs=st.booleans(),
    train=st.booleans(),
)
def test_labels_in_the_first_column_are_refused(
    labels: list[str], repeated: bool, pairs: bool, train: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also with texts that occur more than once; the right order never is, nor with one label for all."""
    path = tmp_path_factory.mktemp("labels") / "a.tsv"
    texts = [f"text {number % 20 if repeated else number}" + "\tand another" * pairs for number in range(len(labels))]
    rows = [(label, text) for label, text in zip(labels, texts, strict=True)]
    path.write_text("".join(f"{text}\t{label}\n" for label, text in rows), encoding="utf-8")
    check_label_column(labelled_corpora([str(path)]))
    path.write_text(
        "".join("\t".join((label, *text.split("\t")[::-1])) + "\n" for label, text in rows), encoding="utf-8"
    )
    files = labelled_corpora([str(path)])
    what = f"a.tsv: the first column has {len({*labels})} value"
    if train:
        request = TrainRequest("classify", [str(path)], ["10%"], str(path.parent / "out"), show=False)
        with pytest.raises(UserError, match=what):
            train_model(replace(request, task="classify"))
    with pytest.raises(UserError, match=what):
        check_label_column(files)


def test_one_question_for_all_texts_is_no_label(path: Path) -> None:
    path.write_text("".join(f"is it good?\ttext {n}\t{n % 5}\n" for n in range(50)), encoding="utf-8")
    check_label_column(labelled_corpora([str(path)]))


def test_a_label_that_does_not_occur_in_training(path: Path) -> None:
    path.write_text("a\tpos\nb\tpso\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.tsv: line 2.*label 'pso'.*'pos'\?"):
        check_labels(labelled_corpora([str(path)]), ["neg", "pos"])


def test_batches_hold_every_text_once_cut_to_the_limit(path: Path) -> None:
    config = TranslationData(vocab_size=270)
    corpora = labelled_corpora([str(path)])
    tokenizer = train_tokenizer(corpora, config, sources_only=True)
    assert "neg" not in "".join(tokenizer.backend.get_vocab())
    prepared = prepare(corpora, tokenizer, config, progress=False, clean=False)
    corpus = LabelledCorpus(prepared, ("neg", "pos"), max_length=6)
    assert corpus.lengths.max() == 6 < prepared.src_lengths.max()
    plan = corpus.plan(tokens_per_batch=12, seed=1, epoch=3)
    assert sorted(np.concatenate(plan).tolist()) == [0, 1, 2]
    batches = [corpus.load(tokenizer, rows) for rows in plan]
    assert all(batch.n_cells <= 12 for batch in batches)
    for rows, batch in zip(plan, batches, strict=True):
        assert batch.labels.tolist() == [[1, 0, 1][row] for row in rows]
        for row, ids, mask in zip(rows.tolist(), batch.src, batch.src_mask, strict=True):
            assert ids[mask].tolist() == [*prepared.src(row)[:5].tolist(), tokenizer.eos_id]
