"""The training loop with a tiny model: updates, safeguards, resuming."""

import errno
import itertools
import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.core.loss import Loss
from headwise.core.optimizer import gradient_norm, make_optimizer
from headwise.errors import UserError, unwritable
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search import captured
from headwise.pytorch.training import checkpoint
from headwise.pytorch.training.callbacks import Callback, TrainingStart
from headwise.pytorch.training.checkpoint import CheckpointDraft, checkpoint_paths, load_checkpoint, saved_step
from headwise.pytorch.training.deferred import UpdateSums, can_defer, step_if_finite
from headwise.pytorch.training.metrics import Clock
from headwise.pytorch.training.step import batch_loss, nll_of, real_states, translation_objective
from headwise.pytorch.training.trainer import Trainer
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.search.request import non_finite_error

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {"d_model": 8, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1}
MODEL = TransformerConfig(vocab_size=11, dropout=0.0, **SHAPE)
TRAIN = TrainConfig(max_steps=4, learning_rate=0.01, warmup_steps=2, log_every=1, validate_every=100, average=1)
Figures = dict[str, float]


def pairs(n: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    rng = Random(seed)
    return [tuple([rng.randrange(4, 11) for _ in range(rng.randrange(1, 7))] for _ in "st") for _ in range(n)]  # type: ignore[misc]


PAIRS = pairs(12)
BATCHES = [collate(PAIRS[i : i + 4], 0, 1, 2) for i in (0, 4, 8)]


class Circle:
    """A stream that repeats a few batches."""

    wait_seconds = 0.0

    def __init__(self, batches: Sequence[Batch], state: Mapping[str, int] | None) -> None:
        self.batches, self.given = batches, state["given"] if state else 0

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.given += 1
            yield self.batches[(self.given - 1) % len(self.batches)]

    def state(self) -> dict[str, int]:
        return {"epoch": self.given // len(self.batches), "given": self.given}

    def close(self) -> None:
        pass


class Judged:
    """A validation with the metrics of a function."""

    def __init__(self, judge: Callable[[], Figures]) -> None:
        self.judge = judge

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        return {"figures": [self.judge()]}

    def figures(self, outputs: Outputs) -> Figures:
        return outputs["figures"][0]


class Run:
    """A trainer, and its validations and exports."""

    def __init__(
        self,
        folder: Path,
        model: ModelConfig = MODEL,
        batches: Sequence[Batch] = BATCHES,
        validate: Callable[[], Figures] = lambda: {"loss": 1.0},
        dtype: torch.dtype = torch.float32,
        show: bool = False,
        baseline: Mapping[str, float] = {},
        callbacks: Sequence[Callback] = (),
        **train: Any,
    ) -> None:
        torch.manual_seed(5)
        config = RunConfig(model=model, train=replace(TRAIN, **train))
        self.folder = folder
        self.network = build_model(model).to(dtype)
        self.validated: list[dict[str, Tensor]] = []
        self.exported: list[str] = []
        self.start = self.parameters()

        def judge() -> Figures:
            assert not self.network.training
            self.validated.append(self.parameters())
            return validate()

        self.trainer = Trainer(
            self.network,
            config,
            translation_objective(self.network, model.pad_id, config.train),
            lambda state: Circle(batches, state),
            Judged(judge),
            lambda _parameters, _figures, what: self.exported.append(what),
            folder,
            CPU,
            show=show,
            baseline=baseline,
            callbacks=callbacks,
        )

    def parameters(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.network.named_parameters()}

    def log(self, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
        return records(self.folder, name)


def records(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def assert_equal(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=0)


def assert_different(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
    assert any(not torch.equal(left[name], right[name]) for name in left)


def loss_of(network: nn.Module, batch: Batch, label_smoothing: float = 0.1, r_drop: float = 0.0) -> Loss:
    return batch_loss(
        partial(real_states, network), network.get_parameter("output.weight"), batch, 0, label_smoothing, r_drop
    )


# The objective --------------------------------------------------------------------------------------------------------


def test_padding_does_not_count_in_the_loss() -> None:
    network = build_model(MODEL)
    together = loss_of(network, BATCHES[0], 0.1)
    alone = [loss_of(network, collate([pair], 0, 1, 2), 0.1) for pair in PAIRS[:4]]
    torch.testing.assert_close(together.objective, torch.stack([loss.objective for loss in alone]).sum())
    torch.testing.assert_close(together.nll, torch.stack([loss.nll for loss in alone]).sum())


def test_r_drop_computes_every_pair_twice() -> None:
    network = build_model(replace(MODEL, dropout=0.3)).train()
    seen: list[Tensor] = []
    network.src_embeddings.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    divided = loss_of(network, BATCHES[0], 0.1, r_drop=100.0)
    first, second = seen[0].chunk(2)
    assert torch.equal(first, second)
    assert torch.equal(first, BATCHES[0].src)
    assert divided.objective > 1.5 * loss_of(network, BATCHES[0], 0.1).objective  # two masks, so they diverge
    network.eval()
    torch.testing.assert_close(
        loss_of(network, BATCHES[0], 0.1, r_drop=100.0).objective,
        loss_of(network, BATCHES[0], 0.1).objective,
    )


def test_validation_is_the_mean_over_all_tokens() -> None:
    network = build_model(replace(MODEL, dropout=0.5)).eval()
    expected = sum(loss_of(network, batch, 0.0).nll.item() for batch in BATCHES)
    n_pieces = sum(len(tgt) + 1 for _, tgt in PAIRS)
    nll = sum(nll_of(network, batch, 0, CPU) for batch in BATCHES)
    assert nll / sum(batch.n_target_tokens for batch in BATCHES) == pytest.approx(expected / n_pieces, rel=1e-6)


# Updates --------------------------------------------------------------------------------------------------------------


def test_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    uneven = [collate(PAIRS[:3], 0, 1, 2), collate(PAIRS[3:], 0, 1, 2)]
    small = Run(tmp_path / "small", batches=uneven, dtype=torch.float64, accumulate=2)
    large = Run(tmp_path / "large", batches=[collate(PAIRS, 0, 1, 2)], dtype=torch.float64)
    for run in (small, large):
        run.trainer.run()
    assert_different(small.start, small.parameters())
    for name, value in small.parameters().items():  # a key's bias has no gradient but rounding, which Adam divides
        atol = 1e-7 if name.endswith("k_proj.bias") else 1e-10  # by eps = 1e-9
        torch.testing.assert_close(value, large.parameters()[name], rtol=1e-9, atol=atol)
    losses = [[line["loss"] for line in run.log()] for run in (small, large)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_gradients_are_clipped(tmp_path: Path) -> None:
    def last_norm(run: Run) -> float:
        run.trainer.run()
        return torch.cat([p.grad.flatten() for p in run.network.parameters() if p.grad is not None]).norm().item()

    assert last_norm(Run(tmp_path / "free")) > 0.2
    assert last_norm(Run(tmp_path / "clipped", clip_norm=0.05)) == pytest.approx(0.05, rel=1e-4)
    assert last_norm(Run(tmp_path / "generous", clip_norm=1e6)) == last_norm(Run(tmp_path / "again"))


def test_the_gradient_norm_is_logged_before_clipping(tmp_path: Path) -> None:
    """Of the last update; the model still has its gradients."""
    free, clipped = Run(tmp_path / "free"), Run(tmp_path / "clipped", clip_norm=0.05)
    for run in (free, clipped):
        run.trainer.run()
    gradients = [p.grad.flatten() for p in free.network.parameters() if p.grad is not None]
    logged = [run.log()[-1]["gradient_norm"] for run in (free, clipped)]
    assert logged[0] == pytest.approx(torch.cat(gradients).norm().item(), rel=1e-4) and logged[1] > 0.1


def test_moving_average(tmp_path: Path) -> None:
    run = Run(tmp_path, ema=0.75, validate_every=1, checkpoint_every=1, keep_last=10)
    run.trainer.run()
    average = run.start
    for path, validated in zip(checkpoint_paths(tmp_path / "checkpoints"), run.validated, strict=True):
        saved = load_checkpoint(path)
        average = {name: 0.75 * average[name] + 0.25 * value for name, value in saved.model.items()}
        torch.testing.assert_close(validated, average)  # what is validated, and so exported, is the average ...
        assert_equal(validated, {name: saved.training[f"ema.{name}"] for name in average})
    assert_equal(run.parameters(), saved.model)  # ... and training continues with the parameters themselves
    assert run.exported == ["step 1"]  # later figures are no better, and no mean of checkpoints is tried


def test_bfloat16_stays_close_to_float32(tmp_path: Path) -> None:
    losses = {}
    for precision in ("float32", "auto", "bf16"):
        run = Run(tmp_path / precision, precision=precision, max_steps=6)
        run.trainer.run()
        losses[precision] = [line["loss"] for line in run.log()]
    assert losses["auto"] == losses["float32"]
    assert losses["bf16"] != losses["float32"]
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.02)


def test_recomputing_changes_only_memory(tmp_path: Path) -> None:
    model = replace(MODEL, dropout=0.3)
    plain = Run(tmp_path / "plain", model)
    plain.trainer.run()
    sparing = Run(tmp_path / "sparing", model, recompute=True)
    calls: list[int] = []
    sparing.network.encoder.layers[0].ffn.register_forward_hook(lambda *_: calls.append(1))
    sparing.trainer.run()
    assert_different(plain.start, plain.parameters())
    assert_equal(plain.parameters(), sparing.parameters())
    assert len(calls) == 2 * TRAIN.max_steps


def test_the_log_averages_over_its_interval(tmp_path: Path) -> None:
    every, fourth = Run(tmp_path / "1"), Run(tmp_path / "4", log_every=4)
    for run in (every, fourth):
        run.trainer.run()
    n_pieces = [batch.n_target_tokens for batch in (*BATCHES, BATCHES[0])]
    weighted = sum(line["loss"] * n for line, n in zip(every.log(), n_pieces, strict=True)) / sum(n_pieces)
    (line,) = fourth.log()
    assert (line["step"], line["epoch"], line["skipped"]) == (4, 1, 0)
    assert line["loss"] == pytest.approx(weighted, rel=1e-6)
    plain = sum(line["nll"] * n for line, n in zip(every.log(), n_pieces, strict=True)) / sum(n_pieces)
    assert line["nll"] == pytest.approx(plain, rel=1e-6)
    assert line["perplexity"] == pytest.approx(math.exp(line["nll"]))
    assert line["learning_rate"] == pytest.approx(0.01 * (2 / 4) ** 0.5)
    real = sum(batch.n_source_tokens + batch.n_target_tokens for batch in (*BATCHES, BATCHES[0]))
    cells = sum(batch.src.numel() + batch.tgt_in.numel() for batch in (*BATCHES, BATCHES[0]))
    assert line["padding"] == pytest.approx(1 - real / cells)


@pytest.mark.parametrize("log_every", [1, 5])
def test_the_first_line_comes_with_the_first_step(
    tmp_path: Path, log_every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(tmp_path, log_every=log_every, max_steps=6, checkpoint_every=4, show=True).trainer.run()
    said = [line for line in capsys.readouterr().err.splitlines() if "tokens/s" in line]
    assert [line.split(":")[0] for line in said] == (
        ["step 1", "step 5"] if log_every == 5 else [f"step {i}" for i in range(1, 7)]
    )
    assert all(re.search(r", \d+:\d\d left, ", line) for line in said)
    assert [line["step"] for line in records(tmp_path)] == [1, 2, 3, 4, 5, 6] if log_every == 1 else [5]
    resumed = Run(tmp_path, log_every=log_every, max_steps=9, show=True)
    assert resumed.trainer.restore(pytest.fail)
    resumed.trainer.run()
    assert "step 7: loss " in capsys.readouterr().err


def test_no_padding_figure_without_padding(tmp_path: Path) -> None:
    for batching, told in (("random", False), ("bucketed", True)):
        run = Run(tmp_path / batching, batching=batching, log_every=1)
        run.trainer.run()
        assert all(("padding" in line) == told for line in run.log())


def test_time_left_from_steps_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr("headwise.pytorch.training.metrics.time.monotonic", lambda: float(next(seconds)))
    clock = Clock(Circle(BATCHES, None))
    clock.count(BATCHES)
    clock.count(BATCHES)
    assert clock.figures(steps_left=10)["seconds_left"] == 5.0  # a second for two steps
    clock.restart()
    clock.count(BATCHES)
    assert clock.figures(steps_left=10)["seconds_left"] == 10.0


# Numbers that are not finite ------------------------------------------------------------------------------------------


def spoil_hidden(run: Run, steps: set[int]) -> None:
    """The loss of the given updates is NaN."""
    calls = iter(range(1, 100))

    def spoil(_module: nn.Module, _inputs: Any, hidden: Tensor) -> Tensor:
        return hidden * math.nan if next(calls) in steps else hidden

    run.network.decoder.register_forward_hook(spoil)


def spoil_gradient(run: Run, steps: set[int]) -> None:
    """The loss is finite, one gradient is not."""
    calls = iter(range(1, 100))
    run.network.output.weight.register_hook(lambda gradient: gradient * math.inf if next(calls) in steps else gradient)


@pytest.mark.parametrize("spoil", [spoil_hidden, spoil_gradient])
def test_a_bad_update_is_skipped_and_counted(tmp_path: Path, spoil: Callable[[Run, set[int]], None]) -> None:
    run, cut = (
        Run(tmp_path / name, max_steps=steps, checkpoint_every=1, keep_last=10, ema=0.5)
        for name, steps in (("whole", 4), ("cut", 3))
    )
    for one in (run, cut):
        spoil(one, {3})
        assert one.trainer.run() == "finished"
    after = {saved_step(path): load_checkpoint(path) for path in checkpoint_paths(run.folder / "checkpoints")}
    assert [*after] == [1, 2, 4]
    assert_different(after[1].model, after[2].model)
    assert_different(after[2].model, after[4].model)
    assert_equal(after[2].model, cut.parameters())
    own = {**cut.trainer.optimizer.tensors(cut.network), **{f"ema.{k}": v for k, v in cut.trainer.average.items()}}
    assert_equal({k: v for k, v in after[2].training.items() if "random" not in k}, own)
    assert [line["skipped"] for line in run.log()] == [0, 0, 1, 1]
    assert [line["loss"] is not None for line in run.log()] == [True, True, False, True]


@pytest.mark.parametrize(("spoil", "what"), [(spoil_hidden, "loss"), (spoil_gradient, "gradient")])
def test_ten_skipped_updates_in_a_row_end_the_run(
    tmp_path: Path, spoil: Callable[[Run, set[int]], None], what: str
) -> None:
    run = Run(tmp_path, max_steps=50, checkpoint_every=2)
    spoil(run, set(range(5, 50)))
    with pytest.raises(UserError, match="checkpoint, step-00000002") as caught:
        run.trainer.run()
    message = str(caught.value)
    assert message.startswith(f"step 14: the {what} has not been finite for 10 updates; lower train.learning_rate")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]
    assert all(bool(value.isfinite().all()) for value in run.parameters().values())


def explode(run: Run, step: int) -> None:
    """The parameters of this update give no finite loss."""
    taken = run.trainer.optimizer.step
    calls = iter(range(1, 100))

    def take(rate: float) -> None:
        taken(rate)
        if next(calls) == step:
            with torch.no_grad():
                run.network.get_parameter("output.weight").fill_(math.inf)

    run.trainer.optimizer.step = take


@pytest.mark.parametrize(("step", "every", "kept"), [(4, 2, 2), (4, 1, 3), (5, 2, 4), (1, 1, 0), (3, 5, 0)])
def test_a_diverged_run_continues_before_the_divergence(tmp_path: Path, step: int, every: int, kept: int) -> None:
    """Only the checkpoint before it, even if a run keeps one; without any it starts again."""
    given = {"max_steps": 20, "checkpoint_every": every, "keep_last": 1}
    run = Run(tmp_path, **given)
    (tmp_path / "checkpoints").mkdir()
    explode(run, step)
    with pytest.raises(UserError, match=f"step-{kept:08d}" if kept else "--resume: the run starts again"):
        run.trainer.run()
    assert [saved_step(path) for path in (tmp_path / "checkpoints").iterdir()] == [kept] * bool(kept)
    again = Run(tmp_path, **given)
    assert again.trainer.restore(pytest.fail) == bool(kept) and again.trainer.progress.step == kept
    assert again.trainer.run() == "finished" and again.trainer.progress.skipped == 0


def test_a_signal_among_skipped_updates_waits_for_a_good_one(tmp_path: Path) -> None:
    run = Run(tmp_path, max_steps=50)
    spoil_hidden(run, {3, 4, 5})
    calls = iter(range(1, 50))
    run.network.src_embeddings.register_forward_pre_hook(
        lambda *_: signal.raise_signal(signal.SIGTERM) if next(calls) == 4 else None
    )
    assert run.trainer.run() == "SIGTERM"
    (path,) = checkpoint_paths(tmp_path / "checkpoints")
    assert load_checkpoint(path).state["step"] == 6


@pytest.mark.parametrize("due", [3, 4])
def test_a_signal_and_a_validation_among_skipped_updates_end_the_run(tmp_path: Path, due: int) -> None:
    """The validation is of the resumed run, which repeats these updates."""
    run = Run(tmp_path, max_steps=50, validate_every=due, checkpoint_every=2)
    spoil_hidden(run, {3, 4})
    calls = iter(range(1, 50))
    run.network.src_embeddings.register_forward_pre_hook(
        lambda *_: signal.raise_signal(signal.SIGTERM) if next(calls) == due else None
    )
    assert run.trainer.run() == "SIGTERM" and run.validated == []
    assert [saved_step(path) for path in checkpoint_paths(tmp_path / "checkpoints")] == [2]


@pytest.mark.parametrize("skipped", [0, 2])
def test_a_validation_that_finds_no_finite_prediction_says_how_to_train_on(tmp_path: Path, skipped: int) -> None:
    def diverge() -> Figures:
        if run.trainer.progress.step < 6:
            return {"loss": 1.0}
        raise non_finite_error()

    run = Run(tmp_path, validate=diverge, validate_every=3, max_steps=50, checkpoint_every=1)
    spoil_hidden(run, set(range(7 - skipped, 7)))
    with pytest.raises(UserError, match=r"^step 6: .*validation.* lower train\.learning_rate .*--resume: ") as caught:
        run.trainer.run()
    good = 5 - skipped
    assert f"step-{good:08d}" in str(caught.value)
    assert [saved_step(path) for path in checkpoint_paths(tmp_path / "checkpoints")][-1] == good


def test_a_run_without_a_good_checkpoint_keeps_what_it_has(tmp_path: Path) -> None:
    """It was stopped right after the divergence, and kept no other checkpoint."""
    run = Run(tmp_path, max_steps=3, keep_last=1)
    run.trainer.run()
    again = Run(tmp_path, max_steps=50, keep_last=1)
    spoil_hidden(again, set(range(1, 50)))
    assert again.trainer.restore(pytest.fail)
    with pytest.raises(UserError, match="name another folder"):
        again.trainer.run()
    assert [saved_step(path) for path in checkpoint_paths(tmp_path / "checkpoints")] == [3]


@pytest.mark.parametrize("spoil", [spoil_hidden, spoil_gradient])
@pytest.mark.parametrize("clip_norm", [0.0, 0.05, 1e6])
def test_deferred_updates_are_those_of_a_cpu(
    tmp_path: Path, spoil: Callable[[Run, set[int]], None], clip_norm: float
) -> None:
    runs = [
        Run(tmp_path / name, dtype=torch.float64, max_steps=8, log_every=3, checkpoint_every=5, clip_norm=clip_norm)
        for name in ("own", "deferred")
    ]
    runs[1].trainer._defers = True
    for run in runs:
        spoil(run, {4, 6})
        assert run.trainer.run() == "finished"
    own, deferred = ({**run.trainer.progress.__dict__, "elapsed": 0} for run in runs)
    for name, value in own.items():
        expected = value if isinstance(value, str) else pytest.approx(value, rel=1e-5)
        assert deferred[name] == expected, name  # grad_scale is float32, which moves later losses
    torch.testing.assert_close(*(run.parameters() for run in runs), rtol=1e-5, atol=1e-6)
    moments = [run.trainer.optimizer.tensors(run.network) for run in runs]  # Adam's steps do not depend on the scale
    torch.testing.assert_close(*moments, rtol=1e-4, atol=1e-9)
    for line, other in zip(*(run.log() for run in runs), strict=True):
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-5)
        assert other["skipped"] == line["skipped"]


def test_deferred_sums_are_read_after_the_next_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = Run(tmp_path, max_steps=9, log_every=4), UpdateSums.read
    run.trainer._defers = True
    when: list[tuple[int, int]] = []

    def note(sums: UpdateSums) -> list[float]:
        when.append((sums.step, run.trainer.progress.step))
        return read(sums)

    monkeypatch.setattr(UpdateSums, "read", note)
    run.trainer.run()  # after the first update there is an estimate, and after the last one a checkpoint
    assert when == [(1, 1), (2, 3), (3, 4), (4, 4), (5, 6), (6, 7), (7, 8), (8, 8), (9, 9)]


def test_ten_deferred_updates_in_a_row_end_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, max_steps=50)
    run.trainer._defers = True
    spoil_hidden(run, set(range(5, 50)))
    with pytest.raises(UserError, match=r"14.*not.*10"):
        run.trainer.run()
    assert all(bool(value.isfinite().all()) for value in run.parameters().values())


@pytest.mark.few(3)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("r_drop", [0.0, 1.0])
@pytest.mark.parametrize("packed", [False, True])
def test_an_update_asks_nothing_of_the_device(
    monkeypatch: pytest.MonkeyPatch, half: bool, r_drop: float, packed: bool
) -> None:
    """Fake tensors have shapes and no values, so they raise an error where a GPU would be waited for."""
    monkeypatch.setattr("headwise.pytorch.training.packed.runs_varlen", lambda *_: packed)
    for module in ("core.loss", "pytorch.training.packed", "core.dropout"):
        monkeypatch.setattr(f"headwise.{module}.training_library", lambda: None)  # it computes on CPUs only
    train = replace(TRAIN, label_smoothing=0.1, r_drop=r_drop, clip_norm=1.0)
    with FakeTensorMode() as mode:
        model, batch = build_model(replace(MODEL, dropout=0.1)).train(), BATCHES[0]._map(mode.from_tensor)
        optimizer = make_optimizer(model, train)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = translation_objective(model, 0, train)(batch)
        loss.objective.backward()
        norm = gradient_norm(model)
        step_if_finite(optimizer, loss.objective.detach(), norm, 0.1, train.clip_norm)
        with pytest.raises(DataDependentOutputException):
            float(norm)


def test_nine_skipped_updates_in_a_row_do_not(tmp_path: Path) -> None:
    run = Run(tmp_path, max_steps=19)
    spoil_hidden(run, set(range(1, 20)) - {10})
    assert run.trainer.run() == "finished"
    assert run.log()[-1]["skipped"] == 18


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_out_of_memory_names_the_batch_and_the_setting(tmp_path: Path, error: Exception) -> None:
    run = Run(tmp_path)

    def fail(_module: nn.Module, _inputs: Any) -> None:
        raise error

    run.network.src_embeddings.register_forward_pre_hook(fail)
    rows, src_len, tgt_len = *BATCHES[0].src.shape, BATCHES[0].tgt_in.size(1)
    expected = f"batch of {rows} pairs, {src_len} source and {tgt_len} target tokens long; lower train.tokens_per_batch"
    with pytest.raises(UserError, match=expected):
        run.trainer.run()


def test_out_of_memory_in_a_validation_names_it(tmp_path: Path) -> None:
    """And not the batch of the update before it."""

    def fail() -> Figures:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(UserError, match=r"^step 2: .*validation") as error:
        Run(tmp_path, validate=fail, validate_every=2).trainer.run()
    assert "target tokens long" not in str(error.value)


def test_a_run_is_deterministic_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for wanted in (False, True):
        seen: list[bool] = []

        def look(seen: list[bool] = seen) -> Figures:
            seen.append(torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" in os.environ)
            return {"loss": 1.0}

        Run(tmp_path / str(wanted), validate=look, deterministic=wanted).trainer.run()
        assert seen == [wanted]
        assert not torch.are_deterministic_algorithms_enabled()


def test_what_is_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert not can_defer(cuda, TRAIN)
    monkeypatch.setenv("HEADWISE_DEFER", "1")
    assert can_defer(cuda, TRAIN) and not can_defer(CPU, TRAIN)
    assert not any(can_defer(cuda, replace(TRAIN, **change)) for change in ({"ema": 0.9}, {"optimizer": "muon"}))


def test_no_step_is_captured_while_a_model_is_trained(tmp_path: Path) -> None:
    seen: list[bool] = []

    def look() -> Figures:
        seen.append(captured._barred.is_set())
        return {"loss": 1.0}

    Run(tmp_path, validate=look).trainer.run()
    assert seen == [True] and not captured._barred.is_set()


@pytest.mark.parametrize(
    ("saved", "advice"),
    [
        (0, "start again with --resume; nothing was saved yet"),
        (2, "resume with --resume; the last checkpoint is step-00000002"),
    ],
)
def test_a_full_disk_says_how_to_resume(
    saved: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls, sums = Run(tmp_path, checkpoint_every=1), iter(range(9)), CheckpointDraft.sums

    def fill(draft: CheckpointDraft) -> dict[str, str]:
        written = sums(draft)  # waits for the thread
        if next(calls) == saved:
            raise unwritable(tmp_path / "checkpoints", OSError(errno.ENOSPC, "No space left on device"))
        return written

    monkeypatch.setattr(CheckpointDraft, "sums", fill)
    with pytest.raises(UserError, match=rf"\(No.*device\); free some disk space, then {advice}$"):
        run.trainer.run()
    assert not [*(tmp_path / "checkpoints").glob(".*")]  # which frees the disk


def test_other_errors_are_not_changed(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def fail(_module: nn.Module, _inputs: Any) -> None:
        raise RuntimeError("a bug")

    run.network.src_embeddings.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        run.trainer.run()


# Validation and the end -----------------------------------------------------------------------------------------------


def figures(*values: float, name: str = "loss") -> Callable[[], Figures]:
    rest = iter(values)
    return lambda: {"loss": 1.0, name: next(rest)}


def test_only_better_models_are_exported(tmp_path: Path) -> None:
    run = Run(tmp_path, validate=figures(3.0, 2.0, 2.5, 1.0), validate_every=1)
    assert run.trainer.run() == "finished"
    assert run.exported == ["step 1", "step 2", "step 4"]
    assert [line["best"] for line in run.log("validation.jsonl")] == [True, True, False, True]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_validation_has_the_precision_of_the_run(tmp_path: Path, precision: str) -> None:
    half: list[bool] = []

    def validate() -> Figures:
        half.append(torch.is_autocast_enabled("cpu"))
        return {"loss": 1.0}

    Run(tmp_path, validate=validate, validate_every=2, precision=precision).trainer.run()
    assert half == [precision == "bf16"] * 2


def test_a_diverged_model_is_never_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = iter([700.0, 600.0, 650.0, 5.0, 700.0])
    settings: dict[str, Any] = {"validate_every": 1, "max_steps": 5, "show": True}
    run = Run(tmp_path, validate=lambda: {"loss": next(losses)}, baseline={"loss": 6.0}, **settings)
    run.trainer.run()
    assert run.exported == [*(f"step {i}, no better than guessing" for i in (1, 2, 3)), "step 4"]
    assert [line["best"] for line in run.log("validation.jsonl")] == [False, False, False, True, False]
    said = [line for line in capsys.readouterr().err.splitlines() if "validation" in line]
    assert said[1] == "step 2: validation loss 600 (no better than guessing)"
    assert said[3:] == ["step 4: validation loss 5 (best so far)", "step 5: validation loss 700"]


def test_a_diverged_run_ends_by_patience(tmp_path: Path) -> None:
    losses = iter([700.0, 600.0])
    settings: dict[str, Any] = {"validate_every": 1, "patience": 2, "max_steps": 9}
    run = Run(tmp_path, validate=lambda: {"loss": next(losses)}, baseline={"loss": 6.0}, **settings)
    assert run.trainer.run() == "patience"
    assert run.trainer.progress.best is None


def test_a_model_beats_baseline_by_any_figure(tmp_path: Path) -> None:
    """Accuracy 7/8 where the most frequent class has 1/2, but with overconfident errors."""
    judged = iter([(0.5, 0.9), (0.875, 1.2), (0.875, 1.1), (0.5, 1.0)])

    def judge() -> Figures:
        accuracy, loss = next(judged)
        return {"loss": loss, "accuracy": accuracy}

    run = Run(tmp_path, validate=judge, validate_every=1, baseline={"loss": math.log(2), "accuracy": 0.5})
    run.trainer.run()
    assert run.exported == ["step 1, no better than guessing", "step 2", "step 3", "step 4"]
    assert run.trainer.progress.best == 1.0  # the loss decides, as train.best_metric says


def test_higher_bleu_is_better(tmp_path: Path) -> None:
    run = Run(tmp_path, validate=figures(3.0, 2.0, 2.5, 4.0, name="bleu"), validate_every=1, best_metric="bleu")
    run.trainer.run()
    assert run.exported == ["step 1", "step 4"]


def test_loss_breaks_ties(tmp_path: Path) -> None:
    """Early in a run BLEU is always 0, and accuracies on few labels are often equal."""
    judged = iter([(0.0, 7.0), (0.0, 6.0), (0.0, 6.5), (0.0, 6.0), (1.0, 9.0), (1.0, 8.0)])

    def judge() -> Figures:
        bleu, loss = next(judged)
        return {"loss": loss, "bleu": bleu}

    run = Run(tmp_path, validate=judge, validate_every=1, max_steps=6, best_metric="bleu")
    run.trainer.run()
    assert run.exported == ["step 1", "step 2", "step 5", "step 6"]


def test_patience_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, validate=figures(3.0, 2.0, 2.5, 2.5), validate_every=3, patience=2, max_steps=100)
    assert run.trainer.run() == "patience"
    assert [path.name for path in checkpoint_paths(tmp_path / "checkpoints")] == ["step-00000012"]


def test_the_average_of_the_last_checkpoints_is_a_candidate(tmp_path: Path) -> None:
    run = Run(tmp_path, validate=figures(2.0, 1.0), average=3, checkpoint_every=1, schedule="constant")
    run.trainer.run()
    models = [load_checkpoint(path).model for path in checkpoint_paths(tmp_path / "checkpoints")[-3:]]
    mean = {name: torch.stack([model[name] for model in models]).mean(0) for name in models[0]}
    torch.testing.assert_close(run.validated[-1], mean)
    assert run.exported == ["step 4", "average of 3 checkpoints, step-00000002 to step-00000004"]


def test_checkpoints_of_a_falling_rate_are_not_averaged(tmp_path: Path) -> None:
    run = Run(tmp_path, validate=figures(2.0, 1.0), average=3, checkpoint_every=1, schedule="linear")
    run.trainer.run()
    assert len(run.validated) == 1
    assert run.exported == ["step 4"]


def test_a_checkpoint_damaged_later_is_not_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def damage() -> Figures:
        (checkpoint_paths(tmp_path / "checkpoints")[-1] / "model.safetensors").write_bytes(b"")
        return {"loss": 1.0}

    run = Run(tmp_path, validate=damage, average=3, checkpoint_every=1, schedule="constant", show=True)
    assert run.trainer.run() == "finished"
    assert run.exported == ["step 4"]
    assert "not averaged: " in capsys.readouterr().err


def test_a_run_with_other_batches_is_resumed_after_as_much_of_the_epoch(tmp_path: Path) -> None:
    Run(tmp_path, tokens_per_batch=600).trainer.run()
    resumed = Run(tmp_path, tokens_per_batch=200)
    assert resumed.trainer.restore(pytest.fail)
    assert resumed.trainer.progress.data == {"epoch": 1, "given": 12}  # was 4
    same = Run(tmp_path, tokens_per_batch=600)
    assert same.trainer.restore(pytest.fail)
    assert same.trainer.progress.data == {"epoch": 1, "given": 4}


def test_training_continues_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its name after the update in which it is complete; a kill before leaves the one before it."""
    run, may_write, save_file = Run(tmp_path, max_steps=6, checkpoint_every=3), Event(), checkpoint.save_file

    def wait(tensors: dict[str, Tensor], path: Path) -> None:
        assert may_write.wait(60)
        save_file(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", wait)
    named: list[list[str]] = []

    def look(_module: nn.Module, _inputs: Any) -> None:
        named.append([path.name for path in checkpoint_paths(tmp_path / "checkpoints")])
        if len(named) == 5:
            may_write.set()
            assert run.trainer.saver.draft
            run.trainer.saver.draft.sums()

    run.network.src_embeddings.register_forward_pre_hook(look)
    run.trainer.run()
    assert named == [[], [], [], [], [], ["step-00000003"]]
    assert [path.name for path in checkpoint_paths(tmp_path / "checkpoints")] == ["step-00000003", "step-00000006"]


def test_an_error_leaves_a_checkpoint_that_was_being_written(tmp_path: Path) -> None:
    run = Run(tmp_path, checkpoint_every=2)
    steps = iter(range(1, 9))

    def fail(_module: nn.Module, _inputs: Any) -> None:
        if next(steps) == 3:
            raise ZeroDivisionError

    run.network.src_embeddings.register_forward_pre_hook(fail)
    with pytest.raises(ZeroDivisionError):
        run.trainer.run()
    assert [path.name for path in checkpoint_paths(tmp_path / "checkpoints")] == ["step-00000002"]


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    Run(tmp_path, checkpoint_every=2, keep_last=2, max_steps=11).trainer.run()
    assert [path.name[-2:] for path in checkpoint_paths(tmp_path / "checkpoints")] == ["10", "11"]
    Run(tmp_path, checkpoint_every=2, keep_last=1, average=3, max_steps=11).trainer.run()
    assert len(checkpoint_paths(tmp_path / "checkpoints")) == 3


# Stopping and going on ------------------------------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    "model": replace(MODEL, dropout=0.2),
    "ema": 0.9,
    "r_drop": 1.0,
    "accumulate": 2,
    "log_every": 3,
    "checkpoint_every": 4,
    "validate_every": 5,
    "keep_last": 10,
    "average": 10,
}


@pytest.mark.thorough
def test_a_compiled_run_is_resumed_compiled_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the generated kernels, which take a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    settings: dict[str, Any] = {"dtype": torch.float64, "checkpoint_every": 2}
    whole = Run(tmp_path / "whole", compile=True, **settings)
    whole.trainer.run()
    for compiled in (True, False):
        folder = tmp_path / f"{compiled}"
        Run(folder, compile=True, **settings, max_steps=2).trainer.run()
        resumed = Run(folder, compile=compiled, **settings)
        assert resumed.trainer.restore(pytest.fail)
        assert resumed.trainer.run() == "finished"
        if compiled:
            assert_equal(resumed.parameters(), whole.parameters())
        else:  # float64 rounding of sums in another order; Adam divides the noise of a key's bias by eps
            torch.testing.assert_close(resumed.parameters(), whole.parameters(), rtol=1e-9, atol=1e-7)


def test_elapsed_time_continues_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr("headwise.pytorch.training.trainer.time.monotonic", lambda: float(next(clock)))
    first = Run(tmp_path, max_steps=8)
    first.trainer.run()
    next(itertools.islice(clock, 10_000, None))  # nobody trains for a while
    second = Run(tmp_path, max_steps=13)
    assert second.trainer.restore(pytest.fail)
    second.trainer.run()
    for name in ("metrics.jsonl", "validation.jsonl"):
        times = [line["elapsed"] for line in second.log(name)]
        assert len(times) > 1
        assert times == sorted(times)
        assert 0 < times[0] < times[-1] < 10_000


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole", **EVERYTHING, max_steps=13)
    whole.trainer.run()
    first = Run(tmp_path / "parts", **EVERYTHING, max_steps=8)
    first.trainer.run()
    torch.manual_seed(99)
    second = Run(tmp_path / "parts", **EVERYTHING, max_steps=13)
    assert second.trainer.restore(pytest.fail)
    assert second.trainer.progress.step == 8
    assert second.trainer.run() == "finished"
    assert_equal(second.parameters(), whole.parameters())
    assert_equal(second.trainer.average, whole.trainer.average)
    figures = [[(line["step"], line["loss"], line["nll"]) for line in run.log()] for run in (whole, second)]
    assert figures[0] == figures[1]
    assert len(figures[0]) == 4


def test_without_a_checkpoint_there_is_nothing_to_restore(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert not run.trainer.restore(pytest.fail)
    assert_equal(run.parameters(), run.start)


def test_another_number_of_threads_is_mentioned(tmp_path: Path) -> None:
    Run(tmp_path).trainer.run()
    warnings: list[str] = []
    torch.set_num_threads(2)
    try:
        assert Run(tmp_path).trainer.restore(warnings.append)
    finally:
        torch.set_num_threads(1)
    assert "2 threads" in warnings[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_its_step(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    run = Run(tmp_path, max_steps=50)
    calls = iter(range(1, 50))

    def raise_at_3(_module: nn.Module, _inputs: Any) -> None:
        if next(calls) == 3:
            signal.raise_signal(number)

    run.network.src_embeddings.register_forward_pre_hook(raise_at_3)
    assert run.trainer.run() == number.name
    (path,) = checkpoint_paths(tmp_path / "checkpoints")
    assert load_checkpoint(path).state["step"] == 3
    assert_equal(load_checkpoint(path).model, run.parameters())
    assert run.validated == []
    assert run.exported == ["step 3, not validated"] and load_checkpoint(path).state["kept"] == run.exported[0]
    assert signal.getsignal(number) is before


def test_a_signal_after_a_validation_keeps_the_best_model(tmp_path: Path) -> None:
    """Also if the run is resumed, and stopped before its next validation."""
    run, folder = Run(tmp_path, max_steps=50, validate_every=2, average=1), tmp_path
    for last in (3, 3):
        calls = iter(range(1, 50))

        def raise_at(_module: nn.Module, _inputs: Any, last: int = last, calls: Any = calls) -> None:
            if next(calls) == last:
                signal.raise_signal(signal.SIGINT)

        run.network.src_embeddings.register_forward_pre_hook(raise_at)
        assert run.trainer.run() == "SIGINT"
        kept = run.trainer.progress
        assert (kept.kept, kept.kept_figures) == ("step 2", {"loss": 1.0})
        run = Run(folder, max_steps=50, validate_every=100)
        assert run.trainer.restore(pytest.fail)
    assert run.exported == []


def test_the_moving_average_is_exported_before_the_first_validation(tmp_path: Path) -> None:
    run, seen = Run(tmp_path, max_steps=50, ema=0.5), list[dict[str, Tensor]]()
    run.trainer.export = lambda parameters, _figures, _what: seen.append({k: v.clone() for k, v in parameters.items()})
    run.network.src_embeddings.register_forward_pre_hook(lambda *_: signal.raise_signal(signal.SIGINT))
    assert run.trainer.run() == "SIGINT"
    assert_equal(seen[0], run.trainer.average)


def test_a_second_signal_aborts(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def raise_twice(_module: nn.Module, _inputs: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    run.network.src_embeddings.register_forward_pre_hook(raise_twice)
    with pytest.raises(KeyboardInterrupt):
        run.trainer.run()


def test_a_validation_without_a_finite_loss_is_never_the_best(tmp_path: Path) -> None:
    losses = iter([math.nan, 2.0, math.inf, 3.0])
    run = Run(tmp_path, validate=lambda: {"loss": next(losses)}, validate_every=1)
    run.trainer.run()
    assert run.exported == ["step 2"]


def test_a_run_that_lost_patience_is_not_resumed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 20, "validate_every": 1, "patience": 2}
    first = Run(tmp_path, **settings)
    assert first.trainer.run() == "patience"
    step = first.trainer.progress.step
    second = Run(tmp_path, **settings)
    assert second.trainer.restore(pytest.fail)
    assert second.trainer.run() == "patience"
    assert second.trainer.progress.step == step < 20


class Judge:
    """Metrics that depend only on the network; signals arrive at the validations of these numbers."""

    def __init__(self, *interrupted: int) -> None:
        self.interrupted, self.calls = interrupted, 0
        self.run: Run

    def __call__(self) -> Figures:
        self.calls += 1
        if self.calls in self.interrupted:
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("a validation goes on after a signal")
        return {"loss": sum(p.double().square().sum().item() for p in self.run.network.parameters())}


def judged(folder: Path, *interrupted: int, **settings: Any) -> Run:
    judge = Judge(*interrupted)
    judge.run = Run(folder, validate=judge, **settings)
    return judge.run


@pytest.mark.parametrize(
    ("settings", "interrupted"),
    [({"ema": 0.75}, 1), ({"ema": 0.75}, 3), *(({"checkpoint_every": 3, "average": 2}, n) for n in (1, 3, 4))],
    ids=str,
)
def test_an_interrupted_validation_is_repeated(tmp_path: Path, interrupted: int, settings: dict[str, Any]) -> None:
    """At any step, including the last one and the average: results equal an uninterrupted run."""
    settings = {"max_steps": 9, "validate_every": 3, **settings}
    whole, first = judged(tmp_path / "whole", **settings), judged(tmp_path / "parts", interrupted, **settings)
    assert whole.trainer.run() == "finished"
    assert first.trainer.run() == "SIGTERM"
    assert len(first.log("validation.jsonl") if interrupted > 1 else []) == interrupted - 1
    newest = checkpoint_paths(tmp_path / "parts" / "checkpoints")[-1]
    assert load_checkpoint(newest).state["step"] == min(9, 3 * interrupted)
    second = judged(tmp_path / "parts", **settings)
    assert second.trainer.restore(pytest.fail)
    assert second.trainer.run() == "finished"
    validated = [what for what in first.exported if not what.endswith(", not validated")]
    assert validated + second.exported == whole.exported
    assert_equal(second.parameters(), whole.parameters())
    records = [
        [(v["step"], v["what"], v["loss"], v["best"]) for v in r.log("validation.jsonl")] for r in (whole, second)
    ]
    assert records[0] == records[1]
    saved = [
        [(p.name, load_checkpoint(p).state["best"]) for p in checkpoint_paths(r.folder / "checkpoints")]
        for r in (whole, second)
    ]
    assert saved[0][-1] == saved[1][-1]


def test_a_signal_before_a_validation_defers_it(tmp_path: Path) -> None:
    run = Run(tmp_path, validate_every=2)
    calls = iter(range(1, 50))

    def raise_at_2(_module: nn.Module, _inputs: Any) -> None:
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)

    run.network.src_embeddings.register_forward_pre_hook(raise_at_2)
    assert run.trainer.run() == "SIGINT"
    assert run.validated == []
    again = Run(tmp_path, validate_every=2)
    assert again.trainer.restore(pytest.fail)
    assert again.trainer.run() == "finished"
    assert len(again.validated) == 2


# Callbacks ------------------------------------------------------------------------------------------------------------


class Recorder(Callback):
    """Keeps all events, and changes what it can reach: records, settings and the random state."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at
        self.events: list[tuple[str, Any]] = []

    def on_start(self, start: TrainingStart) -> None:
        self.note("start", {"step": start.step, "parameters": start.n_parameters, "train": {**start.config["train"]}})
        start.config["train"]["max_steps"] = 1  # type: ignore[index]

    def on_log(self, record: dict[str, Any]) -> None:
        self.note("log", {**record})
        record.clear()
        if self.fails_at and self.events[-1][1]["step"] == self.fails_at:
            raise ZeroDivisionError("of the callback")

    def on_validation(self, record: dict[str, Any]) -> None:
        self.note("validation", {**record})
        record["best"] = record["step"] = None

    def on_end(self, reason: str) -> None:
        self.note("end", reason)

    def note(self, event: str, value: Any) -> None:
        torch.manual_seed(1)
        torch.rand(3)
        self.events.append((event, value))

    def of(self, event: str) -> list[Any]:
        return [value for name, value in self.events if name == event]


def test_callbacks_get_the_records_of_the_logs(tmp_path: Path) -> None:
    recorder = Recorder()
    run = Run(tmp_path, callbacks=[Recorder(), recorder], max_steps=6, log_every=2, validate_every=3)
    assert run.trainer.run() == "finished"
    names = [name for name, _ in recorder.events]
    assert names == ["start", "log", "validation", "log", "log", "validation", "end"]
    (start,) = recorder.of("start")
    assert (start["step"], start["train"]["max_steps"]) == (0, 6)
    assert start["parameters"] == sum(value.numel() for value in run.parameters().values())
    assert recorder.of("log") == run.log()
    assert recorder.of("validation") == run.log("validation.jsonl")
    assert {"step", "loss", "learning_rate", "tokens_per_second", "epoch"} <= recorder.of("log")[0].keys()
    assert recorder.of("end") == ["finished"]


def test_a_callback_does_not_change_the_result(tmp_path: Path) -> None:
    model = replace(MODEL, dropout=0.3)
    runs = []
    for callbacks in ([], [Recorder()]):
        runs.append(Run(tmp_path / str(len(callbacks)), model, callbacks=callbacks, validate_every=2))
        runs[-1].trainer.run()
    assert_equal(runs[0].parameters(), runs[1].parameters())
    losses = [[(record["step"], record["loss"]) for record in run.log()] for run in runs]
    assert losses[0] == losses[1]


def test_a_run_that_a_callback_has_ended_is_resumed(tmp_path: Path) -> None:
    model = replace(MODEL, dropout=0.3)
    whole = Run(tmp_path / "whole", model)
    whole.trainer.run()
    recorder = Recorder(fails_at=3)
    broken = Run(tmp_path / "broken", model, callbacks=[recorder], checkpoint_every=2)
    with pytest.raises(ZeroDivisionError, match="of the callback"):
        broken.trainer.run()
    assert recorder.of("end") == ["error"]
    resumed = Run(tmp_path / "broken", model, callbacks=[recorder], checkpoint_every=2)
    recorder.fails_at = 0
    assert resumed.trainer.restore(print)
    resumed.trainer.run()
    assert recorder.of("start")[1]["step"] == 2
    assert_equal(whole.parameters(), resumed.parameters())
    assert [record["step"] for record in resumed.log()] == [1, 2, 3, 4]


def test_only_callbacks_that_have_started_are_ended(tmp_path: Path) -> None:
    class Broken(Callback):
        def on_start(self, start: TrainingStart) -> None:
            raise ZeroDivisionError

        def on_end(self, reason: str) -> None:
            raise AssertionError

    first, last = Recorder(), Recorder()
    with pytest.raises(ZeroDivisionError):
        Run(tmp_path, callbacks=[first, Broken(), last]).trainer.run()
    assert first.of("end") == ["error"]
    assert not last.events


def test_callbacks_are_told_which_signal_ended_the_run(tmp_path: Path) -> None:
    class Interrupting(Recorder):
        def on_log(self, record: dict[str, Any]) -> None:
            signal.raise_signal(signal.SIGTERM)

    recorder = Interrupting()
    assert Run(tmp_path, callbacks=[recorder]).trainer.run() == "SIGTERM"
    assert recorder.of("end") == ["SIGTERM"]
