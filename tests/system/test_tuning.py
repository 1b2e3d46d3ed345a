"""Fine-tuning pretrained encoder-decoders: `headwise train --init FOLDER`.

The models are tiny and random. They learn a few dozen pairs by heart, which shows that everything trains.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

import headwise
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.engine import decode_tokens

Cli = Callable[..., Any]
TASKS = {"task_specific_params": {"translation_de_to_it": {"prefix": "to it: "}}}
CASES = {"marian": {}, "t5": {"num_layers": 2, **TASKS}, "m2m": {}, "bart": {"model_type": "bart"}}
ASKED = {"t5": ("de", "it"), "m2m": ("de", "fr")}
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=20", "train.log_every=20",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.validate_bleu=4", "train.threads=1"]  # fmt: skip
NO_DROPOUT = {"dropout": 0.0, "dropout_rate": 0.0}


def write(folder: Path, name: str, **changes: Any) -> list[str]:
    """A folder, and the language options of commands."""
    kind, settings = name, {"max_length": 20, "num_beams": 2}
    if name == "bart":
        kind, settings = "marian", settings | {"forced_bos_token_id": 0}
    write_tiny(folder, kind, {**CASES[name], **NO_DROPOUT, **changes}, settings)
    return [f"--{side}-language={code}" for side, code in zip(("source", "target"), ASKED.get(name, ()), strict=False)]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Options for training and validation pairs."""
    pairs = [(f"A dog runs {i} .", f"Ein Hund rennt {i} .") for i in range(40)]
    for place, side in enumerate(("src", "tgt")):
        (tmp_path / f"a.{side}").write_text("".join(pair[place] + "\n" for pair in pairs), encoding="utf-8")
    both = [str(tmp_path / f"a.{side}") for side in ("src", "tgt")]
    return ["--train", *both, "--valid", *both]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_training_keeps_the_layout(cli: Cli, files: list[str], tmp_path: Path, name: str) -> None:
    languages = write(tmp_path / "model", name)
    ran = cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", "--set", *QUICK, *languages)
    assert ran.code == 0, ran.err
    figures = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    assert [row["step"] for row in figures] == [0, 20, 40]
    assert figures[-1]["loss"] < figures[0]["loss"] - 1
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("model", "out"))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    moved = [key for key in before if not torch.equal(before[key], after[key])]
    assert set(before) - set(moved) <= {"final_logits_bias"} and len(moved) > 20
    for file in ("config.json", "tokenizer.json", "generation_config.json"):
        assert json.loads((tmp_path / "out" / file).read_text()) == json.loads((tmp_path / "model" / file).read_text())
    scored = cli("score", tmp_path / "out", "--source", files[1], "--target", files[2], *languages)
    total = sum(json.loads(line)["log_prob"] for line in scored.out.splitlines())
    pieces = sum(len(json.loads(line)["token_log_probs"]) for line in scored.out.splitlines())
    assert -total / pieces == pytest.approx(figures[-1]["loss"], rel=1e-3)  # the saved model is the validated one
    assert "training.json" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "kept"), [("t5", 2), ("marian", 1)])
