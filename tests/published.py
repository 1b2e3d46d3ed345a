"""What `config.json` says of the checkpoints most people load: `published.json` written out."""

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]


def _read() -> tuple[dict[str, Config], dict[str, str]]:
    """Every checkpoint's keys by its name, and why those are refused that are."""
    found: dict[str, Config] = {}
    refused: dict[str, str] = {}
    for entry in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))["checkpoints"]:
        base = found.get(entry.get("like", ""), {})
        kept = {key: value for key, value in base.items() if key not in entry.get("without", ())}
        found[entry["name"]] = {**kept, **entry["keys"]}
        if "refused" in entry:
            refused[entry["name"]] = entry["refused"]
    return found, refused


PUBLISHED, REFUSED = _read()
