"""Targets of the demo corpus, formatted by CLDR, the Unicode locale data in Babel.

A date with its year takes CLDR's "long" form, with its weekday the "full" form,
without a year the skeleton `MMMMd`; a time takes the "short" form, in Japanese the twelve-hour skeleton `hm`;
CLDR's own "medium" joiner puts the two together. https://unicode.org/reports/tr35/tr35-dates.html
"""

from datetime import date, time
from functools import cache
from types import ModuleType

from headwise.demo.moment import Moment
from headwise.errors import UserError

LANGUAGES = ("de", "fr", "es", "ja")
TWELVE_HOUR = ("ja",)


def write_target(moment: Moment, language: str) -> str:
    """`moment` in `language` (one of `LANGUAGES`), with exactly the content of the moment.

    >>> moment = Moment(date(2021, 3, 5), time(15, 7))
    >>> [write_target(moment, language) for language in LANGUAGES]
    ['5. März 2021, 15:07', '5 mars 2021, 15:07', '5 de marzo de 2021, 15:07', '2021年3月5日 午後3:07']
    """
    day = _date_text(moment.day, moment.has_year, moment.has_weekday, language) if moment.day else ""
    clock = _time_text(moment.clock, language) if moment.clock else ""
    return _joiner(language).format(clock, day) if day and clock else day or clock


@cache
def _date_text(day: date, has_year: bool, has_weekday: bool, language: str) -> str:
    if not has_year:
        return _babel().format_skeleton("MMMMd", day, locale=_locale(language))
    return _babel().format_date(day, "full" if has_weekday else "long", locale=_locale(language))


@cache
def _time_text(clock: time, language: str) -> str:
    if language in TWELVE_HOUR:
        return _babel().format_skeleton("hm", clock, locale=_locale(language))
    return _babel().format_time(clock, "short", locale=_locale(language))


@cache
def _joiner(language: str) -> str:
    """CLDR's pattern for date and time, in which {0} is the time and {1} the date."""
    return str(_babel().get_datetime_format("medium", locale=_locale(language)))


@cache
def _locale(language: str):
    """A parsed locale; otherwise Babel parses the name at every call, which takes ten times as long."""
    from babel import Locale

    return Locale.parse(language)


def _babel() -> ModuleType:
    try:
        import babel.dates
    except ImportError:
        raise UserError('the demo needs Babel for its dates: pip install "headwise[demo]"') from None
    return babel.dates
