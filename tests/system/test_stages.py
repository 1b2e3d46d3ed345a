"""From one model to the next: runs that start from a model, and corpora written by a model."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwise
from headwise.models.translation.backtranslation import back_translate
from headwise.models.translation.distill import distill
from headwise.runtime.search.translator import Translation
from headwise.text.files.corpus import parse_corpora, read_pairs

START = ["train", "--device", "cpu"]
GENTLE = """
[model]
dropout = 0.2

[data]
vocab_size = 4000
max_length = 100

[train]
max_steps = 1
tokens_per_batch = 500
validate_bleu = 0

[decode]
beam_size = 2
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[str]:
    """Options for a training and a validation corpus of the copying task."""
    folder = tmp_path_factory.mktemp("files")
    train, valid = write(folder / "train", task(300, 5)), write(folder / "valid", task(20, 6))
    return ["--train", *map(str, train), "--valid", *map(str, valid)]


def test_a_run_starts_from_a_model(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "more"
    settings = ["train.max_steps=3", "train.log_every=1", "train.threads=1", "train.learning_rate=1e-5"]
    settings += ["train.tokens_per_batch=500", "train.validate_bleu=0", "model.dropout=0.1"]
    assert cli(*START, *files, "--set", *settings, "--init", model_path, "--out", out).code == 0
    first, more = headwise.load(model_path, "cpu"), headwise.load(out, "cpu")
    assert more.config.model == replace(first.config.model, dropout=0.1)
    assert more.config.train.warmup_steps == first.config.train.warmup_steps == 50  # without a recipe: the model's own
    assert (out / "tokenizer.json").read_bytes() == (model_path / "tokenizer.json").read_bytes()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["nll"] < 2  # a fresh model starts at ln(280) = 5.6
    assert f"| recipe | toy from the weights of `{model_path.name}`" in (out / "README.md").read_text()
    assert more.translate(["a b c"], beam_size=1)[0].text == "a b c"


def test_a_model_trained_here_is_fine_tuned(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    """The copying model is trained to leave out the last word, mixed with complete copies; the changes are logged."""
    copies = (Path(path).read_text().splitlines() for path in files[1:3])
    own, general = tmp_path / "own.tsv", tmp_path / "general.tsv"
    pairs = [*zip(*copies, strict=True)]
    own.write_text("".join(f"{src}\t{tgt.rpartition(' ')[0] or tgt}\n" for src, tgt in pairs), encoding="utf-8")
    general.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    settings = ["train.max_steps=60", "train.validate_every=60", "train.checkpoint_every=60", "train.threads=1"]
    settings += ["train.tokens_per_batch=500", "train.validate_bleu=20", "train.learning_rate=0.003"]
    settings += ["data.mix_share=0.1"]
    tune = ["tune", model_path, "--train", own, "--out", tmp_path / "out", "--device", "cpu"]
    ran = cli(*tune, "--general", general, "--set", *settings)
    assert ran.code == 0, ran.err
    assert "validating on" in ran.err and "held out of the training files (10%)" in ran.err
    found = re.search(r"before and after, on \d+ validation pairs: BLEU (\S+) and (\S+) \(p (\S+)\), chrF", ran.err)
    assert found and float(found[2]) > float(found[1]) + 5 and float(found[3]) < 0.05
    assert headwise.load(tmp_path / "out", "cpu").config.data.mix == str(general)


def test_the_rate_of_fine_tuning_is_a_quarter_of_the_model_s_own(
    model_path: Path, files: list[str], cli: Any, tmp_path: Path
) -> None:
    """Also if it is tuned again. The other settings are those of the recipe, and the search is that of the model."""
    settings = ["--set", "train.max_steps=1", "train.validate_bleu=0", "train.threads=1"]
    base = headwise.load(model_path, "cpu").config.train.learning_rate
    model = shutil.copytree(model_path, tmp_path / "model")
    search = {**json.loads((model / "generation_config.json").read_text()), "beam_size": 7, "length_penalty": 0.3}
    (model / "generation_config.json").write_text(json.dumps(search))
    for origin, out in ((model, tmp_path / "once"), (tmp_path / "once", tmp_path / "twice")):
        ran = cli("tune", origin, *files, *settings, "--out", out, "--device", "cpu")
        assert ran.code == 0, ran.err
        train = json.loads((out / "config.json").read_text())["train"]
        assert train["learning_rate"] == base / 4
        assert (train["warmup_steps"], train["clip_norm"], train["patience"]) == (100, 1.0, 5)
        assert json.loads((out / "generation_config.json").read_text()) == search
    ran = cli(
        "tune", model_path, *files, *settings, "train.learning_rate=0.5", "--out", tmp_path / "set", "--device", "cpu"
    )
    assert json.loads((tmp_path / "set/config.json").read_text())["train"]["learning_rate"] == 0.5


def test_a_recipe_without_an_architecture_fits_any_model(
    model_path: Path, files: list[str], cli: Any, tmp_path: Path
) -> None:
    recipe = tmp_path / "gentle.toml"
    recipe.write_text(GENTLE, encoding="utf-8")
    ran = cli(*START, "--recipe", recipe, *files, "--init", model_path, "--out", tmp_path / "out")
    assert ran.code == 0
    assert f"data.vocab_size = 4000 of {recipe} is ignored: the tokenizer is that of {model_path}\n" in ran.err
    first, more = headwise.load(model_path, "cpu").config, headwise.load(tmp_path / "out", "cpu").config
    assert more.model == replace(first.model, dropout=0.2)
    assert (more.train.max_steps, more.train.warmup_steps, more.decode.beam_size) == (1, 4000, 2)  # 4000: the default
    assert (more.data.vocab_size, more.data.max_length) == (280, 100)
    assert "| recipe | gentle from the weights of " in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--recipe", "small"], "--recipe small: model.d_model = 256, but the model in --init"),
        (["--recipe", "lstm"], "--recipe lstm: model.architecture = recurrent, but the model in --init"),
        (["--set", "model.d_model=64"], "--set model.d_model=64: the shape is that of --init"),
        (["--set", "data.vocab_size=300"], "--set data.vocab_size=300: the tokenizer is that of --init"),
        (["--set", "data.tokenizer=x.json"], "--set data.tokenizer=x.json: the tokenizer is that of --init"),
        (["--special", "<2de>"], "--special <2de>: cannot be added to the tokenizer of --init"),
    ],
)
def test_changes_that_a_model_does_not_allow(
    more: list[str], expected: str, model_path: Path, files: list[str], cli: Any, tmp_path: Path
) -> None:
    complaint = cli(*START, *more, *files, "--init", model_path, "--out", tmp_path / "out").complaint
    assert expected in complaint
    assert str(model_path) in complaint
    assert not (tmp_path / "out").exists()


