"""The arguments that select a language pair of a model, for pairs such as en-de in options, files and requests.

See `runtime.tokenizers.languages` for how a family encodes its languages.
"""

import re
from collections.abc import Sequence
from typing import Any

from headwise.errors import UserError

TAGS = ("<2", ">>")  # the beginnings of these tokens
TAG = re.compile(r"<2(.+)>|>>(.+)<<")  # a token in front of a text, of models trained here and of Marian
TWO_LETTER_CODES = {
    "eng": "en", "deu": "de", "fra": "fr", "spa": "es", "ita": "it", "por": "pt", "nld": "nl", "rus": "ru", "zho": "zh",
    "jpn": "ja", "arb": "ar", "pol": "pl", "ces": "cs", "tur": "tr", "ukr": "uk", "swe": "sv", "fin": "fi",
}  # fmt: skip

SAME = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}


def base_language(code: str) -> str:
    """A code without script and region, in two letters if it has such a code.

    >>> base_language("deu_Latn"), base_language("pt-BR"), base_language("de_DE")
    ('de', 'pt', 'de')
    """
    first = re.split("[_.@-]", code)[0].lower()
    return TWO_LETTER_CODES.get(first, first)


def document_language(code: str) -> str:
    """The language that a document declares for a model's code of its target; "" for other tokens than languages.

    >>> document_language("deu_Latn"), document_language("pt_BR"), document_language("formal")
    ('de', 'pt', '')
    """
    base = base_language(code)
    return base if re.fullmatch("[a-z]{2,3}", base) else ""


def contradicts(code: str, other: str) -> bool:
    """Whether two codes are certainly of different languages; codes of two and of three letters may be of the same.

    >>> contradicts("fr", "de_DE"), contradicts("fr-CA", "fra_Latn"), contradicts("nb", "no"), contradicts("zh", "yue")
    (True, False, False, False)
    """
    one, two = (SAME.get(base, base) for base in map(base_language, (code, other)))
    return one != two and len(one) == len(two)


def check_target(path: str, declared: Sequence[str], target: str) -> None:
    """`UserError` if a file declares another language for its translations than `target`."""
    for code in declared if target else ():
        if contradicts(code, target):
            why = f"its translations are in '{code}', as it declares, not in '{target}'"
            raise UserError(f"{path}: {why}; translate into '{code}', or change what the file declares")


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
