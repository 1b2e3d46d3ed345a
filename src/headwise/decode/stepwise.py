"""The search engine of torch: pads a batch, encodes it, and searches step by step with a cache.

For every network that the compiled library does not take, and for what the library cannot do: stop strings. Not here:
which batches there are (`engine`), and the search itself (`search`), which this module hands a step function.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.contract import Continuation, EncoderDecoder, Hypothesis, SearchEngine, SearchOptions
from headwise.decode.candidates import Candidates
from headwise.decode.constraints import Limits
from headwise.decode.ending import ending_of
from headwise.decode.phrases import phrase_search
from headwise.decode.ranking import highest
from headwise.decode.request import Bounds, not_finite
from headwise.decode.sampling import draw, sample, stream_uniforms
from headwise.decode.search import (
    Cache,
    Continuations,
    Step,
    allowed_log_probs,
    beam_search,
    beam_steps,
    has_ended,
    hypothesis_of,
    next_log_probs,
)
from headwise.decode.speculative import cannot_step_back


def engine_of(model: EncoderDecoder | SearchEngine) -> SearchEngine:
    """What searches with a model: itself, if it can, or torch."""
    return model if isinstance(model, SearchEngine) else TorchEngine(model)


class TorchEngine:
    """A network that torch searches with; the contract `contract.SearchEngine`."""

    in_one_thread = True  # torch has threads of its own

    def __init__(self, model: EncoderDecoder) -> None:
        """`model` is put into evaluation mode for the time of a search."""
        self.model = model

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Bounds,
        options: SearchOptions,
        few: Candidates | None,
        stop: object = None,
    ) -> list[list[Hypothesis]]:
        """As of the contract; nobody else computes meanwhile, so that nothing is to be stopped."""
        with evaluating(self.model), torch.inference_mode(), _memory_errors():
            start = start_search(self.model, sources, limits, options, few)
            how = start.step, start.cache, start.limits, start.options
            if start.limits.phrases is not None:
                return phrase_search(*how)
            if limits.streams is None:
                return beam_search(*how)
            return sample(*how, torch.from_numpy(limits.streams).to(start.limits.max_length.device))

    def begin(
        self,
        sources: Sequence[Sequence[int]],
        limits: Bounds,
        options: SearchOptions,
        few: Candidates | None,
        stop: object = None,
    ) -> "BeamInSteps | PathInSteps":
        """As of the contract."""
        with evaluating(self.model), torch.inference_mode():
            start = start_search(self.model, sources, limits, options, few)
        if options.beam_size > 1 and limits.streams is None:
            return BeamInSteps(self.model, start)
        return PathInSteps(self.model, start, limits.streams)

    def read(self, source: Sequence[int]) -> "DraftedOutput":
        """What may be written for a source with its end, as `decode.drafts` uses it."""
        return DraftedOutput(self.model, source)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside, the model is in evaluation mode: without dropout."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """What torch raises where a device's memory, or this machine's, has run out becomes a `MemoryError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        elif "can't allocate memory" not in str(error):
            raise
        raise MemoryError(str(error)) from error


# --- Before the first step ---


@dataclass(frozen=True)
class Start:
    """Everything a search needs for some sources."""

    step: Step
    cache: Any
    limits: Limits
    options: SearchOptions
    beginning: tuple[int, ...]  # what the decoder reads before it writes


def start_search(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    limits: Bounds,
    options: SearchOptions,
    few: Candidates | None = None,
) -> Start:
    """Encode sources, which have their ends; apply the shortlist if there is one."""
    device, begun = next(iter(model.parameters())).device, options.begun
    src, src_mask = (x.to(device) for x in pad_right(sources))
    cache = model.start_cache(model.encode(src, src_mask), src_mask)
    beginning = options.bos_id, *limits.prefix[0, :begun].tolist()
    options = counting(options, beginning)
    own = to_limits(limits, begun, few).to(device)
    return Start(_after(step_of(model), beginning), cache, own, options, beginning)


def counting(options: SearchOptions, beginning: Sequence[int]) -> SearchOptions:
    """Options by which no n-gram of what the decoder has read and written occurs twice."""
    return replace(options, counted=tuple(beginning if options.start_counts else beginning[1:]))


def to_limits(bounds: Bounds, begun: int = 0, few: Candidates | None = None) -> Limits:
    """Bounds of what is written behind the first `begun` tokens, as tensors."""
    own = bounds.min_length - begun, bounds.max_length - begun, bounds.prefix[:, begun:]
    barred = None if few is None else torch.from_numpy(few.barred())
    phrases = torch.from_numpy(bounds.phrases) if bounds.phrases.size else None
    return Limits(*(torch.from_numpy(np.ascontiguousarray(x)) for x in own), barred=barred, phrases=phrases)


def step_of(model: EncoderDecoder) -> Step:
    """The step function of a model: feed the newest tokens, get the logits that follow them."""

    def step(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        hidden = model.decode(tokens, cache.memory, cache.src_mask, cache)
        return model.logits(hidden[:, -1])

    return step


def _after(step: Step, beginning: Sequence[int]) -> Step:
    """A step that begins with all of `beginning` instead of its first token."""
    if len(beginning) == 1:
        return step
    unread = [list(beginning)]

    def next_logits(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        if unread:
            tokens = tokens.new_tensor([unread.pop()] * len(tokens))
        return step(tokens, cache)

    return next_logits


def pad_right(
    sources: Sequence[Sequence[int]], pad_id: int = 0
) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]:
    """Sources as one matrix, and where it is not padding, which no model reads.

    >>> pad_right([[5, 6], [7]])[0].tolist()
    [[5, 6], [7, 0]]
    """
    rows = [torch.tensor(list(source)) for source in sources]
    src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)
    return src, torch.arange(src.size(1)) < torch.tensor([len(source) for source in sources]).unsqueeze(1)


# --- One source, step by step ---


class BeamInSteps:
    """A beam search, step by step; the contract `contract.SearchInSteps`."""

    def __init__(self, model: EncoderDecoder, start: Start) -> None:
        self._model, self._found = model, [list[Hypothesis]()]
        self._begun = list(start.beginning[1:])
        self._steps = beam_steps(start.step, start.cache, start.limits, start.options, self._found)

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """What the next step ranked, best first."""
        assert not guesses, "guesses are for greedy search"
        if self._begun:
            return [[Continuation(self._begun.pop(0), 0, 0, 0.0, 0.0)]]
        with evaluating(self._model), torch.inference_mode():
            ranked = next(self._steps, None)
        return [] if ranked is None else [_listed(ranked)]

    def found(self) -> list[list[Hypothesis]]:
        """What has ended, once there is no further step."""
        return self._found


def _listed(ranked: Continuations) -> list[Continuation]:
    """Of the only sentence, without what cannot be."""
    last = (
        ranked.tokens[0, :, -1],
        ranked.parents[0],
        ranked.ended[0],
        ranked.log_probs[0],
        ranked.token_log_probs[0, :, -1],
    )
    rows = zip(*(column.tolist() for column in last), strict=True)
    return [Continuation(*row) for row in rows if row[3] > -torch.inf]


class PathInSteps:
    """Greedy search or one sample, step by step; the contract `contract.SearchInSteps`."""

    def __init__(self, model: EncoderDecoder, start: Start, streams: Any) -> None:
        """`streams` has the number of the random stream of a sample; None for greedy search."""
        self._model, self._start = model, start
        self._begun, self._fed = list(start.beginning[1:]), 0
        self._tokens, self._log_probs = list[int](), list[float]()
        self._ended = False
        self._choose = _chooser(start.options, streams)

    @property
    def steps_back(self) -> bool:
        """Whether a guess that was wrong can be taken back."""
        return hasattr(self._start.cache, "truncate")

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """One step; with `guesses` of what follows as many as they are right, and one."""
        if self._begun:
            return [[Continuation(self._begun.pop(0), 0, 0, 0.0, 0.0)]]
        steps: list[list[Continuation]] = []
        guesses = guesses[: max(0, int(self._start.limits.max_length) - len(self._tokens) - 1)]
        with evaluating(self._model), torch.inference_mode():
            logits = None if self._ended else self._logits(guesses)
            for i in range(len(guesses) + 1):
                if logits is None or self._ended or (i and steps[-1][0].token != guesses[i - 1]):
                    break
                steps.append([self._write(logits[i : i + 1])])
        return steps

    def found(self) -> list[list[Hypothesis]]:
        """The output, once it has ended."""
        options = self._start.options
        if not self._ended:
            return [[]]
        total = sum(self._log_probs)
        score = total / ending_of(options).penalty(len(self._tokens), options.length_penalty)
        return [[hypothesis_of(self._tokens, self._log_probs, total, score, options)]]

    def _logits(self, guesses: Sequence[int]) -> Float[Tensor, "new vocab"]:
        """After all that is written, and after each guess behind it."""
        start, cache = self._start, self._start.cache
        whole = [*start.beginning, *self._tokens]
        if self._fed >= len(whole):  # guesses that were wrong
            self._fed = len(whole) - 1
            cache.truncate(self._fed)
        new = [*whole[self._fed :], *guesses]
        fed = torch.tensor([new], device=start.limits.max_length.device)
        hidden = self._model.decode(fed, cache.memory, cache.src_mask, cache)
        self._fed += len(new)
        return self._model.logits(hidden[:, -len(guesses) - 1 :])[0]

    def _write(self, logits: Float[Tensor, "1 vocab"]) -> Continuation:
        start = self._start
        history = torch.tensor([self._tokens], dtype=torch.long, device=logits.device)
        log_probs = allowed_log_probs(logits, history, start.limits, start.options)
        token = self._choose(log_probs, len(self._tokens))
        log_prob = float(log_probs[0, token])
        if not np.isfinite(log_prob):
            raise not_finite()
        self._tokens.append(token)
        self._log_probs.append(log_prob)
        written = torch.tensor([self._tokens])
        at_limit = len(self._tokens) >= int(start.limits.max_length)
        self._ended = at_limit or bool(has_ended(written, start.options))
        return Continuation(token, 0, int(self._ended), sum(self._log_probs), log_prob)


def _chooser(options: SearchOptions, streams: Any) -> Callable[[Tensor, int], int]:
    """Which token follows, from log-probabilities (1, vocab) at a position; the same as in a batch."""
    if streams is None:
        return lambda log_probs, position: int(highest(log_probs))
    row, copy = torch.from_numpy(streams), torch.tensor([0])

    def choose(log_probs: Tensor, position: int) -> int:
        uniforms = stream_uniforms(options.seed, row, copy, position)
        return int(draw(log_probs, uniforms.to(log_probs.device), options))

    return choose


@torch.inference_mode()
def written_by_steps(step: Step, cache: Cache, limits: Limits, options: SearchOptions, streams: Any) -> Iterator[int]:
    """The tokens of a single row until it ends, without the end mark; `streams` as of `PathInSteps`."""
    history, choose = limits.max_length.new_zeros(1, 0), _chooser(options, streams)
    while history.size(1) < int(limits.max_length):
        log_probs = next_log_probs(step, cache, history, limits, options)
        token = choose(log_probs, history.size(1))
        if not bool(log_probs[0, token].isfinite()):
            raise not_finite()
        if token in (options.eos_id, *options.other_ends):
            return
        yield token
        history = torch.cat([history, history.new_tensor([[token]])], 1)


# --- What a draft writes ---


class DraftedOutput:
    """One output of one source, read token by token and taken back; the contract `decode.drafts.Drafting`."""

    def __init__(self, model: Any, source: Sequence[int]) -> None:
        self._model, self._device = model, next(iter(model.parameters())).device
        with torch.inference_mode():
            src, src_mask = (x.to(self._device) for x in pad_right([source]))
            self._cache = model.start_cache(model.encode(src, src_mask), src_mask)
        if not hasattr(self._cache, "truncate"):
            raise cannot_step_back()

    @property
    def length(self) -> int:
        """As `Drafting.length`."""
        return self._cache.length

    def truncate(self, length: int) -> None:
        """As `Drafting.truncate`."""
        self._cache.truncate(length)

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> int:
        """As `Drafting.feed`."""
        cache, new = self._cache, torch.tensor([list(tokens)], device=self._device)
        hidden = self._model.decode(new, cache.memory, cache.src_mask, cache)
        return int(highest(self._model.logits(hidden[:, -1]).float()))
