"""XLNet and ELECTRA as users run them: `train --task plm` and `rtd`, from scratch, and uses of the results.

The networks are tiny. They learn the alphabet by heart.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file
from tiny_families import write_tiny

import headwise
from headwise.core.dropout import Dropout
from headwise.pytorch.tasks.initial_model import config_from_model, model_settings
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.permutation_modelling import fine_tuning_job

Cli = Callable[..., Any]
SHAPE = ["model.d_model=48", "model.d_ff=64", "model.n_heads=4", "model.n_encoder_layers=1", "model.dropout=0.1"]
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.tokens_per_batch=256", "train.threads=1",
         "data.block_length=16"]  # fmt: skip
RECIPES = "electra", "xlnet"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The file options of commands."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text("abcdefghijklmnopqrstuvwxyz\n" * 40, encoding="utf-8")
    (folder / "valid.txt").write_text("abcdefghijklmnopqrstuvwxyz\n" * 4, encoding="utf-8")
    return ["--train", str(folder / "train.txt"), "--valid", str(folder / "valid.txt"), "--device", "cpu"]


def command(recipe: str, texts: list[str]) -> list[str]:
    return ["train", "--recipe", recipe, *texts, "--set", "data.subword=characters", *SHAPE, *QUICK]


def further(folder: Path, texts: list[str]) -> list[str]:
    return ["train", "--task", "plm", "--init", str(folder), *texts, "--set", *QUICK]


@pytest.fixture(scope="module")
def trained(texts: list[str], cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each, in folders named after their recipes; read only."""
    folder = tmp_path_factory.mktemp("trained")
    for recipe in RECIPES:
        ran = cli(*command(recipe, texts), "--out", folder / recipe)
        assert ran.code == 0, ran.err
    return folder


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_killed_run_is_resumed_exactly(
    recipe: str, trained: Path, texts: list[str], cli: Cli, tmp_path: Path
) -> None:
    killed_and_resumed(cli, command(recipe, texts), 10, tmp_path / "out", trained / recipe)


# --- ELECTRA


