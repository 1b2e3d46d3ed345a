"""Speech recognition with Whisper, by its decoding rules (arXiv:2212.04356, sections 2.3 and 4.5).

The decoder starts with special tokens for the language, the task and whether to write timestamps. Timestamps come in
pairs around each segment, in steps of 20 ms, and never decrease. A recording longer than the encoder's window is
transcribed in windows; each starts at the end of the last complete segment. See `headwise.text.files.audio` for sound
files and `fallback` for temperature fallback.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32

from headwise.contract import NEVER, Hypothesis, Limits, SearchOptions, SpeechNetwork, TimestampRules
from headwise.errors import UserError
from headwise.models.language.limits import output_bounds
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.request import non_finite_error, search_options
from headwise.runtime.tokenizers.vocabulary import Vocabulary

STEP = 0.02  # seconds between two timestamps; two frames of the spectrogram
FRAMES = 2  # of the spectrogram in a STEP
ENGLISH_END = 50256  # end of text in the vocabulary of GPT-2, which English-only models have
TASKS = ("transcribe", "translate")


@dataclass(frozen=True)
class WhisperTokens:
    """The special tokens of a Whisper model."""

    start: int
    end: int
    no_timestamps: int
    languages: Mapping[str, int]  # by code, "en"; empty for English-only models
    tasks: Mapping[str, int]
    latest_first: int | None  # largest first timestamp, in steps; None = no limit

    @property
    def timestamps(self) -> TimestampRules:
        """The constraints on timestamps."""
        return TimestampRules(self.first_timestamp, self.no_timestamps, self.latest_first)

    @property
    def first_timestamp(self) -> int:
        """The id of 0.00 s; all from here on are timestamps."""
        return self.no_timestamps + 1


def whisper_tokens(config: GenerationConfig, values: Mapping[str, Any], vocabulary: Vocabulary) -> WhisperTokens:
    """The special tokens of a model, from its generation_config.json (`values`) or, if that is old, its vocabulary."""

    def needed(name: str, *pieces: str) -> int:
        found = values.get(name)
        for piece in pieces if found is None else ():
            found = vocabulary.id_of(piece) if found is None else found
        if found is None:
            raise UserError(f"generation_config.json: has no {name}, and the vocabulary no {' or '.join(pieces)}")
        return found

    if config.special.bos_id == NEVER or not config.can_end:
        raise UserError("config.json: has no decoder_start_token_id or no eos_token_id")
    codes = values.get("lang_to_id") or _codes(values, config.special.eos_id, vocabulary)
    languages = {code.strip("<|>"): token for code, token in codes.items()}
    named = values.get("task_to_id") or {}
    tasks = {task: named.get(task, vocabulary.id_of(f"<|{task}|>")) for task in TASKS} if languages else {}
    return WhisperTokens(
        config.special.bos_id,
        config.special.eos_id,
        needed("no_timestamps_token_id", "<|notimestamps|>"),
        languages,
        {task: token for task, token in tasks.items() if token is not None},
        values.get("max_initial_timestamp_index"),
    )


def _codes(values: Mapping[str, Any], end: int, vocabulary: Vocabulary) -> dict[str, int]:
    """The tokens of languages in a vocabulary; English-only models have them, too, but do not use them."""
    if values.get("is_multilingual") is False or end == ENGLISH_END:
        return {}
    return {piece: i for piece, i in vocabulary.pieces().items() if re.fullmatch(r"<\|[a-z]{2,3}\|>", piece)}


@dataclass
class WindowEncoder:
    """Encodes the windows of a recording; the latest is kept, because the language is detected in the first one."""

    network: SpeechNetwork
    _window: Float32[np.ndarray, "n_mels frames"] | None = None
    _memory: Any = None

    def __call__(self, window: Float32[np.ndarray, "n_mels frames"]) -> Any:
        """The encoded window, for the methods of the network."""
        if self._window is None or not np.array_equal(self._window, window):
            self._window, self._memory = window, self.network.encode(window)
        return self._memory


def transcribe_window(
    network: SpeechNetwork,
    memory: Any,
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None = None,
) -> Hypothesis:
    """The output for an encoded window of sound, without start tokens and end token."""
    return window_hypotheses(network, memory, prompt, special_tokens, config, timestamps, max_len)[0]


def window_hypotheses(
    network: SpeechNetwork,
    memory: Any,
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None = None,
    among_allowed: bool = False,
) -> list[Hypothesis]:
    """All hypotheses for an encoded window, best first; see `speech_search_options`.

    Raises:
        UserError: the network returns numbers that are not finite.
    """
    options = speech_search_options(special_tokens, config, timestamps, among_allowed)
    found = network.search(memory, prompt, window_bounds(1, prompt, config, max_len), options)
    if not (found and math.isfinite(found[0].log_prob)):
        raise non_finite_error()
    return found


def window_bounds(windows: int, prompt: Sequence[int], config: GenerationConfig, max_len: int | None) -> Limits:
    """The length limits of the outputs for some windows; `max_len` is the number of the decoder's positions."""
    room = None if max_len is None else max_len - len(prompt) + 1
    special = replace(config.special, forced=())
    return output_bounds([room] * windows, replace(config, special=special), [prompt] * windows)


