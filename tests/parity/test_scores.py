"""Cross-encoders, several labels for a text, and regression: the numbers of `transformers`, on tiny random models.

Both compute in float64, and ours rounds logits to float32.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_families import vocabulary
from tokenizers import processors

import headwise
from headwise.cli import main
from headwise.config.settings import load_recipe
from headwise.errors import UserError
from headwise.models.encoding.label import NUMBER, SEVERAL
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.labelled import collate_encoded
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.pytorch.tasks.problems import problem_objective

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

ROUNDED = 1e-6  # of numbers about 1, in float32
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "max_position_embeddings": 60, "pad_token_id": 1, "initializer_range": 0.4}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "Bert": SIZES,
    "Roberta": SIZES | {"type_vocab_size": 1},
    "Electra": SIZES | {"embedding_size": 8},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 60,
                   "pad_token_id": 1, "initializer_range": 0.4},
}  # fmt: skip
QUERY, TEXTS = "who is it", ["a dog", "it is the cat of a neighbour", "no", "a dog", ""]


def write(folder: Path, kind: str, **changes: Any) -> Any:
    """A network of transformers, saved with a vocabulary of bytes."""
    letters = vocabulary(behind=False)
    two = "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 0), ("</s>", 2)]
    letters.post_processor = processors.TemplateProcessing(*two)
    model_class = getattr(transformers, f"{kind}ForSequenceClassification")
    torch.manual_seed(5)
    values = KINDS[kind] | {"vocab_size": letters.get_vocab_size()} | changes
    model = model_class(model_class.config_class(**values)).eval()
    model.save_pretrained(folder)
    letters.save(str(folder / "tokenizer.json"))
    special = {"pad_token": "<pad>", "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 60}
    (folder / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")
    return model.double()


def read(folder: Path) -> Any:
    model: Any = headwise.load(folder, "cpu")
    model.network.double()
    return model


@torch.inference_mode()
def their_logits(model: Any, folder: Path, texts: list[Any]) -> torch.Tensor:
    """Of each text or pair alone, so without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer([one], return_tensors="pt", return_token_type_ids=True) for one in texts]
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] if getattr(model.config, "type_vocab_size", 0) > 1 else []
    return torch.cat([model(**{name: row[name] for name in names}).logits for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_cross_encoders_rank(kind: str, tmp_path: Path) -> None:
    theirs, own = write(tmp_path, kind, num_labels=1), read(tmp_path)
    assert "rerank" in own.methods and own.head == "score"
    expected = their_logits(theirs, tmp_path, [(QUERY, text) for text in TEXTS])[:, 0].sigmoid().tolist()
    found = own.rerank(QUERY, TEXTS)
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert {one.index for one in found} == {*range(5)} and all(one.text == TEXTS[one.index] for one in found)
    for one in found:
        assert one.score == pytest.approx(expected[one.index], abs=ROUNDED)
    assert max(expected) - min(expected) > 0.01
    assert own.rerank(QUERY, []) == []
    with pytest.raises(UserError, match="rerank takes a list"):
        own.rerank(QUERY, "a dog")


@pytest.mark.parametrize(
    "named",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.1.0"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_scores_of_other_activations(named: dict[str, Any], tmp_path: Path) -> None:
    """As the published ms-marco models, which rank by the logit itself."""
    theirs = write(tmp_path, "Bert", num_labels=1)
    values = json.loads((tmp_path / "config.json").read_text()) | named
    (tmp_path / "config.json").write_text(json.dumps(values))
    expected = their_logits(theirs, tmp_path, [(QUERY, text) for text in TEXTS])[:, 0].tolist()
    for one in read(tmp_path).rerank(QUERY, TEXTS):
        assert one.score == pytest.approx(expected[one.index], abs=ROUNDED)
    (tmp_path / "config.json").write_text(json.dumps(values | {"sentence_transformers": {"activation_fn": "x.Tanh"}}))
    with pytest.raises(UserError, match=r"the activation function x.Tanh is not supported"):
        headwise.load(tmp_path, "cpu").rerank(QUERY, TEXTS)


def test_several_labels_for_a_text(tmp_path: Path) -> None:
    names = {"id2label": {0: "cold", 1: "wet", 2: "dark"}, "label2id": {"cold": 0, "wet": 1, "dark": 2}}
    theirs = write(tmp_path, "Bert", problem_type="multi_label_classification", **names)
    own, given = read(tmp_path), [*TEXTS[:3], ("a dog", "no")]
    expected = their_logits(theirs, tmp_path, given).sigmoid().tolist()
    for found, row in zip(own.classify(given), expected, strict=True):
        assert [*found.probabilities.values()] == pytest.approx(row, abs=ROUNDED)
        assert {*found.labels} == {name for name, p in zip(("cold", "wet", "dark"), row, strict=True) if p > 0.5}
    highest = [max(row) for row in expected]
    few = own.classify(given, threshold=min(highest) + 1e-4)
    assert [bool(one.labels) for one in few] == [p > min(highest) + 1e-4 for p in highest]
    with pytest.raises(UserError, match="threshold = 2"):
        own.classify(given, threshold=2.0)


def test_regression(tmp_path: Path) -> None:
    theirs, own = write(tmp_path, "Roberta", num_labels=1, problem_type="regression"), read(tmp_path)
    expected = their_logits(theirs, tmp_path, TEXTS[:4])[:, 0].tolist()
    assert [one.value for one in own.classify(TEXTS[:4])] == pytest.approx(expected, abs=ROUNDED)
    with pytest.raises(UserError, match="is for models with several labels"):
        own.classify(TEXTS, threshold=0.5)


def test_problem_types_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path, "Bert", num_labels=3)
    values = json.loads((tmp_path / "config.json").read_text())
    for problem, message in (("regression", "regression does not fit 3 outputs"), ("ranking", "ranking")):
        (tmp_path / "config.json").write_text(json.dumps(values | {"problem_type": problem}))
        with pytest.raises(UserError, match=message):
            headwise.load(tmp_path, "cpu").classify(["a"])


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "scores", "Bert", num_labels=1)
    write(tmp_path / "labels", "Bert", num_labels=3, problem_type="multi_label_classification")
    (tmp_path / "lines.txt").write_text("a dog\nit is\nno\n", encoding="utf-8")

    def run(*arguments: Any) -> list[str]:
        assert main([*map(str, arguments), "--device", "cpu"]) == 0
        return capsys.readouterr().out.splitlines()

    lines = tmp_path / "lines.txt"
    ranked = run("rerank", tmp_path / "scores", QUERY, lines)
    scores = [float(line.split("\t")[0]) for line in ranked]
    assert scores == sorted(scores, reverse=True) and sorted(line.split("\t")[1] for line in ranked) == ["1", "2", "3"]
    (best,) = run("rerank", tmp_path / "scores", QUERY, lines, "--best", 1, "--format", "jsonl")
    assert json.loads(best)["index"] == int(ranked[0].split("\t")[1]) - 1
    assert [*map(float, run("classify", tmp_path / "scores", lines))] == pytest.approx(
        [one.value for one in read(tmp_path / "scores").classify(["a dog", "it is", "no"])], rel=1e-4
    )
    all_labels = run("classify", tmp_path / "labels", lines, "--threshold", "0.000001")
    assert all(len(line.split("\t")[0].split(",")) == 3 for line in all_labels)
    assert "scores texts and pairs of texts" not in run("info", tmp_path / "scores")
    assert main(["rerank", str(tmp_path / "labels"), QUERY, str(lines), "--device", "cpu"]) == 2
    assert "cannot score a query with a text" in capsys.readouterr().err


# --- Evaluation


def test_evaluation(tmp_path: Path) -> None:
    """Against the definitions, by hand."""
    names = {"id2label": {0: "cold", 1: "wet", 2: "dark"}, "label2id": {"cold": 0, "wet": 1, "dark": 2}}
    write(tmp_path / "labels", "Bert", problem_type="multi_label_classification", **names)
    lines = [("a dog", "wet"), ("it is", "cold, dark"), ("no", ""), ("b", "dark"), ("a cat", "cold,wet")]
    (tmp_path / "labels.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in lines), encoding="utf-8")
    own = read(tmp_path / "labels")
    found = own.evaluate([str(tmp_path / "labels.tsv")])
    order = ["cold", "wet", "dark"]
    true = [[int(name in label) for name in order] for _, label in lines]
    said = [[int(name in one.labels) for name in order] for one in own.classify([text for text, _ in lines])]
    pairs = [pair for rows in zip(true, said, strict=True) for pair in zip(*rows, strict=True)]
    assert found.micro_f1 == pytest.approx(2 * pairs.count((1, 1)) / sum(map(sum, pairs)))
    assert found.exact == pytest.approx(sum(one == other for one, other in zip(true, said, strict=True)) / 5)
    assert 0 < pairs.count((1, 1)) < sum(map(sum, true))
    assert found.as_json()["classes"]["dark"]["n_true"] == 2 and "micro F1" in found.render()
    write(tmp_path / "scores", "Bert", num_labels=1)
    scored = [("a dog", "a cat", 0.5), ("it", "is", -2.0), ("no", "yes", 3.0), ("b", "b", 4.5)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\t{y}\n" for a, b, y in scored), encoding="utf-8")
    scorer, numbers = read(tmp_path / "scores"), [y for *_, y in scored]
    report = scorer.evaluate([str(tmp_path / "pairs.tsv")])
    values = [one.value for one in scorer.classify([(a, b) for a, b, _ in scored])]
    ranks: Any = [np.argsort(np.argsort(one)) for one in (numbers, values)]
    assert report.spearman == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert report.pearson == pytest.approx(np.corrcoef(numbers, values)[0, 1])
    assert report.mse == pytest.approx(np.mean(np.subtract(numbers, values) ** 2))
    assert report.mae == pytest.approx(np.mean(np.abs(np.subtract(numbers, values))))
    (tmp_path / "pairs.tsv").write_text("a\tb\tmuch\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs.tsv: line 1: 'much'.*not"):
        scorer.evaluate([str(tmp_path / "pairs.tsv")])
    (tmp_path / "labels.tsv").write_text("a\twet,hot\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"labels.tsv: line 1: unknown label 'hot'"):
        own.evaluate([str(tmp_path / "labels.tsv")])


# --- Training

QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
QUICK = ["train.max_steps=120", "train.validate_every=40", "train.checkpoint_every=40", "train.learning_rate=0.01",
         "train.warmup_steps=5", "train.tokens_per_batch=300", "train.threads=1", "data.max_length=40"]  # fmt: skip


@pytest.mark.parametrize(("problem", "outputs"), [(SEVERAL, 3), (NUMBER, 1)])
def test_losses_and_gradients(problem: str, outputs: int, tmp_path: Path) -> None:
    """In float64, so up to the order of additions."""
    theirs = write(tmp_path, "Bert", num_labels=outputs, problem_type=problem, **QUIET).train()
    model = read(tmp_path)
    own = make_trainable(model.network, 0.0).double().train()
    generator = torch.Generator().manual_seed(2)
    targets = torch.rand(5, outputs, generator=generator, dtype=torch.float64) * 3
    targets = (targets > 1).double() if problem == SEVERAL else targets
    batch = collate_encoded(model.reader.read(TEXTS), targets.tolist(), 1, model.reader.typed)
    found = problem_objective(own, load_recipe("tune-labels").train, problem)(batch)
    (found.objective / batch.n_targets).backward()
    inputs = {"input_ids": batch.src, "attention_mask": batch.src_mask.long()}
    loss = theirs(**inputs, labels=batch.labels.double() if outputs > 1 else batch.labels[:, 0].double()).loss
    loss.backward()
    assert found.objective.item() / 5 == pytest.approx(loss.item(), rel=1e-10)
    gradients = file_tensors({name: p.grad for name, p in own.named_parameters()}, model.config)
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert {name for name in expected if "pooler" in name or "classifier" in name} <= gradients.keys()
    for name, value in gradients.items():
        torch.testing.assert_close(value, expected[name], atol=1e-10, rtol=1e-7)


def trained(folder: Path, lines: list[str], *settings: str) -> Any:
    (folder / "train.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files, out = [str(folder / "train.tsv")], folder / "out"
    chosen = [*QUICK, *settings]
    return headwise.train(
        files, files, out, init=str(folder / "start"), task="classify", settings=chosen, device="cpu", show=False
    )


@pytest.mark.thorough
def test_several_labels_are_learnt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a model of another head; transformers reads the result."""
    write(tmp_path / "start", "Bert", num_labels=2)
    texts = ["".join(letters) for letters in ("aa", "ab", "bb", "cc", "bc", "ca", "xx", "xy")]
    lines = [f"{text}\t{','.join(sorted({c for c in text if c in 'abc'}))}" for text in texts] * 3
    model = trained(tmp_path, lines, f"data.problem_type={SEVERAL}")
    found = model.evaluate([str(tmp_path / "train.tsv")])
    assert found.micro_f1 > 0.9 and model.labels == ("a", "b", "c")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.problem_type == SEVERAL and theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    expected = their_logits(theirs, tmp_path / "out", texts).sigmoid().tolist()
    for one, row in zip(model.classify(texts), expected, strict=True):
        assert [*one.probabilities.values()] == pytest.approx(row, abs=1e-5)
    records = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < records[0]["loss"] and records[-1]["micro_f1"] == pytest.approx(found.micro_f1)


@pytest.mark.thorough
def test_a_number_is_learnt(tmp_path: Path) -> None:
    """Of pairs, so that the result also ranks; its kind comes from the model that training starts from."""
    write(tmp_path / "start", "Bert", num_labels=1)
    pairs = [(a, b) for a in ("aa", "bb", "cc") for b in ("aa", "bb", "cc")]
    model = trained(tmp_path, [f"{a}\t{b}\t{1.5 if 'cc' in (a, b) else -1.0}" for a, b in pairs] * 3)
    found = model.evaluate([str(tmp_path / "train.tsv")])
    assert model.head == "score" and found.mse < 0.5 and found.pearson > 0.8
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert values["problem_type"] == NUMBER and len(values["id2label"]) == 1


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        (["a\tmuch"], [f"data.problem_type={NUMBER}"], r"train.tsv: line 1: 'much' is not a number"),
        (["a\t", "b\t"], [f"data.problem_type={SEVERAL}"], "no text has a label"),
        (["a\t1"], [f"data.problem_type={NUMBER}", "train.label_smoothing=0.1"], "is for one label for a text"),
        (["a\t1"], [f"data.problem_type={NUMBER}", "train.best_metric=macro_f1"], "regression has loss"),
    ],
)
def test_mistakes_in_training(lines: list[str], settings: list[str], message: str, tmp_path: Path) -> None:
    write(tmp_path / "start", "Bert", num_labels=2)
    with pytest.raises(UserError, match=message):
        trained(tmp_path, lines, *settings)
