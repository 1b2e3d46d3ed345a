"""Recognises models of other programs by their content, for an error that says what to do with them.

See `ctranslate2_folder`, `argos`, `gguf_model` and `marian` for formats that are supported.
"""

from pathlib import Path
from zipfile import BadZipFile, ZipFile

from headwise.runtime.checkpoint.layout import CONFIG, WEIGHTS
from headwise.runtime.formats.ctranslate2_file import is_ctranslate2

IMPORT = "convert it with: headwise import {} NEW_FOLDER"
TO_CTRANSLATE2 = "convert it with ct2-{}-converter, and import the result with: headwise import FOLDER NEW_FOLDER"
PICKLES = {  # names of values in a pickled checkpoint: the program, and the converter of CTranslate2
    b"generator": ("OpenNMT-py or Eole", "opennmt-py"),
    b"optimizer_history": ("fairseq", "fairseq"),
    b"last_optimizer_state": ("fairseq", "fairseq"),
}
HEAD = 1 << 20  # bytes of a pickle that are searched


def other_format(path: Path) -> str:
    """The format of a file or folder, and the next step; "" if it is not recognised.

    Nothing is unpickled.
    """
    if path.is_dir():
        if is_ctranslate2(path) and not (path / WEIGHTS).is_file():
            return f"a model of CTranslate2; {IMPORT.format(path)}"
        return _in_folder(path)
    return _of_file(path) if path.is_file() else ""


def _in_folder(folder: Path) -> str:
    if (folder / CONFIG).is_file():
        return ""
    for file in sorted(folder.glob("*"))[:100]:
        if file.suffix in (".gguf", ".npz", ".pt", ".argosmodel") and (found := _of_file(file)):
            return f"has {file.name}, {found}"
    return ""


def _of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return ""
    if head.startswith(b"GGUF"):
        return f"a GGUF file of llama.cpp; {IMPORT.format(path)}"
    if head.startswith(b"PK"):
        return _of_archive(path)
    if head[:2] == b"\x80\x02":
        return "a pickled file of PyTorch; save the model as safetensors"
    if path.suffix == ".onnx":
        return "an ONNX model; import the model that it was made from"
    return ""


def is_argos(path: Path) -> bool:
    """Whether a file is a package of Argos Translate."""
    try:
        with ZipFile(path) as archive:
            return any(name.endswith("/model/model.bin") for name in archive.namelist())
    except (BadZipFile, OSError):
        return False


def _of_archive(path: Path) -> str:
    try:
        with ZipFile(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl")]
            if pickles:
                with archive.open(pickles[0]) as file:
                    head = file.read(HEAD)
                for word, (program, converter) in PICKLES.items():
                    if word in head:
                        return f"a checkpoint of {program}; {TO_CTRANSLATE2.format(converter)}"
                return "a pickled file of PyTorch; save the model as safetensors"
    except (BadZipFile, OSError, RuntimeError, NotImplementedError):
        return ""
    if "special:model.yml.npy" in names:
        return f"a model of Marian; {IMPORT.format(path)}"
    if is_argos(path):
        return f"an Argos package; {IMPORT.format(path)}"
    return ""
