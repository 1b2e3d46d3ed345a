"""XLNet against transformers on tiny random checkpoints, as written by `save_pretrained`, in and out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import headwise
from headwise.cli import main
from headwise.errors import UserError
from headwise.models.encoding.fill import predict_masks
from headwise.models.language.text import continue_prompts, perplexity
from headwise.pytorch.architectures.xlnet import XLNet, partial_order_mask
from headwise.pytorch.checkpoint.xlnet_names import shape_from_hf, shape_to_hf, tensors_for_hf, xlnet_from_hf
from headwise.pytorch.models.language_model import TorchText
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.search.permutation import LeftToRight, QueryStream

transformers = pytest.importorskip("transformers")

VOCAB, BATCH, LENGTH = 40, 3, 9
CONFIGS: dict[str, dict[str, Any]] = {
    "bi": {},
    "uni": {"attn_type": "uni"},
    "untied": {"tie_word_embeddings": False},
    "clamped": {"clamp_len": 3},
    "one-head": {"n_head": 1, "d_head": 12, "n_layer": 3},
    "gelu_new": {"ff_activation": "gelu_new"},
    "silu": {"ff_activation": "silu"},
    "relu": {"ff_activation": "relu"},
    "loose-norm": {"layer_norm_eps": 0.1},
    "short-memory": {"mem_len": 4},
    "all-remembered": {"mem_len": None},
    "first-remembered": {"reuse_len": 5, "mem_len": 20},
}


def checkpoint(folder: Path, **settings: Any) -> tuple[Any, XLNet]:
    """Theirs, and ours read from the files they wrote."""
    torch.manual_seed(3)
    config = transformers.XLNetConfig(
        **{"vocab_size": VOCAB, "d_model": 12, "n_layer": 2, "n_head": 3, "d_inner": 20, **settings}
    )
    theirs = transformers.XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.4)
    theirs.save_pretrained(folder)
    ours = xlnet_from_hf(json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors"))
    return theirs, ours


def draw(batch: int = BATCH, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCAB, (batch, length))


def left_padded(lengths: tuple[int, ...] = (9, 6, 1)) -> Tensor:
    return torch.arange(LENGTH) >= LENGTH - torch.tensor(lengths).unsqueeze(1)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def row_by_row(model: Any, *inputs: Tensor, mems: tuple[Tensor, ...] = (), **named: Tensor) -> Tensor:
    """Their logits, one row at a time: from two rows on, "uni" with a permutation mask is an error there."""
    rows = range(len(inputs[0]))
    return torch.cat(
        [
            model(
                *(x[i : i + 1] for x in inputs),
                mems=tuple(memory[:, i : i + 1] for memory in mems) or None,
                **{name: x[i : i + 1] for name, x in named.items()},
            ).logits
            for i in rows
        ]
    )


def one_hot(targets: Tensor, length: int = LENGTH) -> Tensor:
    return torch.nn.functional.one_hot(targets, length).float()


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_one_stream(name: str, tmp_path: Path) -> None:
    """Logits, states after each layer, and the memory; then a second segment that reads it."""
    theirs, ours = checkpoint(tmp_path, **CONFIGS[name])
    layers: list[Tensor] = []
    for layer in ours.layers:
        layer.register_forward_hook(lambda module, given, streams: layers.append(streams[0]))
    first, second = draw(), draw(length=7)
    wanted, found = theirs(first, output_hidden_states=True, use_mems=True), ours.states(first)
    close(ours.logits(found.hidden), wanted.logits)
    for mine, other in zip(layers, wanted.hidden_states[1:], strict=True):
        close(mine, other)
    for mine, other in zip(found.mems, wanted.mems, strict=True):
        close(mine, other.transpose(0, 1))
    again = theirs(second, mems=wanted.mems, use_mems=True)
    close(ours(second, mems=found.mems), again.logits)
    for mine, other in zip(ours.states(second, mems=found.mems).mems, again.mems, strict=True):
        close(mine, other.transpose(0, 1))


@pytest.mark.parametrize("name", ["bi", "uni", "clamped"])
@torch.no_grad()
def test_two_streams(name: str, tmp_path: Path) -> None:
    """The query stream at some positions, under an order, padding, segments and a memory."""
    theirs, ours = checkpoint(tmp_path, **CONFIGS[name])
    tokens, mask, targets = draw(), left_padded((9, 6, 3)), torch.tensor([[8, 2, 5], [7, 8, 4], [6, 8, 7]])
    visible = partial_order_mask(torch.stack([torch.randperm(LENGTH) for _ in range(BATCH)]))
    segments = torch.randint(2, (BATCH, LENGTH))
    common = {"perm_mask": (~visible).float(), "target_mapping": one_hot(targets)}
    close(ours(tokens, visible=visible, targets=targets), row_by_row(theirs, tokens, **common))
    mems = theirs(draw(), use_mems=True).mems
    named = {"attention_mask": mask.float(), "token_type_ids": segments, **common}
    remembered = [memory.transpose(0, 1) for memory in mems]
    close(ours(tokens, mask, segments, visible, targets, remembered), row_by_row(theirs, tokens, mems=mems, **named))


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding(side: str, tmp_path: Path) -> None:
    theirs, ours = checkpoint(tmp_path)
    tokens, mask = draw(), left_padded() if side == "left" else left_padded().flip(1)
    close(ours(tokens, mask)[mask], theirs(tokens, attention_mask=mask.float()).logits[mask])


@torch.no_grad()
def test_segments(tmp_path: Path) -> None:
    """One whole segment, whatever its number, is as good as none named; two differ."""
    theirs, ours = checkpoint(tmp_path)
    tokens, segments = draw(), (torch.arange(LENGTH) > 4).long().expand(BATCH, -1)
    close(ours(tokens, segments=segments), theirs(tokens, token_type_ids=segments).logits)
    close(ours(tokens), theirs(tokens).logits)
    close(ours(tokens, segments=torch.full_like(tokens, 2)), ours(tokens))
    assert not ours(tokens, segments=segments).allclose(ours(tokens))


@torch.no_grad()
def test_long_text(tmp_path: Path) -> None:
    theirs, ours = checkpoint(tmp_path)
    tokens = draw(1, 600)
    close(ours(tokens), theirs(tokens).logits)


@pytest.mark.parametrize("name", ["bi", "untied", "first-remembered"])
@torch.no_grad()
def test_out_again(name: str, tmp_path: Path) -> None:
    """What we write, transformers reads, and computes the same."""
    theirs, ours = checkpoint(tmp_path / "theirs", **CONFIGS[name])
    shape = shape_from_hf(json.loads((tmp_path / "theirs" / "config.json").read_text()))
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text(json.dumps(shape_to_hf(shape)))
    save_file(tensors_for_hf(ours), tmp_path / "ours" / "model.safetensors", metadata={"format": "pt"})
    again, loading = transformers.XLNetLMHeadModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(loading.values())
    tokens = draw()
    wanted, found = theirs(tokens, use_mems=True), again.eval()(tokens, use_mems=True)
    close(found.logits, wanted.logits)
    assert [memory.shape for memory in found.mems] == [memory.shape for memory in wanted.mems]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """All of it, in the file's own names."""
    checkpoint(tmp_path)
    config, tensors = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / "model.safetensors")
    tensors["qa_outputs.weight"] = tensors.pop("transformer.mask_emb")
    tensors["transformer.layer.1.rel_attn.q"] = torch.zeros(12, 4, 3)
    with pytest.raises(UserError) as raised:
        xlnet_from_hf(config, tensors)
    assert "missing transformer.mask_emb; unexpected qa_outputs.weight" in str(raised.value)
    assert "transformer.layer.1.rel_attn.q is [12, 4, 3], should be [12, 3, 4]" in str(raised.value)


