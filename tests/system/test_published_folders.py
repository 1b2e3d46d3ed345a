"""Pretrained encoder-decoders: every command in the documentation works on their folders.

The models are tiny and random, so their outputs mean nothing, but all commands must give the same.
"""

import ast
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import MARKS, write_tiny

from headwise.cli.commands.explore import contents
from headwise.errors import UserError
from headwise.models.load import load_translator, load_translators
from headwise.runtime.tokenizers.vocabulary import Vocabulary, read_vocabulary
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.requests import ExplorerRequest

Cli = Callable[..., Any]
TASKS = {"task_specific_params": {"translation_de_to_it": {"prefix": "to it: "}}}
CASES = {"marian": {}, "t5": {"num_layers": 2, **TASKS}, "m2m": {}, "bart": {"model_type": "bart"}}
ASKED = {"t5": ("de", "it"), "m2m": ("de", "fr")}
SETTINGS = {"max_length": 12, "num_beams": 3}
SOURCES, TARGETS = ["A dog runs .", "Two birds"], ["Ein Hund rennt .", "Zwei Voegel"]


@pytest.fixture(scope="module", params=CASES)
def model_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder, and the language options of commands."""
    folder = tmp_path_factory.mktemp(request.param)
    kind, forced = ("marian", {"forced_bos_token_id": 0}) if request.param == "bart" else (request.param, {})
    write_tiny(folder, kind, CASES[request.param], SETTINGS | forced)
    languages = ASKED.get(request.param, ())
    return folder, [*(f"--{side}-language={code}" for side, code in zip(("source", "target"), languages, strict=False))]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A source and a target file."""
    source, target = tmp_path / "a.src", tmp_path / "a.tgt"
    source.write_text("\n".join(SOURCES) + "\n")
    target.write_text("\n".join(TARGETS) + "\n")
    return source, target


@pytest.fixture
def written(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], tmp_path: Path) -> list[str]:
    """The translations of the sources by `translate`."""
    ran = cli("translate", model_folder[0], files[0], *model_folder[1], "--format", "jsonl")
    assert ran.code == 0, ran.err
    return [" ".join(json.loads(line)["text"].split("\n")).strip() for line in ran.out.splitlines()]


def test_evaluate_scores_what_translate_writes(
    cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], written: list[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    ran = cli(
        "evaluate", model_folder[0], "--source", files[0], "--reference", files[1], "--save", kept, *model_folder[1]
    )
    assert ran.code == 0, ran.err
    assert ran.out.startswith("BLEU") and "beam 3, length penalty 1.0" in ran.out
    assert len(kept.read_text(encoding="utf-8").split("\n")) >= len(written)
    found = cli("evaluate", model_folder[0], "--source", files[0], "--reference", files[1], "--format", "json",
                "--beam-size", 1, *model_folder[1])  # fmt: skip
    assert json.loads(found.out)["decoding"]["beam_size"] == 1


def test_score(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path]) -> None:
    ran = cli("score", model_folder[0], "--source", files[0], "--target", files[1], *model_folder[1])
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert all(math.isclose(row["log_prob"], sum(row["token_log_probs"]), abs_tol=1e-4) for row in rows)
    assert "2 pairs" in ran.err


def test_align_and_choose(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path]) -> None:
    ran = cli("align", model_folder[0], "--source", files[0], "--target", files[1], *model_folder[1])
    assert ran.code == 0, ran.err
    links = [[link.split("-") for link in line.split()] for line in ran.out.splitlines()]
    assert [sorted(int(j) for _, j in line) for line in links] == [[0, 1, 2, 3], [0, 1]]
    assert all(int(i) < len(text.split()) for line, text in zip(links, SOURCES, strict=True) for i, _ in line)
    gold = files[0].with_name("gold")
    gold.write_text("0-0 1-1\n0-0\n")
    chosen = cli(
        "align", model_folder[0], "--source", files[0], "--target", files[1], "--choose", gold, *model_folder[1]
    )
    assert chosen.code == 0 and "layer" in chosen.err
    rate = cli("evaluate", model_folder[0], "--source", files[0], "--target", files[1], "--alignments", gold,
               "--format", "json", *model_folder[1])  # fmt: skip
    assert json.loads(rate.out)["head"]["layer"] >= 0
    (model_folder[0] / "alignment.json").unlink()


