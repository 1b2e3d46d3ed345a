"""The packages that work without torch: they import, translate and serve where importing torch is an error.

Each program runs in a process of its own, with a finder in front that raises `ImportError` for torch.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture.structure import FREE, modules
from safetensors.numpy import save_file
from tiny_families import HEARING, write_tiny
from tokenizers import Tokenizer, processors
from unit.checkpoint.test_compiled import small_model

import headwise
from headwise.cli import BY_NAME
from headwise.errors import INSTALL_TORCH
from headwise.runtime.checkpoint.pack import pack_model
from headwise.runtime.native.library import library

SOURCE = Path(headwise.__file__).parent
BLOCKED = """
import sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is blocked", name="torch")

sys.meta_path.insert(0, Blocked)
"""
needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is missing")


WITHOUT_TORCH = [
    name for name in modules() if name.partition(".")[0] in (*FREE, "cli") or name.startswith("lab.results")
]


def run_blocked(program: str, *arguments: str) -> str:
    """What a program prints where torch cannot be imported."""
    command = [sys.executable, "-c", BLOCKED + program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout


def test_modules_import_without_torch() -> None:
    failed = run_blocked(
        "from importlib import import_module\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        import_module(f'headwise.{name}')\n"
        "    except ImportError as error:\n"
        "        print(name, error)\n"
        "assert 'torch' not in sys.modules\n",
        *WITHOUT_TORCH,
    )
    assert failed == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small translator, packed in int8."""
    path = small_model(tmp_path_factory.mktemp("models") / "ende")
    if library() is not None:
        pack_model(path, "int8")
    return path


def test_names_of_the_package_that_need_torch_say_so() -> None:
    program = "import headwise\nfor name in ('train', 'Callback'):\n    try:\n        getattr(headwise, name)\n"
    said = run_blocked(f"{program}    except headwise.UserError as error:\n        print(error)\n")
    assert said == "".join(
        f"headwise.{name} needs PyTorch, which is not installed: {INSTALL_TORCH}\n" for name in ("train", "Callback")
    )


@needs_library
def test_a_model_translates_without_torch(model: Path) -> None:
    program = "import headwise\ntranslate = headwise.load(sys.argv[1], 'cpu').translate\n"
    program += "for settings in ({}, {'beam_size': 3}, {'compute': 'int8'}, {'sample': True, 'seed': 1}):\n"
    program += "    print(translate(['A dog runs.'], **settings)[0].log_prob < 0)\n"
    assert run_blocked(program, str(model)) == "True\n" * 4


