"""The loss of the ends of answers."""

import math

import torch

from headwise.data.labelled import EncodedText
from headwise.generation.answer import Passage
from headwise.tasks.answering import span_loss


def test_padding_changes_nothing() -> None:
    """Whatever speaks for an answer that begins in it."""
    logits, spans = torch.tensor([[[1.0, 2], [3, 0]]]), torch.tensor([[1, 0]])
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-2))) / 2
    torch.testing.assert_close(span_loss(logits, spans).objective, torch.tensor(expected))
    padded = torch.cat([logits, torch.full((1, 1, 2), 9.0)], 1)
    found = span_loss(padded, spans, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(found.objective, torch.tensor(expected))
    assert found.figures["accuracy"] == 1


def test_an_answer_that_a_passage_cuts_is_not_in_it() -> None:
    """Neither at its beginning nor at its end; then the first token is the answer."""
    passage = Passage(EncodedText([0, 9, 5, 6, 7, 2], 2), 0, 2, [(4, 5), (5, 6), (6, 7)])
    assert passage.tokens_of(4, 6) == (2, 3) and passage.tokens_of(6, 7) == (4, 4)
    assert passage.tokens_of(3, 6) == passage.tokens_of(6, 8) == passage.tokens_of(8, 9) == (0, 0)
