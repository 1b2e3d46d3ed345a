"""How many pairs `--valid 1%` or `--valid 500pairs` asks for; `split.py` takes them out of the training files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.errors import UserError

SHARE, COUNT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)%"), re.compile(r"(\d+)pairs?")


@dataclass(frozen=True)
class Amount:
    """How many pairs are wanted."""

    text: str  # as it was written
    share: float = 0.0  # of all pairs
    pairs: int = 0

    def of(self, read: int) -> int:
        """The number of pairs, one at least, of so many that are there."""
        wanted = self.pairs or max(1, round(self.share * read))
        if wanted >= read:
            raise UserError(f"--valid {self.text}: the training files hold {read:,} pairs; leave some to train on")
        return wanted


def parse_amount(arguments: Sequence[str]) -> Amount | None:
    """What `--valid` asks for where it is no list of files, which one word such as these can never be.

    >>> parse_amount(["1%"]), parse_amount(["500pairs"])
    (Amount(text='1%', share=0.01, pairs=0), Amount(text='500pairs', share=0.0, pairs=500))
    >>> parse_amount(["valid.en", "valid.de"]), parse_amount(["valid.tsv"])
    (None, None)
    """
    if len(arguments) != 1:
        return None
    text = arguments[0]
    share, count = SHARE.fullmatch(text), COUNT.fullmatch(text)
    if share and 0 < float(share[1]) < 100:
        return Amount(text, share=float(share[1]) / 100)
    if count and int(count[1]):
        return Amount(text, pairs=int(count[1]))
    if share or count or text.isdecimal():
        raise UserError(
            f"--valid {text}: takes no such part of the training files; write 1% for a share, 500pairs for a number"
        )
    return None
