"""Own and general batches in turns: evenly, at a stated ratio, and the same again after a state."""

from collections.abc import Mapping
from itertools import islice

import pytest

from sightline.data.mixing import MixedStream, other_state


class Counting:
    """A stream of numbers with a name."""

    def __init__(self, name: str, state: Mapping[str, int] | None = None) -> None:
        self.name, self.position, self.wait_seconds, self.closed = name, state["position"] if state else 0, 1.0, False

    def __next__(self) -> str:
        self.position += 1
        self.wait_seconds += 1.0
        return f"{self.name}{self.position}"

    def state(self) -> dict[str, int]:
        return {"epoch": 0, "position": self.position}

    def close(self) -> None:
        self.closed = True


def stream(share: float, state: Mapping[str, int] | None = None) -> MixedStream[str]:
    other = Counting("general", other_state(state) if state else None)
    return MixedStream(Counting("own", state), other, share, 7, state["mixed"] if state else 0)


def test_half_and_half() -> None:
    assert list(islice(stream(0.5), 5)) == ["own1", "general1", "own2", "general2", "own3"]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.9])
def test_the_ratio_holds_everywhere(share: float) -> None:
    given = list(islice(stream(share), 1000))
    for end in range(20, 1000, 7):
        general = sum(one.startswith("general") for one in given[:end])
        assert abs(general - share * end) <= 1


@pytest.mark.parametrize("at", [1, 2, 3, 17, 40])
def test_it_goes_on_exactly_from_a_state(at: int) -> None:
    whole = stream(0.3)
    given = list(islice(whole, at))
    rest = stream(0.3, whole.state())
    assert given + list(islice(rest, 20)) == list(islice(stream(0.3), at + 20))
    assert whole.state()["general"] == 7 and whole.wait_seconds == at
    rest.close()
    assert rest.own.closed and rest.other.closed
