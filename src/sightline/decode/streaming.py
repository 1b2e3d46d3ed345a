"""A translation while it is being written: one text, greedy search, its text piece by piece; any search, looked at.

What has been handed over is never taken back, so the search is greedy: a beam may change its mind about everything
until it ends. Joined, the pieces are what `Translator.translate` gives with `beam_size=1`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sightline.contract import (
    Draft,
)
from sightline.decode.stepping import stream_tokens
from sightline.decode.translator import Translator, one_line, override
from sightline.errors import UserError

UNFINISHED = "\ufffd"  # what the bytes of a character decode to while some are missing


def stream_text(
    translator: Translator, text: str, prefix: str = "", draft: Draft | None = None, **overrides: Any
) -> Iterator[str]:
    """The translation of `text`, each piece of it as soon as it is certain; joined they are the whole.

    A character whose bytes are not all there waits, and so does a blank until something follows it. A text too long
    for the model is translated in parts, one after the other.

    Raises:
        UserError: the settings ask for another search than a greedy one, or make no sense.
    """
    config = override(translator.config, {"beam_size": 1, "n_best": 1, **overrides})
    if config.sample or config.beam_size > 1:
        raise UserError("a stream is written by greedy search: leave out beam_size and sample")
    model, special, shortlist = translator.form(config), translator.special, translator.offered(config)
    gap, forced = "", translator.encode_prefix(prefix)
    for source in translator.segment([text], config)[0]:
        if draft:
            from sightline.decode.speculative import speculate

            found = speculate(model, source, draft, config, special, forced, translator.max_len)
            tokens = (token for token, _ in found if token != special.eos_id)
        else:
            tokens = stream_tokens(model, source, config, special, forced, translator.max_len, shortlist)
        for piece in as_text(tokens, translator):
            yield gap + piece
            gap = ""
        gap, forced = " ", []


def as_text(tokens: Iterable[int], translator: Translator) -> Iterator[str]:
    """What each token adds to the text, where it adds anything; joined, one line as `Translator.join` has it."""
    return growing_text(tokens, lambda seen: one_line(translator.tokenizer.decode(seen)))


def growing_text(tokens: Iterable[int], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """What each token adds to the text that `decode` makes of all so far; joined, the text of all."""
    seen: list[int] = []
    text = said = ""
    for token in tokens:
        seen.append(token)
        text = decode(seen)
        certain = text.rstrip(UNFINISHED)
        if len(certain) > len(said):
            yield certain[len(said) :]
            said = certain
    if len(text) > len(said):
        yield text[len(said) :]
