"""Importance of heads: the gradient by a gate, checked by turning the gate; and who goes first."""

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.heads import Head, HeadMask, multi_head_attentions
from headwise.pytorch.inspect.importance import head_importance, least_important
from headwise.text.tokens.tokenizer import Tokenizer

SOURCES = ["a little dog runs", "two cats", "the old sofa", "a cat and a dog"]
TARGETS = ["ein kleiner Hund rennt", "zwei Katzen", "das alte Sofa", "eine Katze und ein Hund"]
TOKENIZER = Tokenizer.train(SOURCES + TARGETS, TranslationData(vocab_size=280))


def build() -> Transformer:
    shape = {"d_model": 12, "d_ff": 16, "n_heads": 3, "n_encoder_layers": 1, "n_decoder_layers": 2}
    model = build_model(TransformerConfig(vocab_size=TOKENIZER.vocab_size, **shape)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def turned_down(model: Transformer, head: Head, gate: float) -> list[float]:
    """The negative log-likelihood of each pair with the head's output times `gate`."""
    attention = multi_head_attentions(model)[head.layer_name]
    columns = attention.o_proj.weight.unflatten(1, (3, -1))
    before = columns.detach().clone()
    with torch.no_grad():
        columns[:, head.number] *= gate
        found = [loss(model, src, tgt) for src, tgt in zip(SOURCES, TARGETS, strict=True)]
        columns.copy_(before)
    return found


def loss(model: Transformer, source: str, target: str) -> float:
    """The negative log-likelihood of a pair, in float64 as the model."""
    src = torch.tensor([[*TOKENIZER.encode(source), TOKENIZER.eos_id]])
    tgt = TOKENIZER.encode(target)
    hidden = model.states(src, torch.tensor([[TOKENIZER.bos_id, *tgt]]), torch.ones_like(src, dtype=torch.bool))
    log_probs = model.logits(hidden)[0].log_softmax(-1)
    return -sum(log_probs[place, token].item() for place, token in enumerate([*tgt, TOKENIZER.eos_id]))


def test_importance_is_the_mean_gradient_by_the_gate() -> None:
    model = build()
    importance = head_importance(model, TOKENIZER, SOURCES, TARGETS)
    for place, attention in multi_head_attentions(model).items():
        sums = []
        for number in range(attention.n_heads):
            more, less = (turned_down(model, Head(*place, number), 1 + step) for step in (1e-5, -1e-5))
            sums.append(sum(abs(a - b) for a, b in zip(more, less, strict=True)))
        norm = sum(value**2 for value in sums) ** 0.5
        found = [importance[Head(*place, number)] for number in range(attention.n_heads)]
        assert found == pytest.approx([value / norm for value in sums], abs=1e-3)


def test_batches_change_nothing_and_nothing_stays_behind() -> None:
    model = build()
    together = head_importance(model, TOKENIZER, SOURCES, TARGETS)
    alone = head_importance(model, TOKENIZER, SOURCES, TARGETS, batch_tokens=1)
    assert alone == pytest.approx(together)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_silent_head_matters_to_nobody() -> None:
    model = build()
    HeadMask(model).set({Head("cross", 1, 2)})
    importance = head_importance(model, TOKENIZER, SOURCES, TARGETS)
    assert importance[Head("cross", 1, 2)] == 0
    assert importance[Head("cross", 1, 1)] > 0


def test_nothing_to_judge_by() -> None:
    with pytest.raises(UserError, match="0 source and 0 target lines"):
        head_importance(build(), TOKENIZER, [], [])
    with pytest.raises(UserError, match="2 source and 1 target lines"):
        head_importance(build(), TOKENIZER, ["a", "b"], ["c"])


IMPORTANCE = {
    Head("encoder", 0, 0): 0.1,
    Head("encoder", 0, 1): 0.2,
    Head("cross", 0, 0): 0.9,
    Head("cross", 0, 1): 0.3,
    Head("cross", 1, 0): 0.0,
}


def test_the_least_important_go_first_and_each_attention_keeps_one() -> None:
    assert least_important(IMPORTANCE, 0) == []
    assert least_important(IMPORTANCE, 1) == [Head("encoder", 0, 0)]
    assert least_important(IMPORTANCE, 2) == [Head("encoder", 0, 0), Head("cross", 0, 1)]
    with pytest.raises(UserError, match=r"3 heads.*5.*2"):
        least_important(IMPORTANCE, 3)