@pytest.mark.few(5)
@pytest.mark.parametrize("given", [(), ("--translation", "Ein Hund"), ("--beam-size", 1)])
def test_inspect(cli: Cli, model_folder: tuple[Path, list[str]], given: tuple[Any, ...], written: list[str]) -> None:
    ran = cli("inspect", model_folder[0], SOURCES[0], "--format", "json", *given, *model_folder[1])
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [word[0] for word in found["src"]["words"]][-4:] == SOURCES[0].split()
    for part in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(np.sum(found["attention"][part], axis=-1), 1.0, atol=1e-4)
    if given == ():
        assert found["translation"] == written[0]
        assert {node["status"] for node in found["beam"]} >= {"chosen", "pruned"}
        assert [node["piece"] for node in found["beam"] if node["status"] == "chosen"] == found["tgt"]["pieces"]


@pytest.mark.few(1)
def test_images_and_text(cli: Cli, model_folder: tuple[Path, list[str]], tmp_path: Path) -> None:
    for name in ("a.html", "a.svg"):
        assert cli("inspect", model_folder[0], SOURCES[0], "-o", tmp_path / name, *model_folder[1]).code == 0
    assert cli("inspect", model_folder[0], SOURCES[0], "--format", "text", *model_folder[1]).lines


def test_explore(model_folder: tuple[Path, list[str]], written: list[str]) -> None:
    languages = [option.partition("=")[2] for option in model_folder[1]]
    shown = ExplorerModel("a", load_translator(model_folder[0], "cpu").between(*languages), contents())  # type: ignore[union-attr]
    assert all(shown.described()["heads"].values())
    ask = ExplorerRequest(
        model=0,
        page="1",
        text=SOURCES[0],
        beam_size=3,
        prefix="",
        masks={"cross": {0: [0, 1]}},
        stack="",
        layer=0,
        head=0,
    )
    found = shown.translated(ask)
    assert found["unmasked"].strip() == written[0]
    for stack in ("encoder", "decoder"):
        assert len(shown.walked(ExplorerRequest(**{**vars(ask), "stack": stack, "masks": {}}))["walk"]["steps"]) > 10


