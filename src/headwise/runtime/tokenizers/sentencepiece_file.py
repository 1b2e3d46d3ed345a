"""A file of SentencePiece: its pieces with scores and types, its table of characters, its algorithm.

The format is `sentencepiece_model.proto`. See `sentencepiece_model` for splitting texts by the library, and
`tokenizer_classes` for the tokenizer that a family has with these pieces.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError

CONTROL, USER_DEFINED = 3, 4  # types of pieces
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # wire types
BPE = 2  # a model type; 1 is unigram


@dataclass(frozen=True)
class SentencePieceFile:
    """The content of a SentencePiece model file."""

    pieces: list[tuple[str, float]]  # with their scores, by id
    marked: dict[str, bool]  # control symbols (True) and user-defined ones (False)
    unk_id: int
    is_bpe: bool
    byte_fallback: bool  # characters without a piece become bytes
    charsmap: bytes  # characters and what replaces them; empty: none


def sentencepiece_model(path: Path) -> Any:
    """A model of SentencePiece; `UserError` if it is damaged, or its library is not installed."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise UserError(f'{path} needs a library: pip install "headwise[sentencepiece]"') from None
    try:
        model = SentencePieceProcessor(model_file=str(path))
        _ = model.id_to_piece(list(range(model.get_piece_size())))  # raises an error for bytes that are no text
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: not a SentencePiece model, or damaged ({reason}); copy it again") from None
    return model


def read_sentencepiece(path: Path) -> SentencePieceFile:
    """Read a SentencePiece model file; `UserError` as from `sentencepiece_model`, which checks it."""
    _ = sentencepiece_model(path)
    pieces: list[tuple[str, float]] = []
    marked: dict[str, bool] = {}
    trainer: Mapping[int, Any] = {}
    normalizer: Mapping[int, Any] = {}
    for number, value in _fields(path.read_bytes()):
        if number == 1:
            piece = dict(_fields(value))
            name, kind = piece.get(1, b"").decode(), piece.get(3, 1)
            pieces.append((name, struct.unpack("<f", piece.get(2, bytes(4)))[0]))
            if kind in (CONTROL, USER_DEFINED):
                marked[name] = kind == CONTROL
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    return SentencePieceFile(
        pieces, marked, trainer.get(40, 0), trainer.get(3, 1) == BPE, bool(trainer.get(35, 0)), normalizer.get(2, b"")
    )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protocol buffers: numbers as they are, everything else as bytes.

    >>> list(_fields(bytes([8, 150, 1, 18, 2, 104, 105])))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        size = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(kind)
        if size is None:
            assert kind == LENGTH, "the library has read this file"
            size, at = _varint(data, at)
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; and the place behind it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
