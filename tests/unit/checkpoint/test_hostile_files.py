"""Model files that are damaged, or made to take memory: every format is an error in one line, in memory bounded by the
file.

Each format has one reader (`gguf_file`, `ctranslate2_file`, `marian`, `argos`, `tensors`, `weights`, `vocabulary`).
"""

import json
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny_families import write_tiny

import headwise
from headwise.errors import UserError
from headwise.pytorch.checkpoint.argos import open_argos
from headwise.pytorch.checkpoint.marian import read_marian
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.formats.ctranslate2_file import added_tokens, read_ctranslate2_file, read_ctranslate2_settings
from headwise.runtime.formats.gguf_file import read_gguf_file
from headwise.runtime.formats.gguf_model import open_gguf
from headwise.runtime.tokenizers.vocabulary import library_tokenizer

TOKENS = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "\u2581a"]
LLAMA = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.feed_forward_length": 12,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 1e4,
    "llama.context_length": 16,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0],
    "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{{ messages }}",
}
SHAPES = {
    "token_embd.weight": (8, 8),
    "output_norm.weight": (8,),
    **{f"blk.0.{name}.weight": (8,) for name in ("attn_norm", "ffn_norm")},
    **{f"blk.0.{name}.weight": (8, 8) for name in ("attn_q", "attn_output")},
    **{f"blk.0.{name}.weight": (4, 8) for name in ("attn_k", "attn_v")},
    **{f"blk.0.{name}.weight": (12, 8) for name in ("ffn_gate", "ffn_up")},
    "blk.0.ffn_down.weight": (8, 12),
}


def gguf_value(value: Any) -> tuple[int, bytes]:
    """The type of a value of metadata, and its bytes."""
    if isinstance(value, str):
        return 8, struct.pack("<Q", len(value.encode())) + value.encode()
    if isinstance(value, list):
        inner = [gguf_value(one) for one in value] or [(5, b"")]
        return 9, struct.pack("<IQ", inner[0][0], len(value)) + b"".join(part for _, part in inner)
    kinds: dict[type, tuple[int, str]] = {bool: (7, "<?"), int: (5, "<i"), float: (6, "<f")}
    kind, form = kinds[type(value)]
    return kind, struct.pack(form, value)


def gguf_bytes(metadata: Mapping[str, Any], together: bool = False) -> bytes:
    """A LLaMA; `together`: all tensors are in one place."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(SHAPES), len(metadata))
    for key, value in metadata.items():
        kind, content = gguf_value(value)
        head += gguf_value(key)[1] + struct.pack("<I", kind) + content
    place = 0
    for name, shape in SHAPES.items():
        head += gguf_value(name)[1] + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, 0 if together else place)
        place += -(-4 * int(np.prod(shape)) // 32) * 32
    head += bytes(-len(head) % 32)
    return head + np.random.default_rng(1).normal(0, 0.1, place // 4).astype("<f4").tobytes()


def read_gguf(path: Path) -> None:
    with open_gguf(path) as folder:
        read_folder(folder)


def test_the_file_to_damage_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(LLAMA))
    read_gguf(tmp_path / "m.gguf")


WRONG: dict[type, list[Any]] = {
    str: [3, True, ["a"]],
    int: ["x", 0.5, True, [1]],
    float: ["x", True, [0.5]],
    bool: ["x", 3, [True]],
    list: ["x", 3, [["a"]], [True]],
}


@pytest.mark.parametrize("key", LLAMA)
def test_metadata_of_another_type_is_named(key: str, tmp_path: Path) -> None:
    """Eleven of them were tracebacks."""
    for value in WRONG[type(LLAMA[key])]:
        (tmp_path / "m.gguf").write_bytes(gguf_bytes({**LLAMA, key: value}))
        with pytest.raises(UserError, match=rf"m\.gguf: .*{key} = .* is of another type"):
            read_gguf(tmp_path / "m.gguf")


def test_tensors_that_share_their_bytes(tmp_path: Path) -> None:
    """A thousand of them would take a thousand times the file."""
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(LLAMA, together=True))
    with pytest.raises(UserError, match=r"m\.gguf: .* shares its bytes with another tensor"):
        read_gguf_file(tmp_path / "m.gguf")


def test_a_long_token(tmp_path: Path) -> None:
    """SentencePiece's merges are pairs at all places of a token: the square of its length."""
    (tmp_path / "m.gguf").write_bytes(gguf_bytes({**LLAMA, "tokenizer.ggml.tokens": [*TOKENS[:-1], "a" * 100_000]}))
    with pytest.raises(UserError, match=r"m\.gguf: has a token of 100,000 characters"):
        read_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("token", ["a" * 10_000, 'a"' * 10_000, '\\"' * 10_000])
