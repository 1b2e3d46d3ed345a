"""Where guesses for `speculative` search come from, by the words that a caller has for it.

Not here: what guesses (`decode/drafts.py`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.data.corpus import parse_corpora, read_pairs
from sightline.decode.contract import Draft
from sightline.decode.drafts import CopyDraft, MemoryDraft, ModelDraft
from sightline.decode.translator import clean_text
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.verbs import TranslationVerbs

Encode = Callable[[str], list[int]]


def draft_from(origin: str, source: Encode, target: Encode, small: Callable[[str], Draft]) -> Draft:
    """What guesses: "input" (what is copied), a translation memory, or what `small` makes of a model's directory.

    `source` and `target` give the ids of the memory's texts, as the model that checks the guesses has them.
    """
    if origin == "input":
        return CopyDraft()
    if Path(origin).is_dir():
        return small(origin)
    pairs = read_pairs(parse_corpora([origin]))
    return MemoryDraft((source(clean_text(src)), target(clean_text(tgt))) for src, tgt in pairs)


def draft_for(model: "TranslationVerbs", origin: str, device: str) -> Draft:
    """What guesses for a model that we have trained; `origin` as `TranslationVerbs.draft` takes it."""
    encode = model.tokenizer.encode
    return draft_from(origin, encode, encode, lambda path: _model_draft(model, path, device))


def _model_draft(model: "TranslationVerbs", path: str, device: str) -> Draft:
    from sightline.api import load_trained

    small = load_trained(path, device)
    if small.tokenizer.fingerprint != model.tokenizer.fingerprint:
        known = model.paths[0]
        raise UserError(f"{path}: has another tokenizer than {known}; a draft must be trained with the same")
    return ModelDraft(small._translator.form(small.decode_config), model._translator.special)
