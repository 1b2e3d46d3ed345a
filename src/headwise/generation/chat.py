"""Chat templates: a conversation as the text that a chat model was trained on.

Templates are Jinja programs from the tokenizer's files; they run in Jinja's sandbox.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from headwise.errors import UserError

Messages = Sequence[Mapping[str, Any]]  # such as {"role": "user", "content": "Hello"}
TEMPLATE, SETTINGS = "chat_template.jinja", "tokenizer_config.json"


def refuse_single(texts: object, method: str) -> None:
    """`UserError` for one text or conversation instead of a list, whose parts would be taken for texts."""
    if isinstance(texts, str):
        raise UserError(f"{method} takes a list; write {method}([text]) for a single one")
    if isinstance(texts, Sequence) and texts and isinstance(texts[0], Mapping):
        raise UserError(f"{method} takes a list of conversations; write {method}([messages]) for a single one")


def render_chat(folder: Path, messages: Messages, answer: bool = True) -> str:
    """The text of a conversation; with `answer` it ends where the model's answer starts.

    Raises:
        UserError: the model has no template, Jinja is not installed, or the template rejects the messages.
    """
    settings = tokenizer_settings(folder)
    template = _template(folder, settings)
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise UserError('a chat template needs a library: pip install "headwise[chat]"') from None
    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    sandbox.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    specials = {name: special_token_text(settings, name) for name in settings if name.endswith("_token")}
    try:
        return sandbox.from_string(template).render(messages=list(messages), add_generation_prompt=answer, **specials)
    except (TemplateError, TypeError) as error:
        raise UserError(f"{folder}: its chat template rejects these messages ({error})") from None


def special_token_text(settings: Mapping[str, Any], name: str) -> str:
    """The text of a special token in tokenizer_config.json, such as "bos_token"; "" if there is none."""
    value = settings.get(name) or ""
    return str(value.get("content", "")) if isinstance(value, Mapping) else str(value)


def without_bos(folder: Path, text: str) -> str:
    """The text without a start token, which the tokenizer will add."""
    return text.removeprefix(special_token_text(tokenizer_settings(folder), "bos_token"))


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """The values of tokenizer_config.json; empty if there is no such file."""
    path = folder / SETTINGS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {one["name"]: one["template"] for one in template}.get("default")
    if not template:
        raise UserError(f"{folder}: has no chat template ({TEMPLATE}, or in {SETTINGS}): prompt it without --chat")
    return template


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