def test_a_long_token_of_a_tokenizer_file(token: str, tmp_path: Path) -> None:
    """The library overflowed its stack with three million characters, and had taken a gigabyte."""
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["precompiled_charsmap", 0.0], [token, -1.0]]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [], "model": model}))
    with pytest.raises(UserError, match=r"tokenizer\.json: has a token of \d+,\d+ bytes"):
        library_tokenizer(tmp_path / "tokenizer.json")


def test_the_long_map_of_characters_is_no_token(tmp_path: Path) -> None:
    """As T5 and XLM-R have it."""
    write_tiny(tmp_path, "bert")
    values = json.loads((tmp_path / "tokenizer.json").read_text())
    text = json.dumps({**values, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "A" * 8000}}, indent=1)
    (tmp_path / "tokenizer.json").write_text(text)
    assert library_tokenizer(tmp_path / "tokenizer.json").get_vocab_size() > 250


# --- CTranslate2


def ctranslate2_bytes(variables: Mapping[str, Any], aliases: Mapping[str, str]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    kinds = ("float32", "int8", "int16", "int32", "float16")
    found = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 7, len(variables))
    for name, array in variables.items():
        content = array.tobytes()
        found += text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        found += struct.pack("<BI", kinds.index(str(array.dtype)), len(content)) + content
    found += struct.pack("<I", len(aliases))
    return found + b"".join(text(alias) + text(name) for alias, name in aliases.items())


def test_variables_with_many_names(tmp_path: Path) -> None:
    table = np.zeros((100, 100), np.int8)
    few, many = ({f"a{i}": "table" for i in range(count)} for count in (4, 1000))
    (tmp_path / "model.bin").write_bytes(ctranslate2_bytes({"table": table}, few))
    assert len(read_ctranslate2_file(tmp_path / "model.bin").variables) == 5
    (tmp_path / "model.bin").write_bytes(ctranslate2_bytes({"table": table}, many))
    with pytest.raises(UserError, match=r"model\.bin: .*too many other names"):
        read_ctranslate2_file(tmp_path / "model.bin")


