"""Classifiers and forecasters as users run them: the same commands, files and guarantees as for translation models."""

import ast
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from killing import records
from safetensors.torch import load_file
from trying import tried

import headwise
from headwise.errors import UserError
from headwise.models.commands import BY_NETWORK, COMMANDS
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model

SMALL = ["model.dropout=0.0", "train.threads=1", "train.log_every=50", "train.validate_every=1000"]
TEXT = [*SMALL, "data.vocab_size=270", "train.label_smoothing=0", "train.tokens_per_batch=700"]
TRANSFORMER = ["model.d_model=32", "model.d_ff=64", "model.n_heads=4"]
LSTM = ["model.d_model=32"]
ROWS = ["data.patch=1", "data.inputs=all"]  # a row of all columns is a position
SHORT = ["model.positions=learned", "model.max_len=9"]


def order(n: int, seed: int) -> str:
    """Texts with one A and one B among other letters, labelled by which comes first; letter counts do not tell."""
    rng = Random(seed)
    lines = []
    for _ in range(n):
        letters = [rng.choice("cdefg") for _ in range(rng.randint(1, 6))]
        for letter in "ab":
            letters.insert(rng.randint(0, len(letters)), letter)
        lines.append(f"{' '.join(letters)}\t{'first' if letters.index('a') < letters.index('b') else 'second'}\n")
    return "".join(lines)


