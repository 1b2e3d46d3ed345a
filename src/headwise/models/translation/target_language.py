"""The arguments that select a language pair of a model, for pairs such as en-de in options, files and requests.

See `runtime.tokenizers.languages` for how a family encodes its languages.
"""

import re
from typing import Any

from headwise.errors import UserError
from headwise.text.language_codes import LanguagePair, base_language, language_pair_of

TAGS = ("<2", ">>")  # the beginnings of these tokens
TAG = re.compile(r"<2(.+)>|>>(.+)<<")  # a token in front of a text, of models trained here and of Marian


def tagged_targets(model: Any) -> list[str]:
    """The target languages that a model has tokens for, such as `<2de>`; none for a model that needs no token."""
    declared = getattr(getattr(model, "tokenizer", None), "declared", {}).values()
    found = (TAG.fullmatch(token) for token in declared)
    return [tag[1] or tag[2] for tag in found if tag]


def needs_target(model: Any) -> bool:
    """Whether a model has several target languages, and none by default."""
    if len(tagged_targets(model)) > 1:
        return True
    try:
        model.between()
    except UserError:
        return True
    return False


def own_languages(model: Any) -> LanguagePair:
    """The languages of a model with one target language, as its folder defines them; "" = unknown."""
    several = hasattr(model, "between") and needs_target(model)
    return ("", "") if several else language_pair_of(model) or ("", "")


def language_arguments(model: Any, source: str, target: str) -> dict[str, str]:
    """The arguments of a model's methods that select languages; none for a bilingual model.

    Raises:
        UserError: a model of several target languages that does not have this one.
    """
    if not hasattr(model, "between"):
        return {}
    targets = tagged_targets(model)
    if targets:
        near = [code for code in targets if base_language(code) == base_language(target)]
        if target not in targets and len(near) != 1:
            known = ", ".join(targets[:20])
            raise UserError(f"language '{target}': the model translates into {known}; choose one of them")
        return {"target_language": target if target in targets else near[0]}
    if model.languages is None:
        return {}
    if model.languages.coded:
        return {"source_language": source, "target_language": target}
    try:
        model.languages.encode("", source, target)
    except UserError:
        if any(task.startswith("translation_") for task in model.languages.hf_config.get("task_specific_params") or {}):
            raise  # a model of several pairs
        return {}
    return {"source_language": source, "target_language": target}