def test_an_electra_is_trained_and_transformers_reads_it(trained: Path) -> None:
    first, last = records(trained / "electra", "validation.jsonl")
    assert last["loss"] == pytest.approx(last["generator"] + 50 * last["discriminator"])
    assert last["generator"] < first["generator"] < 3.5 and 0.8 < last["accuracy"] <= 1
    assert last["discriminator"] < 0.45
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(trained / "electra").eval()
    cut = transformers.AutoTokenizer.from_pretrained(trained / "electra")
    ids = torch.tensor([cut("abcxefg")["input_ids"]])
    own = headwise.load(trained / "electra", "cpu")
    with torch.no_grad():
        torch.testing.assert_close(own.network(ids), theirs(ids).logits, atol=1e-5, rtol=0)
    card = (trained / "electra" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A replaced-token model made with Headwise")


def test_classification_with_an_electra(trained: Path, cli: Cli, tmp_path: Path) -> None:
    files = ["--train", labels(tmp_path), "--valid", tmp_path / "a.tsv", "--out", tmp_path / "out"]
    settings = ["--set", "train.max_steps=2", "train.validate_every=2", "train.threads=1"]
    ran = cli("train", "--task", "classify", "--init", trained / "electra", *files, *settings)
    assert ran.code == 0, ran.err
    before, after = (load_file(path / "model.safetensors") for path in (trained / "electra", tmp_path / "out"))
    assert {key for key in before if key.startswith("electra.")} == {key for key in after if key.startswith("electra.")}


def labels(folder: Path) -> Path:
    lines = "".join(f"{text}\t{label}\n" for text, label in (("abc", "up"), ("cba", "down")) * 10)
    (folder / "a.tsv").write_text(lines, encoding="utf-8")
    return folder / "a.tsv"


# --- XLNet


def test_an_xlnet_is_trained_and_transformers_reads_it(trained: Path, cli: Cli) -> None:
    folder = trained / "xlnet"
    first, last = records(folder, "validation.jsonl")
    assert last["loss"] < first["loss"] < 3.5
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    cut = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([cut("abc<mask>efg")["input_ids"]])
    own = headwise.load(folder, "cpu")
    assert type(theirs).__name__ == "XLNetLMHeadModel" and ids[0].tolist() == own.tokenizer.encode("abc<mask>efg")
    assert (ids[0, 3], ids[0, -2], ids[0, -1]) == (cut.mask_token_id, cut.sep_token_id, cut.cls_token_id)
    with torch.no_grad():
        torch.testing.assert_close(own.network(ids), theirs(ids).logits, atol=1e-5, rtol=0)
    assert cli("fill", folder, "abc<mask>efg").code == 0 and len(own.fill_mask("abc<mask>efg")[0]) == 5
    assert cli("generate", folder, "abc").code == 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A permutation language model made with Headwise")


def test_an_xlnet_is_fine_tuned_in_its_layout(trained: Path, texts: list[str], cli: Cli, tmp_path: Path) -> None:
    """It starts where the other run ended: same vocabulary, evaluated before its first update."""
    ran = cli(*further(trained / "xlnet", texts), "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    validated = records(tmp_path / "out", "validation.jsonl")
    assert [row["step"] for row in validated] == [0, 20, 40]
    assert validated[0]["loss"] == pytest.approx(records(trained / "xlnet", "validation.jsonl")[-1]["loss"], rel=1e-5)
    assert validated[-1]["loss"] < validated[0]["loss"] - 0.1
    before, after = (load_file(path / "model.safetensors") for path in (trained / "xlnet", tmp_path / "out"))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    still = [key for key in before if torch.equal(before[key], after[key])]
    assert all("seg_embed" in key or "r_s_bias" in key for key in still)  # one segment, which cancels in the softmax
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / file).read_text() == (trained / "xlnet" / file).read_text()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "recipe | tune-plm from the weights of `xlnet`" in card and "xlnet: 1 layer, d_model 48, d_ff 64" in card
    grown = cli(*further(trained / "xlnet", texts), "train.max_steps=1", "--special", "<x>=a", "--out", tmp_path / "x")
    assert grown.code == 0 and "added to the vocabulary: <x>" in grown.err, grown.err


def test_an_xlnet_has_the_chosen_dropout(trained: Path, texts: list[str], tmp_path: Path) -> None:
    settings = ["model.dropout=0.3", *QUICK]
    request = TrainRequest("", texts[1:2], texts[3:4], str(tmp_path), settings, init=str(trained / "xlnet"), task="plm")
    assert model_settings(request.init, "").dropout == 0.1
    network = fine_tuning_job(request, config_from_model(request), tmp_path).network()
    assert {module.p for module in network.modules() if isinstance(module, Dropout)} == {0.3}
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_fine_tuning_is_resumed_exactly(trained: Path, texts: list[str], cli: Cli, tmp_path: Path) -> None:
    start = further(trained / "xlnet", texts)
    assert cli(*start, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, start, 10, tmp_path / "out", tmp_path / "whole")


# --- Classification with an XLNet


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Pairs of texts, labelled by whether they have the same first letter."""
    texts = ["abcde", "bcdef", "cdefg", "axyz", "bwxyz", "cvwx"]
    rows = [f"{a}\t{b}\t{'same' if a[0] == b[0] else 'other'}" for a in texts for b in texts]
    file = tmp_path_factory.mktemp("labels") / "pairs.tsv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return ["--train", str(file), "--valid", str(file), "--device", "cpu"]


def labelled(folder: Path, paired: list[str], *more: str) -> list[str]:
    """The command that trains an XLNet for classification."""
    shared = [setting for setting in QUICK if not setting.startswith("data.")]
    return ["train", "--task", "classify", "--init", str(folder), *paired, "--set", *shared, *more]


@pytest.mark.slow
def test_an_xlnet_classifies_and_transformers_agrees(
    trained: Path, paired: list[str], cli: Cli, tmp_path: Path
) -> None:
    """With pairs and single texts, padded or not; it is fine-tuned again, and still embeds."""
    ran = cli(*labelled(trained / "xlnet", paired), "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "a new head for 2 classes on xlnet, instead of its head (language)" in ran.err
    assert cli("evaluate", tmp_path / "out", "--source", paired[1]).code == 0
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", padding_side="left")
    own = headwise.load(tmp_path / "out", "cpu")
    for texts in (["abc", "wxyzabc", "a"], [("abc", "bcd"), ("a", "xyzab"), ("cdefg", "b")]):
        told = cut(*([list(part) for part in zip(*texts, strict=True)] if isinstance(texts[0], tuple) else [texts]),
                   padding=True, return_tensors="pt")  # fmt: skip
        with torch.no_grad():
            expected = theirs(**told).logits.softmax(-1)
        found = [[one.probabilities[name] for name in ("other", "same")] for one in own.classify(texts)]
        torch.testing.assert_close(torch.tensor(found), expected, atol=1e-5, rtol=0)
    assert own.embed(["abc"]).shape == (1, 48)
    assert own.info()["n_classes"] == 2 and "fill_mask" not in dir(own)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "xlnet: 1 layer, d_model 48, d_ff 64" in card and "other, same" in card
    losses = [row["loss"] for row in records(tmp_path / "out", "validation.jsonl")]
    again = cli(*labelled(tmp_path / "out", paired, "train.max_steps=1"), "--out", tmp_path / "on")
    assert "training the head of out for 2 classes" in again.err
    assert records(tmp_path / "on", "validation.jsonl")[0]["loss"] == pytest.approx(min(losses), rel=1e-5)
    refused = cli(*further(tmp_path / "out", paired), "--out", tmp_path / "no").complaint
    assert "is a xlnet model that labels texts; this task needs an XLNet that predicts" in refused


# --- Unsupported options


@pytest.mark.parametrize(
    ("recipe", "more", "expected"),
    [
        ("xlnet", ["--set", "model.norm=rms"], "model.norm = rms: an XLNet has norm = layer; leave it out"),
        ("xlnet", ["--set", "model.positions=learned"], "model.positions = learned: an XLNet has positions = relative"),
        ("electra", ["--set", "model.norm=rms"],
         "a replaced-token model is saved in the layout of electra, and electra cannot have "),
        ("electra", ["--set", "model.d_model=36", "model.n_heads=9"],
         "model.d_model = 36: a generator a quarter as wide has 2 heads"),
        ("electra", ["--init", "x"], "--init is for --task "),
        *[(recipe, ["--set", "data.block_length=2"], "data.block_length = 2: a block has 2 special tokens; raise it")
          for recipe in RECIPES],
    ],
)  # fmt: skip
def test_unsupported_options(
    cli: Cli, recipe: str, texts: list[str], tmp_path: Path, more: list[str], expected: str
) -> None:
    assert expected in cli(*command(recipe, texts), "--out", tmp_path / "out", *more).complaint


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--set", "model.d_model=64"], "the shape is that of --init"),
        (["--set", "data.block_length=2"], "data.block_length = 2: a block has 2 special tokens; raise it"),
        (["--set", "train.lora_rank=2"], "train.lora_rank = 2: XLNet does not support adapters; leave it out"),
        (["--source-language", "de"], "--source-language and --target-language are for models that translate"),
        (
            ["--task", "lm"],
            "is a xlnet model that continues texts and fills in masked tokens; this task needs a decoder",
        ),
        (
            ["--task", "tag"],
            "is a xlnet model that continues texts and fills in masked tokens; this task needs an encoder",
        ),
    ],
)
def test_unsupported_options_with_an_xlnet(
    cli: Cli, trained: Path, texts: list[str], tmp_path: Path, more: list[str], expected: str
) -> None:
    assert expected in cli(*further(trained / "xlnet", texts), "--out", tmp_path / "out", *more).complaint


def test_another_model_is_refused(cli: Cli, texts: list[str], tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", "bert")
    asked = cli(*further(tmp_path / "model", texts), "--out", tmp_path / "out")
    assert "is a bert model that " in asked.complaint and "this task needs an XLNet" in asked.complaint
