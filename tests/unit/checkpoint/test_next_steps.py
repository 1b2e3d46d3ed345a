"""The commands that are printed after training."""

import shlex
from pathlib import Path

import pytest

from headwise.cli import parse
from headwise.runtime.checkpoint.model_card import USAGE, card_commands, next_steps

CARD = """# A model

```sh
headwise translate . in.txt
headwise evaluate . --source x.src
```

```python
x = 1
```
"""


@pytest.mark.parametrize("card", sorted(USAGE.glob("*.md")), ids=lambda path: path.stem)
def test_the_commands_of_every_model_card_can_be_parsed(card: Path) -> None:
    commands = [shlex.split(line) for line in card_commands(card)]
    assert commands
    for name, *words in commands:
        assert name == "headwise"
        assert "." in words
        parse([word.replace("FROM-TO", "en-de") for word in words])


def test_next_steps_name_the_model_folder_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    first, *steps = next_steps(folder, {"x.src": Path("data/test set.src")}).splitlines()
    assert first == "Next:"
    words = [shlex.split(step)[1:] for step in steps]
    assert words == [
        ["translate", str(folder), "in.txt"],
        ["evaluate", str(folder), "--source", "data/test set.src"],
        ["results", str(folder), "--curves", "curves.png"],
    ]
