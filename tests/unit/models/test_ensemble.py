"""Several model directories as one translator: the same in the library, step by step and on the command line."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headwise
from headwise.cli import main
from headwise.config.data import TranslationData
from headwise.config.model import ModelConfig, RecurrentConfig, TransformerConfig
from headwise.config.settings import RunConfig, SearchSettings, load_recipe
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.models.translation.ensemble import Ensemble
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.search.ensemble import AveragedNetworks
from headwise.runtime.checkpoint.compiled import described
from headwise.runtime.checkpoint.sidecar_files import write_shortlist
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledEnsemble
from headwise.runtime.search.engine import decode_tokens
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import Tokenizer

TEXTS = ["A dog runs.", "Ein Hund rennt.", "", "A man and a dog", "rennt"]
TOKENIZER = Tokenizer.train(TEXTS * 3, TranslationData(vocab_size=270))
OTHER = Tokenizer.train(["Zwei Männer reden."] * 3, TranslationData(vocab_size=270))
SMALL = TransformerConfig(
    vocab_size=TOKENIZER.vocab_size,
    d_model=16,
    d_ff=24,
    n_heads=2,
    n_encoder_layers=2,
    n_decoder_layers=2,
    max_len=40,
    tied_embeddings="none",
)
SHAPES = {
    "a": SMALL,
    "b": replace(SMALL, d_model=24, n_heads=3, norm_position="pre"),
    "learned": replace(SMALL, positions="learned", max_len=24),
    "relative": replace(SMALL, positions="relative"),
    "lstm": RecurrentConfig(vocab_size=TOKENIZER.vocab_size, d_model=16, cell="lstm"),
}
DECODE = SearchSettings(beam_size=3, max_length_factor=1.0, max_length_extra=3)
SEARCHES: list[dict[str, Any]] = [
    {},
    {"beam_size": 1},
    {"n_best": 2},
    {"shortlist": True},
    {"sample": True, "n_best": 2},
    {"compute": "int8"},
    {"compute": "bfloat16"},
]


def write_model(path: Path, config: ModelConfig, seed: int, tokenizer: Tokenizer = TOKENIZER) -> None:
    torch.manual_seed(seed)
    network = build_network(replace(config, vocab_size=tokenizer.vocab_size)).eval()
    with torch.no_grad():  # far from uniform, so that outputs differ
        network.output.weight *= 3
    shape = replace(config, vocab_size=tokenizer.vocab_size)
    write_settings(path, RunConfig(model=shape, decode=replace(DECODE, length_penalty=seed / 4)), tokenizer, {})
    write_weights(path, parameters_of(network), "# A model\n")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of all kinds; the first has a shortlist."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, config) in enumerate(SHAPES.items()):
        write_model(folder / name, config, seed)
    few = np.arange(20, 60, dtype=np.int32)
    write_shortlist(folder / "a", Shortlist(few, np.tile(few[:3], (TOKENIZER.vocab_size, 1))), TOKENIZER)
    return folder


def load(folders: Path, *names: str) -> Any:
    return headwise.load([folders / name for name in names], "cpu")


def texts(found: Any) -> list[list[str]]:
    return [[each.text, *(other.text for other in each.alternatives)] for each in found]


def pieces(found: Any) -> list[list[list[str]]]:
    return [[each.pieces, *(other.pieces for other in each.alternatives)] for each in found]


@pytest.mark.few(2)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a", "learned"), ("a", "lstm"), ("lstm", "a")], ids="+".join)
def test_translates_as_the_search_over_its_members_does(folders: Path, names: tuple[str, ...]) -> None:
    """In the library where it has all members, else step by step; settings are those of the first."""
    ensemble = load(folders, *names)
    assert isinstance(ensemble, Ensemble) and [model.path.name for model in ensemble.models] == list(names)
    compiled = library() is not None and "lstm" not in names
    assert ensemble.engine == (described() if compiled else "torch")
    assert ensemble.decode_config == headwise.load(folders / names[0], "cpu").decode_config
    own = ensemble._translator.engine(ensemble.decode_config)
    assert isinstance(own, CompiledEnsemble) == compiled
    assert {"translate", "stream"} <= {*ensemble.methods} and not {"score", "attend"} & {*ensemble.methods}
    for name in ("score", "attend", "mask_heads", "alignment_head", "network", "info"):
        with pytest.raises(UserError, match=f"no '{name}': ask one of its `models`"):
            _ = getattr(ensemble, name)()
    sources = [TOKENIZER.encode(text) for text in TEXTS]
    for settings in SEARCHES:
        if (settings.get("compute") and "lstm" in names) or (settings.get("shortlist") and names[0] != "a"):
            continue
        config = replace(ensemble.decode_config, **settings)
        table = ensemble._translator.shortlist_for(config)
        found = decode_tokens(ensemble._translator.engine(config), sources, config, None, None, 40, table)
        wanted = [[TOKENIZER.pieces(h.tokens) for h in ranked] for ranked in found]
        assert pieces(ensemble.translate(TEXTS, **settings)) == wanted


@pytest.mark.parametrize("names", [("a", "relative"), ("relative", "a")], ids="+".join)
def test_bfloat16_rounds_every_member(folders: Path, names: tuple[str, ...]) -> None:
    """Also one that the library would have, beside one that it lacks a part of."""
    ensemble = load(folders, *names)
    engine: Any = ensemble._translator.engine(replace(ensemble.decode_config, compute="bfloat16"))
    found = engine.model
    assert isinstance(found, AveragedNetworks)
    for member, name in zip(found.members, names, strict=True):
        weight = headwise.load(folders / name, "cpu").network.output.weight
        torch.testing.assert_close(member.output.weight, weight.bfloat16().float(), rtol=0, atol=0)
    assert pieces(ensemble.translate(TEXTS, compute="bfloat16"))


def test_one_model_twice_is_that_model(folders: Path) -> None:
    """To the last bit, and so is a list of one."""
    for name in ("a", "lstm"):
        alone, twice = headwise.load(folders / name, "cpu"), load(folders, name, name)
        assert twice.translate(TEXTS, n_best=3) == alone.translate(TEXTS, n_best=3)
        assert list(twice.stream(TEXTS[0])) == list(alone.stream(TEXTS[0]))
        assert load(folders, name).translate(TEXTS) == alone.translate(TEXTS)
    assert load(folders, "a", "b").translate(TEXTS) != load(folders, "a").translate(TEXTS)


def test_it_stays_in_the_library_when_torch_is_there_anyway(folders: Path) -> None:
    """A network that somebody has asked for may have been changed: the library gets what it is now."""
    ensemble = load(folders, "a", "b")
    before = ensemble.translate(TEXTS)
    assert ensemble.models[1].network is not None
    own = ensemble._translator.engine(ensemble.decode_config)
    assert isinstance(own, CompiledEnsemble) == (library() is not None)
    assert pieces(ensemble.translate(TEXTS)) == pieces(before)
    with torch.no_grad():
        ensemble.models[1].network.output.weight.mul_(-1)
    assert pieces(ensemble.translate(TEXTS)) != pieces(before)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "lstm")], ids="+".join)
def test_lines_streams_and_drafts(folders: Path, names: tuple[str, ...]) -> None:
    ensemble = load(folders, *names)
    greedy = [each.text for each in ensemble.translate(TEXTS, beam_size=1)]
    assert ["".join(ensemble.stream(text)) for text in TEXTS] == greedy
    assert [each.text for each in ensemble.translate_lines(TEXTS, beam_size=1, chunk_lines=2)] == greedy
    if "lstm" in names:
        with pytest.raises(UserError, match="cannot be truncated"):
            ensemble.translate(TEXTS, draft="input")
    else:
        assert [each.text for each in ensemble.translate(TEXTS, draft="input")] == greedy
        assert [each.text for each in ensemble.translate(TEXTS, draft=str(folders / "b"))] == greedy


@pytest.mark.thorough
def test_processes_load_all_members(folders: Path) -> None:
    ensemble = load(folders, "a", "lstm")
    alone = pieces(load(folders, "a").translate(TEXTS))
    assert pieces(ensemble.translate_lines(TEXTS, workers=2)) == pieces(ensemble.translate(TEXTS)) != alone


def test_the_shortest_of_the_longest_sequences_counts(folders: Path) -> None:
    """A text that is too long for one member is translated in parts."""
    text = "A dog runs. " * 5
    assert load(folders, "a").translate([text])[0].parts == 1 < load(folders, "a", "learned").translate([text])[0].parts


def test_what_does_not_go_together_is_named(folders: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "stranger", SMALL, 0, OTHER)
    with pytest.raises(
        UserError, match=r"stranger: has another tokenizer than .*a, .*data\.tokenizer=.*a/tokenizer.json"
    ):
        headwise.load([folders / "a", tmp_path / "stranger"], "cpu")
    with pytest.raises(UserError, match="list is empty"):
        headwise.load([])
    write_settings(tmp_path / "sorts", load_recipe("classify"), TOKENIZER, {})
    with pytest.raises(UserError, match="sorts: was trained to classify, not to translate"):
        headwise.load([folders / "a", tmp_path / "sorts"], "cpu")
    ensemble = load(folders, "a", "b")
    for verb in ("score", "align", "network", "attend"):
        with pytest.raises(AttributeError, match=f"no '{verb}'.*`models`"):
            getattr(ensemble, verb)


@pytest.mark.skipif(library() is None, reason="the compiled library is not there")
def test_torch_is_not_needed(folders: Path) -> None:
    names = [str(folders / name) for name in "ab"]
    code = "import sys, headwise; model = headwise.load(sys.argv[1:], 'cpu'); model.translate(['A dog runs.'])\n"
    subprocess.run([sys.executable, "-c", f"{code}assert 'torch' not in sys.modules", *names], check=True)


# The command line -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Runs a command with the files test.src and test.tgt; gives its code, what it wrote and what it said."""
    for name in ("test.src", "test.tgt"):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in TEXTS if text), encoding="utf-8")

    def run(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_commands(folders: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    a, b, lstm, source = folders / "a", folders / "b", folders / "lstm", tmp_path / "test.src"
    given = [text for text in TEXTS if text]
    both, all_three = load(folders, "a", "b"), load(folders, "a", "b", "lstm")
    out = tmp_path / "out.txt"
    assert cli("translate", a, source, "-o", out, "--ensemble", b, "--device", "cpu")[0] == 0
    assert out.read_text().splitlines() == [each.text for each in both.translate(given)]
    for flags in (["--ensemble", b, lstm], ["--ensemble", b, "--ensemble", lstm]):
        code, written, _ = cli("translate", a, source, "--n-best", 2, "--device", "cpu", *flags)
        assert code == 0
        wanted = ["\t".join(each) for each in texts(all_three.translate(given, n_best=2))]
        assert written.splitlines() == wanted
    saved = ["--save", tmp_path / "kept.txt", "--format", "json", "--device", "cpu"]
    assert cli("evaluate", a, "--ensemble", b, "--source", source, "--reference", tmp_path / "test.tgt", *saved)[0] == 0
    assert (tmp_path / "kept.txt").read_text() == out.read_text()
    corpus = ["--train", source, tmp_path / "test.tgt", "-o", tmp_path / "c.jsonl", "--n-best", 2, "--device", "cpu"]
    assert cli("distill", a, "--ensemble", b, *corpus)[0] == 0
    taught = [(pair["src"], pair["tgt"]) for pair in map(json.loads, (tmp_path / "c.jsonl").read_text().splitlines())]
    found = texts(both.translate(given, n_best=2))
    assert taught == [(src, tgt) for src, each in zip(given, found, strict=True) for tgt in dict.fromkeys(each) if tgt]


def test_mistakes(folders: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    a, source = folders / "a", tmp_path / "test.src"
    code, out, said = cli("translate", a, "--ensemble", folders / "b", source)
    assert (code, out) == (2, "") and f"{source}: is a file, and --ensemble names model directories" in said
    assert "no such model directory" in cli("translate", a, source, "--ensemble", tmp_path / "none")[2]
    assert "'--ensemble'" in cli("score", a, "--source", source, "--target", source, "--ensemble", a)[2]
