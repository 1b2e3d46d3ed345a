"""The embedded demo corpus: English dates and times into German, French, Spanish and Japanese.

Pairs are generated, so no data is shipped or downloaded, and written to text files, as for any other training. The
first token of a source, such as `<2de>`, chooses the language, as in Johnson et al. 2017 (arXiv:1611.04558). Training,
validation and test sets share no date: see `Moment.part`.

Targets are formatted by CLDR, the Unicode locale data in Babel. A date with its year takes CLDR's "long" form, with its
weekday the "full" form, without a year the skeleton `MMMMd`; a time takes the "short" form, in Japanese the twelve-hour
skeleton `hm`; CLDR's own "medium" joiner combines the two. https://unicode.org/reports/tr35/tr35-dates.html
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, time
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType

from headwise.errors import UserError, writing
from headwise.lab.demo.english import write_english
from headwise.lab.demo.moment import Moment, Part, random_moment
from headwise.text.files.sources import Pair

LANGUAGES = ("de", "fr", "es", "ja")
TWELVE_HOUR = ("ja",)
SPECIAL_TOKENS = tuple(f"<2{language}>" for language in LANGUAGES)


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


@dataclass(frozen=True)
class DemoCorpus:
    """Three lists of (source, target) that share no date; within a list no source occurs twice."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def generate_corpus(seed: int = 1, n_train: int = 30_000, n_valid: int = 500, n_test: int = 1_000) -> DemoCorpus:
    """The corpus for a seed; the same arguments give the same corpus.

    The parts are sampled independently, so the number of training pairs does not affect the test set.

    >>> generate_corpus(n_train=0, n_valid=0, n_test=1).test
    [('<2ja> Jan 12 1954', '1954年1月12日')]
    """
    return DemoCorpus(
        train=_generate_part("train", n_train, seed),
        valid=_generate_part("valid", n_valid, seed),
        test=_generate_part("test", n_test, seed),
    )


def _generate_part(part: Part, n_pairs: int, seed: int) -> list[Pair]:
    rng = Random(f"{part} {seed}")
    pairs: dict[str, str] = {}
    while len(pairs) < n_pairs:
        moment = random_moment(rng)
        if moment.part == part:
            language = rng.choice(LANGUAGES)
            pairs[f"<2{language}> {write_english(moment, rng)}"] = write_target(moment, language)
    return list(pairs.items())


def write_demo_corpus(corpus: DemoCorpus, folder: Path) -> dict[str, tuple[Path, Path]]:
    """Write `train.src`, `train.tgt`, `valid.src` ... into `folder`, a pair per line; the paths by part."""
    parts = {field.name: getattr(corpus, field.name) for field in fields(corpus)}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return {name: _write_part(pairs, folder / name) for name, pairs in parts.items()}


def _write_part(pairs: list[Pair], stem: Path) -> tuple[Path, Path]:
    src, tgt = stem.with_suffix(".src"), stem.with_suffix(".tgt")
    _write_lines(src, (source for source, _ in pairs))
    _write_lines(tgt, (target for _, target in pairs))
    return src, tgt


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