def test_distill(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "distilled.jsonl"
    ran = cli("distill", model_folder[0], "--train", *files, "-o", out, "--n-best", 2, *model_folder[1])
    assert ran.code == 0, ran.err
    pairs = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {pair["src"] for pair in pairs} == set(SOURCES) and len(pairs) > len(SOURCES)


def test_export(cli: Cli, model_folder: tuple[Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    ran = cli("export", model_folder[0], "--to", "ctranslate2", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert ran.err.endswith("greedy translations of 8 texts are the same\n")
    assert (tmp_path / "out" / "model.bin").is_file() and (tmp_path / "out" / "tokenizer.json").is_file()


def translated(cli: Cli, model_folder: tuple[Path, list[str]], file: Path, *more: Any) -> list[dict[str, Any]]:
    """The output of `translate`, as records."""
    ran = cli("translate", model_folder[0], file, *model_folder[1], "--format", "jsonl", *more)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.few(3)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_forced_prefix(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], beam: int) -> None:
    """The output starts with the prefix, and continues with the network's predictions."""
    rows = translated(cli, model_folder, files[0], "--prefix", " Ein Hund", "--beam-size", beam)
    assert all(row["text"].strip().startswith("Ein Hund") for row in rows)
    languages = [option.partition("=")[2] for option in model_folder[1]]
    model: Any = load_translator(model_folder[0], "cpu").between(*languages)  # type: ignore[union-attr]
    tokens = [model._translator.tokenizer.vocabulary.id_of(piece) for piece in "EinĠHund"]
    chosen = model._translator.config.changed({"beam_size": beam, "max_new_tokens": 11})
    sources = model._translator.segment(SOURCES, chosen)
    found = [ranked[0].tokens for ranked in model._translator.search(sources, tokens, chosen)]
    assert all(row[:8] == tokens for row in found)
    shown = cli("inspect", model_folder[0], SOURCES[0], "--format", "json", "--prefix", "Ein Hund", *model_folder[1])
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["translation"].startswith("Ein Hund")


def test_links_of_translations(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path]) -> None:
    prefix = (
        "Ein Hund und ein Hund und ein Hund"  # the rest is random, and `align` refuses outputs that are hardly text
    )
    short = ["--max-length-factor", 0, "--max-length-extra", 4]
    rows = translated(cli, model_folder, files[0], "--alignment", "-", "--prefix", prefix, *short)
    kept = files[0].with_name("translated")
    kept.write_text("".join(" ".join(row["text"].split("\n")) + "\n" for row in rows), encoding="utf-8")
    links = cli("align", model_folder[0], "--source", files[0], "--target", kept, *model_folder[1])
    assert links.code == 0, links.err
    assert [row["alignment"] for row in rows] == links.out.splitlines()


def test_backtranslate(
    cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "synthetic.jsonl"
    ran = cli("backtranslate", model_folder[0], "--text", files[0], "-o", out, "--tag", "<bt>", *model_folder[1])
    assert ran.code == 0, ran.err
    pairs = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(pair["tgt"] in SOURCES and pair["src"].startswith("<bt> ") for pair in pairs)
    assert f"{len(pairs)} pairs of 2 lines" in ran.err


def test_shortlist(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path]) -> None:
    learn = ["shortlist", model_folder[0], "--train", *files, "--candidates", 2, "--frequent", 3, *model_folder[1]]
    ran = cli(*learn)
    assert ran.code == 0, ran.err
    assert "trained on 2 pairs" in ran.err
    before, few = (translated(cli, model_folder, files[0], *more) for more in ((), ("--shortlist",)))
    assert before != few
    known = {*"".join([*SOURCES, *TARGETS, "to it:" if "t5" in model_folder[0].name else ""]).replace(" ", "")}
    assert all({*row["text"]} <= {*known, " "} for row in few)
    if "t5" not in model_folder[0].name:
        assert translated(cli, model_folder, files[0], "--shortlist", "--compute", "int8")
    languages = [option.partition("=")[2] for option in model_folder[1]]
    model: Any = load_translator(model_folder[0], "cpu").between(*languages)
    greedy = {"shortlist": True, "beam_size": 1, "min_new_tokens": 9}
    plain = model.translate(SOURCES[:1], **greedy)[0].text
    at = plain[len(plain) // 2]
    stopped = model.translate(SOURCES[:1], **greedy, stop=(at,))[0]  # searched with torch
    assert stopped.text == plain.partition(at)[0] != plain
    assert len(stopped.pieces) < 9  # it stopped there
    ran = cli(
        "evaluate", model_folder[0], "--source", files[0], "--reference", files[1], "--shortlist", *model_folder[1]
    )
    assert ran.code == 0, ran.err
    once = translated(cli, model_folder, files[0], "--shortlist", "--no-repeat-ngram", 1)
    assert all(len({*row["pieces"]}) == len(row["pieces"]) and {*row["text"]} <= {*known, " "} for row in once)
    drawn = translated(cli, model_folder, files[0], "--shortlist", "--sample", "--temperature", 3)
    assert all({*row["text"]} <= {*known, " "} for row in drawn)
    (model_folder[0] / "shortlist.safetensors").unlink()
    assert "make one with" in cli("translate", model_folder[0], files[0], "--shortlist", *model_folder[1]).err


@pytest.mark.parametrize("more", [(), ("--no-repeat-ngram", 9)])  # the compiled search, and the search with torch
@pytest.mark.parametrize("n_written", [265, 300])
def test_a_shortlist_of_two_vocabularies(
    cli: Cli,
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[Any, ...],
    n_written: int,
) -> None:
    """Source ids differ from target ids; a name is copied by the strings of its tokens."""
    changes = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": n_written}
    write_tiny(tmp_path / "model", "marian", changes, SETTINGS)
    monkeypatch.setattr("headwise.models.pretrained.read_vocabulary", two_vocabularies)
    learn = ["shortlist", tmp_path / "model", "--train", *files, "--candidates", 2, "--frequent", 3]
    ran = cli(*learn)
    assert ran.code == 0, ran.err
    files[0].write_text("QXJ\n")  # in no pair
    row = translated(cli, (tmp_path / "model", []), files[0], "--shortlist", *more)[0]
    assert {*row["text"]} <= {*"QXJ ", *"".join(TARGETS)}
    model: Any = load_translator(tmp_path / "model", "cpu")
    table = model._translator.shortlist()
    few = table.candidates([model.vocabulary.encode("Q")], [[]], [])
    assert model.vocabulary.written.id_of("Q") in few.ids[few.allowed[0]]
    assert model.vocabulary.id_of("Q") not in few.ids[few.allowed[0]]


def two_vocabularies(path: Path, hf_config: dict[str, Any]) -> Vocabulary:
    """The folder's vocabulary, and a target vocabulary with its ids in reverse order."""
    read = read_vocabulary(path, hf_config)

    def turned(i: int) -> int:
        return i if i < len(MARKS) else len(MARKS) + 264 - i if i <= 264 else i

    def id_of(piece: str) -> int | None:
        found = read.id_of(piece)
        return None if found is None else turned(found)

    written = replace(
        read,
        encode=lambda text: [turned(i) for i in read.encode(text)],
        decode=lambda ids: read.decode([turned(i) for i in ids]),
        id_of=id_of,
        piece_of=lambda i: read.piece_of(turned(i)),
    )
    return replace(read, decode=written.decode, written=written)


def test_prune(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "pruned"
    ran = cli(
        "prune",
        model_folder[0],
        "--heads",
        2,
        "--source",
        files[0],
        "--target",
        files[1],
        "--out",
        out,
        *model_folder[1],
    )
    assert ran.code == 0, ran.err
    assert "without 2 heads" in ran.err and "this layout cannot have fewer heads" in ran.err
    languages = [option.partition("=")[2] for option in model_folder[1]]
    whole, pruned = (load_translator(path, "cpu").between(*languages) for path in (model_folder[0], out))  # type: ignore[union-attr]
    removed = ast.literal_eval(ran.err[ran.err.index("{") : ran.err.rindex("}") + 1])
    with whole.mask_heads(removed):
        masked = whole.score(SOURCES, TARGETS)
    assert pruned.score(SOURCES, TARGETS) == masked != whole.score(SOURCES, TARGETS)
    again = ["--heads", 1, "--source", files[0], "--target", files[1], "--out", out, *model_folder[1]]
    taken = cli("prune", model_folder[0], *again)
    assert taken.code == 2 and "holds a model already" in taken.err


@pytest.mark.few(5)
@pytest.mark.parametrize("more", [(), ("--prefix", "Ein Hund"), ("--compute", "int8")])
def test_drafts_change_nothing(
    cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], more: tuple[str, ...]
) -> None:
    """Drafts from the source, from a memory of other texts, and from one with the model's own outputs."""
    if "int8" in more and "t5" in model_folder[0].name:
        pytest.skip("torch decodes it, in float32")
    plain = translated(cli, model_folder, files[0], "--beam-size", 1, *more)
    memory, exact = files[0].with_name("memory.tsv"), files[0].with_name("exact.tsv")
    memory.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(SOURCES, TARGETS, strict=True)))
    texts = [" ".join(row["text"].split()) for row in plain]
    exact.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in zip(SOURCES, texts, strict=True)))
    for draft in ("input", memory, exact):
        found = translated(cli, model_folder, files[0], "--draft", draft, *more)
        assert [row["pieces"] for row in found] == [row["pieces"] for row in plain]
        for name in ("log_prob", "score"):
            assert [row[name] for row in found] == pytest.approx([row[name] for row in plain], abs=2e-3)


