"""Tokenizers as the tokenizer classes of transformers 5 build them, with the tokenizers library.

A class says how a text is simplified and split before its pieces are found, which special tokens there are, and which
of them stand around a text. The pieces are those of its own file (SentencePiece, merges, WordPieces) or of
tokenizer.json, whose other steps do not count then: the settings in tokenizer_config.json do. Checked against
transformers 5.23. The class of a folder is found as its `AutoTokenizer` finds it.

See `vocabulary` for Marian and M2M-100, which use SentencePiece itself, and `runtime.tokenizers.languages` for language
codes around a text.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headwise.families.registry import traits_of
from headwise.runtime.tokenizers.sentencepiece_file import SentencePieceFile, read_sentencepiece
from headwise.runtime.tokenizers.special_tokens import (
    ADDED,
    ADDITIONAL,
    DECODER,
    NAMES,
    DeclaredTokens,
    add_tokens,
    declared_tokens,
    like,
)

OTHER_NAMES = {
    "BartTokenizer": "RobertaTokenizer",
    "DistilBertTokenizer": "BertTokenizer",
    "ElectraTokenizer": "BertTokenizer",
    "MT5Tokenizer": "T5Tokenizer",
}
UNDERLINE = "\u2581"  # of SentencePiece, for a blank
MBART_CODES = (  # of languages, in the order of their ids
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
)
MBART50_CODES = (
    f"{MBART_CODES} af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX "
    "sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Settings = Mapping[str, Any]  # of tokenizer_config.json
ScoredPieces = list[tuple[str, float]]  # with their scores, by id
ScoredPiecesOf = Callable[[SentencePieceFile, Settings, Mapping[str, str]], ScoredPieces]
Named = Mapping[str, AddedToken | None]  # special tokens


def class_of(settings: Mapping[str, Any], hf_config: Mapping[str, Any]) -> str:
    """The name of a folder's class of tokenizers; "" if no file names one, and its family has none.

    That of tokenizer_config.json, else that of config.json, else that of the family.
    """
    traits = traits_of(hf_config.get("model_type"))
    named = str(settings.get("tokenizer_class") or hf_config.get("tokenizer_class") or "").removesuffix("Fast")
    named = OTHER_NAMES.get(named, named)
    if not named or (traits.misnames_tokenizer and traits.tokenizer != named):
        return traits.tokenizer or ""
    return "" if traits.tokenizer == "" and named != "LlamaTokenizer" else named


@dataclass(frozen=True)
class TextSteps:
    """The steps before a text is split into pieces, and those that turn pieces into a text."""

    normalizer: Any
    pre_tokenizer: Any
    decoder: Any


@dataclass(frozen=True)
class TokenizerClass:
    """A class of tokenizers."""

    file: str  # of its vocabulary
    model: str  # the type of it in tokenizer.json
    special: Mapping[str, AddedToken]  # unless the files name others
    steps: Callable[[Settings, bytes], TextSteps]  # of its settings, and the table of characters of SentencePiece
    around: Callable[[Settings, Mapping[str, str]], tuple[str, str]]  # one text and two, as templates
    pieces: ScoredPiecesOf = lambda file, *_: file.pieces
    extra: Callable[[Settings, list[str]], list[str]] = lambda _, given: given  # further special tokens
    ends_of_file: bool = False  # whether a tokenizer.json says what stands around a text, such as codes of languages


# --- Special tokens ---


def _named(mask_token: AddedToken | None, **texts: str) -> dict[str, AddedToken]:
    """Special tokens by their names; `mask_token` is one that takes the blank before it."""
    found = {f"{name}_token": AddedToken(text, special=True) for name, text in texts.items()}
    return {**found, "mask_token": mask_token} if mask_token else found


MASK = AddedToken("<mask>", lstrip=True, special=True)
NLLB_MASK = AddedToken("<mask>", lstrip=True, normalized=True, special=True)
BRACKETED = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
FAIRSEQ = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
ENDED = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
END_OF_TEXT = {name: "<|endoftext|>" for name in ("bos", "eos", "unk")}


def _sentinels(settings: Settings, given: list[str]) -> list[str]:
    """T5's, for masked parts of a text."""
    has = any("<extra_id_" in token for token in given)
    return given if has else [*given, *(f"<extra_id_{i}>" for i in range(settings.get("extra_ids", 100)))]


