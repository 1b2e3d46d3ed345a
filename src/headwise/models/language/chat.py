"""Chat templates: a conversation as the text that a chat model was trained on.

Templates are Jinja programs from the tokenizer's files; they run in Jinja's sandbox, and see what those of
`transformers` see (https://huggingface.co/docs/transformers/chat_templating). Tools and documents are not passed.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from headwise.contract import NEVER
from headwise.errors import UserError
from headwise.runtime.tokenizers.special_tokens import SETTINGS, special_token_texts, tokenizer_values
from headwise.runtime.tokenizers.vocabulary import Vocabulary, bare

Messages = Sequence[Mapping[str, Any]]  # such as {"role": "user", "content": "Hello"}
TEMPLATE = "chat_template.jinja"
REASONING = ("reasoning_content", "thinking", "reasoning")  # names of the same part of a message; the first is used


def render_chat(folder: Path, messages: Messages, answer: bool = True) -> str:
    """The text of a conversation; with `answer` it ends where the model's answer starts.

    Raises:
        UserError: the model has no template, Jinja is not installed, or the template rejects the messages.
    """
    settings = tokenizer_values(folder)
    template = _template(folder, settings)
    values = {
        "messages": [_message(one) for one in messages],
        "tools": None,
        "documents": None,
        "add_generation_prompt": answer,
        **special_token_texts(folder),
    }
    try:
        return _sandbox().from_string(template).render(values)
    except UserError:
        raise
    except Exception as error:  # whatever a program may raise
        raise UserError(f"{folder}: its chat template rejects these messages ({error})") from None


def _sandbox() -> Any:
    """The environment of a template."""
    try:
        from jinja2 import nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise UserError('a chat template needs a library: pip install "headwise[chat]"') from None

    class GenerationTag(Extension):
        """`{% generation %}` marks what a model was trained to write; here it has no effect."""

        tags = {"generation"}  # noqa: RUF012, Jinja's

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(line)

        def _unchanged(self, caller: Any) -> str:
            return caller()

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    sandbox.filters["tojson"] = _to_json
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": lambda format: datetime.now().strftime(format)}
    return sandbox


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter `tojson` of templates; unlike that of Jinja it escapes nothing for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without keys that are None, and with its reasoning under the names that templates read."""
    given = {key: value for key, value in message.items() if value is not None}
    reasoning = next((given[name] for name in REASONING if name in given), None)
    return given if reasoning is None else {"thinking": reasoning, **given, REASONING[0]: reasoning}


def chat_ids(folder: Path, messages: Messages, vocabulary: Vocabulary) -> list[int]:
    """The ids of a conversation. The template writes special tokens, so that the tokenizer adds none."""
    return bare(vocabulary)[0](render_chat(folder, messages))


def prompt_ids(prompt: str | Messages, path: Path, vocabulary: Vocabulary, start_id: int) -> list[int]:
    """The ids of a prompt; for an empty one the start token, if there is one."""
    ids = vocabulary.encode(prompt) if isinstance(prompt, str) else chat_ids(path, prompt, vocabulary)
    return ids or ([] if start_id == NEVER else [start_id])


def _template(folder: Path, settings: Mapping[str, Any]) -> str:
    if (folder / TEMPLATE).is_file():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, Mapping)}
    if isinstance(template, Mapping):
        template = template.get("default")
    if not isinstance(template, str) or not template:
        raise UserError(f"{folder}: has no chat template ({TEMPLATE}, or in {SETTINGS}): prompt it without --chat")
    return template


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)
