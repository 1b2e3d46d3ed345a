"""The torch search engine: pads a batch, encodes it, and searches step by step with a KV cache.

It runs networks that the compiled library does not support, and stop strings. Batches are made in `engine`; the search
algorithms are in `search`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from headwise.contract import (
    Continuation,
    EncoderDecoder,
    Hypothesis,
    Limits,
    SearchCancelled,
    SearchEngine,
    SearchOptions,
)
from headwise.core.extensions.sampling import sample, sample_token, stream_uniforms
from headwise.core.search import (
    Cache,
    Continuations,
    Step,
    allowed_log_probs,
    beam_search,
    beam_steps,
    has_ended,
    highest,
    hypothesis_of,
    next_log_probs,
    stopping_rule,
)
from headwise.core.translate import pad_right, step_of
from headwise.pytorch.search.captured import captured_steps
from headwise.pytorch.search.phrases import phrase_search
from headwise.runtime.search.candidates import Candidates
from headwise.runtime.search.request import non_finite_error
from headwise.runtime.search.speculative import cannot_truncate


def engine_of(model: EncoderDecoder | SearchEngine) -> SearchEngine:
    """The engine of a model: the model itself if it is a `SearchEngine`, else torch."""
    return model if isinstance(model, SearchEngine) else TorchEngine(model)


class TorchEngine:
    """A `SearchEngine` for a network in torch."""

    single_threaded = True  # torch has its own threads

    def __init__(self, model: EncoderDecoder) -> None:
        """`model` is in evaluation mode during a search."""
        self.model = model

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Limits,
        options: SearchOptions,
        candidates: Candidates | None,
        stop: NDArray[np.int32] | None = None,
    ) -> list[list[Hypothesis]]:
        """See `SearchEngine`."""
        with evaluating(self.model), torch.inference_mode(), _memory_errors():
            start = start_search(self.model, sources, limits, options, candidates)
            step = start.step if stop is None else _cancellable(start.step, stop)
            arguments = step, start.cache, start.limits, start.options
            if start.limits.phrases is not None:
                return phrase_search(*arguments)
            return beam_search(*arguments) if limits.streams is None else sample(*arguments)

    def begin(
        self,
        sources: Sequence[Sequence[int]],
        limits: Limits,
        options: SearchOptions,
        candidates: Candidates | None,
        stop: object = None,
    ) -> "StepwiseBeamSearch | StepwiseSingleSearch":
        """See `SearchEngine`."""
        with evaluating(self.model), torch.inference_mode():
            start = start_search(self.model, sources, limits, options, candidates)
        if options.beam_size > 1 and limits.streams is None:
            return StepwiseBeamSearch(self.model, start)
        return StepwiseSingleSearch(self.model, start)

    def read(self, source: Sequence[int]) -> "TorchDraftState":
        """A draft for a source with its end tokens; see `runtime.search.drafts`."""
        return TorchDraftState(self.model, source)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """A context manager in which the model is in evaluation mode."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Convert torch's errors for exhausted memory to `MemoryError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        elif "can't allocate memory" not in str(error):
            raise
        raise MemoryError(str(error)) from error


# --- Starting a search ---


@dataclass(frozen=True)
class Start:
    """The inputs of a search."""

    step: Step
    cache: Any
    limits: Limits
    options: SearchOptions


def start_search(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    limits: Limits,
    options: SearchOptions,
    candidates: Candidates | None = None,
) -> Start:
    """Encode sources with their end tokens; apply the shortlist if there is one."""
    device, n_forced = next(iter(model.parameters())).device, options.n_forced
    src, src_mask = (x.to(device) for x in pad_right(sources))
    cache = model.start_cache(model.encode(src, src_mask), src_mask)
    after_prompt = replace(
        limits,
        min_length=limits.min_length - n_forced,
        max_length=limits.max_length - n_forced,
        prefix=limits.prefix[:, n_forced:],
        context=np.array([options.prompt] * len(sources)),
        barred=None if candidates is None else candidates.barred(),
    )
    step = _after(engine_step(model), options.prompt)
    return Start(step, cache, to_torch(after_prompt, device), with_ngram_context(options))


