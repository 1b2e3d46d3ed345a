"""Translation models of CTranslate2, as its own converters write them, translate the same after an import."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headwise import cli
from headwise.contract import SpecialIds
from headwise.errors import UserError
from headwise.models.load import load
from headwise.models.pretrained import PretrainedNetwork, longest_text
from headwise.pytorch.checkpoint.ctranslate2_folder import read_ctranslate2
from headwise.pytorch.checkpoint.imported import write_foreign
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.formats.ctranslate2_file import is_ctranslate2
from headwise.runtime.tokenizers.vocabulary import read_vocabulary
from headwise.text.language_codes import language_pair_of

ctranslate2 = pytest.importorskip("ctranslate2")
transformer_spec = pytest.importorskip("ctranslate2.specs.transformer_spec")
common_spec = pytest.importorskip("ctranslate2.specs.common_spec")

TEXTS = ["a dog runs", "two men talk about a cat", "the dog"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "text").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    trainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=30, hard_vocab_limit=False, minloglevel=2
    )
    return folder / "m.model"


def tokens_of(pieces: Path) -> list[str]:
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(pieces))
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def fill(spec: Any, rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> None:
    """Random weights of a layer."""
    for name, shape in shapes.items():
        *path, last = name.split(".")
        part = spec
        for one in path:
            part = part[int(one)] if one.isdigit() else getattr(part, one)
        setattr(part, last, rng.normal(0, 0.3, shape).astype(np.float32))


def sides(width: int, inner: int, gated: bool) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    norm = {"layer_norm.gamma": (width,), "layer_norm.beta": (width,)}

    def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    own = {
        **linear("self_attention.linear.0", 3 * width, width),
        **linear("self_attention.linear.1", width, width),
        **linear("ffn.linear_0", inner, width),
        **(linear("ffn.linear_0_noact", inner, width) if gated else {}),
        **linear("ffn.linear_1", width, inner),
        **{f"{part}.{name}": shape for part in ("self_attention", "ffn") for name, shape in norm.items()},
    }
    cross = {
        **linear("attention.linear.0", width, width),
        **linear("attention.linear.1", 2 * width, width),
        **linear("attention.linear.2", width, width),
        **{f"attention.{name}": shape for name, shape in norm.items()},
    }
    return own, {**own, **cross}


def write_model(
    folder: Path,
    tokens: Sequence[str],
    *,
    pre_norm: bool = True,
    positions: bool = True,
    gated: bool = False,
    shared: bool = True,
    quantization: str | None = None,
    **settings: Any,
) -> None:
    """A model of random weights, as the converters of CTranslate2 write them."""
    rng, width, inner, heads = np.random.default_rng(1), 16, 24, 2
    both = {"num_layers": 2, "num_heads": heads, "pre_norm": pre_norm, "ffn_glu": gated, "activation": 2 * gated}
    encoder = transformer_spec.TransformerEncoderSpec(**both)
    decoder = transformer_spec.TransformerDecoderSpec(**both)
    own, whole = sides(width, inner, gated)
    for spec, shapes in ((encoder, own), (decoder, whole)):
        for layer in spec.layer:
            fill(layer, rng, shapes)
        if pre_norm:
            fill(spec, rng, {"layer_norm.gamma": (width,), "layer_norm.beta": (width,)})
        if positions:
            spec.position_encodings.encodings = rng.normal(0, 1, (40, width)).astype(np.float32)
    table = rng.normal(0, 1, (len(tokens), width)).astype(np.float32)
    encoder.embeddings[0].weight = table
    decoder.embeddings.weight = table if shared else rng.normal(0, 1, table.shape).astype(np.float32)
    decoder.projection.weight = table if shared else rng.normal(0, 1, table.shape).astype(np.float32)
    if not shared:
        decoder.projection.bias = rng.normal(0, 1, len(tokens)).astype(np.float32)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    for name, value in settings.items():
        setattr(spec.decoder, name, value)
    spec.register_source_vocabulary(list(tokens))
    spec.register_target_vocabulary(list(tokens))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def log_probs(folder: Path, ends: list[str], pieces: Path) -> tuple[list[list[str]], list[list[float]]]:
    """Greedy translations of CTranslate2 in float32, with the log-probability of each token."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(pieces))
    sources = [[*model.encode(text, out_type=str), *ends] for text in TEXTS]
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    found = [one.hypotheses[0] for one in translator.translate_batch(sources, beam_size=1, max_decoding_length=12)]
    scored = translator.score_batch(sources, found)
    return found, [list(one.log_probs) for one in scored]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pre_norm": False},
        {"positions": False},
        {"gated": True, "shared": False},
        {"start_from_zero_embedding": True, "pre_norm": False},
        {"scale_embeddings": 1.0},
        {"quantization": "int8"},
        {"quantization": "int16"},
        {"quantization": "float16"},
        {"quantization": "bfloat16", "positions": False},
    ],
)
def test_a_model_translates_as_in_ctranslate2(settings: dict[str, Any], pieces: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "theirs", tmp_path / "ours"
    folder.mkdir()
    write_model(folder, tokens_of(pieces), **settings)
    (folder / "sentencepiece.model").write_bytes(pieces.read_bytes())
    assert is_ctranslate2(folder)
    found = read_ctranslate2(folder)
    write_foreign(out, found)
    model: Any = load(out, dtype="float32")
    vocabulary = read_vocabulary(out, found.about)
    ends = ["</s>"] if "start_from_zero_embedding" in settings else []
    theirs, scores = log_probs(folder, ends, pieces)
    ours = [one.text for one in model.translate(TEXTS, beam_size=1, max_length_extra=12)]
    assert ours == ["".join(tokens).replace("<unk>", "").replace("\u2581", " ").strip() for tokens in theirs]
    assert longest_text(model.config.encoder) == (40 if settings.get("positions", True) else None)  # rows of the table
    network, ids = model.network.double(), found.lists["vocab.json"]
    for text, tokens, score in zip(TEXTS, theirs, scores, strict=True):
        source = torch.tensor([vocabulary.encode(text)])
        target = [found.about["decoder_start_token_id"], *(ids[token] for token in tokens)]
        wanted = torch.tensor([*target[1:], ids["</s>"]])
        logits = network(source, torch.tensor([target]))[0].log_softmax(-1)
        np.testing.assert_allclose(logits[torch.arange(len(wanted)), wanted].detach().numpy(), score, atol=1e-4)


@pytest.fixture
def folder(pieces: Path, tmp_path: Path) -> Path:
    """A model of CTranslate2 with its SentencePiece model."""
    made = tmp_path / "theirs"
    made.mkdir()
    write_model(made, tokens_of(pieces))
    (made / "sentencepiece.model").write_bytes(pieces.read_bytes())
    return made


def whole_tokenizer(tokens: Sequence[str], template: str = "") -> Tokenizer:
    """A tokenizer.json with these ids, which puts special tokens around texts as in `template`."""
    made = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    if template:
        around = [(part, tokens.index(part)) for part in template.split() if part != "$A"]
        made.post_processor = processors.TemplateProcessing(template, special_tokens=around)
    return made


NLLB, M2M, MBART = ("eng_Latn", "deu_Latn"), ("__en__", "__de__"), ("en_XX", "de_DE")


@pytest.mark.parametrize(
    ("codes", "name", "template", "tokenizer_class", "around"),
    [
        ((), "tokenizer.json", "", "", "$A </s>"),  # as `export` writes it
        ((), "tokenizer.json", "<s> $A </s>", "BartTokenizer", "<s> $A </s>"),
        ((), "spiece.model", "", "", "$A </s>"),  # Pegasus
        ((), "sentencepiece.model", "", "", "$A"),  # OpenNMT
        (NLLB, "tokenizer.json", "eng_Latn $A </s>", "NllbTokenizer", "eng_Latn $A </s>"),
        (NLLB, "sentencepiece.bpe.model", "", "", "eng_Latn $A </s>"),
        (M2M, "sentencepiece.bpe.model", "", "M2M100Tokenizer", "__en__ $A </s>"),
        (MBART, "tokenizer.json", "$A </s> en_XX", "MBartTokenizer", "$A </s> en_XX"),
        (MBART, "sentencepiece.bpe.model", "", "MBart50Tokenizer", "en_XX $A </s>"),
    ],
)
def test_tokenizers_of_other_models(
    codes: tuple[str, ...], name: str, template: str, tokenizer_class: str, around: str, pieces: Path, tmp_path: Path
) -> None:
    """A source has the special tokens of the original, and languages are known."""
    tokens = [*tokens_of(pieces), *codes]
    (tmp_path / "theirs").mkdir()
    write_model(tmp_path / "theirs", tokens)
    if name == "tokenizer.json":
        whole_tokenizer(tokens, template).save(str(tmp_path / "theirs" / name))
    else:
        (tmp_path / "theirs" / name).write_bytes(pieces.read_bytes())
    if tokenizer_class:
        (tmp_path / "theirs/tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    write_foreign(tmp_path / "ours", read_ctranslate2(tmp_path / "theirs"))
    languages = PretrainedNetwork(read_folder(tmp_path / "ours")).languages
    special, found = SpecialIds(), languages.encode("a", *(codes or ("", "")))
    known = [tokens[i] for i in found]
    assert known == around.replace("$A", "\u2581a").split()
    target = codes[1] if codes else ""
    outputs = languages.special(special, target)
    if tokenizer_class == "MBartTokenizer":
        assert outputs.bos_id == tokens.index(target)
    else:
        assert [tokens[i] for i in outputs.forced] == [target] * bool(target)


@pytest.mark.parametrize(
    ("codes", "tokenizer_class", "said"),
    [
        ((), "M2M100Tokenizer", "M2M100Tokenizer is multilingual, but the vocabulary has no codes of languages"),
        (MBART, "", r"a multilingual model \(en_XX, de_DE, ...\) without tokenizer_config.json"),
    ],
)
def test_languages_are_not_lost(
    codes: tuple[str, ...], tokenizer_class: str, said: str, pieces: Path, tmp_path: Path
) -> None:
    write_model(tmp_path, [*tokens_of(pieces), *codes])
    (tmp_path / "sentencepiece.bpe.model").write_bytes(pieces.read_bytes())
    if tokenizer_class:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class}))
    with pytest.raises(UserError, match=said):
        read_ctranslate2(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(pieces: Path, tmp_path: Path) -> None:
    tokens = tokens_of(pieces)
    write_model(tmp_path, tokens)
    whole_tokenizer([*tokens[:5], tokens[6], tokens[5], *tokens[7:]]).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"tokenizer\.json belongs to another model: token 5 is"):
        read_ctranslate2(tmp_path)


