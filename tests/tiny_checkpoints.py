"""Checkpoints small enough to write in a test, made by ourselves: no other library is needed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headwise.core.build import build
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.write import write_checkpoint

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "vocab_size": 11,
        "max_position_embeddings": 16,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": 11,
        "n_positions": 16,
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "vocab_size": 11,
    },
    "llama": {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 12,
        "vocab_size": 11,
    },
    "bart": {
        "model_type": "bart",
        "d_model": 8,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 12,
        "decoder_ffn_dim": 12,
        "vocab_size": 11,
        "max_position_embeddings": 16,
    },
}


@pytest.fixture
def configs() -> dict[str, dict[str, Any]]:
    """A small `config.json` of some families."""
    return CONFIGS


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a checkpoint of a family with random parameters, some keys of its configuration changed."""

    def write(family: str, **changes: Any) -> Path:
        values = {**CONFIGS[family], **changes}
        config = FAMILIES[family].config_from_hf(values)
        network: nn.Module = build(config)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(torch.randn_like(parameter))
        folder = tmp_path / family
        write_checkpoint(folder, network, config, values)
        return folder

    return write
