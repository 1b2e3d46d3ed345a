"""Translates strings: one `Translation` for each text, in order.

Blank texts are answered without the model; texts that are too long are translated in parts. This is the only module of
`decode` with a tokenizer. It does not import torch.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.contract import Draft, Hypothesis, SearchEngine, SpecialIds, StepCallback
from headwise.errors import UserError
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import begin, execute, greedy_steps, watch
from headwise.runtime.search.request import SearchRequest, TooLarge, with_start
from headwise.runtime.search.speculative import speculate, speculative_search
from headwise.runtime.search.streaming import before_stop, growing_text, stop_at, until_stop
from headwise.text.files.scripts import join_sentences
from headwise.text.tokens.pair_tokenizer import PairTokenizer

# Where a text may be split, as a group: the space after a sentence with its closing quotes and brackets; after a
# sentence in Chinese or Japanese, which have no spaces; any space.
SENTENCE_END = re.compile(
    "[.!?\u2026][\"')\\]\u2019\u201d\u00bb]*(\\s+)|[\u3002\uff01\uff1f][\u300d\u300f\u201d\uff09]*()"
)
BLANK = re.compile(r"(\s+)")
CHUNK_LINES = 1000  # of a stream that are read, and translated together


@dataclass(frozen=True)
class Translation:
    """One translated text.

    For a text translated in parts, pieces are concatenated, log-probabilities summed and scores averaged. A blank text
    has an empty translation with score 0 and no parts. Defaults are for texts that no model translated.
    """

    text: str  # one line
    score: float = 0.0  # log-probability / length penalty, for ranking; higher is better
    log_prob: float = 0.0  # natural log, including the end token
    pieces: list[str] = field(default_factory=list)
    token_log_probs: list[float] = field(default_factory=list)  # one per piece
    source_pieces: list[str] = field(default_factory=list)
    parts: int = 0  # number of parts; 1 unless the text was long
    alternatives: tuple["Translation", ...] = ()  # the rest of the n-best list, best first


class TextTranslator:
    """A search engine, a tokenizer and default settings."""

    def __init__(
        self,
        engine: SearchEngine | Callable[[str], SearchEngine],
        tokenizer: PairTokenizer,
        config: SearchSettings | None = None,
        max_len: int | None = None,
        shortlist: Callable[[], CandidateTable] | None = None,
        model: Callable[[], Any] | None = None,
        longest_source: int | None = None,
    ) -> None:
        """
        Args:
            engine: a search engine, or a function that returns one for a value of `SearchSettings.compute` or "torch".
            tokenizer: that of the model.
            config: default settings.
            max_len: the longest output that the model supports (learned positions).
            shortlist: returns the model's shortlist for `SearchSettings.shortlist`, or raises a `UserError`. With None
                (a model in training) that setting is ignored.
            model: returns the network, for inspection.
            longest_source: the longest source that the model supports, if different from `max_len`.
        """
        self.engines: Callable[[str], SearchEngine] = (
            (lambda compute: engine) if isinstance(engine, SearchEngine) else engine
        )
        self.tokenizer = tokenizer
        self.config = config or SearchSettings()
        self.max_len = max_len
        self.longest_source = longest_source or max_len
        self.shortlist = shortlist
        self._model = model or (lambda: getattr(engine, "model", None))

    @property
    def model(self) -> Any:
        """The network."""
        return self._model()

    def translate(
        self, texts: Sequence[str], prefix: str = "", draft: Draft | None = None, **overrides: Any
    ) -> list[Translation]:
        """The translation of each text, in order.

        Args:
            texts: any strings; line breaks inside them count as spaces.
            prefix: every output must start with it.
            draft: for speculative decoding (greedy, one text at a time).
            **overrides: settings of `SearchSettings` for this call, such as `beam_size=1`.

        Raises:
            UserError: a setting is unknown or invalid.
        """
        if isinstance(texts, str):
            raise UserError("translate takes a list of texts; write translate([text]) for a single one")
        config = self.settings(({"beam_size": 1, "n_best": 1} if draft else {}) | overrides)
        sources = self.segment(texts, config)
        hypotheses = self.search(sources, self.encode_prefix(prefix), config, draft)
        remaining = iter(hypotheses)
        return [self.assemble(parts, list(islice(remaining, len(parts))), config.stop) for parts in sources]

    def translate_lines(
        self,
        lines: Iterable[str],
        prefix: str = "",
        chunk_lines: int = CHUNK_LINES,
        draft: Draft | None = None,
        **overrides: Any,
    ) -> Iterator[Translation]:
        """`translate` for a stream of lines, with or without line breaks.

        Reads `chunk_lines` lines at a time, so memory does not grow with the input.
        """
        stream, done = iter(lines), 0
        while chunk := list(islice(stream, chunk_lines)):
            try:
                yield from self.translate(chunk, prefix, draft, **overrides)
            except TooLarge as error:
                raise TooLarge(done + error.index, error.why, "line") from None
            done += len(chunk)

    def stream(self, text: str, prefix: str = "", draft: Draft | None = None, **overrides: Any) -> Iterator[str]:
        """The translation of `text` in chunks, each as soon as it is final; joined they are the whole translation.

        The search is greedy or sampled, since a beam may still change everything until it ends. A space waits until
        something follows it. A text that is too long is translated in parts, one after another.

        Raises:
            UserError: the settings request a beam, or are invalid.
        """
        config = self.settings({"beam_size": 1, "n_best": 1, **overrides})
        if config.beam_size > 1 or config.n_best > 1:
            raise UserError("streaming needs greedy search or sampling: leave out beam_size and n_best")
        gap, forced = "", self.encode_prefix(prefix)
        for source in self.segment([text], config)[0]:
            decode = self.tokenizer.decode if config.stop else self.text_of  # a stop string may be a line break
            chunks = growing_text(self._tokens(source, forced, config, draft), decode)
            for chunk in until_stop(chunks, config.stop):
                yield gap + chunk
                gap = ""
            gap, forced = " ", []

    def _tokens(
        self, source: list[int], forced: list[int], config: SearchSettings, draft: Draft | None
    ) -> Iterator[int]:
        """The tokens of a greedy search for one source, without the end token."""
        engine, request, special = self.engine(config), self.request([source], [forced], config), self.special
        if draft:
            steps = speculate(engine, request, draft)
        else:
            steps = islice(greedy_steps(begin(engine, request)), len(special.forced), None)
        written = (best.token for best in steps if best.token not in special.ends)
        return chain(self.opening, written)

    def segment(self, texts: Sequence[str], config: SearchSettings) -> list[list[list[int]]]:
        """Token ids of each text's parts: none for a blank text, several for one that is too long.

        A part with its end token has at most `max_source_length` tokens, and no more than the model supports.
        """
        limits = [limit for limit in (config.max_source_length, self.longest_source) if limit]
        clean = [clean_text(text) for text in texts]
        whole = self.tokenizer.source.encode_batch(clean)
        if not limits:
            return [[tokens] if text and tokens else [] for text, tokens in zip(clean, whole, strict=True)]
        longest = min(limits) - len(self.special.ended([]))
        return [self.segment_one(text, tokens, longest) for text, tokens in zip(clean, whole, strict=True)]

    def segment_one(self, text: str, tokens: list[int], longest: int) -> list[list[int]]:
        """Token ids of the parts of a text, at most `longest` each; `tokens` are those of the whole text.

        A special token in front of the text, such as its target language, is repeated for every part.
        """
        if not text or not tokens:
            return []
        if len(tokens) <= longest:
            return [tokens]
        source = self.tokenizer.source
        start = leading_token(text, source.declared.values())
        parts = split_text(text[len(start) :], lambda part: len(source.encode(start + part)) <= longest)
        return source.encode_batch([start + part for part in parts])

    def encode_prefix(self, prefix: str) -> list[int]:
        """Token ids of a forced prefix, which ends at a word boundary."""
        text, forced = clean_text(prefix), list(self.special.forced)
        ids = self.tokenizer.encode(text) if text else []
        return ids[len(forced) :] if forced and ids[: len(forced)] == forced else ids

    @property
    def special(self) -> SpecialIds:
        """The ids of the tokenizer's special tokens."""
        return self.tokenizer.special

    def engine(self, config: SearchSettings) -> SearchEngine:
        """The engine for these settings: with stop strings always torch, in the precision of the file."""
        if not config.stop:
            return self.engines(config.compute)
        if config.compute not in ("auto", "float32"):
            raise UserError(f"compute = {config.compute} does not support `stop`: leave out one of them")
        return self.engines("torch")

    def shortlist_for(self, config: SearchSettings) -> CandidateTable | None:
        """The shortlist, if these settings request it; None = the whole vocabulary."""
        return self.shortlist() if self.shortlist and config.shortlist else None

    def request(
        self,
        sources: list[list[int]],
        prefixes: list[list[int]],
        config: SearchSettings,
        phrases: list[list[list[int]]] | None = None,
    ) -> SearchRequest:
        """A search request for parts of texts."""
        stop = stop_at(config.stop, self.tokenizer.decode)
        shortlist = self.shortlist_for(config)
        return SearchRequest(sources, prefixes, config, self.special, self.max_len, shortlist, phrases, stop)

    def search(
        self, sources: list[list[list[int]]], prefix: list[int], config: SearchSettings, draft: Draft | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses of all parts of all texts; the prefix is for the first part of each text."""
        parts = [tokens for parts in sources for tokens in parts]
        prefixes = [prefix if i == 0 else [] for parts in sources for i in range(len(parts))]
        request = self.request(parts, prefixes, config)
        if draft:
            return speculative_search(self.engine(config), request, draft)
        try:
            return execute(self.engine(config), request)
        except TooLarge as error:
            text = [i for i, parts in enumerate(sources) for _ in parts][error.index]
            raise TooLarge(text, error.why) from None

    def search_with_callback(
        self, source: list[int], prefix: list[int], config: SearchSettings, callback: StepCallback
    ) -> Hypothesis:
        """The best hypothesis for one source; `callback` is called after each step."""
        return watch(begin(self.engine(config), self.request([source], [prefix], config)), callback)

    def settings(self, overrides: dict[str, Any]) -> SearchSettings:
        """The default settings with overrides."""
        return self.config.changed(overrides)

    @property
    def batch_tokens(self) -> int:
        """Tokens per batch."""
        return self.config.batch_tokens

    def assemble(
        self, sources: list[list[int]], hypotheses: list[list[Hypothesis]], stops: Sequence[str] = ()
    ) -> Translation:
        """The translation of one text from its parts; alternative n joins the n-th best of every part."""
        source_pieces = [piece for tokens in sources for piece in self.tokenizer.source.pieces(tokens)]
        if not sources:
            return Translation("")
        count = max(len(ranked) for ranked in hypotheses)
        columns = [[ranked[min(n, len(ranked) - 1)] for ranked in hypotheses] for n in range(count)]
        best, *others = (self.join(column, source_pieces, stops) for column in columns)
        return replace(best, alternatives=tuple(others))

    def join(self, hypotheses: list[Hypothesis], source_pieces: list[str], stops: Sequence[str] = ()) -> Translation:
        """One translation from one hypothesis per part."""
        hypotheses = [with_start(found, self.opening) for found in hypotheses]
        texts = (one_line(before_stop(self.tokenizer.decode(h.tokens), stops)) for h in hypotheses)
        return Translation(
            text=join_sentences(texts),
            score=sum(h.score for h in hypotheses) / len(hypotheses),
            log_prob=sum(h.log_prob for h in hypotheses),
            pieces=[piece for h in hypotheses for piece in self.tokenizer.pieces(h.tokens)],
            token_log_probs=[x for h in hypotheses for x in h.token_log_probs[: len(h.tokens)]],
            source_pieces=source_pieces,
            parts=len(hypotheses),
        )

    @property
    def opening(self) -> list[int]:
        """The forced tokens that are part of the text: words, not language codes."""
        return [token for token in self.special.forced if not self.tokenizer.is_special(token)]

    def text_of(self, tokens: list[int]) -> str:
        """The text of an output."""
        return one_line(self.tokenizer.decode(tokens))


def clean_text(text: str) -> str:
    """The text without surrounding spaces and line breaks. Lone surrogates become `?`.

    >>> clean_text(" a dog\\n")
    'a dog'
    """
    return one_line(text.encode("utf-8", errors="replace").decode("utf-8"))


def one_line(text: str) -> str:
    """The text without line breaks and surrounding spaces.

    >>> one_line("a\\r\\nb ")
    'a b'
    """
    return re.sub(r"[\r\n]+", " ", text).strip()


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts of a text that each fit, by recursive splitting near the middle; only spaces at the splits are lost.

    A single character is never split, even if it does not fit.

    >>> split_text("One two. Three four five.", lambda part: len(part) < 20)
    ['One two.', 'Three four five.']
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    end, start = split_near_middle(text)
    return split_text(text[:end], fits) + split_text(text[start:], fits)


def split_near_middle(text: str) -> tuple[int, int]:
    """The end of the first part and the start of the second.

    At a sentence end in the middle half of the text, else at the space nearest to the middle, else in the middle.
    """
    middle = len(text) // 2
    sentence_end, blank = nearest_split(text, SENTENCE_END), nearest_split(text, BLANK)
    if sentence_end and abs(sentence_end[0] - middle) <= len(text) // 4:
        return sentence_end
    return blank or (middle, middle)


def nearest_split(text: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """The split nearest to the middle of a text with non-empty parts."""
    splits = (match.span(match.lastindex or 0) for match in pattern.finditer(text))
    inside = (split for split in splits if split[0] > 0 and split[1] < len(text))
    return min(inside, key=lambda split: abs(split[0] - len(text) // 2), default=None)


def leading_token(text: str, declared: Iterable[str]) -> str:
    """The declared token that a text starts with, including following spaces; "" if there is none.

    >>> leading_token("<2de> a dog", ["<2de>"])
    '<2de> '
    """
    token = next((token for token in declared if text.startswith(token)), "")
    rest = text[len(token) :]
    return token + rest[: len(rest) - len(rest.lstrip())] if token else ""
