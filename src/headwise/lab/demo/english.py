"""Sources of the demo corpus: the many ways to write a date or a time in English.

Every form is unambiguous. "2021/03/05" occurs, but not "3/5/2021" (March or May?). Twelve o'clock is "noon" or
"midnight", never "12 pm", and "midnight" has no date, because it could be either end of the day.
"""

from datetime import date, time
from random import Random

from headwise.lab.demo.moment import Moment

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS = ("twelve", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second", "twenty-third"),
    *("twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh", "twenty-eighth", "twenty-ninth"),
    *("thirtieth", "thirty-first"),
)
FIVES = {5: "five", 10: "ten", 15: "quarter", 20: "twenty", 25: "twenty-five", 30: "half"}

DAYS = (
    *("{month} {day}", "{day} {month}", "{mon} {day}", "{day} {mon}", "{month} {nth}"),
    *("{month} the {nth}", "the {nth} of {month}", "the {ordinal} of {month}"),
)
DATES = (
    *("{month} {day}, {year}", "{month} {day} {year}", "{day} {month} {year}", "{mon} {day}, {year}"),
    *("{mon} {day} {year}", "{day} {mon} {year}", "{month} {nth}, {year}", "{month} the {nth}, {year}"),
    *("the {nth} of {month}, {year}", "the {nth} of {month} {year}", "the {ordinal} of {month}, {year}"),
    *("{year}-{mm}-{dd}", "{year}/{mm}/{dd}"),
)
WEEKDAY_DATES = (
    *("{weekday}, {month} {day}, {year}", "{weekday} {day} {month} {year}"),
    *("{weekday}, {month} {nth}, {year}", "{weekday} the {nth} of {month}, {year}"),
    "{weekday}, the {nth} of {month} {year}",
    *("{wkd}, {mon} {day}, {year}", "{wkd} {mon} {day} {year}", "{wkd}, {day} {mon} {year}"),
)
BOTH = (
    *("{date} at {time}", "{date}, {time}", "on {date} at {time}"),
    *("{time} on {date}", "at {time} on {date}", "{time}, {date}"),
)
ISO_BOTH = ("{date:%Y-%m-%d} {time:%H:%M}", "{date:%Y-%m-%d}T{time:%H:%M}")


def write_english(moment: Moment, rng: Random) -> str:
    """One of the ways to write `moment`; one line in twenty is in lower case.

    >>> write_english(Moment(date(2021, 3, 5), time(15, 7)), Random(1))
    '2021/03/05 at 3:07 p.m.'
    """
    text = _write(moment, rng)
    return text.lower() if rng.random() < 0.05 else text


def _write(moment: Moment, rng: Random) -> str:
    if moment.day is None:
        assert moment.clock is not None
        return _write_time(moment.clock, True, rng)
    if moment.clock is None:
        return _write_date(moment, moment.day, rng)
    if moment.has_year and not moment.has_weekday and rng.random() < 0.1:
        return rng.choice(ISO_BOTH).format(date=moment.day, time=moment.clock)
    day, clock = _write_date(moment, moment.day, rng), _write_time(moment.clock, False, rng)
    return rng.choice(BOTH).format(date=day, time=clock)


def _write_date(moment: Moment, day: date, rng: Random) -> str:
    return rng.choice(_date_patterns(moment)).format_map(_date_words(day, rng))


def _date_patterns(moment: Moment) -> tuple[str, ...]:
    if not moment.has_year:
        return DAYS
    return WEEKDAY_DATES if moment.has_weekday else DATES


def _date_words(day: date, rng: Random) -> dict[str, str | int]:
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    return {
        "year": day.year,
        "month": month,
        "mon": _abbreviate(month, rng),
        "mm": f"{day.month:02}",
        "day": day.day,
        "dd": f"{day.day:02}",
        "nth": f"{day.day}{_ordinal_ending(day.day)}",
        "ordinal": ORDINALS[day.day - 1],
        "weekday": weekday,
        "wkd": weekday[:3],
    }


def _abbreviate(month: str, rng: Random) -> str:
    """Three letters, with or without a full stop; "May" is not an abbreviation and "Sept" has four."""
    short = rng.choice(("Sep", "Sept")) if month == "September" else month[:3]
    return short + rng.choice(("", ".")) if short != month else short


def _ordinal_ending(day: int) -> str:
    return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _write_time(clock: time, alone: bool, rng: Random) -> str:
    """Half of the times that can be in words are, because "quarter to nine" is harder to learn than "8:45"."""
    spoken = _spoken(clock)
    return rng.choice(spoken if spoken and rng.random() < 0.5 else time_forms(clock, alone))


def time_forms(clock: time, alone: bool) -> list[str]:
    """All unambiguous ways to write a time of day; `alone`: without a date.

    >>> time_forms(time(0, 0), alone=True)
    ['midnight', '00:00', '0000 hours']
    >>> "quarter to nine p.m." in time_forms(time(20, 45), alone=False)
    True
    """
    forms = [*_clock_24(clock), f"{clock:%H%M} hours"]
    if clock == time(12):
        return ["noon", "12 noon", *forms]
    if clock == time(0):
        return ["midnight", *forms] if alone else forms
    return [*_clock_12(clock), *_spoken(clock), *forms]


def _clock_24(clock: time) -> list[str]:
    """Only digits, if they cannot belong to a twelve-hour clock."""
    return [f"{clock:%H:%M}"] if clock.hour == 0 or clock.hour > 12 else []


def _clock_12(clock: time) -> list[str]:
    hour = clock.hour % 12 or 12
    am, dotted = ("am", "a.m.") if clock.hour < 12 else ("pm", "p.m.")
    digits = f"{hour}:{clock:%M}"
    forms = [f"{digits} {am}", f"{digits}{am}", f"{digits} {dotted}", f"{digits} {am.upper()}"]
    if clock.minute == 0:
        forms += [f"{hour} {am}", f"{hour}{am}", f"{hour} {dotted}"]
        forms += [f"{HOURS[hour % 12]} o'clock {_day_part(clock)}"]
    return forms


def _spoken(clock: time) -> list[str]:
    """Such as "half past three in the afternoon", "quarter to nine p.m."; only for full five minutes."""
    if clock.minute == 0 or clock.minute % 5:
        return []
    half_of_day = "a.m." if clock.hour < 12 else "p.m."
    if clock.minute <= 30:
        words = f"{FIVES[clock.minute]} past {HOURS[clock.hour % 12]}"
    else:
        words = f"{FIVES[60 - clock.minute]} to {HOURS[(clock.hour + 1) % 12]}"
    forms = [f"{words} {_day_part(clock)}"]
    # "quarter to twelve p.m." is ambiguous: the quarter is before noon, the twelve after it.
    crosses = clock.minute > 30 and clock.hour % 12 == 11
    return forms if crosses else [*forms, f"{words} {half_of_day}"]


def _day_part(clock: time) -> str:
    if clock.hour == 0 or clock.hour >= 22:
        return "at night"
    if clock.hour < 12:
        return "in the morning"
    return "in the afternoon" if clock.hour < 18 else "in the evening"
