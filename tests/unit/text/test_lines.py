"""Whether lines are sequences or running text, and batches of sequences."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headwise.pytorch.data.masked_sequences import MaskedLines, masked_sequences, split_lines
from headwise.text.files.documents import DocumentTokenizer, prepare_documents
from headwise.text.files.lines import TextReading, choose_reading, neighbours_similarity
from headwise.text.prepared.masking import Masking

BY_LETTER = DocumentTokenizer(lambda texts: [[*map(ord, text)] for text in texts], [], [2], "letters", 1 << 17)
RANDOM = Random(4)
PROTEINS = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=RANDOM.randint(20, 60))) for _ in range(300)]
QUERIES = [" ".join(RANDOM.choices([f"word{i}" for i in range(900)], k=RANDOM.randint(2, 6))) for _ in range(300)]
TOPICS = [[f"word{i}" for i in range(start, start + 30)] for start in range(0, 900, 30)]
STORY = [" ".join(RANDOM.choices(TOPICS[i // 10], k=6)) for i in range(300)]  # ten lines about each topic
CHINESE = ["".join(RANDOM.choices([chr(0x4E00 + i // 10 * 20 + j) for j in range(20)], k=12)) for i in range(300)]


def reading(folder: Path, lines: list[str], choice: str = "auto", room: int = 70, name: str = "a.txt") -> TextReading:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return choose_reading([str(folder / name)], choice, BY_LETTER, room)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (PROTEINS, ""),
        ([" ".join(line)[:60] for line in PROTEINS], ""),  # with spaces between letters
        (QUERIES, ""),
        (sorted(QUERIES), ""),
        (["same", "same"] * 9, ""),
        ([*PROTEINS[:150], "", *PROTEINS[150:]], ""),
        ([line for one in QUERIES for line in (one, "")], "blank lines separate documents"),
        ([*QUERIES, "x" * 71], "a line has 71 tokens, and 70 fit"),
        (STORY, "neighbouring lines share many words"),
        (CHINESE, "neighbouring lines share many words"),
        (Random(1).sample(STORY, len(STORY)), ""),
    ],
)
def test_lines_are_read_as_what_they_are(lines: list[str], reason: str, tmp_path: Path) -> None:
    found = reading(tmp_path, lines)
    assert found.by_line == (not reason) and found.reason.endswith(reason)
    assert reading(tmp_path, lines, "lines").by_line and not reading(tmp_path, lines, "blocks").by_line


def test_documents_of_json_are_running_text(tmp_path: Path) -> None:
    assert str(reading(tmp_path, ['{"text": "ab"}'], name="a.jsonl")).startswith("running text in blocks (")
    assert reading(tmp_path, ['{"text": "ab"}'], "lines", name="a.jsonl").by_line


def test_long_lines_are_recognised_by_the_first_ones(tmp_path: Path) -> None:
    """A file of documents, one a line, is not tokenised for this."""
    tokenised: list[str] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        tokenised.extend(texts)
        return BY_LETTER.encode_batch(texts)

    (tmp_path / "a.txt").write_text("x" * 99 + "\n" + "abc\n" * 999, encoding="utf-8")
    found = choose_reading([str(tmp_path / "a.txt")], "auto", replace(BY_LETTER, encode_batch=encode), 70)
    assert not found.by_line and len(tokenised) == 100


def test_similarity_needs_lines_to_compare() -> None:
    assert neighbours_similarity([]) == neighbours_similarity(["a b"]) == neighbours_similarity(["a b", "a b"]) == 0.0


def lines_of(folder: Path, text: str, length: int) -> MaskedLines:
    (folder / "a.txt").write_text(text, encoding="utf-8")
    tokenizer = TextReading(True, "").tokenizer(BY_LETTER)
    prepared = prepare_documents([str(folder / "a.txt")], tokenizer, folder / "cache", progress=False, by_line=True)
    masking = Masking(4, np.arange(97, 123, dtype=np.int64), share=0.5)
    found = masked_sequences(prepared, length, ([1], [2]), masking, by_line=True, pad_id=3)
    assert isinstance(found, MaskedLines)
    return found


def test_each_line_has_its_own_special_tokens_and_masks(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "abcd\n\n  \nefghij\nkl\n", length=20)
    (batch,) = lines.fixed(100)
    src = batch.src.clone()
    src.view(-1)[batch.positions] = batch.targets
    texts = [[1, *map(ord, text), 2] for text in ("kl", "abcd", "efghij")]
    assert src.tolist() == [row + [3] * (8 - len(row)) for row in texts]
    assert batch.src_mask.sum(1).tolist() == [4, 6, 8] and (batch.n_real, batch.n_cells) == (18, 24)
    assert batch.n_targets == 1 + 2 + 3 and (batch.src == 4).sum() <= 6
    assert batch.positions.tolist() == sorted({*batch.positions.tolist()})
    again, other = lines.load(np.arange(3), 1, 1), lines.load(np.arange(3), 1, 2)
    assert again.positions.tolist() != other.positions.tolist()


def test_every_line_is_read_once_in_an_epoch_and_long_ones_in_parts(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "abcdefg\n" + "hi\n" * 5 + "jkl\n", length=5)
    assert sorted(zip(lines.starts.tolist(), lines.lengths.tolist(), strict=True))[:3] == [(0, 3), (3, 3), (6, 1)]
    stream = lines.stream(12, seed=1)
    read: list[int] = []
    while len(read) < 2 * 20:
        batch = next(stream)
        src = batch.src.flatten().clone()
        src[batch.positions] = batch.targets
        read += [token for token in src.tolist() if token > 4]
        assert batch.n_cells <= 12
    stream.close()
    text = sorted(map(ord, "abcdefg" + "hi" * 5 + "jkl"))
    assert sorted(read[:20]) == sorted(read[20:40]) == text


def test_held_out_lines_are_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc\nd\nefgh\nij\n", encoding="utf-8")
    text = prepare_documents([str(tmp_path / "a.txt")], BY_LETTER, tmp_path / "cache", progress=False, by_line=True)
    before, behind = text.hold_out(0.3, whole=True)
    assert before.tokens.tolist() == [*map(ord, "abc"), 2, ord("d"), 2, *map(ord, "efgh"), 2]
    assert (before.ends.tolist(), behind.ends.tolist()) == ([4, 6, 11], [3])
    assert [part.tolist() for part in split_lines(before.ends, 2)] == [[0, 2, 4, 6, 8, 10], [2, 2, 2, 2, 2, 1]]
    first, last = text.hold_out(0.5)
    assert (len(first), first.ends.tolist(), last.ends.tolist()) == (7, [4, 6, 7], [4, 7])
