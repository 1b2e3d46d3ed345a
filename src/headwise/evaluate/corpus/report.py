"""The report on all sets, as plain text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from headwise.config.data import PairData
from headwise.evaluate.corpus.characters import position, scripts, visible
from headwise.evaluate.corpus.count import SIDES, Counted, FoundRows, SideCounts, count_pairs
from headwise.evaluate.corpus.findings import Leak, Survey, find_leaks, survey, word_odds
from headwise.text.files.corpus import Corpus
from headwise.text.files.file_checks import file_warnings, shortened
from headwise.text.files.sources import Pair, count_of
from headwise.text.tokens.tokenizer import Tokenizer

TRAINING, VALIDATION = "training", "validation"


@dataclass(frozen=True)
class CorpusReport:
    """Statistics and findings of all sets."""

    surveys: list[Survey]  # training first
    leaks: list[Leak]
    warnings: list[str]  # about whole files
    notes: list[str]


def check_corpora(
    sets: Mapping[str, Sequence[Corpus]],
    config: PairData,
    notes: Sequence[str] = (),
    languages: Sequence[str] = ("", ""),
) -> CorpusReport:
    """Check a training set, which is the first one, and other sets by name.

    Raises:
        UserError: a file cannot be read, or a header names other `languages`.
    """
    counted = [count_pairs(name, corpora) for name, corpora in sets.items()]
    train, *held = counted
    found = [
        leak for place, own in enumerate(held) for other in counted[: place + 1] for leak in find_leaks(own, other)
    ]
    odds = word_odds(train.sample)
    tokenizer = Tokenizer.train((text for pair in train.sample for text in pair), config)
    surveys = [
        survey(
            one, odds, tokenizer if one is train else None, config, [leak for leak in found if leak.held == one.name]
        )
        for one in counted
    ]
    if len(train) > len(train.sample):
        trained = "tokens are counted by a tokenizer trained on a sample of the pairs; training uses all pairs"
        notes = [*notes, f"the number of pairs that training drops for their length is an estimate: {trained}"]
    return CorpusReport(surveys, found, list(_warnings(counted, languages)), list(notes))


def _warnings(counted: Sequence[Counted], languages: Sequence[str]) -> Iterator[str]:
    train, *held = counted
    sets = [(one.corpora, (train.name, one.name)) for one in held] or [([], (train.name, ""))]
    found = (file_warnings(train.corpora, corpora, languages, names) for corpora, names in sets)
    yield from dict.fromkeys(chain.from_iterable(found))  # those of the training set come with each of the others


# Text ----------------------------------------------------------------------------------------------------------------


def report_lines(report: CorpusReport) -> Iterator[str]:
    """The report, line by line."""
    for one in report.surveys:
        yield from _set_lines(one)
        yield ""
    if report.leaks:
        yield "leaks: texts that two sets have in common (ignoring case, punctuation and spaces)"
        yield from (line for leak in report.leaks for line in _leak_lines(leak, report))
        yield ""
    yield from report.warnings
    yield from report.notes


def _set_lines(one: Survey) -> Iterator[str]:
    counted = one.counted
    files = ", ".join(map(str, counted.corpora))
    kept = f", {one.kept:,} after what training drops" if one.kept < len(counted) else ""
    yield f"{counted.name}: {files}: {count_of(len(counted), 'pair')}{kept}"
    for name, side in zip(SIDES, counted.sides, strict=True):
        facts = (
            f"{what}: {value}" if what == "scripts" else f"{value} {what}"
            for what, value in side_facts(side, len(counted)).items()
        )
        yield f"  {name}: {', '.join(facts)}"
    if not one.findings:
        yield "  nothing looks wrong"
    for finding in one.findings:
        what = f"{finding.side}: " if finding.side else ""
        yield f"  {amount(finding.rows.count, len(counted))}  {what}{finding.title}"
        locations = _locations(finding.rows, one, finding.as_in)
        first = finding.rows.first[0]
        yield f"{'':18}{locations}: {excerpt(one.texts[first], finding.side, fault=finding.title)}"


def _leak_lines(leak: Leak, report: CorpusReport) -> Iterator[str]:
    one = next(survey for survey in report.surveys if survey.counted.name == leak.held)
    yield f"  {amount(leak.rows.count, len(one.counted))}  {leak.held}: {leak.what} also in {leak.other}"
    if leak.rows.count:
        side = "" if leak.what == "pair" else leak.what
        yield f"{'':18}{_locations(leak.rows, one, leak.as_in)}: {excerpt(one.texts[leak.rows.first[0]], side)}"


def _locations(rows: FoundRows, one: Survey, as_in: Mapping[int, str]) -> str:
    locations = [one.counted.location(row) + (f" (as {as_in[row]})" if row in as_in else "") for row in rows.first]
    more = f" and {rows.count - len(locations):,} more" if rows.count > len(locations) else ""
    return ", ".join(locations) + more


def amount(count: int, whole: int) -> str:
    """
    >>> amount(44, 29_000), amount(0, 1000)
    ('     44  0.15%', '      0     0%')
    """
    share = f"{100 * count / max(1, whole):.2f}%" if count else "0%"
    return f"{count:>7,} {share:>6}"


def excerpt(pair: Pair, side: str, longest: int = 60, fault: str = "") -> str:
    """One side of a pair, or both, shortened around a fault and with hidden characters as code points.

    >>> excerpt(("a b c d e f", "x"), "source", 5, "nothing")
    'a b c...'
    """
    texts = [pair[SIDES.index(side)]] if side else list(pair)
    return " | ".join(_around(text, position(text, fault), longest) for text in texts)


def _around(text: str, place: int, longest: int) -> str:
    start = max(0, place - longest // 2) if place >= longest else 0
    return "..." * (start > 0) + visible(shortened(text[start:], longest)) if text.strip() else "(blank)"


def side_facts(side: SideCounts, pairs: int) -> dict[str, str]:
    """The statistics of a side, by name."""
    written = list(script_shares(side).items())[:4]
    return {
        "characters per line": f"{side.characters.total() / max(1, pairs):.1f}",
        "words per line": f"{side.words / max(1, pairs):.1f}",
        "different characters": f"{len(side.characters):,}",
        "scripts": ", ".join(f"{name} {percent(share)}" for name, share in written) or "none",
    }


def script_shares(side: SideCounts) -> dict[str, float]:
    """The share of letters in each script."""
    found = scripts(side.characters)
    return {name: count / sum(found.values()) for name, count in found.items()}


def percent(share: float) -> str:
    """
    >>> percent(1.0), percent(0.703), percent(0.00002)
    ('100%', '70.3%', '<0.1%')
    """
    return f"{100 * share:.3g}%" if share >= 0.001 else "<0.1%"
