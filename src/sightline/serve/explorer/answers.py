"""Answers to what the page asks, from the models it shows. Not here: HTTP.

A model does one thing at a time. Of the requests of one page that wait for it only the newest is answered, for its
reader has typed on since; and no more than a few wait at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from sightline.errors import UserError
from sightline.inspect.example import example_source
from sightline.inspect.heads import all_heads
from sightline.inspect.page.contents import about, page_contents, walk_contents
from sightline.inspect.recording import attentions
from sightline.serve.explorer.requests import ExplorerRequest

MAX_WAITING = 8


class Superseded(Exception):
    """A newer request of the same page is waiting, or too many are."""


class RequestQueue:
    """One at a time, the newest of each page."""

    def __init__(self) -> None:
        self._busy, self._counting = Lock(), Lock()
        self._newest: dict[str, int] = {}
        self._count = self.waiting = 0

    @contextmanager
    def turn(self, page: str) -> Iterator[None]:
        """Wait for the model, and have it inside; `Superseded` where waiting has become pointless."""
        with self._counting:
            if self.waiting >= MAX_WAITING:
                raise Superseded(f"{MAX_WAITING} requests are waiting for this model")
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


@contextmanager
def _as_file(ask: ExplorerRequest) -> Iterator[Path]:
    """Inside, what was sent is a file; it is deleted afterwards."""
    if not ask.file:
        raise UserError("this model reads files: choose one")
    with TemporaryDirectory(prefix="sightline") as folder:
        path = Path(folder, "sent")
        path.write_bytes(ask.file)
        try:
            yield path
        except UserError as error:
            raise UserError(str(error).replace(str(path), ask.text)) from None


class ExplorerModel:
    """A model on the page, under a name."""

    reads_files = False  # whether what it looks at comes in files

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model, self.turns = name, model, RequestQueue()
        self.reads_files = model.reads in ("picture", "sound")

    def described(self) -> dict[str, Any]:
        """What the page must know before it asks: the heads of each layer of each part, none where it has no heads; and
        a text to begin with, where there is one.
        """
        heads: dict[str, list[int]] = {"encoder": [], "decoder": [], "cross": []}
        for head in self._heads():
            layers = heads[head.part]
            layers += [0] * (head.layer + 1 - len(layers))
            layers[head.layer] += 1
        example = example_source(getattr(self.model, "about", {}))
        return {"name": self.name, "about": self._about(), "heads": heads, "example": example}

    def _about(self) -> dict[str, Any]:
        """What the page chooses its views by."""
        if self.model.reads == "pairs":
            return about("pieces", writes=True, traced=True)
        stacks = attentions(self.model.network)
        reads = {"picture": "patches", "sound": "times"}.get(self.model.reads, "pieces")
        return about(reads if stacks["encoder"] else "", bool(stacks["decoder"]), traced=True)

    def _heads(self) -> Sequence[Any]:
        try:
            return all_heads(self.model.network)
        except UserError:  # another architecture
            return []

    def translated(self, ask: ExplorerRequest) -> dict[str, Any]:
        """The translation as the page shows it, and without silenced heads for comparison."""
        if self.model.reads != "pairs":
            return self.read(ask)
        settings: dict[str, Any] = {"prefix": ask.prefix, "beam_size": ask.beam_size}
        with self.turns.turn(f"translate {ask.page}"):
            silenced = any(heads for layers in ask.masks.values() for heads in layers.values())
            plain = self.model.translate([ask.text], n_best=1, **settings)[0].text if silenced else None
            with self.model.mask_heads(ask.masks) if silenced else nullcontext():
                record = self.model.attend(ask.text, n_best=1, **settings)
                trace = self.model.trace(ask.text, n_best=1, **settings)
        contents = page_contents(record, trace, self.name, self.model.known_alignment_head)
        return {"inspection": contents, "unmasked": plain}

    def read(self, ask: ExplorerRequest) -> dict[str, Any]:
        """The same of a text, picture or sound."""
        with self.turns.turn(f"translate {ask.page}"), self.model.mask_heads(ask.masks):
            given = _as_file(ask) if self.reads_files else nullcontext(ask.text)
            with given as path_or_text:
                record, trace = self.model.look_inside(path_or_text)
        contents = page_contents(replace(record, text=ask.text), trace, self.name)
        return {"inspection": contents, "unmasked": None}

    def walked(self, ask: ExplorerRequest) -> dict[str, Any]:
        """The stops of a walk."""
        with self.turns.turn(f"walk {ask.page}"), self.model.mask_heads(ask.masks) if ask.masks else nullcontext():
            settings: dict[str, Any] = {"prefix": ask.prefix, "beam_size": ask.beam_size, "n_best": 1}
            stops = self.model.walk(ask.text, None, ask.stack or "encoder", ask.layer, ask.head, **settings)
        return {"stops": walk_contents(stops)}
