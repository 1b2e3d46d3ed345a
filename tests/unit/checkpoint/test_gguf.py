"""GGUF files, written with llama.cpp's own library, give the same tokens and logits as the original models."""

import json
import struct
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import headwise
from headwise import cli
from headwise.errors import UserError
from headwise.runtime.formats.gguf_file import read_gguf_file
from headwise.runtime.formats.gguf_model import open_gguf
from headwise.runtime.tokenizers.gguf_tokenizer import tokenizer_of

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

TEXTS = [
    "A dog runs.",
    "It's 12,345  dogs\n\n in   Köln 🐕!",
    " a",
    "",
    "日本語のテキスト\tx",
    "a <|end|> b",
    "345345",
    "e\u0301",
]
CORPUS = ["A dog runs in the park.", "It's 12 o'clock, and 345 dogs bark at 345!", "Köln 日本語 🐕"] * 5
SMALL = {
    **{"vocab_size": 400, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5},
}
LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rope_theta": 5000.0}),
    "tied": ("Llama", {"tie_word_embeddings": True}),
    "llama 3": ("Llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA_3}}),
    "biases": ("Llama", {"attention_bias": True}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
}
PARTS = {
    **{"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"},
    **{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"},
    **{"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"},
    **{"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
    **{"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"},
}


def made(kind: str) -> Any:
    name, more = MODELS[kind]
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():  # norms and biases, too
        parameter.data = torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1)
    return model


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|start|>", "<|end|>"]
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, special_tokens=special)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def add_byte_level(writer: Any, pre: str) -> Tokenizer:
    """Writes a tokenizer; returns what it was trained as."""
    tokenizer = byte_level()
    about = tokenizer.to_str()
    merges = [" ".join(pair) for pair in json.loads(about)["model"]["merges"]]
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    tokens += [f"unused{chr(97 + i)}" for i in range(SMALL["vocab_size"] - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in ("<|start|>", "<|end|>") else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    return tokenizer


def write_file(
    path: Path,
    kind: str,
    model: Any,
    quantized: str = "F32",
    pre: str = "",
    tensors: Any = (),
    strings: Any = (),
    **changes: Any,
) -> None:
    """As llama.cpp's converter writes a model; `changes` are numbers of the metadata."""
    c, architecture = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, changes.pop("architecture", architecture))
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_vocab_size(c.vocab_size)
    if architecture == "qwen3":
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
    for name, value in changes.items():
        writer.add_uint32(name.replace("__", "."), value)
    for name, value in dict(strings).items():
        writer.add_string(name, value)
    for name, value in dict(tensors).items():
        writer.add_tensor(name, value)
    add_byte_level(writer, pre or ("qwen2" if architecture != "llama" else "llama-bpe"))
    if kind == "llama 3":
        writer.add_tensor("rope_freqs.weight", rotary_factors(c).astype(np.float32))
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        values = tensor.numpy()
        *_, kind_of = name.split(".")
        part = next(theirs for ours, theirs in PARTS.items() if name.removesuffix(f".{kind_of}").endswith(ours))
        block = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
        if architecture == "llama" and part in ("attn_q", "attn_k"):
            heads = c.num_attention_heads if part == "attn_q" else c.num_key_value_heads
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        type_ = gguf.GGMLQuantizationType[quantized if values.ndim == 2 else "F32"]
        writer.add_tensor(f"{block}{part}.{kind_of}", gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rotary_factors(c: Any) -> np.ndarray[Any, Any]:
    """From the frequencies that transformers computes."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](c, "cpu")
    width = c.hidden_size // c.num_attention_heads
    plain = 1 / c.rope_parameters["rope_theta"] ** (np.arange(0, width, 2) / width)
    return plain / scaled.double().numpy()


@pytest.mark.parametrize("kind", MODELS)
def test_logits_are_those_of_the_original(kind: str, tmp_path: Path) -> None:
    """In float64, apart from rotary positions, which both compute in float32."""
    model = made(kind)
    write_file(tmp_path / "model.gguf", kind, model)
    assert cli.main(["import", str(tmp_path / "model.gguf"), str(tmp_path / "out")]) == 0
    tokens = torch.arange(40).reshape(2, 20) * 7 % 400
    network = headwise.load(tmp_path / "out", device="cpu").network
    with torch.no_grad():
        torch.testing.assert_close(network.double()(tokens), model.double()(tokens).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantized", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_tensors_are_read_exactly(quantized: str, tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf", "llama", made("llama"), quantized)
    file = read_gguf_file(tmp_path / "model.gguf")
    for one in gguf.GGUFReader(tmp_path / "model.gguf").tensors:
        wanted = gguf.quants.dequantize(one.data, one.tensor_type)
        assert np.array_equal(file.tensor(one.name), wanted), one.name


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_byte_level_tokenizer_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    write_file(tmp_path / "model.gguf", kind, made(kind))
    tokenizer = tokenizer_of(read_gguf_file(tmp_path / "model.gguf"))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    start = [0] if kind == "llama" else []
    for text in TEXTS:
        composed = normalize("NFC", text) if kind == "qwen2" else text  # as tokenizer.json of Qwen 2 does
        found = tokenizer.encode(text).ids
        assert found == [*start, *theirs(composed, add_special_tokens=False).input_ids], text
        assert tokenizer.decode(found) == composed.replace("<|end|>", "")
    whole = tokenizer.encode("unusedq").tokens[len(start) :] == ["unusedq"]  # a word that merges do not lead to
    assert whole == (kind == "llama"), "llama.cpp ignores merges for words of LLaMA 3 that are tokens"


def write_sentencepiece(folder: Path, **changes: Any) -> Any:
    """A file with a SentencePiece model as its tokenizer; returns the model."""
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    (folder / "text").write_text("\n".join(CORPUS), encoding="utf-8")
    files = {"input": str(folder / "text"), "model_prefix": str(folder / "m"), "minloglevel": 2}
    kind = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 360, "hard_vocab_limit": False}
    texts = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    SentencePieceTrainer.train(**files, **kind, **texts, user_defined_symbols=["<|end|>"])
    pieces = SentencePieceProcessor(model_file=str(folder / "m.model"))
    ids = range(pieces.get_piece_size())
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(i) for i in ids])
    writer.add_token_scores([pieces.get_score(i) for i in ids])
    tests = (pieces.is_unknown, 2), (pieces.is_control, 3), (lambda i: pieces.id_to_piece(i) == "<|end|>", 4)
    writer.add_token_types([next((n for is_, n in (*tests, (pieces.is_byte, 6)) if is_(i)), 1) for i in ids])
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    for name, value in changes.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return pieces


def test_a_tokenizer_of_sentencepiece_gives_its_pieces(tmp_path: Path) -> None:
    pieces = write_sentencepiece(tmp_path)
    tokenizer = tokenizer_of(read_gguf_file(tmp_path / "model.gguf"))
    for text in [text for text in TEXTS if "<" not in text] + CORPUS:
        found = tokenizer.encode(text).ids
        assert found == [pieces.bos_id(), *pieces.encode(text)], text
        assert tokenizer.decode(found) == text
    marked = tokenizer.encode("<s> A</s>").ids
    assert (marked[1], marked[-1]) == (pieces.bos_id(), pieces.eos_id())


def test_start_and_end_tokens_follow_the_settings(tmp_path: Path) -> None:
    pieces = write_sentencepiece(tmp_path, add_bos_token=False, add_eos_token=True, add_space_prefix=False)
    tokenizer = tokenizer_of(read_gguf_file(tmp_path / "model.gguf"))
    found = tokenizer.encode("dogs")
    assert found.tokens[0] != "\u2581dogs" and found.ids[-1] == pieces.eos_id()
    assert tokenizer.decode(found.ids) == "dogs"


def test_chat_template_and_end_tokens_are_kept(tmp_path: Path) -> None:
    more = {"strings": {"tokenizer.chat_template": "{{ messages }}"}, "tokenizer__ggml__eot_token_id": 7}
    write_file(tmp_path / "model.gguf", "llama", made("llama"), **more)
    with open_gguf(tmp_path / "model.gguf") as folder:
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        ends = json.loads((folder / "generation_config.json").read_text())
    assert settings == {"bos_token": "<|start|>", "eos_token": "<|end|>", "chat_template": "{{ messages }}"}
    assert ends == {"bos_token_id": 0, "eos_token_id": [1, 7]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quantized": "Q5_1"}, "quantised as Q5_1; only F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read"),
        ({"architecture": "gemma2"}, "GGUF of gemma2; only llama, qwen2, qwen3 are imported"),
        ({"llama__expert_count": 8}, "llama.expert_count = 8 is not supported"),
        ({"split__count": 3}, "one part of several; join them"),
        ({"llama__rope__dimension_count": 8}, "llama.rope.dimension_count = 8 is not supported"),
        ({"pre": "mpt"}, "tokenizer.ggml.pre = 'mpt' is not supported"),
        (
            {"tensors": {"blk.0.ffn_up_exps.weight": np.zeros((2, 2), np.float32)}},
            "ffn_up_exps.weight is not",
        ),
        ({"tensors": {"rope_freqs.weight": np.full(8, 3.0, np.float32)}}, "is not the scaling of LLaMA 3"),
        ({"strings": {"llama.rope.scaling.type": "yarn"}}, "rope_scaling"),
    ],
)
def test_unsupported_files_are_named(
    changes: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(tmp_path / "model.gguf", "llama", made("llama"), **changes)
    assert cli.main(["import", str(tmp_path / "model.gguf"), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and str(tmp_path / "model.gguf") in error and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists()


def test_damaged_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Truncated anywhere, and with a flipped byte anywhere in the header."""
    path = tmp_path / "model.gguf"
    write_file(path, "llama", made("llama"))
    whole, rng = path.read_bytes(), np.random.default_rng(1)
    header = whole.index(b"blk.1") + 200
    cuts = [whole[:at] for at in [*rng.integers(4, header, 20), len(whole) - 1]]
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
               for at, bit in zip(rng.integers(4, header, 40), rng.integers(0, 8, 40), strict=True)]  # fmt: skip
    for content in (*cuts, *flipped):
        path.write_bytes(content)
        code = cli.main(["import", str(path), str(tmp_path / f"out{rng.integers(1 << 60)}")])
        error = capsys.readouterr().err
        assert code in (0, 2) and (code == 0 or error.count("headwise: error") == 1), error
        assert "Traceback" not in error
    for content in cuts:
        path.write_bytes(content)
        assert cli.main(["import", str(path), str(tmp_path / "cut")]) == 2


def test_huge_counts_need_no_memory(tmp_path: Path) -> None:
    for version, tensors, keys, size in ((3, 2**62, 0, 1), (3, 0, 2**62, 1), (2, 1, 1, 2**40), (9, 0, 0, 1)):
        path = tmp_path / "model.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQQ", version, tensors, keys, size) + b"\xff" * 64)
        with pytest.raises(UserError, match=r"damaged|version 9"):
            read_gguf_file(path)
