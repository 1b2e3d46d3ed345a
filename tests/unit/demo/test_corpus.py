"""The demo corpus: right by hand, right by Babel, says nothing of its own, and its parts share no date."""

import re
from collections import Counter
from datetime import date, time
from pathlib import Path
from random import Random

import pytest

from headwise.lab.demo.corpus import (
    LANGUAGES,
    SPECIAL_TOKENS,
    DemoCorpus,
    generate_corpus,
    write_demo_corpus,
    write_target,
)
from headwise.lab.demo.english import MONTHS, ORDINALS, time_forms, write_english
from headwise.lab.demo.moment import Moment, random_moment

babel_dates = pytest.importorskip("babel.dates")


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return generate_corpus(seed=3, n_train=4000, n_valid=300, n_test=300)


def every_pair(corpus: DemoCorpus) -> list[tuple[str, str]]:
    return corpus.train + corpus.valid + corpus.test


# --- targets

MARCH_5 = date(2021, 3, 5)


@pytest.mark.parametrize(
    ("moment", "targets"),
    [
        (Moment(MARCH_5), ("5. März 2021", "5 mars 2021", "5 de marzo de 2021", "2021年3月5日")),
        (Moment(MARCH_5, has_year=False), ("5. März", "5 mars", "5 de marzo", "3月5日")),
        (
            Moment(MARCH_5, has_weekday=True),
            (
                "Freitag, 5. März 2021",
                "vendredi 5 mars 2021",
                "viernes, 5 de marzo de 2021",
                "2021年3月5日金曜日",
            ),
        ),
        (
            Moment(MARCH_5, time(15, 7)),
            (
                "5. März 2021, 15:07",
                "5 mars 2021, 15:07",
                "5 de marzo de 2021, 15:07",
                "2021年3月5日 午後3:07",
            ),
        ),
        (Moment(clock=time(0, 30)), ("00:30", "00:30", "0:30", "午前0:30")),
        (Moment(clock=time(12, 0)), ("12:00", "12:00", "12:00", "午後0:00")),
    ],
)
def test_targets_checked_by_hand(moment: Moment, targets: tuple[str, ...]) -> None:
    assert tuple(write_target(moment, language) for language in LANGUAGES) == targets


