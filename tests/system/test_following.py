"""What a user sees of a training: samples, the commands to run next, callbacks, the history."""

import gzip
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import headwise
from headwise.cli import parse
from headwise.models.load import load_translator
from headwise.serve.models import load_served_models
from headwise.text.language_codes import language_pair_of

SETTINGS = [
    *("model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("model.dropout=0.2", "data.vocab_size=270", "train.tokens_per_batch=400", "train.max_steps=8", "train.threads=1"),
    *("train.validate_every=4", "train.log_every=2", "train.learning_rate=0.003", "train.warmup_steps=2"),
]


@pytest.fixture
def files(tmp_path: Path, task: Callable[..., Any], write: Callable[..., list[Path]]) -> tuple[list[Path], list[Path]]:
    return write(tmp_path / "train", task(300, 1)), write(tmp_path / "valid", task(20, 2))


def samples(folder: Path) -> list[dict[str, str]]:
    return [record["sample"] for record in headwise.training_history(folder).validation if "sample" in record]


def test_the_log_shows_a_sample_and_ends_with_commands_that_work(
    files: tuple[list[Path], list[Path]], tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, valid = files
    monkeypatch.chdir(tmp_path)
    options = ["--recipe", "tiny", "--train", *train, "--valid", *valid, "--out", "model", "--device", "cpu"]
    ran = cli("train", *options, "--set", *SETTINGS, "train.validate_bleu=5")
    assert ran.code == 0, ran.err
    source, reference = (path.read_text(encoding="utf-8").splitlines()[0] for path in valid)
    shown = ran.err.count(f"  source:    {source}\n  output:    "), ran.err.count(f"\n  reference: {reference}\n")
    assert shown == (2, 2) == (len(samples(Path("model"))),) * 2
    assert {(one["source"], one["reference"]) for one in samples(Path("model"))} == {(source, reference)}
    assert [words[0] for words in follow(ran.err, cli)] == ["translate", "evaluate", "inspect", "serve", "results"]
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def follow(shown: str, cli: Callable[..., Any]) -> list[list[str]]:
    """Run the commands that end a training as they are printed; returns their words without `headwise`."""
    _, _, steps = shown.partition("\nNext:\n")
    found: list[list[str]] = []
    for line in steps.splitlines():
        if not line.startswith("  "):
            continue
        words = shlex.split(line)
        typed = b""
        if words[0] == "echo":
            typed, words = f"{words[1]}\n".encode(), words[3:]
        found.append(words[1:])
        options = parse(words[1:])
        if options.command == "serve":
            load = partial(load_translator, device="cpu")
            (served,) = load_served_models(options.models, options.languages, load, {}, True)
            assert served.language_pairs == (("en", "de"),)
        else:
            ran = cli(*words[1:], stdin=typed)
            assert ran.code == 0, (words, ran.err)
    return found


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("my corpus.tsv", "my corpus.tsv"),
        ("corpus.tsv.gz", "corpus.tsv.gz"),
        ("corpus.jsonl", "corpus.jsonl"),
        ("it's.tsv", "10%"),
        ("memory.tmx", "memory.tmx"),
    ],
)
def test_the_commands_work_for_every_kind_of_file(
    name: str, valid: str, task: Any, tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {
        ".tsv": ("", "{}\t{}\n", ""),
        ".jsonl": ("", '{{"src": "{}", "tgt": "{}"}}\n', ""),
        ".tmx": (
            '<tmx version="1.4"><header/><body>',
            "<tu><tuv xml:lang='en'><seg>{}</seg></tuv><tuv xml:lang='de'><seg>{}</seg></tuv></tu>",
            "</body></tmx>",
        ),
    }
    begin, one, end = lines[Path(name.removesuffix(".gz")).suffix]
    written = (begin + "".join(one.format(*pair) for pair in task(300, 1)) + end).encode()
    Path(name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    languages = ["--languages", "en-de"] if name.endswith(".tmx") else []
    train = ["train", "--recipe", "tiny", "--train", name, "--valid", valid, *languages, "--out", "my model"]
    ran = cli(*train, "--device", "cpu", "--set", *SETTINGS)
    assert ran.code == 0, ran.err
    kept = [] if valid.endswith("%") else ["evaluate"]
    assert [words[0] for words in follow(ran.err, cli)] == ["translate", *kept, "inspect", "serve", "results"]


@pytest.mark.parametrize(
    ("names", "languages"),
    [(["x.src", "x.tgt"], ["--languages", "en-de"]), (["x.en", "x.de"], []), (["x.en-de.tsv"], [])],
)
def test_a_model_knows_its_languages(
    names: list[str], languages: list[str], task: Callable[..., Any], tmp_path: Path, cli: Callable[..., Any]
) -> None:
    """Of the command line, or of the names of its files: `serve` needs no option."""
    sides = zip(*task(30, 1), strict=True) if len(names) == 2 else [[f"{a}\t{b}" for a, b in task(30, 1)]]
    for name, lines in zip(names, sides, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    train = ["--train", *(tmp_path / name for name in names), "--valid", "20%", *languages]
    ran = cli("train", "--recipe", "tiny", *train, "--out", tmp_path / "model", "--set", *SETTINGS)
    assert ran.code == 0, ran.err
    assert f"headwise serve {tmp_path / 'model'}\n" in ran.err
    model = load_translator(str(tmp_path / "model"), "cpu")
    assert language_pair_of(model) == ("en", "de") and repr(model).endswith("parameters, en-de)")
    pairs = tmp_path / "mine.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in task(30, 2)), encoding="utf-8")
    ran = cli("tune", tmp_path / "model", "--train", pairs, "--out", tmp_path / "tuned", "--set", *SETTINGS)
    assert ran.code == 0 and f"headwise serve {tmp_path / 'tuned'}\n" in ran.err, ran.err


def test_a_model_no_better_than_guessing_has_no_next_steps(
    files: tuple[list[Path], list[Path]], tmp_path: Path, cli: Callable[..., Any]
) -> None:
    train, valid = files
    options = ["--recipe", "tiny", "--train", *train, "--valid", *valid, "--out", tmp_path / "model", "--device", "cpu"]
    ran = cli("train", *options, "--set", *SETTINGS, "train.max_steps=1", "train.learning_rate=100")
    assert ran.code == 0, ran.err
    assert "no better than guessing" in ran.err
    assert "Next:" not in ran.err


def test_a_sample_without_bleu_costs_no_bits(files: tuple[list[Path], list[Path]], tmp_path: Path, capfd: Any) -> None:
    for show in (True, False):
        settings = [*SETTINGS, "train.validate_bleu=0"]
        headwise.train(*files, tmp_path / str(show), "tiny", settings, device="cpu", show=show)
    assert capfd.readouterr().err.count("  output: ") == 2
    assert (len(samples(tmp_path / "True")), samples(tmp_path / "False")) == (2, [])
    shown, quiet = (load_file(tmp_path / str(show) / "model.safetensors") for show in (True, False))
    torch.testing.assert_close(shown, quiet, rtol=0, atol=0)
    metrics = [record.keys() - {"sample"} for record in headwise.training_history(tmp_path / "True").validation]
    assert "bleu" not in metrics[0]


def test_a_callback_of_the_python_function(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    class Steps(headwise.Callback):
        def __init__(self) -> None:
            self.steps: list[int] = []
            self.reason = ""

        def on_log(self, record: dict[str, Any]) -> None:
            self.steps.append(record["step"])

        def on_end(self, reason: str) -> None:
            self.reason = reason

    callback = Steps()
    headwise.train(*files, tmp_path / "model", "tiny", SETTINGS, device="cpu", show=False, callbacks=[callback])
    assert (callback.steps, callback.reason) == ([2, 4, 6, 8], "finished")
    assert [record["step"] for record in headwise.training_history(tmp_path / "model").training] == callback.steps
