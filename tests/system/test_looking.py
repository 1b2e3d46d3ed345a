"""`inspect` and `explore` with all models that have attention: encoders, decoders, images, sounds, on the command line.

The models are tiny and random. `tests/parity` compares the weights with those of `transformers`; here every family is
inspected, or gives one line why it cannot be.
"""

import ast
import base64
import json
import re
import shutil
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import HEARING, KINDS, write_tiny

import headwise
from headwise.cli.commands.explore import contents
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.pytorch.inspect.heads import Head
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.requests import parse_request
from headwise.view.patches import over_patches
from headwise.view.record import Patches

Cli = Callable[..., Any]
TEXT = "A dog runs."
LAYERS = {"num_hidden_layers": 2}
LIKE_BERT = {
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "deit",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "vit",
    "xlm-roberta",
}
KIND_OF = {  # how `write_tiny` writes each family: a similar kind, and the changes
    "bart": ("marian", {}), "marian": ("marian", {}), "mbart": ("m2m", {}), "m2m_100": ("m2m", {}),
    "pegasus": ("marian", {}), "t5": ("t5", {}), "t5gemma": ("t5gemma", {}), "mt5": ("t5", {}),
    "whisper": ("whisper", {}),
    "bert": ("bert", LAYERS), "roberta": ("bert", {"architectures": ["RobertaForMaskedLM"]}),
    "albert": ("albert", {}),
    "modernbert": ("modernbert", {}), "deberta-v2": ("deberta-v2", {}),
    "mpnet": ("bert", {"architectures": ["MPNetForMaskedLM"]}),
    "camembert": ("bert", {"architectures": ["CamembertForMaskedLM"]}),
    "xlm-roberta": ("bert", {"architectures": ["XLMRobertaForMaskedLM"]}),
    "electra": ("bert", {"architectures": ["ElectraForPreTraining"], "embedding_size": 8}),
    "distilbert": ("distilbert", {}),
    "gpt2": ("gpt2", {}), "gpt_neox": ("gpt_neox", {}), "llama": ("llama", LAYERS), "mistral": ("llama", {}),
    "qwen2": ("llama", {}), "qwen3": ("llama", {}), "gemma": ("llama", {"head_dim": 8}),
    "gemma2": ("llama", {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8}),
    "vit": ("vit", LAYERS), "deit": ("deit", {}), "vision-encoder-decoder": ("captions", {}),
}  # fmt: skip
CAPTIONS = "vision-encoder-decoder"
TRANSLATE = {"bart", "marian", "mbart", "m2m_100", "pegasus", "t5", "t5gemma", "mt5"}


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright square on a dark background."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((12, 20, 3), np.uint8)
    pixels[2:6, 3:9] = (250, 200, 40)
    path = tmp_path_factory.mktemp("picture") / "square.png"
    image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0.63 seconds of a tone; the tiny model's window has one second."""
    pytest.importorskip("soundfile")
    path = tmp_path_factory.mktemp("sound") / "tone.wav"
    samples = np.sin(np.arange(10_080) * 0.2) * np.linspace(0, 8000, 10_080)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a family, made once."""
    folders: dict[str, Path] = {}

    def make(family: str, **changes: Any) -> Path:
        key = f"{family} {changes}"
        if key not in folders:
            kind, own = KIND_OF[family]
            folders[key] = tmp_path_factory.mktemp(family)
            hearing = HEARING if family == "whisper" else {"max_length": 12}
            write_tiny(folders[key], kind, {**own, "model_type": family, **changes}, hearing)
        return folders[key]

    return make


@pytest.fixture
def given(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The input for a family."""

    def find(family: str) -> str:
        name = {"vit": "picture", "deit": "picture", CAPTIONS: "picture", "whisper": "sound"}.get(family)
        return str(request.getfixturevalue(name)) if name else TEXT

    return find


def loaded(folder: Path) -> Any:
    return headwise.load(folder, "cpu")


def test_the_families_are_all_here() -> None:
    assert KIND_OF.keys() == FAMILIES.keys()
    assert {kind for kind, _ in KIND_OF.values()} <= KINDS.keys()


