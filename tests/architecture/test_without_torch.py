"""The packages that work without torch: they import, translate and serve where importing torch is an error.

Each program runs in a process of its own, with a finder in front that raises `ImportError` for torch.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from unit.checkpoint.test_compiled import small_model

import headwise
from headwise.checkpoint.pack import pack_model
from headwise.native.library import library

SOURCE = Path(headwise.__file__).parent
BLOCKED = """
import sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, Blocked)
"""
PACKAGES = ("config", "native", "localisation", "glossary", "evaluate", "serve", "results", "report", "cli")
OTHERS = (  # modules of packages of which only a part works without torch
    *("contract", "device", "errors", "version"),
    *(f"data.{name}" for name in ("alignment", "bpe_dropout", "cache", "corpus", "documents")),
    *(f"data.{name}" for name in ("file_checks", "file_hashes", "hugging_face", "links", "prepared", "split")),
    *(
        f"data.{name}"
        for name in (
            "processes",
            "questions",
            "tokenize_pairs",
            "sources",
            "pair_tokenizer",
            "scripts",
            "sentences",
            "shortlist",
        )
    ),
    *("data.tokenizer", "data.words"),
    *(f"decode.{name}" for name in ("candidates", "engine", "repetition", "request", "streaming", "translator")),
    *(f"checkpoint.{name}" for name in ("compiled", "folder", "manifest", "packed", "read", "trained")),
    *(f"models.{name}" for name in ("load", "model", "translator")),
)
NEEDS_TORCH = {  # commands that train, convert or look inside
    *(f"cli.commands.{name}" for name in ("demo", "embed", "explore", "export", "import_checkpoint")),
    *(f"cli.commands.{name}" for name in ("inspect", "join", "prune", "study", "sweep", "train", "tune")),
}
needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is missing")


def modules(package: str) -> list[str]:
    """The names of the modules of a package."""
    files = sorted((SOURCE / package).rglob("*.py"))
    parts = [path.relative_to(SOURCE).with_suffix("").parts for path in files if path.name != "__main__.py"]
    return [".".join(part for part in names if part != "__init__") for names in parts]


WITHOUT_TORCH = [name for package in PACKAGES for name in modules(package) if name not in NEEDS_TORCH] + list(OTHERS)


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


def test_the_list_of_modules_that_need_torch_is_true() -> None:
    """A module that no longer needs torch leaves the list."""
    working = run_blocked(
        "from importlib import import_module\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        import_module(f'headwise.{name}')\n"
        "        print(name)\n"
        "    except ImportError:\n"
        "        pass\n",
        *sorted(NEEDS_TORCH),
    )
    assert working == ""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small translator, packed in int8."""
    path = small_model(tmp_path_factory.mktemp("models") / "ende")
    if library() is not None:
        pack_model(path, "int8")
    return path


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
        assert "text" in answer.json()["translations"][0], answer.text
        answer = client.post("/translate", json={"q": "<p>A <b>dog</b> runs.</p>", "format": "html", **languages})
        assert "translatedText" in answer.json(), answer.text
        answer = client.post("/v1/translate", json={"text": "A dog", "glossary": {"dog": "Hund"}, **languages})
        assert "text" in answer.json()["translations"][0], answer.text
assert "torch" not in sys.modules
"""


@needs_library
def test_a_server_answers_without_torch(model: Path) -> None:
    for library_needed in ("starlette.testclient", "prometheus_client", "sentencex"):
        pytest.importorskip(library_needed)
    run_blocked(SERVER, str(model))
