"""Types shared by decoding, models and the compiled library: options, hypotheses, protocols.

Nothing here imports torch, so the compiled library can search without it (`runtime.search.engine`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

from headwise.config.settings import SearchSettings
from headwise.errors import UserError

FREE = -1  # padding of prefixes and phrases: nothing is forced here

# From log-probabilities (rows, vocab) and output so far (rows, length) to log-probabilities with some set to -inf.
Rule = Callable[[Any, Any], Any]
# For each output (a list of tokens), whether it stops after its last token, for example at a stop string.
Stop = Callable[[Sequence[Sequence[int]]], Sequence[bool]]
NEVER = -1  # for an id that a model does not have
BLOCK = 64  # entries that `ranking` compares together; of 16, 32 and 64 the fastest over 8,000 entries


@dataclass(frozen=True)
class SpecialIds:
    """The ids of special tokens."""

    pad_id: int = 0
    bos_id: int = 1  # start token of the decoder
    eos_id: int = 2
    unk_id: int = 3
    forced: tuple[int, ...] = ()  # tokens that every output starts with after `bos_id`, such as a language code
    forced_end: int | None = None  # last token of an output of maximum length
    other_ends: tuple[int, ...] = ()  # further end tokens
    source_end: tuple[int, ...] | None = None  # appended to every source; None = `eos_id`
    suppressed: tuple[int, ...] | None = None  # never generated; None = `pad_id`, `bos_id` and `unk_id`
    suppressed_first: tuple[int, ...] = ()  # never generated as the first token
    # Added to the log-probability of a token that completes one of these sequences.
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """All end tokens."""
        return (self.eos_id, *self.other_ends)

    @property
    def never_generated(self) -> tuple[int, ...]:
        """The ids that are never generated."""
        return (self.pad_id, self.bos_id, self.unk_id) if self.suppressed is None else self.suppressed

    @property
    def known(self) -> tuple[int, ...]:
        """The special ids that may occur in any output."""
        ids = {
            self.pad_id,
            self.bos_id,
            self.eos_id,
            *self.forced,
            *self.other_ends,
            self.forced_end,
            *self.never_generated,
        }
        return tuple(i for i in ids if i is not None and i != NEVER)

    @property
    def prompt(self) -> list[int]:
        """The tokens that the decoder reads first."""
        if self.bos_id == NEVER:
            raise UserError("neither config.json nor generation_config.json has a decoder_start_token_id")
        return [self.bos_id, *self.forced]

    def ended(self, source: Sequence[int]) -> list[int]:
        """A source with its end tokens."""
        return [*source, *((self.eos_id,) if self.source_end is None else self.source_end)]


@dataclass(frozen=True)
class TimestampRules:
    """Constraints on the timestamps of Whisper; see `core.extensions.timestamps`."""

    first: int  # id of 0.00 s; all ids from here on are timestamps
    never: int  # id of <|notimestamps|>, which is not generated
    latest_first: int | None = None  # largest first timestamp, in steps; None = no limit


@dataclass(frozen=True)
class Limits:
    """Limits of each output, in tokens; the maximum length includes the end token, the minimum does not.

    Arrays of numpy in a request and for the compiled library, tensors of torch in `core.search`; ids are int64.
    """

    min_length: Any  # (rows,)
    max_length: Any  # (rows,), at least 1
    prefix: Any  # (rows, prefix_len), padded with FREE on the right
    streams: Any = None  # (rows,), numbers of random streams; None = no sampling
    phrases: Any = None  # (rows, phrases, phrase_len), required phrases, padded with FREE; None = there are none
    context: Any = None  # (rows, context_len), tokens before an output, for `adjust`; FREE on the left
    barred: Any = None  # (rows, vocab), True on tokens outside a row's shortlist; only in torch

    def each(self, change: Callable[[Any], Any]) -> "Limits":
        """A copy with another array in place of each."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in values.items() if value is not None})


@dataclass(frozen=True)
class SearchOptions(SearchSettings, SpecialIds):
    """Options of a search, for torch and for the compiled library: settings, special ids, and what they imply.

    `runtime.search.request.search_options` makes them. Lengths, batches, shortlist and precision are applied before a
    search, which reads the other settings. The library supports neither `ngram_context` and `rules`, nor
    `stop_function`, `timestamps` and `among_allowed` with candidates.

    >>> SearchOptions(beam_size=2, eos_id=7).length_penalty
    0.6
    """

    end_at: int = 0  # `forced_end` is forced at this position, counting `forced` tokens
    bos_in_ngrams: bool = False  # whether `bos_id` is part of n-grams
    ngram_context: tuple[int, ...] = ()  # tokens before an output that are part of its n-grams
    rules: tuple[Rule, ...] = ()  # further constraints, in order
    timestamps: TimestampRules | None = None  # constraints on timestamps; None = there are none
    among_allowed: bool = False  # probabilities are among the tokens that `suppressed` and `timestamps` allow
    stop_function: Stop | None = None  # of the strings in `stop`

    @property
    def n_forced(self) -> int:
        """Tokens of each prefix that are read before the search; they count as length, but are in no hypothesis."""
        return len(self.forced)

    @property
    def of_logits(self) -> bool:
        """Whether repetition penalty and biases change logits, as in `transformers`, which does not for a beam."""
        return self.sample or self.beam_size == 1


