"""Texts of the command line: every kind of file that training takes, read as training reads it."""

import gzip
import json
from pathlib import Path

import pytest

from headwise.cli.parallel_texts import NamedText, parallel_texts, source_text, target_text, texts_to_score
from headwise.documents.memory import memories_as_tsv
from headwise.errors import UserError
from headwise.text.files.corpus import read_pairs
from headwise.text.files.file_checks import parse_pairs
from headwise.text.prepared.prepared import spool

PAIRS = [("A dog runs.", "Ein Hund rennt."), ("Two cats.", "Zwei Katzen."), ("%d files", "%d Dateien")]
TMX = """<tmx version="1.4"><header srclang="en"/><body>{}</body></tmx>"""
TU = """<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>"""
XLIFF = """<xliff version="1.2"><file original="a" source-language="en" target-language="de" datatype="plaintext">
<body>{}</body></file></xliff>"""
UNIT = """<trans-unit id="{}"><source>{}</source><target state="translated">{}</target></trans-unit>"""
CONTENT = {
    "a.tsv": "".join(f"{source}\t{target}\tnote\n" for source, target in PAIRS),
    "a.tsv.gz": "".join(f"{source}\t{target}\n" for source, target in PAIRS),
    "a.jsonl": "".join(json.dumps({"src": source, "tgt": target}) + "\n" for source, target in PAIRS),
    "a.po": "".join(f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in PAIRS),
    "a.tmx": TMX.format("".join(TU.format(*pair) for pair in PAIRS)),
    "a.xliff": XLIFF.format("".join(UNIT.format(i, *pair) for i, pair in enumerate(PAIRS))),
    "folder/deep/a.po": 'msgid "A dog runs."\nmsgstr "Ein Hund rennt."\n\nmsgid "Two cats."\nmsgstr ""\n',
}


def write(folder: Path, name: str, text: str | None = None) -> str:
    path, data = folder / name, (CONTENT[name] if text is None else text).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(folder / "folder") if name.startswith("folder") else str(path)


@pytest.mark.parametrize("name", CONTENT)
def test_pairs_are_those_that_training_reads(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    trained_on = list(read_pairs(spool(parse_pairs("--train", memories_as_tsv([path])[0]))))
    assert trained_on[:1] == PAIRS[:1] and len(trained_on) == (1 if name.startswith("folder") else 3)
    assert list(zip(*parallel_texts(texts_to_score(path, [])), strict=True)) == trained_on
    sources, targets = (write(tmp_path, f"lines.{i}", "".join(f"{pair[i]}\n" for pair in trained_on)) for i in range(2))
    for texts in (
        [source_text(path), target_text(targets, "--reference")],
        [source_text(sources), target_text(path, "--reference")],
        [source_text(path), target_text(path, "--reference")],
    ):
        assert list(zip(*parallel_texts(texts), strict=True)) == trained_on
    hypotheses, reference = parallel_texts([target_text(targets, "--hypothesis"), target_text(path, "--reference")])
    assert hypotheses == reference == [target for _, target in trained_on]


def test_the_languages_of_a_memory_that_has_more(tmp_path: Path) -> None:
    unit = TU.format("dog", "Hund").replace("</tu>", '<tuv xml:lang="fr"><seg>chien</seg></tuv></tu>')
    path = write(tmp_path, "a.tmx", TMX.format(unit))
    assert parallel_texts(texts_to_score(path, []), ("en", "fr")) == [["dog"], ["chien"]]


def test_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {name: [pair[i] for pair in PAIRS] for i, name in enumerate(("en", "de"))}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "set")
    found = parallel_texts(texts_to_score(f"hf:{tmp_path / 'set'}?src=en&tgt=de", []))
    assert list(zip(*found, strict=True)) == PAIRS


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    table = write(tmp_path, "a.tsv")
    other = write(tmp_path, "b.tsv", CONTENT["a.tsv"].replace("Two cats", "Three cats"))
    lines = write(tmp_path, "lines", "one\ntwo\n")
    unnamed = write(tmp_path, "memory", CONTENT["a.tmx"])

    def complaint(*texts: NamedText) -> str:
        with pytest.raises(UserError) as raised:
            parallel_texts(texts)
        return str(raised.value)

    hypothesis = target_text(table, "--hypothesis")
    assert complaint(hypothesis, target_text(other, "--reference")) == (
        f"pair 2 of {table} and of {other} have different sources; name files of the same pairs in the same order"
    )
    assert f"{table} has 3 lines but {lines} has 2; line n" in complaint(hypothesis, target_text(lines, "--reference"))
    assert "--reference" in complaint(hypothesis, target_text(unnamed, "--reference"))
    assert "is TMX, a translation memory in XML" in complaint(target_text(unnamed, "--reference"))
    with pytest.raises(UserError, match="--reference is required"):
        texts_to_score(lines, [])