@pytest.mark.few(15)
@pytest.mark.parametrize("family", [*KIND_OF])
def test_every_family_is_inspected(
    family: str, cli: Cli, made: Callable[..., Path], given: Callable[[str], str]
) -> None:
    ran = cli("inspect", made(family), given(family), "--format", "json", *said(family))
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    parts = {part: layers for part, layers in found["attention"].items() if layers}
    assert set(parts) == parts_of(family)
    for part, layers in parts.items():
        weights = np.array(layers)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-4)
        queries = found["src"]["pieces"] if part == "encoder" else found["tgt"]["pieces"]
        keys = found["read"] if part == "decoder" else found["src"]["pieces"]
        assert weights.shape[-2:] == (len(queries), len(keys))


def said(family: str) -> list[str]:
    return ["--source-language=de", "--target-language=fr"] if family in ("m2m_100", "mbart") else []


def parts_of(family: str) -> set[str]:
    if family in TRANSLATE | {"whisper", CAPTIONS}:
        return {"encoder", "decoder", "cross"}
    return {"encoder"} if family in LIKE_BERT | {"distilbert"} else {"decoder"}


@pytest.mark.parametrize("command", ["inspect", "explore"])
def test_xlnet_is_refused_in_one_line(command: str, cli: Cli, tmp_path: Path) -> None:
    """The only family without a table: two streams, whose attention has its own kernel."""
    transformers = pytest.importorskip("transformers")
    config = transformers.XLNetConfig(vocab_size=30, d_model=12, n_layer=1, n_head=3, d_inner=20)
    transformers.XLNetLMHeadModel(config).save_pretrained(tmp_path)
    complaint = cli(command, tmp_path, *([TEXT] if command == "inspect" else [])).complaint
    assert re.search("this xlnet .*; it can .*fill_mask.*, and not attend", complaint)


# --- Labels of the axes


@pytest.mark.parametrize(("family", "start"), [("marian", "<pad>"), ("t5", "<pad>"), ("m2m_100", "</s>")])
def test_the_first_input_is_named_after_the_start_token(family: str, start: str, made: Any) -> None:
    model = loaded(made(family))
    model = model.between("de", "fr") if family == "m2m_100" else model
    assert model.attend(TEXT).read[0] == start


def test_a_decoder_reads_a_text_and_predicts_the_next_token(made: Callable[..., Path]) -> None:
    model = loaded(made("gpt2"))
    record, trace = model.look_inside(TEXT)
    ids = model.encode(TEXT)
    assert (len(record.read), record.tgt.labels[-1]) == (len(ids), "<next>")
    assert record.read[1:] == record.tgt.labels[:-1] == [position.piece for position in trace.positions[:-1]]
    assert np.triu(record.decoder[0][0], 1).max() == 0
    with torch.inference_mode():
        log_probs = model.network(torch.tensor([ids]))[0].log_softmax(-1)
    for i, position in enumerate(trace.positions):
        assert position.candidates[0].log_prob == pytest.approx(log_probs[i].max().item(), abs=1e-5)
    words = [(word.text, "".join(record.tgt.labels[word.start : word.stop])) for word in record.tgt.words]
    assert words == [("dog", "▁dog"), ("runs.", "▁runs.")]


def test_an_encoder_predicts_every_position(made: Callable[..., Path]) -> None:
    model = loaded(made("bert"))
    trace = model.trace("A <mask> runs.", top=3)
    masked = next(i for i, position in enumerate(trace.positions) if position.piece == "<mask>")
    filled = model.fill_mask("A <mask> runs.", top=3)[0]
    found = trace.positions[masked]
    assert [np.exp(one.log_prob) for one in found.candidates] == pytest.approx([one.probability for one in filled])
    assert len(found.layers) == 2 and found.layers[-1] == found.candidates
    assert len(found.residual) == 3


