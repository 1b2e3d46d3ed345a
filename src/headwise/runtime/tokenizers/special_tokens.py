"""The special and added tokens that the files of a tokenizer declare, and their place in a tokenizer.

The files are `tokenizer_config.json`, and without `added_tokens_decoder` in it the older `special_tokens_map.json` and
`added_tokens.json`. A text is split at these tokens before anything else happens to it: by the tokenizers library, or
by `token_splitter` for models of SentencePiece that are used as they are.

See `tokenizer_classes` for tokens that a class of tokenizers has without declaring them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Tokenizer

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import read_json

SETTINGS, ADDED, NAMED = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
EXTRA, ADDITIONAL, DECODER = "extra_special_tokens", "additional_special_tokens", "added_tokens_decoder"


@dataclass(frozen=True)
class DeclaredTokens:
    """The special tokens that the files of a folder declare."""

    settings: Mapping[str, Any]  # of tokenizer_config.json
    path: Path  # of the file that has the ids
    named: Mapping[str, AddedToken | str | None]  # by their names, such as "mask_token"; as a text: the class says how
    extra: Sequence[AddedToken] | None  # further special tokens
    additional: Sequence[AddedToken] | None  # the same by their older name, where a class has its own as well
    by_id: Mapping[int, AddedToken]
    in_tokenizer: Mapping[int, AddedToken]  # of tokenizer.json, which count if nothing else has their ids


def tokenizer_values(folder: Path) -> dict[str, Any]:
    """The values of tokenizer_config.json; empty if there is none."""
    path = folder / SETTINGS
    return read_json(path) if path.is_file() else {}


def special_token_texts(folder: Path) -> dict[str, str]:
    """The texts of the special tokens that the files of a folder name, by their names, such as "bos_token"."""
    values = _declared_values(folder, tokenizer_values(folder))
    contents = {name: value.get("content") if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: text for name, text in contents.items() if name.endswith("_token") and isinstance(text, str)}


def _declared_values(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values of tokenizer_config.json, and those of the older file if they count."""
    values = {**settings}
    if ADDITIONAL in settings:
        older = values.pop(ADDITIONAL)
        values[EXTRA] = values.get(EXTRA) or older
    more = folder / NAMED
    if DECODER not in settings and more.is_file():
        for name, value in read_json(more).items():
            joined = name == EXTRA and isinstance(value, list)
            values[name] = [*(values.get(EXTRA) or []), *value] if joined else value
    return values


def declared_tokens(folder: Path, in_tokenizer: Mapping[int, AddedToken] = MappingProxyType({})) -> DeclaredTokens:
    """The special and added tokens of a folder; `in_tokenizer` are those of its tokenizer.json.

    Raises:
        UserError: an entry is no token.
    """
    settings = tokenizer_values(folder)
    values = _declared_values(folder, settings)
    path, by_id = folder / SETTINGS, {}
    extra, additional = (_tokens(path, name, values[name]) if name in values else None for name in (EXTRA, ADDITIONAL))
    specific = values[EXTRA] if isinstance(values.get(EXTRA), dict) else {}
    own = {name: value for name, value in values.items() if name in NAMES or _is_specific(name, value)} | specific
    if DECODER in settings:
        by_id = {int(i): _token(path, DECODER, token) for i, token in settings[DECODER].items()}
    else:
        by_id = dict(in_tokenizer)
        if (folder / ADDED).is_file():
            special = {_token(path, name, own[name]).content for name in NAMES if own.get(name)}
            special |= {token.content for token in [*(extra or ()), *(additional or ())]}
            path = folder / ADDED
            by_id |= {
                i: AddedToken(token, normalized=token not in special, special=token in special)
                for token, i in read_json(path).items()
            }
    known = {token.content: token for token in by_id.values()}
    named = {name: _named(folder / SETTINGS, name, value, known) for name, value in own.items()}
    return DeclaredTokens(settings, path, named, extra, additional, dict(sorted(by_id.items())), in_tokenizer)


def _named(path: Path, name: str, value: Any, known: Mapping[str, AddedToken]) -> AddedToken | str | None:
    if not value:
        return None
    token = _token(path, name, value)
    return known.get(token.content, value if isinstance(value, str) else token)


def _is_specific(name: str, value: Any) -> bool:
    """Whether a setting is a token of this model only, such as "image_token"."""
    is_token = isinstance(value, str) or (isinstance(value, dict) and "content" in value)
    return name.endswith("_token") and is_token


def _tokens(path: Path, name: str, values: Any) -> list[AddedToken]:
    return [_token(path, name, value) for value in values] if isinstance(values, list) else []


def _token(path: Path, name: str, value: Any) -> AddedToken:
    """A token that a file has as a text, or with what it swallows."""
    if isinstance(value, str):
        return AddedToken(value, special=True)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise UserError(f"{path}: {name}: {str(value)[:60]} is no token; copy the file again")
    return AddedToken(value["content"], **{flag: bool(value[flag]) for flag in FLAGS if value.get(flag) is not None})


