"""Packages of Argos Translate (`.argosmodel`), the models of LibreTranslate: a ZIP archive with one folder, which has
`metadata.json`, a SentencePiece model, and a model of CTranslate2 in `model/`.

Other files of a package, such as those of its sentence splitter, are not used.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError

from headwise.errors import UserError
from headwise.pytorch.checkpoint.ctranslate2_folder import ForeignModel, read_ctranslate2
from headwise.runtime.formats.archives import bounded_archive
from headwise.runtime.formats.ctranslate2_file import MODEL_FILE

PIECES, METADATA = "sentencepiece.model", "metadata.json"


@contextmanager
def open_argos(path: Path) -> Iterator[ForeignModel]:
    """The model of a package, while the context is open.

    Raises:
        UserError: damaged, or with a tokenizer other than SentencePiece; otherwise as `read_ctranslate2`.
    """
    with TemporaryDirectory() as unpacked:
        folder, values = _unpack(path, Path(unpacked))
        if not (folder / PIECES).is_file():
            raise UserError(
                f"{path}: has no {PIECES}; packages with a tokenizer of words (bpe.model) are not supported"
            )
        try:
            model = read_ctranslate2(folder / "model", folder / PIECES)
        except UserError as error:
            raise UserError(str(error).replace(unpacked, str(path))) from error
        codes = values.get("from_code"), values.get("to_code")
        more: dict[str, Any] = {"languages": "-".join(map(str, codes))} if all(codes) else {}
        if prefix := values.get("target_prefix"):
            ids = model.lists.get("target_vocab.json", model.lists["vocab.json"])
            if prefix not in ids:
                raise UserError(f"{path}: its vocabulary has no token {prefix}, which outputs start with")
            more["forced_bos_token_id"] = ids[prefix]
        yield replace(model, about={**model.about, **more})


def _unpack(path: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Unpack the files of the model; returns their folder and the metadata."""
    try:
        with bounded_archive(path) as archive:
            for one in filter(lambda one: _is_needed(one.filename), archive.infolist()):
                *_, parent, name = PurePosixPath(one.filename).parts
                target = folder / ("model" if parent == "model" else ".") / name
                target.parent.mkdir(exist_ok=True)
                with archive.open(one) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)
        values = json.loads((folder / METADATA).read_text(encoding="utf-8")) if (folder / METADATA).is_file() else {}
    except (BadZipFile, ZlibError, EOFError, OSError, RuntimeError, NotImplementedError, ValueError) as error:
        raise UserError(f"{path}: not a package of Argos Translate, or damaged ({error}); download it again") from error
    if not (folder / "model" / MODEL_FILE).is_file():
        raise UserError(f"{path}: has no model/{MODEL_FILE}, so it is no package of Argos Translate")
    return folder, values if isinstance(values, dict) else {}


def _is_needed(name: str) -> bool:
    """Whether a file of the archive belongs to the model: two levels deep, or in its folder `model`."""
    parts = PurePosixPath(name).parts
    if name.endswith("/") or ".." in parts:
        return False
    return (len(parts) == 2 and parts[1] in (PIECES, METADATA)) or (len(parts) == 3 and parts[1] == "model")
