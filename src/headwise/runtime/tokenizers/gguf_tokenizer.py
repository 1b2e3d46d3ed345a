"""The tokenizer of a GGUF file, as a tokenizer of the tokenizers library.

Two kinds: byte-level BPE with merges ("gpt2"), whose splitting of texts has a name, and BPE of SentencePiece with
scores ("llama"). Patterns are those of the original models' tokenizer.json, which llama.cpp names in `llama-vocab.cpp`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headwise.errors import UserError
from headwise.runtime.formats.gguf_file import GGUFFile

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # types of tokens
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
WORDS += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3, QWEN = "llama-bpe", "qwen2"
PATTERNS = {LLAMA_3: WORDS % "{1,3}", QWEN: WORDS % ""}
OTHER_NAMES = {"llama3": LLAMA_3, "llama-v3": LLAMA_3, "deepseek-r1-qwen": QWEN}
GPT_2, DIGITS = ("gpt-2",), ("smollm",)  # with GPT-2's pattern; the latter after splitting digits
LONGEST = 256  # characters of a token that is merged from others, in pairs at all places; SentencePiece has 16
IDS = {"bos": "bos_token_id", "eos": "eos_token_id", "unknown": "unk_token_id", "padding": "pad_token_id"}


def tokenizer_of(file: GGUFFile) -> Tokenizer:
    """The tokenizer; `UserError` if it is of another kind."""
    kind, tokens = _of(file, "model"), _of(file, "tokens")
    if not tokens or len(set(tokens)) != len(tokens):
        raise UserError(f"{file.path}: has no list of different tokens; the file is damaged")
    types = _of(file, "token_type") or [1] * len(tokens)
    if kind not in ("gpt2", "llama") or len(types) != len(tokens):
        raise UserError(f"{file.path}: tokenizer.ggml.model = {str(kind)[:60]} is not supported; import the original")
    tokenizer = _byte_level(file, tokens) if kind == "gpt2" else _sentencepiece(file, tokens, types)
    added = [
        AddedToken(token, special=type_ in (UNKNOWN, CONTROL), normalized=False)
        for token, type_ in zip(tokens, types, strict=True)
        if type_ in (UNKNOWN, CONTROL, USER_DEFINED) and token
    ]
    tokenizer.add_tokens(added)
    _add_ends(file, tokenizer, tokens, has_start=kind == "llama" or _splitting(file) == LLAMA_3)
    return tokenizer


def tokenizer_files(file: GGUFFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of tokenizer_config.json and of generation_config.json."""
    tokens = _of(file, "tokens") or []
    ids = {theirs: _id(file, name) for name, theirs in IDS.items()}
    settings = {name.removesuffix("_id"): tokens[i] for name, i in ids.items() if i is not None}
    if template := file.metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    ends = [i for name in ("eos", "eot", "eom") if (i := _id(file, name)) is not None]
    known = {name: i for name, i in ids.items() if i is not None and name != "unk_token_id"}
    return settings, {**known, **({"eos_token_id": list(dict.fromkeys(ends))} if ends else {})}


def _of(file: GGUFFile, name: str) -> Any:
    return file.metadata.get(f"tokenizer.ggml.{name}")


def _id(file: GGUFFile, name: str) -> int | None:
    found = _of(file, f"{name}_token_id")
    return found if found is not None and 0 <= found < len(_of(file, "tokens") or ()) else None


def _splitting(file: GGUFFile) -> str:
    """How texts are split into words before merging."""
    name = str(_of(file, "pre") or ("qwen2" if file.metadata["general.architecture"].startswith("qwen") else ""))
    return OTHER_NAMES.get(name, name)


def _byte_level(file: GGUFFile, tokens: Sequence[str]) -> Tokenizer:
    name, listed = _splitting(file), _of(file, "merges") or []
    merges = [tuple(merge.split(" ")) for merge in listed]
    ids = {token: i for i, token in enumerate(tokens)}
    if not all(len(merge) == 2 and {*merge, "".join(merge)} <= ids.keys() for merge in merges):
        raise UserError(f"{file.path}: has merges of tokens that are not in its vocabulary; the file is damaged")
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=name == LLAMA_3))
    if name in PATTERNS:
        split = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    elif name in (*GPT_2, *DIGITS):
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if name in DIGITS else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, byte_level])
    else:
        raise UserError(f"{file.path}: tokenizer.ggml.pre = '{name[:60]}' is not supported; import the original")
    if name == QWEN:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(file: GGUFFile, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    scores = _of(file, "scores") or []
    if len(scores) != len(tokens):
        raise UserError(f"{file.path}: has {len(scores)} scores for {len(tokens)} tokens; the file is damaged")
    ids = {token: i for i, token in enumerate(tokens)}
    mergeable = {token: scores[i] for i, token in enumerate(tokens) if types[i] not in (UNKNOWN, CONTROL, BYTE)}
    if (longest := max(map(len, mergeable), default=0)) > LONGEST:
        raise UserError(f"{file.path}: has a token of {longest:,} characters; SentencePiece makes none; it is damaged")
    unknown = next((token for token, type_ in zip(tokens, types, strict=True) if type_ == UNKNOWN), None)
    model = models.BPE(ids, list(merges_of(mergeable, ids)), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    prepend = [normalizers.Prepend("\u2581")] if _of(file, "add_space_prefix") is not False else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "\u2581")])
    strip = [decoders.Strip(" ", 1, 0)] if prepend else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def merges_of(scores: Mapping[str, float], ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The merges of a SentencePiece model, which has none: all pairs of tokens that are a token, by its score.

    >>> list(merges_of({"a": -1.0, "b": -2.0, "ab": -4.0, "aba": -3.0}, {"a": 0, "b": 1, "ab": 2, "aba": 3}))
    [('ab', 'a'), ('a', 'b')]
    """

    def pairs(token: str) -> list[tuple[str, str]]:
        found = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(left, right) for left, right in found if left in scores and right in scores]
        return sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))

    ranked = sorted(scores, key=lambda token: -scores[token])
    return chain.from_iterable(map(pairs, ranked))


def _add_ends(file: GGUFFile, tokenizer: Tokenizer, tokens: Sequence[str], has_start: bool) -> None:
    """Start and end tokens around a text, if the file or the kind of tokenizer says so."""
    start, end = _id(file, "bos"), _id(file, "eos")
    wanted = _of(file, "add_bos_token")
    before = [tokens[start]] if start is not None and (has_start if wanted is None else wanted) else []
    behind = [tokens[end]] if end is not None and _of(file, "add_eos_token") else []
    if before or behind:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *behind],
            pair=[*before, "$A", *behind, *(f"{token}:1" for token in before), "$B:1", *(f"{t}:1" for t in behind)],
            special_tokens=[(tokens[i], i) for i in (start, end) if i is not None],
        )
