"""Temperature fallback of Whisper (arXiv:2212.04356, section 4.5; `transcribe.py` of openai/whisper).

A text that repeats itself (it compresses by more than 2.4) or is improbable (mean log-probability of a token below
-1.0) is sampled again at a temperature of 0.2, 0.4 ... 1.0 until it is neither; the best of five samples counts. A
window is silence, and skipped, if the probability of no speech is above 0.6 and the text is improbable. The text is the
prompt of the next window unless its temperature was above 0.5. See `transcribe` for windows and their search.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float32

from headwise.contract import Hypothesis, SpeechNetwork
from headwise.models.speech.transcribe import WhisperTokens, window_hypotheses
from headwise.runtime.checkpoint.generation_config import GenerationConfig

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COMPRESSION, LOG_PROB, NO_SPEECH = 2.4, -1.0, 0.6  # thresholds: a text repeats itself, is improbable, is silence
BEST_OF = 5  # samples at a temperature
FORGETS = 0.5  # above this temperature a text is not the prompt of the next window

Window = Float32[np.ndarray, "n_mels frames"]


@dataclass(frozen=True)
class Attempt:
    """The text of a window at one temperature."""

    tokens: list[int]
    log_prob: float  # natural log, mean over tokens and end token
    compression: float  # bytes of the text over bytes of it compressed
    no_speech: float  # probability of no speech; 0 if the model has no token for it, or the text is probable
    temperature: float = 0.0

    @property
    def is_silence(self) -> bool:
        """Whether nobody speaks."""
        return self.no_speech > NO_SPEECH and self.log_prob < LOG_PROB

    @property
    def is_wrong(self) -> bool:
        """Whether it is sampled again."""
        return not self.is_silence and (self.compression > COMPRESSION or self.log_prob < LOG_PROB)


def compression_ratio(text: str) -> float:
    """Bytes of a text over bytes of it compressed by zlib.

    >>> compression_ratio("ha " * 40) > COMPRESSION > compression_ratio("A dog runs in the park.")
    True
    """
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw))


def attempt(attempt_at: Callable[[float], Attempt], temperatures: Sequence[float] = TEMPERATURES) -> Attempt:
    """The first attempt that is not wrong, or the last."""
    found = attempt_at(temperatures[0])
    for temperature in temperatures[1:]:
        if not found.is_wrong:
            return found
        found = attempt_at(temperature)
    return found


@dataclass
class WindowTranscriber:
    """Transcribes the windows of a recording in order; `listen` does one, with earlier text, at a temperature."""

    encode: Callable[[Window], Any]  # once for each window, however often it is decoded
    listen: Callable[[Any, Sequence[int], float], Attempt]
    first_timestamp: int
    fallback: bool  # try other temperatures, and skip silence
    condition: bool  # use the text as prompt of the next window
    history: list[int] = field(default_factory=list)

    def __call__(self, window: Window) -> list[int]:
        """The tokens of a window; none for silence."""
        temperatures = TEMPERATURES if self.fallback else TEMPERATURES[:1]
        memory = self.encode(window)
        found = attempt(lambda temperature: self.listen(memory, self.history, temperature), temperatures)
        if self.fallback and found.is_silence:
            return []
        keeps = self.condition and found.temperature <= FORGETS
        self.history = [*self.history, *complete_tokens(found.tokens, self.first_timestamp)] if keeps else []
        return found.tokens


def complete_tokens(tokens: Sequence[int], first_timestamp: int) -> Sequence[int]:
    """The tokens that will not be transcribed again: all, or those of complete segments.

    >>> complete_tokens([100, 7, 110, 110, 9], 100), complete_tokens([100, 7, 110], 100)
    ([100, 7, 110], [100, 7, 110])
    """
    is_time = [token >= first_timestamp for token in tokens]
    cuts = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
    return tokens if not cuts or is_time[-2:] == [False, True] else tokens[: cuts[-1]]


def prompt_with_history(
    history: Sequence[int], prompt: Sequence[int], previous: int | None, max_len: int | None
) -> list[int]:
    """The start tokens of the decoder after earlier text, truncated to half of the positions.

    >>> prompt_with_history([5, 6, 7, 8], [1, 2], previous=9, max_len=8)
    [9, 6, 7, 8, 1, 2]
    """
    if not history or previous is None:
        return list(prompt)
    room = len(history) if max_len is None else max_len // 2 - 1
    return [previous, *history[-room:], *prompt] if room > 0 else list(prompt)


def transcribe_attempt(
    network: SpeechNetwork,
    memory: Any,
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None,
) -> tuple[list[int], float]:
    """The tokens of an encoded window, and their mean log-probability among the allowed tokens."""
    ways = window_hypotheses(network, memory, prompt, special_tokens, config, timestamps, max_len, among_allowed=True)
    found = most_probable(ways) if config.settings.sample else ways[0]
    return found.tokens, found.log_prob / (len(found.tokens) + 1)


def most_probable(ways: Sequence[Hypothesis]) -> Hypothesis:
    """By log-probability with the end token over the number of tokens without it, like the reference implementation."""
    return max(ways, key=lambda one: one.log_prob / max(1, len(one.tokens)))


def no_speech_probability(
    network: SpeechNetwork, memory: Any, prompt: Sequence[int], start: int, no_speech: int
) -> float:
    """The probability of the token `no_speech` after the start token."""
    logits = network.logits(memory, prompt[: prompt.index(start) + 1]).astype(np.float64)
    odds = np.exp(logits - logits.max())
    return float(odds[no_speech] / odds.sum())
