"""Files next to the weights of a pretrained model that are copied with them."""

import shutil
from pathlib import Path

from headwise.runtime.checkpoint.layout import PREPROCESSOR
from headwise.runtime.checkpoint.modules import module_files
from headwise.runtime.checkpoint.trained import write_file
from headwise.runtime.tokenizers.vocabulary import FILES as VOCABULARY_FILES

FORMAT = 1  # of config.json
KEPT = ("generation_config.json", PREPROCESSOR, "chat_template.jinja")  # for generation


def copy_companions(path: Path, folder: Path) -> None:
    """Copy tokenizer, generation settings and modules of sentence-transformers."""
    for name in [*map(Path, (*VOCABULARY_FILES, *KEPT)), *module_files(path)]:
        if (path / name).is_file():
            copy_file(path / name, folder / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file into a model folder, replacing the one there in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    write_file(target, lambda draft: shutil.copyfile(source, draft))