def _pegasus_extra(settings: Settings, given: list[str]) -> list[str]:
    mask = settings.get("mask_token_sent", "<mask_1>")
    unused = [f"<unk_{i}>" for i in range(2, settings.get("offset", 103))]
    return [*([mask] if mask and mask not in given else []), *unused]


def _with(*codes: str) -> Callable[[Settings, list[str]], list[str]]:
    return lambda _, given: list(dict.fromkeys([*codes, *given]))


# --- ScoredPieces from a file of SentencePiece ---


def _t5_pieces(file: SentencePieceFile, settings: Settings, named: Mapping[str, str]) -> ScoredPieces:
    n = settings.get("extra_ids", 100)
    return [*file.pieces, *((f"<extra_id_{i}>", 0.0) for i in reversed(range(n)))]


def _fairseq_pieces(
    *codes: str, mask: bool = True
) -> Callable[[SentencePieceFile, Settings, Mapping[str, str]], ScoredPieces]:
    """Four special tokens before the pieces, whose own are three; codes of languages and a mask behind them."""

    def pieces(file: SentencePieceFile, settings: Settings, named: Mapping[str, str]) -> ScoredPieces:
        before = [(named[f"{name}_token"], 0.0) for name in ("bos", "pad", "eos", "unk")]
        behind = [*codes, named["mask_token"]] if mask else settings.get(ADDITIONAL) or []
        return [*before, *file.pieces[3:], *((token, 0.0) for token in behind)]

    return pieces


def _camembert_pieces(file: SentencePieceFile, settings: Settings, named: Mapping[str, str]) -> ScoredPieces:
    before = ["<s>NOTUSED", named["pad_token"], "</s>NOTUSED", named["unk_token"]]
    unused = [("<unk>NOTUSED", -100.0)]  # no text has it
    return [*((token, 0.0) for token in before), *unused, *file.pieces[1:], (named["mask_token"], 0.0)]


def _pegasus_pieces(file: SentencePieceFile, settings: Settings, named: Mapping[str, str]) -> ScoredPieces:
    masks = [settings.get("mask_token_sent", "<mask_1>"), named["mask_token"]]
    ids = {token["content"]: int(i) for i, token in settings.get(DECODER, {}).items()}
    masks.sort(key=lambda mask: ids.get(mask, 0))
    before = dict.fromkeys([named["pad_token"], named["eos_token"], *filter(None, masks)])
    unused = [(f"<unk_{i}>", -100.0) for i in range(2, settings.get("offset", 103))]
    return [*((token, 0.0) for token in before), *unused, *file.pieces[2:]]


# --- TextSteps ---


def _charsmap(table: bytes) -> list[Any]:
    return [normalizers.Precompiled(table)] if table else []


def _metaspace(scheme: str, normalizer: Any, by_words: bool) -> TextSteps:
    space = pre_tokenizers.Metaspace(UNDERLINE, scheme)
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space]) if by_words else space
    return TextSteps(normalizer, split, decoders.Metaspace(UNDERLINE, scheme))


def _words(settings: Settings, table: bytes) -> TextSteps:
    """T5, XLM-R, CamemBERT."""
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    return _metaspace(scheme, normalizers.Sequence(_charsmap(table)) if table else None, by_words=True)


def _always_words(settings: Settings, table: bytes) -> TextSteps:
    return _words({}, table)


def _mbart_steps(settings: Settings, table: bytes) -> TextSteps:
    return _words({}, b"")


def _blanks_joined(settings: Settings, table: bytes) -> TextSteps:
    """Pegasus, mBART-50, NLLB."""
    simple = normalizers.Sequence([*_charsmap(table), normalizers.Replace(Regex(" {2,}"), " ")])
    return _metaspace("always", simple, by_words=False)


def _pegasus_steps(settings: Settings, table: bytes) -> TextSteps:
    steps = _blanks_joined(settings, table)
    lines = normalizers.Sequence([normalizers.Replace(Regex("\\n"), " "), steps.normalizer])
    return steps if table else TextSteps(lines, steps.pre_tokenizer, steps.decoder)


