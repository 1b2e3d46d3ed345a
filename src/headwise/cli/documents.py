"""Documents that `headwise translate` fills unit by unit: catalogues, translation memories, other formats."""

import argparse
import json
import sys
from collections import Counter
from typing import Any

from headwise.cli.decoding import decode_overrides
from headwise.cli.files import output
from headwise.cli.loading import model_or_ensemble
from headwise.localisation import is_document
from headwise.localisation.fill import TranslatedUnit, targets_of, translate_units
from headwise.localisation.not_translated import not_translated, not_translated_summary
from headwise.localisation.reading import read_document
from headwise.localisation.unit import Skipped, plain
from headwise.localisation.unsupported_types import check_file_name


def fill_document(options: argparse.Namespace) -> None:
    """Translate the untranslated units; the rest of the file stays as it is."""
    is_plain = not is_document(options.input)
    if is_plain:
        check_file_name(options.input)
    document = read_document(options.input, options.languages, ".txt" if is_plain else "")
    model = model_or_ensemble(options)
    language = options.source_language or options.languages[0]
    filled = translate_units(document, model, language, **decode_overrides(options, model.decode_config))
    data, skipped = document.filled(targets_of(filled)), not_translated(document)
    with output(options.output) as file:
        file.buffer.write(data)
    if options.report:
        with output(options.report) as file:
            ranked = sorted(filled, key=lambda one: (-len(one.warnings), one.log_prob))
            rows = [*map(_row, ranked), *map(_skipped_row, skipped)]
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for line in (fill_summary(len(document.units), filled), not_translated_summary(skipped)):
        print(line, end="\n" * bool(line), file=sys.stderr)


def _row(one: TranslatedUnit) -> dict[str, Any]:
    return {
        "line": one.unit.line,
        "source": plain(one.unit.source),
        "translation": plain(one.target),
        "log_prob": round(one.log_prob, 4),
        "warnings": list(one.warnings),
    }


def _skipped_row(one: Skipped) -> dict[str, Any]:
    return {"line": one.line, "source": one.text, "not_translated": one.kind}


def fill_summary(units: int, filled: list[TranslatedUnit]) -> str:
    """What was translated, with the quality flags for a reviewer."""
    done = sum(bool(one.target) for one in filled)
    warnings = Counter(warning for one in filled for warning in one.warnings)
    lines = "".join(f"\n  {count:>6,}  {warning}" for warning, count in warnings.most_common())
    kept = units - len(filled)
    return f"{units:,} units: {done:,} translated, {len(filled) - done:,} left open, {kept:,} kept as they were{lines}"
