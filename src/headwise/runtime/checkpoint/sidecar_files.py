"""Files beside a translation model that were derived from it: a shortlist, and the attention that aligns words.

`shortlist.safetensors` and `alignment.json` exist for models trained here and pretrained ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.checkpoint.trained import write_file, write_json
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import Tokenizer

SHORTLIST = "shortlist.safetensors"
ALIGNMENT = "alignment.json"


@runtime_checkable
class Pieces(Protocol):
    """The tokenizer of a pretrained model, on the target side."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...


def write_shortlist(folder: Path, shortlist: Shortlist, tokenizer: Tokenizer | Pieces) -> Path:
    """Write the shortlist of a model folder; returns the file."""
    path = folder / SHORTLIST
    tensors = {"frequent": shortlist.frequent, "likely": shortlist.likely}
    metadata = {"tokenizer": tokenizer.fingerprint}
    write_file(path, lambda draft: save_file(tensors, draft, metadata))
    return path


def read_shortlist(folder: Path, tokenizer: Tokenizer | Pieces, n_read: int = 0) -> Shortlist:
    """The shortlist of a model folder; `UserError` if there is none, or one for another tokenizer.

    It has a row for each of `n_read` source tokens; 0 = as many as `tokenizer` has.
    """
    path = folder / SHORTLIST
    make = f"`headwise shortlist {folder} --train SRC TGT`"
    if not path.is_file():
        raise UserError(f"{folder}: has no {SHORTLIST}; make one with {make}, or do without --shortlist")
    try:
        with safe_open(path, "np") as file:
            made_for = (file.metadata() or {}).get("tokenizer")
            frequent, likely = file.get_tensor("frequent"), file.get_tensor("likely")
    except (SafetensorError, OSError, TypeError) as error:
        raise UserError(f"{path}: damaged or no shortlist ({error}); make it again with {make}") from None
    tables = frequent, likely
    if (frequent.ndim, likely.ndim) != (1, 2) or not all(x.size and x.dtype == np.int32 for x in tables):
        raise UserError(f"{path}: damaged: its tables are no lists of tokens; make it again with {make}")
    if made_for != tokenizer.fingerprint or len(likely) != (n_read or tokenizer.vocab_size):
        raise UserError(f"{path}: was made for another tokenizer; make it again with {make}")
    for ids in tables:
        if ids.min() < 0 or ids.max() >= tokenizer.vocab_size:
            strange = ids.min() if ids.min() < 0 else ids.max()
            raise UserError(
                f"{path}: damaged: it has token {strange} of {tokenizer.vocab_size}; make it again with {make}"
            )
    return Shortlist(frequent, likely)


def write_alignment(folder: Path, head: Mapping[str, Any]) -> Path:
    """Write which attention aligns words (`headwise.view.alignment.AlignmentHead`); returns the file."""
    write_json(folder / ALIGNMENT, head)
    return folder / ALIGNMENT


def read_alignment(folder: Path) -> dict[str, Any] | None:
    """The fields that `write_alignment` wrote; None without the file."""
    path = folder / ALIGNMENT
    if not path.is_file():
        return None
    head = read_json(path)
    kinds = {"layer": int, "head": int | None, "row": str}
    if head.keys() != kinds.keys() or not all(isinstance(head[name], kind) for name, kind in kinds.items()):
        raise UserError(f"{path}: must say layer, head and row; choose anew with `headwise align {folder} --choose`")
    return head
