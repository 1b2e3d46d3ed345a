"""Typical wrong answers to the exercises of chapter 3."""

from typing import Any

import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.core.attention import MultiHeadAttention
from headwise.lab.tutorial import check
from headwise.pytorch.architectures.transformer import build_model


def parts(attention: Any, heads: Any) -> Any:
    """What every head adds to the output."""
    return heads @ attention.o_proj.weight.unflatten(1, (attention.n_heads, -1)).permute(1, 2, 0)


def mask(lengths: Any, size: int) -> Any:
    return (torch.arange(size) < lengths[:, None])[:, None, None, :].expand(-1, 1, size, -1)


def square(size: int) -> Any:
    return torch.ones(size, size, dtype=torch.bool)


@pytest.mark.parametrize(
    ("number", "answer", "hint"),
    [
        ("3.1", lambda attention, heads: parts(attention, heads) + attention.o_proj.bias, "added once"),
        ("3.1", lambda attention, heads: parts(attention, heads).sum(1), "of every head"),
        ("3.1", lambda attention, heads: parts(attention, heads) + attention.o_proj.bias / 4, "without the bias"),
        ("3.1", lambda attention, heads: parts(attention, heads.flip(1)), "its own d_v columns"),
        ("3.1", lambda attention, heads: heads @ attention.o_proj.weight, "Your answer raises"),
        ("3.2", (64, 8), "64 is the variance"),
        ("3.2", (64, 1), "64 is the variance"),
        ("3.2", (8, 8), "Variances"),
        ("3.2", 8, "two numbers"),
        ("3.3", mask, "not to later ones"),
        ("3.3", lambda lengths, size: ~(mask(lengths, size) & square(size).tril()), "the other way round"),
        ("3.3", lambda lengths, size: mask(lengths, size) & square(size).triu(), "not to later ones"),
        ("3.3", lambda lengths, size: square(size).tril().expand(3, 1, -1, -1), "is padding"),
        ("3.3", lambda n, size: mask(n, size) & mask(n, size).mT & square(size).tril(), "padded queries"),
        ("3.3", lambda lengths, size: square(size).tril(), "Its shape is"),
        ("3.3", lambda lengths, size: mask(lengths, size).float(), "booleans"),
    ],
)
def test_a_wrong_answer_gets_its_hint(number: str, answer: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check(number, answer)
    assert hint in capsys.readouterr().out


def test_equation_1_is_computed_as_often_as_the_question_says() -> None:
    """In each layer of the paper's base model, whose shape is the default."""
    network = build_model(TransformerConfig(vocab_size=5, n_encoder_layers=1, n_decoder_layers=1))
    attentions = [
        [part.n_heads for part in stack.layers[0].modules() if isinstance(part, MultiHeadAttention)]
        for stack in (network.encoder, network.decoder)
    ]
    assert [sum(heads) for heads in attentions] == [8, 16]