def test_special_tokens_of_another_tokenizer(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    tokenizer = f"data.tokenizer={model_path / 'tokenizer.json'}"
    run = [*START, "--recipe", "tiny", *files, "--set", tokenizer, "--special", "<2de>", "--out", tmp_path / "out"]
    assert "--special <2de>: cannot be added to the tokenizer data.tokenizer = " in cli(*run).complaint


def test_a_run_does_not_start_from_other_files(files: list[str], cli: Any, tmp_path: Path) -> None:
    ran = cli("train", "--recipe", "tiny", *files, "--init", tmp_path / "none", "--out", tmp_path / "out")
    assert f"--init {tmp_path / 'none'}: no such model directory" in ran.complaint
    assert not (tmp_path / "out").exists()


def test_a_model_writes_a_corpus(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "distilled.jsonl"
    assert cli("distill", model_path, *files[:3], "-o", out, "--beam-size", 2, "--workers", 1).code == 0
    taught, given = (list(read_pairs(parse_corpora(names))) for names in ([str(out)], files[1:3]))
    assert [src for src, _ in taught] == [src for src, _ in given]
    sources = [src for src, _ in given]
    translations = headwise.load(model_path, "cpu").translate(sources, beam_size=2)
    assert [tgt for _, tgt in taught] == [translation.text for translation in translations]


def test_another_suffix_is_refused(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    assert ".jsonl" in cli("distill", model_path, *files[:3], "-o", tmp_path / "out.txt").complaint


def translation(text: str, *others: str) -> Translation:
    return Translation(text, 0.0, 0.0, [], [], [], 1, tuple(translation(other) for other in others))


def test_the_whole_n_best_list_becomes_pairs(model_path: Path, files: list[str], cli: Any, tmp_path: Path) -> None:
    """In the order of their scores, each text once; empty translations give no pair."""
    out = tmp_path / "distilled.jsonl"
    assert cli("distill", model_path, *files[:3], "-o", out, "--n-best", 3, "--beam-size", 4).code == 0
    sources = [src for src, _ in read_pairs(parse_corpora(files[1:3]))]
    found = headwise.load(model_path, "cpu").translate(sources, n_best=3, beam_size=4)
    texts = [dict.fromkeys([best.text, *(other.text for other in best.alternatives)]) for best in found]
    wanted = [(src, text) for src, each in zip(sources, texts, strict=True) for text in each if text]
    assert list(read_pairs(parse_corpora([str(out)]))) == wanted
    assert len(wanted) > 2.5 * len(sources)
    pairs = [("eins", "one"), ("nichts", "nothing")]
    listed = [translation("one", "an", "one", ""), translation("")]
    assert list(distill(pairs, lambda _: listed)) == [("eins", "one"), ("eins", "an")]


def test_interpolation_chooses_the_hypothesis_closest_to_the_reference() -> None:
    pairs = [("eins zwei", "one two"), ("", "nothing"), ("drei", "three")]
    found = [translation("two one", "one two", "two"), translation(""), translation("three", "tree")]
    assert list(distill(pairs, lambda _: found, interpolate=True)) == [("eins zwei", "one two"), ("drei", "three")]


def searched(text: str) -> Translation:
    return replace(translation(text), pieces=text.split())


def test_lines_become_targets_and_bad_translations_are_counted() -> None:
    lines = ["drei Hunde", " ", "ein Hund", "ja ja ja ja", "Hunde", "100000"]
    loop = "a dog a dog a dog a dog"
    answers = {"drei Hunde": "three dogs", "ein Hund": "", "ja ja ja ja": "yes yes yes yes", "Hunde": loop}
    answers["100000"] = "1 0 0 0 0 0"
    asked, left_out = list[str](), Counter[str]()

    def translate(texts: Any) -> Any:
        for text in texts:
            asked.append(text)
            yield searched(answers[text])

    pairs = list(back_translate(lines, translate, "<bt>", left_out))
    kept = ["drei Hunde", "ja ja ja ja", "100000"]
    assert pairs == [(f"<bt> {answers[line]}", line) for line in kept]
    assert asked == [line for line in lines if line.strip()]
    assert left_out == {"blank line": 1, "empty translation": 1, "translation that repeats itself": 1}


def test_memory_does_not_grow_with_the_lines() -> None:
    """Only as many lines are read as the model requests."""
    read = []

    def lines() -> Any:
        for number in range(100):
            read.append(number)
            yield f"line {number}"

    pairs = back_translate(lines(), lambda texts: (searched(text) for text in texts))
    assert next(pairs) == ("line 0", "line 0")
    assert read == [0]


@pytest.mark.parametrize("ending", ["jsonl", "tsv"])
def test_text_is_translated_back(ending: str, model_path: Path, cli: Any, tmp_path: Path) -> None:
    out, more = tmp_path / f"out.{ending}", tmp_path / "more.de"
    (tmp_path / "mono.de").write_text("a b c\n\nj\ti\n", encoding="utf-8")
    more.write_text("d d e", encoding="utf-8")
    ran = cli("backtranslate", model_path, "--text", tmp_path / "mono.de", more, "--tag", "<bt>", "-o", out)
    assert ran.code == 0, ran.err
    (first, tabbed, last) = read_pairs(parse_corpora([str(out)]))
    assert (first, last) == (("<bt> a b c", "a b c"), ("<bt> d d e", "d d e"))
    assert tabbed[1] == ("j\ti" if ending == "jsonl" else "j i")
    assert f"{out}: 3 pairs of 4 lines; left out 1 for: blank line\n" in ran.err
    assert ran.err.endswith(f"headwise train --train SRC TGT {out} --special '<bt>' ...\n")


def test_sources_are_sampled_on_request(model_path: Path, cli: Any, tmp_path: Path) -> None:
    text, drawn = tmp_path / "mono.de", []
    text.write_text("".join(f"a b c {x}\n" for x in "abcdefgh"), encoding="utf-8")
    run = ["backtranslate", model_path, "--text", text, "--sample", "--temperature", 3, "--top-k", 8]
    for name in ("one", "two"):
        assert cli(*run, "-o", tmp_path / f"{name}.jsonl").code == 0
        drawn.append([src for src, _ in read_pairs(parse_corpora([str(tmp_path / f"{name}.jsonl")]))])
    assert drawn[0] == drawn[1]  # decode.seed
    assert sum(src != f"a b c {x}" for src, x in zip(drawn[0], "abcdefgh", strict=True)) > 3


def test_no_partial_output(model_path: Path, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "mono.de").write_bytes(b"a b c\n\xff\n")
    run = ["backtranslate", model_path, "--text", tmp_path / "mono.de", "-o", tmp_path / "out.jsonl"]
    assert f"{tmp_path / 'mono.de'}: line 2 is not UTF-8" in cli(*run).complaint
    assert [path.name for path in tmp_path.iterdir()] == ["mono.de"]
    assert "-o out.txt: give it the ending .jsonl or .tsv" in cli(*run[:-1], "out.txt").complaint
