"""Conversion between text and ids for pretrained checkpoints, whatever the format of their vocabulary.

`tokenizer.json` says nearly everything by itself. Families older than it have files of their own kind: two
SentencePiece models (Marian), one (T5, XLNet, ALBERT, DeBERTa, mBART, LLaMA 1 and 2), merges (GPT-2, BART, RoBERTa,
Whisper) or WordPieces (BERT, ELECTRA, MPNet). Special and added tokens are found in a text before anything else
(`special_tokens`).

See `headwise.text.tokens.tokenizer` for the tokenizer of models trained here, `tokenizer_classes` for the classes of
tokenizers, `models.language.chat` for chat templates and `runtime.tokenizers.languages` for language codes.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from headwise.errors import UserError, unknown
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.tokenizers.sentencepiece_file import sentencepiece_model
from headwise.runtime.tokenizers.special_tokens import (
    ADDED,
    NAMED,
    NAMES,
    SETTINGS,
    DeclaredTokens,
    declared_tokens,
    token_splitter,
    tokenizer_values,
)
from headwise.runtime.tokenizers.tokenizer_classes import class_tokenizer

LONGEST_TOKEN = 4096  # bytes in a tokenizer.json; usual ones have 128 blanks at most
LANGUAGE_CODES = {  # of M2M-100 by `language_codes`, in the order of their ids
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi "
        "hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns "
        "oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh "
        "zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
LANGUAGE = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")  # M2M-100, NLLB, mBART


@dataclass(frozen=True)
class Vocabulary:
    """Text to ids and back, as one family does it."""

    encode: Callable[[str], list[int]]  # with the marks its family puts around a text, but no language codes
    decode: Callable[[Sequence[int]], str]  # without marks
    id_of: Callable[[str], int | None]  # of one piece or mark, such as a language code; None where there is none
    pieces: Callable[[], Mapping[str, int]] = dict  # all of them; of a file of the tokenizers library only
    piece_of: Callable[[int], str | None] = str  # by its id, as the file has it; None where there is none
    written: "Vocabulary | None" = None  # of what the model writes, where that is another one
    declared: Mapping[int, str] = field(default_factory=dict)  # pieces that a text may have in front, such as >>fra<<
    encode_two: "EncodeTwo | None" = None  # where the family reads two texts at once
    ends_texts: bool = True  # whether an end token follows a text; not in models of OpenNMT
    encode_at: "EncodeAt | None" = None  # where it is known which characters of a text a token is


EncodeTwo = Callable[[str, str], tuple[list[int], list[int]]]  # ids with all marks; which of the texts each belongs to
EncodeAt = Callable[[str], tuple[list[int], list[tuple[int, int]]]]  # as `encode`; first character and behind the last
VocabularyReader = Callable[[Path, Mapping[str, Any]], Vocabulary]  # of a folder, and its config.json


def is_text(token: str) -> bool:
    """Whether a token can be written to a file: it has no half of a character."""
    return not any("\ud800" <= one <= "\udfff" for one in token)


def marks_around(marks: Sequence[int], ids: Sequence[int]) -> tuple[int, int]:
    """The numbers of special tokens before and behind any text, from those of an empty text.

    >>> marks_around([8, 2], [8, 5, 6, 2])
    (1, 1)
    """
    before = 0
    while before < len(marks) and marks[before] == ids[before] and len(ids) > len(marks):
        before += 1
    return before, len(marks) - before


def bare(vocabulary: Vocabulary) -> tuple[Callable[[str], list[int]], list[int], list[int]]:
    """An encoder of texts without the special tokens around them; the tokens before a text, and those behind it."""
    marks, example = vocabulary.encode(""), vocabulary.encode("a")
    before, behind = marks_around(marks, example)

    def encode(text: str) -> list[int]:
        ids = vocabulary.encode(text)
        return ids[before : len(ids) - behind]

    return encode, marks[:before], marks[len(marks) - behind :]


def read_vocabulary(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary in `folder`; `UserError` where there is none, or a damaged one.

    `hf_config` is the checkpoint's config.json, which says the family and the ids of its marks.
    """
    for files, reader in READERS.items():
        if all((folder / name).is_file() for name in files):
            return _undamaged(reader, folder, hf_config, files)
    wanted = "; ".join(" and ".join(files) for files in READERS)
    raise UserError(f"{folder}: has no vocabulary, which would be {wanted}")


def fingerprint(folder: Path) -> str:
    """SHA-256 of the files of a vocabulary: folders that share it cut every text alike."""
    found = hashlib.sha256()
    for path in (folder / name for name in FILES):
        if path.is_file():
            found.update(path.name.encode() + b"\0")
            found.update(_said(path) if path.name == SETTINGS else path.read_bytes())
    return found.hexdigest()


def _said(path: Path) -> bytes:
    """Settings without what names the folder that they were saved from."""
    kept = {key: value for key, value in read_json(path).items() if key != "name_or_path"}
    return json.dumps(kept, sort_keys=True).encode()


