"""Small folders of sentence-transformers: `embed` follows their settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors

import headwise
from headwise.cli import main
from headwise.errors import UserError
from headwise.pytorch.checkpoint.adapters import open_tensors

Make = Callable[..., Any]
TEXTS = ["a", "A longer text", "b c"]
ACTIVATION = "torch.nn.modules.activation."
LIBRARY = "sentence_transformers.models."
NORMALIZE = ("2_Normalize", LIBRARY + "Normalize")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def lay_out(folder: Path, pooling: dict[str, Any], *behind: tuple[str, str], **reading: Any) -> Any:
    """Add a pooling, further modules and sentence_bert_config.json to a folder, and load the model."""
    modules = [("", LIBRARY + "Transformer"), ("1_Pooling", LIBRARY + "Pooling"), *behind]
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    write_json(folder / "modules.json", listed)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **pooling})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": None, "do_lower_case": False, **reading})
    return headwise.load(folder, "cpu")


def dense(folder: Path, **changes: Any) -> tuple[str, str]:
    """Write a layer of 16 to 5 features into a folder."""
    values = {"in_features": 16, "out_features": 5, "bias": True, "activation_function": ACTIVATION + "Tanh"}
    write_json(folder / "2_Dense" / "config.json", {**values, **changes})
    tensors = {"linear.weight": torch.randn(5, 16) / 4, "linear.bias": torch.randn(5)}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    return "2_Dense", LIBRARY + "Dense"


def states(model: Any, text: str) -> np.ndarray:
    """The states of one text."""
    with torch.inference_mode():
        return model.network.encode(torch.tensor([model.tokenizer.encode(text)]))[0].numpy()


FLAGS = [f"pooling_mode_{name}" for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
                                             "weightedmean_tokens", "lasttoken")]  # fmt: skip
POOLED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda h: h[0],
    "mean": lambda h: h.mean(0),
    "max": lambda h: h.max(0),
    "mean_sqrt_len_tokens": lambda h: h.sum(0) / len(h) ** 0.5,
    "weightedmean": lambda h: np.average(h, axis=0, weights=np.arange(len(h)) + 1),
    "lasttoken": lambda h: h[-1],
}


@pytest.mark.parametrize(("flag", "name"), list(zip(FLAGS, POOLED, strict=True)))
def test_poolings_of_old_and_new_folders(flag: str, name: str, make: Make) -> None:
    """Texts in a batch equal single texts; there is no normalisation."""
    folder = make("bert").path
    expected = np.stack([POOLED[name](states(make("bert"), text)) for text in TEXTS])
    old = lay_out(folder, {other: other == flag for other in FLAGS})
    np.testing.assert_allclose(old.embed(TEXTS), expected, atol=1e-5)
    new = lay_out(folder, {"pooling_mode": name, "include_prompt": True})
    np.testing.assert_allclose(new.embed(TEXTS), expected, atol=1e-5)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    normal = lay_out(folder, {"pooling_mode": name}, NORMALIZE)
    np.testing.assert_allclose(normal.embed(TEXTS), expected / lengths, atol=1e-5)


def test_several_poolings_are_concatenated(make: Make) -> None:
    """In the library's order for flags, in the given order for a list."""
    folder = make("bert").path
    text = states(make("bert"), "a dog")
    flags = lay_out(folder, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True})
    np.testing.assert_allclose(flags.embed(["a dog"])[0], np.concatenate([text[0], text.mean(0)]), atol=1e-5)
    listed = lay_out(folder, {"pooling_mode": ["mean", "cls"]})
    np.testing.assert_allclose(listed.embed(["a dog"])[0], np.concatenate([text.mean(0), text[0]]), atol=1e-5)


@pytest.mark.parametrize("pickled", [False, True])
def test_a_dense_layer(pickled: bool, make: Make) -> None:
    folder = make("bert").path
    model = lay_out(folder, {"pooling_mode_cls_token": True}, dense(folder), ("3_Normalize", LIBRARY + "Normalize"))
    weights = open_tensors(folder / "2_Dense")
    x = states(model, "a dog")[0] @ weights["linear.weight"].numpy().T + weights["linear.bias"].numpy()
    if pickled:
        torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")
        (folder / "2_Dense" / "model.safetensors").unlink()
        with pytest.warns(UserWarning, match="an old format"):
            found = model.embed(["a dog"])
    else:
        found = model.embed(["a dog"])
    np.testing.assert_allclose(found[0], np.tanh(x) / np.linalg.norm(np.tanh(x)), atol=1e-5)
    np.testing.assert_allclose(model.embed(["a dog"], normalize=False)[0], np.tanh(x), atol=1e-5)
    assert model.embed([]).shape == (0, 5)


