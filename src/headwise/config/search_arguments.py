"""The keyword arguments of one search, for editors and type checkers."""

from collections.abc import Sequence
from typing import Literal, TypedDict


class SearchArguments(TypedDict, total=False):
    """Fields of `headwise.config.settings.SearchSettings`, which explains and checks them, and lengths in tokens."""

    beam_size: int
    length_penalty: float
    early_stopping: bool | Literal["exact", "no", "yes", "never"]
    max_length_factor: float
    max_length_extra: int
    max_new_tokens: int
    min_length_factor: float
    min_length_extra: int
    min_new_tokens: int
    no_repeat_ngram: int
    repetition_penalty: float
    n_best: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    stop: str | Sequence[str]
    batch_size: int
    batch_tokens: int
    max_source_length: int
    shortlist: bool
    draft_length: int
    compute: Literal["auto", "float32", "int8", "bfloat16", "float16", "int4"]