def test_pairs_of_uneven_length_are_kept_for_summarisation_only(cli: Cli, tmp_path: Path, name: str, kept: int) -> None:
    """Summarisation models train on long texts with short outputs; for translation models such pairs are dropped as
    misaligned, and the setting is named.
    """
    languages = write(tmp_path / "model", name)
    (tmp_path / "a.tsv").write_text("a b c d e f g h i j k l m n o p\tab\na dog\tein Hund\n", encoding="utf-8")
    asked = ["train", "--init", tmp_path / "model", "--train", tmp_path / "a.tsv", "--valid", tmp_path / "a.tsv",
             *languages, "--set", *QUICK, "train.max_steps=1", "train.validate_bleu=0"]  # fmt: skip
    ran = cli(*asked, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert f"training on {kept} of 2 pairs" in ran.err
    assert ("; dropped 1: more uneven than data.max_length_ratio" in ran.err) == (kept == 1)
    other = cli(*asked, f"data.max_length_ratio={9 if kept == 2 else 0}", "--out", tmp_path / "other")
    assert f"training on {3 - kept} of 2 pairs" in other.err


def test_held_out_pairs_fit_the_positions_of_the_model(cli: Cli, tmp_path: Path) -> None:
    """They were chosen by the command, so those that are too long are dropped; a user's own ones are refused."""
    write(tmp_path / "model", "bart", max_position_embeddings=20)
    pairs = [f"{'a dog ' * words}{i}\t{'ein Hund ' * words}{i}\n" for i in range(30) for words in (1, 12)]
    (tmp_path / "a.tsv").write_text("".join(pairs), encoding="utf-8")
    asked = ["tune", tmp_path / "model", "--train", tmp_path / "a.tsv", "--out", tmp_path / "out"]
    settings = ["--set", *QUICK, "train.max_steps=1"]
    ran = cli(*asked, "--valid", "20%", *settings)
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.err.splitlines() if re.match(r"validating on \d+ of 12;", line)]
    assert line.endswith(": longer than data.max_length") and 0 < int(line.split()[2]) < 12
    refused = cli(*asked[:-1], tmp_path / "other", "--valid", tmp_path / "a.tsv", *settings)
    assert refused.code == 2 and "more than model.max_len = 20" in refused.err


def test_dropout_is_that_of_the_checkpoint_unless_it_is_set(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model", "marian", dropout=0.25, attention_dropout=0.1)
    for out, more, expected in (("a", [], 0.25), ("b", ["model.dropout=0.5"], 0.5)):
        settings = [*QUICK, "train.max_steps=1", *more]
        ran = cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / out, "--set", *settings)
        assert ran.code == 0, ran.err
        card = (tmp_path / out / "README.md").read_text(encoding="utf-8")
        assert f"besides {expected}: attention 0.1" in card
        assert json.loads((tmp_path / out / "training.json").read_text())["model"]["dropout"] == expected


def test_dropout_drops(tmp_path: Path) -> None:
    from headwise.pytorch.tasks.pretrained import make_trainable
    from headwise.pytorch.tasks.translation import FINE_TUNING

    write(tmp_path, "marian")
    network = make_trainable(FINE_TUNING.read(str(tmp_path)).network, 0.5).train()
    src = torch.tensor([[20, 21, 22]])
    assert not torch.equal(network.encode(src), network.encode(src))
    assert torch.equal(network.eval().encode(src), network.encode(src))


