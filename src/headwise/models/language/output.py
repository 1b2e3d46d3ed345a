"""Outputs of a model as text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwise.contract import Hypothesis
from headwise.runtime.search.streaming import before_stop
from headwise.runtime.search.translator import Translation

if TYPE_CHECKING:  # a model that was trained here does without it
    from headwise.runtime.tokenizers.vocabulary import Vocabulary

CONTEXT = 8  # tokens of a prompt that are decoded again before the output

Detokenise = Callable[[list[int]], str]


@dataclass(frozen=True)
class Output:
    """The output for one input."""

    text: str  # without special tokens, and without a stop string
    tokens: list[int]  # without the end token
    score: float  # log-probability over length^alpha, which ranks alternatives
    log_prob: float  # natural log, with the end token
    token_log_probs: list[float]  # of each token, and of the end token if there is one
    ended: str  # the reason: "end" (by the model), "stop" (by a stop string) or "length"
    alternatives: tuple["Output", ...] = ()  # the rest of the n-best list, best first


NOTHING = Translation("")


def output_of(ranked: Sequence[Hypothesis], decode: Detokenise, stops: Sequence[str]) -> Output:
    """The best hypothesis as text, with the others as alternatives."""
    best, *others = [_one_output(found, decode, stops) for found in ranked]
    return replace(best, alternatives=tuple(others))


def _one_output(found: Hypothesis, decode: Detokenise, stops: Sequence[str]) -> Output:
    whole = decode(found.tokens)
    text = before_stop(whole, stops)
    ended = "stop" if text != whole else "end" if len(found.token_log_probs) > len(found.tokens) else "length"
    return Output(text, found.tokens, found.score, found.log_prob, found.token_log_probs, ended)


def decode_after(vocabulary: "Vocabulary", prompt: Sequence[int]) -> Detokenise:
    """A function from ids to the text after a prompt; some vocabularies drop a space at the start of a text."""
    context = list(prompt[-CONTEXT:])
    known = len(vocabulary.decode(context))
    return lambda ids: vocabulary.decode([*context, *ids])[known:]
