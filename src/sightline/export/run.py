"""`sightline export`: write, translate with what was written, compare, and only then put it in its place.

A page (`web`) is not translated with here, for that takes a browser: tests do it. Not here: the formats (`hf`,
`ctranslate2`, `onnx`, `web`).
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sightline.checkpoint.read import read_folder
from sightline.config.settings import RunConfig
from sightline.errors import UserError, unknown, writing
from sightline.export import ctranslate2, family, hf, onnx
from sightline.export.exported import MAX_NEW_TOKENS, Exportable, exported_model
from sightline.export.web import page

FORMATS: dict[str, Any] = {"hf": hf, "ctranslate2": ctranslate2, "onnx": onnx}
WEB = "web"
EXAMPLE_CHARACTERS = 60


def export_model(model: str | Path, to: str, out: str | Path, int8: bool = False, texts: Sequence[str] = ()) -> str:
    """Write the translation model in `model` into the folder or, for a page, the file `out`, which must not exist yet.

    Args:
        model: a model directory; to "hf" also the folder of a family, of whatever it can do, to "ctranslate2" of one
            that reads a text and writes another.
        to: "hf", "ctranslate2", "onnx" or "web", a page that translates in a browser.
        out: what to write; there is nothing in its place unless all went well. A page is called as its file is.
        int8: store weights in int8 ("ctranslate2", "onnx"): about a quarter of the size, and not quite the same.
        texts: to compare translations on; without any, words of the model's own.

    Returns:
        What was compared, or how large the page is, one line.

    Raises:
        UserError: the format cannot hold the model, its library is missing, `out` exists, or the copy translates
            otherwise than the model.
    """
    if to not in (*FORMATS, WEB):
        raise unknown("format", to, (*FORMATS, WEB))
    if int8 and to == "hf":
        raise UserError("--int8 is for ctranslate2 and onnx; transformers reads float32 and converts by itself")
    if (int8 or texts) and to == WEB:
        raise UserError("--int8 and --text are for other formats: a page is in int8, and compared in no browser")
    out = Path(out)
    if out.exists():
        raise UserError(f"{out}: exists already; name {'a file' if to == WEB else 'a folder'} that does not")
    folder = read_folder(model)
    if to == WEB:
        return _write_atomically(out, lambda temporary: page.write_page(folder, temporary / "export", out.stem))
    if isinstance(folder.config, RunConfig):
        exported = exported_model(folder)
    elif to == "hf":
        return _write_atomically(out, lambda temporary: family.write_pretrained(folder, temporary / "export"))
    else:
        exported = family.pretrained_export(folder, to)
    FORMATS[to].check(exported)
    texts = [text for text in texts if text.strip()] or exported.texts()
    return _write_atomically(out, lambda temporary: _write_and_compare(exported, to, temporary, int8, texts))


def _write_atomically(out: Path, write: Callable[[Path], str]) -> str:
    """What `write` leaves in the folder "export" of a temporary one becomes `out`, once all went well."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            report = write(Path(temporary))
            (Path(temporary) / "export").rename(out)
    return report


def _write_and_compare(exported: Exportable, to: str, temporary: Path, int8: bool, texts: Sequence[str]) -> str:
    """Into `temporary`/export. What int8 is made of is compared first, for it must be the same; int8 need not be."""
    wanted = exported.greedy(texts)

    def same(folder: Path, int8: bool) -> int:
        folder.mkdir()
        _writer(exported, to, int8, texts[0])(folder)
        return count_equal(FORMATS[to].greedy(exported, folder, texts), wanted)

    exact = same(temporary / "export", False)
    if exact < len(texts):
        raise UserError(
            f"{exported.origin}: {to} translates {len(texts) - exact} of {len(texts)} texts otherwise than the model; "
            "nothing was written. This is a mistake of the exporter's: please report it"
        )
    if not int8:
        return f"greedy translations of {len(texts)} texts are the same"
    shutil.rmtree(temporary / "export")
    found = same(temporary / "export", True)
    return f"greedy translations of {len(texts)} texts are the same in float32, {found} of them in int8"


def _writer(exported: Any, to: str, int8: bool, text: str) -> Callable[[Path], None]:
    example = text[:EXAMPLE_CHARACTERS].replace("\\", "").replace('"', "")
    if to == "hf":
        return lambda folder: hf.write_hf(exported, folder, example)
    return lambda folder: FORMATS[to].write(exported, folder, int8, example)


def count_equal(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> int:
    """How many translations are the same; the last of LENGTH pieces is left out, for libraries differ in whether it
    may be the end mark.

    >>> count_equal([[1, 2], [3]], [[1, 2], [4]])
    1
    """
    return sum(
        list(a[: MAX_NEW_TOKENS - 1]) == list(b[: MAX_NEW_TOKENS - 1]) for a, b in zip(found, wanted, strict=True)
    )