@pytest.mark.thorough
def test_a_resumed_run_repeats_the_uninterrupted_one(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model", "marian", dropout=0.1)
    start, settings = ["train", "--init", tmp_path / "model", *files], [*QUICK, "train.schedule=constant"]
    assert cli(*start, "--out", tmp_path / "whole", "--set", *settings).code == 0
    assert cli(*start, "--out", tmp_path / "parts", "--set", *settings, "train.max_steps=20").code == 0
    refused = cli(*start, "--out", tmp_path / "parts", "--set", *settings, "train.weight_decay=0.5", "--resume")
    assert "train.weight_decay was 0.0, now 0.5" in refused.complaint
    ran = cli(*start, "--out", tmp_path / "parts", "--set", *settings, "--resume")
    assert ran.code == 0, ran.err
    assert "resuming after step 20" in ran.err
    whole, parts = (load_file(tmp_path / folder / "model.safetensors") for folder in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)


@pytest.mark.thorough
def test_a_worse_model_is_not_kept(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """The model is evaluated before the first update, unless it is no better than chance."""
    write(tmp_path / "model", "marian")
    assert cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "good", "--set", *QUICK).code == 0
    settings = [*QUICK, "train.learning_rate=3.0", "train.max_steps=20"]
    ran = cli("train", "--init", tmp_path / "good", *files, "--out", tmp_path / "worse", "--set", *settings)
    assert ran.code == 0, ran.err
    kept, first = (load_file(tmp_path / folder / "model.safetensors") for folder in ("worse", "good"))
    assert all(torch.equal(kept[key], first[key]) for key in first)


def test_half_precision_becomes_float32(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model", "marian", torch_dtype="float16")
    path = tmp_path / "model" / "model.safetensors"
    save_file({key: value.half() for key, value in load_file(path).items()}, path, {"format": "pt"})
    settings = [*QUICK, "train.max_steps=2"]
    assert cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", "--set", *settings).code == 0
    assert {value.dtype for value in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.float32}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "float32"


def test_an_imported_folder_stays_imported(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model", "marian")
    assert cli("import", tmp_path / "model", tmp_path / "ours").code == 0
    settings = [*QUICK, "train.max_steps=2"]
    ran = cli("train", "--init", tmp_path / "ours", *files, "--out", tmp_path / "out", "--set", *settings)
    assert ran.code == 0, ran.err
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("ours", "out"))
    assert before.keys() == after.keys()
    assert headwise.load(tmp_path / "out", "cpu").translate(["A dog"])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--set", "model.d_model=32"], "--set model.d_model=32: the shape is that of --init"),
        (["--set", "data.vocab_size=300"], "the tokenizer is that of --init"),
        (["--recipe", "tiny"], "--recipe tiny: model.d_model = 128, but the model in --init"),
        (["--set", "data.bpe_dropout=0.1"], "data.bpe_dropout = 0.1: a pretrained model keeps its vocabulary"),
        (
            ["--set", "decode.beam_size=2"],
            "decode.beam_size = 2: a pretrained model uses the search settings",
        ),
        (["--special", "<s>"], "has this token already; leave it out"),
        (
            ["--task", "forecast"],
            ", and the task is forecast: leave one of the two out",
        ),
        (
            ["--task", "classify"],
            "is a bart model that reads a text and writes another; this task needs an encoder",
        ),
        (
            ["--set", "data.max_length=300"],
            "model.max_len = 200 is less than data.max_length = 300; the limit",
        ),
    ],
)
def test_unsupported_options(cli: Cli, files: list[str], tmp_path: Path, more: list[str], expected: str) -> None:
    write(tmp_path / "model", "bart")
    ran = cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", *more)
    assert expected in ran.complaint
    assert not (tmp_path / "out").exists()