def _nllb_steps(settings: Settings, table: bytes) -> TextSteps:
    steps = _blanks_joined(settings, table)
    return steps if table else TextSteps(None, steps.pre_tokenizer, steps.decoder)


def _simplified(keep_accents: bool, lower: bool, table: bytes) -> Any:
    accents = [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    capitals = [normalizers.Lowercase()] if lower else []
    return normalizers.Sequence([*quotes, *accents, *capitals, *_charsmap(table)])


def _albert_steps(settings: Settings, table: bytes) -> TextSteps:
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    simple = _simplified(settings.get("keep_accents", False), settings.get("do_lower_case", True), table)
    return _metaspace(scheme, simple, by_words=True)


def _xlnet_steps(settings: Settings, table: bytes) -> TextSteps:
    return _metaspace("always", _simplified(False, settings.get("do_lower_case", False), table), by_words=True)


def _deberta_steps(settings: Settings, table: bytes) -> TextSteps:
    capitals = [normalizers.Lowercase()] if settings.get("do_lower_case", False) else []
    blanks = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
    simple = normalizers.Sequence([*capitals, blanks, normalizers.NFC(), normalizers.Strip(left=False, right=True)])
    steps = _metaspace("always" if settings.get("add_prefix_space", True) else "first", simple, by_words=False)
    apart = [pre_tokenizers.Punctuation("isolated")] if settings.get("split_by_punct", False) else []
    return TextSteps(simple, pre_tokenizers.Sequence([*apart, steps.pre_tokenizer]), steps.decoder)


def _llama_steps(settings: Settings, table: bytes) -> TextSteps:
    """A blank before a text: only at its beginning, or with `legacy` behind each special token, too."""
    blank = settings.get("add_prefix_space")
    blank = True if blank is None else blank
    scheme = ("always" if settings.get("legacy") else "first") if blank else "never"
    first = [decoders.Strip(" ", 1, 0)] if blank else []
    parts = [decoders.Replace(UNDERLINE, " "), decoders.ByteFallback(), decoders.Fuse(), *first]
    return TextSteps(None, pre_tokenizers.Metaspace(UNDERLINE, scheme, split=False), decoders.Sequence(parts))


def _gemma_steps(settings: Settings, table: bytes) -> TextSteps:
    decoder = decoders.Sequence([decoders.Replace(UNDERLINE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return TextSteps(normalizers.Replace(" ", UNDERLINE), pre_tokenizers.Split(" ", "merged_with_previous"), decoder)


def _byte_level_steps(settings: Settings, table: bytes) -> TextSteps:
    blank = bool(settings.get("add_prefix_space", False))
    return TextSteps(None, pre_tokenizers.ByteLevel(add_prefix_space=blank), decoders.ByteLevel())


def _neox_steps(settings: Settings, table: bytes) -> TextSteps:
    steps = _byte_level_steps(settings, table)
    return TextSteps(normalizers.NFC(), steps.pre_tokenizer, steps.decoder)


def _qwen_steps(settings: Settings, table: bytes) -> TextSteps:
    blank = bool(settings.get("add_prefix_space"))
    parts = [
        pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=blank, use_regex=False),
    ]
    return TextSteps(normalizers.NFC(), pre_tokenizers.Sequence(parts), decoders.ByteLevel())


def _bert_steps(settings: Settings, table: bytes) -> TextSteps:
    simple = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    return TextSteps(simple, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##"))


# --- Around a text ---


def _around(one: str, two: str) -> Callable[[Settings, Mapping[str, str]], tuple[str, str]]:
    return lambda *_: (one, two)


def _start_and_end(start: bool) -> Callable[[Settings, Mapping[str, str]], tuple[str, str]]:
    """A start token unless told otherwise, or only if told to (`start`); an end token if told to."""

    def around(settings: Settings, named: Mapping[str, str]) -> tuple[str, str]:
        before = ["bos"] if settings.get("add_bos_token", start) else []
        behind = ["eos"] if settings.get("add_eos_token", False) else []
        one = " ".join([*before, "$A:0", *behind])
        return one, " ".join([one, *(f"{name}:1" for name in before), "$B:1", *(f"{name}:1" for name in behind)])

    return around


CLS_SEP = _around("cls:0 $A:0 sep:0", "cls:0 $A:0 sep:0 $B:1 sep:1")
BOS_EOS = _around("bos $A eos", "bos $A eos eos $B eos")
CLS_SEP_SEP = _around("cls $A sep", "cls $A sep sep $B sep")
END = _around("$A eos", "$A $B eos")


CLASSES: dict[str, TokenizerClass] = {
    "T5Tokenizer": TokenizerClass(
        "spiece.model", "Unigram", _named(None, **ENDED), _always_words, _around("$A eos", "$A eos $B eos"), _t5_pieces,
        _sentinels,
    ),
    "PegasusTokenizer": TokenizerClass(
        "spiece.model", "Unigram", _named(None, **ENDED, mask="<mask_2>"), _pegasus_steps, END, _pegasus_pieces,
        _pegasus_extra,
    ),
    "AlbertTokenizer": TokenizerClass(
        "spiece.model", "Unigram", _named(None, bos="[CLS]", eos="[SEP]", unk="<unk>", pad="<pad>", **BRACKETED),
        _albert_steps, CLS_SEP, ends_of_file=True,
    ),
    "XLNetTokenizer": TokenizerClass(
        "spiece.model", "Unigram", _named(MASK, **{**FAIRSEQ, "sep": "<sep>", "cls": "<cls>"}), _xlnet_steps,
        _around("$A:0 sep:0 cls:2", "$A:0 sep:0 $B:1 sep:1 cls:2"), extra=lambda _, given: given or ["<eop>", "<eod>"],
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "spm.model", "Unigram", _named(None, bos="[CLS]", eos="[SEP]", unk="[UNK]", pad="[PAD]", **BRACKETED),
        _deberta_steps, CLS_SEP,
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        "sentencepiece.bpe.model", "Unigram", _named(None, **FAIRSEQ), _words, BOS_EOS, _fairseq_pieces(),
    ),
    "CamembertTokenizer": TokenizerClass(
        "sentencepiece.bpe.model", "Unigram", _named(MASK, **FAIRSEQ), _words, BOS_EOS, _camembert_pieces,
        lambda _, given: given or ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"],
    ),
    "MBartTokenizer": TokenizerClass(
        "sentencepiece.bpe.model", "Unigram", _named(MASK, **FAIRSEQ), _mbart_steps, END,
        _fairseq_pieces(*MBART_CODES.split()), _with(*MBART_CODES.split()), True,
    ),
    "MBart50Tokenizer": TokenizerClass(
        "sentencepiece.bpe.model", "Unigram", _named(MASK, **FAIRSEQ), _blanks_joined, END,
        _fairseq_pieces(*MBART50_CODES.split()), _with(*MBART50_CODES.split()), True,
    ),
    "NllbTokenizer": TokenizerClass(
        "sentencepiece.bpe.model", "BPE", _named(NLLB_MASK, **FAIRSEQ), _nllb_steps, END, _fairseq_pieces(mask=False),
        ends_of_file=True,
    ),
    "LlamaTokenizer": TokenizerClass(
        "tokenizer.model", "BPE", _named(None, bos="<s>", eos="</s>", unk="<unk>"), _llama_steps, _start_and_end(True),
        ends_of_file=True,
    ),
    "GemmaTokenizer": TokenizerClass(
        "tokenizer.model", "BPE", _named(None, bos="<bos>", eos="<eos>", unk="<unk>", pad="<pad>", mask="<mask>"),
        _gemma_steps, _start_and_end(True),
        ends_of_file=True,
    ),
    "GPT2Tokenizer": TokenizerClass(
        "vocab.json", "BPE", _named(None, **END_OF_TEXT), _byte_level_steps, _start_and_end(False), ends_of_file=True
    ),
    "WhisperTokenizer": TokenizerClass(
        "vocab.json", "BPE", _named(None, **END_OF_TEXT), _byte_level_steps, _start_and_end(False), ends_of_file=True
    ),
    "Qwen2Tokenizer": TokenizerClass(
        "vocab.json", "BPE", _named(None, **{name: "<|endoftext|>" for name in ("eos", "unk", "pad")}), _qwen_steps,
        _start_and_end(False), ends_of_file=True,
    ),
    "GPTNeoXTokenizer": TokenizerClass(
        "vocab.json", "BPE", _named(None, **END_OF_TEXT, pad="<|padding|>"), _neox_steps, _around("$A:0", "$A:0 $B:1")
    ),
    "RobertaTokenizer": TokenizerClass("vocab.json", "BPE", _named(None, **FAIRSEQ), _byte_level_steps, CLS_SEP_SEP),
    "BertTokenizer": TokenizerClass(
        "vocab.txt", "WordPiece", _named(None, unk="[UNK]", pad="[PAD]", **BRACKETED), _bert_steps, CLS_SEP
    ),
    "MPNetTokenizer": TokenizerClass(
        "vocab.txt", "WordPiece", _named(MASK, **{**FAIRSEQ, "unk": "[UNK]"}), _bert_steps, CLS_SEP_SEP
    ),
}  # fmt: skip


def class_tokenizer(
    folder: Path, hf_config: Mapping[str, Any], file: str, loaded: Tokenizer | None = None
) -> Tokenizer:
    """The tokenizer of a folder, as its class builds it; it splits texts at special and added tokens.

    Args:
        folder: of the model.
        hf_config: its config.json.
        file: the name of the vocabulary's file.
        loaded: what tokenizer.json says, if that is the file. Its own steps count only without a class.

    Raises:
        UserError: a token is damaged or cannot have its id, or a model of SentencePiece cannot be read.
    """
    declared = declared_tokens(folder, loaded.get_added_tokens_decoder() if loaded else {})
    size, name = hf_config.get("vocab_size"), class_of(declared.settings, hf_config)
    kind = CLASSES.get(name)
    if loaded and (kind is None or not _is_built(kind, loaded)):
        own = {key: token for key, token in _named_tokens({}, declared).items() if key in declared.named}
        add_tokens(loaded, declared, own, [*(declared.extra or ()), *(declared.additional or ())], size)
        return loaded
    if kind is None or (loaded is None and kind.file != file):
        name = _usual_class(file, str(hf_config.get("model_type")))
        kind = CLASSES[name]
    if (
        name == "WhisperTokenizer" and declared.path.name == ADDED
    ):  # languages and tasks, which it does not call special
        marks = {i: AddedToken(token.content, special=True) for i, token in declared.by_id.items()}
        declared = replace(declared, by_id=marks)
    named = _named_tokens(kind.special, declared)
    texts = {key: token.content for key, token in named.items() if token}
    tokenizer, table, marked = _with_pieces(folder / file, loaded, kind, declared, texts)
    steps = kind.steps(declared.settings, table)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(tokenizer, part, getattr(steps, part))
    own = declared.extra
    if own is None:
        more = kind.extra(declared.settings, [*marked, *_texts(declared.additional)])
        own = [AddedToken(token, special=marked.get(token, True), normalized=False) for token in more]
    add_tokens(tokenizer, declared, named, [*own, *(declared.additional or ())], size)
    is_named = declared.settings.get("tokenizer_class") or hf_config.get("tokenizer_class")
    if loaded and (kind.ends_of_file or not is_named):
        tokenizer.post_processor = loaded.post_processor
    else:
        tokenizer.post_processor = _ends(kind, tokenizer, declared.settings, texts)
    return tokenizer


def _with_pieces(
    path: Path, loaded: Tokenizer | None, kind: TokenizerClass, declared: DeclaredTokens, named: Mapping[str, str]
) -> tuple[Tokenizer, bytes, Mapping[str, bool]]:
    """A tokenizer with the pieces of a file, its table of characters, and its symbols (True: control symbols)."""
    if loaded:
        tokenizer = Tokenizer(loaded.model)
        if kind.model == "WordPiece":
            tokenizer.model.unk_token = named["unk_token"]
        return tokenizer, _table_of(loaded), {}
    if kind.model == "WordPiece":
        return Tokenizer(models.WordPiece.from_file(str(path), unk_token=named["unk_token"])), b"", {}
    if path.name == "vocab.json":
        return Tokenizer(models.BPE.from_file(str(path), str(path.with_name("merges.txt")))), b"", {}
    found = read_sentencepiece(path)
    pieces = kind.pieces(found, {**declared.settings, ADDITIONAL: _texts(declared.additional)}, named)
    return Tokenizer(_model(found, pieces, named)), found.charsmap, found.marked


def _texts(tokens: Sequence[AddedToken] | None) -> list[str]:
    return [token.content for token in tokens or ()]


def _is_built(kind: TokenizerClass, loaded: Tokenizer) -> bool:
    """Whether a class can use the vocabulary of a tokenizer.json."""
    is_bytes = isinstance(loaded.decoder, decoders.ByteLevel)
    fits = kind.steps in (_byte_level_steps, _qwen_steps, _neox_steps) or not is_bytes
    return type(loaded.model).__name__ == kind.model and fits


def _usual_class(file: str, family: str) -> str:
    """The class of a vocabulary's file, where neither a file nor the family names one."""
    if file == "vocab.json":
        return "RobertaTokenizer" if family in ("bart", "roberta") else "GPT2Tokenizer"
    if file == "sentencepiece.bpe.model":
        return "NllbTokenizer" if family == "m2m_100" else "XLMRobertaTokenizer"
    return next(name for name, kind in CLASSES.items() if kind.file == file)


def _named_tokens(special: Mapping[str, AddedToken], declared: DeclaredTokens) -> Named:
    """The special tokens of a class with those of the files; one that is a text behaves as the class says."""
    found: dict[str, AddedToken | None] = {}
    for name in dict.fromkeys([*NAMES, *declared.named]):
        if name in declared.named:
            token = declared.named[name]
            plain = AddedToken("", special=True)
            found[name] = like(special.get(name, plain), token) if isinstance(token, str) else token
        elif name in special:
            found[name] = special[name]
    return found


def _model(file: SentencePieceFile, pieces: ScoredPieces, named: Mapping[str, str]) -> Any:
    """The model of the kind that the file was trained as."""
    unknown = file.pieces[file.unk_id][0]
    names = [piece for piece, _ in pieces]
    unknown = unknown if unknown in names else named["unk_token"]
    if unknown not in names:
        raise ValueError(f"{unknown} is its piece {file.unk_id}, where this class of tokenizers has no unknown token")
    unk_id = names.index(unknown)
    if not file.is_bpe:
        return models.Unigram(pieces, unk_id, file.byte_fallback)
    ids = {piece: i for i, piece in enumerate(names)}
    return models.BPE(ids, _merges(ids), unk_token=names[unk_id], fuse_unk=True, byte_fallback=file.byte_fallback)


def _merges(ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges of a model that has none: all pairs of pieces that are a piece, in the order of these."""
    pairs = [
        (i, at, piece[:at], piece[at:])
        for piece, i in ids.items()
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    return [(left, right) for *_, left, right in sorted(pairs)]


def _table_of(loaded: Tokenizer) -> bytes:
    """The table of characters in the normalizer of a tokenizer.json."""
    if loaded.normalizer is None:
        return b""
    state = json.loads(loaded.normalizer.__getstate__())
    parts = state.get("normalizers", [state])
    return next(
        (base64.b64decode(part["precompiled_charsmap"]) for part in parts if part["type"] == "Precompiled"), b""
    )


def _ends(kind: TokenizerClass, tokenizer: Tokenizer, settings: Settings, named: Mapping[str, str]) -> Any:
    """The post-processor that puts special tokens around a text; tokens that are not in the vocabulary are left out."""
    ids = {token: i for token in named.values() if (i := tokenizer.token_to_id(token)) is not None}
    if kind.around is CLS_SEP_SEP and {named.get("sep_token"), named.get("cls_token")} <= ids.keys():
        ends = [(named[name], ids[named[name]]) for name in ("sep_token", "cls_token")]
        blank = bool(settings.get("add_prefix_space", False))
        trim = settings.get("trim_offsets", True)
        return processors.RobertaProcessing(ends[0], ends[1], trim_offsets=trim, add_prefix_space=blank)
    templates = [[_of_template(part, named) for part in one.split()] for one in kind.around(settings, named)]
    one, two = ([part for part in parts if part[0] == "$" or part.rpartition(":")[0] in ids] for parts in templates)
    return processors.TemplateProcessing(one, two, list(ids.items()))


def _of_template(part: str, named: Mapping[str, str]) -> str:
    """A part of a template: `cls:1` becomes the token of this name with this type."""
    name, _, kind = part.partition(":")
    return part if part[0] == "$" else f"{named.get(f'{name}_token', '')}:{kind or 0}"
