"""Arrays of a safetensors file, one by one: its numbers, and no more of them at once than are in use."""

import gc
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.runtime.checkpoint.compiled import compiled
from headwise.runtime.formats.weights import WeightsFile
from headwise.runtime.native.library import library
from headwise.runtime.native.linear import BLOCK

needs_library = pytest.mark.skipif(library() is None, reason="the compiled library is not there")
TENSORS = {"b": torch.randn(3, 4), "a": torch.randn(7), "c": torch.randn(2, 0), "d": torch.randn(2, 3, 4)}


@pytest.mark.parametrize("numbers", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_arrays_are_those_of_the_file_in_float32(tmp_path: Path, numbers: torch.dtype) -> None:
    tensors = {name: tensor.to(numbers) for name, tensor in TENSORS.items()}
    save_file(tensors, tmp_path / "file")
    found = WeightsFile(tmp_path / "file")
    assert found.shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert set(found) == set(tensors) and len(found) == 4 and "e" not in found
    for name, array in found.items():
        assert array.dtype == np.float32 and np.array_equal(array, tensors[name].float().numpy())


def test_what_is_in_use_is_read_once(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "file")
    found = WeightsFile(tmp_path / "file")
    kept = found["a"]
    assert found["a"] is kept


def test_a_model_is_the_one_that_was_loaded(tmp_path: Path) -> None:
    """Training puts another file in its place; it does not write into the one that somebody reads."""
    save_file(TENSORS, tmp_path / "file")
    found = WeightsFile(tmp_path / "file")
    save_file({name: -tensor for name, tensor in TENSORS.items()}, tmp_path / "other")
    (tmp_path / "other").replace(tmp_path / "file")
    assert np.array_equal(found["b"], TENSORS["b"].numpy())


def test_a_file_cut_short_while_it_is_in_use(tmp_path: Path) -> None:
    save_file({"long": torch.zeros(1 << 20)}, tmp_path / "file")
    found = WeightsFile(tmp_path / "file")
    with (tmp_path / "file").open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(UserError, match="cut short while it was in use"):
        list(found.values())


@pytest.mark.few(1)
@needs_library
@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
def test_packing_never_holds_the_network_beside_what_is_packed(tmp_path: Path, compute: str) -> None:
    """What Python holds beside it: embeddings and small things, and on the way the arrays of one sub-layer."""
    config = TransformerConfig(vocab_size=40, d_model=64, d_ff=256, n_heads=4, n_encoder_layers=6, n_decoder_layers=6)
    save_file(parameters_of(build_model(config)), tmp_path / "file")
    compiled(transformer_config(config), WeightsFile(tmp_path / "file"), compute)  # what a first call imports
    weights = WeightsFile(tmp_path / "file")
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    packed = compiled(transformer_config(config), weights, compute)
    after, most = (bytes - before for bytes in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    whole = sum(4 * math.prod(shape) for shape in weights.shapes.values())
    assert after - BLOCK < whole / 12 and most - after < whole / 12, (after, most, whole)
    assert packed.d_model == 64
