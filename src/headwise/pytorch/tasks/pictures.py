"""Training image classification: from scratch, in ViT's layout, or from a pretrained ViT or DeiT.

See `pytorch/data/pictures.py` for image files and augmentation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.build import build
from headwise.core.extensions.fronts import PatchFront
from headwise.core.loss import Loss, label_loss
from headwise.core.train import Objective
from headwise.evaluate.baselines import MOST_PICTURES, NEIGHBOURS, Baseline, evenly, nearest_labels
from headwise.evaluate.classes import label_report
from headwise.pytorch.architectures.hf_layouts import vit_config
from headwise.pytorch.checkpoint.from_scratch import check_layout, picture_layout
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.image import Preprocessing
from headwise.pytorch.data.pictures import (
    Augmentation,
    Picture,
    PictureBatch,
    PictureDataset,
    augmented_pixels,
    check_picture_labels,
    count_picture_labels,
    hold_out_pictures,
    pictures_key,
    read_pictures,
)
from headwise.pytorch.data.stream import BatchShare, EndlessStream
from headwise.pytorch.models.vision import VisionModel
from headwise.pytorch.tasks.classification import label_baseline, label_figures, label_outputs, warn_of_rare_labels
from headwise.pytorch.tasks.heads import (
    encoder_card_rows,
    head_message,
    labels_in_order,
    network_with_head,
    pretrained_head,
    with_head,
)
from headwise.pytorch.tasks.job import FolderLayout, Job, TrainRequest, base_names, notify
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint.trained import RUN
from headwise.text.files.split import parse_validation_size

NEIGHBOUR_SIDE = 32  # pixels a side that nearest neighbours are compared by
STD = 0.02  # of initial position embeddings and of the class token, as in ViT


@dataclass(frozen=True)
class PictureJob(Job):
    """Labels for pictures."""

    train: PictureDataset
    valid: PictureDataset
    make: Callable[[], nn.Module]

    @property
    def baseline(self) -> dict[str, float]:
        return label_baseline((picture.label for picture in self.valid.pictures), len(self.train.labels))

    def simple_baseline(self) -> Baseline:
        """The nearest training images, by their pixels without augmentation."""
        side = min(self.config.model.image_size, NEIGHBOUR_SIDE)
        (train, labels), (valid, true) = (_small_pixels(part, side) for part in (self.train, self.valid))
        names = self.train.labels
        report = label_report([names[i] for i in true], [names[i] for i in nearest_labels(train, labels, valid)])
        figures = {"accuracy": report.accuracy, "macro_f1": report.macro_f1}
        advice = "more steps (train.max_steps), more images or a pretrained model (--init) would help"
        return Baseline(f"{NEIGHBOURS} nearest neighbours of {side} x {side} pixels", figures, advice)

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        return picture_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[PictureBatch]:
        return self.train.stream(rows_of(self.config), self.config.train.seed, state, share)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """See `label_outputs`; images are not augmented."""
        batches = (self.valid.load(rows) for rows in shard.of(self.valid.in_order(rows_of(self.config))))
        return label_outputs((network(batch.pixels.to(device)), batch.labels) for batch in batches)

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Cross-entropy without smoothing, accuracy and macro F1."""
        return label_figures(self.valid.labels, outputs)


