"""Decoding in half precision, the default on CUDA: tested on a CPU."""

import copy
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import headwise
from headwise.core.transformer import Transformer
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.with_torch import build_trained, read_published
from headwise.pytorch.search.inference import PrecisionVariants
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.trained import read_weights
from headwise.runtime.search.engine import decode_tokens

OVERFLOW = {"gemma", "gemma2", "mt5", "pegasus", "t5", "t5gemma"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_trained_model_translates_the_same(
    copying: tuple[headwise.Model, Path], dtype: torch.dtype, beam_size: int
) -> None:
    """Where it is sure: of the texts that it copies without a mistake, each is copied."""
    model: Any = copying[0]
    letters = random.Random(3)
    texts = [" ".join(letters.choices("abcdefgh", k=1 + n % 8)) for n in range(40)]
    settings = model.settings(beam_size=beam_size)
    sources = [model.tokenizer.source.encode(text) for text in texts]
    networks = [model.network, copy.deepcopy(model.network).to(dtype)]
    usual, half = (
        decode_tokens(engine_of(network), sources, settings, model.tokenizer.special) for network in networks
    )
    known = [i for i, (found, source) in enumerate(zip(usual, sources, strict=True)) if found[0].tokens == source]
    assert len(known) >= 30
    assert all(half[i][0].tokens == usual[i][0].tokens for i in known)
    assert [found[0].log_prob for found in half] != [found[0].log_prob for found in usual]


@pytest.fixture
def capability(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The compute capability of a pretended GPU, whose memory is that of the CPU."""
    known = {"cuda": (8, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: known[device])
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *_: self)
    return known


def test_models_trained_here_decode_in_float16_on_cuda(
    copying: tuple[headwise.Model, Path], capability: dict[str, tuple[int, int]]
) -> None:
    model: Any = copying[0]
    assert model.config.decode.compute == "auto" and model.precision == "float32"
    weights = read_weights(copying[1])
    _, forms = build_trained(model.config.model, weights, "cuda")
    assert isinstance(forms, PrecisionVariants) and forms.automatic == "float16"
    capability["cuda"] = (6, 1)
    assert build_trained(model.config.model, weights, "cuda")[1].automatic == "float32"


class OneWeight(Transformer):
    """A network that is not used."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.weight = torch.nn.Parameter(torch.zeros(1))


@pytest.mark.parametrize(("dtype", "expected"), [("auto", "bfloat16"), ("float32", "float32")])
def test_families_that_overflow_decode_in_bfloat16_on_cuda(
    dtype: str, expected: str, tmp_path: Path, capability: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user asked for another precision."""

    def read(*given: Any) -> Folder:
        config, found = SimpleNamespace(family="t5"), SimpleNamespace(network=OneWeight())
        return Folder(tmp_path, config, {}, "cuda", found, lambda: None)

    monkeypatch.setattr("headwise.pytorch.checkpoint.with_torch.read_pretrained", read)
    assert read_published(tmp_path, "cuda", dtype).stored.automatic == expected


def test_families_that_overflow_in_float16() -> None:
    assert {name for name, family in FAMILIES.items() if family.overflows} == OVERFLOW