def write_package(folder: Path, package: Path) -> None:
    """A model of CTranslate2 as a package of Argos Translate."""
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("en_de/metadata.json", json.dumps({"from_code": "en", "to_code": "de"}))
        archive.write(folder / "sentencepiece.model", "en_de/sentencepiece.model")
        archive.writestr("en_de/stanza/large.pt", b"unused")
        for name in ("model.bin", "config.json", "shared_vocabulary.json"):
            archive.write(folder / name, f"en_de/model/{name}")


def test_a_package_of_argos_is_imported_with_its_languages(folder: Path, tmp_path: Path) -> None:
    package, out = tmp_path / "a.argosmodel", tmp_path / "out"
    write_package(folder, package)
    with pytest.raises(UserError, match=r"an Argos package; convert it with: headwise import .*a\.argosmodel"):
        load(package)
    assert cli.main(["import", str(package), str(out)]) == 0
    model: Any = load(out)
    assert language_pair_of(model) == ("en", "de")
    assert model.translate(TEXTS[:1], beam_size=1, max_length_extra=3)


def test_the_newest_package_of_argos_is_downloaded_and_converted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an index as Argos Translate publishes it, here in a folder."""

    def entry(version: str, *links: str, pair: tuple[str, str] = ("en", "de")) -> dict[str, Any]:
        return {"package_version": version, "from_code": pair[0], "to_code": pair[1], "links": [*links]}

    write_package(folder, tmp_path / "new.argosmodel")
    new = (tmp_path / "new.argosmodel").as_uri()
    packages = [entry("1.9", "file:///old"), entry("1.10", "ipfs://x", "http://unsafe", new), entry("1.0")]
    index = tmp_path / "index.json"
    index.write_text(json.dumps([*packages, entry("1.0", new, pair=("de", "en"))]), encoding="utf-8")
    monkeypatch.setenv("ARGOS_PACKAGE_INDEX", tmp_path.as_uri())
    monkeypatch.setenv("HEADWISE_MODELS", str(tmp_path / "models"))
    assert cli.main(["download", "argos:en-de"]) == 0
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["argos-en-de"]
    assert "Next: " in capsys.readouterr().err
    model: Any = load("argos:en-de")
    assert language_pair_of(model) == ("en", "de") and load("argos-en-de").path == model.path
    for content, said in (
        (index.read_text(encoding="utf-8"), "unknown language pair of Argos Translate 'en-fr'"),
        ("[1]", "is not an index of Argos Translate"),
        ("<html>", "is not an index of Argos Translate"),
        (json.dumps([entry("1.0", tmp_path.joinpath("none").as_uri(), pair=("en", "fr"))]), "none: cannot be downl"),
        (json.dumps([entry("1.0", index.as_uri(), pair=("en", "fr"))]), "not a package of Argos Translate"),
    ):
        index.write_text(content, encoding="utf-8")
        assert cli.main(["download", "argos:en-fr"]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
        assert [path.name for path in (tmp_path / "models").iterdir()] == ["argos-en-de"]


def test_a_damaged_file_is_an_error_in_one_line(folder: Path) -> None:
    path = folder / "model.bin"
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(200):
        damaged = bytearray(data[: rng.integers(40, len(data))] if rng.random() < 0.5 else data)
        for at in rng.integers(0, min(len(damaged), 600), 3):
            damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            read_ctranslate2(folder)
        except UserError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "name,content,said",
    [
        ("sentencepiece.model", "", "has no tokenizer; copy source.spm and target.spm, tokenizer.json"),
        ("shared_vocabulary.json", "", "has no vocabulary"),
        ("shared_vocabulary.json", "{}", "must be a list of tokens"),
        ("shared_vocabulary.json", '["</s>", "<s>"]', "have 2 and 2 tokens"),
    ],
)
def test_what_is_missing_is_named(name: str, content: str, said: str, folder: Path) -> None:
    (folder / name).unlink()
    if content:
        (folder / name).write_text(content)
    with pytest.raises(UserError, match=said):
        read_ctranslate2(folder)


def test_a_setting_without_a_counterpart_is_refused(pieces: Path, tmp_path: Path) -> None:
    write_model(tmp_path, tokens_of(pieces), alibi=True)
    (tmp_path / "sentencepiece.model").write_bytes(pieces.read_bytes())
    with pytest.raises(UserError, match="has decoder/alibi, which is not supported"):
        read_ctranslate2(tmp_path)