def test_arguments_override_the_folder(make: Make) -> None:
    folder = make("bert").path
    text = states(make("bert"), "a dog")
    model = lay_out(folder, {"pooling_mode_cls_token": True})
    np.testing.assert_allclose(model.embed(["a dog"], pooling="mean")[0], text.mean(0), atol=1e-5)
    np.testing.assert_allclose(model.embed(["a dog"], normalize=True)[0], text[0] / np.linalg.norm(text[0]), atol=1e-5)
    normal = lay_out(folder, {}, NORMALIZE)
    np.testing.assert_allclose(normal.embed(["a dog"], normalize=False)[0], text.mean(0), atol=1e-5)


def test_lower_case(make: Make) -> None:
    model = lay_out(make("bert").path, {}, do_lower_case=True)
    np.testing.assert_array_equal(model.embed(["A DOG"]), model.embed(["a dog"]))
    model = lay_out(model.path, {})
    assert np.abs(model.embed(["A DOG"]) - model.embed(["a dog"])).max() > 1e-3


def test_prompts(make: Make) -> None:
    folder = make("bert").path
    plain = lay_out(folder, {})
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "ask: ", "document": None}})
    model = lay_out(folder, {})
    np.testing.assert_array_equal(model.embed(["a"]), plain.embed(["a"]))
    np.testing.assert_array_equal(model.embed(["a"], prompt="query"), plain.embed(["ask: a"]))
    with pytest.raises(UserError, match=r"'quary'.*'query'"):
        model.embed(["a"], prompt="quary")
    write_json(
        folder / "config_sentence_transformers.json", {"prompts": {"query": "ask: "}, "default_prompt_name": "query"}
    )
    by_default = lay_out(folder, {})
    np.testing.assert_array_equal(by_default.embed(["a"]), plain.embed(["ask: a"]))
    np.testing.assert_array_equal(by_default.embed(["a"], prompt=""), plain.embed(["a"]))
    unpooled = lay_out(folder, {"include_prompt": False})
    expected = states(plain, "ask: a")[len("ask: ") :].mean(0)  # a token is a byte; no special tokens
    np.testing.assert_allclose(unpooled.embed(["a"])[0], expected, atol=1e-5)


@pytest.mark.parametrize(("head", "writes"), [("LlamaForCausalLM", True), ("LlamaModel", False)])
def test_decoder_embeddings(head: str, writes: bool, make: Make) -> None:
    """By the last state; padding after a shorter text has no effect."""
    model = lay_out(make("llama", {"architectures": [head]}).path, {"pooling_mode": "lasttoken"})
    assert hasattr(model, "generate") == writes
    with torch.inference_mode():
        expected = [model.network.decode(torch.tensor([model.tokenizer.encode(text)]))[0, -1] for text in TEXTS]
    np.testing.assert_allclose(model.embed(TEXTS), torch.stack(expected), atol=1e-5)


def test_missing_padding_id(make: Make) -> None:
    """The first LLaMA has -1; padding is not attended to."""
    with_id, without = (make("llama", {"pad_token_id": value}) for value in (0, -1))
    np.testing.assert_array_equal(without.embed(TEXTS), with_id.embed(TEXTS))


# --- Texts longer than the model reads ---


def ended(folder: Path) -> None:
    """Put <s> and </s> around every text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    marks = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=marks)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("longest", [None, 9])
def test_truncation_keeps_the_end_token(longest: int | None, make: Make) -> None:
    """60 positions, or fewer by the folder. The warning lists the text and its length."""
    folder = make("bert").path
    ended(folder)
    model, held = lay_out(folder, {}, max_seq_length=longest), longest or 60
    with pytest.warns(UserWarning, match=rf"longer than the limit of {held} tokens, truncated: texts\[1\] \(102\)$"):
        found = model.embed(["a", "x" * 100, "b"])
    np.testing.assert_array_equal(found[1], model.embed(["x" * (held - 2)])[0])
    assert [0, *model.tokenizer.encode("x" * (held - 2))[1:-1], 2] == model.tokenizer.encode("x" * (held - 2))


def test_the_limit_of_the_tokenizer(make: Make) -> None:
    model = lay_out(make("bert", model_max_length=7).path, {})
    with pytest.warns(UserWarning, match="longer than the limit of 7 tokens"):
        model.embed(["x" * 8])
    assert lay_out(make("bert", model_max_length=int(1e30)).path, {}).embedder.longest == 60


def test_the_command_lists_truncated_lines(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, at the end, with line numbers of the whole file; every line has an embedding."""
    folder = make("bert").path
    ended(folder)
    lay_out(folder, {})
    lines = ["a"] * 1003
    lines[2], lines[1001] = "y" * 60, "x" * 70
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines) + "\n")
    assert main(["embed", str(folder), str(path), "-o", str(tmp_path / "v.npy"), "--batch-size", "512"]) == 0
    said = capsys.readouterr().err
    assert said == f"{path}: longer than the limit of 60 tokens, truncated: line 3 (62), line 1002 (72)\n"
    assert np.load(tmp_path / "v.npy").shape == (1003, 16)


