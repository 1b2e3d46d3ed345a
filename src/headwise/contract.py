"""What decoding is told, what it gives, and what a model must offer for it: the words that its modules share.

Nothing here imports torch, so that a model that searches by itself answers without it (`engine`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from headwise.errors import UserError

FREE = -1  # in a prefix: nothing is forced here

# From log-probabilities (rows, vocab) and what the rows have written (rows, length) to those with some of them -inf.
Rule = Callable[[Any, Any], Any]
# Which outputs, lists of tokens, end with their last token, for other reasons than an end mark or their length.
Stop = Callable[[Sequence[Sequence[int]]], Sequence[bool]]


NEVER = -1  # in place of an id that a model does not have


@dataclass(frozen=True)
class SpecialIds:
    """The ids that mean something to the search."""

    pad_id: int = 0
    bos_id: int = 1  # what the decoder begins with
    eos_id: int = 2
    unk_id: int = 3
    forced: tuple[int, ...] = ()  # what every output begins with behind `bos_id`, such as the code of a language
    forced_end: int | None = None  # what is written last where an output reaches the longest length
    other_ends: tuple[int, ...] = ()  # end marks beside `eos_id`
    source_end: tuple[int, ...] | None = None  # what stands behind every source; None: `eos_id`
    suppressed: tuple[int, ...] | None = None  # never written; None: `pad_id`, `bos_id` and `unk_id`
    suppressed_first: tuple[int, ...] = ()  # never written first

    @property
    def unwritten(self) -> tuple[int, ...]:
        """The ids that are never written."""
        return (self.pad_id, self.bos_id, self.unk_id) if self.suppressed is None else self.suppressed

    @property
    def known(self) -> tuple[int, ...]:
        """The ids that an output may have whatever its source."""
        ids = {self.pad_id, self.bos_id, self.eos_id, *self.forced, *self.other_ends, self.forced_end, *self.unwritten}
        return tuple(i for i in ids if i is not None and i != NEVER)

    @property
    def prompt(self) -> list[int]:
        """What the decoder reads before it writes."""
        if self.bos_id == NEVER:
            raise UserError("neither config.json nor generation_config.json has a decoder_start_token_id")
        return [self.bos_id, *self.forced]

    def ended(self, source: Sequence[int]) -> list[int]:
        """A source with what stands behind it."""
        return [*source, *((self.eos_id,) if self.source_end is None else self.source_end)]


@dataclass(frozen=True)
class SearchOptions:
    """How to search, in ids, apart from the bounds of each sentence: for the search with torch and for that in C.

    C has no `counted`, and no `rules` and `stop`, which are functions of Python. The first `begun` tokens of a prefix
    are read before the search: certain, counted as length, and not in what is found.
    """

    beam_size: int = 4  # 1 = greedy
    length_penalty: float = 0.6  # alpha, >= 0 in the paper's ending; 0 ranks by log-probability alone
    n_best: int = 1  # hypotheses returned; at most beam_size in beam search
    bos_id: int = 1
    eos_id: int = 2
    suppressed: tuple[int, ...] = (0, 1, 3)  # never written: padding, start mark, unknown
    suppressed_first: tuple[int, ...] = ()  # never written first
    other_ends: tuple[int, ...] = ()  # end marks beside `eos_id`: chats have several
    ending: str = "unsurpassed"  # the paper's; or "pool_filled", "..._early", "..._patient": see `ending.PoolFilled`
    begun: int = 0  # tokens of each prefix that are read before the search, see above
    forced_end: int | None = None  # the piece that is certain where it is number `end_at`, those begun with counted
    end_at: int = 0
    temperature: float = 1.0  # of samples, > 0; below 1 sharpens, above 1 flattens
    top_k: int = 0  # sample only the k likeliest tokens; 0 = all
    top_p: float = 1.0  # only the smallest set of tokens with this mass (arXiv:1904.09751), 0 < p <= 1
    seed: int = 1
    no_repeat_ngram: int = 0  # no n-gram occurs twice; 0 = off
    start_counts: bool = False  # whether `bos_id` is part of n-grams
    counted: tuple[int, ...] = ()  # what stands before an output and is part of its n-grams
    rules: tuple[Rule, ...] = ()  # further constraints, in their order
    stop: Stop | None = None


@dataclass(frozen=True)
class Hypothesis:
    """One output. It was ended by the end mark, counted in its log-probability, or by the longest length."""

    tokens: list[int]  # without start and end mark
    score: float  # log_prob / length penalty: what hypotheses are ranked by
    log_prob: float  # natural log of the probability the model gives this output
    token_log_probs: list[float]  # of each token, and of the end mark if there is one; they sum to log_prob


@dataclass(frozen=True)
class Continuation:
    """One of the best continuations of the living hypotheses of one sentence by a token."""

    token: int
    parent: int  # which living hypothesis it continues, the best being 0
    ended: int  # 1: by an end mark or by having reached the longest length; 0: it may live on
    log_prob: float  # of the hypothesis
    token_log_prob: float


@runtime_checkable
class Written(Protocol):
    """A translation as whoever needs its words sees it, whichever model wrote it."""

    @property
    def text(self) -> str: ...
    @property
    def alternatives(self) -> "tuple[Written, ...]": ...  # the further n-best, best first


@runtime_checkable
class EncoderDecoder(Protocol):
    """What a model must offer to be decoded step by step; every architecture does. Ids, masks, states and logits are
    tensors of torch. What `encode` gives is the model's own affair: search hands it back and never looks inside.
    """

    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def parameters(self) -> Iterator[Any]: ...
    def encode(self, src: Any, src_mask: Any) -> Any: ...
    def decode(self, tgt_in: Any, memory: Any, src_mask: Any, cache: Any = None) -> Any: ...
    def logits(self, hidden: Any) -> Any: ...
    def start_cache(self, memory: Any, src_mask: Any) -> Any: ...


@runtime_checkable
class SearchEngine(Protocol):
    """What searches: the compiled library with a network (`native.network`), or torch with one (`decode.stepwise`).

    `search(sources, limits, options, few, stop)` is given sources with their ends, `request.Bounds`, `SearchOptions`
    and `candidates.Candidates` or None. It samples where the bounds have `streams`. It gives hypotheses for each
    source, best first, or raises a `MemoryError` for sources that are too many. The library is called by several
    threads at once, and raises any other error within a tenth of a second after `stop`, an array of one number in
    int32, came to hold another one than 0: somebody has pressed Ctrl-C. `begin` is the same step by step, for one
    source. An engine with a true `in_one_thread` is called by the main thread alone.
    """

    def search(
        self, sources: Any, limits: Any, options: SearchOptions, few: Any, stop: Any = None
    ) -> list[list[Hypothesis]]: ...
    def begin(
        self, sources: Any, limits: Any, options: SearchOptions, few: Any, stop: Any = None
    ) -> "SearchInSteps": ...


@runtime_checkable
class SearchInSteps(Protocol):
    """A search between two steps."""

    def advance(self, guesses: Sequence[int] = ()) -> list[list[Continuation]]:
        """What the next step ranked, best first; no step where the search is over.

        Greedy search takes `guesses` of what follows: as many steps as they are right, and one.
        """
        ...

    def found(self) -> list[list[Hypothesis]]:
        """What has ended so far."""
        ...


# Is shown what each step ranks, best first, before the best live on.
Look = Callable[[list[Continuation]], None]


# For one sentence: from what is written, and how many pieces are wanted, to as many or fewer that may follow.
Guess = Callable[[Sequence[int], int], Sequence[int]]


@runtime_checkable
class Draft(Protocol):
    """Where guesses for `speculative` search come from."""

    def start(self, source: Sequence[int]) -> Guess:
        """Guesses for the translation of `source`, token ids without start or end mark."""
        ...
