"""TER of text in Thai, Lao, Burmese, Khmer or Tibetan: sacreBLEU cuts Chinese and Japanese into letters, not these."""

import re
from dataclasses import replace

from sightline.data.scripts import SOUTH_ASIAN
from sightline.evaluate.measure import Measure, References
from sightline.evaluate.spacing import TIBETAN

_WHOLE = re.compile(f"([{SOUTH_ASIAN}{TIBETAN}])")


def of_letters(measure: Measure, references: References) -> Measure:
    """TER for such references, with those letters put apart and a signature that says so; any other as it is."""
    lines = (line for part in references for line in ([part] if isinstance(part, str) else part))
    if measure.name != "TER" or not any(map(_WHOLE.search, lines)):
        return measure
    return replace(measure, prepare=apart, steps="letters:apart")


def apart(line: str) -> str:
    """A line with blanks around each of those letters.

    >>> apart("ก2ข 犬が").split()
    ['ก', '2', 'ข', '犬が']
    """
    return _WHOLE.sub(r" \1 ", line)
