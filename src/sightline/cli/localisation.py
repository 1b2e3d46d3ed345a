"""Documents that `sightline translate` fills unit by unit: catalogues and memories."""

import argparse
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from sightline.cli.files import output
from sightline.cli.options import decode_overrides, load_models
from sightline.localisation import is_document

if TYPE_CHECKING:
    from sightline.localisation.fill import Filled


def fill_document(options: argparse.Namespace) -> None:
    """Translate what nobody has; the rest of the file stays as it is."""
    from sightline.localisation.fill import fill, targets_of
    from sightline.localisation.other_types import refuse_by_name
    from sightline.localisation.reading import read_document

    plain = not is_document(options.input)
    if plain:
        refuse_by_name(options.input)
    document = read_document(options.input, options.languages, ".txt" if plain else "")
    model: Any = load_models(options)
    language = options.source_language or options.languages[0]
    filled = fill(document, model, language, **decode_overrides(options, model.decode_config))
    data = document.filled(targets_of(filled))
    with output(options.output) as file:
        file.buffer.write(data)
    if options.report:
        with output(options.report) as file:
            ranked = sorted(filled, key=lambda one: (-len(one.doubts), one.log_prob))
            file.writelines(json.dumps(_row(one), ensure_ascii=False) + "\n" for one in ranked)
    print(summary(len(document.units), filled), file=sys.stderr)


def _row(one: "Filled") -> dict[str, Any]:
    from sightline.localisation.unit import plain

    return {
        "line": one.unit.line,
        "source": plain(one.unit.source),
        "translation": plain(one.target),
        "log_prob": round(one.log_prob, 4),
        "doubts": list(one.doubts),
    }


def summary(units: int, filled: "list[Filled]") -> str:
    """What was done, for whoever looks at it next."""
    done = sum(bool(one.target) for one in filled)
    doubts = Counter(doubt for one in filled for doubt in one.doubts)
    said = "".join(f"\n  {count:>6,}  {doubt}" for doubt, count in doubts.most_common())
    kept = units - len(filled)
    return f"{units:,} units: {done:,} translated, {len(filled) - done:,} left open, {kept:,} kept as they were{said}"
