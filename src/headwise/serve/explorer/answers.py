"""Responses of the explorer. See `server` for HTTP.

A model does one thing at a time. Of the waiting requests of a page only the newest is answered, because its user has
typed on; and only a few may wait.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from headwise.errors import UserError
from headwise.serve.explorer.requests import ExplorerRequest

MAX_WAITING = 8


class Superseded(Exception):
    """A newer request of the same page is waiting, or too many are."""


class RequestQueue:
    """One request at a time, the newest of each page."""

    def __init__(self) -> None:
        self._busy, self._counting = Lock(), Lock()
        self._newest: dict[str, int] = {}
        self._count = self.waiting = 0

    @contextmanager
    def turn(self, page: str) -> Iterator[None]:
        """Wait for the model; `Superseded` if the request is obsolete."""
        with self._counting:
            if self.waiting >= MAX_WAITING:
                raise Superseded(f"{MAX_WAITING} requests are waiting for this model")
            self._count, self.waiting = self._count + 1, self.waiting + 1
            own = self._newest[page] = self._count
        with self._busy:
            with self._counting:
                self.waiting -= 1
                newest = self._newest[page]
                if self.waiting == 0:
                    self._newest.clear()  # no other request to compare with
            if newest != own:
                raise Superseded("superseded by a newer request of the same page")
            yield


@contextmanager
def _as_file(request: ExplorerRequest) -> Iterator[Path]:
    """The uploaded file in a temporary folder."""
    if not request.file:
        raise UserError("this model reads files; choose one")
    with TemporaryDirectory(prefix="headwise") as folder:
        path = Path(folder, "sent")
        path.write_bytes(request.file)
        try:
            yield path
        except UserError as error:
            raise UserError(str(error).replace(str(path), request.text)) from None


@dataclass(frozen=True)
class PageContents:
    """Functions of `view.page`, which needs torch; the command passes them in."""

    of_model: Callable[[Any], dict[str, Any]]
    of_input: Callable[..., dict[str, Any]]
    of_walk: Callable[[Any, str, int, int], dict[str, Any]]


class ExplorerModel:
    """A model on the page, with a name."""

    reads_files = False  # whether its inputs are files

    def __init__(self, name: str, model: Any, contents: PageContents) -> None:
        self.name, self.model, self.contents, self.turns = name, model, contents, RequestQueue()
        self.reads_files = model.reads in ("picture", "sound")
        self._walks: tuple[ExplorerRequest, Any] | None = None  # the last input without masked heads

    def described(self) -> dict[str, Any]:
        """The data that the page shows first: the name of the model, and its views."""
        return {"name": self.name, **self.contents.of_model(self.model)}

    def translated(self, request: ExplorerRequest) -> dict[str, Any]:
        """The translation for the page, and the one without masked heads for comparison."""
        if self.model.reads != "pairs":
            return self.read(request)
        settings: dict[str, Any] = {"prefix": request.prefix, "beam_size": request.beam_size}
        with self.turns.turn(f"translate {request.page}"):
            silenced = any(heads for layers in request.masks.values() for heads in layers.values())
            plain = self.model.translate([request.text], n_best=1, **settings)[0].text if silenced else None
            with self.model.mask_heads(request.masks) if silenced else nullcontext():
                record = self.model.attend(request.text, n_best=1, **settings)
                trace = self.model.trace(request.text, n_best=1, **settings)
        contents = self.contents.of_input(record, trace, self.name, self.model.known_alignment_head)
        return {"inspection": contents, "unmasked": plain}

    def read(self, request: ExplorerRequest) -> dict[str, Any]:
        """The same for a text, image or sound."""
        with self.turns.turn(f"translate {request.page}"), self.model.mask_heads(request.masks):
            opened = _as_file(request) if self.reads_files else nullcontext(request.text)
            with opened as path_or_text:
                record, trace = self.model.look_inside(path_or_text)
        contents = self.contents.of_input(replace(record, text=request.text), trace, self.name)
        return {"inspection": contents, "unmasked": None}

    def walked(self, request: ExplorerRequest) -> dict[str, Any]:
        """A walk through one layer and head."""
        settings: dict[str, Any] = {}
        if self.model.reads == "pairs":
            settings = {"prefix": request.prefix, "beam_size": request.beam_size, "n_best": 1}
        wanted = replace(request, stack="", layer=0, head=0, page="")
        with self.turns.turn(f"walk {request.page}"), ExitStack() as masked:
            if self._walks and self._walks[0] == wanted:
                walks = self._walks[1]
            else:
                if request.masks:
                    masked.enter_context(self.model.mask_heads(request.masks))
                walks = self.model.walks(request.text, **settings)
                self._walks = None if request.masks else (wanted, walks)
            return {"walk": self.contents.of_walk(walks, request.stack, request.layer, request.head)}
