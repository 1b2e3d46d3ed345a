"""BPE-dropout (arXiv:1910.13267): apply the merges of a byte-level BPE model, randomly skipping some."""

import heapq
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random

import tokenizers

from headwise.errors import UserError
from headwise.text.files.words import BYTES, REMEMBERED_WORDS, cut, split_at

Merge = tuple[int, int, str, str]  # rank, position of the left symbol, left, right


class Merges:
    """The merges of a byte-level BPE model, applied in Python, because the dropout of the library cannot be seeded."""

    def __init__(
        self, backend: tokenizers.Tokenizer, declared: Mapping[int, str], letters: Mapping[int, str] | None
    ) -> None:
        """`declared` are tokens that are never split; `letters` is the byte alphabet of the word table."""
        model = json.loads(backend.to_str())["model"]
        self.vocab: dict[str, int] = model["vocab"] if model["type"] == "BPE" else {}
        if not self.vocab.keys() >= BYTES.keys():
            raise UserError("data.bpe_dropout needs byte-level BPE subwords; set it to 0 or data.subword to 'bpe'")
        self.backend = backend
        self.declared = {content: index for index, content in declared.items()}
        pairs = (tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"])
        self.rank = {pair: rank for rank, pair in enumerate(pairs)}
        self.undropped: dict[str, tuple[list[int], int]] = {}
        self.letters = letters

    def segment(self, text: str, probability: float, seed: int | Random) -> list[int]:
        """Token ids of a text with BPE-dropout."""
        drops = Drops(probability, seed if isinstance(seed, Random) else Random(seed))
        tokens: list[int] = []
        for part in split_at(self.declared, text):
            if part in self.declared:
                tokens.append(self.declared[part])
                continue
            for word in self.words(part):
                tokens += self.segment_word(word, drops)
        return tokens

    def words(self, text: str) -> Iterator[str]:
        """The words of a text in the byte alphabet."""
        if self.letters and (words := cut(" " + text)):
            return ("".join(map(self.letters.__getitem__, word.encode())) for word in words)
        normalizer, pre_tokenizer = self.backend.normalizer, self.backend.pre_tokenizer
        normal = normalizer.normalize_str(text) if normalizer else text
        return (word for word, _ in pre_tokenizer.pre_tokenize_str(normal))

    def segment_word(self, word: str, drops: "Drops") -> list[int]:
        """Token ids of a word; most words lose no merge and come from a cache."""
        if word not in self.undropped:
            if len(self.undropped) >= REMEMBERED_WORDS:
                self.undropped.clear()
            self.undropped[word] = self.merge(word, None)
        tokens, n_merges = self.undropped[word]
        return tokens if drops.skip_if_all_no(n_merges) else self.merge(word, drops)[0]

    def merge(self, word: str, drops: "Drops | None") -> tuple[list[int], int]:
        """Algorithm 1 of the paper: at each step apply the best merge that is not dropped, until none is left.

        Returns the ids and the number of merges. The symbols form a linked list; `possible` is a heap of
        applicable merges, best first; some of them are stale because a neighbour was merged.
        """
        symbols = [*word, ""]  # the empty symbol ends the word and merges with nothing
        after, before = [*range(1, len(word) + 1), len(word)], [*range(-1, len(word))]
        possible = [step for at in range(len(word) - 1) if (step := self.candidate(symbols, at, at + 1))]
        heapq.heapify(possible)
        dropped: list[Merge] = []
        n_merges = 0
        while possible:
            step = heapq.heappop(possible)
            _, at, left, right = step
            if symbols[at] != left or symbols[after[at]] != right:
                continue  # stale
            if drops is not None and drops.next():
                dropped.append(step)
                continue
            n_merges += 1
            symbols[at], symbols[after[at]] = left + right, ""
            after[at] = after[after[at]]
            before[after[at]] = at
            for start, end in ((before[at], at), (at, after[at])):
                if start >= 0 and (step := self.candidate(symbols, start, end)):
                    heapq.heappush(possible, step)
            for step in dropped:  # dropped for this step only
                heapq.heappush(possible, step)
            dropped.clear()
        return [self.vocab[symbol] for symbol in symbols if symbol], n_merges

    def candidate(self, symbols: Sequence[str], start: int, end: int) -> Merge | None:
        """The merge of two neighbouring symbols, if there is one: rank, position and both symbols."""
        rank = self.rank.get((symbols[start], symbols[end]))
        return None if rank is None else (rank, start, symbols[start], symbols[end])


class Drops:
    """A stream of independent random decisions, yes with a given probability.

    Gaps between two yes are sampled from a geometric distribution, so most words need no random number.
    """

    def __init__(self, probability: float, generator: Random) -> None:
        self.generator = generator
        self.log_keep = math.log1p(-probability) if probability < 1 else -math.inf
        self.gap = self.sample_gap()

    def sample_gap(self) -> int:
        """Sample the number of no until the next yes."""
        return int(math.log(1.0 - self.generator.random()) / self.log_keep)

    def next(self) -> bool:
        """The next decision."""
        if self.gap == 0:
            self.gap = self.sample_gap()
            return True
        self.gap -= 1
        return False

    def skip_if_all_no(self, count: int) -> bool:
        """Whether the next `count` decisions are all no; if so they are consumed."""
        if self.gap < count:
            return False
        self.gap -= count
        return True