@needs_library
def test_a_document_is_translated_without_torch(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("polib")
    catalogue = tmp_path / "a.po"
    catalogue.write_text('msgid ""\nmsgstr ""\n\nmsgid "A dog runs."\nmsgstr ""\n', encoding="utf-8")
    program = "from headwise.cli import main\nassert main(['translate', *sys.argv[1:], '--languages', 'en-de']) == 0\n"
    run_blocked(program, str(model), str(catalogue), "-o", str(tmp_path / "b.po"))
    assert "#, fuzzy" in (tmp_path / "b.po").read_text(encoding="utf-8")


RUN = "from headwise.cli import main\nassert main(sys.argv[1:]) == 0\nassert 'torch' not in sys.modules\n"
SHORT = ("--max-length-extra", "5")


@pytest.fixture(scope="module", params=["trained here", "marian", "m2m"])
def any_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that the library supports; pretrained ones as they are in the Hugging Face layout."""
    folder = tmp_path_factory.mktemp("models") / "model"
    if request.param == "trained here":
        return small_model(folder)
    folder.mkdir()
    write_tiny(folder, request.param)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Sources, targets, pairs and links."""
    (tmp_path / "source").write_text("a dog\ntwo men\n", encoding="utf-8")
    (tmp_path / "target").write_text("ein Hund\nzwei\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund\ntwo men\tzwei\n", encoding="utf-8")
    (tmp_path / "links").write_text("0-0 1-1\n0-0\n", encoding="utf-8")
    return tmp_path


def languages(model: Path) -> list[str]:
    """The options that a model of many languages needs."""
    known = "m2m" in model.joinpath("config.json").read_text(encoding="utf-8")
    return ["--source-language", "de", "--target-language", "fr"] if known else []


COMMANDS = {
    "translate": ["translate", "MODEL", "source", "-o", "OUT", *SHORT],
    "int8": ["translate", "MODEL", "source", "-o", "OUT", "--compute", "int8", *SHORT],
    "draft": ["translate", "MODEL", "source", "-o", "OUT", "--draft", "input", *SHORT],
    "glossary": ["translate", "MODEL", "source", "-o", "OUT", "--glossary", "pairs.tsv", *SHORT],
    "shortlist": ["shortlist", "MODEL", "--train", "pairs.tsv"],
    "score": ["score", "MODEL", "--source", "source", "--target", "target", "-o", "OUT"],
    "evaluate": ["evaluate", "MODEL", "--source", "source", "--reference", "target", *SHORT],
    "alignments": ["evaluate", "MODEL", "--source", "source", "--target", "target", "--alignments", "links"],
    "align": ["align", "MODEL", "--source", "source", "--target", "target", "-o", "OUT"],
    "inspect": ["inspect", "MODEL", "a dog", "-o", "attention.html", *SHORT],
    "text": ["inspect", "MODEL", "a dog", "--translation", "zwei", "--format", "text"],
    "info": ["info", "MODEL"],
    "pack": ["pack", "MODEL", "--compute", "int8"],
    "check-corpus": ["check-corpus", "pairs.tsv"],
}


@needs_library
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_without_torch(
    any_model: Path, files: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    arguments = [{"MODEL": str(any_model), "OUT": "out"}.get(part, part) for part in COMMANDS[command]]
    with_languages = "MODEL" in COMMANDS[command] and command not in ("info", "pack")
    run_blocked(RUN, *arguments, *(languages(any_model) if with_languages else []))
    written = {"OUT": "out", "attention.html": "attention.html"}
    assert all((files / name).stat().st_size for part, name in written.items() if part in COMMANDS[command])


LANGUAGE_COMMANDS = {
    "generate": ["generate", "MODEL", "a dog", "--max-new-tokens", "5"],
    "several": ["generate", "MODEL", "a dog", "b", "--max-new-tokens", "5", "--format", "jsonl"],
    "beams": ["generate", "MODEL", "a dog", "--max-new-tokens", "5", "--beam-size", "3", "--compute", "int8"],
    "stop": ["generate", "MODEL", "a dog", "--max-new-tokens", "5", "--sample", "--stop", "e"],
    "score": ["score", "MODEL", "--source", "source"],
    "evaluate": ["evaluate", "MODEL", "--source", "source"],
    "info": ["info", "MODEL"],
}


@needs_library
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_language_models_run_without_torch(kind: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    (files / "model").mkdir()
    write_tiny(files / "model", kind)
    calls = [[{"MODEL": "model"}.get(part, part) for part in call] for call in LANGUAGE_COMMANDS.values()]
    said = run_blocked(
        f"from headwise.cli import main\nassert not any(map(main, {calls}))\nassert 'torch' not in sys.modules\n"
    )
    assert '"perplexity"' in said and "bits per byte" in said and kind in said
    why = "this needs PyTorch, which is not installed"
    program = (
        "import headwise\ntry:\n    headwise.load('model', 'cpu').attend('a')\nexcept Exception as e:\n    print(e)\n"
    )
    assert why in run_blocked(program)


NAMES = {"id2label": {"0": "no", "1": "yes", "2": "perhaps"}}
ENCODERS: dict[str, tuple[str, str, dict[str, Any], str]] = {  # family, class, changes, a call that gives numbers
    "vectors": ("bert", "BertModel", {}, "model.embed(texts).tolist()"),
    "masks": (
        *("albert", "AlbertForMaskedLM", {}),
        "[[one.probability, one.token] for one in model.fill_mask('a <mask> dog')[0]]",
    ),
    "classes": (
        *("bert", "BertForSequenceClassification", NAMES),
        "[list(one.probabilities.values()) for one in model.classify([*texts, ('a', 'b')])]",
    ),
    "scores": (
        *("bert", "BertForSequenceClassification", {"num_labels": 1}),
        "[[one.score, one.index] for one in model.rerank('a', texts)]",
    ),
    "tags": (
        *("bert", "BertForTokenClassification", NAMES),
        "[one.probability for found in model.tag(texts) for one in found.spans]",
    ),
    "answers": (
        *("distilbert", "DistilBertForQuestionAnswering", {}),
        "[[one.probability, one.start] for one in model.answer([('a?', one) for one in texts])]",
    ),
}
EMBED = ["embed", "model", "source", "-o", "vectors.jsonl"]
ENCODER_COMMANDS = {
    "vectors": [
        EMBED,
        ["embed", "model", "source", "-o", "vectors.npy", "--compute", "int8"],
        ["evaluate", "model", "--source", "pairs.tsv"],
    ],
    "masks": [EMBED, ["fill", "model", "a <mask>"]],
    "classes": [EMBED, ["classify", "model", "source"], ["evaluate", "model", "--source", "labels.tsv"]],
    "scores": [EMBED, ["rerank", "model", "a", "source"]],
    "tags": [EMBED, ["tag", "model", "source", "--format", "conll"]],
    "answers": [EMBED, ["answer", "model", "source", "--question", "a?"]],
}
TEXTS = ["a dog", "two men and a dog", "b"]


def write_encoder(folder: Path, name: str) -> None:
    """A tiny encoder, with special tokens around one text and between two."""
    kind, architecture, changes, _ = ENCODERS[name]
    folder.mkdir()
    write_tiny(folder, kind, {"architectures": [architecture], **changes})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    two = "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(*two)
    tokenizer.save(str(folder / "tokenizer.json"))


@needs_library
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_give_without_torch_what_torch_gives(name: str, tmp_path: Path) -> None:
    """float32 against float32, for probabilities and vectors of length 1."""
    write_encoder(tmp_path / "model", name)
    call = ENCODERS[name][-1]
    program = "import headwise, json\nmodel, texts = headwise.load(sys.argv[1], 'cpu'), json.loads(sys.argv[2])\n"
    said = run_blocked(f"{program}print(json.dumps({call}))", str(tmp_path / "model"), json.dumps(TEXTS))
    model: Any = headwise.load(tmp_path / "model", "cpu")
    assert model.compiled and model.network and not model.compiled  # from now on torch reads texts
    wanted = eval(call, {"model": model, "texts": TEXTS})
    assert wanted
    np.testing.assert_allclose(json.loads(said), wanted, rtol=1e-4, atol=1e-5)


@needs_library
@pytest.mark.parametrize("name", ENCODERS)
def test_commands_of_encoders_run_without_torch(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    write_encoder(files / "model", name)
    (files / "labels.tsv").write_text("a dog\tyes\ntwo men\tno\n", encoding="utf-8")
    calls = [["info", "model"], *ENCODER_COMMANDS[name]]
    said = run_blocked(
        f"from headwise.cli import main\nassert not any(map(main, {calls}))\nassert 'torch' not in sys.modules\n"
    )
    assert "computed by    the compiled library" in said
    model: Any = headwise.load("model", "cpu")
    written = [json.loads(line) for line in Path("vectors.jsonl").read_text(encoding="utf-8").splitlines()]
    np.testing.assert_allclose(written, model.embed(["a dog", "two men"]), atol=1e-6)  # rounded to six digits
    if name == "vectors":
        model.compute = "int8"
        np.testing.assert_array_equal(np.load("vectors.npy"), model.embed(["a dog", "two men"]))


@needs_library
def test_a_layer_of_sentence_transformers_needs_no_torch(tmp_path: Path) -> None:
    """In safetensors; a pickled one does."""
    write_encoder(tmp_path / "model", "vectors")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    listed = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    for name in ("1_Pooling", "2_Dense"):
        (tmp_path / "model" / name).mkdir()
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}', encoding="utf-8")
    dense = {"in_features": 16, "out_features": 4, "bias": False, "activation_function": "torch.nn.Identity"}
    (tmp_path / "model" / "2_Dense" / "config.json").write_text(json.dumps(dense), encoding="utf-8")
    weights = tmp_path / "model" / "2_Dense" / "model.safetensors"
    weight = np.random.default_rng(0).standard_normal((4, 16), np.float32)
    save_file({"linear.weight": weight}, weights)
    program = "import headwise\ntry:\n    print(headwise.load(sys.argv[1], 'cpu').embed(['a dog']).tolist())\n"
    program += "except Exception as error:\n    print(error)\n"
    said = run_blocked(program, str(tmp_path / "model"))
    model: Any = headwise.load(tmp_path / "model", "cpu")
    states = model.network.encode(torch.tensor([model.tokenizer.encode("a dog")]))[0]
    np.testing.assert_allclose(json.loads(said)[0], weight @ states.mean(0).detach().numpy(), rtol=1e-4, atol=1e-5)
    weights.rename(weights.with_name("pytorch_model.bin"))
    assert "this needs PyTorch, which is not installed" in run_blocked(program, str(tmp_path / "model"))


@needs_library
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("masks", "evaluate(['source'])"),
        ("masks", "head_importance(['a dog'])"),
        ("vectors", "attend('a dog')"),
        ("classes", "head_importance(['a dog'], ['yes'])"),
        ("classes", "mask_heads({})"),
    ],
)
def test_methods_of_encoders_that_need_torch_say_so(
    name: str, call: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    write_encoder(files / "model", name)
    program = f"import headwise\ntry:\n    headwise.load('model', 'cpu').{call}\nexcept Exception as e:\n    print(e)\n"
    assert run_blocked(program) == f"this needs PyTorch, which is not installed: {INSTALL_TORCH}\n"


@pytest.mark.parametrize("kind", ["modernbert", "llama"])
def test_embeddings_that_need_torch_say_so_in_one_line(kind: str, tmp_path: Path) -> None:
    """Of networks that the library does not support, and of decoders."""
    (tmp_path / "encoder").mkdir()
    write_tiny(tmp_path / "encoder", kind)
    why = complaint(tmp_path, ["embed", "encoder", "in", "-o", "out.npy"], BLOCKED)
    assert "this needs PyTorch, which is not installed" in why


@needs_library
def test_speech_is_transcribed_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fallback to other temperatures; and scored."""
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    write_tiny(Path("model"), "whisper", generation=HEARING)
    soundfile.write("long.wav", np.sin(np.arange(40_000) ** 1.5 / 900), 16_000)
    soundfile.write("short.wav", np.sin(np.arange(6_000) / 9), 8_000)
    for options in ([], ["--compute", "int8", "--beam-size", "3"], ["--no-timestamps"]):
        run_blocked(RUN, "transcribe", "model", "long.wav", *options)
    assert "computed by    the compiled library" in run_blocked(RUN, "info", "model")
    Path("list.tsv").write_text("short.wav\ta b\n", encoding="utf-8")
    pytest.importorskip("jiwer")
    assert "WER" in run_blocked(RUN, "evaluate", "model", "--source", "list.tsv", "--source-language", "en")


@needs_library
def test_an_ensemble_translates_without_torch(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    small_model(files / "a"), small_model(files / "b")
    run_blocked(RUN, "translate", "a", "source", "-o", "out", "--ensemble", "b")
    assert (files / "out").read_text(encoding="utf-8").count("\n") == 2


@needs_library
def test_results_and_pages_need_no_torch(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    small_model(files / "model")
    (files / "model" / "validation.jsonl").write_text(
        '{"step": 10, "what": "step 10", "loss": 4.0, "bleu": 10.0, "elapsed": 36.0, "best": true}\n', encoding="utf-8"
    )
    run_blocked(RUN, "results", "model")
    pytest.importorskip("ziglang")
    said = run_blocked("sys.stderr = sys.stdout\n" + RUN, "export", "model", "page.html", "--to", "web")
    assert "without “Look inside”" in said
    assert "<html" in (files / "page.html").read_text(encoding="utf-8")


@needs_library
def test_what_the_library_reads_is_what_torch_reads(any_model: Path) -> None:
    """The same numbers up to rounding in float32, for networks of three layers at most and logits below 100."""
    model: Any = headwise.load(any_model, "cpu").between(*(languages(any_model)[1::2] or ("", "")))
    sources, targets = ["a dog", "two men", "a"], ["ein Hund", "zwei", ""]
    scores, links = model.score(sources, targets), model.align(sources[:2], targets[:2])
    view, trace = model.look_inside("a dog", tgt="ein Hund")
    inspector = model.inspector()
    inspector.__dict__["_reader"] = inspector.torch_reader()
    for one, other in zip(scores, inspector.score(sources, targets), strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
    assert links == inspector.align(sources[:2], targets[:2])
    by_torch = inspector.attend("a dog", tgt="ein Hund")
    for stack in ("encoder", "decoder", "cross"):
        for one, other in zip(getattr(view, stack), getattr(by_torch, stack), strict=True):
            assert one.shape == other.shape and np.abs(one - other).max() < 1e-5
    for one, other in zip(trace.positions, inspector.trace("a dog", tgt="ein Hund").positions, strict=True):
        assert one.residual == pytest.approx(other.residual, rel=1e-4)
        assert len(one.layers) == len(other.layers)
        assert one.candidates[0].log_prob == pytest.approx(other.candidates[0].log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["download", "argos:en-de"], "headwise download argos:en-de needs PyTorch"),
        (["train", "--train", "in", "--out", "x"], "headwise train needs PyTorch"),
        (["join", "model", "model", "x"], f"headwise join needs PyTorch, which is not installed: {INSTALL_TORCH}"),
        (["export", "model", "out", "--to", "hf"], "headwise export needs PyTorch"),
        (["translate", "model", "in", "--compute", "float16"], "this needs PyTorch, which is not installed"),
    ],
)
def test_what_needs_torch_says_so_in_one_line(tmp_path: Path, arguments: list[str], why: str) -> None:
    assert why in complaint(tmp_path, arguments, BLOCKED)


def test_help_needs_no_torch() -> None:
    program = "from contextlib import suppress\nfrom headwise.cli import BY_NAME, main\nfor name in BY_NAME:\n"
    program += "    with suppress(SystemExit):\n        main([name, '--help'])\n"
    usages = re.findall(r"^usage: headwise (\S+)", run_blocked(program), re.MULTILINE)
    assert usages == [*BY_NAME]


def complaint(folder: Path, arguments: list[str], blocked: str) -> str:
    """The only line that a failing command prints; `model` and `in` are a model and a text."""
    small_model(folder / "model")
    (folder / "in").write_text("a dog\n", encoding="utf-8")
    program = "import os\nos.chdir(sys.argv.pop(1))\nfrom headwise.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    command = [sys.executable, "-c", blocked + program, str(folder), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr


@needs_library
def test_pictures_without_matplotlib_are_one_line(tmp_path: Path) -> None:
    arguments = ["inspect", "model", "a dog", "-o", "attention.png"]
    message = complaint(tmp_path, arguments, BLOCKED.replace('"torch"', '"matplotlib"', 1))
    assert 'pip install "headwise[plots]"' in message and not (tmp_path / "attention.png").exists()


IMPORTED = """
from contextlib import suppress
from headwise.cli import main
if sys.argv[1] == "serve":
    import uvicorn
    uvicorn.Server.run = lambda *given, **more: None
with suppress(SystemExit):
    main(sys.argv[1:])
names = {name for name in sys.modules if not name.startswith("_")}
print()
print(*{name.partition(".")[0] for name in names} - {*sys.stdlib_module_names, "headwise"})
print(*{name.split(".")[1] for name in names if name.startswith("headwise.")})
print(*names & {"numpy.random", "socket"})
"""
TRANSLATING = {"numpy", "safetensors", "tokenizers"}
STARTING = {"cli", "device", "errors", "importing", "version"}
LOADING = STARTING | {"config", "contract", "documents", "families", "lock", "models", "runtime", "text"}
SERVING = {"anyio", "click", "httptools", "prometheus_client", "python_multipart", "starlette", "uvicorn"}
BY_OTHERS = {"cython_runtime", "h11", "idna", "sniffio", "typing_extensions", "watchfiles"}  # as installed


@pytest.mark.parametrize(
    ("arguments", "packages", "folders"),
    [
        (["--help"], set(), STARTING),
        (["translate", "MODEL", "FILE"], TRANSLATING, LOADING),
        (
            ["serve", "MODEL", "--languages", "en-de", "--port", "0"],
            TRANSLATING | SERVING,
            LOADING | {"evaluate", "serve"},
        ),
    ],
)
@needs_library
def test_packages_and_folders_that_a_command_imports(
    model: Path, tmp_path: Path, arguments: list[str], packages: set[str], folders: set[str]
) -> None:
    """A package more is a longer start, and perhaps one more to install; so is a large module that nothing uses yet."""
    if arguments[0] == "serve":
        pytest.importorskip("starlette")
    (tmp_path / "in.txt").write_text("a dog\n", encoding="utf-8")
    names = {"MODEL": str(model), "FILE": str(tmp_path / "in.txt")}
    *_, imported, own, unused = run_blocked(IMPORTED, *(names.get(word, word) for word in arguments)).splitlines()
    assert {*imported.split()} - BY_OTHERS == packages
    assert {*own.split()} == folders
    assert arguments[0] == "serve" or not unused


SERVER = """
import tempfile
from functools import partial
from pathlib import Path
from starlette.testclient import TestClient
from headwise.models.load import load_translator
from headwise.serve.models import load_served_models
from headwise.serve.server import ServerSettings, application

load = partial(load_translator, device="cpu")
models = load_served_models([sys.argv[1]], [("en", "de")], load, {"compute": "int8"}, True)
with tempfile.TemporaryDirectory() as folder:
    app = application(models, ServerSettings(), Path(folder))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        languages = {"source": "en", "target": "de"}
        assert client.get("/").is_success
        answer = client.post("/v1/translate", json={"text": "A dog runs.", "alignment": True, **languages})
        assert answer.json()["translations"][0]["sentences"][0]["alignment"], answer.text
        answer = client.post("/translate", json={"q": "<p>A <b>dog</b> runs.</p>", "format": "html", **languages})
        assert "<b>" in answer.json()["translatedText"], answer.text
        answer = client.post("/v1/translate", json={"text": "A dog", "glossary": {"dog": "Hund"}, **languages})
        assert "text" in answer.json()["translations"][0], answer.text
assert "torch" not in sys.modules
"""


@needs_library
def test_a_server_answers_without_torch(model: Path) -> None:
    for library_needed in ("starlette.testclient", "prometheus_client", "sentencex"):
        pytest.importorskip(library_needed)
    run_blocked(SERVER, str(model))
