"""Records as a notebook shows them: the page in a frame of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwise.errors import UserError, unknown
from headwise.evaluate.pages.document import notebook_frame
from headwise.view.page.contents import PARTS, page_contents
from headwise.view.record import AttentionRecord, Patches, Times, Trace, WalkRecord

HEIGHT = 640  # pixels of a frame


class AttentionView(AttentionRecord):
    """Attention weights; a notebook shows the page with the views of attention."""

    def show(
        self,
        view: str = "",
        part: str = "",
        layer: int | None = None,
        head: int | None = None,
        height: int = HEIGHT,
        *,
        trace: Trace | None = None,
        walks: WalkRecord | None = None,
    ) -> "NotebookPage":
        """The page, opened on a view, a layer and a head; end a cell of a notebook with it, or `display` it.

        Args:
            view: "lines", "matrix", "grid" (all heads), "alignment" (between texts), "picture", "sound"; "beam" and
                "probabilities" with `trace`; "walk" and "tour" with `walks`. "" is the first that fits.
            part: "encoder", "decoder" or "cross"; "" is the first that fits.
            layer, head: of the recorded ones, from 0; negative layers count from the last. None is the mean over all,
                and if both are None, the page chooses.
            height: of the frame, pixels.
            trace: what `model.trace` returned for the same input.
            walks: what `model.walks` returned for the same input.

        Raises:
            UserError: this record has no such view, part, layer or head.

        >>> model.attend("A dog runs.").show("matrix", part="cross", layer=-1, head=0)  # doctest: +SKIP
        """
        start = _start(self, view, part, layer, head, views_of(self, trace, walks))
        if height < 1:
            raise UserError(f"height = {height}: must be at least 1 pixel")
        return NotebookPage(page_contents(self, trace, walks=walks), start, height)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


class Inspection(NamedTuple):
    """Attention and trace of one input; a notebook shows the page with every view, beam and probabilities too."""

    attention: AttentionRecord
    trace: Trace

    def show(self, view: str = "", *arguments: Any, **options: Any) -> "NotebookPage":
        """`AttentionView.show` with the trace."""
        return AttentionView.show(self.attention, view, *arguments, trace=self.trace, **options)  # pyright: ignore

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


@dataclass(frozen=True, repr=False)
class NotebookPage:
    """The page as the output of a cell of a notebook."""

    contents: Mapping[str, Any]
    start: Mapping[str, Any]  # the state of the page that differs from its own choice
    height: int

    def _repr_html_(self) -> str:
        return notebook_frame(self.contents, self.height, self.start)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name} {value}" for name, value in self.start.items() if value is not None)
        return f"<page{': ' if chosen else ''}{chosen}; a notebook shows it>"


def views_of(record: AttentionRecord, trace: Trace | None = None, walks: WalkRecord | None = None) -> dict[str, Any]:
    """The views of the page that fit a record, with the parts that each can show."""
    recorded = tuple(part for part in PARTS if any(layer is not None for layer in getattr(record, part)))
    of, writes = type(record.src.of), bool(record.tgt.labels)
    pairs = bool(record.src.labels) and record.src.of is None and writes
    there = {
        "picture": _among(recorded, "encoder") if of is Patches else None,
        "sound": _among(recorded, "encoder", "cross") if of is Times else None,
        "lines": recorded,
        "matrix": recorded,
        "grid": recorded,
        "alignment": _among(recorded, "cross") if pairs else None,
        "beam": () if trace and pairs else None,
        "probabilities": () if trace else None,
        "walk": tuple(walks.figure) if walks else None,
        "tour": () if walks else None,
    }
    return {name: parts for name, parts in there.items() if parts is not None}


def _among(recorded: tuple[str, ...], *parts: str) -> tuple[str, ...] | None:
    return tuple(part for part in parts if part in recorded) or None


def _start(
    record: AttentionRecord,
    view: str,
    part: str,
    layer: int | None,
    head: int | None,
    views: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """The state with which the page begins; `UserError` for what the record does not have."""
    if view and view not in views:
        raise unknown("view of this record", view, views)
    view = view or (next(iter(views)) if part or layer is not None or head is not None else "")
    if not view:
        return {}
    parts = views[view]
    if part and part not in parts:
        raise unknown(f"part for the view {view}", part, parts) if parts else UserError(f"the view {view} has no parts")
    usual = "cross" if "cross" in parts else next(iter(parts), "")
    part = part or usual
    if not part:
        if layer is not None or head is not None:
            raise UserError(f"the view {view} has no layers and heads")
        return {"view": view}
    layer = _checked(record, part, layer, head)
    if view == "walk":
        return {"view": view, "stack": part, "walkLayer": layer or 0, "walkHead": head or 0}
    return {"view": view, "part": part, **({} if layer is head is None else {"layer": layer, "head": head})}


def _checked(record: AttentionRecord, part: str, layer: int | None, head: int | None) -> int | None:
    """The layer, counted from 0; `UserError` if it was not recorded or has no such head."""
    weights = getattr(record, part)
    recorded = {number: len(one) for number, one in enumerate(weights) if one is not None}
    if layer is not None and layer < 0:
        layer += len(weights)
    if layer is not None and layer not in recorded:
        known = ", ".join(map(str, recorded)) or "none"
        raise UserError(f"{part} attention has no recorded layer {layer}; recorded: {known}")
    heads = max(recorded.values(), default=0) if layer is None else recorded[layer]
    if head is not None and not 0 <= head < heads:
        of = f", layer {layer}," if layer is not None else ""
        raise UserError(f"{part} attention{of} has no head {head}; heads are 0 to {heads - 1}")
    return layer