def test_a_multilingual_model_requires_languages(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write(tmp_path / "model", "m2m")
    ran = cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out")
    assert "--source-language and --target-language" in ran.complaint


def test_other_networks_are_refused(cli: Cli, files: list[str], tmp_path: Path) -> None:
    write_tiny(tmp_path / "model", "gpt2")
    ran = cli("train", "--task", "translate", "--init", tmp_path / "model", *files, "--out", tmp_path / "out")
    assert "is a gpt2 model that continues texts; this task needs an encoder-decoder of text" in ran.complaint


@pytest.mark.thorough
def test_transformers_loads_the_result(cli: Cli, files: list[str], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write(tmp_path / "model", "marian")
    assert cli("train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", "--set", *QUICK).code == 0
    code = "import sys, torch, transformers as t\nm = t.MarianMTModel.from_pretrained(sys.argv[1])\n"
    code += "print(m.generate(torch.tensor([[20, 21, 2]]), num_beams=1, max_length=9, "
    code += "decoder_start_token_id=1, eos_token_id=2, pad_token_id=1)[0].tolist())"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "out"], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    model = headwise.load(tmp_path / "out", "cpu")
    settings = model.settings(beam_size=1, max_new_tokens=8)
    special = replace(model.generation.special, source_end=())
    own = decode_tokens(engine_of(model.network), [[20, 21, 2]], settings, special)[0][0]
    assert json.loads(ran.stdout)[1 : 1 + len(own.tokens)] == own.tokens


@pytest.mark.thorough
def test_general_pairs_are_mixed_in(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """They are trained on in the stated proportion; resumes are exact, and not possible with other files."""
    write(tmp_path / "model", "marian", dropout=0.1)
    general = tmp_path / "general.tsv"
    general.write_text("".join(f"The cat {i}\tDie Katze {i}\n" for i in range(40)), encoding="utf-8")
    start, settings = ["train", "--init", tmp_path / "model", *files], [*QUICK, "train.schedule=constant"]
    mix = [f"data.mix={general}", "data.mix_share=0.5"]
    assert cli(*start, "--out", tmp_path / "whole", "--set", *settings, *mix).code == 0
    assert cli(*start, "--out", tmp_path / "parts", "--set", *settings, *mix, "train.max_steps=20").code == 0
    ran = cli(*start, "--out", tmp_path / "parts", "--set", *settings, *mix, "--resume")
    assert ran.code == 0 and "resuming after step 20" in ran.err, ran.err
    assert cli(*start, "--out", tmp_path / "plain", "--set", *settings).code == 0
    whole, parts = (load_file(tmp_path / one / "model.safetensors") for one in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    sources, targets = tmp_path / "g.src", tmp_path / "g.tgt"
    sources.write_text("The cat 3\nThe cat 7\n"), targets.write_text("Die Katze 3\nDie Katze 7\n")
    scored = [cli("score", tmp_path / one, "--source", sources, "--target", targets).out for one in ("whole", "plain")]
    mixed, alone = (sum(json.loads(line)["log_prob"] for line in out.splitlines()) for out in scored)
    assert mixed > alone + 10
    with general.open("a", encoding="utf-8") as file:
        file.write("A bird\tEin Vogel\n")
    more = [*settings, *mix, "train.max_steps=60"]
    refused = cli(*start, "--out", tmp_path / "parts", "--set", *more, "--resume")
    assert "the data.mix files differ from those of the run" in refused.complaint


@pytest.mark.thorough
def test_pairs_are_added_to_a_run(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """With a tenth of the first pairs held out, and general pairs mixed in; resumed exactly."""
    write(tmp_path / "model", "marian", dropout=0.1)
    for name, word in (("general", "cat"), ("more", "bird")):
        lines = "".join(f"The {word} {i}\tDas {word} {i}\n" for i in range(30))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    start = ["tune", tmp_path / "model", *files[:3], "--general", tmp_path / "general.tsv", "--set", *QUICK]
    start += ["train.schedule=constant", "train.checkpoint_every=10"]
    more = ["--resume", "--add", tmp_path / "more.tsv"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for out, steps in ((whole, 40), (parts, 30)):
        assert cli(*start, "train.max_steps=20", "--out", out).code == 0
        ran = cli(*start, f"train.max_steps={steps}", *more, "--out", out)
        assert ran.code == 0 and "adding more.tsv to the training files: this epoch is" in ran.err, ran.err
    assert cli(*start, *more, "--out", parts).code == 0
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    about = json.loads((whole / "training.json").read_text(encoding="utf-8"))
    assert {"step": 20, "added": ["more.tsv"]} in about["changes"] and about["corpus"]["held_out"]["taken"] == 4
    assert "| changes | after step 20: added more.tsv" in (whole / "README.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_changes_are_reported_at_the_end(cli: Cli, files: list[str], tmp_path: Path) -> None:
    """BLEU and chrF++ of the initial and the fine-tuned model on the validation set, with a significance test."""
    write(tmp_path / "model", "marian")
    start = ["train", "--init", tmp_path / "model", *files, "--out", tmp_path / "out", "--set", *QUICK]
    start += ["train.schedule=constant", "train.validate_every=100"]
    ran = cli(*start, "train.max_steps=300", "train.validate_bleu=8")
    assert ran.code == 0, ran.err
    found = re.search(r"before and after, on 8 validation pairs: BLEU (\S+) and (\S+) \(p (\S+)\), chrF", ran.err)
    assert found
    before, after, p = (float(one) for one in found.groups())
    rows = [json.loads(line) for line in (tmp_path / "out" / "validation.jsonl").read_text().splitlines()]
    assert before == pytest.approx(rows[0]["bleu"], abs=0.01)
    assert after == pytest.approx([row["bleu"] for row in rows if row["best"]][-1], abs=0.01)
    assert after > before + 10 and p < 0.05
    ran = cli(*start, "train.max_steps=301", "train.validate_bleu=0", "--resume")
    assert ran.code == 0 and "before and after" not in ran.err, ran.err