def _small_pixels(dataset: PictureDataset, side: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The pixels of images in rows, reduced to `side`, and their classes; of many images a part."""
    chosen, steps = [dataset.pictures[i] for i in evenly(len(dataset), MOST_PICTURES)], Preprocessing(size=(side, side))
    rows = [augmented_pixels(one, steps, Augmentation(), None).flatten() for one in chosen]
    return torch.stack(rows).numpy(), np.array([dataset.labels.index(one.label) for one in chosen])


def rows_of(config: RunConfig) -> int:
    """Images per batch: `train.tokens_per_batch` over the patches of an image, at least 1."""
    return max(1, config.train.tokens_per_batch // n_patches(config))


def n_patches(config: RunConfig) -> int:
    """Patches per image."""
    return (config.model.image_size // config.model.patch_size) ** 2


def picture_objective(network: nn.Module, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of the labels."""
    forward = torch.compile(network) if train.compile else network

    def objective(batch: PictureBatch) -> Loss:
        return label_loss(forward(batch.pixels), batch.labels, train.label_smoothing)

    return objective


def picture_job(request: TrainRequest, config: RunConfig, folder: Path) -> PictureJob:
    """Read and check the data for training from scratch."""
    check_layout(vit_config(replace(config.model, n_outputs=2)))
    files, labels, held = _files(request)
    axes, side = vit_config(replace(config.model, n_outputs=len(labels))), config.model.image_size
    layout, preprocessing = picture_layout(axes, labels), Preprocessing(size=(side, side))
    return _job(request, config, files, held, labels, preprocessing, layout, lambda: init_patch_positions(build(axes)))


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> PictureJob:
    """Read and check the data for fine-tuning, with the preprocessing of the pretrained model."""
    base: VisionModel = FINE_TUNING.read(request.init)
    files, names, held = _files(request)
    labels = labels_in_order(request, base, "image_class", names)
    model = with_head(base, "image_class", labels)
    known, dropout = pretrained_head(base, model), config.model.dropout
    notify(request, head_message(base, f"{len(labels)} classes", known))

    def make() -> nn.Module:
        return network_with_head(base, model, known, dropout)

    job = _job(request, config, files, held, labels, base.preprocessing, SameLayout(model), make)
    return replace(job, about={**job.about, "network": encoder_card_rows(model, dropout)})


FINE_TUNING = FineTuning(fine_tuning_job, VisionModel, "an image encoder (ViT, DeiT)")
JOBS = TaskJobs(picture_job, FINE_TUNING)


def _job(
    request: TrainRequest,
    config: RunConfig,
    files: tuple[Sequence[Picture], Sequence[Picture]],
    held: Mapping[str, int],
    labels: Sequence[str],
    preprocessing: Preprocessing,
    layout: FolderLayout,
    make: Callable[[], nn.Module],
) -> PictureJob:
    train, valid = files
    dropped = f"; dropped {held['dropped']:,} others with the same pixels" if held.get("dropped") else ""
    counts = f"training on {len(train):,} images with {len(labels)} labels, validating on {len(valid):,}{dropped}"
    notify(request, counts)
    config = replace(config, model=replace(config.model, n_outputs=len(labels)))
    processing = preprocessing, n_patches(config), Augmentation(config.data.flip, config.data.shift)
    training, validating = (PictureDataset(some, tuple(labels), *processing) for some in files)
    size = f"{config.model.image_size} pixels a side in patches of {config.model.patch_size}"
    about = {
        "corpus": {
            "train": base_names(request.train),
            "valid": base_names(request.train if held else request.valid),
            "pictures": len(train),
            "key": pictures_key(train),
            "valid_key": pictures_key(valid),
            **({"held_out": held} if held else {}),
        },
        "labels": [*labels],
        "material": {
            "labels": ", ".join(labels),
            "training data": f"{', '.join(base_names(request.train))}: {len(train):,} images, {size}",
        },
        "settings": RUN,
    }
    return PictureJob(config, None, about, training, validating, make, layout=layout)


def _files(request: TrainRequest) -> tuple[tuple[Sequence[Picture], Sequence[Picture]], list[str], dict[str, int]]:
    """Training and validation images, the training labels, and the counts of images that were held out."""
    *files, held = _pictures(request)
    counts = count_picture_labels(files[0], ", ".join(request.train))
    warn_of_rare_labels(request, counts)
    check_picture_labels(files[1], [*counts])
    return (files[0], files[1]), [*counts], held


def _pictures(request: TrainRequest) -> tuple[Sequence[Picture], Sequence[Picture], dict[str, int]]:
    train, amount = read_pictures(request.train), parse_validation_size(request.valid)
    if not amount:
        return train, read_pictures(request.valid), {}
    return hold_out_pictures(train, amount)


def init_patch_positions(network: Any) -> nn.Module:
    """Initialize position embeddings and class token from a normal distribution."""
    front = network.embeddings
    assert isinstance(front, PatchFront)
    for vectors in (front.positions, *front.prefix):
        nn.init.trunc_normal_(vectors, std=STD)
    return network
