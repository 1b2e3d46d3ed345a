"""The content of a line of the demo corpus: a date, a time of day, or both.

A `Moment` is sampled here, `english.py` writes the source and `corpus.py` the target. A moment also has its part of
the corpus, so that the parts share no date.
"""

from dataclasses import dataclass
from datetime import date, time
from hashlib import blake2b
from random import Random
from typing import Literal

Part = Literal["train", "valid", "test"]

FIRST_DAY = date(1950, 1, 1)
LAST_DAY = date(2049, 12, 31)


@dataclass(frozen=True)
class Moment:
    """A date, a time of day or both; the flags decide whether year and weekday are included.

    A weekday needs the year that it follows from.
    """

    day: date | None = None
    clock: time | None = None
    has_year: bool = True
    has_weekday: bool = False

    def __post_init__(self) -> None:
        assert self.day or self.clock, "a moment says something"
        assert self.has_year or not self.has_weekday, "without its year a weekday has no date to belong to"

    @property
    def key(self) -> str:
        """The key that must not occur in another part: the date as far as it is included, or the time without a date.

        >>> day, clock = date(2021, 3, 5), time(15, 7)
        >>> Moment(day, clock).key, Moment(day, has_year=False).key, Moment(clock=clock).key
        ('2021-03-05', '03-05', '15:07')
        """
        if self.day is None:
            return f"{self.clock:%H:%M}"
        return self.day.isoformat() if self.has_year else f"{self.day:%m-%d}"

    @property
    def part(self) -> Part:
        """The part of the corpus by a hash of the key: 90 % train, 5 % valid, 5 % test, for every seed."""
        bucket = int.from_bytes(blake2b(self.key.encode(), digest_size=8).digest(), "big") % 100
        if bucket < 90:
            return "train"
        return "valid" if bucket < 95 else "test"


def random_moment(rng: Random) -> Moment:
    """A random moment: 5 % a time alone, 35 % a date with a time, 60 % a date alone."""
    kind = rng.random()
    if kind < 0.05:
        return Moment(clock=_random_time(rng))
    has_year = rng.random() < 0.8
    return Moment(
        day=_random_date(rng),
        clock=_random_time(rng) if kind < 0.40 else None,
        has_year=has_year,
        has_weekday=has_year and rng.random() < 0.25,
    )


def _random_date(rng: Random) -> date:
    return date.fromordinal(rng.randint(FIRST_DAY.toordinal(), LAST_DAY.toordinal()))


def _random_time(rng: Random) -> time:
    """Half of the times are multiples of five minutes, as those in words are ("quarter to nine")."""
    minute = rng.randrange(0, 60, 5) if rng.random() < 0.5 else rng.randrange(60)
    return time(rng.randrange(24), minute)
