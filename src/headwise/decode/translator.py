"""Strings to translations. One text in, one `Translation` out, in order, whatever the text is.

The only module of `decode` that knows a tokenizer, and nothing here needs torch: what searches is handed in. Blank
texts are answered without the model; texts too long for it are translated in parts. Not here: files, options of the
command line, the search.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.contract import Draft, Hypothesis, Look, SearchEngine, SpecialIds
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.scripts import join_sentences
from headwise.decode.candidates import CandidateTable
from headwise.decode.engine import begin, execute
from headwise.decode.request import SearchRequest, TooLarge
from headwise.decode.speculative import speculate, speculative_search
from headwise.decode.stepping import watch, written_in
from headwise.decode.stopping import before_stop, stop_at, until_stop
from headwise.decode.streaming import growing_text
from headwise.errors import UserError

# Where a text may be cut, as a group: the blank after a sentence and its closing quotes and brackets; the
# empty place after a sentence in Chinese or Japanese, which write no blanks; any blank.
SENTENCE_END = re.compile(
    "[.!?\u2026][\"')\\]\u2019\u201d\u00bb]*(\\s+)|[\u3002\uff01\uff1f][\u300d\u300f\u201d\uff09]*()"
)
BLANK = re.compile(r"(\s+)")


@dataclass(frozen=True)
class Translation:
    """One translated text.

    A text translated in parts has the pieces of all parts in a row, the sum of their log-probabilities and
    the mean of their scores. A blank text has an empty translation of score 0 and no parts.
    """

    text: str  # one line
    score: float  # log-probability over length penalty: what alternatives are ranked by; higher is better
    log_prob: float  # natural log, with the end mark
    pieces: list[str]
    token_log_probs: list[float]  # one per piece
    source_pieces: list[str]
    parts: int  # how many parts the text was translated in; 1 unless it was long
    alternatives: tuple["Translation", ...] = ()  # the further n-best, best first


class TextTranslator:
    """What searches, a tokenizer, and the settings to search with unless a call says otherwise."""

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
            engine: what searches; or what gives it for `SearchSettings.compute`, one of its values, and for "torch".
            tokenizer: the model's own.
            config: settings of every call, unless it says otherwise.
            max_len: the longest output the model can write, where it has a limit (learned positions).
            shortlist: gives the model's shortlist when `SearchSettings.shortlist` asks for it, or raises a `UserError`;
                where it is None, as for a model that is still being trained, that setting counts for nothing.
            model: gives the network, for whoever looks inside.
            longest_source: the longest text that the model can read, where that is another one than `max_len`.
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
            texts: any strings; line ends inside them count as blanks.
            prefix: what every output must begin with.
            draft: guesses for greedy search, which then takes one text at a time (see `speculative`).
            **overrides: settings of `SearchSettings` for this call, such as `beam_size=1`.

        Raises:
            UserError: a setting is unknown or makes no sense.
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
        chunk_lines: int = 2000,
        draft: Draft | None = None,
        **overrides: Any,
    ) -> Iterator[Translation]:
        """`translate` for a stream of lines, with their line ends or without.

        Reads `chunk_lines` at a time, so memory does not grow with the input.
        """
        stream, done = iter(lines), 0
        while chunk := list(islice(stream, chunk_lines)):
            try:
                yield from self.translate(chunk, prefix, draft, **overrides)
            except TooLarge as error:
                raise TooLarge(done + error.index, error.why, "line") from None
            done += len(chunk)

    def stream(self, text: str, prefix: str = "", draft: Draft | None = None, **overrides: Any) -> Iterator[str]:
        """The translation of `text`, each piece of it as soon as it is certain; joined they are the whole.

        What has been handed over is never taken back, so the search is greedy, or samples: a beam may change its mind
        about everything until it ends. A blank waits until something follows it. A text too long for the model is
        translated in parts, one after the other.

        Raises:
            UserError: the settings ask for a beam, or make no sense.
        """
        config = self.settings({"beam_size": 1, "n_best": 1, **overrides})
        if config.beam_size > 1 or config.n_best > 1:
            raise UserError("a stream is written by greedy search or sampled: leave out beam_size and n_best")
        gap, forced = "", self.encode_prefix(prefix)
        for source in self.segment([text], config)[0]:
            decode = self.tokenizer.decode if config.stop else self.text_of  # a stop string may be a line end
            grows = growing_text(self._tokens(source, forced, config, draft), decode)
            for piece in until_stop(grows, config.stop):
                yield gap + piece
                gap = ""
            gap, forced = " ", []

    def _tokens(
        self, source: list[int], forced: list[int], config: SearchSettings, draft: Draft | None
    ) -> Iterator[int]:
        """What a greedy search for one source writes, without the end mark."""
        engine, request, special = self.engine(config), self.request([source], [forced], config), self.special
        if draft:
            steps = speculate(engine, request, draft)
        else:
            steps = islice(written_in(begin(engine, request)), len(special.forced), None)
        return (best.token for best in steps if best.token not in (special.eos_id, *special.other_ends))

    def segment(self, texts: Sequence[str], config: SearchSettings) -> list[list[list[int]]]:
        """Token ids of each text's parts: none for a blank text, several for one that is too long.

        A part and its end mark are at most `max_source_length` tokens, and no more than the model can read.
        """
        limits = [limit for limit in (config.max_source_length, self.longest_source) if limit]
        clean = [clean_text(text) for text in texts]
        whole = self.tokenizer.source.encode_batch(clean)
        if not limits:
            return [[tokens] if text and tokens else [] for text, tokens in zip(clean, whole, strict=True)]
        longest = min(limits) - len(self.special.ended([]))
        return [self.segment_one(text, tokens, longest) for text, tokens in zip(clean, whole, strict=True)]

    def segment_one(self, text: str, tokens: list[int], longest: int) -> list[list[int]]:
        """Token ids of the parts of a text that has `tokens` in one, at most `longest` each.

        A token declared in front of the text, such as its target language, goes with every part.
        """
        if not text or not tokens:
            return []
        if len(tokens) <= longest:
            return [tokens]
        source = self.tokenizer.source
        mark = leading_mark(text, source.declared.values())
        parts = split_text(text[len(mark) :], lambda part: len(source.encode(mark + part)) <= longest)
        return source.encode_batch([mark + part for part in parts])

    def encode_prefix(self, prefix: str) -> list[int]:
        """Token ids of a forced beginning, which ends with a word: the next token brings its own blank."""
        text, forced = clean_text(prefix), list(self.special.forced)
        ids = self.tokenizer.encode(text) if text else []
        return ids[len(forced) :] if forced and ids[: len(forced)] == forced else ids

    @property
    def special(self) -> SpecialIds:
        """The tokenizer's ids that mean something to the search."""
        return self.tokenizer.special

    def engine(self, config: SearchSettings) -> SearchEngine:
        """What searches by these settings: torch alone where outputs are to stop at a string."""
        if not config.stop:
            return self.engines(config.compute)
        if config.compute != "float32":
            raise UserError(f"compute = {config.compute} does not go together with `stop`: leave out one of them")
        return self.engines("torch")

    def offered(self, config: SearchSettings) -> CandidateTable | None:
        """The shortlist, if these settings ask for it; None = the whole vocabulary."""
        return self.shortlist() if self.shortlist and config.shortlist else None

    def request(
        self,
        sources: list[list[int]],
        prefixes: list[list[int]],
        config: SearchSettings,
        phrases: list[list[list[int]]] | None = None,
    ) -> SearchRequest:
        """The search for some parts of texts."""
        stop = stop_at(config.stop, self.tokenizer.decode)
        offered = self.offered(config)
        return SearchRequest(sources, prefixes, config, self.special, self.max_len, offered, phrases, stop)

    def search(
        self, sources: list[list[list[int]]], prefix: list[int], config: SearchSettings, draft: Draft | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses of all parts of all texts in a row; the prefix is for the first part of each text."""
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

    def watched(self, source: list[int], prefix: list[int], config: SearchSettings, look: Look) -> Hypothesis:
        """What the search finds for one source, while `look` is shown each step."""
        return watch(begin(self.engine(config), self.request([source], [prefix], config)), look)

    def settings(self, overrides: dict[str, Any]) -> SearchSettings:
        """The settings of a call."""
        return self.config.changed(overrides)

    @property
    def batch_tokens(self) -> int:
        """Tokens of pairs that are looked at together."""
        return self.config.batch_tokens

    def assemble(
        self, sources: list[list[int]], hypotheses: list[list[Hypothesis]], stops: Sequence[str] = ()
    ) -> Translation:
        """One text from its parts; alternative n joins the n-th best of every part."""
        source_pieces = [piece for tokens in sources for piece in self.tokenizer.source.pieces(tokens)]
        if not sources:
            return Translation("", 0.0, 0.0, [], [], [], parts=0)
        count = max(len(ranked) for ranked in hypotheses)
        columns = [[ranked[min(n, len(ranked) - 1)] for ranked in hypotheses] for n in range(count)]
        best, *others = (self.join(column, source_pieces, stops) for column in columns)
        return replace(best, alternatives=tuple(others))

    def join(self, hypotheses: list[Hypothesis], source_pieces: list[str], stops: Sequence[str] = ()) -> Translation:
        """One translation from one hypothesis per part."""
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

    def text_of(self, tokens: list[int]) -> str:
        """The text of an output."""
        return one_line(self.tokenizer.decode(tokens))


def clean_text(text: str) -> str:
    """What the model is shown: no blanks around it, no line ends in it.

    Lone surrogates, which no tokenizer takes, become `?`.

    >>> clean_text(" a dog\\n")
    'a dog'
    """
    return one_line(text.encode("utf-8", errors="replace").decode("utf-8"))


def one_line(text: str) -> str:
    """A text that stays one line in any file.

    >>> one_line("a\\r\\nb ")
    'a b'
    """
    return re.sub(r"[\r\n]+", " ", text).strip()


def split_text(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts of a text that each fit, cut near the middle again and again; only blanks at the cuts are lost.

    A single character is never cut, whether it fits or not.

    >>> split_text("One two. Three four five.", lambda part: len(part) < 20)
    ['One two.', 'Three four five.']
    """
    text = text.strip()
    if len(text) < 2 or fits(text):
        return [text] if text else []
    end, start = cut_near_middle(text)
    return split_text(text[:end], fits) + split_text(text[start:], fits)


def cut_near_middle(text: str) -> tuple[int, int]:
    """Where the first part ends and the second starts.

    At a sentence end in the middle half of the text, else at the blank nearest to the middle, else there.
    """
    middle = len(text) // 2
    sentence_end, blank = nearest_cut(text, SENTENCE_END), nearest_cut(text, BLANK)
    if sentence_end and abs(sentence_end[0] - middle) <= len(text) // 4:
        return sentence_end
    return blank or (middle, middle)


def nearest_cut(text: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """The cut nearest to the middle of a text that leaves something on both sides."""
    cuts = (match.span(match.lastindex or 0) for match in pattern.finditer(text))
    inside = (cut for cut in cuts if cut[0] > 0 and cut[1] < len(text))
    return min(inside, key=lambda cut: abs(cut[0] - len(text) // 2), default=None)


def leading_mark(text: str, declared: Iterable[str]) -> str:
    """The declared token that a text begins with, and the blanks after it; empty if there is none.

    >>> leading_mark("<2de> a dog", ["<2de>"])
    '<2de> '
    """
    token = next((token for token in declared if text.startswith(token)), "")
    rest = text[len(token) :]
    return token + rest[: len(rest) - len(rest.lstrip())] if token else ""
