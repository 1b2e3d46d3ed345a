"""Pictures to labels: from scratch by a recipe, kept in ViT's layout, or by a published ViT or DeiT, kept in its own.

Every command for such folders takes what comes out (`label`, `evaluate`, `inspect`, `explore`), and so does
`transformers`. Not here: files and what is changed in them for training (`data/pictures.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.architectures.pictures import picture_axes
from headwise.checkpoint.from_scratch import check_axes, picture_layout
from headwise.checkpoint.trained import RUN
from headwise.checkpoint.tuned import SameLayout
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.image import Preprocessing
from headwise.data.labelled import hold_out_examples
from headwise.data.pictures import (
    Augmentation,
    Picture,
    PictureBatch,
    PictureDataset,
    check_picture_labels,
    count_picture_labels,
    pictures_key,
    read_pictures,
)
from headwise.data.split import parse_validation_size
from headwise.data.stream import EndlessStream
from headwise.errors import UserError
from headwise.models.vision import VisionModel
from headwise.network.build import build
from headwise.network.fronts import PatchFront
from headwise.tasks.classification import label_baseline, label_figures, label_outputs, say_seen_once
from headwise.tasks.heads import encoder_rows, headed, known_head, labels_in_order, said_of_head, with_head
from headwise.tasks.job import FolderLayout, TrainRequest, base_names, notify
from headwise.tasks.pretrained import FineTuning
from headwise.training.loss import Loss
from headwise.training.losses import label_loss
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard

STD = 0.02  # of positions and of the vector before the patches, as they begin in ViT


@dataclass(frozen=True)
class PictureJob:
    """See `headwise.tasks.job.Job`."""

    config: RunConfig
    about: dict[str, Any]
    train: PictureDataset
    valid: PictureDataset
    layout: FolderLayout
    make: Callable[[], nn.Module]
    tokenizer: None = None
    signature: str = ""

    @property
    def baseline(self) -> dict[str, float]:
        return label_baseline((picture.label for picture in self.valid.pictures), len(self.train.labels))

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        return picture_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[PictureBatch]:
        return self.train.stream(rows_of(self.config), self.config.train.seed, state, pin)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Scores and labels of batches of pictures as they are: see `label_outputs`."""
        batches = (self.valid.load(rows) for rows in shard.of(self.valid.in_order(rows_of(self.config))))
        return label_outputs((network(batch.pixels.to(device)), batch.labels) for batch in batches)

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Cross-entropy without smoothing, accuracy and macro F1 of all pictures."""
        return label_figures(self.valid.labels, outputs)


def rows_of(config: RunConfig) -> int:
    """Pictures in a batch: as many as `train.tokens_per_batch` has room for, a token being a patch; one at least."""
    return max(1, config.train.tokens_per_batch // n_patches(config))


def n_patches(config: RunConfig) -> int:
    """Patches of a picture."""
    return (config.model.image_size // config.model.patch_size) ** 2


def picture_objective(network: nn.Module, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of a picture's label."""
    forward = torch.compile(network) if train.compile else network

    def objective(batch: PictureBatch) -> Loss:
        return label_loss(forward(batch.pixels), batch.labels, train.label_smoothing)

    return objective


def picture_job(request: TrainRequest, config: RunConfig, folder: Path) -> PictureJob:
    """Find, look at and check everything that a network for pictures is trained on from scratch."""
    check_axes(picture_axes(replace(config.model, n_outputs=2)))
    files, labels = _files(request)
    axes, side = picture_axes(replace(config.model, n_outputs=len(labels))), config.model.image_size
    layout, how = picture_layout(axes, labels), Preprocessing(size=(side, side))
    return _job(request, config, files, labels, how, layout, lambda: begin_positions(build(axes)))


def tuned_picture_job(request: TrainRequest, config: RunConfig, folder: Path) -> PictureJob:
    """The same for a published network, which sees pictures as its folder says."""
    base: VisionModel = FINE_TUNING.read(request.init)
    files, names = _files(request)
    labels = labels_in_order(request, base, "image_class", names)
    model = with_head(base, "image_class", labels)
    known, dropout = known_head(base, model), config.model.dropout
    notify(request, said_of_head(base, f"{len(labels)} classes", known))

    def make() -> nn.Module:
        return headed(base, model, known, dropout)

    job = _job(request, config, files, labels, base.preprocessing, SameLayout(model), make)
    return replace(job, about={**job.about, "network": encoder_rows(model, dropout)})


FINE_TUNING = FineTuning(
    tuned_picture_job,
    VisionModel,
    "a network for pictures (ViT, DeiT)",
)


def _job(
    request: TrainRequest,
    config: RunConfig,
    files: tuple[Sequence[Picture], Sequence[Picture]],
    labels: Sequence[str],
    how: Preprocessing,
    layout: FolderLayout,
    make: Callable[[], nn.Module],
) -> PictureJob:
    train, valid = files
    notify(request, f"training on {len(train):,} pictures with {len(labels)} labels, validating on {len(valid):,}")
    config = replace(config, model=replace(config.model, n_outputs=len(labels)))
    reads = how, n_patches(config), Augmentation(config.data.flip, config.data.shift)
    training, validating = (PictureDataset(some, tuple(labels), *reads) for some in files)
    about = {
        "corpus": {
            "train": base_names(request.train),
            "valid": base_names(request.train if parse_validation_size(request.valid) else request.valid),
            "pictures": len(train),
            "key": pictures_key(train),
            "valid_key": pictures_key(valid),
            **({"held_out": {"taken": len(valid), "dropped": 0}} if parse_validation_size(request.valid) else {}),
        },
        "labels": [*labels],
        "material": _material(request, config, train, labels),
        "settings": RUN,
    }
    return PictureJob(config, about, training, validating, layout, make)


def _material(
    request: TrainRequest, config: RunConfig, train: Sequence[Picture], labels: Sequence[str]
) -> dict[str, str]:
    """What the model card says of it."""
    size = f"{config.model.image_size} pixels a side in patches of {config.model.patch_size}"
    files = ", ".join(base_names(request.train))
    return {"labels": ", ".join(labels), "training data": f"{files}: {len(train):,} pictures, {size}"}


def _files(request: TrainRequest) -> tuple[tuple[Sequence[Picture], Sequence[Picture]], list[str]]:
    """Pictures to train and to validate on, and the labels of the former."""
    files = _pictures(request)
    counts = count_picture_labels(files[0], ", ".join(request.train))
    say_seen_once(request, counts)
    check_picture_labels(files[1], [*counts])
    return files, [*counts]


def _pictures(request: TrainRequest) -> tuple[Sequence[Picture], Sequence[Picture]]:
    train, amount = read_pictures(request.train), parse_validation_size(request.valid)
    if not amount:
        return train, read_pictures(request.valid)
    count = amount.pairs or round(amount.share * len(train))
    if not 0 < count < len(train):
        raise UserError(f"--valid {amount.text}: {count} of {len(train)} pictures; take another part")
    return hold_out_examples(train, count)


def begin_positions(network: Any) -> nn.Module:
    """With positions that differ from the first update on."""
    front = network.embeddings
    assert isinstance(front, PatchFront)
    for vectors in (front.positions, *front.prefix):
        nn.init.trunc_normal_(vectors, std=STD)
    return network
