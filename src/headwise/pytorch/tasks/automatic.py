"""Settings of a run that are chosen for data and machine: batching, precision, updates of fine-tuning."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.tasks import TASKS
from headwise.config.training import TrainConfig
from headwise.device import device_name
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.training.packed import are_packable, packs, pays_in_bfloat16
from headwise.runtime.checkpoint.trained import CONFIG, read_run

TUNING_PER_PAIR, MOST_TUNING = 0.4, 4000  # updates of `headwise tune`
ENOUGH_DECODED = 100  # validation pairs from which on their BLEU selects the best model


def resolve_auto(request: TrainRequest, config: RunConfig, folder: Path) -> TrainConfig:
    """[train] with every "auto" replaced, by the value of the resumed run or by these rules.

    `batching` is "random" on a CPU if the compiled library supports training such a network without padding, whether or
    not it is installed: a command gives the same batches on every machine. `precision` also depends on the processor:
    "bf16" if that is faster; otherwise "float32" on a CPU and "auto" on a GPU.
    """
    train, on_cpu = config.train, device_name(request.device) == "cpu"
    packable, pays = on_cpu and _is_packable(config), pays_in_bfloat16(config.model.d_model)
    chosen = {"batching": "random" if packable else "bucketed"}
    chosen["precision"] = (
        "bf16" if packable and pays and _is_packable(config, packs) else "float32" if on_cpu else "auto"
    )
    if request.resume and (folder / CONFIG).is_file():
        chosen = {name: getattr(read_run(folder)[0].train, name) for name in chosen}
    train = replace(train, **{name: value for name, value in chosen.items() if getattr(train, name) == "auto"})
    if on_cpu and train.precision == "bf16" and not pays:
        notify(request, "train.precision = bf16 is not known to be faster than float32 with this model and processor")
    return train


def tuning_settings(request: TrainRequest, train: TrainConfig, folder: Path, pairs: int, validated: int) -> TrainConfig:
    """[train] of `headwise tune` for a model trained here: what follows from the numbers of pairs.

    Many pairs have more updates and rarer validations, as measured with up to ten thousand
    (benchmarks/results/few-pairs_1-core-cpu_2026-11-27.md). The best model is the one with the highest BLEU if enough
    pairs are decoded for it (benchmarks/results/tuning-choices_1-core-cpu_2026-11-29.md). A setting that the request
    has stays, and a resumed run keeps its own, also with more pairs.
    """
    given = {setting.partition("=")[0].strip() for setting in request.settings}
    if request.recipe != TASKS["translate"].tuning:
        return train
    own = read_run(folder)[0].train if request.resume and (folder / CONFIG).is_file() else None
    chosen: dict[str, Any] = {}
    if not given & {"train.max_steps", "train.minutes"}:
        more = max(train.max_steps, min(MOST_TUNING, round(TUNING_PER_PAIR * pairs)))
        chosen["max_steps"] = own.max_steps if own else more
        chosen["validate_every"] = train.validate_every * chosen["max_steps"] // train.max_steps
    if own or min(validated, train.validate_bleu) >= ENOUGH_DECODED:
        chosen["best_metric"] = own.best_metric if own else "bleu"
    return replace(train, **{name: value for name, value in chosen.items() if f"train.{name}" not in given})


def with_precision(request: TrainRequest, config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with only "auto" of `train.precision` replaced."""
    precision = resolve_auto(request, config, folder).precision
    return replace(config, train=replace(config.train, precision=precision))


def warn_of_padding(request: TrainRequest, config: RunConfig) -> None:
    """A warning if the way that batches are formed is slow on this machine."""
    if config.train.batching == "random" and device_name(request.device) == "cpu" and not _is_packable(config, packs):
        notify(
            request,
            "random batches have much padding without the compiled library, which this run cannot use: install it, or "
            "start a run with --set train.batching=bucketed",
        )


def _is_packable(config: RunConfig, are_packable: Callable[..., bool] = are_packable) -> bool:
    """Whether the compiled library can train such a network without padding; with `packs`, also on this machine."""
    model, train = config.model, config.train
    if not isinstance(model, TransformerConfig) or model.n_kv_heads or model.positions == "relative":
        return False
    widths = (width or model.d_model // model.n_heads for width in (model.d_k, model.d_v))
    plain = not (train.compile or train.alignment_weight)
    return plain and are_packable(tuple(widths), config.data.max_length)