@pytest.mark.few(1)
def test_ensembles(cli: Cli, model_folder: tuple[Path, list[str]], files: tuple[Path, Path], tmp_path: Path) -> None:
    """An ensemble of the same model twice is that model; with another one the log-probabilities are averaged."""
    other = tmp_path / "other"
    shutil.copytree(model_folder[0], other)
    tensors = load_file(other / "model.safetensors")
    torch.manual_seed(5)
    save_file({key: value + 0.05 * torch.randn_like(value) for key, value in tensors.items()},
              other / "model.safetensors", {"format": "pt"})  # fmt: skip
    alone = translated(cli, model_folder, files[0])
    twice = translated(cli, model_folder, files[0], "--ensemble", model_folder[0])
    assert [row["text"] for row in twice] == [row["text"] for row in alone]
    assert [row["log_prob"] for row in twice] == pytest.approx([row["log_prob"] for row in alone], abs=1e-3)
    languages = [option.partition("=")[2] for option in model_folder[1]]
    both: Any = load_translators([model_folder[0], other], "cpu")
    found = both.between(*languages).generate([SOURCES[0]], beam_size=1, max_new_tokens=1)[0]
    members = [load_translator(path, "cpu").between(*languages)._translator for path in (model_folder[0], other)]  # type: ignore[union-attr]
    side = members[0].tokenizer
    src = torch.tensor([[*side.source.encode(SOURCES[0]), side.source.eos_id]])
    with torch.inference_mode():
        mean = sum(member.model(src, torch.tensor([side.special.prompt]))[0, -1] for member in members) / 2
        mean[[*side.special.never_generated]] = -torch.inf
    assert found.token_log_probs[0] == pytest.approx(mean.log_softmax(-1).max().item(), abs=1e-3)
    judged = ["--source", files[0], "--reference", files[1]]
    ran = cli("evaluate", model_folder[0], *judged, "--ensemble", other, *model_folder[1])
    assert ran.code == 0, ran.err
    with pytest.raises(UserError, match="an ensemble has no"):
        both.between(*languages).score(SOURCES, TARGETS)


