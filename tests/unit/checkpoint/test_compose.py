"""What stands beside the weights of two joined folders, and what is drawn; the weights are `tests/parity`'s."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

from headwise.pytorch.checkpoint.compose import write_composed

POOLER = "pooler.dense.weight"


def joined(folder: Path, looks: dict[str, Any], writes: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    """What is said in the files of a ViT with a GPT-2, which have these settings, and the weights."""
    out = folder / f"joined-{seed}"
    if not (folder / "vit").exists():
        write_tiny(folder / "vit", "vit", looks)
        write_tiny(folder / "gpt2", "gpt2", writes, generation={"max_new_tokens": 9})
    write_composed(folder / "vit", folder / "gpt2", out, seed)
    read = {name: json.loads((out / f"{name}.json").read_text())
            for name in ("config", "generation_config", "preprocessor_config")}  # fmt: skip
    return {**read, "weights": load_file(out / "model.safetensors")}


def test_a_caption_begins_and_ends_with_the_marks_of_texts(tmp_path: Path) -> None:
    marks = {"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 7}
    found = joined(tmp_path, {"id2label": {"0": "cat", "1": "dog"}}, marks)
    ids = {"decoder_start_token_id": 5, "eos_token_id": 6, "pad_token_id": 7}
    assert found["config"].items() >= ids.items()
    assert found["generation_config"] == {"max_new_tokens": 9, **ids}
    assert "id2label" not in found["config"]["encoder"]
    assert found["config"]["decoder"]["tie_word_embeddings"] is True


def test_one_mark_may_be_all_of_them(tmp_path: Path) -> None:
    marks = {"bos_token_id": None, "eos_token_id": 6, "pad_token_id": None, "tie_word_embeddings": False}
    found = joined(tmp_path, {}, marks)
    ids = dict.fromkeys(("decoder_start_token_id", "eos_token_id", "pad_token_id"), 6)
    assert found["config"].items() >= ids.items()
    assert found["config"]["decoder"]["tie_word_embeddings"] is False
    assert found["preprocessor_config"]["size"] == {"height": 8, "width": 8}


def test_a_pooler_and_how_pictures_are_seen_are_kept(tmp_path: Path) -> None:
    write_tiny(tmp_path / "vit", "vit")
    write_tiny(tmp_path / "gpt2", "gpt2")
    seen = {"size": 8, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(seen))
    file = tmp_path / "vit" / "model.safetensors"
    weights = load_file(file)
    pooler = torch.arange(weights["vit.layernorm.weight"].numel() ** 2).float()
    save_file({**weights, f"vit.{POOLER}": pooler}, file, {"format": "pt"})
    found = joined(tmp_path, {}, {})
    assert found["preprocessor_config"] == seen
    assert torch.equal(found["weights"][f"encoder.{POOLER}"], pooler)


def test_the_seed_decides_what_is_drawn(tmp_path: Path) -> None:
    first, second = (joined(tmp_path, {}, {}, seed)["weights"] for seed in (1, 2))
    differ = {key for key in first if not torch.equal(first[key], second[key])}
    assert differ == {key for key in first if key.endswith("weight") and ("crossattention" in key or POOLER in key)}
