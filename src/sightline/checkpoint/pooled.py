"""Model directories of classifiers and forecasters: an encoder alone, and labels or the statistics of a series.

Files and settings are those of `trained`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.architectures import build_pooled, with_parameters
from sightline.checkpoint.trained import CONFIG, WEIGHTS, read_tokenizer, read_weights, settings_for
from sightline.config import RunConfig
from sightline.data.series import Scaling
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError
from sightline.network.pooled import PooledEncoder


@dataclass(frozen=True)
class ClassifierDirectory:
    """What the model directory of a classifier holds, read and checked."""

    network: PooledEncoder
    tokenizer: Tokenizer
    labels: tuple[str, ...]  # class i is labels[i]
    config: RunConfig
    about: dict[str, Any]


@dataclass(frozen=True)
class ForecasterDirectory:
    """The same of a forecaster."""

    network: PooledEncoder
    scaling: Scaling
    config: RunConfig
    about: dict[str, Any]


def read_classifier_directory(path: str | Path, device: str | torch.device = "cpu") -> ClassifierDirectory:
    """Read the classifier in `path`; errors as of `read_model_directory`."""
    config, about = settings_for(["classify"], path)
    labels = tuple(_own(path, about, "labels", list))
    if len(labels) != config.model.n_outputs:
        raise UserError(
            f"{Path(path) / CONFIG}: has {len(labels)} labels, but the model {config.model.n_outputs} classes"
        )
    return ClassifierDirectory(_network(path, config, device), read_tokenizer(path, config), labels, config, about)


def read_forecaster_directory(path: str | Path, device: str | torch.device = "cpu") -> ForecasterDirectory:
    """Read the forecaster in `path`; errors as of `read_model_directory`."""
    config, about = settings_for(["forecast"], path)
    try:
        scaling = Scaling.of(_own(path, about, "series", dict))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{Path(path) / CONFIG}: 'series' is damaged ({type(error).__name__}: {error})") from None
    return ForecasterDirectory(_network(path, config, device), scaling, config, about)


def _network(path: str | Path, config: RunConfig, device: str | torch.device) -> PooledEncoder:
    weights = read_weights(path)
    return with_parameters(build_pooled, config.model, weights, str(Path(path) / WEIGHTS)).to(device)


def _own(path: str | Path, about: Mapping[str, Any], name: str, kind: type) -> Any:
    """What a task has noted in config.json."""
    if not isinstance(about.get(name), kind):
        raise UserError(f"{Path(path) / CONFIG}: has no '{name}', which a model of its task needs; restore the file")
    return about[name]
