"""A text while it is being written, from tokens that arrive one by one."""

from collections.abc import Callable, Iterable, Iterator

UNFINISHED = "\ufffd"  # what the bytes of a character decode to while some are missing


def growing_text(tokens: Iterable[int], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """What each token adds to the text that `decode` makes of all so far; joined, the text of all.

    A character whose bytes are not all there waits.
    """
    seen: list[int] = []
    text = given = ""
    for token in tokens:
        seen.append(token)
        text = decode(seen)
        certain = text.rstrip(UNFINISHED)
        if len(certain) > len(given):
            yield certain[len(given) :]
            given = certain
    if len(text) > len(given):
        yield text[len(given) :]
