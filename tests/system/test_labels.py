"""Text classification as in docs/how-to/labels.md: `headwise train --task classify --init FOLDER`.

The models are tiny and random. They learn a few lines by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import vocabulary, write_tiny
from tokenizers import processors

import headwise

Cli = Callable[..., Any]
QUICK = ["train.max_steps=30", "train.validate_every=15", "train.checkpoint_every=15", "train.log_every=15",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.threads=1"]  # fmt: skip
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
THREE = {"id2label": {"0": "no", "1": "perhaps", "2": "yes"}}
ANSWERS = {"no": "never", "perhaps": "who knows", "yes": "of course"}


def write(folder: Path, kind: str = "bert", **changes: Any) -> Path:
    """A folder whose tokenizer adds special tokens around a text or a pair of texts, like BERT's."""
    write_tiny(folder, kind, changes)
    text = vocabulary(behind=False)
    text.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    text.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options for training and validation texts."""
    lines = [f"{text} {i}\t{label}\n" for i in range(12) for label, text in ANSWERS.items()]
    (tmp_path / "a.tsv").write_text("".join(lines), encoding="utf-8")
    return ["--train", str(tmp_path / "a.tsv"), "--valid", str(tmp_path / "a.tsv")]


@pytest.fixture
def pairs(tmp_path: Path) -> list[str]:
    """The same for pairs of texts, whose label is whether they are the same."""
    words = ["dog", "cat", "owl"]
    lines = [f"{a} {i}\t{b}\t{'same' if a == b else 'other'}\n" for i in range(6) for a in words for b in words]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    return ["--train", str(tmp_path / "pairs.tsv"), "--valid", str(tmp_path / "pairs.tsv")]


def validations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "validation.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_an_encoder_gets_a_head_and_is_trained(cli: Cli, files: list[str], tmp_path: Path, kind: str) -> None:
    write(tmp_path / "model", kind)
    ran = cli("train", "--task", "classify", "--init", tmp_path / "model", *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=60")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "a new head for 3 classes on model, instead of its head (masked)" in ran.err
    figures = validations(tmp_path / "out")
    assert [row["step"] for row in figures] == [0, 15, 30, 45, 60]
    assert figures[-1]["accuracy"] > 0.9 > figures[0]["accuracy"]
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["architectures"] == [{"bert": "Bert", "distilbert": "DistilBert"}[kind] + "ForSequenceClassification"]
    assert values["id2label"] == THREE["id2label"] and values["label2id"] == {"no": 0, "perhaps": 1, "yes": 2}
    assert values["problem_type"] == "single_label_classification"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    found = cli("evaluate", tmp_path / "out", "--source", files[1], "--format", "json")
    assert json.loads(found.out)["accuracy"] == figures[-1]["accuracy"]
    (tmp_path / "in.txt").write_text("of course 3\nnever 1\n", encoding="utf-8")
    lines = cli("classify", tmp_path / "out", tmp_path / "in.txt").lines
    assert [line.split("\t")[0] for line in lines] == ["yes", "no"]
    assert "labels" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_model_is_usable_after_the_first_validation(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model")
    ran = cli("train", "--task", "classify", "--init", tmp_path / "model", *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=1", "train.learning_rate=1e-9")  # fmt: skip
    assert ran.code == 0, ran.err
    found = headwise.load(tmp_path / "out", "cpu").evaluate([files[1]])
    assert found.accuracy == validations(tmp_path / "out")[0]["accuracy"]  # type: ignore[union-attr]


def test_a_head_with_as_many_classes_is_fine_tuned(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """With the order of its names; new names are logged, and another number of classes gets a new head."""
    head: dict[str, Any] = {"architectures": ["BertForSequenceClassification"]}
    cases = [
        ({"0": "yes", "1": "no", "2": "perhaps"}, ["yes", "no", "perhaps"], "training the head of"),
        ({"0": "a", "1": "b", "2": "c"}, ["no", "perhaps", "yes"], "become no, perhaps, yes"),
        (
            {"0": "a", "1": "b"},
            ["no", "perhaps", "yes"],
            "a new head for 3 classes on model2, after its pretrained pooler",
        ),
    ]
    for place, (there, expected, said) in enumerate(cases):
        start, out = write(tmp_path / f"model{place}", id2label=there, **head), tmp_path / f"out{place}"
        ran = cli("train", "--task", "classify", "--init", start, *files, "--out", out,
                  "--set", *QUICK, "train.max_steps=1", "train.learning_rate=1e-9")  # fmt: skip
        assert ran.code == 0, ran.err
        assert said in ran.err
        assert [*json.loads((out / "config.json").read_text())["id2label"].values()] == expected
        before, after = (load_file(folder / "model.safetensors")["classifier.weight"] for folder in (start, out))
        assert (before.shape == after.shape and torch.allclose(before, after, atol=1e-6)) == (place < 2)


def test_a_pretrained_pooler_initializes_the_head(cli: Cli, files: list[str], tmp_path: Path) -> None:
    start = write(tmp_path / "model", architectures=["BertModel"])
    tensors = load_file(start / "model.safetensors")
    pooler = {"bert.pooler.dense.weight": torch.randn(16, 16), "bert.pooler.dense.bias": torch.randn(16)}
    save_file({**tensors, **pooler}, start / "model.safetensors", {"format": "pt"})
    ran = cli("train", "--task", "classify", "--init", start, *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=1", "train.learning_rate=1e-9")  # fmt: skip
    assert "a new head for 3 classes on model, after its pretrained pooler" in ran.err
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.allclose(after["bert.pooler.dense.weight"], pooler["bert.pooler.dense.weight"], atol=1e-6)
    assert after["classifier.weight"].std() < 0.04  # initializer_range
    assert after["classifier.bias"].abs().max() < 1e-6


def test_pairs_of_texts(cli: Cli, pairs: list[str], tmp_path: Path) -> None:
    start = write(tmp_path / "model", **NO_DROPOUT)
    ran = cli("train", "--task", "classify", "--init", start, *pairs, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=90", "train.validate_every=90")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "training on 54 pairs of texts with 2 labels" in ran.err
    figures = validations(tmp_path / "out")
    found = json.loads(cli("evaluate", tmp_path / "out", "--source", pairs[1], "--format", "json").out)
    assert found["accuracy"] == max(row["accuracy"] for row in figures) > 0.8
    (tmp_path / "in.tsv").write_text("dog 1\tdog\ndog 2\towl\n", encoding="utf-8")
    lines = cli("classify", tmp_path / "out", tmp_path / "in.tsv").lines
    classified = headwise.load(tmp_path / "out", "cpu").classify([("dog 1", "dog"), ("dog 2", "owl")])
    assert lines == [f"{one.label}\t{one.probability:.4f}" for one in classified]
    apart = headwise.load(tmp_path / "out", "cpu").classify(["dog 1 dog"])
    assert apart[0].probability != classified[0].probability


def test_a_resumed_run_repeats_the_uninterrupted_one(cli: Cli, pairs: list[str], tmp_path: Path) -> None:
    start, settings = write(tmp_path / "model"), [*QUICK, "train.schedule=constant"]
    command = ["train", "--task", "classify", "--init", start, *pairs]
    assert cli(*command, "--out", tmp_path / "whole", "--set", *settings).code == 0
    assert cli(*command, "--out", tmp_path / "parts", "--set", *settings, "train.max_steps=15").code == 0
    refused = cli(*command, "--out", tmp_path / "parts", "--set", *settings, "data.max_length=20", "--resume")
    assert "data.max_length was 60, now 20" in refused.complaint
    ran = cli(*command, "--out", tmp_path / "parts", "--set", *settings, "--resume")
    assert ran.code == 0, ran.err
    assert "resuming after step 15" in ran.err
    whole, parts = (load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


@pytest.mark.filterwarnings("ignore:.*ignored sparsity.*:UserWarning")
def test_import_ignores_keys_on_request(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "zeal": "b", "sparsity": 3}))
    assert "not supported: sparsity = 3, zeal = 'b'" in cli("import", folder, tmp_path / "ours").complaint
    ran = cli("import", folder, tmp_path / "ours", "--ignore-keys", "zeal,sparsity")
    assert ran.code == 0, ran.err
    assert headwise.load(tmp_path / "ours", "cpu").hf_config == values


def test_an_imported_folder_stays_imported(cli: Cli, files: list[str], tmp_path: Path) -> None:
    assert cli("import", write(tmp_path / "model"), tmp_path / "ours").code == 0
    ran = cli("train", "--task", "classify", "--init", tmp_path / "ours", *files, "--out", tmp_path / "out",
              "--set", *QUICK, "train.max_steps=60")  # fmt: skip
    assert ran.code == 0, ran.err
    assert headwise.load(tmp_path / "out", "cpu").classify(["of course 3"])[0].label == "yes"


def test_held_out_texts_and_labels_that_occur_once(cli: Cli, files: list[str], tmp_path: Path) -> None:
    with open(files[1], "a", encoding="utf-8") as file:
        file.write("whatever\tonce\n")
    ran = cli("train", "--task", "classify", "--init", write(tmp_path / "model"), *files[:2], "--valid", "20%",
              "--out", tmp_path / "out", "--set", *QUICK, "train.max_steps=2")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "with 4 labels" in ran.err
    corpus = json.loads((tmp_path / "out" / "training.json").read_text())["corpus"]
    assert corpus["valid"] == corpus["train"] and corpus["held_out"]["taken"]


BAD = [
    ("a\tx\nb\n", "a\tx\n", "line 2 has no tab; write 'text TAB label' on every line"),
    ("a\tx\nb\tc\ty\n", "a\tx\n", "line 2 has 2 tabs; write 'text TAB label' on every line"),
    ("a\tb\tx\nb\ty\n", "a\tb\tx\n", "line 2 has 1 tab; write 'text TAB text TAB label' on every line"),
    ("a\tx\nb\t \n", "a\tx\n", "line 2 has an empty label"),
    ("a\tx\nb\tx\n", "a\tx\n", "every line has the label 'x'; training needs two labels"),
    ("a\tx\nb\ty\n", "a\tx\na\tz\n", "line 2: unknown label 'z'"),
    ("", "a\tx\n", "is empty"),
    ("a\tx\nb\ty\n", "", "is empty"),
    ("a\tb\tx\na\tb\ty\n", "10%", "--valid 10%: pairs of texts cannot be held out"),
]


@pytest.mark.parametrize(("train", "valid", "expected"), BAD)
def test_bad_lines_give_one_line(cli: Cli, tmp_path: Path, train: str, valid: str, expected: str) -> None:
    write(tmp_path / "model")
    (tmp_path / "t.tsv").write_text(train, encoding="utf-8")
    (tmp_path / "v.tsv").write_text(valid, encoding="utf-8")
    named = valid if valid.endswith("%") else tmp_path / "v.tsv"
    ran = cli("train", "--task", "classify", "--init", tmp_path / "model", "--train", tmp_path / "t.tsv", "--valid",
              named, "--out", tmp_path / "out")  # fmt: skip
    assert expected in ran.complaint
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--special", "<s>"], "has this token already; leave it out"),
        (["--set", "model.n_heads=4"], "--set model.n_heads=4: the shape is that of --init"),
        (["--set", "data.max_length=61"], "model.max_len = 60 is less than data.max_length = 61"),
        (["--set", "data.max_length=2"], "data.max_length = 2 leaves no room for a text between the special tokens"),
        (["--task", "lm"], "is a bert model that reads texts; this task needs a decoder (GPT-2, LLaMA)"),
    ],
)
def test_refused_options(cli: Cli, files: list[str], tmp_path: Path, more: list[str], expected: str) -> None:
    write(tmp_path / "model")
    ran = cli("train", "--task", "classify", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", *more)
    assert expected in ran.complaint


def test_a_model_trained_here_is_no_start(cli: Cli, files: list[str], tmp_path: Path) -> None:
    settings = [*QUICK, "train.max_steps=1", "data.vocab_size=300"]
    ran = cli("train", "--recipe", "classify", *files, "--out", tmp_path / "ours", "--set", *settings)
    assert ran.code == 0, ran.err
    ran = cli("train", "--task", "classify", "--init", tmp_path / "ours", *files, "--out", tmp_path / "out")
    wanted = "--task classify starts from an encoder (BERT or a similar model) or an XLNet, which this is not"
    assert wanted in ran.complaint


def test_models_without_labels_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n", encoding="utf-8")
    assert (
        "was saved without a head for classes of texts"
        in cli("classify", write(tmp_path / "model"), tmp_path / "in.txt").complaint
    )
    head = {"architectures": ["BertForSequenceClassification"], **THREE}
    model = write(tmp_path / "other", **head, problem_type="regression")
    assert "regression does not fit 3 outputs" in cli("classify", model, tmp_path / "in.txt").complaint
    model = write(tmp_path / "one", **head)
    assert (
        "--threshold 0.5: is for models with several"
        in cli("classify", model, tmp_path / "in.txt", "--threshold", "0.5").complaint
    )
