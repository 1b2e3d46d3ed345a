"""Fine-tuning Whisper as users do: `headwise train --task transcribe --init FOLDER`, and its word error rate.

The model is tiny and random. It learns three tones by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file
from tiny_families import HEARING, write_tiny

import headwise
from headwise.models.speech import fallback
from headwise.models.speech.fallback import most_probable

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("jiwer")

Cli = Callable[..., Any]
WORDS = ("ab", "cd", "ef")
QUICK = ["train.max_steps=60", "train.validate_every=30", "train.checkpoint_every=10", "train.log_every=30",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.tokens_per_batch=60",
         "train.threads=1"]  # fmt: skip
POSITIONS = "model.encoder.embed_positions.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Whisper, three tones, and the file that lists them; read only."""
    folder = tmp_path_factory.mktemp("speech")
    write_tiny(folder / "model", "whisper", {"max_source_positions": 20, "dropout": 0.1}, HEARING)
    (folder / "model" / "preprocessor_config.json").write_text('{"feature_size": 8}')
    seconds = np.arange(3000) / 16_000
    for i, word in enumerate(WORDS):
        tone = np.sin(2 * np.pi * 300 * 3**i * seconds).astype(np.float32) * 0.4
        soundfile.write(folder / f"{word}.wav", tone, 16_000)
    (folder / "train.tsv").write_text("".join(f"{word}.wav\t{word.upper()}.\n" for word in WORDS), encoding="utf-8")
    return folder


def command(folder: Path, *more: str) -> list[str]:
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "train.tsv")]
    return ["train", "--init", str(folder / "model"), *files, "--device", "cpu", "--set", *QUICK, *more]


def test_training_keeps_the_layout(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = cli(*command(folder), "--out", out)
    assert ran.code == 0, ran.err
    validated = records(out, "validation.jsonl")
    assert [row["step"] for row in validated] == [0, 30, 60]
    assert (validated[0]["wer"], validated[-1]["wer"]) == (1.0, 0.0)
    text = f"{WORDS[0].upper()}."
    assert validated[-1]["sample"] == {"source": f"{WORDS[0]}.wav", "output": text, "reference": text}
    before, after = (load_file(path / "model.safetensors") for path in (folder / "model", out))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    assert [key for key in before if torch.equal(before[key], after[key])] == [POSITIONS]
    kept = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    for file in (*kept, "preprocessor_config.json"):
        assert json.loads((out / file).read_text()) == json.loads((folder / "model" / file).read_text())
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "# A speech model" in card and "train.tsv: 3 recordings, 0.0 minutes" in card and "| language | en |" in card
    scored = "--source", folder / "train.tsv", "--source-language", "en", "--format", "json"
    rates = [json.loads(cli("evaluate", path, *scored).out) for path in (folder / "model", out)]
    assert [rate["wer"] for rate in rates] == [1.0, 0.0] and rates[1]["wer_as_written"] == 0.0
    assert cli("evaluate", out, "--source", folder / "train.tsv").out.startswith("WER 0.00% (0 substituted")
    assert cli("transcribe", out, folder / "cd.wav").out == "CD.\n"


@pytest.mark.thorough
def test_a_killed_run_is_resumed_exactly(cli: Cli, folder: Path, tmp_path: Path) -> None:
    constant = command(folder, "train.schedule=constant")
    assert cli(*constant, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, constant, 10, tmp_path / "parts", tmp_path / "whole")
    refused = cli(*constant, "train.weight_decay=0.5", "--out", tmp_path / "parts", "--resume")
    assert "train.weight_decay was 0.0, now 0.5" in refused.complaint


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--valid", "1%"], "--valid 1%: name a file of recordings, with other speakers"),
        (["--special", "<s>"], "has this token already; leave it out"),
        (["--target-language", "de"], "--target-language: transcripts are in the language of the speech"),
        (["--source-language", "xx"], "language 'xx': this model knows en"),
        (["--set", "data.max_length=9"], "data.max_length = 9 is not used by model.task = transcribe"),
        (["--set", "model.d_model=64"], "the shape is that of --init"),
        (
            ["--task", "translate"],
            "is a whisper model that hears speech and writes it down; this task needs an encoder-decoder",
        ),
        (["--train", "missing.tsv"], "--train missing.tsv: no such file"),
    ],
)
def test_unsupported_options_give_one_line(
    cli: Cli, folder: Path, tmp_path: Path, more: list[str], expected: str
) -> None:
    assert expected in cli(*command(folder), "--out", tmp_path / "out", *more).complaint
    assert not (tmp_path / "out").exists()


def test_other_models_do_not_transcribe(cli: Cli, folder: Path, tmp_path: Path, model_path: Path) -> None:
    write_tiny(tmp_path / "gpt2", "gpt2")
    files = ["--task", "transcribe", "--train", folder / "train.tsv", "--valid", folder / "train.tsv"]
    for more, expected in [
        (["--init", tmp_path / "gpt2"], "is a gpt2 model that continues texts; this task needs Whisper"),
        (["--init", model_path], "--task transcribe starts from Whisper, which this is not"),
        (["--recipe", "tiny"], "--task transcribe needs --init: the model folder to start from"),
    ]:
        assert expected in cli("train", *files, "--out", tmp_path / "out", *more).complaint


