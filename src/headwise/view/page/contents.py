"""From the records of the inspector to the JSON of the page. See `evaluate.pages.document` for the HTML.

Weights are most of the page. Each becomes one byte, 255 times its square root, which keeps the error of small weights
small (at most 0.004 near 1 and 0.0001 near 0.001). The bytes of a layer are deflated and encoded in base64.
"""

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from headwise.view.alignment import AlignmentHead
from headwise.view.page.walks import all_walks
from headwise.view.readings import clearest_head
from headwise.view.record import AttentionRecord, Axis, Patches, Times, Trace, WalkRecord, Word

PARTS = ("encoder", "decoder", "cross")


def page_contents(
    record: AttentionRecord,
    trace: Trace | None = None,
    model: str = "",
    aligns: AlignmentHead | None = None,
    walks: WalkRecord | None = None,
    full_walk: bool = False,
) -> dict[str, Any]:
    """The data of the page for one input; `model` is a name to show.

    The page opens on the head that `aligns` words, or else on the clearest head for this pair (`clearest_head`). With
    `walks` it has the view Walk, for as many layers and heads as fit into a megabyte, or with `full_walk` for all.
    """
    known = (aligns.layer, aligns.head, aligns.row) if aligns else clearest_head(record)
    layer, head, row = known or (None, None, None)
    return {
        **_texts(record, model, trace is not None, walks is not None),
        "aligns": {"layer": layer, "head": head, "row": row},
        "attention": {part: [_packed(layer) for layer in getattr(record, part)] for part in PARTS},
        **_trace(trace),
        "walk": all_walks(walks, full_walk) if walks else None,
    }


def plain_contents(record: AttentionRecord, trace: Trace | None = None, model: str = "") -> dict[str, Any]:
    """The same for other programs: weights as nested lists [layer][head][query][key], rounded to six digits."""
    return {
        **_texts(record, model, trace is not None),
        "attention": {part: [_listed(layer) for layer in getattr(record, part)] for part in PARTS},
        **_trace(trace),
    }


def encode_weights(weights: Float[np.ndarray, "heads query key"]) -> str:
    """Weights between 0 and 1, a byte each, deflated, in base64.

    >>> len(encode_weights(np.ones((4, 100, 100), np.float32))) < 100
    True
    """
    rounded = np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * 255.0).astype(np.uint8)
    return base64.b64encode(zlib.compress(rounded.tobytes(), 9)).decode("ascii")


def _texts(record: AttentionRecord, model: str, traced: bool, walked: bool = False) -> dict[str, Any]:
    return {
        "model": model,
        "about": about(_kind(record.src), bool(record.tgt.labels), traced, walked),
        "text": record.text,
        "translation": record.translation,
        "src": _axis(record.src),
        "tgt": _axis(record.tgt),
        "read": list(record.read),
    }


def about(reads: str, writes: bool, traced: bool, walk: bool = False) -> dict[str, Any]:
    """The properties by which the page chooses its views.

    Args:
        reads: the input of the encoder: "pieces", "patches", "times", or "" without an encoder.
        writes: whether there is a decoder.
        traced: whether there is a trace.
        walk: whether there are walks.
    """
    return {"reads": reads, "writes": writes, "traced": traced, "walk": walk}


def _kind(axis: Axis) -> str:
    return {Patches: "patches", Times: "times"}.get(type(axis.of), "pieces") if axis.labels else ""


def _axis(axis: Axis) -> dict[str, Any]:
    """An axis: its "pieces", "patches" or "times"."""
    plain = {"pieces": axis.drawn, "words": _spans(axis.words)}
    if isinstance(axis.of, Patches):
        of = axis.of
        return {
            **plain,
            "patches": {"rows": of.rows, "columns": of.columns, "before": of.n_before, "picture": _png(of)},
        }
    if isinstance(axis.of, Times):
        return {**plain, "times": {"step": axis.of.step, "loudness": [round(float(x), 3) for x in axis.of.loudness]}}
    return plain


def _png(patches: Patches) -> str:
    """The picture as a data URL."""
    from PIL import Image  # has read the picture, so it is installed

    file = io.BytesIO()
    Image.fromarray(patches.pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _spans(words: Sequence[Word]) -> list[list[str | int]]:
    return [[word.text, word.start, word.stop] for word in words]


def _packed(layer: Float[np.ndarray, "heads query key"] | None) -> dict[str, Any] | None:
    return None if layer is None else {"shape": list(layer.shape), "data": encode_weights(layer)}


def _listed(layer: Float[np.ndarray, "heads query key"] | None) -> list[Any] | None:
    return None if layer is None else np.round(layer.astype(np.float64), 6).tolist()


def _trace(trace: Trace | None) -> dict[str, Any]:
    plain = asdict(trace) if trace else {"positions": [], "beam": []}
    return {name: _rounded(plain[name]) for name in ("positions", "beam")}


def _rounded(value: Any) -> Any:
    """Five digits are enough to draw."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
