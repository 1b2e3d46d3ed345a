"""Between text and ids for checkpoints of the families, whichever files their vocabulary came in.

`tokenizer.json` says everything by itself. Families older than it have files of their own kind: two SentencePiece
models (Marian), one (T5, XLNet, ALBERT, DeBERTa, mBART, LLaMA 1 and 2), merges (GPT-2, BART, RoBERTa, Whisper) or
WordPieces (BERT, ELECTRA, MPNet).

Not here: our own tokenizer (`headwise.data`), chat templates, language codes.
"""

import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.implementations import BertWordPieceTokenizer, ByteLevelBPETokenizer
from tokenizers.processors import RobertaProcessing

from headwise.checkpoint.layout import read_json
from headwise.errors import UserError

CAMEMBERT = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")  # as it has them: some of them twice
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # before the pieces of models made with it, whose own marks are three
LONGEST_TOKEN = 4096  # bytes in a tokenizer.json; usual ones have 128 blanks at most
ADDED, SETTINGS = "added_tokens.json", "tokenizer_config.json"
MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")  # of families with merges, where they have them


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
    """How many of the marks of an empty text stand before any text, and how many behind it.

    >>> marks_around([8, 2], [8, 5, 6, 2])
    (1, 1)
    """
    before = 0
    while before < len(marks) and marks[before] == ids[before] and len(ids) > len(marks):
        before += 1
    return before, len(marks) - before


def bare(vocabulary: Vocabulary) -> tuple[Callable[[str], list[int]], list[int], list[int]]:
    """What encodes a text without the marks that a vocabulary puts around it; those before it, and those behind."""
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


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS
    return read_json(path) if path.is_file() else {}


# --- Files of the tokenizers library, and those it reads ---


def _complete(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """What the file says but for the padding and the cutting stored in it, which were those of somebody's batch."""
    tokenizer = library_tokenizer(folder / "tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if _settings(folder).get("split_special_tokens", False):  # what looks like a mark in a text is text
        tokenizer.encode_special_tokens = True
    return _of_library(tokenizer)


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


def _of_library(tokenizer: Any) -> Vocabulary:
    return Vocabulary(
        lambda text: tokenizer.encode(text).ids,
        lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True),
        tokenizer.token_to_id,
        tokenizer.get_vocab,
        tokenizer.id_to_token,
        encode_two=lambda first, second: _two(tokenizer.encode(first, second)),
        encode_at=lambda text: _placed(tokenizer.encode(text)),
    )


def _two(found: Any) -> tuple[list[int], list[int]]:
    return found.ids, found.type_ids


def _placed(found: Any) -> tuple[list[int], list[tuple[int, int]]]:
    return found.ids, found.offsets


def _word_pieces(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """BERT's: words lowercased unless told otherwise, cut into the longest pieces, between [CLS] and [SEP].

    MPNet has <s> and </s> instead; two of them separate two texts.
    """
    settings, fairseq = _settings(folder), hf_config.get("model_type") == "mpnet"
    start, end, mask, pad = ("<s>", "</s>", "<mask>", "<pad>") if fairseq else ("[CLS]", "[SEP]", "[MASK]", "[PAD]")
    tokenizer = BertWordPieceTokenizer(
        str(folder / "vocab.txt"),
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        cls_token=start,
        sep_token=end,
        mask_token=mask,
        pad_token=pad,
    )
    ends = [(mark, i) for mark in (end, start) if (i := tokenizer.token_to_id(mark)) is not None]
    if fairseq and len(ends) == 2:
        tokenizer._tokenizer.post_processor = RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    return _of_library(tokenizer)


def _merges(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """GPT-2's bytes, merged; BART and RoBERTa put them between <s> and </s>."""
    blank = _settings(folder).get("add_prefix_space", False)
    tokenizer = ByteLevelBPETokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), add_prefix_space=blank, trim_offsets=False
    )
    tokenizer.add_special_tokens([mark for mark in MARKS if tokenizer.token_to_id(mark) is not None])
    _add_marks(tokenizer, folder / ADDED)
    ends = [(mark, i) for mark in ("</s>", "<s>") if (i := tokenizer.token_to_id(mark)) is not None]
    if hf_config.get("model_type") in ("bart", "roberta") and len(ends) == 2:
        tokenizer._tokenizer.post_processor = RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=blank)
    return _of_library(tokenizer)


