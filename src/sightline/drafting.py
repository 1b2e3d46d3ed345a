"""Where guesses for `speculative` search come from, by the words that a caller has for it.

Not here: what guesses (`decode/drafts.py`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sightline.data.corpus import parse_corpora, read_pairs
from sightline.decode.contract import Draft
from sightline.decode.drafts import CopyDraft, MemoryDraft, ModelDraft
from sightline.decode.translator import clean_text
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.verbs import TranslationVerbs


def draft_from(model: "TranslationVerbs", origin: str, device: str) -> Draft:
    """What guesses for `model`; `origin` as `TranslationVerbs.draft` takes it."""
    if origin == "input":
        return CopyDraft()
    if Path(origin).is_dir():
        return _model_draft(model, origin, device)
    pairs = read_pairs(parse_corpora([origin]))
    encode = model.tokenizer.encode
    return MemoryDraft((encode(clean_text(src)), encode(clean_text(tgt))) for src, tgt in pairs)


def _model_draft(model: "TranslationVerbs", path: str, device: str) -> Draft:
    from sightline.api import load_trained

    small = load_trained(path, device)
    if small.tokenizer.fingerprint != model.tokenizer.fingerprint:
        known = model.paths[0]
        raise UserError(f"{path}: has another tokenizer than {known}; a draft must be trained with the same")
    return ModelDraft(small._translator.form(small.decode_config), model._translator.special)