def test_patches_are_in_rows_after_the_class_token(made: Callable[..., Path], picture: Path) -> None:
    model = loaded(made("vit", image_size=[8, 12]))
    record, trace = model.look_inside(picture)
    assert record.src.labels[:4] == ["<class>", "row 0, col 0", "row 0, col 1", "row 0, col 2"]
    assert (record.src.of.rows, record.src.of.columns, record.src.of.pixels.shape) == (2, 3, (8, 12, 3))
    inside = record.src.of.pixels[2, 3].astype(int)
    assert np.abs(inside - (250, 200, 40)).max() < 15  # colours of the image, not normalised ones
    labels = model.label(picture)
    assert [one.piece for one in trace.positions[0].candidates] == [one.name for one in labels]


def test_weights_of_patches_exclude_the_class_token() -> None:
    weights = np.arange(50, dtype=np.float32).reshape(2, 5, 5)
    patches = Patches(np.zeros((8, 8, 3), np.uint8), 2, 2, 1)
    np.testing.assert_array_equal(over_patches(weights, patches)[1], [[26, 27], [28, 29]])
    np.testing.assert_array_equal(over_patches(weights, patches, "mean")[0], [[11, 12], [13, 14]])


def test_times_of_a_sound_and_the_silence_after_it(made: Callable[..., Path], sound: Path) -> None:
    model = loaded(made("whisper"))
    every = model.attend(sound, target="a dog", n_times=0)
    assert (every.src.labels[:2], every.src.labels[-2:]) == (["0.00 s", "0.02 s"], ["0.62 s", "<silence>"])
    assert len(every.src.labels) == 33 and every.translation == "a dog"
    few = model.attend(sound, target="a dog", n_times=8)
    assert few.src.labels == [*(f"{0.08 * i:.2f} s" for i in range(8)), "<silence>"]
    np.testing.assert_allclose(few.cross[0][..., 0], every.cross[0][..., :4].sum(-1), atol=1e-6)
    mean = every.encoder[0][:, 4:8, 8:12].sum(-1).mean(-1)
    np.testing.assert_allclose(few.encoder[0][:, 1, 2], mean, atol=1e-6)
    assert few.src.of.loudness.argmax() >= 6  # the tone grows louder


def test_a_sound_model_shows_its_transcription(made: Callable[..., Path], sound: Path) -> None:
    model = loaded(made("whisper"))
    assert model.attend(sound).translation == model.transcribe(sound, timestamps=False, fallback=False).text


def test_word_pieces_with_hashes(tmp_path: Path) -> None:
    """BERT's vocabulary marks tokens that continue a word; a page marks those that start one."""
    from headwise.pytorch.models.inputs import bare_tokenizer
    from headwise.runtime.tokenizers.vocabulary import Vocabulary
    from headwise.view.words import words_spelled

    names = ["[CLS]", "run", "##ning", "dog", "##s"]
    marks = {"[CLS]"}
    decode = lambda ids: " ".join(names[i] for i in ids if names[i] not in marks)  # noqa: E731
    known = {name: i for i, name in enumerate(names)}
    side = bare_tokenizer(Vocabulary(lambda text: [], decode, known.get, lambda: known, lambda i: names[i]))
    assert side.pieces(range(5)) == ["[CLS]", "▁run", "ning", "▁dog", "s"]
    assert [(word.text, word.start, word.stop) for word in words_spelled(side, range(5))] == [
        ("running", 1, 3),
        ("dogs", 3, 5),
    ]


# --- Formats


@pytest.mark.parametrize("family", ["bert", "llama", "vit", CAPTIONS, "whisper"])
@pytest.mark.parametrize("ending", ["html", "png", "txt"])
def test_formats(
    family: str, ending: str, cli: Cli, made: Callable[..., Path], given: Callable[[str], str], tmp_path: Path
) -> None:
    if ending == "png":
        pytest.importorskip("matplotlib")
    ran = cli("inspect", made(family), given(family), "-o", tmp_path / f"a.{ending}")
    assert ran.code == 0, ran.err
    written = (tmp_path / f"a.{ending}").read_bytes()
    starts = {"html": b"<!doctype html>", "png": b"\x89PNG", "txt": f"{ATTENTION[PART[family]]}, layer".encode()}
    assert written.startswith(starts[ending])
    if ending == "html":
        data = json.loads(re.findall(r'id="data" type="application/json">(.*?)</script>', written.decode())[0])
        assert data["inspections"][0]["about"] == ABOUT[family]
        assert ("data:image/png;base64," in written.decode()) == (family in ("vit", CAPTIONS))


