"""`headwise info` lists the commands that work for a model: they are run with models of every kind."""

from pathlib import Path
from typing import Any

import pytest
from tiny_families import HEARING, write_tiny
from tokenizers import Tokenizer, processors
from trying import ARGUMENTS, tried

import headwise
from headwise.cli import BY_NAME, main
from headwise.errors import UserError
from headwise.models.commands import BY_NETWORK, COMMANDS, check_command, commands_of
from headwise.models.encoding.label import SEVERAL

pytest.importorskip("jiwer")

NAMES = {"id2label": {"0": "B-x", "1": "O"}}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "llama": ("llama", {}),
    "masked": ("bert", {}),
    "encoder": ("bert", {"architectures": ["BertModel"]}),
    "classifier": ("bert", {"architectures": ["BertForSequenceClassification"], **NAMES}),
    "several": ("bert", {"architectures": ["BertForSequenceClassification"], **NAMES, "problem_type": SEVERAL}),
    "reranker": ("bert", {"architectures": ["BertForSequenceClassification"], "num_labels": 1}),
    "tagger": ("bert", {"architectures": ["BertForTokenClassification"], **NAMES}),
    "answerer": ("bert", {"architectures": ["BertForQuestionAnswering"]}),
    "t5": ("t5", {}),
    "marian": ("marian", {}),
    "pictures": ("vit", {}),
    "patches": ("vit", {"architectures": ["ViTModel"]}),
    "captions": ("captions", {}),
    "whisper": ("whisper", {}),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_info_lists_the_commands_that_work(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, changes = KINDS[kind]
    model = tmp_path / "model"
    write_tiny(model, name, changes, HEARING if name == "whisper" else None)
    (model / "preprocessor_config.json").write_text('{"feature_size": 8, "size": 8}')
    if name == "bert":  # as published: special tokens around one text and between two
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        two = "<s> $A </s>", "<s> $A </s> $B:1 </s>:1", [("<s>", 0), ("</s>", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(*two)
        tokenizer.save(str(model / "tokenizer.json"))
    works = tried(tmp_path, monkeypatch)
    working = [command for command in (*COMMANDS, *BY_NETWORK) if works(command, model)]
    capsys.readouterr()
    assert main(["info", str(model), "--device", "cpu"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["for"] == ", ".join(working)


def test_every_command_of_the_table_exists_and_is_tried() -> None:
    assert {*COMMANDS, *BY_NETWORK} == ARGUMENTS.keys() <= BY_NAME.keys()


def test_a_command_that_does_not_work_says_what_does(tmp_path: Path) -> None:
    write_tiny(tmp_path, "vit")
    model = headwise.load(tmp_path, "cpu")
    assert commands_of(model) == ["label", "evaluate", "inspect", "explore", "prune", "export"]
    with pytest.raises(UserError, match=r"it can .*label.*, and not translate"):
        check_command(model, "backtranslate")
    check_command(model, "label")
