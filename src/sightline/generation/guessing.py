"""A published model that checks guesses: its greedy output in fewer steps, one text at a time.

The checking is `decode.speculative`'s, the guesses are those of `decode.drafts`: from the source, or from a translation
memory. Not here: a smaller model as the one who guesses, which models that Sightline has trained may have.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from sightline.config.settings import SearchSettings
from sightline.contract import Draft, Hypothesis, OwnSearch
from sightline.decode.speculative import verify, verify_in
from sightline.errors import UserError
from sightline.generation.decoding import limits_of
from sightline.generation.drafts import draft_from
from sightline.generation.rewrite import begin_rewriting, beginning_of, options_of, pad_right, without_beginning
from sightline.generation.settings import GenerationSettings
from sightline.generation.sides import FamilySide, prefix_ids


def read_draft(origin: str, side: FamilySide, settings: GenerationSettings) -> Draft:
    """What guesses for translations into `side`: "input", or a translation memory as `sightline train` takes it."""
    return draft_from(origin, side.source.encode, lambda text: [*prefix_ids(side, settings, text)], _no_model)


def _no_model(path: str) -> NoReturn:
    raise UserError(f"--draft {path}: a model that guesses is for models that Sightline has trained; name a file")


def check_guessing(settings: GenerationSettings) -> None:
    """`UserError` for settings under which guesses cannot be checked without loss."""
    if settings.sample or settings.beam_size > 1 or settings.stop or len(settings.end_ids) > 1:
        raise UserError("a draft is for greedy search with one end mark: leave out sampling, stop and beam_size")


def rewrite_all_guessed(
    network: Any,
    sources: Sequence[list[int]],
    origin: str,
    side: FamilySide,
    settings: GenerationSettings,
    max_len: int | None,
    offered: object = None,
) -> list[Hypothesis]:
    """`rewrite_guessed` of each source, with the draft that `origin` names; none with a shortlist."""
    check_guessing(settings)
    if offered is not None:
        raise UserError("a draft and a shortlist do not go together: leave out one of them")
    draft = read_draft(origin, side, settings)
    return [rewrite_guessed(network, source, draft, settings, max_len) for source in sources]


def rewrite_guessed(
    network: Any, source: list[int], draft: Draft, settings: GenerationSettings, max_len: int | None
) -> Hypothesis:
    """The hypothesis of greedy search for one source, with all marks of its family."""
    beginning, guess, length = beginning_of(settings), draft.start(source[:-1]), SearchSettings().draft_length
    if isinstance(network, OwnSearch):
        search = begin_rewriting(network, source, settings, max_len)
        for _ in verify_in(search, guess, length, beginning[1:], len(beginning) - 1):
            pass
        return search.found()[0][0]
    device = next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    limits = limits_of([room], without_beginning(settings), device)
    options = replace(options_of(settings), bos_id=beginning[-1])
    with torch.inference_mode():
        src, mask = (x.to(device) for x in pad_right([source], settings.pad_id))
        cache = network.start_cache(network.encode(src, mask), mask)
        if beginning[1:]:
            network.decode(torch.tensor([beginning[:-1]], device=device), cache.memory, cache.src_mask, cache)
    found = list(verify(network, cache, limits, options, guess, length, read=len(beginning) - 1))
    log_probs = [log_prob for _, log_prob in found]
    counted = max(1, len(found) + options.begun)
    total = sum(log_probs)
    tokens = [token for token, _ in found if token != options.eos_id]
    return Hypothesis(tokens, total / counted**settings.length_penalty, total, log_probs)
