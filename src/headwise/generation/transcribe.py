"""Speech recognition with Whisper, by its decoding rules (arXiv:2212.04356, sections 2.3 and 4.5).

The decoder starts with special tokens for the language, the task and whether to write timestamps. Timestamps come in
pairs around each segment, in steps of 20 ms, and never decrease. A recording longer than the encoder's window is
transcribed in windows; each starts at the end of the last complete segment. Not here: sound files
(`headwise.data.audio`), and temperature fallback (`fallback`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.generation_config import GenerationConfig
from headwise.checkpoint.vocabulary import Vocabulary
from headwise.contract import NEVER, Hypothesis, Rule
from headwise.decode.request import search_options
from headwise.decode.stepwise import step_of
from headwise.errors import UserError
from headwise.generation.decoding import output_limits, prefill, search
from headwise.network.transformer import Transformer

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


def timestamp_rule(special_tokens: WhisperTokens) -> Rule:
    """The rule for timestamps.

    They come in pairs, the end of a segment and the start of the next one, except the first. They never decrease, and
    the first has a limit. If all timestamps together are more probable than any text token, the next token is one.
    """
    first = special_tokens.first_timestamp

    def rule(log_probs: Float[Tensor, "rows vocab"], history: Int[Tensor, "rows length"]) -> Tensor:
        log_probs = log_probs.clone()
        log_probs[:, special_tokens.no_timestamps] = -torch.inf
        if not history.size(1):
            log_probs[:, :first] = -torch.inf
            if special_tokens.latest_first is not None:
                log_probs[:, first + special_tokens.latest_first + 1 :] = -torch.inf
            return log_probs
        is_time = history >= first
        last = is_time[:, -1]
        before = is_time[:, -2] if history.size(1) > 1 else torch.ones_like(last)
        opens, closes = last & before, last & ~before
        earliest = torch.where(is_time, history, first - 1).amax(1) + torch.where(closes, 0, 1)
        ids = torch.arange(log_probs.size(1), device=log_probs.device)
        times = ids >= first
        log_probs.masked_fill_(opens.unsqueeze(1) & times, -torch.inf)
        log_probs.masked_fill_(closes.unsqueeze(1) & (ids < special_tokens.end), -torch.inf)
        log_probs.masked_fill_(times & (ids < earliest.unsqueeze(1)), -torch.inf)
        likely = log_probs[:, first:].logsumexp(1) > log_probs[:, :first].amax(1)
        return log_probs.masked_fill_(likely.unsqueeze(1) & ~times, -torch.inf)

    return rule


def never(ids: Sequence[int]) -> Rule:
    """Suppress these ids; unlike `SearchOptions.suppressed`, before the other rules."""

    def rule(log_probs: Float[Tensor, "rows vocab"], history: Int[Tensor, "rows length"]) -> Tensor:
        log_probs[:, list(ids)] = -torch.inf
        return log_probs

    return rule


@torch.inference_mode()
def transcribe_window(
    network: Transformer,
    mel: Float[Tensor, "n_mels frames"],
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None = None,
) -> Hypothesis:
    """The output for one window of sound, without start tokens and end token."""
    memory = network.encode(mel.unsqueeze(0).to(next(network.parameters())))  # to its device and precision
    return transcribe_windows(network, memory, prompt, special_tokens, config, timestamps, max_len)[0]


@torch.inference_mode()
def transcribe_windows(
    network: Transformer,
    memory: Float[Tensor, "windows positions d_model"],
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None = None,
) -> list[Hypothesis]:
    """`transcribe_window` for encoded windows."""
    return [
        ranked[0] for ranked in window_hypotheses(network, memory, prompt, special_tokens, config, timestamps, max_len)
    ]


def window_hypotheses(
    network: Transformer,
    memory: Float[Tensor, "windows positions d_model"],
    prompt: Sequence[int],
    special_tokens: WhisperTokens,
    config: GenerationConfig,
    timestamps: bool,
    max_len: int | None = None,
    normalised: bool = False,
) -> list[list[Hypothesis]]:
    """All hypotheses for each window, best first; with `normalised`, probabilities are among the allowed tokens."""
    prompts = torch.tensor([list(prompt)] * len(memory), device=memory.device)
    prefilled = prefill(step_of(network), network.start_cache(memory), prompts)
    room = None if max_len is None else max_len - len(prompt) + 1
    rules = [never(config.special.never_generated)]
    rules += [timestamp_rule(special_tokens)] if timestamps else []
    rules += [lambda log_probs, history: log_probs.log_softmax(-1)] if normalised else []
    special = replace(config.special, bos_id=special_tokens.start, forced=(), forced_end=None, suppressed=())
    options = replace(search_options(config.settings, special), rules=tuple(rules))
    limits = output_limits([room] * len(memory), replace(config, special=special), memory.device)
    streams = [0] * len(memory)
    return search(step_of(network), prefilled, limits, options, config.settings.sample, streams)


@torch.inference_mode()
def detect_language(network: Transformer, mel: Float[Tensor, "n_mels frames"], special_tokens: WhisperTokens) -> str:
    """The most probable language; "" for English-only models."""
    if not special_tokens.languages:
        return ""
    weights = next(network.parameters())
    tokens = torch.tensor([[special_tokens.start]], device=weights.device)
    logits = network(mel.unsqueeze(0).to(weights), tokens)[0, -1]
    codes, ids = zip(*special_tokens.languages.items(), strict=True)
    return codes[int(logits[list(ids)].argmax())]


def start_tokens(special_tokens: WhisperTokens, language: str, task: str, timestamps: bool) -> list[int]:
    """The start tokens of the decoder; `UserError` for an unknown language or task."""
    if task not in TASKS:
        raise UserError(f"task '{task}': must be transcribe or translate")
    if not special_tokens.languages and (language or task != TASKS[0]):
        raise UserError("this model is for English only: leave out language and task")
    if language not in special_tokens.languages and special_tokens.languages:
        raise UserError(f"language '{language}': this model knows {', '.join(sorted(special_tokens.languages))}")
    requested = [special_tokens.languages[language], special_tokens.tasks[task]] if special_tokens.languages else []
    return [special_tokens.start, *requested, *([] if timestamps else [special_tokens.no_timestamps])]


# --- Windows and segments ---


def windows(
    listen: Callable[[Float[Tensor, "n_mels window"]], list[int]],
    mel: Float[Tensor, "n_mels frames"],
    frames: int,
    window: int,
    first_timestamp: int,
) -> Iterator[tuple[float, float, list[int]]]:
    """Start, end (seconds) and text tokens of each segment of a recording of `frames`, in windows of `window` frames.

    `listen` returns the tokens of a window, with timestamps. The last window is padded with zeros, as in OpenAI's code
    and `transformers` (`WhisperGenerationMixin._get_input_segment`), not with the spectrogram of silence.
    """
    seek = 0
    while seek < frames:
        heard = mel[:, seek : seek + window]
        tokens = listen(F.pad(heard, (0, window - heard.size(1))))
        found, understood = segments(tokens, first_timestamp, min(window, frames - seek))
        offset = seek * STEP / FRAMES
        for start, end, text in found:
            yield offset + start, offset + end, text
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