@pytest.mark.parametrize(
    "variables",
    [
        {"w": np.zeros((1, 9), np.int8), "w_scale": np.ones(9, np.float32)},  # would become a matrix of 9 x 9
        {"w": np.zeros((2, 9), np.int8), "w_scale": np.zeros(2, np.float32)},
        {"w": np.zeros((2, 9), np.int16)},
        {"w": np.array(3, np.int8)},
        {"w": np.zeros((2, 2), np.int32)},
        {},
    ],
)
def test_weights_that_are_none(variables: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(ctranslate2_bytes(variables, {}))
    with pytest.raises(UserError, match=r"model\.bin: w (has no scales|holds no weights)"):
        read_ctranslate2_file(tmp_path / "model.bin").weight("w")


@pytest.mark.parametrize("value", [np.zeros((2, 2), np.int8), np.zeros(0, np.int8), np.float32("nan")])
def test_a_setting_that_is_no_number(value: Any, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(ctranslate2_bytes({"n": np.asarray(value)}, {}))
    with pytest.raises(UserError, match=r"model\.bin: n is not one number"):
        read_ctranslate2_file(tmp_path / "model.bin").number("n")


@pytest.mark.parametrize(
    "name", ["layer_norm_epsilon", "eos_token", "decoder_start_token", "add_source_eos", "suppress_ids"]
)
def test_settings_of_ctranslate2_of_another_type(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({name: {"a": 1}}))
    with pytest.raises(UserError, match=rf"config\.json: {name} = .* of another type"):
        read_ctranslate2_settings(tmp_path)


@pytest.mark.parametrize("listed", ["x", {"a": 1}, [3], [{"content": 3, "id": 1}], [{"content": "a", "id": "1"}], [{}]])
def test_added_tokens_of_another_type(listed: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"t\.json: added_tokens is no list of tokens"):
        added_tokens(tmp_path / "t.json", {"added_tokens": listed})


# --- Archives


def test_archives_that_grow(tmp_path: Path) -> None:
    """A megabyte of zeros is a kilobyte in an archive."""
    zeros = bytes(4 << 20)
    with zipfile.ZipFile(tmp_path / "a.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("en_de/model/model.bin", zeros)
    with pytest.raises(UserError, match=r"a\.argosmodel: unpacks to more than 20 times its size"):
        open_argos(tmp_path / "a.argosmodel").__enter__()
    np.savez_compressed(tmp_path / "m.npz", **{"special:model.yml": np.frombuffer(zeros, np.int8)})
    with pytest.raises(UserError, match=r"m\.npz: unpacks to more than 20 times its size"):
        read_marian(tmp_path / "m.npz")


def test_an_array_that_is_shorter_than_its_header_says(tmp_path: Path) -> None:
    """numpy would take memory for the array first: a tebibyte."""
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive, archive.open("Wemb.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 19, 1 << 19)}
        )
    with pytest.raises(UserError, match=r"m\.npz: not a model of Marian, or damaged \(an array of float32"):
        read_marian(tmp_path / "m.npz")


# --- Any byte of any format


def load(folder: Path) -> None:
    model = headwise.load(folder, "cpu")
    _ = model.network, model.tokenizer, model.info()


def pickled(archive: bool) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
        (folder / "model.safetensors").unlink()

    return change


def sentencepiece_only(folder: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    (folder / "tokenizer.json").unlink()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(["a dog runs", "two men talk"] * 20),
        model_prefix=str(folder / "spiece"),
        vocab_size=26,
        hard_vocab_limit=False,
        minloglevel=2,
    )


FORMATS: dict[str, tuple[str, str, Callable[[Path], None]]] = {  # the file to damage, and what makes it
    "safetensors": ("bert", "model.safetensors", lambda folder: None),
    "tokenizer.json": ("bert", "tokenizer.json", lambda folder: None),
    "config.json": ("bert", "config.json", lambda folder: None),
    "archive of torch": ("bert", "pytorch_model.bin", pickled(True)),
    "pickle of torch": ("bert", "pytorch_model.bin", pickled(False)),
    "SentencePiece": ("t5", "spiece.model", sentencepiece_only),
    "GGUF": ("", "m.gguf", lambda folder: (folder / "m.gguf").write_bytes(gguf_bytes(LLAMA)) and None),
}


@pytest.fixture(scope="module", params=FORMATS)
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model that is read, and the name of its file."""
    kind, name, change = FORMATS[request.param]
    folder = tmp_path_factory.mktemp("original") / "model"
    if kind:
        write_tiny(folder, kind)
    else:
        folder.mkdir()
    change(folder)
    return folder, name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.sampled_from([0.0, 0.0, 0.3, 0.999]),
    near=st.sampled_from([60, 600, 1 << 30]),  # bytes from one end
    edits=st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_damage_anywhere_is_an_error_in_one_line(
    cut: float, near: int, edits: list[tuple[float, bool, int]], original: tuple[Path, str], tmp_path: Path
) -> None:
    folder, name = original
    shutil.copytree(folder, tmp_path / "model", dirs_exist_ok=True)
    content = bytearray((folder / name).read_bytes())
    for share, from_the_end, mask in edits:
        at = int(share * (min(near, len(content)) - 1))
        content[len(content) - 1 - at if from_the_end else at] ^= mask
    (tmp_path / "model" / name).write_bytes(content[: len(content) - int(cut * len(content))])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_gguf(tmp_path / "model" / name) if name.endswith("gguf") else load(tmp_path / "model")
    except UserError as error:
        assert "\n" not in str(error) and str(tmp_path / "model") in str(error)
