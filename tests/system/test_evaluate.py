"""Evaluating, scoring and describing a model from the command line."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import headwise
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.native.library import instructions, library


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory, task: Any, write: Any) -> list[Path]:
    return write(tmp_path_factory.mktemp("test") / "set", task(25, 4))


def test_json_has_scores_signatures_and_settings(model_path: Path, test_set: list[Path], cli: Any) -> None:
    source, reference = test_set
    ran = cli(
        "evaluate", model_path, "--source", source, "--reference", reference, "--format", "json", "--beam-size", 2
    )
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    for name, perfect in (("BLEU", 100.0), ("chrF++", 100.0), ("TER", 0.0)):
        assert report[name].keys() == {"score", "signature"}
        assert report[name]["score"] == pytest.approx(perfect, abs=10)  # a line in 25 may be wrong
        assert "version:" in report[name]["signature"]
    assert (report["decoding"]["beam_size"], report["decoding"]["length_penalty"]) == (2, 0.6)
    assert report["sentences"] == 25


def test_against_another_model(model_path: Path, test_set: list[Path], cli: Any, tmp_path: Path) -> None:
    source, reference = test_set
    saved = tmp_path / "hypotheses.txt"
    shared = ["evaluate", model_path, "--source", source, "--reference", reference, "--against", model_path]
    ran = cli(*shared, "--format", "json", "--save", saved)
    comparison = json.loads(ran.out)["against"]["BLEU"]
    assert comparison["a"] == comparison["b"]
    assert comparison["p_value"] == 1.0
    translated = cli("translate", model_path, source).out
    assert saved.read_text(encoding="utf-8") == translated


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_leaves_the_scores(model_path: Path, test_set: list[Path], cli: Any) -> None:
    shared = ["evaluate", model_path, "--source", test_set[0], "--reference", test_set[1]]
    ran = cli(*shared, "--save", "/dev/full")
    assert ran.code == 2 and ran.out == cli(*shared).out
    assert "--save /dev/full: cannot be written (No space left on device)" in ran.err


def test_the_report_as_text(model_path: Path, test_set: list[Path], cli: Any) -> None:
    source, reference = test_set
    ran = cli("evaluate", model_path, "--source", source, "--reference", reference, reference)
    first, *_, last = ran.lines
    assert first.startswith("BLEU")
    assert "nrefs:2" in first
    assert last == "25 sentences, beam 5, length penalty 0.6"


def test_length_ratio_and_brevity_penalty_are_in_every_report(model_path: Path, test_set: list[Path], cli: Any) -> None:
    source, reference = test_set
    shared = ["evaluate", model_path, "--source", source, "--reference", reference]
    length = json.loads(cli(*shared, "--format", "json").out)["length"]["BLEU"]
    assert length["ratio"] == length["hypothesis"] / length["reference"] == pytest.approx(1, abs=0.05)
    assert cli(*shared).lines[1].strip().startswith(f"length ratio {length['ratio']:.3f} ({length['hypothesis']} of ")
    assert cli(*shared).lines[1].endswith(f"brevity penalty {length['brevity_penalty']:.3f}")


def test_a_file_of_translations_is_scored_as_the_model_is(
    model_path: Path, test_set: list[Path], cli: Any, tmp_path: Path
) -> None:
    source, reference = test_set
    saved = tmp_path / "hypotheses.txt"
    ran = cli("evaluate", model_path, "--source", source, "--reference", reference, "--format", "json", "--save", saved)
    expected = json.loads(ran.out)
    del expected["decoding"]
    shared = ["evaluate", "--hypothesis", saved, "--reference", reference]
    assert json.loads(cli(*shared, "--format", "json").out) == expected
    assert cli(*shared).lines[-1] == "25 sentences"
    against = json.loads(cli(*shared, "--against", source, "--format", "json").out)["against"]["BLEU"]
    assert against["b"]["score"] == pytest.approx(100.0)  # the task is to copy
    short = tmp_path / "short.txt"
    short.write_text("a\n", encoding="utf-8")
    complaint = cli("evaluate", "--hypothesis", short, "--reference", reference).complaint
    assert f"{short} has 1 line but {reference} has 25" in complaint


def test_the_best_length_penalty_is_kept_in_the_model(
    model_path: Path, test_set: list[Path], cli: Any, tmp_path: Path
) -> None:
    model, (source, reference) = tmp_path / "model", test_set
    shutil.copytree(model_path, model)
    settings = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))
    settings["length_penalty"] = 0.3
    (model / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    shared = ["evaluate", model, "--source", source, "--reference", reference]
    before = (model / "README.md").read_text(encoding="utf-8")
    ran = cli(*shared, "--tune", "length_penalty", "--format", "json")
    assert "tune on validation data" in ran.err
    best = json.loads(ran.out)["length_penalty"]
    assert (model / "README.md").read_text(encoding="utf-8") == before  # nothing is saved without the option

    ran = cli(*shared, "--tune", "length_penalty", "--save")
    assert ran.lines[0].startswith("length penalty")
    assert any(line.endswith("the model's own") for line in ran.lines)
    kept = json.loads((model / "generation_config.json").read_text(encoding="utf-8"))
    assert kept == {**settings, "length_penalty": best["best"]}
    row = f"| decoding | length penalty {best['best']}, the best of "
    card = (model / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in card if line.startswith(row)] == [line for line in card if "| decoding" in line]
    assert len(card) == len(before.splitlines()) + 1
    assert cli(*shared).lines[-1] == f"25 sentences, beam 5, length penalty {best['best']}"


def test_score_gives_log_probabilities_and_the_perplexity(
    model_path: Path, test_set: list[Path], cli: Any, tmp_path: Path
) -> None:
    source, target = test_set
    ran = cli("score", model_path, "--source", source, "--target", target)
    records = [json.loads(line) for line in ran.lines]
    assert len(records) == 25
    n_pieces = sum(len(record["token_log_probs"]) for record in records)
    total = sum(record["log_prob"] for record in records)
    assert records[0]["log_prob"] == pytest.approx(sum(records[0]["token_log_probs"]))
    assert ran.err == f"perplexity {math.exp(-total / n_pieces):.6g} over {n_pieces} tokens, 25 pairs\n"
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("j j j\n" * 25, encoding="utf-8")
    worse = cli("score", model_path, "--source", source, "--target", wrong, "-o", tmp_path / "scores.jsonl")
    assert worse.out == ""
    assert json.loads((tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines()[0])["log_prob"] < -5


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_files_of_different_lengths_are_refused(
    command: str, model_path: Path, test_set: list[Path], cli: Any, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a\nb\n", encoding="utf-8")
    option = "--target" if command == "score" else "--reference"
    complaint = cli(command, model_path, "--source", test_set[0], option, short).complaint
    assert f"{test_set[0]} has 25 lines but {short} has 2" in complaint


def test_info_is_thirteen_lines(model_path: Path, cli: Any) -> None:
    lines = cli("info", model_path).lines
    rows = {line[:15].strip(): line[15:] for line in lines}
    assert len(lines) == len(rows) == 13
    assert rows["model"].startswith("translation, trained with Headwise ")
    assert rows["architecture"] == "transformer: 1 + 1 layers, d_model 48, d_ff 96, 4 heads, post-norm"
    assert rows["vocabulary"] == "270 bpe tokens"
    assert int(rows["parameters"].replace(",", "")) == headwise.load(model_path, "cpu").info()["parameters"]
    assert rows["recipe"] == "toy, seed 1"
    assert rows["weights"].startswith("step 500, file from 20")
    assert rows["validation"].startswith("loss ")
    stored = (model_path / "model.safetensors").stat().st_size
    assert f"on disk        {stored / 1e3:.1f} kB in float32" in lines
    assert rows["search"] == "beam_size 5, length_penalty 0.6, max_length_factor 1.0, max_length_extra 3"
    engine = f"the compiled library ({instructions()})" if library() else "torch"
    assert rows["digests"].endswith(" files are as SHA256SUMS lists them")
    assert f"translated by  {engine}, in float32" in lines


def test_info_of_a_model_without_training_data(model_path: Path, cli: Any, tmp_path: Path) -> None:
    shutil.copytree(model_path, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in values.items() if key not in ("corpus", "recipe")}))
    seal(tmp_path / "model", again=True)
    rows = cli("info", tmp_path / "model").out
    assert "parameters" in rows and "trained with Headwise" in rows and "training data" not in rows


def test_info_all(model_path: Path, cli: Any) -> None:
    lines = cli("info", model_path, "--all").lines
    for expected in ('recipe = "toy"', "d_model = 48", "max_steps = 500", "vocabulary = 270", "beam_size = 5"):
        assert any(line.startswith(expected) for line in lines)
    idle = ("cell", "kernel_width", "pooling", "horizon", "n_inputs")  # settings of other architectures and tasks
    assert not any(line.startswith(idle) for line in lines)


def test_summaries_are_scored_with_the_chosen_metrics(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("rouge_score")
    (tmp_path / "said").write_text("the cat sat on a mat\ndogs barked\n")
    (tmp_path / "real").write_text("the cat was on the mat\na dog barks loudly\n")
    files = ["--hypothesis", tmp_path / "said", "--reference", tmp_path / "real"]
    found = json.loads(cli("evaluate", *files, "--metric", "ROUGE-L", "chrF++", "--format", "json").out)
    assert found["ROUGE-L"]["score"] == pytest.approx(200 / 3) and "chrF++" in found and "BLEU" not in found
    assert "ROUGE-1" in cli("evaluate", *files, "--metric", "ROUGE1").complaint
