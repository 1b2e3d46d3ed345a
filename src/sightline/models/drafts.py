"""Where guesses for `speculative` search come from, by the words that a caller has for it.

Not here: what guesses (`decode/drafts.py`).
"""

from typing import TYPE_CHECKING

from sightline.contract import Draft
from sightline.decode.drafts import ModelDraft
from sightline.errors import UserError
from sightline.generation.drafts import draft_from

if TYPE_CHECKING:
    from sightline.models.translation import TranslationVerbs


def draft_for(model: "TranslationVerbs", origin: str, device: str) -> Draft:
    """What guesses for a model that we have trained; `origin` as `TranslationVerbs.draft` takes it."""
    encode = model.tokenizer.encode
    return draft_from(origin, encode, encode, lambda path: _model_draft(model, path, device))


def _model_draft(model: "TranslationVerbs", path: str, device: str) -> Draft:
    from sightline.models.load import load_trained

    small = load_trained(path, device)
    if small.tokenizer.fingerprint != model.tokenizer.fingerprint:
        known = model.paths[0]
        raise UserError(f"{path}: has another tokenizer than {known}; a draft must be trained with the same")
    return ModelDraft(small._translator.form(small.decode_config), model._translator.special)
