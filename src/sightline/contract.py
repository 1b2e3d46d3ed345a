"""What decoding is told, what it gives, and what a model must offer for it: the words that its modules share.

Nothing here imports torch, so that a model that searches by itself answers without it (`engine`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

FREE = -1  # in a prefix: nothing is forced here

# From log-probabilities (rows, vocab) and what the rows have written (rows, length) to those with some of them -inf.
Rule = Callable[[Any, Any], Any]
# Which rows (rows, length) end with their last token, for other reasons than an end mark or their length.
Stop = Callable[[Any], Any]


@dataclass(frozen=True)
class SpecialIds:
    """The ids that mean something to the search."""

    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    unk_id: int = 3


@dataclass(frozen=True)
class SearchOptions:
    """How to search, in ids, apart from the bounds of each sentence: for the search with torch and for that in C.

    C has no `rules` and no `stop`, which are functions of Python.
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
    begun: int = 0  # pieces of each output that were given before it: certain, counted as length, not in what is found
    forced_end: int | None = None  # the piece that is certain where it is number `end_at`, those begun with counted
    end_at: int = 0
    temperature: float = 1.0  # of samples, > 0; below 1 sharpens, above 1 flattens
    top_k: int = 0  # sample only the k likeliest tokens; 0 = all
    top_p: float = 1.0  # only the smallest set of tokens with this mass (arXiv:1904.09751), 0 < p <= 1
    seed: int = 1
    no_repeat_ngram: int = 0  # no n-gram occurs twice; 0 = off
    start_counts: bool = False  # whether `bos_id` is part of n-grams; C alone asks, with torch that is one of `rules`
    rules: tuple[Rule, ...] = ()  # further constraints, in their order
    stop: Stop | None = None


def with_room(given: Mapping[str, Any], beam_size: int) -> dict[str, Any]:
    """Settings of one call, in which a beam of usually `beam_size` is as wide as the n-best list unless they say.

    >>> with_room({"n_best": 6}, 4)["beam_size"], with_room({"n_best": 6, "beam_size": 4}, 4)["beam_size"]
    (6, 4)
    """
    n_best = given.get("n_best")
    return {"beam_size": n_best, **given} if isinstance(n_best, int) and n_best > beam_size else dict(given)


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
class OwnSearch(Protocol):
    """A model that can search by itself, in several threads at once, and finds what `search.beam_search` does.

    `search(sources, limits, options, few, stop)` is given sources with their end marks, `engine.Bounds`,
    `SearchOptions` and `candidates.Candidates` or None. It draws where the bounds have `streams`. It gives hypotheses
    for each source, best first, or raises a `MemoryError` for sources that are too many, and any other error within a
    tenth of a second after `stop`, an array of one number in int32, came to hold another one than 0: somebody has
    pressed Ctrl-C. `begin` is the same for whoever wants to see each step of it, for one source.
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
