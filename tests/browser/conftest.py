"""The page and the explorer in a real browser: Chromium from the system, driven by Playwright.

`make browser` runs these, plain `make test` does not collect them. Every page here fails its test by an error on the
console, or by asking any network but the server under test.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.settings import RunConfig, SearchSettings, from_dict
from headwise.core.build import parameters_of
from headwise.pytorch.architectures.registry import build_network
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.prepared import prepare
from headwise.text.tokens.tokenizer import Tokenizer

collect_ignore_glob = [] if os.environ.get("HEADWISE_BROWSER") else ["test_*.py", "axe.py", "layout.py"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 120_000  # milliseconds; only a failure waits so long
# Whoever draws with a frame draws late here, as on a busy machine: a test that does not wait for it fails everywhere.
LATE_FRAMES = """const prompt = window.promptFrame = requestAnimationFrame.bind(window);
window.requestAnimationFrame = f => setTimeout(() => prompt(f), 60);"""
LINES = ["A dog runs across the field .", "Zwei Männer reden .", "Der Hund sieht die Männer ."] * 20
VALIDATED = ["Hund .", "Zwei Männer reden , der Hund sieht die Männer .", "A dog runs ."]
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 3},
    "bahdanau": {"architecture": "recurrent", "n_encoder_layers": 1, "n_decoder_layers": 1, "bidirectional": True},
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)

    assert CHROMIUM, "no chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Makes pages; complaints of all of them fail the test at its end."""
    complaints: list[str] = []
    contexts = []

    def make(allowed: str = "file:", width: int = 1200, height: int = 800, expected: str = "\0", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(LATE_FRAMES)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: hear(line, expected))
        page.on("request", lambda request: check(request.url, allowed))
        return page

    def hear(line: Any, expected: str) -> None:
        if line.type in ("error", "warning") and expected not in line.text:
            complaints.append(line.text)

    def check(url: str, allowed: str) -> None:
        if not url.startswith((allowed, "data:", "about:", "blob:")):  # a blob is in the page's own memory
            complaints.append(f"asked the network: {url}")

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this machine keeps prepared corpora."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def model_paths(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Path]:
    """Directories of two small models with random parameters and one tokenizer, validated on a corpus that is here."""
    tokenizer = Tokenizer.train(LINES, TranslationData(vocab_size=340))
    files = tmp_path_factory.mktemp("corpus")
    (files / "valid.tsv").write_text("\n".join(f"{line}\t{line}" for line in VALIDATED), encoding="utf-8")
    prepared = prepare([Corpus((str(files / "valid.tsv"),))], tokenizer, TranslationData(), cache, progress=False)
    about = {"corpus": {"valid_key": prepared.key}}
    return {
        name: write_model(tmp_path_factory.mktemp("models") / name, shape, tokenizer, about)
        for name, shape in SHAPES.items()
    }


def write_model(
    folder: Path, shape: dict[str, Any], tokenizer: Tokenizer, about: dict[str, Any], gain: float = 1.7
) -> Path:
    torch.manual_seed(1)
    settings = {"d_model": 16, "vocab_size": tokenizer.vocab_size, **shape}
    model = from_dict({"model": settings}, "test").model
    network = build_network(model).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(gain)  # or attention would be even
    decode = SearchSettings(beam_size=3, max_length_factor=1.0, max_length_extra=4)
    write_settings(folder, replace(RunConfig(), model=model, decode=decode), tokenizer, about)
    write_weights(folder, parameters_of(network), "# A model\n")
    return folder


@pytest.fixture(scope="session")
def explorer(model_paths: dict[str, Path], cache: Path) -> Iterator[str]:
    """The address of an explorer with both models, served by the command line in a process of its own."""
    paths = [str(path) for path in model_paths.values()]
    command = [sys.executable, "-m", "headwise", "explore", paths[0], "--against", paths[1], "--port", "0"]
    command, environment = [*command, "--device", "cpu"], {**os.environ, "HEADWISE_CACHE": str(cache)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("http://127.0.0.1:"), line
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
