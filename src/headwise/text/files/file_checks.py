"""Quick checks of input files before training: certain mistakes are errors, likely ones are warnings.

Only the start of each file is read. Errors that no file may contain are in `corpus.py`, and dropping single pairs is in
`tokenize_pairs.py`.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from headwise.errors import UserError
from headwise.text.files.corpus import (
    Corpus,
    json_object,
    pair_reader,
    parse_corpora,
    read_head,
    read_jsonl,
    read_lines,
    read_pairs,
    read_tsv,
)
from headwise.text.files.sources import HF_PREFIX, STANDARD_INPUT, STREAM_PREFIX, Pair, count_of, display_name
from headwise.text.language_codes import LANGUAGE_NAMES, LanguagePair, contradicts, document_language, file_language

PAIRS = 1000  # checked pairs of each corpus
HEAD = 1 << 16  # checked bytes of each file
MIN_PAIRS = 20  # fewest pairs for comparing the sides of a validation set
SWAP_RATIO = 1.3  # swapped sides must be so much more similar; on eight real corpora the right ones are 1.4 to 6 times
LEAK_SHARE = 0.1  # share of validation pairs that occur in training from which a warning is given
COPY_SHARE = 0.5  # share of pairs with the same text on both sides from which a warning is given

PREPARED = {  # marks that tools leave in a text
    re.compile(r"@@(?: |$)|\u2581"): "segmented into subwords",  # subword-nmt, SentencePiece
    re.compile(r"&(?:apos|quot|amp|#\d+);| @-@ "): "escaped",  # Moses' tokenizer, HTML
}
TOKENIZED = {re.compile(r"\w \.$"): "tokenized"}  # the mark that sacreBLEU looks for
PREPARED_SHARE = 0.1  # share of pairs with such a mark from which a warning is given
CSV_CELL = re.compile(r'"(?:[^"]|"")*+"')
MARKUP = re.compile(rb"\s*<(\?xml|!doctype|tmx|xliff|html|srcset|refset|tstset|mteval|dataset)[\s>]", re.IGNORECASE)
FORMATS = {  # that are not text, by their first bytes
    b"PK\x03\x04": "a zip archive or an Office document",
    b"%PDF-": "a PDF",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"PAR1\x15": "a Parquet table",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"7z\xbc\xaf": "a 7z archive",
}
TABLES = (".csv", ".json", ".yaml", ".yml")
CONTROLS = bytes({*range(32)} - set(b"\t\n\v\f\r\x1b\x1c\x1d\x1e\x1f"))
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # `corpus.decode_line` reports it

LANGUAGES = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}
COLUMN_NAMES = {*LANGUAGES, "pidgin", "source", "src", "target", "tgt", "trg", "sentence", "text", "translation"}
COLUMN_NAMES |= {"label", "input", "output", "original", "reference", "class", "category", "lang", "language"}
COLUMN_NAMES |= {"anchor", "positive", "negative", "query", "passage", "premise", "hypothesis"}
COLUMN_NAMES |= {f"{name}{number}" for name in ("sentence", "text") for number in (1, 2)}
SOURCE_FIELDS, TARGET_FIELDS = (  # of .jsonl files, without capitals, hyphens and underscores
    {f"{side}{name}" for side in sides for name in ("lang", "language", "langcode", "languagecode", "code")}
    | {f"lang{side}" for side in sides}
    for sides in (("source", "src"), ("target", "tgt", "trg"))
)
PAIR_FIELDS = {"lp", "languagepair", "langpair", "languages", "langs", "direction"}
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?|[A-Z]{2,3}")


def check_files(files: Mapping[str, Sequence[str]]) -> None:
    """Open every file that can be opened more than once; `files` are paths by option.

    Raises:
        UserError: a file is missing, unreadable, binary or XML; the message names the option.
    """
    for option, paths in files.items():
        for path in paths:
            if path == STANDARD_INPUT or path.startswith((HF_PREFIX, STREAM_PREFIX)) or Path(path).is_fifo():
                continue
            try:
                _check_text(path, read_head(path, HEAD))
            except UserError as error:
                raise UserError(f"{option} {error}") from None


def _check_text(path: str, head: bytes) -> None:
    """`UserError` if a file is not plain text, valid_pairs by its first bytes."""
    markup = MARKUP.match(head.removeprefix(b"\xef\xbb\xbf"))
    lines = [line for line in head.split(b"\n") if line.strip()]
    if markup and 2 * sum(line.lstrip().startswith(b"<") for line in lines) >= len(lines):
        kind, fix = "XML or HTML", "write its texts to a .tsv file, source TAB target"
        if b"<tmx" in head:
            kind, fix = "TMX, a translation memory in XML", "give it the ending .tmx"
        raise UserError(f"{display_name(path)}: is {kind}, not one sentence per line; {fix}")
    kinds = [kind for start, kind in FORMATS.items() if head.startswith(start)]
    if len(head) - len(head.translate(None, CONTROLS)) > len(head) / 20 and not head.startswith(UTF16):
        kinds.append("binary")
    if kinds:
        fix = "unpack or convert it to plain text, one sentence per line"
        raise UserError(f"{display_name(path)}: is {kinds[0]}, not text; {fix}")


def parse_pairs(option: str, paths: Sequence[str], languages: Sequence[str] = ("", "")) -> list[Corpus]:
    """`parse_corpora`; `UserError` for sides that are the same file, a table, or in another language by their names."""
    corpora = parse_corpora(paths)
    for source, *target in (corpus.paths for corpus in corpora):
        if table := next((path for path in (source, *target) if path.removesuffix(".gz").endswith(TABLES)), ""):
            fix = "write source TAB target on every line of a .tsv file"
            raise UserError(f"{option} {table}: is no text with one sentence per line, by its name; {fix}")
        if source.startswith(HF_PREFIX):
            target = [source]
        elif target and os.path.samefile(source, target[0]):
            raise UserError(f"{option} {source} {target[0]}: source and target are the same file; name the translation")
        if target:
            check_file_language(option, source, languages[0])
            check_file_language(option, target[0], languages[1], is_target=True)
    return corpora


def check_file_language(option: str, path: str, wanted: str, is_target: bool = False) -> None:
    """`UserError` if the name of a file of text ends with the code of another language."""
    named = file_language(path, is_target)
    if contradicts(named, wanted):
        side, fix = ("source", "target")[is_target], "choose files and languages that agree, or rename the file"
        what = f"is in '{named}' by its name, but the {side} language is '{wanted}'"
        raise UserError(f"{option} {display_name(path)}: {what}; {fix}")


def file_warnings(
    train: Sequence[Corpus],
    valid: Sequence[Corpus],
    languages: Sequence[str] = ("", ""),
    names: tuple[str, str] = ("--train", "--valid"),
) -> Iterator[str]:
    """Warnings about training and validation pairs, which start with their `names`.

    Raises:
        UserError: the first thousand pairs of a corpus cannot be read, or a header names other languages.
    """
    both: tuple[list[Pair], list[Pair]] = ([], [])
    for name, corpora, pairs in zip(names, (train, valid), both, strict=True):
        for corpus in corpora:
            first = list(islice(read_pairs([corpus]), PAIRS))
            pairs += first
            yield from declaration_warnings(name, corpus, first, languages)
            yield from (f"{name} {warning}" for warning in _corpus_warnings(corpus, first))
    if is_swapped(*both):
        sides = " ".join(" ".join(map(display_name, corpus.paths)) for corpus in valid)
        what = f"looks swapped: its sources resemble the targets of {names[0]}"
        yield f"{names[1]} {sides}: {what}; give the source file first"


def leakage_warnings(train: Sequence[Corpus], valid: Sequence[Corpus]) -> Iterator[str]:
    """A warning if validation pairs occur in the training pairs, among the first thousand of each corpus.

    `check-corpus` counts them exactly.
    """
    train_pairs, valid_pairs = (
        [pair for corpus in corpora for pair in islice(read_pairs([corpus]), PAIRS)] for corpora in (train, valid)
    )
    known = {*train_pairs}
    leaked = sum(pair in known for pair in valid_pairs)
    if leaked > LEAK_SHARE * len(valid_pairs):
        size = "500pairs" if len(train_pairs) >= PAIRS else "10%"
        yield (
            f"--valid has pairs of --train ({leaked:,} of the first {count_of(len(valid_pairs), 'pair')}), so "
            f"validation scores will be too high; hold out pairs instead, for example --valid {size}"
        )


def declaration_warnings(
    option: str, corpus: Corpus, pairs: Sequence[Pair], languages: Sequence[str] = ("", "")
) -> Iterator[str]:
    """A warning if the first pair is a header, or fields are not read; `UserError` if they name other languages."""
    if pair_reader(corpus) is read_jsonl:
        yield from _field_warnings(option, corpus.paths[0], languages)
    if not has_header(pairs):
        return
    for cell, wanted, side in zip(pairs[0], languages, ("source", "target"), strict=True):
        if contradicts(_named_language(cell), wanted):
            what = f"its {side} column is '{cell.strip()}', but the {side} language is '{wanted}'"
            raise UserError(f"{option} {corpus}: line 1: {what}; choose files and languages that agree")
    cells = " TAB ".join(pairs[0])
    yield f"{option} {corpus}: line 1 ({cells}) looks like a header and would be used as a pair; remove it"


def _field_warnings(option: str, path: str, languages: Sequence[str]) -> Iterator[str]:
    """A warning if a .jsonl file has fields that are not read; `UserError` if they name other languages."""
    others = dict[str, None]()
    for number, line in enumerate(islice(read_lines(path), PAIRS), start=1):
        for field, value in json_object(line, f"{display_name(path)}: line {number}", "").items():
            named = _languages_of_field(field, str(value))
            if field not in ("src", "tgt") and not any(named):
                others[field] = None
            for code, wanted, side in zip(named, languages, ("source", "target"), strict=True):
                if contradicts(code, wanted):
                    what = f"'{field}' is '{value}', but the {side} language is '{wanted}'"
                    fix = "choose files and languages that agree"
                    raise UserError(f"{option} {display_name(path)}: line {number}: {what}; {fix}")
    if others:
        yield f'{option} {display_name(path)}: only "src" and "tgt" are read, not {", ".join(map(repr, others))}'


def _languages_of_field(field: str, value: str) -> LanguagePair:
    """The codes of source and target that a field of a .jsonl file declares; "" = none.

    >>> _languages_of_field("src_lang", "deu_Latn"), _languages_of_field("targetLanguage", "pt-BR")
    (('deu_Latn', ''), ('', 'pt-BR'))
    >>> _languages_of_field("lp", "en-de_DE"), _languages_of_field("score", "0.5")
    (('en', 'de_DE'), ('', ''))
    """
    name = re.sub("[^a-z]", "", field.lower())
    if name in PAIR_FIELDS:
        source, _, target = value.partition("-")
        return _named_language(source), _named_language(target)
    code = _named_language(value)
    return code if name in SOURCE_FIELDS else "", code if name in TARGET_FIELDS else ""


def _named_language(cell: str) -> str:
    """The code of a language that a column is named by; "" if none.

    >>> _named_language("de_DE"), _named_language("German text"), _named_language("source")
    ('de_DE', 'de', '')
    """
    code = LANGUAGES.get(re.split(r"\W|_", cell.strip().lower())[0], cell.strip())
    return code if document_language(code) in LANGUAGE_NAMES else ""


def _corpus_warnings(corpus: Corpus, pairs: Sequence[Pair]) -> Iterator[str]:
    same = sum(src == tgt for src, tgt in pairs)
    if same > COPY_SHARE * len(pairs) and len(pairs) >= MIN_PAIRS:
        what = f"{same:,} of the first {len(pairs):,} pairs"
        yield f"{corpus}: {what} have the same text on both sides; is that intended?"
    for warning in prepared_texts(pairs, "pair", PREPARED):
        yield f"{corpus}: {warning}, and translations would be, too; plain text is better"
    if pair_reader(corpus) is read_tsv:
        yield from _extra_columns(corpus.paths[0])
        yield from _quotes(corpus, pairs)


def prepared_texts(rows: Sequence[Sequence[str]], noun: str, marks: Mapping[re.Pattern[str], str]) -> Iterator[str]:
    """A line for each of these `marks` that tools have left in more than a tenth of the first rows."""
    rows = rows[:PAIRS]
    for pattern, what in marks.items():
        marked = [text for row in rows for text in row if pattern.search(text)]
        count = sum(any(map(pattern.search, row)) for row in rows)
        if count > PREPARED_SHARE * len(rows) and len(rows) >= MIN_PAIRS:
            yield f"{count:,} of the first {count_of(len(rows), noun)} are {what} ({shortened(marked[0])})"


def _quotes(corpus: Corpus, pairs: Sequence[Pair]) -> Iterator[str]:
    """A warning if a .tsv file has quotes as a .csv file has them: around the cells, with doubled ones inside."""
    cells = [cell for pair in pairs for cell in pair if '"' in cell]
    in_quotes = [cell for cell in cells if CSV_CELL.fullmatch(cell)]
    doubled = [cell for cell in in_quotes if '""' in cell[1:-1]]
    if len(pairs) >= MIN_PAIRS and (len(in_quotes) > len(pairs) or 2 * len(doubled) > len(cells)):
        what = f"has quotes as .csv files have them ({shortened((doubled or in_quotes)[0])})"
        yield f"{corpus}: {what}, but .tsv is read without quoting; write the texts without them"


def _extra_columns(path: str) -> Iterator[str]:
    """A warning if a .tsv file has more than two columns."""
    rows = [line.split("\t", 2) for line in islice(read_lines(path), PAIRS)]
    further = [(number, row[2]) for number, row in enumerate(rows, start=1) if len(row) > 2]
    if further:
        number, text = further[0]
        what = f"{len(further):,} of the first {len(rows):,} lines have more than two columns"
        yield f"{display_name(path)}: {what}, but only two are read; line {number} loses '{shortened(text)}'"


def shortened(text: str, longest: int = 40) -> str:
    """Cut a text after `longest` characters.

    >>> shortened("a b c", 3)
    'a b...'
    """
    return text if len(text) <= longest else text[:longest] + "..."


def has_header(pairs: Sequence[Pair]) -> bool:
    """Whether the first pair is a header.

    >>> has_header([("en", "de"), ("A dog runs.", "Ein Hund rennt.")]), has_header([("source", "target")])
    (True, True)
    >>> has_header([("no", "non"), ("yes", "oui")]), has_header([("Go on.", "Weiter.")])
    (False, False)
    """
    if not pairs:
        return False
    first, others = [cell.strip() for cell in pairs[0]], pairs[1:4]
    if all(re.split(r"\W|_", cell.lower())[0] in COLUMN_NAMES and len(cell.split()) < 3 for cell in first):
        return True
    codes = first[0] != first[1] and all(LANGUAGE_CODE.fullmatch(cell) for cell in first)
    return codes and bool(others) and all(len(src.split()) > 1 for src, _ in others if src.strip())


def is_swapped(train: Sequence[Pair], valid: Sequence[Pair]) -> bool:
    """Whether source and target are clearly swapped in `valid`, compared with `train`.

    Sides are compared by character trigrams, which tell languages apart.
    """
    if min(len(train), len(valid)) < MIN_PAIRS:
        return False
    (src, tgt), (valid_src, valid_tgt) = (map(_trigrams, zip(*pairs, strict=True)) for pairs in (train, valid))
    straight = _cosine(src, valid_src) + _cosine(tgt, valid_tgt)
    return _cosine(src, valid_tgt) + _cosine(tgt, valid_src) > SWAP_RATIO * straight


def _trigrams(texts: Iterable[str]) -> Counter[str]:
    framed = (f" {text.lower()} " for text in texts)
    return Counter(text[i : i + 3] for text in framed for i in range(len(text) - 2))


def _cosine(left: Counter[str], right: Counter[str]) -> float:
    norms = math.prod(math.sqrt(sum(count**2 for count in side.values())) for side in (left, right))
    return sum(count * right[key] for key, count in left.items()) / norms if norms else 0.0