def test_a_tied_table_may_be_there_twice(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    config, tensors = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / "model.safetensors")
    table = tensors["transformer.word_embedding.weight"]
    xlnet_from_hf(config, {**tensors, "lm_loss.weight": table.clone()})
    with pytest.raises(UserError, match=r"unexpected lm_loss\.weight"):
        xlnet_from_hf(config, {**tensors, "lm_loss.weight": table + 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"new_idea": 1}, "not supported: new_idea = 1"),
        ({"bi_data": True}, "bi_data = True is not supported"),
        ({"same_length": True}, "same_length = True is not supported"),
        ({"attn_type": "tri"}, "attn_type = 'tri' is not supported, only bi or uni"),
        ({"ff_activation": "tanh"}, "ff_activation = 'tanh' is not supported, only gelu"),
        ({"d_head": 5}, "3 heads of d_head = 5 do not make d_model = 12"),
    ],
)
def test_configuration_is_read_strictly(change: dict[str, Any], message: str) -> None:
    config = transformers.XLNetConfig(d_model=12, n_head=3).to_dict()
    with pytest.raises(UserError, match=message):
        shape_from_hf({**config, **change})


# --- What it is good for ---


@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_it_writes_the_same(beams: int, tmp_path: Path) -> None:
    """Greedy and beam search over the query stream; in a batch of prompts of several lengths as alone."""
    theirs, _ = checkpoint(tmp_path, vocab_size=VOCAB, untie_r=True)
    model = headwise.load(tmp_path, "cpu")
    prompts = [torch.randint(6, VOCAB, (length,)).tolist() for length in (5, 2, 7)]
    settings = model.generation.changed({"max_new_tokens": 6, "beam_size": beams})
    found = [ranked[0].tokens for ranked in continue_prompts(model.text_network(), prompts, settings)]
    for prompt, ours in zip(prompts, found, strict=True):
        wanted = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=6, num_beams=beams, do_sample=False, use_mems=False
        )[0, len(prompt) :].tolist()
        assert ours == wanted[: len(ours)]
        assert set(wanted[len(ours) :]) <= {model.generation.special.eos_id, model.generation.special.pad_id}