def wave(rows: int, start: int = 0) -> str:
    """Two columns of period 12; the second rises slowly, so that no season repeats exactly."""
    lines = ["date,a,b\n"]
    for row in range(start, start + rows):
        a = math.sin(row * math.tau / 12)
        lines.append(f"2020-{row},{a:.6f},{a * math.sin(row * math.tau / 53) + 0.01 * row:.6f}\n")
    return "".join(lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for name, content in {
        "train.tsv": order(3000, 1),
        "valid.tsv": order(200, 2),
        "test.tsv": order(300, 3),
        "train.csv": wave(900),
        "test.csv": wave(300, start=900),
    }.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def request(files: Path, out: Path, recipe: str, settings: list[str], **more: Any) -> TrainRequest:
    """A training run on the files of the recipe's task."""
    ending = "tsv" if recipe.startswith("classify") else "csv"
    valid = [str(files / "valid.tsv")] if ending == "tsv" else []
    train = [str(files / f"train.{ending}")]
    return TrainRequest(recipe, train, valid, str(out), settings, device="cpu", show=False, **more)


@pytest.fixture(scope="module")
def classifier(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hardly trained classifier; read only."""
    out = tmp_path_factory.mktemp("classifier") / "model"
    train_model(request(files, out, "classify", [*TEXT, *TRANSFORMER, "train.max_steps=3"]))
    return out


@pytest.fixture(scope="module")
def forecaster(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forecaster of a wave."""
    out = tmp_path_factory.mktemp("forecaster") / "model"
    settings = [*SMALL, *TRANSFORMER, *ROWS, "data.window=24", "data.horizon=6", "data.season=12"]
    settings += ["train.max_steps=300", "train.tokens_per_batch=768", "train.learning_rate=0.003"]
    train_model(request(files, out, "forecast", settings))
    return out


# Training -------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "shape"), [("classify", TRANSFORMER), ("classify-lstm", LSTM)])
def test_training_on_the_order_of_letters(recipe: str, shape: list[str], files: Path, tmp_path: Path) -> None:
    settings = [*TEXT, *shape, "train.max_steps=400", "train.learning_rate=0.005"]
    train_model(request(files, tmp_path / "model", recipe, settings))
    report = headwise.load(tmp_path / "model", "cpu").evaluate([str(files / "test.tsv")])
    assert report.accuracy >= 0.99
    assert report.macro_f1 >= 0.99


@pytest.mark.thorough
@pytest.mark.slow
def test_a_wave_is_forecast_far_better_than_by_the_baselines(forecaster: Path, files: Path) -> None:
    errors = headwise.load(forecaster, "cpu").evaluate([str(files / "test.csv")]).errors
    assert errors["model"].mse < 0.1 * min(errors["seasonal"].mse, errors["last"].mse)


def test_a_wave_is_forecast_by_an_lstm_too(files: Path, tmp_path: Path) -> None:
    settings = [*SMALL, *ROWS, "model.d_model=16", "data.window=12", "data.horizon=1", "data.season=12"]
    settings += ["train.max_steps=2"]
    train_model(request(files, tmp_path / "model", "forecast-lstm", settings))
    model = headwise.load(tmp_path / "model", "cpu")
    assert len(model.forecast(files / "test.csv")) == 1
    assert model.about["corpus"]["windows"] == 720 - 12  # four fifths of 900 rows; the rest validates
    rows = [line.split(",")[2] for line in (files / "train.csv").read_text().splitlines()[1:721]]
    assert model.scaling.mean[1] == pytest.approx(sum(map(float, rows)) / 720)


def test_a_model_of_scaled_windows_forecasts_at_any_scale(files: Path, tmp_path: Path) -> None:
    settings = [*SMALL, *TRANSFORMER, "data.window=24", "data.patch=6", "data.horizon=2", "data.season=12"]
    settings += ["data.inputs=target", "data.scale_windows=true", "train.max_steps=3"]
    train_model(request(files, tmp_path / "model", "forecast", settings))
    model = headwise.load(tmp_path / "model", "cpu")
    header, *rows = (files / "test.csv").read_text().splitlines()
    target = [float(row.split(",")[-1]) for row in rows]
    name = header.split(",")[-1]
    for scale, level in ((1, 0), (300, 70)):
        lines = "".join(f"{scale * value + level}\n" for value in target)
        (tmp_path / f"{scale}.csv").write_text(f"{name}\n{lines}", encoding="utf-8")
    forecast = model.forecast(tmp_path / "1.csv")
    assert forecast != pytest.approx([target[-1]] * 2, abs=1e-3)
    changes = [value - target[-1] for value in forecast]
    larger = [(value - 70) / 300 - target[-1] for value in model.forecast(tmp_path / "300.csv")]
    assert larger == pytest.approx(changes, rel=0.05)
    assert model.evaluate([str(files / "test.csv")]).n_windows == len(rows) - 25


@pytest.mark.parametrize("window", [30, 24])
def test_a_window_has_whole_patches(window: int, files: Path, tmp_path: Path) -> None:
    settings = [*SMALL, *TRANSFORMER, f"data.window={window}", "data.patch=16", "data.season=12"]
    with pytest.raises(UserError, match=rf"data\.window = {window}.*data\.patch = 16"):
        train_model(request(files, tmp_path / "model", "forecast", settings))


@pytest.mark.parametrize("recipe", ["classify", "forecast"])
def test_a_stopped_run_is_resumed_bit_for_bit(recipe: str, files: Path, tmp_path: Path) -> None:
    sizes = TEXT if recipe == "classify" else [*SMALL, "data.window=48", "data.horizon=2"]
    settings = [*sizes, *TRANSFORMER, "model.dropout=0.2", "train.ema=0.9", "train.checkpoint_every=3"]
    settings += ["train.log_every=3", "train.schedule=constant", "train.accumulate=2"]
    train_model(request(files, tmp_path / "whole", recipe, [*settings, "train.max_steps=6"]))
    train_model(request(files, tmp_path / "parts", recipe, [*settings, "train.max_steps=3"]))
    train_model(request(files, tmp_path / "parts", recipe, [*settings, "train.max_steps=6"], resume=True))
    whole, parts = (tmp_path / name / "checkpoints" / "step-00000006" for name in ("whole", "parts"))
    for name in ("model.safetensors", "training.safetensors"):
        expected, found = load_file(whole / name), load_file(parts / name)
        assert expected.keys() == found.keys()
        assert all((expected[key] == found[key]).all() for key in expected)
    logs = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "parts")]
    logged = [[json.loads(line) for line in log] for log in logs]
    figure = "accuracy" if recipe == "classify" else "mae"
    assert [(line["loss"], line[figure]) for line in logged[0]] == [(line["loss"], line[figure]) for line in logged[1]]


