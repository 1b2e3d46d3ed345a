"""`headwise score` prints JSON, also with a model that is damaged or finds a text impossible."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

from headwise.cli import main


def command(folder: Path, kind: str, changes: dict[str, Any] | None = None) -> list[str]:
    """What scores a text with a tiny model."""
    write_tiny(folder, kind, changes)
    (folder / "text").write_text("ab\n", encoding="utf-8")
    target = ["--target", str(folder / "text")] if kind == "t5" else []
    return ["score", str(folder), "--source", str(folder / "text"), *target]


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_nan_is_an_error_of_one_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = command(tmp_path, kind)
    tensors = load_file(tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        tensors[name] = tensor * math.nan if name.endswith(("shared.weight", "wte.weight")) else tensor
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert main([*asked, "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert "predictions are not finite" in told.err and told.err.count("\n") == 1
    assert not told.out and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["t5", "gpt_neox"])  # which run in torch
def test_what_is_impossible_is_null(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON has no infinity. Logits that rule out every token but one are what a rule or a cap may leave."""
    asked = command(tmp_path, kind)
    usual = torch.nn.Linear.forward

    def one_alone(layer: Any, x: Any) -> Any:
        y = usual(layer, x)
        if layer.out_features > 100:  # the output
            y[..., 1:] = -math.inf
        return y

    monkeypatch.setattr(torch.nn.Linear, "forward", one_alone)
    assert main(asked) == 0
    told = capsys.readouterr()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    record = json.loads(told.out, parse_constant=refuse)
    assert record["log_prob"] is None and record["perplexity"] is None
    assert "perplexity inf" in told.err
