"""Adapters (LoRA) as in docs/how-to/adapters.md: `headwise train --init FOLDER --set train.lora_rank=8`."""

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
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=20", "train.log_every=20",
         "train.learning_rate=0.02", "train.warmup_steps=5", "train.validate_bleu=4", "train.threads=1",
         "train.lora_rank=4"]  # fmt: skip
SEARCH = {"max_length": 20, "num_beams": 2}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options for training and validation pairs."""
    for side, text in (("en", "A dog runs {} .\n"), ("de", "Ein Hund rennt {} .\n")):
        (tmp_path / f"a.{side}").write_text("".join(text.format(i) for i in range(40)), encoding="utf-8")
    both = [str(tmp_path / f"a.{side}") for side in ("en", "de")]
    return ["--train", *both, "--valid", *both]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "base", "marian", {"dropout": 0.1}, SEARCH)
    return tmp_path / "base"


def trained(cli: Cli, base: Path, files: list[str], out: Path, *settings: str) -> Any:
    ran = cli("train", "--init", base, *files, "--out", out, "--set", *QUICK, *settings)
    assert ran.code == 0, ran.err
    return ran


def test_only_adapters_are_written(cli: Cli, base: Path, files: list[str], tmp_path: Path) -> None:
    ran = trained(cli, base, files, tmp_path / "out")
    assert "adapters: rank 4, alpha 16, on 12 layers (q_proj,v_proj): 1,536 of" in ran.err
    rows = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert not (tmp_path / "out" / "model.safetensors").exists()
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    key = "base_model.model.model.decoder.layers.1.encoder_attn.v_proj.lora_B.weight"
    assert len(found) == 24 and found[key].shape == (16, 4)
    checkpoint = load_file(next((tmp_path / "out" / "checkpoints").iterdir()) / "model.safetensors")
    assert checkpoint and all("lora" in name for name in checkpoint)
    assert "| adapters | rank 4" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "rank 4" in cli("info", tmp_path / "out").out
    scored = cli("score", tmp_path / "out", "--source", files[1], "--target", files[2])
    lines = [json.loads(line) for line in scored.out.splitlines()]
    tokens = sum(len(line["token_log_probs"]) for line in lines)
    assert -sum(line["log_prob"] for line in lines) / tokens == pytest.approx(rows[-1]["loss"], rel=1e-3)


@pytest.mark.thorough
def test_a_resumed_run_repeats_the_uninterrupted_one(cli: Cli, base: Path, files: list[str], tmp_path: Path) -> None:
    more = ["train.lora_dropout=0.1", "train.schedule=constant"]
    trained(cli, base, files, tmp_path / "whole", *more)
    trained(cli, base, files, tmp_path / "parts", *more, "train.max_steps=20")
    ran = cli("train", "--init", base, *files, "--out", tmp_path / "parts", "--set", *QUICK, *more, "--resume")
    assert ran.code == 0 and "resuming after step 20" in ran.err, ran.err
    whole, parts = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    refused = cli("train", "--init", base, *files, "--out", tmp_path / "parts", "--set", *QUICK, *more,
                  "train.lora_alpha=3", "--resume")  # fmt: skip
    assert "train.lora_alpha was 16.0, now 3.0" in refused.complaint


@pytest.mark.thorough
def test_adapters_are_added_and_merged(cli: Cli, base: Path, files: list[str], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    trained(cli, base, files, one, "train.max_steps=20")
    trained(cli, base, files, two, "train.max_steps=20", "train.seed=2", "train.lora_layers=fc1")
    weights = [headwise.load(path, "cpu").network.state_dict() for path in (base, one, two, f"{one}+{two}")]
    for name, start in weights[0].items():
        expected = weights[1][name] + weights[2][name] - start
        torch.testing.assert_close(weights[3][name], expected, atol=1e-6, rtol=1e-5)
    ran = cli("export", f"{one}+{two}", "--to", "hf", tmp_path / "merged")
    assert ran.code == 0, ran.err
    assert load_file(tmp_path / "merged" / "model.safetensors").keys() == load_file(base / "model.safetensors").keys()
    both = [headwise.load(path, "cpu") for path in (f"{one}+{two}", tmp_path / "merged")]
    src, tgt = torch.tensor([[20, 21, 22, 2]]), torch.tensor([[1, 30, 31]])
    first, second = (model.network.logits(model.network.states(src, tgt, src > 0)) for model in both)
    assert torch.equal(first, second)
    texts = [cli("translate", path, files[1]).out for path in (f"{one}+{two}", tmp_path / "merged")]
    assert texts[0] == texts[1] != ""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "task", "changes"),
    [("gpt2", "lm", {"n_layer": 2}), ("llama", "lm", {}), ("bert", "mlm", {"vocab_size": 265})],
)
def test_running_text(cli: Cli, tmp_path: Path, kind: str, task: str, changes: dict[str, Any]) -> None:
    write_tiny(tmp_path / "base", kind, changes, mask_token="<mask>")
    text = tmp_path / "text.txt"
    text.write_text("A dog runs in the park.\n" * 60, encoding="utf-8")
    settings = [*(one for one in QUICK if "bleu" not in one), "data.block_length=16"]
    ran = cli("train", "--task", task, "--init", tmp_path / "base", "--train", text, "--valid", text, "--out",
              tmp_path / "out", "--set", *settings)  # fmt: skip
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert headwise.load(tmp_path / "out", "cpu").info()["family"] == kind


def write_encoder(folder: Path, kind: str, **changes: Any) -> Path:
    """A folder of an encoder whose tokenizer adds special tokens."""
    write_tiny(folder, kind, changes, cls_token="<s>", sep_token="</s>")
    text = vocabulary(behind=False)
    text.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    text.save(str(folder / "tokenizer.json"))
    return folder


def write_data(folder: Path, task: str) -> Path:
    """A file, or a folder of images, to train `task` on."""
    if task == "label":
        image = pytest.importorskip("PIL.Image")
        for label, colour in (("red", (250, 0, 0)), ("blue", (0, 0, 250))):
            (folder / label).mkdir(parents=True)
            for i in range(4):
                image.new("RGB", (8, 8), colour).save(folder / label / f"{i}.png")
        return folder
    answer = {"text": "Rome", "answer_start": 10}
    questions = [{"id": "1", "question": "where?", "answers": [answer]}]
    texts = {
        "classify": "".join(f"a dog {i}\tdog\na cat {i}\tcat\n" for i in range(30)),
        "tag": "Ann B-PER\nis O\nin O\nRome B-LOC\n\n" * 4,
        "answer": json.dumps({"data": [{"paragraphs": [{"context": "Ann is in Rome", "qas": questions}]}]}),
        "embed": "".join(f"{word}\tI saw a {word} there\n" for word in ("dog", "cat", "owl", "sun", "tea")),
    }
    path = folder.with_suffix({"answer": ".json", "tag": ".conll"}.get(task, ".tsv"))
    path.write_text(texts[task], encoding="utf-8")
    return path


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("task", "kind", "head", "figure"),
    [
        ("classify", "bert", "classifier", "accuracy"),
        ("classify", "distilbert", "classifier", "accuracy"),
        ("tag", "bert", "classifier", "f1"),
        ("tag", "distilbert", "classifier", "f1"),
        ("answer", "bert", "qa_outputs", "f1"),
        ("label", "vit", "classifier", "accuracy"),
        ("label", "deit", "classifier", "accuracy"),
        ("embed", "bert", "", "mrr"),
        ("embed", "distilbert", "", "mrr"),
    ],
)
def test_new_head_is_trained_and_saved(cli: Cli, tmp_path: Path, task: str, kind: str, head: str, figure: str) -> None:
    base = tmp_path / "base"
    write_tiny(base, kind) if task == "label" else write_encoder(base, kind)
    ran, data = fine_tune(cli, base, tmp_path, task)
    assert ("and of the head" in ran.err) == bool(head)
    saved = load_file(tmp_path / "out" / "adapter_model.safetensors")
    others = {key for key in saved if "lora" not in key}
    if head:
        assert saved[f"base_model.model.{head}.bias"].abs().min() > 0  # biases of a new head start at zero
        assert f"base_model.model.{head}.weight" in others
    else:
        assert not others
    rows = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    best = max(row[figure] for row in rows if row["best"])
    ran = cli("evaluate", tmp_path / "out", "--source", data, "--format", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)[figure] == pytest.approx(best)


@pytest.mark.few(1)
@pytest.mark.parametrize("architecture", ["BertModel", "BertForMaskedLM", "BertForTokenClassification"])
def test_new_head_on_other_layouts_of_the_base(cli: Cli, tmp_path: Path, architecture: str) -> None:
    """Files without the prefix of the body, with a repeated output matrix, and with the head that is trained."""
    tags = {"id2label": {"0": "B-LOC", "1": "B-PER", "2": "O"}} if "Token" in architecture else {}
    base = write_encoder(tmp_path / "base", "bert", architectures=[architecture], **tags)
    tensors = load_file(base / "model.safetensors")
    if architecture == "BertModel":
        tensors = {key.removeprefix("bert."): value for key, value in tensors.items()}
    if architecture == "BertForMaskedLM":
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    save_file(tensors, base / "model.safetensors")
    _, data = fine_tune(cli, base, tmp_path, "tag")
    saved = load_file(tmp_path / "out" / "adapter_model.safetensors")["base_model.model.classifier.weight"]
    assert "classifier.weight" not in tensors or (saved - tensors["classifier.weight"]).abs().min() > 0
    model = headwise.load(tmp_path / "out", "cpu")
    assert model.info()["family"] == "bert" and torch.equal(model.network.head.classes.weight, saved)
    assert cli("export", tmp_path / "out", "--to", "hf", tmp_path / "merged").code == 0
    found = [cli("tag", folder, data.with_name("words.txt")).out for folder in (tmp_path / "out", tmp_path / "merged")]
    assert found[0] == found[1] != ""


def fine_tune(cli: Cli, base: Path, folder: Path, task: str) -> tuple[Any, Path]:
    """Train adapters for `task` into the folder `out`; returns the result of the command, and the data."""
    data = write_data(folder / "data", task)
    (folder / "words.txt").write_text("Ann is in Rome\n", encoding="utf-8")
    settings = [one for one in QUICK if "bleu" not in one]
    ran = cli("train", "--task", task, "--init", base, "--train", data, "--valid", data, "--out", folder / "out",
              "--set", *settings)  # fmt: skip
    assert ran.code == 0, ran.err
    return ran, data


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["train.lora_layers=q_prj"], "train.lora_layers: unknown layer 'q_prj'"),
        (["train.optimizer=muon"], "train.lora_rank = 4: adapters need train.optimizer = adam"),
        (["train.lora_alpha=0"], "train.lora_alpha = 0.0: must be greater than 0"),
    ],
)
def test_refused_settings(
    cli: Cli, base: Path, files: list[str], tmp_path: Path, settings: list[str], expected: str
) -> None:
    refused = cli("train", "--init", base, *files, "--out", tmp_path / "out", "--set", *QUICK, *settings)
    assert refused.code == 2 and expected in refused.complaint


def test_adapters_need_a_pretrained_model(cli: Cli, base: Path, files: list[str], tmp_path: Path) -> None:
    fresh = ["train.lora_rank=4", "train.max_steps=1", "data.vocab_size=300"]
    refused = cli("train", "--recipe", "tiny", *files, "--out", tmp_path / "a", "--set", *fresh)
    assert "train.lora_rank = 4: adapters need a pretrained model" in refused.complaint
    assert cli("import", base, tmp_path / "ours").code == 0
    refused = cli("train", "--init", tmp_path / "ours", *files, "--out", tmp_path / "b", "--set", *QUICK)
    assert "was imported; start from the original folder" in refused.complaint
    trained(cli, base, files, tmp_path / "one", "train.max_steps=20")
    refused = cli("train", "--init", tmp_path / "one", *files, "--out", tmp_path / "c", "--set", *QUICK)
    assert "has adapters; merge them first" in refused.complaint


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"peft_type": "IA3"}, "peft_type = IA3: only LORA, with its lora_alpha, is understood"),
        ({"layer_replication": [[0, 1]]}, "layer_replication = [[0, 1]]: is not understood"),
        ({"bias": "some"}, "bias = 'some': must be none, all or lora_only"),
        ({"base_model_name_or_path": "nowhere"}, "base_model_name_or_path = 'nowhere' is no folder of a model"),
    ],
)
def test_adapters_of_another_kind(
    cli: Cli, base: Path, files: list[str], tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    trained(cli, base, files, tmp_path / "out", "train.max_steps=20")
    path = tmp_path / "out" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert expected in cli("info", tmp_path / "out").complaint


def test_adapters_of_another_model(cli: Cli, base: Path, files: list[str], tmp_path: Path) -> None:
    trained(cli, base, files, tmp_path / "out", "train.max_steps=20")
    write_tiny(tmp_path / "other", "gpt2")
    path = tmp_path / "out" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(tmp_path / "other")}))
    assert "the model in" in (complaint := cli("info", tmp_path / "out").complaint) and "has no such layer" in complaint
