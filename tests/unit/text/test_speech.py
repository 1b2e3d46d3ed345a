"""Recordings with transcripts: lists, spectrograms, and errors before training."""

import gzip
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.pytorch.data.spec_augment import Spans, SpecAugment
from headwise.pytorch.data.speech import SpeechDataset, speech_dataset
from headwise.text.files.audio import log_mel, read_audio
from headwise.text.files.recordings import read_recordings

soundfile = pytest.importorskip("soundfile")
BEGINNING, END, N_MELS, FRAMES, MAX_LEN = (1, 2), 3, 8, 40, 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three sounds of 0.1, 0.2 and 0.3 seconds, and one that is longer than a window."""
    generator = np.random.default_rng(0)
    for name, seconds in (("a", 0.1), ("b", 0.2), ("c", 0.3), ("long", 0.41)):
        samples = generator.normal(size=round(16_000 * seconds)).astype(np.float32) / 9
        soundfile.write(tmp_path / f"{name}.wav", samples, 16_000)
    return tmp_path


def listed(folder: Path, content: str, name: str = "train.tsv") -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return str(folder / name)


def read(*paths: str) -> SpeechDataset:
    encode = lambda text: [ord(letter) for letter in text]  # noqa: E731
    return speech_dataset(paths, encode, BEGINNING, END, N_MELS, FRAMES, MAX_LEN)


def test_both_list_formats_give_the_same(folder: Path) -> None:
    tsv = listed(folder, "a.wav\tone two \nb.wav\tthree\n")
    objects = [{"text": "one two", "audio": "a.wav", "speaker": 3}, {"audio": "b.wav", "text": "three"}]
    lines = "".join(json.dumps(one) + "\n" for one in objects)
    packed = folder / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.encode()))
    found = [[(one.sound, one.text) for one in read_recordings(path)] for path in (tsv, str(packed))]
    assert found[0] == found[1] == [(str(folder / "a.wav"), "one two"), (str(folder / "b.wav"), "three")]


@pytest.mark.parametrize("field", ["offset", "start", "end_time", "duration", "segments"])
def test_parts_of_files_are_refused(field: str, folder: Path) -> None:
    """As NeMo's manifests name them; a duration that is the file's is no part."""
    about = {"audio": "c.wav", "text": "a", "offset": 0, "duration": 0.4, "end": 0.3, "end_time": None}
    assert len([*read_recordings(listed(folder, json.dumps(about), "a.jsonl"))]) == 1
    path = listed(folder, json.dumps({**about, field: 2.5}), "a.jsonl")
    with pytest.raises(UserError, match=rf"a\.jsonl: line 1: '{field}' makes it a part of .*c\.wav, and only whole"):
        list(read_recordings(path))


def test_a_batch_has_windows_of_one_length(folder: Path) -> None:
    corpus = read(listed(folder, "a.wav\tab\nc.wav\tz\n"))
    assert len(corpus) == 2 and corpus.seconds == pytest.approx(0.4)
    batch = corpus.load(np.array([1, 0]))
    assert batch.values.shape == (2, N_MELS, FRAMES)
    torch.testing.assert_close(
        batch.values[0], torch.from_numpy(log_mel(read_audio(folder / "c.wav"), N_MELS, 1)[:, :FRAMES])
    )
    assert batch.tgt_in.tolist() == [[1, 2, ord("z"), END], [1, 2, ord("a"), ord("b")]]
    assert batch.tgt_out.tolist() == [[-100, ord("z"), END, -100], [-100, ord("a"), ord("b"), END]]
    assert (batch.n_targets, batch.n_tokens, batch.n_real, batch.n_cells) == (5, 5, 7, 8)


def test_masks_depend_on_seed_and_epoch(folder: Path) -> None:
    """Masks are applied only in training; everything else is unchanged."""
    plain = read(listed(folder, "a.wav\tab\nc.wav\tz\n"))
    masked, rows = replace(plain, masks=SpecAugment(Spans(0.2, 4, 0), Spans(0.3, 2, 1))), np.array([1, 0])
    heard = plain.load(rows).values
    assert torch.equal(masked.load(rows).values, heard)
    [batch] = map(masked.load, masked.in_order(2))
    assert torch.equal(batch.values, heard.flip(0))
    drawn = [masked.load(rows, seed, epoch).values for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert torch.equal(drawn[0], drawn[1])
    assert not any(torch.equal(drawn[0], other) for other in (heard, *drawn[2:]))
    gone = drawn[0] == 0
    assert torch.equal(drawn[0][~gone], heard[~gone]) and 0 < gone.float().mean() < 0.7
    assert not torch.equal(gone[0], gone[1])  # each recording by itself
    alone = masked.load(np.array([0]), 1, 0).values
    assert torch.equal(alone[0], drawn[0][1])  # whatever batch it is in
    with closing(masked.stream(2, 1, None)) as stream:
        first = next(stream).values
    assert any(torch.equal(first, drawn[0][order]) for order in ([0, 1], [1, 0]))


def test_a_resumed_stream_is_exact(folder: Path) -> None:
    corpus = read(listed(folder, "a.wav\ta\nb.wav\tb\nc.wav\tc\n"))
    with closing(corpus.stream(2, 1, None)) as stream:
        batches = [next(stream).tgt_in.tolist()]
        state = stream.state()
        batches += [next(stream).tgt_in.tolist() for _ in range(4)]
    assert sorted(len(batch) for batch in batches[:2]) == [1, 2]  # every recording once in an epoch
    assert sorted(row[2] for batch in batches[:2] for row in batch) == [ord(letter) for letter in "abc"]
    with closing(corpus.stream(2, 1, state)) as stream:
        assert [next(stream).tgt_in.tolist() for _ in range(4)] == batches[1:]


def test_keys_of_different_corpora_differ(folder: Path) -> None:
    keys = {read(listed(folder, text)).key for text in ("a.wav\ta\n", "a.wav\tb\n", "b.wav\ta\n")}
    assert len(keys) == 3
    assert read(listed(folder, "a.wav\ta\n")).key in keys


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a.wav\ta\nmissing.wav\tb\n", "train.tsv: line 2: {}/missing.wav: no such file"),
        ("a.wav\ta\na.wav b\n", "train.tsv: line 2 has no tab; write 'sound file TAB transcript' on every line"),
        ("a.wav\ta\tb\n", "train.tsv: line 1 has 2 tabs"),
        ("a.wav\t \n", "train.tsv: line 1 has an empty transcript; remove it"),
        ("\ta\n", "train.tsv: line 1 names no sound file"),
        ("a.wav\ta\nlong.wav\tb\n", "train.tsv: line 2: {}/long.wav is 0.4 s long, but the model takes at most 0.4 s"),
        ("a.wav\tabcdef\n", "train.tsv: line 1: the transcript has 6 tokens, but the model writes at most 5"),
        ("a.wav\ta\nempty.wav\tb\n", "train.tsv: line 2: {}/empty.wav: contains no sound"),
        ("broken.wav\ta\n", "train.tsv: line 1: {}/broken.wav: is not a readable sound file"),
        ("", "train.tsv: is empty"),
    ],
)
def test_invalid_recordings_are_reported_with_their_line(folder: Path, content: str, message: str) -> None:
    soundfile.write(folder / "empty.wav", np.zeros(0, np.float32), 16_000)
    (folder / "broken.wav").write_bytes(b"RIFF....no sound")
    with pytest.raises(UserError) as caught:
        read(listed(folder, content))
    assert message.format(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_other_file_types_are_errors(folder: Path) -> None:
    with pytest.raises(UserError, match=r"train.csv.*.tsv.*.jsonl"):
        read(listed(folder, "a.wav,a\n", "train.csv"))
    with pytest.raises(UserError, match='line 1 has no "audio"'):
        read(listed(folder, '{"text": "a"}\n', "train.jsonl"))


def test_a_file_that_breaks_during_training_is_named(folder: Path) -> None:
    corpus = read(listed(folder, "a.wav\ta\nb.wav\tb\n"))
    (folder / "b.wav").unlink()
    with (
        closing(corpus.stream(2, 1, None)) as stream,
        pytest.raises(UserError, match=r"line 2: .*b.wav: no such file"),
    ):
        next(stream)