PART = {"bert": "encoder", "llama": "decoder", "vit": "encoder", CAPTIONS: "cross", "whisper": "cross"}
ATTENTION = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
ABOUT = {
    "bert": {"reads": "pieces", "writes": False, "traced": True, "walk": True},
    "llama": {"reads": "", "writes": True, "traced": True, "walk": True},
    "vit": {"reads": "patches", "writes": False, "traced": True, "walk": False},
    CAPTIONS: {"reads": "patches", "writes": True, "traced": True, "walk": False},
    "whisper": {"reads": "times", "writes": True, "traced": True, "walk": False},
}


def test_the_class_token_or_the_mean_over_the_patches(cli: Cli, made: Callable[..., Path], picture: Path) -> None:
    command = ("inspect", made("vit"), picture, "--format", "text", "--query")
    shown = [cli(*command, query).out for query in ("class", "mean")]
    assert "row 1" in shown[0] and "greatest share of a patch" in shown[0]
    assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("family", "arguments", "complaint"),
    [
        ("bert", ["--translation", "a"], "--translation is for models that translate; this one reads a text"),
        ("gpt2", ["--prefix", "a"], "--prefix is for models that translate; this one reads a text"),
        (CAPTIONS, ["--source-language", "de"], "--source-language and --target-language are for multilingual models"),
        (CAPTIONS, ["--prefix", "a"], "--prefix is for models that translate; this one reads a picture"),
        ("vit", ["--beam-size", 2], "--beam-size is for models that translate; this one reads a picture"),
        ("whisper", ["--target-language", "de"], "--target-language is for models that translate"),
        ("whisper", ["--max-length-factor", 2], "--max-length-factor is for models that translate"),
        ("bert", ["--part", "cross", "--format", "text"], "this model has none"),
        ("vit", ["--layer", 7, "--format", "text"], "layer 7 does not exist"),
    ],
)
def test_errors_are_one_line(
    family: str, arguments: list[Any], complaint: str, cli: Cli, made: Callable[..., Path], given: Callable[[str], str]
) -> None:
    assert complaint in cli("inspect", made(family), given(family), *arguments).complaint


@pytest.mark.parametrize(
    ("family", "text", "complaint"),
    [
        ("bert", " ", "the text is blank"),
        ("gpt2", "x" * 70, "the text has 70 tokens, more than the 60 that can be inspected"),
        ("vit", "nowhere.png", "nowhere.png"),
        (CAPTIONS, "nowhere.png", "nowhere.png"),
        ("whisper", "nowhere.wav", "nowhere.wav"),
    ],
)
def test_inputs_that_cannot_be_read(
    family: str, text: str, complaint: str, cli: Cli, made: Callable[..., Path]
) -> None:
    assert complaint in cli("inspect", made(family), text).complaint


def test_a_sound_longer_than_the_window(made: Callable[..., Path], sound: Path) -> None:
    model = loaded(made("whisper", max_source_positions=20))
    with pytest.raises(UserError, match=r"0.6 seconds.*0.4"):
        model.attend(sound)


# --- Heads


def loss_of(model: Any, examples: list[Any], targets: list[Any]) -> float:
    pairs = zip(examples, targets or [None] * len(examples), strict=True)
    with torch.no_grad():
        return sum(float(model.torch().example(one, target).loss(model.network)) for one, target in pairs)


@pytest.mark.parametrize("family", ["bert", "llama", "vit", CAPTIONS, "whisper"])
def test_heads_are_masked_and_ranked(family: str, made: Callable[..., Path], given: Callable[[str], str]) -> None:
    """One example has one gradient; its size is the effect of a small change of the head on its loss."""
    model = loaded(made(family))
    examples, targets = [given(family)], {"vit": ["dog"], CAPTIONS: ["a dog"], "whisper": ["a dog"]}.get(family, [])
    importance = model.head_importance(examples, targets)
    part = PART[family]
    before = loss_of(model, examples, targets)
    with model.mask_heads({part: {0: [1]}}):
        assert model.head_mask.heads == {Head(part, 0, 1)}
        assert loss_of(model, examples, targets) != before
    assert loss_of(model, examples, targets) == before
    layers: dict[tuple[str, int], list[float]] = {}
    for head, value in importance.items():
        layers.setdefault(head.layer_name, []).append(value)
    assert all(np.linalg.norm(values) == pytest.approx(1, abs=1e-4) for values in layers.values())


