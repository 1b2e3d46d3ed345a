"""Answers to what the page asks, from the models it shows. Not here: HTTP.

A model does one thing at a time. Of the requests of one page that wait for it only the newest is answered, for its
reader has typed on since; and no more than a few wait at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

from sightline.errors import UserError
from sightline.inspect.example import example_source
from sightline.inspect.explorer.requests import Ask
from sightline.inspect.heads import all_heads
from sightline.inspect.page.contents import page_contents, walk_contents

MOST_WAITING = 8


class Superseded(Exception):
    """A newer request of the same page is waiting, or too many are."""


class Turns:
    """One at a time, the newest of each page."""

    def __init__(self) -> None:
        self._busy, self._counting = Lock(), Lock()
        self._newest: dict[str, int] = {}
        self._count = self.waiting = 0

    @contextmanager
    def turn(self, page: str) -> Iterator[None]:
        """Wait for the model, and have it inside; `Superseded` where waiting has become pointless."""
        with self._counting:
            if self.waiting >= MOST_WAITING:
                raise Superseded(f"{MOST_WAITING} requests are waiting for this model")
            self._count, self.waiting = self._count + 1, self.waiting + 1
            mine = self._newest[page] = self._count
        with self._busy:
            with self._counting:
                self.waiting -= 1
                newest = self._newest[page]
                if self.waiting == 0:
                    self._newest.clear()  # nobody is left to compare with
            if newest != mine:
                raise Superseded("a newer request of the same page has come")
            yield


class ShownModel:
    """A model on the page, under a name."""

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model, self.turns = name, model, Turns()

    def described(self) -> dict[str, Any]:
        """What the page must know before it asks: the heads of each layer of each part, none where it has no heads; and
        a text to begin with, where there is one.
        """
        heads: dict[str, list[int]] = {"encoder": [], "decoder": [], "cross": []}
        for head in self._heads():
            layers = heads[head.part]
            layers += [0] * (head.layer + 1 - len(layers))
            layers[head.layer] += 1
        return {"name": self.name, "heads": heads, "example": example_source(self.model.about)}

    def _heads(self) -> Sequence[Any]:
        try:
            return all_heads(self.model.network)
        except UserError:  # another architecture
            return []

    def translated(self, ask: Ask) -> dict[str, Any]:
        """The translation as the page shows it, and without silenced heads for comparison."""
        settings: dict[str, Any] = {"prefix": ask.prefix, "beam_size": ask.beam_size}
        with self.turns.turn(f"translate {ask.page}"):
            silenced = any(heads for layers in ask.masks.values() for heads in layers.values())
            plain = self.model.translate([ask.text], n_best=1, **settings)[0].text if silenced else None
            with self.model.mask_heads(ask.masks) if silenced else nullcontext():
                record = self.model.attend(ask.text, n_best=1, **settings)
                trace = self.model.trace(ask.text, n_best=1, **settings)
        contents = page_contents(record, trace, self.name, self.model.known_alignment_head)
        return {"inspection": contents, "unmasked": plain}

    def walked(self, ask: Ask) -> dict[str, Any]:
        """The stops of a walk."""
        with self.turns.turn(f"walk {ask.page}"), self.model.mask_heads(ask.masks) if ask.masks else nullcontext():
            settings: dict[str, Any] = {"prefix": ask.prefix, "beam_size": ask.beam_size, "n_best": 1}
            stops = self.model.walk(ask.text, None, ask.stack or "encoder", ask.layer, ask.head, **settings)
        return {"stops": walk_contents(stops)}
