"""Conversations are rendered and tokenized as by `transformers`."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tiny_families import vocabulary
from tokenizers.processors import TemplateProcessing

from headwise.errors import UserError
from headwise.models.language.chat import prompt_ids, render_chat
from headwise.runtime.tokenizers.vocabulary import read_vocabulary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    transformers = pytest.importorskip("transformers")
pytest.importorskip("jinja2")

SETTINGS = {
    "bos_token": "<s>",
    "eos_token": {"__type": "AddedToken", "content": "</s>"},
    "add_bos_token": False,
    "pad_token": None,
}
CHAT = [
    {"role": "system", "content": " Be <b>brief</b>. "},
    {"role": "user", "content": 'a "dog" & é\n', "name": None},
    {"role": "assistant", "content": "yes", "reasoning": "since"},
    {"role": "user", "content": "x"},
]
LOOP = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
TEMPLATES = {
    "plain": LOOP + "{% if add_generation_prompt %}assistant:{% endif %}",
    "special tokens": "{{ bos_token }}" + LOOP + "{{ eos_token }}{{ add_bos_token is defined }}{{ pad_token }}",
    "generation": "{% for m in messages %}{%- if m.role == 'assistant' %}{% generation %}{{ m.content }}{% set a = 1 %}"
    "{{ eos_token }}{% endgeneration %}{%- else %}{{ m.content | trim }}{% endif %}{{ a is defined }}{% endfor %}",
    "tools": "{{ tools is none }}{{ tools is defined }}{{ documents is none }}{{ documents is defined }}",
    "unknown names": "{{ enable_thinking is defined }}{{ tools | length if tools else 0 }}{{ nothing }}",
    "json": "{{ messages | tojson }}{{ messages[1] | tojson(indent=2) }}{{ messages[1] | tojson(ensure_ascii=True) }}",
    "json as asked for": "{{ messages[1] | tojson(separators=(',', ':'), sort_keys=True) }}{{ 'é' | tojson(true) }}",
    "absent keys": "{% for m in messages %}{{ 'name' in m }}{{ m.name is defined }}{% endfor %}",
    "reasoning": "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}",
    "control of loops": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% break %}{% endfor %}",
    "blanks": "  {% if true %}\n  a\n  {%- endif %}\n\n b {#- c #}\n{{ '\\n' }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "macro": "{% macro turn(m) %}[{{ m.role | upper }}]{{ m.content | trim }}{% endmacro %}{{ turn(messages[1]) }}",
    "slices": "{% set loop_messages = messages[1:] %}{{ loop_messages[-1]['content'] }}{{ messages[::2] | length }}",
    "strings": "{{ messages[0].content.strip().split(' ')[-1] }}{{ messages | map(attribute='role') | join('-') }}",
    "dictionaries": "{% for k, v in messages[0].items() %}{{ k }}={{ v }}{% endfor %}{{ dict(a=1) | tojson }}",
    "types": "{{ messages[0].content is string }}{{ messages is iterable }}{{ messages[0] is mapping }}",
    "dates": "{{ strftime_now('%Y') | length }}{{ strftime_now(format='%d') | length }}",
    "refusal": "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
    "attribute of code": "{{ ''.__class__.__mro__ }}",
    "change of messages": "{% set x = messages.append(1) %}{{ messages | length }}",
    "division": "{{ 1 / 0 }}",
    "index": "{{ messages[9].content.strip() }}",
    "syntax": "{% for m in messages %}",
}  # fmt: skip


def write(folder: Path, template: str, single: str = "<s> $A", **settings: Any) -> Any:
    """A folder with a tokenizer of bytes; the same read by transformers."""
    text = vocabulary(behind=False)
    text.post_processor = TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 2)])
    text.save(str(folder / "tokenizer.json"))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", **SETTINGS, "chat_template": template, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_renders_the_same(tmp_path: Path, name: str) -> None:
    theirs = write(tmp_path, TEMPLATES[name])
    for answer in (True, False):
        try:
            expected = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=answer)
        except Exception:
            with pytest.raises(UserError, match="its chat template rejects these messages"):
                render_chat(tmp_path, CHAT, answer)
        else:
            assert render_chat(tmp_path, CHAT, answer) == expected


@pytest.mark.parametrize("start", ["", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}", " "])
@pytest.mark.parametrize("single", ["$A", "<s> $A", "$A </s>", "<s> $A </s>", "<s> <s> $A </s>"])
def test_a_conversation_is_tokenized_the_same(tmp_path: Path, single: str, start: str) -> None:
    theirs = write(tmp_path, start + LOOP + "{{ eos_token }}", single)
    expected = theirs.apply_chat_template(CHAT, return_dict=False)
    assert prompt_ids(CHAT, tmp_path, read_vocabulary(tmp_path, {}), 0) == list(expected)


@pytest.mark.parametrize(
    "template",
    [
        [{"name": "rag", "template": "no"}, {"name": "default", "template": LOOP}],
        {"default": LOOP, "tool_use": "no"},
    ],
)
def test_templates_by_name(tmp_path: Path, template: Any) -> None:
    write(tmp_path, LOOP)
    expected = render_chat(tmp_path, CHAT)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    assert render_chat(tmp_path, CHAT) == expected


def test_special_tokens_of_older_files(tmp_path: Path) -> None:
    write(tmp_path, "{{ bos_token }}{{ eos_token }}")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<user>"}}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert render_chat(tmp_path, CHAT) == theirs.apply_chat_template(CHAT, tokenize=False) == "<s><user>"