def test_models_that_form_no_ensemble(cli: Cli, files: tuple[Path, Path], tmp_path: Path, model_path: Path) -> None:
    write_tiny(tmp_path / "a", "marian", {}, SETTINGS)
    write_tiny(tmp_path / "b", "marian", {}, SETTINGS, marks=["<new>"])
    ran = cli("translate", tmp_path / "a", files[0], "--ensemble", tmp_path / "b")
    assert "has another tokenizer than" in ran.complaint
    ran = cli("translate", tmp_path / "a", files[0], "--ensemble", model_path)
    assert "an ensemble is of pretrained models, or of models trained here" in ran.complaint


@pytest.mark.few(1)
def test_head_importance_masks_and_attribution(model_folder: tuple[Path, list[str]]) -> None:
    languages = [option.partition("=")[2] for option in model_folder[1]]
    model: Any = load_translator(model_folder[0], "cpu").between(*languages)  # type: ignore[union-attr]
    importance = model.head_importance(SOURCES, TARGETS)
    assert {head.part for head in importance} == {"encoder", "decoder", "cross"}
    before = [written.pieces for written in model.translate(SOURCES)]
    heads = {part: {0: [0, 1]} for part in ("encoder", "decoder", "cross")}
    with model.mask_heads(heads):
        masked = model.score(SOURCES, TARGETS)
    assert [written.pieces for written in model.translate(SOURCES)] == before
    assert masked != model.score(SOURCES, TARGETS)
    attribution = model.attribute(SOURCES[0], TARGETS[0], steps=200)
    assert attribution.gap < 0.5  # of a random network, and RMSNorm of the zeros of the empty source


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "MODEL", "--to", "onnx", "OUT"),
    ],
)
def test_options_for_models_trained_here_are_refused(
    cli: Cli, tmp_path: Path, files: tuple[Path, Path], arguments: tuple[str, ...]
) -> None:
    write_tiny(tmp_path / "model", "marian", {}, SETTINGS)
    names = {"MODEL": tmp_path / "model", "SRC": files[0], "TGT": files[1], "OUT": tmp_path / "out"}
    ran = cli(*(names.get(argument, argument) for argument in arguments))
    assert ran.code == 2
    assert any(text in ran.err for text in ("Headwise has trained", "`headwise train` made", "trained here"))
    assert ran.err.count("\n") == 1


def test_a_tuned_length_penalty_is_saved(cli: Cli, tmp_path: Path, files: tuple[Path, Path]) -> None:
    """With the keys of the folder's own file, whose other entries stay."""
    write_tiny(tmp_path / "model", "marian", {}, SETTINGS)
    path = tmp_path / "model" / "generation_config.json"
    command = ["evaluate", tmp_path / "model", "--source", files[0], "--reference", files[1]]
    ran = cli(*command, "--tune", "length_penalty", "--save")
    assert ran.code == 0, ran.err
    value = json.loads(path.read_text())["length_penalty"]
    assert f"length_penalty is {value} from now on" in ran.err
    assert json.loads(path.read_text()) == {**SETTINGS, "length_penalty": value}
    assert load_translator(tmp_path / "model", "cpu").decode_config.length_penalty == value
    path.unlink()
    config = tmp_path / "model" / "config.json"  # which has the generation settings if there is no other file
    config.write_text(json.dumps({**json.loads(config.read_text()), **SETTINGS}))
    assert "has no generation_config.json" in cli(*command, "--tune", "length_penalty", "--save").complaint


@pytest.mark.parametrize("verb", ["evaluate", "score", "align", "inspect"])
def test_a_multilingual_model_requires_languages(cli: Cli, tmp_path: Path, files: tuple[Path, Path], verb: str) -> None:
    write_tiny(tmp_path, "m2m", {}, SETTINGS)
    options = {"inspect": ["A dog"], "evaluate": ["--source", files[0], "--reference", files[1]]}
    ran = cli(verb, tmp_path, *options.get(verb, ["--source", files[0], "--target", files[1]]))
    assert ran.code == 2 and "--source-language and --target-language" in ran.err


def test_other_networks_do_not_translate(cli: Cli, tmp_path: Path) -> None:
    write_tiny(tmp_path, "gpt2")
    (tmp_path / "text").write_text("A dog\n")
    ran = cli("align", tmp_path, "--source", tmp_path / "text", "--target", tmp_path / "text")
    assert ran.code == 2 and "this gpt2 continues texts; it can " in ran.err