def test_options_of_the_command(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("bert").path
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "ask: ", "document": ""}})
    model = lay_out(folder, {"pooling_mode_cls_token": True})
    (tmp_path / "lines").write_text("a dog\n")

    def said(*options: str) -> Any:
        assert main(["embed", str(folder), str(tmp_path / "lines"), *options]) == 0
        return capsys.readouterr()

    found = said()
    np.testing.assert_allclose(json.loads(found.out), model.embed(["a dog"])[0], atol=1e-5)
    assert found.err == f"{folder}: has prompts that --prompt puts before each line: query\n"
    found = said("--pooling", "mean", "--normalize", "--prompt", "query")
    np.testing.assert_allclose(json.loads(found.out), model.embed(["ask: a dog"], "mean", True)[0], atol=1e-5)
    assert found.err == ""
    (tmp_path / "lines").write_text("")
    assert said("-o", str(tmp_path / "none.npy")).out == ""
    assert np.load(tmp_path / "none.npy").shape == (0, 16)


# --- What is refused, and kept ---


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"pooling": {"pooling_mode_attention": True}}, "1_Pooling/config.json: pooling 'pooling_mode_attention'"),
    ({"pooling": {"pooling_mode": "attention"}}, "1_Pooling/config.json: pooling_mode 'attention'"),
    ({"behind": [("2_LSTM", LIBRARY + "LSTM")]}, "modules.json: LSTM is not supp"),
    ({"behind": [("2_Dense", "pylate.models.Dense")]}, "modules.json: pylate.models.Dense is not"),
    ({"behind": [("../Dense", LIBRARY + "Dense")]}, "modules.json: ../Dense lies outside of the fo"),
    (
        {"dense": {"activation_function": ACTIVATION + "Hardtanh"}},
        "unknown .*2_Dense/config.json: activ",
    ),
    ({"dense": {"use_residual": True}}, "2_Dense/config.json: use_residual = True is not supported"),
    ({"dense": {"out_features": 6}}, r"a layer of 16 to 6 numbers does not fit its tensors: .*linear.weight \[5, 16\]"),
    ({"dense": {}, "pooling": {"pooling_mode": ["cls", "max"]}}, r"pooling first \+ max gives width 32, .* takes 16"),
    ({"reading": {"max_seq_length": "long"}}, "sentence_bert_config.json: a longest text of 'long' tokens"),
    ({"reading": {"query_expansion": {"length": 32}}}, "sentence_bert_config.json: query_expansion = .* is not supp"),
]


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_unsupported_folders(asked: dict[str, Any], message: str, make: Make) -> None:
    """Only by `embed`; other methods work."""
    folder = make("bert").path
    behind = [*asked.get("behind", []), *([dense(folder, **asked["dense"])] if "dense" in asked else [])]
    model = lay_out(folder, asked.get("pooling", {}), *behind, **asked.get("reading", {}))
    assert len(model.fill_mask("a <mask>", top=2)[0]) == 2
    with pytest.raises(UserError, match=message):
        model.embed(["a"])


def test_an_imported_model_embeds_the_same(make: Make, tmp_path: Path) -> None:
    folder = make("bert").path
    write_json(
        folder / "config_sentence_transformers.json", {"prompts": {"query": "ask: "}, "default_prompt_name": "query"}
    )
    model = lay_out(folder, {"pooling_mode_cls_token": True}, dense(folder), ("3_Normalize", LIBRARY + "Normalize"),
                    do_lower_case=True, max_seq_length=9)  # fmt: skip
    assert main(["import", str(folder), str(tmp_path / "ours")]) == 0
    ours = headwise.load(tmp_path / "ours", "cpu")
    assert ours.embedder.longest == 9
    np.testing.assert_array_equal(ours.embed(["A do"]), model.embed(["A do"]))
    (folder / "modules.json").write_text('{"0": ""}')
    assert main(["import", str(folder), str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def test_the_network_in_a_folder_of_its_own(make: Make) -> None:
    """As sentence-transformers wrote it before 0.4; the pooling is read from either folder."""
    folder = make("bert").path
    expected = lay_out(folder, {"pooling_mode_max_tokens": True}, do_lower_case=True).embed(TEXTS)
    network = folder / "0_Transformer"
    network.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(network / path.name)
    listed = (network / "modules.json").read_text().replace('"path": ""', '"path": "0_Transformer"')
    (network / "modules.json").unlink()
    (folder / "modules.json").write_text(listed)
    for given in (folder, network):
        np.testing.assert_array_equal(headwise.load(given, "cpu").embed(TEXTS), expected)
    assert main(["import", str(folder), str(folder / "ours")]) == 2, "the pooling would be lost"
    assert not (folder / "ours").exists()
    (network / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config\.json"):
        headwise.load(folder, "cpu")
