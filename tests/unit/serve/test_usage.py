"""Usage by client: limits per hour, totals of keys, and bounded memory."""

import pytest

from headwise.serve import usage
from headwise.serve.parameters import RequestError, RequestLimits
from headwise.serve.usage import UsageCounter


def seconds_until_retry(counter: UsageCounter, client: str, characters: int) -> int:
    with pytest.raises(RequestError, match="per hour; try again") as refused:
        counter.start(client, characters)
    assert refused.value.status == 429
    return int(refused.value.headers["retry-after"])


def test_limits_per_hour() -> None:
    counter = UsageCounter(RequestLimits(requests_per_hour=3, characters_per_hour=100), ["ada", "bob"])
    counter.start("ada", 60)
    assert 3590 < seconds_until_retry(counter, "ada", 41) <= 3600
    counter.start("ada", 40)
    seconds_until_retry(counter, "ada", 0)  # a file, whose characters are not known yet
    counter.start("bob", 1)
    counter.start("bob", 0)
    counter.start("bob", 0)
    seconds_until_retry(counter, "bob", 0)
    with pytest.raises(RequestError, match=r"\(101\).*text.*\(100\)"):
        counter.start("eve", 101)
    assert (counter.totals["ada"].requests, counter.totals["ada"].characters) == (2, 100)


def test_an_hour_ends() -> None:
    counter = UsageCounter(RequestLimits(requests_per_hour=1), ["ada"])
    counter.start("ada", 5)
    counter.hours["ada"].began -= 1800
    assert 1790 < seconds_until_retry(counter, "ada", 0) <= 1800
    counter.hours["ada"].began -= 1801
    counter.start("ada", 5)
    assert (counter.totals["ada"].characters, counter.hours["ada"].characters) == (10, 5)


def test_characters_of_a_file_belong_to_the_client_of_the_request() -> None:
    counted: list[tuple[str, int, int]] = []
    counter = UsageCounter(RequestLimits(), ["ada"], lambda *usage: counted.append(usage))
    counter.start("bob", 1)
    counter.start("ada", 0)
    counter.expect(70)
    counter.add(60)
    counter.add(10)
    assert counted == [("ada", 1, 0), ("ada", 0, 60), ("ada", 0, 10)]
    report = counter.report("ada")
    assert (report["requests"], report["characters"], report["hour"]["characters"]) == (1, 70, 70)
    assert report["hour"]["max_requests"] is None


def test_memory_for_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_CLIENTS", 10)
    counter = UsageCounter(RequestLimits(requests_per_hour=1), [])
    for number in range(100):
        counter.start(f"192.0.2.{number}", 1)
    assert len(counter.hours) == 10 and not counter.totals
    seconds_until_retry(counter, "192.0.2.99", 0)
