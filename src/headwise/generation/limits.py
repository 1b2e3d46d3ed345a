"""The length limits of outputs that follow a prompt, without torch."""

from collections.abc import Sequence

import numpy as np

from headwise.checkpoint.generation_config import GenerationConfig
from headwise.decode.request import Bounds


def output_bounds(room: Sequence[int | None], config: GenerationConfig) -> Bounds:
    """The length limits of outputs, without their forced start tokens.

    `room` is the number of positions left for each row, None = no limit.
    """
    forced, settings = len(config.special.forced), config.settings
    most, least = max(1, settings.max_length_extra - forced), max(0, settings.min_length_extra - forced)
    longest = [most if free is None else min(most, free) for free in room]
    shortest = [min(least, length - 1) if config.can_end else 0 for length in longest]
    return Bounds(np.array(shortest, np.int64), np.array(longest, np.int64), np.zeros((len(room), 0), np.int64))
