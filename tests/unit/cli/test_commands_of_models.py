"""`headwise info` lists the commands that work for a model: they are run with models of every kind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_families import HEARING, write_tiny
from tokenizers import Tokenizer, processors

import headwise
from headwise.cli import BY_NAME, main
from headwise.cli.commands import serve
from headwise.errors import UserError
from headwise.generation.label import SEVERAL
from headwise.models.commands import COMMANDS, check_command, commands_of
from headwise.serve.explorer.server import ExplorerServer

pytest.importorskip("soundfile")
pytest.importorskip("jiwer")
Image = pytest.importorskip("PIL.Image")

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
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "a dog",
                    "qas": [{"id": "1", "question": "who", "answers": [{"text": "dog", "answer_start": 2}]}],
                }
            ]
        }
    ]
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files for every command."""
    import soundfile

    folder = tmp_path_factory.mktemp("inputs")
    texts = {
        "lines.txt": "a dog\nb cat\n",
        "pairs.tsv": "a dog\tein Hund\nb\tc\n",
        "dog.txt": "dog\n",
        "labels.tsv": "a dog\tB-x\nb\tO\n",
        "numbers.tsv": "a dog\t0.5\nb\t-1\n",
        "tags.conll": "a O\ndog B-x\n\n",
        "squad.json": json.dumps(SQUAD),
        "pictures.tsv": "dog.png\tdog\ndog.png\tcat\n",
        "captions.tsv": "dog.png\ta dog\n",
        "sounds.tsv": "dog.wav\ta dog\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    soundfile.write(folder / "dog.wav", np.sin(np.arange(9_000) / 9), 16_000)
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(folder / "dog.png")
    return folder


ARGUMENTS: dict[str, list[str]] = {  # of each command, in the variants that models need; {} is the folder of inputs
    "translate": ["{}/lines.txt"],
    "generate": ["ab --max-new-tokens 2"],
    "fill": ["a<mask>b"],
    "embed": ["{}/lines.txt -o {}/vectors.npy"],
    "classify": ["{}/lines.txt"],
    "rerank": ["dog {}/lines.txt"],
    "tag": ["{}/lines.txt"],
    "answer": ["{}/squad.json"],
    "label": ["{}/dog.png"],
    "caption": ["{}/dog.png --max-new-tokens 2"],
    "transcribe": ["{}/dog.wav --no-fallback"],
    "forecast": ["{}/lines.txt"],
    "score": ["--source {}/lines.txt", "--source {}/lines.txt --target {}/lines.txt"],
    "evaluate": [
        "--source {}/lines.txt",
        "--source {}/lines.txt --reference {}/lines.txt",
        *(f"--source {{}}/{name}" for name in ("pairs.tsv", "labels.tsv", "tags.conll", "squad.json", "pictures.tsv")),
        *(f"--source {{}}/{name}" for name in ("captions.tsv", "sounds.tsv", "numbers.tsv")),
    ],
    "align": ["--source {}/lines.txt --target {}/lines.txt"],
    "inspect": [f"{given} --format json -o {{}}/view.json" for given in ("ab", "{}/dog.png", "{}/dog.wav")],
    "explore": ["--port 0"],
    "prune": [
        f"--heads 1 --out {{}}/pruned --source {{}}/{files}"
        for files in (
            *("lines.txt", "lines.txt --target {}/lines.txt"),
            *("labels.tsv", "numbers.tsv", "dog.png --target {}/dog.txt", "dog.wav"),
        )
    ],
    "distill": ["--train {}/pairs.tsv -o {}/distilled.jsonl"],
    "backtranslate": ["--text {}/lines.txt -o {}/back.jsonl"],
    "shortlist": ["--train {}/pairs.tsv"],
    "serve": ["--port 0 --languages en-de"],
    "tune": ["--train {}/pairs.tsv --valid {}/pairs.tsv --out {}/tuned --set train.max_steps=1"],
}


@pytest.fixture
def attempt(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], bool]:
    """Whether a command works for the model in a folder; servers are started and ended."""
    monkeypatch.setattr(ExplorerServer, "serve_forever", lambda self: None)
    monkeypatch.setattr(serve, "serve", lambda models, settings: None)
    runs = iter(range(1000))

    def attempt(command: str, model: Path) -> bool:
        for arguments in ARGUMENTS[command]:
            out = tmp_path / str(next(runs))
            out.mkdir()
            for file in inputs.iterdir():
                (out / file.name).symlink_to(file)
            words = [word.replace("{}", str(out)) for word in arguments.split()]
            if main([command, str(model), *words, *([] if command == "shortlist" else ["--device", "cpu"])]) == 0:
                return True
        return False

    return attempt


@pytest.mark.parametrize("kind", KINDS)
def test_info_lists_the_commands_that_work(
    kind: str, attempt: Callable[[str, Path], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    working = [command for command in COMMANDS if attempt(command, model)]
    capsys.readouterr()
    assert main(["info", str(model), "--device", "cpu"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["for"] == ", ".join(working)


def test_every_command_of_the_table_exists_and_is_tried() -> None:
    assert COMMANDS.keys() == ARGUMENTS.keys() and COMMANDS.keys() <= BY_NAME.keys()


def test_a_command_that_does_not_work_says_what_does(tmp_path: Path) -> None:
    write_tiny(tmp_path, "vit")
    model = headwise.load(tmp_path, "cpu")
    assert commands_of(model) == ["label", "evaluate", "inspect", "explore", "prune"]
    with pytest.raises(UserError, match=r"it can .*label.*, and not translate"):
        check_command(model, "backtranslate")
    check_command(model, "label")
