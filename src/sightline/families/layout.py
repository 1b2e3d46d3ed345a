"""Which files a folder in the Hugging Face layout has, and how to tell one; needs no torch."""

import json
from pathlib import Path
from typing import Any

from sightline.errors import UserError

CONFIG, WEIGHTS, SHARDS = "config.json", "model.safetensors", "model.safetensors.index.json"


def is_family(path: str | Path) -> bool:
    """Whether a family's model is in `path`, in the Hugging Face layout or in ours."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        return False
    values = read_json(folder / CONFIG)
    return "family" in values or ("model_type" in values and "format" not in values)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object")
    return value
