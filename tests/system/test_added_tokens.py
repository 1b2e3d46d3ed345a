"""Adding tokens to a pretrained model, such as a language code: `train --init FOLDER --special NEW=COPY_OF`."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_families import write_tiny

import headwise

Cli = Callable[..., Any]
QUICK = ["train.max_steps=10", "train.validate_every=10", "train.checkpoint_every=5", "train.log_every=10",
         "train.learning_rate=0.01", "train.warmup_steps=2", "train.validate_bleu=2", "train.threads=1"]  # fmt: skip
LANGUAGES = ["--source-language=de", "--target-language=new_Latn"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for side, text in (("de", "Ein Hund rennt {} .\n"), ("new", "A dog runs {} .\n")):
        (tmp_path / f"a.{side}").write_text("".join(text.format(i) for i in range(20)), encoding="utf-8")
    both = [str(tmp_path / f"a.{side}") for side in ("de", "new")]
    return ["--train", *both, "--valid", *both]


def test_a_new_language(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write_tiny(tmp_path / "base", "m2m", {}, {"max_length": 12}, additional_special_tokens=["__de__"])
    out, start = tmp_path / "out", tmp_path / "out" / "base-grown" / "model.safetensors"
    command = ["train", "--init", tmp_path / "base", *files, "--out", out, "--special", "new_Latn=__fr__", "other",
               *LANGUAGES, "--set", *QUICK]  # fmt: skip
    ran = cli(*command, "train.max_steps=5")
    assert ran.code == 0, ran.err
    assert "added to the vocabulary: new_Latn (265, a copy of __fr__), other (266, a copy of the mean)" in ran.err
    before, grown = (load_file(path)["model.shared.weight"] for path in (tmp_path / "base/model.safetensors", start))
    assert torch.equal(grown[:265], before) and torch.equal(grown[265], before[6])
    torch.testing.assert_close(grown[266], before.mean(0))
    written = start.stat().st_mtime_ns
    ran = cli(*command, "--resume")
    assert ran.code == 0 and "resuming after step 5" in ran.err, ran.err
    assert start.stat().st_mtime_ns == written
    assert json.loads((out / "config.json").read_text())["vocab_size"] == 267
    assert json.loads((out / "tokenizer_config.json").read_text())["additional_special_tokens"][1:] == [
        "new_Latn",
        "other",
    ]
    assert cli("translate", out, files[1], *LANGUAGES).code == 0
    without = [one for one in command if one != "other"]
    without[without.index("new_Latn=__fr__")] = "third"
    assert "--special third: the run in" in cli(*without, "--resume").complaint


def test_transformers_loads_it(cli: Cli, files: list[str], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
    write_tiny(tmp_path / "base", "marian", {}, {"max_length": 12})
    ran = cli("train", "--init", tmp_path / "base", *files, "--out", tmp_path / "out", "--special", "<term>=a", "--set",
              *QUICK, "train.lora_rank=2")  # fmt: skip
    assert ran.code == 0, ran.err
    assert cli("export", tmp_path / "out", "--to", "hf", tmp_path / "whole").code == 0
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "whole")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "whole")
    ids = tokenizer("a <term> b").input_ids
    assert 265 in ids and theirs.config.vocab_size == 266 and theirs.final_logits_bias.shape == (1, 266)
    ours = headwise.load(tmp_path / "out", "cpu")
    assert ours.vocabulary.encode("a <term> b") == ids
    src = torch.tensor([ids])
    logits = theirs(input_ids=src, decoder_input_ids=src).logits
    found = ours.network.logits(ours.network.states(src, src, torch.ones_like(src, dtype=torch.bool)))
    torch.testing.assert_close(found, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        ("__de__=a", "--special __de__: "),
        ("<new>=nowhere", "has no token nowhere to copy"),
    ],
)
def test_refused_tokens(cli: Cli, files: list[str], tmp_path: Path, special: str, expected: str) -> None:
    write_tiny(tmp_path / "base", "marian")
    refused = cli("train", "--init", tmp_path / "base", *files, "--out", tmp_path / "out", "--special", special)
    assert refused.code == 2 and expected in refused.complaint


def test_a_vocabulary_that_cannot_grow(tmp_path: Path) -> None:
    from headwise.errors import UserError
    from headwise.pytorch.checkpoint.added_tokens import _add_to_vocabulary

    (tmp_path / "source.spm").touch()
    (tmp_path / "vocab.json").write_text('{"a": 0, "<pad>": 1}')
    assert _add_to_vocabulary(tmp_path, [">>new<<"]) == {">>new<<": 2}
    assert json.loads((tmp_path / "vocab.json").read_text()) == {"a": 0, "<pad>": 1, ">>new<<": 2}
    with pytest.raises(UserError, match="tokens can be added to"):
        _add_to_vocabulary(tmp_path, ["word"])


def test_a_vocabulary_as_large_as_the_network_is_wide(cli: Cli, tmp_path: Path) -> None:
    """Only tensors with a row per token grow, even if others have the same size."""
    from headwise.pytorch.checkpoint.added_tokens import write_with_added_tokens

    write_tiny(tmp_path / "base", "gpt2", {"n_embd": 268, "n_head": 2, "n_inner": 8, "n_layer": 1, "vocab_size": 268})
    ids = write_with_added_tokens(tmp_path / "base", {"<x>": "a", "<y>": "", "<z>": "", "<w>": ""}, tmp_path / "grown")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "grown"))
    grown = {key for key in before if before[key].shape != after[key].shape}
    assert grown == {"transformer.wte.weight"} and max(ids.values()) == 268
    assert after["transformer.wte.weight"].shape == (269, 268)


def test_a_captioner_grows_in_its_decoder(cli: Cli, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    write_tiny(tmp_path / "base", "captions")
    image.new("RGB", (8, 8), (200, 30, 20)).save(tmp_path / "red.png")
    (tmp_path / "c.tsv").write_text("red.png\ta <x> field\n", encoding="utf-8")
    files = ["--train", tmp_path / "c.tsv", "--valid", tmp_path / "c.tsv", "--out", tmp_path / "out"]
    ran = cli("train", "--init", tmp_path / "base", *files, "--special", "<x>=a", "--set",
              *(one for one in QUICK if "bleu" not in one))  # fmt: skip
    assert ran.code == 0, ran.err
    there, begun = (json.loads((tmp_path / name / "config.json").read_text())["decoder"]["vocab_size"]
                    for name in ("base", "out"))  # fmt: skip
    assert begun == there + 1
    assert headwise.load(tmp_path / "out", "cpu").tokenizer.id_of("<x>") == there
    assert cli("caption", tmp_path / "out", tmp_path / "red.png").code == 0
