"""Models of Marian translate as CTranslate2 does after its own conversion."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwise import cli
from headwise.errors import UserError
from headwise.models.load import load
from headwise.pytorch.checkpoint.marian import marian_file, read_marian
from headwise.runtime.tokenizers.vocabulary import read_vocabulary

ctranslate2 = pytest.importorskip("ctranslate2")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = ["a dog runs", 'two men: "talk" about it\'s cat', "the dog"]
SETTINGS = {
    "dim-emb": 16,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 2,
    "transformer-dim-ffn": 24,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": '""',
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": "false",
    "transformer-guided-alignment-layer": "last",
    "type": "transformer",
    "tied-embeddings-all": "true",
}
PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    files = {"input": str(folder / "text"), "model_prefix": str(folder / "m"), "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(**files, vocab_size=34, hard_vocab_limit=False)
    return folder / "m.model"


def tokens_of(pieces: Path) -> list[str]:
    """With Marian's end and unknown tokens first, as its vocabularies have them."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    found = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    return ["</s>", "<unk>", *(piece for piece in found if piece not in ("<s>", "</s>", "<unk>"))]


def write_vocabulary(path: Path, tokens: list[str]) -> None:
    def quoted(token: str) -> str:
        escaped = token.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if {*token} & {*"\",':\\[]{}#&*!|>%@-?"} else token

    path.write_text("".join(f"{quoted(token)}: {i}\n" for i, token in enumerate(tokens)), encoding="utf-8")


def arrays_of(n_tokens: int, settings: dict[str, Any], split: bool) -> dict[str, np.ndarray[Any, Any]]:
    rng, width, inner = np.random.default_rng(1), 16, 24
    shapes: dict[str, tuple[int, ...]] = {}

    def norm(scope: str, before: bool) -> None:
        for part in ("scale", "bias"):
            shapes[f"{scope}_ln_{part}{'_pre' if before else ''}"] = (1, width)

    pre = settings["transformer-preprocess"] == "n"
    for side in ("encoder", "decoder"):
        for layer in (1, 2):
            scope = f"{side}_l{layer}"
            for kind in ("self", "context")[: 1 + (side == "decoder")]:
                for part in "qkvo":
                    shapes |= {f"{scope}_{kind}_W{part}": (width, width), f"{scope}_{kind}_b{part}": (1, width)}
                norm(f"{scope}_{kind}_Wo", pre)
            shapes |= {f"{scope}_ffn_W1": (width, inner), f"{scope}_ffn_b1": (1, inner)}
            shapes |= {f"{scope}_ffn_W2": (inner, width), f"{scope}_ffn_b2": (1, width)}
            norm(f"{scope}_ffn_ffn", pre)
        if pre:
            norm(f"{side}_top", False)
        if "n" in settings["transformer-postprocess-emb"]:
            norm(f"{side}_emb", True)
        if split:
            shapes[f"{side}_Wemb"] = (n_tokens, width)
    if split:
        shapes["decoder_ff_logit_out_W"] = (width, n_tokens)
    else:
        shapes["Wemb"] = (n_tokens, width)
    shapes["decoder_ff_logit_out_b"] = (1, n_tokens)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def write_marian(folder: Path, pieces: Path, split: bool = False, **changes: Any) -> Path:
    """A model as Marian writes it, with vocabulary and SentencePiece models; returns its file."""
    settings = {**SETTINGS, **{key.replace("_", "-"): value for key, value in changes.items()}}
    tokens = tokens_of(pieces)
    text = "".join(f"{key}: {value}\n" for key, value in settings.items()) + "\0"
    yml = np.frombuffer(text.encode(), np.int8)
    arrays = arrays_of(len(tokens), settings, split)
    everything: dict[str, Any] = {"special:model.yml": yml, **arrays}
    np.savez(folder / "model.npz", **everything)
    np.savez(folder / "model.npz.optimizer.npz", adam_mt=np.zeros(3, np.float32))
    write_vocabulary(folder / "opus.vocab.yml", tokens)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(pieces.read_bytes())
    return folder / "model.npz"