def test_a_small_change_of_a_head_changes_the_loss_by_its_importance(made: Callable[..., Path]) -> None:
    """Compared with differences, on grouped queries: two heads share keys, and each has its own gate."""
    model = loaded(made("llama"))
    attention, example = model.network.decoder.layers[0].self_attn, model.torch().example(TEXT, None)
    sizes = []
    for head in range(2):
        weight = attention.o_proj.weight.detach().clone()
        losses = []
        for gate in (0.99, 1.01):
            with torch.no_grad():
                attention.o_proj.weight.unflatten(1, (2, -1))[:, head] *= gate
                losses.append(float(example.loss(model.network)))
                attention.o_proj.weight.copy_(weight)
        sizes.append(abs(losses[1] - losses[0]))
    importance = model.head_importance([TEXT])
    found = [importance[Head("decoder", 0, head)] for head in range(2)]
    np.testing.assert_allclose(found, np.array(sizes) / np.linalg.norm(sizes), atol=0.02)


@pytest.mark.parametrize(
    ("family", "changes", "targets", "complaint"),
    [
        ("electra", {}, [], "and not head_importance"),
        ("vit", {}, ["horse"], "label 'horse': this model knows cat, dog, owl"),
        ("bert", {}, ["a", "b"], "1 inputs and 2 targets"),
    ],
)
def test_importance_without_a_loss(
    family: str,
    changes: Any,
    targets: list[str],
    complaint: str,
    made: Callable[..., Path],
    given: Callable[[str], str],
) -> None:
    with pytest.raises(UserError, match=re.escape(complaint)):
        loaded(made(family, **changes)).head_importance([given(family)], targets)


TRANSFORMERS = {  # the class that reads each family
    "bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM",
    "vit": "ViTForImageClassification", "whisper": "WhisperForConditionalGeneration",
    CAPTIONS: "VisionEncoderDecoderModel",
}  # fmt: skip
LABELLED = {"vit": "dog", CAPTIONS: "a dog", "whisper": "a dog"}  # the label or text of an input


def measured_on(family: str, given: str, folder: Path) -> list[Any]:
    """The options of `prune` for one input."""
    text, label = folder / "source.txt", folder / "target.txt"
    text.write_text(f"{given}\n")
    label.write_text(f"{LABELLED.get(family)}\n")
    return ["--source", given, "--target", label] if family in LABELLED else ["--source", text]


