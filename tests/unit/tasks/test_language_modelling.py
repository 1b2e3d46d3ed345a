"""The loss of language models by hand, also across the ends of documents."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, apply_settings, check, load_recipe
from headwise.config.training import TrainConfig
from headwise.core.build import build
from headwise.core.heads import CappedLanguageHead, ScaledLanguageHead
from headwise.core.transformer import DecoderOnly
from headwise.errors import UserError
from headwise.pytorch.architectures.hf_layouts import language_model_config
from headwise.pytorch.checkpoint.from_scratch import ScratchLayout, check_layout
from headwise.pytorch.checkpoint.write import config_to_hf
from headwise.pytorch.data.blocks import load_blocks
from headwise.pytorch.tasks.language_modelling import LanguageJob, block_loss, language_objective
from headwise.pytorch.training.validation import Shard
from headwise.text.files.documents import DocumentTokenizer, PreparedText, prepare_documents

CPU = torch.device("cpu")
SHAPE = {"task": "lm", "d_model": 16, "d_ff": 24, "n_heads": 2, "n_decoder_layers": 2, "norm_position": "pre",
         "activation": "gelu", "dropout": 0.0, "positions": "learned"}  # fmt: skip


class Bigrams(DecoderOnly):
    """Logits of the next token from a table, by the last token."""

    def __init__(self, table: torch.Tensor) -> None:
        nn.Module.__init__(self)
        self.head = nn.Module()
        self.head.output = nn.Linear(*table.T.shape, bias=False)
        self.head.output.weight.data.copy_(torch.eye(len(table)))
        self.table = nn.Parameter(table)

    def decode(self, tokens: torch.Tensor, cache: object = None) -> torch.Tensor:
        return self.table[tokens]


def test_loss_across_documents_by_hand(tmp_path: Path) -> None:
    """Documents "ab" and "b" are a b | b |: b follows a, the end token b, b the end token, the end token b."""
    (tmp_path / "d.jsonl").write_text('{"text": "ab"}\n{"text": "b"}\n', encoding="utf-8")
    cutter = DocumentTokenizer(lambda texts: [["ab".index(c) for c in text] for text in texts], [], [2], "", 3)
    text = prepare_documents([str(tmp_path / "d.jsonl")], cutter, tmp_path, progress=False)
    assert text.tokens.tolist() == [0, 1, 2, 1, 2]
    table = torch.tensor([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])  # after a, b, the end token
    batch = load_blocks(text.tokens, np.array([0]), 4)
    network = Bigrams(table.log())
    loss = block_loss(network, network.decode, batch)
    expected = -(math.log(0.7) + math.log(0.4) + math.log(0.25) + math.log(0.4))
    assert loss.objective.item() == pytest.approx(expected)
    assert loss.nll.item() == pytest.approx(expected)
    loss.objective.backward()  # softmax minus one-hot targets
    gradient = network.table.grad
    assert gradient is not None
    rows = torch.tensor([[0.1, 0.7 - 1, 0.2], [2 * 0.3, 2 * 0.3, 2 * 0.4 - 2], [0.5, 0.25 - 1, 0.25]])
    torch.testing.assert_close(gradient, rows)


def fresh(**changes: object) -> DecoderOnly:
    torch.manual_seed(1)
    return build(language_model_config(TransformerConfig(**{**SHAPE, **changes, "vocab_size": 11}), 12))


def test_attention_is_causal() -> None:
    network = fresh().eval()
    tokens = torch.randint(0, 11, (1, 9))
    other = tokens.clone()
    other[0, 6:] = (other[0, 6:] + 1) % 11
    torch.testing.assert_close(network.decode(tokens)[:, :6], network.decode(other)[:, :6])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["plain", "scaled", "capped"])
def test_loss_is_cross_entropy_of_the_logits(smoothing: float, kind: str) -> None:
    network = fresh()
    output = network.output
    heads = {
        "plain": network.head,
        "scaled": ScaledLanguageHead(output, 0.5),
        "capped": CappedLanguageHead(output, 2.0),
    }
    network.head = heads[kind]
    batch = load_blocks(np.arange(40, dtype=np.int32) % 11, np.array([0, 9, 17]), 12)
    loss = language_objective(network, TrainConfig(label_smoothing=smoothing))(batch)
    logits, targets = network(batch.tgt_in).flatten(0, 1), batch.tgt_out.flatten()
    for found, epsilon in ((loss.objective, smoothing), (loss.nll, 0.0)):
        expected = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=epsilon)
        torch.testing.assert_close(found, expected)


def test_validation_loss_is_a_mean_over_tokens() -> None:
    tokens = (np.arange(31) ** 2 % 11).astype(np.int32)
    text = PreparedText(tokens, np.array([31]), 31, "")
    config = apply_settings(load_recipe("gpt"), ["data.block_length=12", "train.tokens_per_batch=24"])
    network = fresh().eval()
    job = LanguageJob(config, None, {}, text, text, lambda: network, layout=ScratchLayout({}, dict))
    figures = job.figures(job.outputs(network, CPU, Shard()))
    parts = [(0, 12), (12, 24), (24, 30)]
    nll = 0.0
    for start, end in parts:
        logits = network(torch.from_numpy(tokens[start:end].astype(np.int64))[None])[0]
        targets = torch.from_numpy(tokens[start + 1 : end + 1].astype(np.int64))
        nll += nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    assert figures["loss"] == pytest.approx(nll / 30)
    assert figures["perplexity"] == pytest.approx(math.exp(nll / 30))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"positions": "sinusoidal"}, "positions = 'sinusoidal_interleaved'"),
        ({"norm_position": "post"}, "norm_position = 'post'"),
        ({"norm": "rms"}, "norm = 'rms'"),
        ({"gated": True}, "gated = True"),
        ({"positions": "rotary", "norm": "rms", "gated": True, "normalise_heads": True}, "normalise_heads = True"),
        ({"positions": "rotary"}, "llama cannot have gated = False, norm = 'layer'"),
        ({"d_k": 4}, "d_head = 4"),
    ],
)
def test_unsupported_settings(settings: dict[str, object], expected: str) -> None:
    config = language_model_config(TransformerConfig(**{**SHAPE, **settings, "vocab_size": 11}), 12)
    with pytest.raises(UserError) as caught:
        check_layout(config)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "relu", "tied_embeddings": "none"},
        {"positions": "rotary", "norm": "rms", "gated": True, "biases": False, "activation": "silu", "n_kv_heads": 1},
        {"positions": "rotary", "norm": "rms", "gated": True, "d_k": 4, "d_v": 4, "tied_embeddings": "none"},
    ],
)
def test_settings_survive_the_hugging_face_layout(settings: dict[str, object]) -> None:
    assert (
        config_to_hf(language_model_config(TransformerConfig(**{**SHAPE, **settings, "vocab_size": 11}), 12))[1] == []
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.architecture=recurrent", "model.architecture = recurrent"),
        ("model.n_encoder_layers=2", "model.n_encoder_layers = 2 is not used by model.task = lm"),
        ("data.max_length=9", "data.max_length = 9 is not used by model.task = lm"),
        ("data.bpe_dropout=0.1", "data.bpe_dropout = 0.1 is not used by model.task = lm"),
    ],
)
def test_settings_of_other_tasks(setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check(apply_settings(load_recipe("gpt"), [setting]))
    assert message in str(caught.value)


def test_character_tokenizers_need_a_language_model() -> None:
    with pytest.raises(UserError, match=r"data.subword = characters.*model.task = lm.*not"):
        check(apply_settings(RunConfig(), ["data.subword=characters"]))