def add_tokens(
    tokenizer: Tokenizer,
    declared: DeclaredTokens,
    named: Mapping[str, AddedToken | None],
    extra: Sequence[AddedToken],
    size: int | None = None,
) -> None:
    """Make a tokenizer split texts at the declared tokens, and at the `named` and `extra` ones of its class.

    A token that is not in the vocabulary follows it.

    Args:
        tokenizer: gets the tokens.
        declared: of its files.
        named: special tokens by their names, the declared ones among them.
        extra: further special tokens.
        size: of the vocabulary of the network, which no token that the class adds unasked may exceed; None: unknown.

    Raises:
        UserError: a declared token cannot have its id.
    """
    present = tokenizer.get_added_tokens_decoder().values()
    same = {repr(token) for token in present}
    listed = {i: token for i, token in declared.by_id.items() if token.content and repr(token) not in same}
    taken = {"", *(token.content for token in [*present, *listed.values()])}
    own: dict[str, AddedToken] = {}
    pairs: list[tuple[str, AddedToken | None]] = [*named.items(), *((EXTRA, token) for token in extra)]
    for name, token in pairs:
        if token is not None and token.content not in taken:
            in_detail = isinstance(declared.named.get(name), AddedToken)
            own[token.content] = token if in_detail else own.get(token.content, token)
    specials = {token.content for token in filter(None, named.values())}
    chosen = _in_order(tokenizer, declared, listed, [*own.values()], size)
    for token in chosen:
        token.special = token.special or token.content in specials
    tokenizer.add_tokens(chosen)
    for i, token in declared.by_id.items():
        if token.content and (found := tokenizer.token_to_id(token.content)) != i:
            raise UserError(f"{declared.path}: {token.content} cannot have the id {i}: it would be {found}")


def _in_order(
    tokenizer: Tokenizer,
    declared: DeclaredTokens,
    listed: Mapping[int, AddedToken],
    own: Sequence[AddedToken],
    size: int | None,
) -> list[AddedToken]:
    """Tokens in the order in which they get their ids: the listed ones by id, then those of the class.

    Where the listed ids leave a gap, tokens of tokenizer.json and of the class come first.
    """

    def is_new(token: AddedToken) -> bool:
        return tokenizer.token_to_id(token.content) is None

    next_id, fresh, chosen = tokenizer.get_vocab_size(), [*filter(is_new, own)], []
    for i, token in listed.items():
        while is_new(token) and next_id < i and (next_id in declared.in_tokenizer or fresh):
            chosen.append(declared.in_tokenizer.get(next_id) or fresh.pop(0))
            next_id += 1
        chosen.append(token)
        next_id += is_new(token)
    asked = {token.content for token in [*(declared.extra or ()), *(declared.additional or ())]}
    asked |= {str(getattr(token, "content", token)) for token in declared.named.values()}
    room = len(fresh) if size is None else max(0, size - next_id)
    chosen += [token for token in own if not is_new(token)]
    return chosen + [token for n, token in enumerate(fresh) if n < room or token.content in asked]


def like(token: AddedToken, content: str) -> AddedToken:
    """A token with another content, and otherwise the same."""
    return AddedToken(**{**token.__getstate__(), "content": content})


def token_splitter(tokens: Iterable[AddedToken]) -> Callable[[str], list[tuple[str, bool]]]:
    """A function that splits a text into special tokens (True) and other texts (False), the longest token first.

    As in `transformers`, a text also begins at a token that is no token because it is part of a word.

    >>> token_splitter([AddedToken("<sep>", lstrip=True), AddedToken("cat", single_word=True)])("a dog <sep> cats, cat")
    [('a dog', False), ('<sep>', True), (' ', False), ('cats, ', False), ('cat', True)]
    """
    known = {token.content: token for token in tokens if token.content}
    if not known:
        return lambda text: [(text, False)] if text else []
    pattern = re.compile(f"({'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})")

    def split(text: str) -> list[tuple[str, bool]]:
        parts = [[part, part in known] for part in pattern.split(text) if part]
        for i, (part, is_token) in enumerate(parts):
            if not is_token:
                continue
            token, before, behind = known[part], parts[i - 1 : i], parts[i + 1 : i + 2]
            if token.rstrip and behind:
                behind[0][0] = behind[0][0].lstrip()
            if token.lstrip and before:
                before[0][0] = before[0][0].rstrip()
            if token.single_word:
                _join_to_word(parts[i], before, behind)
        return [(part, is_token) for part, is_token in parts if part]

    return split


def _join_to_word(part: list[Any], before: list[list[Any]], behind: list[list[Any]]) -> None:
    """A token that stands for a whole word is text where other characters touch it."""
    for text, other in ((before[0][0][-1:] if before else "", before), (behind[0][0][:1] if behind else "", behind)):
        if text and text != " ":
            other[0][0] = other[0][0] + part[0] if other is before else part[0] + other[0][0]
            other[0][1], part[0] = False, ""
            return