def removed_heads(line: str) -> dict[str, dict[int, list[int]]]:
    """The heads that `prune` reports as removed."""
    return ast.literal_eval(line[line.index("{") : line.rindex("}") + 1])


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_a_pruned_model_computes_what_the_masked_one_does(
    family: str, cli: Cli, made: Callable[..., Path], given: Callable[[str], str], tmp_path: Path
) -> None:
    source, out = given(family), tmp_path / "pruned"
    command = ["prune", made(family), "--heads", 1, "--out", out, *measured_on(family, source, tmp_path)]
    ran = cli(*command)
    assert ran.code == 0, ran.err
    assert "without 1 head" in ran.err and "this layout cannot have fewer heads" in ran.err
    model, pruned, target = loaded(made(family)), loaded(out), [LABELLED[family]] if family in LABELLED else []
    with model.mask_heads(removed_heads(ran.err)):
        masked = loss_of(model, [source], target)
    assert loss_of(pruned, [source], target) == masked != loss_of(model, [source], target)
    assert cli(*command).complaint.endswith("holds a model already; name another folder")


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_transformers_reads_what_prune_writes(
    family: str, made: Callable[..., Path], given: Callable[[str], str], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    part = PART.get(family, "encoder" if family == "roberta" else "decoder")
    out = loaded(made(family)).prune({part: {0: [1]}}, tmp_path / "pruned")
    theirs, said = getattr(transformers, TRANSFORMERS[family]).from_pretrained(out, output_loading_info=True)
    missing = {key for key in said["missing_keys"] if not key.startswith("encoder.pooler.")}  # unused
    assert not missing and not said["unexpected_keys"]
    model, shown = loaded(made(family)), loaded(out).torch().observed(given(family))
    with model.mask_heads({part: {0: [1]}}), torch.inference_mode():
        ours = model.network.logits(shown.read_by(model.network))
    with torch.inference_mode():
        if family in (CAPTIONS, "whisper"):
            name = "pixel_values" if family == CAPTIONS else "input_features"
            read = {name: shown.values, "decoder_input_ids": torch.tensor([[*shown.prompt, *shown.tgt[:-1]]])}
        else:
            read = {"pixel_values" if family == "vit" else "input_ids": shown.values}
        found = theirs.eval()(**read).logits
    torch.testing.assert_close(found, ours.view_as(found), atol=1e-5, rtol=1e-4)


def test_an_unused_pooler_is_kept(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = shutil.copytree(made("bert"), tmp_path / "bert")
    pooler = {"bert.pooler.dense.weight": torch.ones(16, 16), "bert.pooler.dense.bias": torch.ones(16)}
    save_file({**load_file(folder / "model.safetensors"), **pooler}, folder / "model.safetensors", {"format": "pt"})
    tensors = load_file(loaded(folder).prune({"encoder": {0: [1]}}, tmp_path / "pruned") / "model.safetensors")
    assert torch.equal(tensors["bert.pooler.dense.weight"], torch.ones(16, 16))


@pytest.mark.parametrize(
    ("family", "arguments", "complaint"),
    [
        ("bert", ["TEXT", "TEXT"], "one file of texts is --source"),
        ("marian", ["TEXT"], "for a model that translates --target has the translations"),
        ("vit", ["PICTURE", "--target", "TEXT"], "label 'A dog runs.': this model knows cat, dog, owl"),
        ("electra", ["TEXT"], "and not head_importance"),
    ],
)
def test_prune_names_its_measure(
    family: str, arguments: list[str], complaint: str, cli: Cli, made: Any, picture: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text(f"{TEXT}\n")
    names = {"TEXT": tmp_path / "text", "PICTURE": picture}
    given = [names.get(argument, argument) for argument in arguments]
    assert (
        complaint in cli("prune", made(family), "--heads", "1", "--out", tmp_path / "out", "--source", *given).complaint
    )


# --- The explorer


@pytest.mark.parametrize("family", ["bert", "gpt2", "vit", CAPTIONS, "whisper"])
def test_the_explorer_serves(family: str, made: Callable[..., Path], given: Callable[[str], str]) -> None:
    shown = ExplorerModel("it", loaded(made(family)), contents())
    described = shown.described()
    assert described["about"] == ABOUT.get(family, ABOUT["llama"])
    assert {part for part, layers in described["heads"].items() if layers} == parts_of(family)
    question: dict[str, Any] = {"text": TEXT, "masks": {PART.get(family, "decoder"): {"0": [0]}}}
    if shown.reads_files:
        question |= {"text": "a file", "file": base64.b64encode(Path(given(family)).read_bytes()).decode()}
    found = shown.translated(parse_request(json.dumps(question).encode()))["inspection"]
    assert found["text"] == question["text"]
    assert found["about"] == {**described["about"], "walk": False}  # the page requests walks separately
    assert not shown.model.head_mask.heads


def test_a_damaged_file_is_named(made: Callable[..., Path]) -> None:
    pytest.importorskip("PIL")
    shown = ExplorerModel("it", loaded(made("vit")), contents())
    with pytest.raises(UserError, match=r"^holiday.png: is not a readable image file"):
        shown.translated(parse_request(b'{"text": "holiday.png", "file": "aGFsbG8="}'))
    with pytest.raises(UserError, match="choose one"):
        shown.translated(parse_request(b'{"text": "holiday.png"}'))
    with pytest.raises(UserError, match="base64"):
        parse_request(b'{"file": "?"}')