@pytest.mark.parametrize("language", LANGUAGES)
def test_dates_are_babels(language: str) -> None:
    rng = Random(5)
    for _ in range(50):
        day = date(rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28))
        assert write_target(Moment(day), language) == babel_dates.format_date(day, "long", language)
        full = babel_dates.format_date(day, "full", language)
        assert write_target(Moment(day, has_weekday=True), language) == full


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_times_are_babels(language: str) -> None:
    for minute in range(0, 24 * 60, 7):
        clock = time(minute // 60, minute % 60)
        assert write_target(Moment(clock=clock), language) == babel_dates.format_time(clock, "short", locale=language)


# --- sources


@pytest.mark.parametrize(
    ("clock", "form"),
    [
        (time(15, 7), "3:07 p.m."),
        (time(15, 7), "15:07"),
        (time(9, 7), "0907 hours"),
        (time(15, 0), "three o'clock in the afternoon"),
        (time(15, 30), "half past three in the afternoon"),
        (time(20, 45), "quarter to nine p.m."),
        (time(11, 45), "quarter to twelve in the morning"),
        (time(12, 45), "quarter to one p.m."),
        (time(0, 10), "ten past twelve at night"),
        (time(0, 10), "12:10 am"),
        (time(23, 35), "twenty-five to twelve at night"),
    ],
)
def test_time_is_written_so(clock: time, form: str) -> None:
    assert form in time_forms(clock, alone=False)


def test_a_time_of_day_has_one_meaning() -> None:
    """No form is shared by two of the 1440 minutes of a day, nor by one of them written in two ways."""
    clocks = [time(hour, minute) for hour in range(24) for minute in range(60)]
    counts = Counter(form.lower() for clock in clocks for form in set(map(str.lower, time_forms(clock, True))))
    assert [form for form, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    "form", ["12 pm", "12:00 am", "quarter to twelve p.m.", "quarter to twelve a.m.", "3:07", "10:07"]
)
def test_forms_that_can_be_read_in_two_ways_do_not_occur(form: str) -> None:
    clocks = (time(hour, minute) for hour in range(24) for minute in range(60))
    assert all(form not in time_forms(clock, alone=True) for clock in clocks)


def test_half_of_the_times_that_can_be_spoken_are() -> None:
    written = [write_english(Moment(clock=time(20, 45)), Random(seed)).lower() for seed in range(400)]
    assert 200 < sum("quarter to nine" in source for source in written) < 320
    assert {"quarter to nine in the evening", "8:45 pm", "20:45", "2045 hours"} < set(written)


def test_midnight_never_stands_beside_a_date() -> None:
    assert "midnight" in time_forms(time(0), alone=True)
    assert "midnight" not in time_forms(time(0), alone=False)


def test_a_month_in_digits_stands_only_behind_its_year() -> None:
    sources = {write_english(Moment(date(2021, 3, 25)), Random(seed)) for seed in range(300)}
    assert {source for source in sources if "3" in source} == {"2021-03-25", "2021/03/25"}


def test_ordinals() -> None:
    def sources(day: int) -> set[str]:
        return {write_english(Moment(date(2021, 1, day), has_year=False), Random(seed)) for seed in range(200)}

    expected = {
        1: "1st",
        2: "2nd",
        3: "3rd",
        4: "4th",
        11: "11th",
        12: "12th",
        13: "13th",
        21: "21st",
        22: "22nd",
    }
    for day, nth in expected.items():
        assert {f"January {nth}", f"the {ORDINALS[day - 1]} of January"} <= sources(day)


# --- the two together


def test_year_is_in_the_target_exactly_if_it_is_in_the_source(corpus: DemoCorpus) -> None:
    for src, tgt in every_pair(corpus):
        said = re.findall(r"\d{4}", re.sub(r"\d{4} hours", "", src))
        assert re.findall(r"\d{4}", tgt) == said, (src, tgt)


def test_weekday_is_in_the_target_exactly_if_it_is_in_the_source(corpus: DemoCorpus) -> None:
    stated = re.compile(r"\b(mon|tue|wed|thu|fri|sat|sun)(day|sday|nesday|rsday|urday)?\b", re.IGNORECASE)
    restated = re.compile(r"tag|woch|dredi|di\b|dimanche|lunes|martes|coles|jueves|viernes|bado|domingo|曜日")
    n_stated = 0
    for src, tgt in every_pair(corpus):
        assert bool(stated.search(src)) == bool(restated.search(tgt)), (src, tgt)
        n_stated += bool(stated.search(src))
    assert n_stated > 100


def test_month_is_in_the_target_exactly_if_it_is_in_the_source(corpus: DemoCorpus) -> None:
    names = "|".join(month[:3] for month in MONTHS)
    stated = re.compile(rf"\b({names})|\d[-/]\d", re.IGNORECASE)
    for src, tgt in every_pair(corpus):
        has_date = not re.fullmatch(r"\d?\d:\d\d|午[前後]\d+:\d\d", tgt)
        assert bool(stated.search(src)) == has_date, (src, tgt)


def test_time_is_in_the_target_exactly_if_it_is_in_the_source(corpus: DemoCorpus) -> None:
    stated = re.compile(r"\d:\d\d|\d ?[ap]\.?m\b|past|to |o'clock|noon|midnight|hours", re.IGNORECASE)
    for src, tgt in every_pair(corpus):
        assert bool(stated.search(src)) == (":" in tgt), (src, tgt)
        assert tgt.count(":") <= 1  # and never seconds


# --- the corpus


def test_parts_share_no_date_and_no_source(corpus: DemoCorpus) -> None:
    def dates(pairs: list[tuple[str, str]]) -> set[str]:
        """All Japanese targets, brought down to the date, or to the time where there is none."""
        return {re.sub(r"(日)(.曜日)?( .*)?$", r"\1", tgt) for src, tgt in pairs if src.startswith("<2ja>")}

    parts = [corpus.train, corpus.valid, corpus.test]
    for n, one in enumerate(parts):
        assert len(dates(one)) > 30
        for other in parts[:n]:
            assert not dates(one) & dates(other)
            assert not {src for src, _ in one} & {src for src, _ in other}


def test_moments_of_one_date_are_in_one_part_whatever_is_said_with_it() -> None:
    rng = Random(2)
    parts = set()
    for _ in range(200):
        day = random_moment(rng).day or MARCH_5
        said = {Moment(day).part, Moment(day, time(15, 7)).part, Moment(day, has_weekday=True).part}
        assert len(said) == 1
        parts |= said
    assert parts == {"train", "valid", "test"}


def test_generation_is_deterministic_and_the_parts_independent() -> None:
    one = generate_corpus(seed=7, n_train=50, n_valid=5, n_test=5)
    assert one == generate_corpus(seed=7, n_train=50, n_valid=5, n_test=5)
    assert one.train != generate_corpus(seed=8, n_train=50, n_valid=0, n_test=0).train
    assert one.test == generate_corpus(seed=7, n_train=0, n_valid=0, n_test=5).test


def test_sizes_and_languages(corpus: DemoCorpus) -> None:
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [4000, 300, 300]
    counts = Counter(src.split(" ", 1)[0] for src, _ in corpus.train)
    assert set(counts) == set(SPECIAL_TOKENS)
    assert min(counts.values()) > 800


def test_files_hold_the_pairs_line_by_line(corpus: DemoCorpus, tmp_path: Path) -> None:
    paths = write_demo_corpus(corpus, tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        f"{part}.{side}" for part in ("train", "valid", "test") for side in ("src", "tgt")
    )
    for part, (src, tgt) in paths.items():
        sides = (path.read_bytes().decode("utf-8").removesuffix("\n").split("\n") for path in (src, tgt))
        assert list(zip(*sides, strict=True)) == getattr(corpus, part)
