"""The vocabulary of a translation model of CTranslate2 or Marian, and the tokenizer beside it.

The vocabulary says which token has which id; the tokenizer cuts texts into these tokens. Multilingual models (M2M-100,
NLLB, mBART) are recognised, because their codes of languages stand around a text. See `ctranslate2_folder` for the
network and `vocabulary` for tokenizers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.tokenizers.vocabulary import ADDED, SETTINGS, is_text, library_tokenizer, read_vocabulary

PAIR = ("source.spm", "target.spm")  # Marian
WHOLE = "tokenizer.json"
MERGES = ("vocab.json", "merges.txt")  # BART
OPENNMT = ("sentencepiece.model", "spm.model")  # an end token follows a text if the settings say so
ENDED = ("sentencepiece.bpe.model", "spiece.model")  # of transformers: an end token always follows
COMPANIONS = (SETTINGS, "special_tokens_map.json", ADDED, "generation_config.json")
CODE = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
CODED = {"Nllb": "m2m_100", "M2M100": "m2m_100", "MBart": "mbart"}  # beginnings of tokenizer classes: family


@dataclass(frozen=True)
class ForeignTokenizer:
    """The files of a tokenizer for a folder here."""

    family: str  # whose rules for languages and special tokens hold
    lists: Mapping[str, Mapping[str, Any]]  # files of JSON to write
    copies: Mapping[str, Path]  # files to copy, by their new names
    ends_texts: bool = True  # whether a source ends with the end token


def vocabularies_in(folder: Path) -> tuple[list[str], list[str]]:
    """The tokens of source and target, by id."""
    for names in (("shared_vocabulary",), ("source_vocabulary", "target_vocabulary"), ("vocabulary",)):
        files = [next(filter(Path.is_file, (folder / f"{name}.json", folder / f"{name}.txt")), None) for name in names]
        if all(files):
            read, *written = [_tokens(file) for file in files if file]
            return read, written[0] if written else read
    raise UserError(
        f"{folder}: has no vocabulary (shared_vocabulary.json, or source and target); copy it beside the model"
    )


def _tokens(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error})") from None
    if not isinstance(found, list) or not all(isinstance(token, str) and is_text(token) for token in found):
        raise UserError(f"{path}: must be a list of tokens")
    return found


def foreign_tokenizer(
    folder: Path, read: Sequence[str], written: Sequence[str], ends_texts: bool, pieces_from: Path | None = None
) -> ForeignTokenizer:
    """The tokenizer in a folder, checked against the vocabulary.

    Args:
        folder: of the model.
        read, written: the tokens of source and target, by id.
        ends_texts: whether the model's settings say that an end token follows a source.
        pieces_from: the SentencePiece model, if it is not in the folder.

    Raises:
        UserError: there is none, or it belongs to another vocabulary.
    """
    lists = {"vocab.json": {token: i for i, token in enumerate(read)}}
    if list(read) != list(written):
        lists["target_vocab.json"] = {token: i for i, token in enumerate(written)}
    if pieces_from:
        return ForeignTokenizer("marian", lists, dict.fromkeys(PAIR, pieces_from), ends_texts)
    if all((folder / name).is_file() for name in PAIR):
        return ForeignTokenizer("marian", lists, {name: folder / name for name in PAIR})
    family = _family(folder, written)
    companions = {name: folder / name for name in COMPANIONS if (folder / name).is_file()}
    for files in ((WHOLE,), MERGES):
        if all((folder / name).is_file() for name in files):
            _check_agrees(folder, files, family, read, written)
            more = _ended(folder) if files == (WHOLE,) else {}
            kept = {name: path for name, path in companions.items() if name not in more}
            return ForeignTokenizer(family, more, {name: folder / name for name in files if name not in more} | kept)
    alone = next((folder / name for name in (*ENDED, *OPENNMT) if (folder / name).is_file()), None)
    if alone is None:
        wanted = "source.spm and target.spm, tokenizer.json, sentencepiece.bpe.model, spiece.model or"
        raise UserError(
            f"{folder}: has no tokenizer; copy {wanted} sentencepiece.model from the original model into it"
        )
    if family in CODED.values():
        return ForeignTokenizer(family, lists, {ENDED[0]: alone, **companions})
    return ForeignTokenizer("marian", lists, dict.fromkeys(PAIR, alone), ends_texts or alone.name in ENDED)


def _family(folder: Path, written: Sequence[str]) -> str:
    """The family whose rules for languages and special tokens hold; "marian" without any.

    Raises:
        UserError: a multilingual model whose languages are lost, or stand in an unknown place.
    """
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    name = str(settings.get("tokenizer_class", ""))
    codes = [token for token in written if CODE.fullmatch(token)]
    family = next((family for start, family in CODED.items() if name.startswith(start)), "")
    if family and len(codes) < 2:
        raise UserError(
            f"{folder}: {name[:60]} is multilingual, but the vocabulary has no codes of languages; convert the model "
            "again with transformers 4"
        )
    if family or len(codes) < 2:
        bart = name.startswith("Bart") or all((folder / file).is_file() for file in MERGES)
        return family or ("bart" if bart else "marian")
    if re.fullmatch("[a-z]{2}_[A-Z]{2}", codes[0]):
        raise UserError(
            f"{folder}: a multilingual model ({', '.join(codes[:3])}, ...) without {SETTINGS}, which says where the "
            "codes of languages stand; copy it from the original model"
        )
    return "m2m_100"


def _check_agrees(folder: Path, files: Sequence[str], family: str, read: Sequence[str], written: Sequence[str]) -> None:
    """`UserError` if a tokenizer has other ids than the vocabulary, which may have more tokens."""
    if list(read) != list(written):
        raise UserError(f"{folder}: has two vocabularies, and {files[0]} for one; copy source.spm and target.spm")
    vocabulary = read_vocabulary(folder, {"model_type": family})
    for i, token in enumerate(read):
        piece = vocabulary.piece_of(i)
        if piece not in (None, token) and token != f"{piece} {i}":  # as `export` numbers repeated ones
            raise UserError(
                f"{folder}: {files[0]} belongs to another model: token {i} is {piece[:40]!r} there, and {token[:40]!r} "
                "in the vocabulary"
            )


def _ended(folder: Path) -> dict[str, dict[str, Any]]:
    """A tokenizer.json that adds nothing to a text, with the end token; {} if it adds something.

    Headwise exports such files. Special tokens in a text are text for them.
    """
    tokenizer = library_tokenizer(folder / WHOLE)
    end = tokenizer.token_to_id("</s>")
    if end is None or tokenizer.encode("").ids:
        return {}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", None, [("</s>", end)])
    settings = {} if (folder / SETTINGS).is_file() else {SETTINGS: {"split_special_tokens": True}}
    return {WHOLE: json.loads(tokenizer.to_str()), **settings}