@torch.no_grad()
def test_how_probable_a_text_is(tmp_path: Path) -> None:
    """Each token from those before it: the order from left to right."""
    theirs, ours = checkpoint(tmp_path)
    text = draw(batch=1)
    unseen = (torch.arange(LENGTH) >= torch.arange(LENGTH).unsqueeze(1)).float().unsqueeze(0)
    wanted = theirs(text, perm_mask=unseen, target_mapping=one_hot(torch.arange(1, LENGTH).unsqueeze(0))).logits
    log_probs = wanted.log_softmax(-1).gather(-1, text[:, 1:, None])
    found = perplexity(TorchText(LeftToRight(ours)), text[0].tolist(), window=LENGTH, stride=LENGTH - 1)
    assert found.tokens == LENGTH - 1
    assert found.log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)


@torch.no_grad()
def test_masks_are_filled_from_what_is_not_masked(tmp_path: Path) -> None:
    theirs, ours = checkpoint(tmp_path)
    text, mask_id = torch.randint(7, VOCAB, (1, LENGTH)), 6
    text[0, [2, 5]] = mask_id
    unseen = ((text == mask_id).unsqueeze(1) | torch.eye(LENGTH, dtype=torch.bool)).float()
    wanted = theirs(text, perm_mask=unseen, target_mapping=one_hot(torch.tensor([[2, 5]]))).logits[0].softmax(-1)
    found = predict_masks(TorchEncoder(QueryStream(ours, mask_id), 0), text[0].tolist(), mask_id, top=4)
    best = wanted.topk(4)
    for guesses, ids, shares in zip(found, best.indices.tolist(), best.values.tolist(), strict=True):
        assert [token for token, _ in guesses] == ids
        assert [share for _, share in guesses] == pytest.approx(shares, abs=1e-5)


def test_commands_take_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its own kind of vocabulary: what stands behind a text, commas behind numbers, masks."""
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a man sees 77, dogs and 88, cats"] * 50),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=VOCAB,
        hard_vocab_limit=False,
        control_symbols=["<cls>", "<sep>", "<pad>", "<mask>"],
        unk_id=0, bos_id=1, eos_id=2, minloglevel=2,
    )  # fmt: skip
    checkpoint(tmp_path)
    vocabulary = headwise.load(tmp_path, "cpu").tokenizer
    ids = vocabulary.encode("a  <mask> 77, dogs")
    assert vocabulary.encode_two
    assert vocabulary.encode_two("a", "a") == ([*vocabulary.encode("a")[:-1], *vocabulary.encode("a")], [0, 0, 1, 1, 2])
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model")).id_to_piece(ids)
    assert pieces[-2:] == ["<sep>", "<cls>"]
    assert "<mask>" in pieces
    assert pieces[pieces.index("<mask>") + 1 :].count(",") == 1
    for command in (["generate", "a man", "--format", "jsonl"], ["fill", "a <mask> ,", "--top", "2"], ["info"]):
        main([command[0], str(tmp_path), *command[1:]])
        assert capsys.readouterr().out.strip()


def test_load_takes_the_folder(tmp_path: Path) -> None:
    theirs, _ = checkpoint(tmp_path)
    model = headwise.load(tmp_path, device="cpu")
    tokens, mask = draw(), torch.ones(BATCH, LENGTH, dtype=torch.bool)
    mask[0, :3] = False
    with torch.no_grad():
        ours, wanted = model.network(tokens, mask), theirs(tokens, attention_mask=mask.float()).logits
    torch.testing.assert_close(ours[mask], wanted[mask], atol=1e-5, rtol=1e-5)
    assert model.info()["family"] == "xlnet"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    """In files it is computed in float32, where it is asked for in itself."""
    theirs, _ = checkpoint(tmp_path)
    theirs.to(dtype).save_pretrained(tmp_path)
    tokens, model = draw(), headwise.load(tmp_path, "cpu")
    exact = transformers.XLNetLMHeadModel.from_pretrained(tmp_path, dtype=torch.float32).eval()(tokens).logits
    close(model.network(tokens), exact)
    rough = headwise.load(tmp_path, "cpu", dtype=str(dtype).removeprefix("torch.")).network(tokens)
    assert rough.dtype == dtype
    assert torch.cosine_similarity(rough.float().flatten(), exact.flatten(), dim=0) > 0.99