# The commands ---------------------------------------------------------------------------------------------------------


def test_training_from_the_command_line(cli: Callable[..., Any], files: Path, tmp_path: Path) -> None:
    settings = ["--set", *TEXT, *TRANSFORMER, "train.max_steps=2"]
    data = ["--train", files / "train.tsv", "--valid", files / "valid.tsv", "--out", tmp_path / "m"]
    ran = cli("train", "--task", "classify", "--recipe", "classify", "--device", "cpu", *data, *settings)
    assert ran.code == 0, ran.err
    assert "training on 3,000 texts with 2 labels" in ran.err
    kept = records(tmp_path / "m", "validation.jsonl")[-1]
    figures = ", ".join(f"{name} {kept[name]:.4g}" for name in ("loss", "accuracy", "macro_f1"))
    *_, last = (line for line in ran.err.splitlines() if str(tmp_path / "m") in line and "finished" in line)
    assert f"the model in {tmp_path / 'm'}" in last and f"({figures})" in last
    assert kept["best"] == (f"is that of step 2 ({figures})" in last)


def test_labelled_texts_are_no_pairs(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(order(40, 1), encoding="utf-8")
    command = [
        "train",
        "--recipe",
        "classify",
        "--device",
        "cpu",
        "--train",
        tmp_path / "a.tsv",
        "--out",
        tmp_path / "m",
    ]
    ran = cli(*command, "--valid", "10%", "--set", *TEXT, *TRANSFORMER, "train.max_steps=1")
    assert "validating on 4 texts held out of the training files (10%); dropped " in ran.err
    assert "pair" not in ran.err
    assert "the training files hold 40 texts" in cli(*command[:-1], tmp_path / "n", "--valid", "40pairs").complaint
    (tmp_path / "blank.tsv").write_text(" \tfirst\n", encoding="utf-8")
    complaint = cli(*command[:-1], tmp_path / "n", "--valid", tmp_path / "blank.tsv").complaint
    assert "blank.tsv: no line has text" in complaint and "pair" not in complaint
    assert json.loads((tmp_path / "m" / "config.json").read_text())["labels"] == ["first", "second"]
    assert "| labels | first, second |" in (tmp_path / "m" / "README.md").read_text()
    assert not (tmp_path / "m" / "generation_config.json").exists()


def test_one_label_per_line(cli: Callable[..., Any], classifier: Path, tmp_path: Path) -> None:
    lines = ["a b", "", "b c a", "unseen ✓ " * 300]
    content = "".join(line + "\n" for line in lines).encode()
    ran = cli("classify", classifier, "--device", "cpu", stdin=content)
    found = headwise.load(classifier, "cpu").classify(lines)
    assert ran.lines == [f"{one.label}\t{one.probability:.4f}" for one in found]
    records = cli("classify", classifier, "--device", "cpu", "--format", "jsonl", stdin=content).lines
    for record, one in zip(map(json.loads, records), found, strict=True):
        assert record == {"label": one.label, "probability": one.probability, "probabilities": one.probabilities}
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.probability == max(one.probabilities.values())
    assert cli("classify", classifier, "--device", "cpu", stdin=b"").out == ""


def test_other_texts_change_nothing(classifier: Path) -> None:
    model = headwise.load(classifier, "cpu")
    texts = ["a c b", "b", "b c d e f g a", ""] * 3
    together = model.classify(texts)
    for text, one in zip(texts, together, strict=True):
        assert model.classify([text])[0].probability == pytest.approx(one.probability, abs=1e-6)


def test_a_classifier_is_called_as_a_pretrained_one(classifier: Path, files: Path) -> None:
    """Texts come as a list, and heads are ranked on texts with their labels, in any order."""
    model = headwise.load(classifier, "cpu")
    assert {"classify", "evaluate", "head_importance"} <= {*model.methods} and not hasattr(model, "embed")
    with pytest.raises(UserError, match=r"classify takes a list; write classify\(\[text\]\)"):
        model.classify("a text")
    texts, labels = model.examples([str(files / "test.tsv")])
    importance = model.head_importance(texts, labels)
    assert model.head_importance(texts[::-1], labels[::-1]) == pytest.approx(importance, abs=1e-4)
    with pytest.raises(UserError, match=r"2 inputs and 1 targets"):
        model.head_importance(texts[:2], labels[:1])


def test_evaluating_a_classifier(cli: Callable[..., Any], classifier: Path, files: Path) -> None:
    shown = cli("evaluate", classifier, "--device", "cpu", "--source", files / "test.tsv")
    record = json.loads(
        cli("evaluate", classifier, "--device", "cpu", "--source", files / "test.tsv", "--format", "json").out
    )
    rows = [line.split("\t") for line in (files / "test.tsv").read_text().splitlines()]
    found = headwise.load(classifier, "cpu").classify([text for text, _ in rows])
    right = sum(one.label == label for one, (_, label) in zip(found, rows, strict=True))
    assert record["accuracy"] == right / 300
    assert record["classes"]["first"]["n_true"] == sum(label == "first" for _, label in rows)
    assert shown.out.startswith(f"accuracy {right / 300:.2%}, macro F1 {record['macro_f1']:.4f}")


def test_forecasting_and_evaluating(cli: Callable[..., Any], forecaster: Path, files: Path, tmp_path: Path) -> None:
    ran = cli("forecast", forecaster, files / "test.csv", "-o", tmp_path / "out.csv", "--device", "cpu")
    assert ran.code == 0, ran.err
    header, *rows = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "step,b"
    values = headwise.load(forecaster, "cpu").forecast(files / "test.csv")
    assert [float(row.split(",")[1]) for row in rows] == pytest.approx(values, rel=1e-5)
    record = json.loads(
        cli("evaluate", forecaster, "--device", "cpu", "--source", files / "test.csv", "--format", "json").out
    )
    assert record["windows"] == 300 - 24 - 6 + 1
    series = [float(line.split(",")[2]) for line in (files / "test.csv").read_text().splitlines()[1:]]
    expected = [abs(series[t + step] - series[t + step - 12]) for t in range(24, 295) for step in range(6)]
    assert record["seasonal"]["mae_original"] == pytest.approx(sum(expected) / len(expected), rel=1e-4)


@pytest.mark.parametrize("which", ["classifier", "forecaster"])
def test_info(which: str, cli: Callable[..., Any], request: pytest.FixtureRequest) -> None:
    ran = cli("info", request.getfixturevalue(which), "--device", "cpu")
    assert ran.lines[0].startswith("model          classifi" if which == "classifier" else "model          forecast")
    assert any(line.startswith("labels " if which == "classifier" else "forecasts ") for line in ran.lines)
    assert len(ran.lines) <= 12
    ran = cli("info", request.getfixturevalue(which), "--device", "cpu", "--all")
    assert ran.code == 0, ran.err
    assert f'task = "{"classify" if which == "classifier" else "forecast"}"' in ran.out
    assert not any(idle in ran.out for idle in ("beam_size", "n_decoder_layers", "cross_heads"))
    assert ("horizon" in ran.out) == (which == "forecaster")


@pytest.mark.few(1)
@pytest.mark.parametrize("which", ["model_path", "classifier", "forecaster"])
def test_info_lists_the_commands_that_work_for_models_trained_here(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, cli: Callable[..., Any]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(request.getfixturevalue(which), model)
    works = tried(tmp_path, monkeypatch)
    working = [command for command in (*COMMANDS, *BY_NETWORK) if works(command, model)]
    rows = dict(line.split(maxsplit=1) for line in cli("info", model, "--device", "cpu").lines)
    assert rows["for"] == ", ".join(working)


@pytest.mark.parametrize("which", ["classifier", "forecaster"])
def test_pruning_a_classifier(
    which: str, request: pytest.FixtureRequest, cli: Callable[..., Any], files: Path, tmp_path: Path
) -> None:
    """The file is smaller, and the pruned model gives the outputs of the whole one with these heads masked."""
    folder = request.getfixturevalue(which)
    test = files / ("test.tsv" if which == "classifier" else "test.csv")
    ran = cli("prune", folder, "--heads", "2", "--source", test, "--out", tmp_path / "small")
    assert ran.code == 0, ran.err
    removed = ast.literal_eval(ran.err[ran.err.index("{") : ran.err.rindex("}") + 1])
    whole, small = headwise.load(folder, "cpu"), headwise.load(tmp_path / "small", "cpu")
    assert sum(small.config.model.encoder_heads) == 4 * small.config.model.n_encoder_layers - 2
    assert small.info()["parameters"] < whole.info()["parameters"]

    def answer(model: headwise.Model) -> list[float]:
        texts = [line.split("\t")[0] for line in test.read_text().splitlines()[:20]]
        if which == "forecaster":
            return model.forecast(test)
        return [p for one in model.classify(texts) for p in one.probabilities.values()]

    plain = answer(whole)
    with whole.mask_heads(removed):
        masked = answer(whole)
    assert answer(small) == pytest.approx(masked, abs=1e-5)
    assert masked != pytest.approx(plain, abs=1e-5)
    other = cli("prune", folder, "--heads", "2", "--source", test, "--target", test, "--out", tmp_path / "other")
    if which == "classifier":  # texts and labels, from the columns of the same file
        assert other.err.endswith(ran.err.partition(": ")[2])
    else:
        assert "--target: this model predicts series, whose targets are in the files of --source" in other.complaint


# Errors ---------------------------------------------------------------------------------------------------------------


def test_commands_for_another_task(cli: Callable[..., Any], classifier: Path, forecaster: Path, files: Path) -> None:
    pair = ["--source", files / "test.tsv", "--target", files / "test.tsv"]
    for command in (["translate", classifier], ["align", classifier, *pair], ["shortlist", classifier, "--train", "x"]):
        assert f"{classifier}: was trained to classify, not to translate" in cli(*command).complaint
    complaint = cli("score", classifier, *pair).complaint
    assert f"{classifier}: this model labels texts; it can" in complaint and "classify, evaluate" in complaint
    assert f"{forecaster}: was trained to forecast, not to classify" in cli("classify", forecaster).complaint
    assert f"{classifier}: was trained to classify, not to forecast" in cli("forecast", classifier, "x").complaint
    complaint = cli("evaluate", classifier, "--source", files / "test.tsv", "--beam-size", 3).complaint
    assert f"--beam-size is for translation models; {classifier} needs --source alone" in complaint
    complaint = cli("evaluate", classifier, "--source", "x", "--reference", "y").complaint
    assert "--reference is for translation models" in complaint


def test_a_translation_model_neither_classifies_nor_forecasts(cli: Callable[..., Any], model_path: Path) -> None:
    assert f"{model_path}: was trained to translate, not to classify" in cli("classify", model_path).complaint
    assert "use `headwise translate` with it" in cli("forecast", model_path, "x.csv").complaint
    assert "--reference is required" in cli("evaluate", model_path, "--source", "x").complaint


BAD: dict[str, tuple[str, str, str, str]] = {  # recipe, content of --train, content of --valid, expected message
    "no tab": ("classify", "a\tx\nb\n", "a\tx\n", "bad.train: line 2 has no tab"),
    "no label": ("classify", "a\tx\nb\t\n", "a\tx\n", "bad.train: line 2 has an empty label"),
    "one label": ("classify", "a\tx\nb\tx\n", "a\tx\n", "every line has the label 'x'"),
    "new label": ("classify", "a\txx\nb\tyy\n", "a\txx\nb\txy\n", "bad.valid: line 2: unknown label 'xy'"),
    "empty": ("classify", "", "a\tx\n", "bad.train: is empty"),
    "missing": ("forecast", "d,a\nx,1\ny,\n", "d,a\nx,1\n", "bad.train: line 3: the value of a is missing"),
    "no number": ("forecast", "d,a\nx,1\n", "d,a\nx,1\ny,?\n", "bad.valid: line 3: the value of a '?' is not a number"),
    "too short": ("forecast", "d,a\nx,1\n", "d,a\nx,1\n", "bad.train: 1 rows are too few for a window of 336"),
    "other columns": ("forecast", wave(400), wave(400).replace("date,a,b", "date,a,c"), "bad.valid: has no column 'b'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(case: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    recipe, train, valid, expected = BAD[case]
    ending = ".tsv" if recipe == "classify" else ".csv"
    for name, content in (("bad.train", train), ("bad.valid", valid)):
        (tmp_path / f"{name}{ending}").write_text(content, encoding="utf-8")
    files = ["--train", tmp_path / f"bad.train{ending}", "--valid", tmp_path / f"bad.valid{ending}"]
    settings = [*TEXT, "train.max_steps=1"] if recipe == "classify" else SMALL
    complaint = cli("train", "--recipe", recipe, *files, "--out", tmp_path / "out", "--set", *settings).complaint
    assert expected.replace(": ", f"{ending}: ", 1) in complaint
    assert not (tmp_path / "out").exists()


def test_a_header_of_texts_and_labels_gives_a_warning(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("text\tlabel\na b\tx\nc d\ty\n", encoding="utf-8")
    files = ["--train", tmp_path / "x.tsv", "--valid", tmp_path / "x.tsv", "--device", "cpu"]
    ran = cli("train", "--recipe", "classify", *files, "--out", tmp_path / "out", "--set", *TEXT, "train.max_steps=1")
    assert ran.code == 0
    assert f"{tmp_path / 'x.tsv'}: line 1 looks like a header" in ran.err.splitlines()[0]


@pytest.mark.parametrize(
    ("recipe", "more", "expected"),
    [
        (
            "forecast",
            ["--init", "x"],
            "and the task is forecast: leave one of the two out",
        ),
        ("forecast", ["--special", "<a>"], "--special is for texts"),
        ("forecast", ["--set", "data.target=c"], "unknown column in data.target 'c'"),
        (
            "classify",
            ["--set", "model.positions=learned", "model.max_len=9"],
            "model.max_len = 9 is less than data.max",
        ),
        (
            "forecast",
            ["--set", "model.positions=learned", "model.max_len=9"],
            "model.max_len = 9 is less than data.win",
        ),
    ],
)
def test_bad_settings(
    recipe: str, more: list[str], expected: str, cli: Callable[..., Any], files: Path, tmp_path: Path
) -> None:
    data = ["--train", files / "train.tsv", "--valid", files / "valid.tsv"]
    data = data if recipe == "classify" else ["--train", files / "train.csv"]
    assert expected in cli("train", "--recipe", recipe, *data, "--out", tmp_path / "out", *more).complaint


def test_a_damaged_config_is_named(classifier: Path, cli: Callable[..., Any], tmp_path: Path) -> None:
    settings = json.loads((classifier / "config.json").read_text())
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes((classifier / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "labels": ["first"]}))
    assert "has 1 labels, but the model 2 classes" in cli("classify", tmp_path).complaint
    del settings["labels"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert "config.json: has no 'labels'" in cli("classify", tmp_path).complaint
