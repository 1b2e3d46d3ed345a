"""`headwise export`: write a model, translate with the written copy, compare, and only then move it into place.

See `hf`, `ctranslate2` and `onnx` for the formats, and `web` for pages, which need no torch.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.config.settings import RunConfig
from headwise.errors import UserError, unknown
from headwise.pytorch.export import ctranslate2, family, hf, onnx
from headwise.pytorch.export.exported import MAX_NEW_TOKENS, Exportable, exported_model
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.writing import write_atomically


@dataclass(frozen=True)
class ExportFormat:
    """The functions of a format. `write` takes the model, a folder, an example text, and whether weights are int8."""

    check: Callable[[Any], None]  # `UserError` if the format cannot represent the model
    write: Callable[[Any, Path, str, bool], None]
    greedy: Callable[[Any, Path, Sequence[str]], list[list[int]]]  # translations with what was written


FORMATS = {
    "hf": ExportFormat(hf.check_hf, hf.write_hf, hf.greedy_by_transformers),
    "ctranslate2": ExportFormat(
        ctranslate2.check_ctranslate2, ctranslate2.write_ctranslate2, ctranslate2.greedy_by_ctranslate2
    ),
    "onnx": ExportFormat(onnx.check_onnx, onnx.write_onnx, onnx.greedy_by_onnxruntime),
}
EXAMPLE_CHARACTERS = 60


def export_model(model: str | Path, to: str, out: str | Path, int8: bool = False, texts: Sequence[str] = ()) -> str:
    """Export a translation model to the folder `out`, which must not exist.

    Args:
        model: a model directory; for "hf" also any pretrained model, for "ctranslate2" a pretrained encoder-decoder.
        to: "hf", "ctranslate2" or "onnx".
        out: written only if everything succeeds.
        int8: store weights in int8 ("ctranslate2", "onnx"): a quarter of the size, with small differences.
        texts: texts to compare translations on (default: made of words of the vocabulary).

    Returns:
        One line: what was compared.

    Raises:
        UserError: the format cannot represent the model, its library is missing, `out` exists, or the copy translates
            differently.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if int8 and to == "hf":
        raise UserError("--compute int8 is for ctranslate2 and onnx; transformers converts float32 weights itself")
    out, folder = Path(out), read_folder(model)
    if isinstance(folder.config, RunConfig):
        exported = exported_model(folder)
    elif to == "hf":
        return write_atomically(out, lambda draft: family.write_pretrained(folder, draft))
    else:
        exported = family.pretrained_export(folder, to)
    FORMATS[to].check(exported)
    texts = [text for text in texts if text.strip()] or exported.texts()
    return write_atomically(out, lambda draft: _write_and_compare(exported, to, draft, int8, texts))


def _write_and_compare(exported: Exportable, to: str, draft: Path, int8: bool, texts: Sequence[str]) -> str:
    """Write to `draft`. The float32 version must translate the same; int8 need not."""
    wanted = exported.greedy(texts)

    example = texts[0][:EXAMPLE_CHARACTERS].replace("\\", "").replace('"', "")

    def n_equal(folder: Path, int8: bool) -> int:
        folder.mkdir()
        FORMATS[to].write(exported, folder, example, int8)
        return count_equal(FORMATS[to].greedy(exported, folder, texts), wanted)

    exact = n_equal(draft, False)
    if exact < len(texts):
        differ = f"{to} translates {len(texts) - exact} of {len(texts)} texts differently"
        raise UserError(f"{exported.origin}: {differ}; nothing was written. Please report this bug")
    if not int8:
        return f"greedy translations of {len(texts)} texts are the same"
    shutil.rmtree(draft)
    equal = n_equal(draft, True)
    return f"greedy translations of {len(texts)} texts are the same in float32, {equal} of them in int8"


def count_equal(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> int:
    """The number of equal translations.

    The last of MAX_NEW_TOKENS tokens is ignored, because libraries differ in whether it may be EOS.

    >>> count_equal([[1, 2], [3]], [[1, 2], [4]])
    1
    """
    return sum(
        list(a[: MAX_NEW_TOKENS - 1]) == list(b[: MAX_NEW_TOKENS - 1]) for a, b in zip(found, wanted, strict=True)
    )