def log_probs(path: Path, pieces: Path) -> tuple[list[list[str]], list[list[float]]]:
    """Greedy translations of CTranslate2 in float32, with the log-probability of each token."""
    converter = ctranslate2.converters.MarianConverter(str(path), [str(path.parent / "opus.vocab.yml")])
    folder = path.parent / "converted"
    converter.convert(str(folder))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "layer_norm_epsilon": 1e-6}))  # as Marian has it
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    sources = [model.encode(text, out_type=str) for text in TEXTS]
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    found = [one.hypotheses[0] for one in translator.translate_batch(sources, beam_size=1, max_decoding_length=12)]
    return found, [list(one.log_probs) for one in translator.score_batch(sources, found)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"split": True},
        PRE_NORM,
        {"transformer-ffn-activation": "relu"},
        {"transformer-ffn-activation": "gelu", "transformer-postprocess-emb": "nd"},
    ],
    ids=["opus-mt", "separate embeddings", "pre-norm", "relu", "gelu and embedding norm"],
)
def test_a_model_translates_as_in_ctranslate2(changes: dict[str, Any], pieces: Path, tmp_path: Path) -> None:
    path, out = write_marian(tmp_path, pieces, **changes), tmp_path / "out"
    assert cli.main(["import", str(tmp_path), str(out)]) == 0
    theirs, scores = log_probs(path, pieces)
    model: Any = load(out, dtype="float32")
    found = read_marian(path)
    vocabulary, ids = read_vocabulary(out, found.about), found.lists["vocab.json"]
    network = model.network.double()
    for text, tokens, score in zip(TEXTS, theirs, scores, strict=True):
        source = torch.tensor([vocabulary.encode(text)])
        target = [found.about["decoder_start_token_id"], *(ids[token] for token in tokens)]
        wanted = torch.tensor([*target[1:], ids["</s>"]])
        logits = network(source, torch.tensor([target]))[0].log_softmax(-1)
        # CTranslate2 computes in float32: a few hundred sums with a relative error of 6e-8 each.
        np.testing.assert_allclose(logits[torch.arange(len(wanted)), wanted].detach().numpy(), score, atol=1e-4)


def test_decoder_yml_names_the_model_and_the_vocabularies(pieces: Path, tmp_path: Path) -> None:
    path = write_marian(tmp_path, pieces)
    path.rename(tmp_path / "best.npz")
    (tmp_path / "model.npz").write_bytes((tmp_path / "best.npz").read_bytes())
    with pytest.raises(UserError, match=r"Marian \(best.npz, model.npz\)"):
        marian_file(tmp_path)
    write_vocabulary(tmp_path / "other.vocab.yml", tokens_of(pieces))
    with pytest.raises(UserError, match=r"has 2 vocabularies beside it; name source and target"):
        read_marian(tmp_path / "best.npz")
    lists = "relative-paths: true\nmodels:\n  - best.npz\nvocabs:\n- opus.vocab.yml\n- other.vocab.yml\nbeam-size: 6\n"
    (tmp_path / "decoder.yml").write_text(lists)
    assert marian_file(tmp_path) == tmp_path / "best.npz"
    assert list(read_marian(tmp_path / "best.npz").lists) == ["vocab.json"]


def test_a_sentencepiece_vocabulary_is_the_tokenizer(pieces: Path, tmp_path: Path) -> None:
    path = write_marian(tmp_path, pieces)
    for name in ("source.spm", "target.spm", "opus.vocab.yml"):
        (tmp_path / name).unlink()
    (tmp_path / "vocab.deen.spm").write_bytes(pieces.read_bytes())
    with np.load(path) as archive:
        arrays = dict(archive)
    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces))
    for name in ("Wemb", "decoder_ff_logit_out_b"):  # with a row for <s>
        shape = (model.get_piece_size(), 16) if name == "Wemb" else (1, model.get_piece_size())
        arrays[name] = np.resize(arrays[name], shape)
    np.savez(path, **arrays)
    assert cli.main(["import", str(path), str(tmp_path / "out")]) == 0
    imported: Any = load(tmp_path / "out")
    assert imported.tokenizer.source.encode("a dog runs") == [*model.encode("a dog runs")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg = rnn is not supported"),
        ({"type": "s2s"}, "type = s2s is not supported"),
        ({"transformer-postprocess": "an"}, "transformer-preprocess = "),
        ({"transformer-train-position-embeddings": "true"}, "transformer-train-position-embeddings = true is not"),
        ({"transformer-heads": "many"}, "transformer-heads = many is no number"),
        ({"enc-depth": 3}, "has no encoder_l3_self_Wq"),
        ({"enc-depth": 1}, "has encoder_l2_context"),
    ],
)
def test_other_models_are_refused_by_name(changes: dict[str, Any], said: str, pieces: Path, tmp_path: Path) -> None:
    path = write_marian(tmp_path, pieces, **changes)
    said = said.replace("encoder_l2_context", "encoder_l2_ffn")
    with pytest.raises(UserError) as error:
        read_marian(path)
    assert said in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [("a: 0\nb\n", "line 3"), ("a: 0\nb: 2\n", "ids must be 0 to 1"), (b"\xff: 0", "cannot be read")],
)
def test_damaged_vocabularies(content: Any, said: str, pieces: Path, tmp_path: Path) -> None:
    path = write_marian(tmp_path, pieces)
    (tmp_path / "opus.vocab.yml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said):
        read_marian(path)


def test_damaged_files_are_one_line(pieces: Path, tmp_path: Path) -> None:
    path = write_marian(tmp_path, pieces)
    whole, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(60):
        content = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.5 else whole)
        for at in rng.integers(0, len(content), 3):
            content[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            read_marian(path)
        except UserError as error:
            assert "\n" not in str(error)
