"""Tiny random checkpoints, loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_families import write_tiny

import headwise

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a checkpoint as `write_tiny` does, and loads it."""

    def make(
        kind: str, changes: dict[str, Any] | None = None, generation: dict[str, Any] | None = None, **tokenizer: Any
    ) -> Any:
        write_tiny(tmp_path, kind, changes, generation, **tokenizer)
        return headwise.load(tmp_path, "cpu")

    return make
