"""Text streaming: text from tokens that arrive one by one, and stop strings."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headwise.contract import Stop

UNFINISHED = "\ufffd"  # what an incomplete UTF-8 sequence decodes to
CONTEXT = 4  # extra tokens to decode before a possible stop string, since decoding depends on neighbours


def growing_text(tokens: Iterable[int], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """The text that each new token adds; joined, the decoded text of all tokens. Incomplete characters wait."""
    seen: list[int] = []
    text = emitted = ""
    for token in tokens:
        seen.append(token)
        text = decode(seen)
        complete = text.rstrip(UNFINISHED)
        if len(complete) > len(emitted):
            yield complete[len(emitted) :]
            emitted = complete
    if len(text) > len(emitted):
        yield text[len(emitted) :]


# --- Stop strings ---


def stop_at(stops: Sequence[str], decode: Callable[[list[int]], str]) -> Stop | None:
    """A function that tells which outputs contain one of `stops`; None if there are none."""
    if not stops:
        return None
    longest = CONTEXT + max(len(text.encode()) for text in stops)  # a token is at least one byte

    def stop(outputs: Sequence[Sequence[int]]) -> list[bool]:
        ends = [decode(list(tokens[-longest:])) for tokens in outputs]
        return [any(text in end for text in stops) for end in ends]

    return stop


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of `stops`.

    >>> before_stop("yes. Q: no", ["Q:", "\\n"])
    'yes. '
    """
    found = [index for index in (text.find(stop) for stop in stops) if index >= 0]
    return text[: min(found)] if found else text


def until_stop(chunks: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The chunks of a text up to the first of `stops`; text that may be the start of one is held back.

    >>> list(until_stop(["a", "b\\n", "c", "\\n\\n", "d"], ["\\n\\n"]))
    ['a', 'b', '\\nc']
    """
    waiting = ""
    for chunk in chunks:
        waiting += chunk
        before = before_stop(waiting, stops)
        if before != waiting:
            yield from [before] if before else []
            return
        held = max((_overlap(waiting, stop) for stop in stops), default=0)
        ready, waiting = waiting[: len(waiting) - held], waiting[len(waiting) - held :]
        yield from [ready] if ready else []
    yield from [waiting] if waiting else []


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could start `stop`."""
    return next(n for n in range(min(len(text), len(stop)), -1, -1) if text.endswith(stop[:n]))