def length_penalty(length: Any, alpha: float) -> Any:
    """lp(Y) = ((5 + |Y|) / 6)^alpha (arXiv:1609.08144, equation 14); |Y| includes the end token.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + length) / 6) ** alpha


def power_penalty(length: Any, alpha: float) -> Any:
    """|Y|^alpha, as in `transformers`; a negative alpha favours short outputs."""
    return length**alpha


def penalty_of(options: SearchOptions) -> Callable[[int, float], Any]:
    """The penalty that belongs to the stopping rule of a search; lengths without the start tokens."""
    if options.early_stopping == "exact":
        return length_penalty
    return lambda length, alpha: power_penalty(length + options.n_forced, alpha)


@dataclass(frozen=True)
class Hypothesis:
    """One output, which ended with an end token or at the maximum length."""

    tokens: list[int]  # without start and end tokens
    score: float  # log_prob / length penalty, for ranking
    log_prob: float  # natural log-probability, including the end token
    token_log_probs: list[float]  # of each token and the end token, if any; they sum to log_prob


@dataclass(frozen=True)
class Continuation:
    """A live hypothesis of one sentence extended by one token."""

    token: int
    parent: int  # index of the extended hypothesis, 0 = the best
    ended: int  # 1 if it ended with an end token or at the maximum length, else 0
    log_prob: float  # of the hypothesis
    token_log_prob: float


@runtime_checkable
class EncoderDecoder(Protocol):
    """The methods of every architecture that step-by-step decoding uses. Arguments and results are torch tensors.

    The result of `encode` is opaque: search only passes it back.
    """

    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def parameters(self) -> Iterator[Any]: ...
    def encode(self, src: Any, src_mask: Any) -> Any: ...
    def decode(self, tgt_in: Any, memory: Any, src_mask: Any, cache: Any = None) -> Any: ...
    def logits(self, hidden: Any) -> Any: ...
    def start_cache(self, memory: Any, src_mask: Any) -> Any: ...


class SearchCancelled(Exception):
    """The caller cancelled the search."""


@runtime_checkable
class SearchEngine(Protocol):
    """A network with a search: the compiled library (`runtime.native.network`) or torch (`pytorch.search.stepwise`).

    `search` takes sources with their end tokens, `Limits`, `SearchOptions` and `candidates.Candidates` or None.
    It samples if the limits have `streams`. It returns the hypotheses of each source, best first, and raises
    `MemoryError` if the batch is too large. Several threads call the library at once, unless `single_threaded` is true.
    `stop` is an int32 array of one number. When it becomes non-zero, `search` raises `SearchCancelled` at its next
    step; the library checks it within steps, too. `begin` returns the same search step by step, for one source.
    """

    def search(
        self, sources: Any, limits: Limits, options: SearchOptions, candidates: Any, stop: Any = None
    ) -> list[list[Hypothesis]]: ...
    def begin(
        self, sources: Any, limits: Limits, options: SearchOptions, candidates: Any, stop: Any = None
    ) -> "StepwiseSearch": ...


@runtime_checkable
class SpeechNetwork(Protocol):
    """A Whisper: `models.speech.speech_model` has it in the compiled library, `pytorch.models.speech` in torch.

    The result of `encode` is opaque: it is only passed back, to any method and any number of times.
    """

    def encode(self, mel: Any) -> Any:
        """Encode a window of sound, a log-mel spectrogram (n_mels, frames) of float32."""
        ...

    def search(self, memory: Any, prompt: Sequence[int], limits: Limits, options: SearchOptions) -> list[Hypothesis]:
        """The hypotheses for an encoded window, best first, without the `prompt`, which the decoder reads first.

        `limits` are those of one output; with `streams`, `n_best` samples.
        """
        ...

    def logits(self, memory: Any, prompt: Sequence[int]) -> Any:
        """The logits (vocab,) of the token after a prompt, in float32."""
        ...


@runtime_checkable
class TextNetwork(Protocol):
    """A causal language model, in the compiled library (`models.language.language_model`) or in torch
    (`pytorch.models.language_model`).

    Prompts and texts are token ids, at least one each.
    """

    def search(
        self, prompts: Sequence[Sequence[int]], limits: Limits, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """The continuations of each prompt, best first; with `limits.streams` samples."""
        ...

    def stream(self, prompt: Sequence[int], limits: Limits, options: SearchOptions) -> Iterator[int]:
        """The tokens of one continuation, greedy or sampled, one by one and without the end token."""
        ...

    def log_probs(self, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> list[Any]:
        """The log-probabilities of the tokens of each text from number `first` on, at least 1, in numpy."""
        ...


@runtime_checkable
class StepwiseSearch(Protocol):
    """A search that runs one step at a time."""

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """The continuations that the next step ranked, best first; empty when the search is over.

        Greedy search accepts `guesses` of the next tokens (speculative decoding): it makes one step for each correct
        guess, and one more.
        """
        ...

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses."""
        ...


# Called with the continuations that each step ranked, best first.
StepCallback = Callable[[list[Continuation]], None]
# From the output so far and a number of tokens to at most that many guesses of the next tokens.
Guess = Callable[[Sequence[int], int], Sequence[int]]


@runtime_checkable
class Draft(Protocol):
    """A source of draft tokens for speculative decoding."""

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses for the translation of `source`, token ids without start or end tokens."""
        ...
