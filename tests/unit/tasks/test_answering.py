"""Question answering: loss and targets."""

import math

import torch

from headwise.models.encoding.answer import Passage
from headwise.pytorch.tasks.answering import span_loss
from headwise.text.prepared.encoded import EncodedText


def test_padding_does_not_change_the_loss() -> None:
    """Even if its logits are high."""
    logits, spans = torch.tensor([[[1.0, 2], [3, 0]]]), torch.tensor([[1, 0]])
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-2))) / 2
    torch.testing.assert_close(span_loss(logits, spans).objective, torch.tensor(expected))
    padded = torch.cat([logits, torch.full((1, 1, 2), 9.0)], 1)
    found = span_loss(padded, spans, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(found.objective, torch.tensor(expected))
    assert found.figures["accuracy"] == 1


def test_a_truncated_answer_is_not_in_the_passage() -> None:
    """Cut at its start or its end; then the target is the first token."""
    passage = Passage(EncodedText([0, 9, 5, 6, 7, 2], 2), 0, 2, [(4, 5), (5, 6), (6, 7)])
    assert passage.tokens_of(4, 6) == (2, 3) and passage.tokens_of(6, 7) == (4, 4)
    assert passage.tokens_of(3, 6) == passage.tokens_of(6, 8) == passage.tokens_of(8, 9) == (0, 0)
