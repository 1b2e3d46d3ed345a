"""The length limits of outputs that follow a prompt, without torch."""

from collections.abc import Sequence

import numpy as np

from headwise.contract import Limits
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.request import prompt_context


def output_bounds(room: Sequence[int | None], config: GenerationConfig, prompts: Sequence[Sequence[int]]) -> Limits:
    """The length limits of outputs, without their forced start tokens; if they are sampled, all with stream 0.

    `room` is the number of positions left for each row, None = no limit; `prompts` are what the decoder reads first.
    """
    forced, settings = len(config.special.forced), config.settings
    most, least = max(1, settings.max_length_extra - forced), max(0, settings.min_length_extra - forced)
    longest = [most if free is None else min(most, free) for free in room]
    shortest = [min(least, length - 1) if config.can_end else 0 for length in longest]
    context = prompt_context(prompts) if settings.repetition_penalty != 1 or config.special.sequence_bias else None
    lengths = np.array(shortest, np.int64), np.array(longest, np.int64)
    streams = np.zeros(len(room), np.int64) if settings.sample else None
    return Limits(*lengths, np.zeros((len(room), 0), np.int64), streams, context=context)