def speech_search_options(
    special_tokens: WhisperTokens, config: GenerationConfig, timestamps: bool, among_allowed: bool = False
) -> SearchOptions:
    """The options of a search after a prompt; see `SearchOptions.among_allowed`."""
    special = replace(config.special, bos_id=special_tokens.start, forced=(), forced_end=None)
    options = replace(search_options(config.settings, special), among_allowed=among_allowed, bos_in_ngrams=False)
    return replace(options, timestamps=special_tokens.timestamps) if timestamps else options


def detect_language(
    encode: WindowEncoder, window: Float32[np.ndarray, "n_mels frames"], special_tokens: WhisperTokens
) -> str:
    """The most probable language of a window of sound; "" for English-only models."""
    if not special_tokens.languages:
        return ""
    codes, ids = zip(*special_tokens.languages.items(), strict=True)
    return codes[int(encode.network.logits(encode(window), [special_tokens.start])[list(ids)].argmax())]


def start_tokens(special_tokens: WhisperTokens, language: str, task: str, timestamps: bool) -> list[int]:
    """The start tokens of the decoder; `UserError` for an unknown language or task."""
    if task not in TASKS:
        raise UserError(f"task '{task}': must be transcribe or translate")
    if not special_tokens.languages and (language or task != TASKS[0]):
        raise UserError("this model is for English only: leave out language and task")
    if language not in special_tokens.languages and special_tokens.languages:
        raise UserError(f"language '{language}': this model knows {', '.join(sorted(special_tokens.languages))}")
    if special_tokens.languages and task not in special_tokens.tasks:
        raise UserError(f"generation_config.json: task_to_id has no {task}, and the vocabulary no <|{task}|>")
    requested = [special_tokens.languages[language], special_tokens.tasks[task]] if special_tokens.languages else []
    return [special_tokens.start, *requested, *([] if timestamps else [special_tokens.no_timestamps])]


# --- Windows and segments ---


def windows(
    listen: Callable[[Float32[np.ndarray, "n_mels window"]], list[int]],
    mel: Float32[np.ndarray, "n_mels frames"],
    frames: int,
    window: int,
    first_timestamp: int,
) -> Iterator[tuple[float, float, list[int]]]:
    """Start, end (seconds) and text tokens of each segment of a recording of `frames`, in windows of `window` frames.

    `listen` returns the tokens of a window, with timestamps. The last window is padded with zeros, as in OpenAI's code
    and `transformers` (`WhisperGenerationMixin._get_input_segment`), not with the spectrogram of silence. No segment
    ends after the recording, where the model may have heard text in the padding.
    """
    seek, last = 0, frames * STEP / FRAMES
    while seek < frames:
        heard = mel[:, seek : seek + window]
        tokens = listen(np.pad(heard, ((0, 0), (0, window - heard.shape[1]))))
        found, understood = segments(tokens, first_timestamp, min(window, frames - seek))
        offset = seek * STEP / FRAMES
        for start, end, text in found:
            yield min(offset + start, last), min(offset + end, last), text
        seek += understood


def segments(
    tokens: Sequence[int], first_timestamp: int, frames: int
) -> tuple[list[tuple[float, float, list[int]]], int]:
    """Segments (start, end, tokens of text) of a window, and after how many frames the next window starts.

    If the output ends within a segment, the next window starts after the last complete one.

    >>> segments([100, 7, 8, 110, 110, 9, 120], 100, 3000)
    ([(0.0, 0.2, [7, 8]), (0.2, 0.4, [9])], 3000)
    >>> segments([100, 7, 110, 110, 9], 100, 3000)
    ([(0.0, 0.2, [7])], 20)
    """
    is_time = [token >= first_timestamp for token in tokens]
    cuts = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
    closed = is_time[-2:] == [False, True]
    if not cuts:
        times = [token - first_timestamp for token in tokens if token >= first_timestamp]
        end = times[-1] * STEP if times and times[-1] else frames * STEP / FRAMES
        text = [token for token in tokens if token < first_timestamp]
        return ([(0.0, round(end, 2), text)] if text else []), frames
    found, start = [], 0
    for cut in [*cuts, *([len(tokens)] if closed else [])]:
        part, start = tokens[start:cut], cut
        begin, ended = (round((part[i] - first_timestamp) * STEP, 2) for i in (0, -1))
        text = [token for token in part if token < first_timestamp]
        found += [(begin, ended, text)] if text else []
    last = (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES
    return found, frames if closed or last <= 0 else min(last, frames)
