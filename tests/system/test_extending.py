"""Extensions as in CONTRIBUTING: a norm, a constraint, a family and a task, each added in the documented way."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny
from torch import Tensor, nn

import headwise
from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.network import NetworkConfig
from headwise.contract import FREE, Limits, SearchOptions
from headwise.core import build as builder
from headwise.core.search import beam_search
from headwise.families import m2m_100, registry
from headwise.families.family import Family
from headwise.pytorch.search.compiled import unsupported_module
from headwise.pytorch.training.packed import attention_for
from headwise.runtime.native.library import library

SMALL = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 1}


class HalvingNorm(nn.Module):
    """Half of the input."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def test_a_norm_is_a_class_and_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains, also with packed sequences, and the compiled library reports that it does not support it."""
    monkeypatch.setitem(builder.NORMS, "halving", HalvingNorm)
    config = transformer_config(TransformerConfig(**SMALL))  # pyright: ignore[reportArgumentType]
    assert config.encoder and config.decoder
    stacks = {side: replace(getattr(config, side), norm="halving") for side in ("encoder", "decoder")}
    network = builder.build(replace(config, **stacks))
    src = torch.tensor([[5, 6, 2]])
    network(src, src).sum().backward()
    assert network.get_parameter("encoder.layers.1.ffn_sublayer.norm.weight").grad is not None
    assert (attention_for(network, src > 0) is None) == (library() is None)
    assert "norm = halving" in unsupported_module(network)


def test_a_constraint_is_a_function() -> None:
    def no_fives(log_probs: Tensor, history: Tensor) -> Tensor:
        log_probs[:, 5] = -torch.inf
        return log_probs

    class Nothing:
        def reorder(self, index: Tensor) -> None: ...
        def select(self, index: Tensor) -> None: ...

    def step(tokens: Tensor, _: Any) -> Tensor:
        return torch.arange(8.0).where(torch.arange(8) != 7, -9.0).expand(len(tokens), -1)

    limits = Limits(torch.tensor([2]), torch.tensor([4]), torch.full((1, 1), FREE))

    def written(**options: Any) -> list[int]:
        return beam_search(step, Nothing(), limits, SearchOptions(beam_size=2, suppressed=(6,), **options))[0][0].tokens

    assert set(written()) == {5}
    assert set(written(rules=(no_fives,))) == {4}


def test_a_family_is_a_table_and_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M2M-100 with other names of matrices and width: it is read, and translates like M2M-100."""

    def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
        known = {key: value for key, value in values.items() if key != "width"}
        return replace(m2m_100.config_from_hf({**known, "d_model": values["width"]}), family="stranger")

    names = {key.replace("self_attn.", "attention."): ours for key, ours in m2m_100.NAMES.items()}
    parts = {name: getattr(m2m_100.FAMILY, name) for name in ("prefix", "ignored", "same", "more_names")}
    monkeypatch.setitem(registry.FAMILIES, "stranger", Family(config_from_hf, names, **parts))
    known, strange = tmp_path / "known", tmp_path / "strange"
    for folder in (known, strange):
        write_tiny(folder, "m2m")
    values = json.loads((strange / "config.json").read_text())
    values |= {"model_type": "stranger", "width": values.pop("d_model")}
    (strange / "config.json").write_text(json.dumps(values))
    tensors = load_file(strange / "model.safetensors")
    renamed = {key.replace("self_attn.", "attention."): tensor for key, tensor in tensors.items()}
    save_file(renamed, strange / "model.safetensors", metadata={"format": "pt"})
    ours, theirs = (headwise.load(folder, "cpu").generate(["ab", "c"], beam_size=3) for folder in (strange, known))
    assert [one.tokens for one in ours] == [one.tokens for one in theirs]
    with pytest.raises(headwise.UserError, match=r"unexpected model\.decoder.layers\.0\.attention"):
        monkeypatch.setitem(registry.FAMILIES, "stranger", Family(config_from_hf, m2m_100.NAMES, **parts))
        headwise.load(strange, "cpu")


ROW = 'Task("counting", ".tsv", CountingData, "encoder tokens classes pooled")'
COUNTING = f"""
import sys
from pathlib import Path
from dataclasses import dataclass
from headwise.config.data import LabelData
from headwise.config.setting import POSITIVE, setting
from headwise.config.tasks import TASKS, Task
@dataclass(frozen=True)
class CountingData(LabelData):
    unit: float = setting(1.0, "the number that counts as one", POSITIVE)
TASKS["count"] = {ROW}
import headwise
from counting import Counter, counting_job
from headwise.models.kinds import TRAINED
from headwise.pytorch.tasks.table import JOBS, TaskJobs
JOBS["count"], TRAINED["count"] = TaskJobs(counting_job), Counter
from headwise.runtime.checkpoint import model_card
folder = Path(sys.argv[1])
model_card.USAGE, files = folder, [folder / "a.tsv"]
model = headwise.load(headwise.train(files, ["4pairs"], folder / "out", folder / "a.toml", show=False).path)
print(*model.count(["a 3", "a a a a a 3"]))
model.translate(["a"])
"""


def test_a_task_is_a_module_three_rows_and_a_page(tmp_path: Path) -> None:
    """`counting.py`, a row of `config.tasks` with its settings, two in `pytorch.tasks.table` and `models.kinds`, and
    count.md.

    It is trained, saved and loaded as any other; no other module knows of it.
    """
    (tmp_path / "a.tsv").write_text("".join(f"{'a ' * n}{i}\t{n}\n" for i in range(12) for n in (1, 2, 5)))
    (tmp_path / "count.md").write_text("`count`\n")
    (tmp_path / "a.toml").write_text(
        '[model]\ntask = "count"\nd_model = 16\nd_ff = 16\nn_heads = 2\nn_encoder_layers = 1\ndropout = 0.0\n'
        "[data]\nvocab_size = 300\nunit = 2.0\n[train]\nmax_steps = 60\nlearning_rate = 0.02\nwarmup_steps = 5\n"
        "tokens_per_batch = 900\nvalidate_every = 30\naverage = 1\nthreads = 1\n"
    )
    command = [sys.executable, "-c", COUNTING, str(tmp_path)]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    few, many = map(float, ended.stdout.split())
    assert few < 2.5 < many
    assert "# A counting model" in (tmp_path / "out" / "README.md").read_text()
    assert "this model counts" in ended.stderr
    assert json.loads((tmp_path / "out" / "config.json").read_text())["data"]["unit"] == 2.0
