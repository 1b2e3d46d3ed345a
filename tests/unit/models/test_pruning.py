"""A pruned model directory: loads, translates as the masked model does, and can be pruned and trained again."""

from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.errors import UserError
from headwise.models.translation.translator import Translator
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.heads import Head, heads_by_layer
from headwise.pytorch.models.pruning import parse_count, write_pruned
from headwise.runtime.checkpoint.sidecar_files import write_alignment
from headwise.runtime.checkpoint.trained import read_settings, write_settings, write_weights
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.alignment import AlignmentHead

TEXTS = ["a little dog runs", "two cats", "", "the old sofa sleeps"]
REMOVED = {Head("encoder", 0, 1), Head("decoder", 1, 0), Head("cross", 0, 2), Head("cross", 0, 0)}


@pytest.fixture
def whole(tmp_path: Path) -> Translator:
    """A model with random weights, in a directory."""
    return made(tmp_path)


def made(tmp_path: Path, **more: Any) -> Translator:
    tokenizer = Tokenizer.train(TEXTS, TranslationData(vocab_size=270))
    shape = {"d_model": 12, "d_ff": 16, "n_heads": 3, "n_encoder_layers": 1, "n_decoder_layers": 2, **more}
    config = RunConfig(model=TransformerConfig(vocab_size=tokenizer.vocab_size, **shape))
    network = build_model(config.model)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter))
    corpus = {"train": ["t"], "valid": ["v"], "pairs": 1, "dropped": {}}
    about = {"corpus": corpus, "recipe": "tiny", "headwise": "0", "torch": "0", "python": "0"}
    write_settings(tmp_path / "whole", config, tokenizer, about)
    write_weights(tmp_path / "whole", dict(network.named_parameters()), "a card")
    return headwise.load(tmp_path / "whole", "cpu")


def outputs(model: Translator) -> tuple[list[str], list[float]]:
    translations = model.translate(TEXTS, max_length_factor=1.0, max_length_extra=3)
    return [t.text for t in translations], [t.log_prob for t in translations]


def test_pruned_model_translates_and_scores_as_the_masked_one(whole: Translator, tmp_path: Path) -> None:
    plain = outputs(whole)
    pruned = headwise.load(write_pruned(whole, REMOVED, tmp_path / "pruned"), "cpu")
    with whole.mask_heads(heads_by_layer(REMOVED)):
        texts, log_probs = outputs(whole)
        scores = [score.log_prob for score in whole.score(TEXTS, TEXTS)]
    assert log_probs != pytest.approx(plain[1], abs=1e-2)
    assert outputs(whole) == plain
    assert outputs(pruned)[0] == texts
    assert outputs(pruned)[1] == pytest.approx(log_probs, abs=1e-4)
    assert [score.log_prob for score in pruned.score(TEXTS, TEXTS)] == pytest.approx(scores, abs=1e-4)
    assert pruned.config.model.cross_heads == (1, 3)
    assert pruned.info()["parameters"] < whole.info()["parameters"]
    assert pruned.info()["pruned"] == "4 of 15 heads pruned from whole"
    assert "4 of 15 heads pruned from whole" in (tmp_path / "pruned" / "README.md").read_text()
    size = (tmp_path / "pruned" / "model.safetensors").stat().st_size
    assert size < (tmp_path / "whole" / "model.safetensors").stat().st_size


@pytest.mark.parametrize("more", [{"biases": False, "norm": "rms"}, {"n_kv_heads": 1, "biases": False}])
def test_what_a_recipe_may_ask_for(tmp_path: Path, more: dict[str, Any]) -> None:
    """Without biases heads go as ever; grouped queries share keys, so there they fall silent."""
    model = made(tmp_path, **more)
    with model.mask_heads(heads_by_layer(REMOVED)):
        texts, log_probs = outputs(model)
    folder = model.prune(heads_by_layer(REMOVED), tmp_path / "pruned")
    pruned = headwise.load(folder, "cpu")
    assert outputs(pruned)[0] == texts
    assert outputs(pruned)[1] == pytest.approx(log_probs, abs=1e-4)
    assert pruned.config.model.cross_heads == (() if "n_kv_heads" in more else (1, 3))


def test_pruned_model_is_pruned_again(whole: Translator, tmp_path: Path) -> None:
    once = headwise.load(write_pruned(whole, {Head("cross", 0, 0)}, tmp_path / "once"), "cpu")
    twice = headwise.load(write_pruned(once, {Head("cross", 0, 1)}, tmp_path / "twice"), "cpu")  # number 2 before
    at_once = write_pruned(whole, {Head("cross", 0, 0), Head("cross", 0, 2)}, tmp_path / "at_once")
    assert outputs(twice) == outputs(headwise.load(at_once, "cpu"))
    assert read_settings(at_once)[0].model == twice.config.model


@pytest.mark.parametrize(("chosen", "after"), [(None, None), (0, None), (1, 0), (2, None)])
def test_the_head_that_aligns_goes_by_its_new_number(
    whole: Translator, tmp_path: Path, chosen: int | None, after: int | None
) -> None:
    """Heads 0 and 2 of this layer go; who is gone is replaced by the mean."""
    write_alignment(whole.path, AlignmentHead(0, chosen, "reads").as_json())
    pruned = headwise.load(write_pruned(whole, REMOVED, tmp_path / "pruned"), "cpu")
    assert pruned.alignment_head == AlignmentHead(0, after, "reads")


def test_masks_nest_and_several_processes_are_not_used(whole: Translator) -> None:
    cross, encoder = {"cross": {0: [0]}}, {"encoder": {0: [1]}}
    whole.mask_heads(cross)
    masked = outputs(whole)
    with whole.mask_heads(encoder):
        assert outputs(whole)[1] != pytest.approx(masked[1], abs=1e-2)
    assert outputs(whole) == masked
    lines = whole.translate_lines(TEXTS, workers=2, max_length_factor=1.0, max_length_extra=3)
    assert [line.log_prob for line in lines] == pytest.approx(masked[1], abs=1e-4)
    whole.mask_heads({})
    assert outputs(whole)[1] != pytest.approx(masked[1], abs=1e-2)


def test_refusals(whole: Translator, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds a model already"):
        write_pruned(whole, REMOVED, tmp_path / "whole")
    with pytest.raises(UserError, match="every attention must keep a head"):
        write_pruned(whole, {Head("cross", 0, n) for n in range(3)}, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="cross layer 0 has no head 3"):
        whole.mask_heads({"cross": {0: [3]}})


@pytest.mark.parametrize("text", ["x", "30 percent", "", "0", "-5%", "100%", "48", "1.5", "nan%"])
def test_counts_that_make_no_sense(text: str) -> None:
    with pytest.raises(UserError, match=f"--heads {text}"):
        parse_count(text, 48)