def with_ngram_context(options: SearchOptions) -> SearchOptions:
    """The options with the prompt as part of n-grams that must not repeat."""
    return replace(options, ngram_context=tuple(options.prompt) if options.bos_in_ngrams else options.forced)


def to_torch(limits: Limits, device: torch.device) -> Limits:
    """The limits of a request as tensors."""
    return limits.each(lambda array: torch.from_numpy(array.copy()).to(device))  # strides may be negative


def engine_step(model: EncoderDecoder) -> Step:
    """`step_of` the model; on a GPU as a captured graph where that is possible."""
    return captured_steps(model, step_of(model))


def _cancellable(step: Step, stop: NDArray[np.int32]) -> Step:
    """A step function that raises `SearchCancelled` once `stop` is non-zero."""

    def next_logits(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        if stop[0]:
            raise SearchCancelled
        return step(tokens, cache)

    return next_logits


def _after(step: Step, prompt: Sequence[int]) -> Step:
    """A step function that reads all of `prompt` in the first step."""
    if len(prompt) == 1:
        return step
    unread = [list(prompt)]

    def next_logits(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        if unread:
            tokens = tokens.new_tensor([unread.pop()] * len(tokens))
        return step(tokens, cache)

    return next_logits


# --- Step by step, for one source ---


class StepwiseBeamSearch:
    """A `StepwiseSearch` with a beam."""

    def __init__(self, model: EncoderDecoder, start: Start) -> None:
        self._model, self._found = model, [list[Hypothesis]()]
        self._forced = list(start.options.forced)
        self._steps = beam_steps(start.step, start.cache, start.limits, start.options, self._found)

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """See `StepwiseSearch.advance`."""
        assert not guesses, "guesses are for greedy search"
        if self._forced:
            return [[Continuation(self._forced.pop(0), 0, 0, 0.0, 0.0)]]
        with evaluating(self._model), torch.inference_mode():
            ranked = next(self._steps, None)
        return [] if ranked is None else [_listed(ranked)]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses, after the last step."""
        return self._found


def _listed(ranked: Continuations) -> list[Continuation]:
    """The continuations of the only sentence, without impossible ones."""
    last = (
        ranked.tokens[0, :, -1],
        ranked.parents[0],
        ranked.ended[0],
        ranked.log_probs[0],
        ranked.token_log_probs[0, :, -1],
    )
    rows = zip(*(column.tolist() for column in last), strict=True)
    return [Continuation(*row) for row in rows if row[3] > -torch.inf]


class StepwiseSingleSearch:
    """A `StepwiseSearch` that is greedy, or one sample."""

    def __init__(self, model: EncoderDecoder, start: Start) -> None:
        self._model, self._start = model, start
        self._forced, self._fed = list(start.options.forced), 0
        self._tokens, self._log_probs = list[int](), list[float]()
        self._ended = False
        self._choose = _chooser(start.options, start.limits.streams)

    @property
    def can_truncate(self) -> bool:
        """Whether wrong guesses can be removed from the cache."""
        return hasattr(self._start.cache, "truncate")

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """See `StepwiseSearch.advance`."""
        if self._forced:
            return [[Continuation(self._forced.pop(0), 0, 0, 0.0, 0.0)]]
        steps: list[list[Continuation]] = []
        guesses = guesses[: max(0, int(self._start.limits.max_length) - len(self._tokens) - 1)]
        with evaluating(self._model), torch.inference_mode():
            logits = None if self._ended else self._logits(guesses)
            for i in range(len(guesses) + 1):
                if logits is None or self._ended or (i and steps[-1][0].token != guesses[i - 1]):
                    break
                steps.append([self._write(logits[i : i + 1])])
        return steps

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The output, after it has ended."""
        options = self._start.options
        if not self._ended:
            return [[]]
        total = sum(self._log_probs)
        score = total / stopping_rule(options).penalty(len(self._tokens), options.length_penalty)
        return [[hypothesis_of(self._tokens, self._log_probs, total, score, options)]]

    def _logits(self, guesses: Sequence[int]) -> Float[Tensor, "new vocab"]:
        """The logits after the output so far, and after each guess."""
        start, cache = self._start, self._start.cache
        whole = [*start.options.prompt, *self._tokens]
        if self._fed >= len(whole):  # the last guesses were wrong
            self._fed = len(whole) - 1
            cache.truncate(self._fed)
        new = [*whole[self._fed :], *guesses]
        tokens = torch.tensor([new], device=start.limits.max_length.device)
        hidden = self._model.decode(tokens, cache.memory, cache.src_mask, cache)
        self._fed += len(new)
        return self._model.logits(hidden[:, -len(guesses) - 1 :])[0]

    def _write(self, logits: Float[Tensor, "1 vocab"]) -> Continuation:
        start = self._start
        history = torch.tensor([self._tokens], dtype=torch.long, device=logits.device)
        log_probs = allowed_log_probs(logits, history, start.limits, start.options)
        token = self._choose(log_probs, len(self._tokens))
        log_prob = float(log_probs[0, token])
        if not np.isfinite(log_prob):
            raise non_finite_error()
        self._tokens.append(token)
        self._log_probs.append(log_prob)
        written = torch.tensor([self._tokens])
        at_limit = len(self._tokens) >= int(start.limits.max_length)
        self._ended = at_limit or bool(has_ended(written, start.options))
        return Continuation(token, 0, int(self._ended), sum(self._log_probs), log_prob)


def _chooser(options: SearchOptions, streams: Any) -> Callable[[Tensor, int], int]:
    """A function that chooses a token from log-probabilities (1, vocab) at a position, as in a batch."""
    if streams is None:
        return lambda log_probs, position: int(highest(log_probs))

    def choose(log_probs: Tensor, position: int) -> int:
        uniforms = stream_uniforms(options.seed, streams, torch.zeros_like(streams), position)
        return int(sample_token(log_probs, uniforms, options))

    return choose


@torch.inference_mode()
def stream_tokens(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> Iterator[int]:
    """The tokens of a single row, greedy or sampled, without the end token."""
    history, choose = limits.max_length.new_zeros(1, 0), _chooser(options, limits.streams)
    while history.size(1) < int(limits.max_length):
        log_probs = next_log_probs(step, cache, history, limits, options)
        token = choose(log_probs, history.size(1))
        if not bool(log_probs[0, token].isfinite()):
            raise non_finite_error()
        if token in options.ends:
            return
        yield token
        history = torch.cat([history, history.new_tensor([[token]])], 1)


# --- Drafts ---


class TorchDraftState:
    """A `drafts.DraftState` in torch."""

    def __init__(self, model: Any, source: Sequence[int]) -> None:
        self._model, self._device = model, next(iter(model.parameters())).device
        with torch.inference_mode():
            src, src_mask = (x.to(self._device) for x in pad_right([source]))
            self._cache = model.start_cache(model.encode(src, src_mask), src_mask)
        if not hasattr(self._cache, "truncate"):
            raise cannot_truncate()

    @property
    def length(self) -> int:
        """See `DraftState.length`."""
        return self._cache.length

    def truncate(self, length: int) -> None:
        """See `DraftState.truncate`."""
        self._cache.truncate(length)

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> int:
        """See `DraftState.feed`."""
        cache, new = self._cache, torch.tensor([list(tokens)], device=self._device)
        hidden = self._model.decode(new, cache.memory, cache.src_mask, cache)
        return int(highest(self._model.logits(hidden[:, -1]).float()))
