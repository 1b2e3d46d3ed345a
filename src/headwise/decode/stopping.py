"""Stop strings: an output ends before the first of them, also while it is being written."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from headwise.contract import Stop

CONTEXT = 4  # tokens before a stop string could begin: what they decode to may depend on their neighbours


def stop_at(stops: Sequence[str], decode: Callable[[list[int]], str]) -> Stop | None:
    """Which outputs end with one of `stops`; None where there are none."""
    if not stops:
        return None
    longest = CONTEXT + max(len(text.encode()) for text in stops)  # a token is at least a byte of it

    def stop(outputs: Sequence[Sequence[int]]) -> list[bool]:
        ends = [decode(list(tokens[-longest:])) for tokens in outputs]
        return [any(text in end for text in stops) for end in ends]

    return stop


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first of `stops`.

    >>> before_stop("yes. Q: no", ["Q:", "\\n"])
    'yes. '
    """
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    return text[: min(places)] if places else text


def until_stop(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The pieces of a text up to the first of `stops`; what may become one waits until that is certain.

    >>> list(until_stop(["a", "b\\n", "c", "\\n\\n", "d"], ["\\n\\n"]))
    ['a', 'b', '\\nc']
    """
    waiting = ""
    for piece in pieces:
        waiting += piece
        certain = before_stop(waiting, stops)
        if certain != waiting:
            yield from [certain] if certain else []
            return
        held = max((_overlap(waiting, stop) for stop in stops), default=0)
        ready, waiting = waiting[: len(waiting) - held], waiting[len(waiting) - held :]
        yield from [ready] if ready else []
    yield from [waiting] if waiting else []


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could be the beginning of `stop`."""
    return next(n for n in range(min(len(text), len(stop)), -1, -1) if text.endswith(stop[:n]))