def test_a_multilingual_model_requires_a_language(cli: Cli, folder: Path, tmp_path: Path) -> None:
    from headwise.pytorch.tasks.transcription import FINE_TUNING, spoken_language, transcript_encoder

    several = HEARING | {"lang_to_id": {"<|en|>": 267, "<|zh|>": 266}}
    write_tiny(tmp_path / "two", "whisper", {}, several)
    ran = cli("train", "--init", tmp_path / "two", *command(folder)[3:], "--out", tmp_path / "out")
    assert "--source-language is required: this model knows en, zh" in ran.complaint
    write_tiny(tmp_path / "said", "whisper", {}, several | {"language": "<|zh|>"})
    model = FINE_TUNING.read(str(tmp_path / "said"))
    assert (spoken_language(model, ""), spoken_language(model, "en")) == ("zh", "en")
    decoded = [model.tokenizer.decode(transcript_encoder(model, code)("a b")) for code in ("en", "zh")]
    assert decoded == [" a b", "a b"]  # a leading space in languages with spaces between words


@pytest.mark.thorough
def test_masks_of_spectrograms(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """The masks of config.json are applied in training, and resumed exactly."""
    asked = masked(folder, tmp_path / "model", mask_time_prob=0.2)
    assert cli(*asked, "--out", tmp_path / "whole").code == 0
    assert cli(*command(folder), "--out", tmp_path / "plain").code == 0
    losses = [records(tmp_path / name, "metrics.jsonl")[0]["loss"] for name in ("whole", "plain")]
    judged = [records(tmp_path / name, "validation.jsonl")[0]["loss"] for name in ("whole", "plain")]
    assert abs(losses[0] - losses[1]) > 1e-4 and judged[0] == judged[1]
    assert json.loads((tmp_path / "whole" / "config.json").read_text())["apply_spec_augment"]
    killed_and_resumed(cli, asked, 10, tmp_path / "parts", tmp_path / "whole")


def test_masks_that_are_too_long(cli: Cli, folder: Path, tmp_path: Path) -> None:
    ran = cli(*masked(folder, tmp_path / "model", mask_time_length=41), "--out", tmp_path / "out")
    assert "model/config.json: mask_time_length = 41: a spectrogram has only 40" in ran.complaint


def masked(folder: Path, model: Path, **changes: Any) -> list[str]:
    """The command with a model that uses masks."""
    write_tiny(
        model, "whisper", {"max_source_positions": 20, "dropout": 0.1, "apply_spec_augment": True} | changes, HEARING
    )
    (model / "preprocessor_config.json").write_text('{"feature_size": 8}')
    return [str(model) if word == str(folder / "model") else word for word in command(folder)]


def test_failed_outputs_are_sampled_again(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of random numbers is never sure, so all temperatures are tried; the last result is deterministic. At each
    but the first, five texts are sampled.
    """
    drawn: list[int] = []

    def counted(ways: Any) -> Any:
        drawn.append(len({tuple(one.tokens) for one in ways}))
        return most_probable(ways)

    monkeypatch.setattr(fallback, "most_probable", counted)
    marks = [f"<m{i}>" for i in range(56)] + ["<|startofprev|>", "<|nospeech|>"]
    write_tiny(tmp_path, "whisper", {"max_source_positions": 20, "vocab_size": 323}, HEARING, marks)
    (tmp_path / "preprocessor_config.json").write_text('{"feature_size": 8}')
    sound = ["transcribe", tmp_path, folder / "ab.wav", "--format", "json"]
    plain, again = cli(*sound, "--no-fallback"), cli(*sound, "--condition")
    assert plain.code == again.code == 0, again.err
    assert drawn == [5] * 5
    assert again.out == cli(*sound, "--condition").out != plain.out
    in_python: Any = headwise.load(tmp_path, "cpu")
    assert json.loads(cli(*sound).out)["text"] == in_python.transcribe(folder / "ab.wav").text  # the same defaults
    assert "has no <|startofprev|>" in cli("transcribe", folder / "model", folder / "ab.wav", "--condition").complaint


def test_only_transcripts_have_a_normaliser(cli: Cli, folder: Path, model_path: Path) -> None:
    pairs = ["--source", folder / "train.tsv", "--reference", folder / "train.tsv"]
    assert "--normalizer is for transcripts" in cli("evaluate", model_path, *pairs, "--normalizer", "english").complaint
    pytest.importorskip("whisper_normalizer")
    report = cli(
        "evaluate", folder / "model", "--source", folder / "train.tsv", "--normalizer", "english", "--format", "json"
    )
    assert json.loads(report.out)["normalizer"] == "english", report.err
