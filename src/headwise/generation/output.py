"""What a model has written, as text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwise.checkpoint.vocabulary import Vocabulary
from headwise.contract import NEVER, Hypothesis
from headwise.decode.stopping import before_stop
from headwise.decode.translator import Translation
from headwise.generation.chat import Messages, render_chat, without_mark

CONTEXT = 8  # tokens of a prompt that are decoded again before what follows it


Detokenise = Callable[[list[int]], str]


@dataclass(frozen=True)
class Output:
    """What a model has written."""

    text: str  # without marks, and without a stop string
    tokens: list[int]  # all that were written, without the end mark
    score: float  # log-probability over length^alpha: what alternatives are ranked by
    log_prob: float  # natural log, with the end mark
    token_log_probs: list[float]  # of each token, and of the end mark if there is one
    ended: str  # why: "end" (by the model), "stop" (by a stop string) or "length"
    alternatives: tuple["Output", ...] = ()  # the further n-best, best first


NOTHING = Translation("", 0.0, 0.0, [], [], [], parts=0)


def output_of(ranked: Sequence[Hypothesis], decode: Detokenise, stops: Sequence[str]) -> Output:
    """The best hypothesis as text, with the others behind it."""
    best, *others = [_one_output(found, decode, stops) for found in ranked]
    return replace(best, alternatives=tuple(others))


def _one_output(found: Hypothesis, decode: Detokenise, stops: Sequence[str]) -> Output:
    whole = decode(found.tokens)
    text = before_stop(whole, stops)
    ended = "stop" if text != whole else "end" if len(found.token_log_probs) > len(found.tokens) else "length"
    return Output(text, found.tokens, found.score, found.log_prob, found.token_log_probs, ended)


def decode_after(vocabulary: Vocabulary, prompt: Sequence[int]) -> Detokenise:
    """Ids to the text that they add to a prompt's; at the beginning of a text some vocabularies drop a blank."""
    context = list(prompt[-CONTEXT:])
    known = len(vocabulary.decode(context))
    return lambda ids: vocabulary.decode([*context, *ids])[known:]


def prompt_ids(prompt: str | Messages, path: Path, vocabulary: Vocabulary, start_id: int) -> list[int]:
    """A prompt as the vocabulary has it; where that is nothing, the start mark if there is one."""
    if not isinstance(prompt, str):
        text = render_chat(path, prompt)
        marked = bool(vocabulary.encode(""))
        return vocabulary.encode(without_mark(path, text) if marked else text)
    return vocabulary.encode(prompt) or ([] if start_id == NEVER else [start_id])