def _undamaged(
    reader: VocabularyReader, folder: Path, hf_config: Mapping[str, Any], files: Sequence[str]
) -> Vocabulary:
    try:
        return reader(folder, hf_config)
    except UserError:
        raise
    except Exception as error:  # the libraries raise nothing narrower
        reason = str(error).partition("\n")[0]
        raise UserError(f"{folder}: {' and '.join(files)}: damaged, or not what the name says ({reason})") from error


# --- Files of the tokenizers library, and those it reads ---


def _complete(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The tokenizer of the file without the padding and truncation stored in it, which belong to somebody's batch."""
    loaded = library_tokenizer(folder / "tokenizer.json")
    tokenizer = class_tokenizer(folder, hf_config, "tokenizer.json", loaded)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _of_library(tokenizer, tokenizer_values(folder))


def _of_class(name: str) -> VocabularyReader:
    """The reader of the file of this name for the folder's class of tokenizers."""

    def read(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
        return _of_library(class_tokenizer(folder, hf_config, name), tokenizer_values(folder))

    return read


def library_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a tokenizer.json.

    The library takes 350 bytes for each character of a token, and a long one overflows its stack.

    Raises:
        UserError: it has a token that is too long.
        Exception: damaged; the library raises nothing narrower.
    """
    content = path.read_bytes()
    strings = content.replace(b"\\\\", b"__").replace(b'\\"', b"__").split(b'"')  # between quotes that are not escaped
    if max(map(len, strings)) > LONGEST_TOKEN:
        for i, string in enumerate(strings):
            is_map = strings[i - 2] == b"precompiled_charsmap" and strings[i - 1].strip() == b":"
            if len(string) > LONGEST_TOKEN and not is_map:
                raise UserError(f"{path}: has a token of {len(string):,} bytes, as no tokenizer does; copy it again")
    return tokenizers.Tokenizer.from_buffer(content)


def _of_library(tokenizer: Any, settings: Mapping[str, Any]) -> Vocabulary:
    if settings.get("split_special_tokens", False):  # what looks like a mark in a text is text
        tokenizer.encode_special_tokens = True
    merged = isinstance(tokenizer.model, tokenizers.models.BPE)
    clean = _spaces_cleaned if settings.get("clean_up_tokenization_spaces") and not merged else str
    return Vocabulary(
        lambda text: tokenizer.encode(text).ids,
        lambda ids: clean(tokenizer.decode(list(ids), skip_special_tokens=True)),
        tokenizer.token_to_id,
        tokenizer.get_vocab,
        tokenizer.id_to_token,
        encode_two=lambda first, second: _two(tokenizer.encode(first, second)),
        encode_at=lambda text: _placed(tokenizer.encode(text)),
    )


def _spaces_cleaned(text: str) -> str:
    """A text without the blanks before punctuation that a tokenizer's settings do not want.

    >>> _spaces_cleaned("It 's a dog , is n't it ?")
    "It's a dog, isn't it?"
    """
    for end in (".", "?", "!", ",", "'", "n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(f" {end} " if end == "'" else f" {end}", end)
    return text


def _two(found: Any) -> tuple[list[int], list[int]]:
    return found.ids, found.type_ids


def _placed(found: Any) -> tuple[list[int], list[tuple[int, int]]]:
    return found.ids, found.offsets


# --- Models of SentencePiece, used as they are ---


def _marian(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """Pieces of the source's model, numbered by vocab.json, and an end mark; >>codes<< before a text are one piece.

    Models of OpenNMT have no end mark after the source (`add_source_eos`).
    """
    listed = folder / "target_vocab.json"  # two vocabularies
    ids = _listed_ids(folder / "vocab.json")
    target_ids = _listed_ids(listed) if listed.is_file() else ids
    source, target = (sentencepiece_model(folder / f"{side}.spm") for side in ("source", "target"))
    declared, names = declared_tokens(folder), {i: piece for piece, i in target_ids.items()}
    free = {i: one for i, one in declared.by_id.items() if names.get(i) in (None, one.content)}  # ids of the source
    target_declared = replace(declared, by_id=free) if listed.is_file() else declared
    read, written = _numbered(declared, {}, ids), _numbered(target_declared, {}, target_ids)
    ends = ["</s>"] if hf_config.get("add_source_eos", True) else []
    codes = {i: piece for piece, i in ids.items() if piece.startswith(">>") and piece.endswith("<<")}
    return replace(
        _of_sentencepiece(source, read, [target, source], written, ends, _language_code),
        written=_of_sentencepiece(target, written, [target, source], written, ["</s>"], _language_code),
        declared=codes,
    )


def _listed_ids(path: Path) -> dict[str, int]:
    """The ids of tokens; `UserError` for anything else, or without an unknown token."""
    ids = read_json(path)
    if "<unk>" not in ids or not all(type(i) is int and is_text(token) for token, i in ids.items()):
        raise UserError(f"{path}: must be tokens with their ids, <unk> among them")
    return ids


def _listed_pieces(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """Pieces of a model, numbered by vocab.json, with an end mark (M2M-100); codes of languages follow the pieces."""
    model, ids = sentencepiece_model(folder / "sentencepiece.bpe.model"), _listed_ids(folder / "vocab.json")
    declared = declared_tokens(folder)
    tokens = _numbered(declared, {"bos_token": "<s>", "sep_token": "</s>"}, ids)
    listed = declared.settings.get("language_codes") or "m2m100"
    if listed not in LANGUAGE_CODES:
        raise unknown(f"{folder / SETTINGS}: language_codes", str(listed), LANGUAGE_CODES)
    codes = {f"__{code}__": i for i, code in enumerate(LANGUAGE_CODES[listed].split(), len(ids))}  # unless in the files
    has_room = hf_config.get("vocab_size", 0) >= len(ids) + len(codes)
    if has_room and not codes.keys() & tokens.ids.keys() and not {*codes.values()} & {*tokens.ids.values()}:
        tokens = replace(tokens, ids={**tokens.ids, **codes})
    special = tokens.special | {token for token in tokens.ids if LANGUAGE.fullmatch(token)}
    tokens = replace(tokens, special=special)
    return _of_sentencepiece(model, tokens, [model], tokens, ["</s>"], lambda text: ([], text))


@dataclass(frozen=True)
class _NumberedTokens:
    """Pieces with special and added tokens."""

    ids: Mapping[str, int]  # of all of them
    splitting: Sequence[AddedToken]  # a text is split at these
    special: Set[str]  # left out of texts that are put together from ids
    clean: Callable[[str], str]  # applied to these texts


def _numbered(declared: DeclaredTokens, special: Mapping[str, str], ids: Mapping[str, int]) -> _NumberedTokens:
    """The ids of special and added tokens: the declared ones, those of the list, or behind it."""
    if (declared.settings.get("sp_model_kwargs") or {}).get("enable_sampling"):
        raise UserError(f"{declared.path}: sp_model_kwargs: enable_sampling is not supported; remove it")
    named = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", **special}
    named |= {name: getattr(token, "content", token) for name, token in declared.named.items() if token}
    more = [token.content for token in [*(declared.extra or ()), *(declared.additional or ())]]
    marks = [*(named[name] for name in (*NAMES, *declared.named) if name in named), *more]
    found = {token.content: i for i, token in declared.by_id.items()}
    for mark in marks:
        found.setdefault(mark, ids.get(mark, len(ids.keys() | found.keys())))
    tokens = {**{mark: AddedToken(mark) for mark in marks}, **{one.content: one for one in declared.by_id.values()}}
    splitting = [] if declared.settings.get("split_special_tokens", False) else [*tokens.values()]
    clean = _spaces_cleaned if declared.settings.get("clean_up_tokenization_spaces") else str
    return _NumberedTokens({**ids, **found}, splitting, frozenset(marks), clean)


def _of_sentencepiece(
    model: Any,
    read: _NumberedTokens,
    writers: Sequence[Any],
    written: _NumberedTokens,
    ends: Sequence[str],
    code_of: Callable[[str], tuple[list[str], str]],
) -> Vocabulary:
    """Texts are cut by a model, and end with `ends`; outputs are put together by the first writer that has all pieces.

    `code_of` takes the code of a language from a text.
    """
    names, pieces = ({i: piece for piece, i in one.ids.items()} for one in (read, written))
    split = token_splitter(read.splitting)

    def encode(text: str) -> list[int]:
        found: list[str] = []
        for part, is_token in split(text):
            code, rest = ([part], "") if is_token else code_of(part)
            found += [*code, *model.encode(rest, out_type=str)]
        return [read.ids.get(piece, read.ids["<unk>"]) for piece in [*found, *ends]]

    def decode(tokens: Sequence[int]) -> str:
        found = [pieces[i] for i in tokens if i in pieces and pieces[i] not in written.special]
        having = (one for one in writers if all(one.piece_to_id(piece) != one.unk_id() for piece in found))
        text = next(having, writers[0]).decode(found)  # which leaves pieces that it does not have as they are
        return written.clean(text.replace("\u2581", " ").strip())

    return Vocabulary(encode, decode, read.ids.get, piece_of=names.get, ends_texts=bool(ends))


def _language_code(text: str) -> tuple[list[str], str]:
    """The target language in front of a text for a multilingual Marian model, and the text behind it.

    >>> _language_code(">>fra<< A dog.")
    (['>>fra<<'], ' A dog.')
    """
    code, found, rest = text.partition("<<")
    return ([code + found], rest) if found and text.startswith(">>") else ([], text)


READERS: dict[tuple[str, ...], VocabularyReader] = {  # the first that has its files
    ("tokenizer.json",): _complete,
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("sentencepiece.bpe.model", "vocab.json"): _listed_pieces,
    ("sentencepiece.bpe.model",): _of_class("sentencepiece.bpe.model"),
    ("spiece.model",): _of_class("spiece.model"),
    ("spm.model",): _of_class("spm.model"),
    ("tokenizer.model",): _of_class("tokenizer.model"),
    ("vocab.json", "merges.txt"): _of_class("vocab.json"),
    ("vocab.txt",): _of_class("vocab.txt"),
}
FILES = (
    *sorted({name for names in READERS for name in names}),
    SETTINGS,
    NAMED,
    ADDED,
    "target_vocab.json",
)