def _add_marks(tokenizer: Any, path: Path) -> None:
    """Marks that follow the vocabulary, such as Whisper's for languages; `UserError` where their ids leave a gap."""
    listed: dict[str, int] = read_json(path) if path.is_file() else {}
    tokenizer.add_special_tokens(sorted(listed, key=lambda mark: listed[mark]))
    for mark, i in listed.items():
        if tokenizer.token_to_id(mark) != i:
            raise UserError(f"{path}: {mark} cannot have the id {i}: it would be {tokenizer.token_to_id(mark)}")


# --- Files of SentencePiece ---


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


def _spiece(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """Four families call their file so."""
    return {"albert": _albert, "xlnet": _xlnet, "pegasus": _pegasus}.get(str(hf_config.get("model_type")), _t5)(
        folder, hf_config
    )


def _pegasus(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids, behind those of marks that pre-training needed; an end mark."""
    model, offset = sentencepiece_model(folder / "spiece.model"), _settings(folder).get("offset", 103)
    marks = {"<pad>": 0, "</s>": 1, "<mask_1>": 2, "<mask_2>": 3}
    own, names = _own_ids(model, [], [], {}), {i: mark for mark, i in marks.items()}

    def id_of(piece: str) -> int | None:
        found = own.id_of(piece)
        return marks.get(piece, None if found is None else found + offset)

    return Vocabulary(
        lambda text: [*(i + offset for i in model.encode(text)), marks["</s>"]],
        lambda ids: own.decode([i - offset for i in ids if i >= offset]),
        id_of,
        piece_of=lambda i: own.piece_of(i - offset) if i >= offset else names.get(i),
    )


def _t5(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids, an end mark behind them; the last ids of all are T5's sentinels, counted backwards."""
    model, n_ids = sentencepiece_model(folder / "spiece.model"), hf_config.get("vocab_size", 0)
    extra = _settings(folder).get("extra_ids", 100)
    sentinels = {f"<extra_id_{i}>": model.get_piece_size() + extra - 1 - i for i in range(extra)} if n_ids else {}
    return _own_ids(model, before=[], behind=[model.eos_id()], more=sentinels)


def _xlnet(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids, <sep> and <cls> behind them; quotes and, unless told otherwise, accents are simplified."""
    model, settings = sentencepiece_model(folder / "spiece.model"), _settings(folder)
    marks = {i for i in range(model.get_piece_size()) if model.is_control(i) or model.is_unknown(i)}
    simple = _simplification(settings.get("keep_accents", False), settings.get("do_lower_case", False))

    def encode(text: str) -> list[int]:
        first, *others = text.split("<mask>")
        pieces = _commas_apart(model, simple(first))
        for part in others:
            pieces += ["<mask>", *_commas_apart(model, simple(part))]
        return model.piece_to_id([*pieces, "<sep>", "<cls>"])

    def encode_two(first: str, second: str) -> tuple[list[int], list[int]]:
        start, whole = encode(first)[:-1], encode(second)
        return start + whole, [0] * len(start) + [1] * (len(whole) - 1) + [2]

    return Vocabulary(
        encode,
        lambda ids: model.decode([i for i in ids if i not in marks and i < model.get_piece_size()]),
        _own_ids(model, [], [], {}).id_of,
        encode_two=encode_two,
    )


def _simplification(accents: bool, lower: bool) -> Callable[[str], str]:
    """What simplifies quotes and spaces of a text, accents unless they are kept, and capitals if told to."""

    def simple(text: str) -> str:
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not accents:
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text.lower() if lower else text

    return simple


def _albert(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids between [CLS] and [SEP]; texts are simplified as for XLNet, and lowercased unless told
    otherwise.
    """
    settings = _settings(folder)
    simple = _simplification(settings.get("keep_accents", False), settings.get("do_lower_case", True))
    return _bracketed(sentencepiece_model(folder / "spiece.model"), simple)


def _deberta(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids between [CLS] and [SEP]; [MASK] follows them. Texts are lowercased if told to."""
    model, settings = sentencepiece_model(folder / "spm.model"), _settings(folder)
    if settings.get("split_by_punct", False):
        raise UserError(f"{folder / SETTINGS}: split_by_punct = true is not supported")
    return _bracketed(model, str.lower if settings.get("do_lower_case", False) else str)


def _bracketed(model: Any, simple: Callable[[str], str]) -> Vocabulary:
    """The model's own ids between [CLS] and [SEP]; [MASK] is cut out of texts before `simple` changes them."""
    marks = {mark: model.piece_to_id(mark) for mark in ("[CLS]", "[SEP]", "[MASK]")}
    if marks["[MASK]"] == model.unk_id():
        marks["[MASK]"] = model.get_piece_size()
    start, end, mask = marks.values()
    own = _own_ids(model, [], [], marks)

    def pieces(text: str) -> list[int]:
        first, *others = (model.encode(simple(part)) for part in text.split("[MASK]"))
        return [*first, *(i for part in others for i in (mask, *part))]

    def encode_two(first: str, second: str) -> tuple[list[int], list[int]]:
        before, behind = [start, *pieces(first), end], [*pieces(second), end]
        return before + behind, [0] * len(before) + [1] * len(behind)

    return replace(
        own,
        encode=lambda text: [start, *pieces(text), end],
        decode=lambda ids: own.decode([i for i in ids if i not in marks.values()]),
        encode_two=encode_two,
    )


def _commas_apart(model: Any, text: str) -> list[str]:
    """The pieces of a text; a number and the comma behind it are two, though the model knows them as one."""
    found: list[str] = []
    for piece in model.encode(text, out_type=str):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            found.append(piece)
            continue
        first, *others = model.encode(piece[:-1].replace("\u2581", ""), out_type=str)
        first = first if piece[0] == "\u2581" else first.removeprefix("\u2581")
        found += [*filter(None, [first]), *others, ","]
    return found


def _llama(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """The model's own ids behind a start mark."""
    model, settings = sentencepiece_model(folder / "tokenizer.model"), _settings(folder)
    before = [model.bos_id()] if settings.get("add_bos_token", True) else []
    return _own_ids(model, before, [model.eos_id()] if settings.get("add_eos_token", False) else [], more={})


def _own_ids(model: Any, before: list[int], behind: list[int], more: Mapping[str, int]) -> Vocabulary:
    marks = {model.bos_id(), model.eos_id(), model.pad_id(), model.unk_id()}
    names = {i: name for name, i in more.items()}

    def id_of(piece: str) -> int | None:
        known = model.piece_to_id(piece)
        return more.get(piece, known if known != model.unk_id() or piece == model.id_to_piece(known) else None)

    return Vocabulary(
        lambda text: [*before, *model.encode(text), *behind],
        lambda ids: model.decode([i for i in ids if i not in marks and i < model.get_piece_size()]),
        id_of,
        piece_of=lambda i: names.get(i) if i in names or i >= model.get_piece_size() else model.id_to_piece(i),
    )


def _marian(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """Pieces of the source's model, numbered by vocab.json, and an end mark; >>codes<< before a text are one piece.

    Models of OpenNMT have no end mark after the source (`add_source_eos`).
    """
    listed = folder / "target_vocab.json"  # two vocabularies
    ids = _listed_ids(folder / "vocab.json")
    target_ids = _listed_ids(listed) if listed.is_file() else ids
    target = sentencepiece_model(folder / "target.spm")
    written = _marian_side(target, target_ids, target, target_ids, ["</s>"])
    ends = ["</s>"] if hf_config.get("add_source_eos", True) else []
    return replace(
        _marian_side(sentencepiece_model(folder / "source.spm"), ids, target, target_ids, ends), written=written
    )


def _listed_ids(path: Path) -> dict[str, int]:
    """The ids of tokens; `UserError` for anything else, or without an unknown token."""
    ids = read_json(path)
    if "<unk>" not in ids or not all(type(i) is int and is_text(token) for token, i in ids.items()):
        raise UserError(f"{path}: must be tokens with their ids, <unk> among them")
    return ids


def _marian_side(
    read: Any, ids: Mapping[str, int], wrote: Any, written_ids: Mapping[str, int], ends: Sequence[str]
) -> Vocabulary:
    """Texts are cut by one model, and end with `ends`; outputs are put together by the other."""
    names, pieces = ({i: piece for piece, i in one.items()} for one in (ids, written_ids))

    def encode(text: str) -> list[int]:
        code, text = _language_code(text)
        found = [*code, *read.encode(text, out_type=str), *ends]
        return [ids.get(piece, ids["<unk>"]) for piece in found]

    def decode(tokens: Sequence[int]) -> str:
        return wrote.decode([pieces[i] for i in tokens if pieces.get(i) not in (None, "</s>", "<pad>", "<unk>")])

    codes = {i: piece for piece, i in ids.items() if piece.startswith(">>") and piece.endswith("<<")}
    return Vocabulary(encode, decode, ids.get, piece_of=names.get, declared=codes, ends_texts=bool(ends))


def _language_code(text: str) -> tuple[list[str], str]:
    """What a multilingual Marian model is to write, and the text behind it.

    >>> _language_code(">>fra<< A dog.")
    (['>>fra<<'], ' A dog.')
    """
    code, found, rest = text.partition("<<")
    return ([code + found], rest) if found and text.startswith(">>") else ([], text)


def _fairseq(folder: Path, hf_config: Mapping[str, Any]) -> Vocabulary:
    """Pieces numbered by vocab.json (M2M-100) or by the model itself, one further on (mBART, NLLB, XLM-R), or four
    (CamemBERT).

    Behind them come the languages' codes, in the order of special_tokens_map.json.
    """
    model, family = sentencepiece_model(folder / "sentencepiece.bpe.model"), str(hf_config.get("model_type"))
    listed = folder / "vocab.json"
    if listed.is_file():
        ids = _listed_ids(listed)
    elif family == "camembert":
        size = model.get_piece_size()
        ids = {mark: i for i, mark in enumerate(CAMEMBERT)} | {model.id_to_piece(i): i + 4 for i in range(1, size)}
        ids["<mask>"] = size + 4
    else:
        own = range(3, model.get_piece_size())
        ids = {mark: i for i, mark in enumerate(FAIRSEQ)} | {model.id_to_piece(i): i + 1 for i in own}
    pieces = {i: piece for piece, i in ids.items() if piece not in (*FAIRSEQ, *CAMEMBERT, "<mask>")}
    codes = [code for code in _additional_marks(folder) if code not in ids]
    ids |= {code: i for i, code in enumerate(codes, len(ids))}
    names = {i: piece for piece, i in ids.items()}
    before = ["<s>"] if "roberta" in family or family == "camembert" else []

    def encode(text: str) -> list[int]:
        return [ids.get(piece, ids["<unk>"]) for piece in [*before, *model.encode(text, out_type=str), "</s>"]]

    def encode_two(first: str, second: str) -> tuple[list[int], list[int]]:
        found = [*encode(first), ids["</s>"], *encode(second)[1:]]
        return found, [0] * len(found)

    def encode_at(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = [(piece.begin, piece.end) for piece in model.encode(text, out_type="immutable_proto").pieces]
        return encode(text), [(0, 0), *found, (0, 0)]

    return Vocabulary(
        encode,
        lambda tokens: model.decode([pieces[i] for i in tokens if i in pieces]),
        ids.get,
        piece_of=names.get,
        encode_two=encode_two if before else None,
        encode_at=encode_at if before else None,
    )


def _additional_marks(folder: Path) -> list[str]:
    path = folder / "special_tokens_map.json"
    listed = read_json(path).get("additional_special_tokens", []) if path.is_file() else []
    return [mark["content"] if isinstance(mark, dict) else mark for mark in listed]


READERS: dict[tuple[str, ...], VocabularyReader] = {  # the first that has its files
    ("tokenizer.json",): _complete,
    ("source.spm", "target.spm", "vocab.json"): _marian,
    ("sentencepiece.bpe.model",): _fairseq,
    ("spiece.model",): _spiece,
    ("spm.model",): _deberta,
    ("tokenizer.model",): _llama,
    ("vocab.json", "merges.txt"): _merges,
    ("vocab.txt",): _word_pieces,
}
FILES = (
    *sorted({name for names in READERS for name in names}),
    SETTINGS,
    "special_tokens_map.json",
    ADDED,
    "target_vocab.json",
)
