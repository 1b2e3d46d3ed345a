"""A tokenizer for `assets/tokenizer.js`, which supports the BPE tokenizers that `data/tokenizer.py` trains."""

import json
from typing import Any

import tokenizers
from tokenizers import decoders, normalizers

from headwise.data.tokenizer import Tokenizer, pre_tokenizer
from headwise.errors import UserError

FORMS = {"NFC": "NFC", "NFKC": "NFKC"}  # names in the library and in JavaScript
# Settings of a BPE model besides vocabulary and merges: the defaults only.
PLAIN_BPE = {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
    "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
}  # fmt: skip


def page_tokenizer(tokenizer: Tokenizer, origin: str) -> dict[str, Any]:
    """`Content` of assets/tokenizer.js; `UserError` naming the first unsupported part."""
    content = json.loads(tokenizer.backend.to_str())
    foreign = unsupported_part(content)
    if foreign:
        raise UserError(f"{origin}: --to web does not support this tokenizer: {foreign}")
    steps = [step["type"] for step in content["normalizer"]["normalizers"]]
    added = content["added_tokens"]
    return {
        "forms": [FORMS[step] for step in steps if step in FORMS],
        "lowercase": "Lowercase" in steps,
        "pieces": [tokenizer.piece(i) for i in range(tokenizer.vocab_size)],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]],
        "special": [token["id"] for token in added if token["special"]],
        "declared": {str(i): text for i, text in tokenizer.declared.items()},
    }


def unsupported_part(content: dict[str, Any]) -> str:
    """The first unsupported part of a `tokenizer.json`, as the end of a sentence; "" if there is none."""
    ours = tokenizers.Tokenizer(tokenizers.models.BPE())
    ours.pre_tokenizer = pre_tokenizer()
    ours.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    ours.normalizer = normalizers.Sequence([normalizers.Prepend(" ")])
    known = json.loads(ours.to_str())
    model = {name: value for name, value in content["model"].items() if name not in ("vocab", "merges")}
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, not BPE (data.subword = 'bpe')"
    strange = [name for name, value in model.items() if value != PLAIN_BPE.get(name, value)]
    if strange:
        return f"its BPE model has {strange[0]} = {model[strange[0]]!r}"
    for part in ("pre_tokenizer", "decoder", "post_processor"):
        if content[part] != known[part]:
            return f"its {part} is not one of `headwise train`"
    return _foreign_step(content["normalizer"] or {}, known["normalizer"]) or _foreign_token(content["added_tokens"])


def _foreign_step(found: dict[str, Any], known: dict[str, Any]) -> str:
    steps: list[dict[str, Any]] = found.get("normalizers") or []
    types = [step["type"] for step in steps[:-1]]
    ordered = [step for step in (*FORMS, "Lowercase") if step in types]
    if steps[-1:] != known["normalizers"] or types != ordered:
        return "its normalizer is not one of `headwise train`"
    return ""


def _foreign_token(added: list[dict[str, Any]]) -> str:
    for token in added:
        strange = [name for name in ("single_word", "lstrip", "rstrip", "normalized") if token[name]]
        if strange:
            return f"its token {token['content']} is {strange[0]}"
    return ""
