"""Training image captioning: cross-entropy of the next token, BLEU.

The decoder reads the start token and predicts the caption and its end token, the loss of `VisionEncoderDecoderModel`.
Encoder and decoder have their own dropout, from their parts of config.json. See `headwise.pytorch.data.captions` for
files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from headwise.config.settings import RunConfig
from headwise.core.dropout import Dropout
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.evaluate.captions import caption_report
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.captions import (
    CaptionedDataset,
    captioned_dataset,
    captions_by_picture,
    read_captions,
)
from headwise.pytorch.data.pictures import Augmentation, Picture, hold_out_pictures, pictures_key
from headwise.pytorch.models.captioner import Captioner, search_captions
from headwise.pytorch.tasks.conditional_generation import ConditionalGenerationJob
from headwise.pytorch.tasks.from_scratch import captioner_from_scratch
from headwise.pytorch.tasks.job import TrainRequest, base_names, notify
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs, extra_dropout_rates, make_trainable, vocabulary_row
from headwise.pytorch.training.extra_dropout import DroppingKernel
from headwise.runtime.checkpoint.trained import RUN
from headwise.runtime.tokenizers.vocabulary import bare
from headwise.text.files.split import parse_validation_size


class CaptionerLayout(SameLayout):
    """Keeps the pooler of the encoder, which is unused, but which `transformers` expects."""

    def write_weights(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """The weights under their original names, unused tensors, and the model card."""
        self.write_pruned(folder, parameters, card)


@dataclass(frozen=True)
class CaptionJob(ConditionalGenerationJob):
    """Captions for pictures."""

    @property
    def size(self) -> int:
        """Images per batch."""
        side = self.config.model.image_size // self.config.model.patch_size
        return max(1, self.config.train.tokens_per_batch // side**2)

    @property
    def rows(self) -> Sequence[int]:
        """One row for each image, also if it has several captions."""
        return self.valid.first

    @property
    def first(self) -> tuple[str, str]:
        picture = self.valid.pictures[0]
        return picture.path.name, picture.label

    def network(self) -> Transformer:
        return trainable_captioner(self.model, self.config.model.dropout)

    def generate_texts(self, network: Transformer, memory: Tensor) -> list[str]:
        """Greedy search for encoded images."""
        config = self.model.generation.changed({"beam_size": 1, "n_best": 1, "sample": False})
        return [
            self.model.decode([*self.model.opening, *ranked[0].tokens])
            for ranked in search_captions(network, memory, config, self.model.max_len)
        ]

    def score_texts(self, texts: Sequence[str]) -> dict[str, float]:
        """BLEU against all captions of each image."""
        references = [*captions_by_picture(self.valid.pictures).values()]
        return {"bleu": caption_report(texts, references, ["BLEU"]).scores["BLEU"].score}


def trainable_captioner(model: Captioner, dropout: float) -> Transformer:
    """The network for fine-tuning; `dropout` is the decoder's, the encoder has that of its config.json."""
    encoder, decoder = model.hf_config["encoder"], model.hf_config["decoder"]
    rates, attention = extra_dropout_rates(decoder, dropout), extra_dropout_rates(encoder, 0.0).attention
    both = replace(rates, attention=max(rates.attention, attention))
    network = make_trainable(model.network, dropout, both)
    encoder_dropout = float(encoder.get("hidden_dropout_prob") or 0.0)
    for part in (network.src_embeddings, network.encoder):
        _set_dropout(part, encoder_dropout, attention)
    _set_dropout(network.decoder, dropout, rates.attention)
    return network


def _set_dropout(part: nn.Module, p: float, attention: float) -> None:
    """Set the paper's dropout, and that of attention weights."""
    for module in part.modules():
        if isinstance(module, Dropout):
            module.p = p
    for module in part.modules():
        if isinstance(module, DroppingKernel):
            module.dropout.p = attention


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> CaptionJob:
    """Read and check the data that a captioner is fine-tuned on."""
    if request.source_language or request.target_language:
        raise UserError("--source-language and --target-language do not apply to captions; leave them out")
    model: Captioner = FINE_TUNING.read(request.init)
    *files, held = _files(request)
    train, valid = (_corpus(model, config, pictures) for pictures in files)
    counts = [f"{len(captions_by_picture(some)):,} images with {len(some):,} captions" for some in files]
    notify(request, f"training on {counts[0]}, validating on {counts[1]}")
    corpus = {
        "train": base_names(request.train),
        "valid": base_names(request.train if held else request.valid),
        "captions": len(train),
        "key": pictures_key(files[0]),
        "valid_key": pictures_key(files[1]),
        **({"held_out": held} if held else {}),
    }
    about = {
        "corpus": corpus,
        "material": {"training data": f"{', '.join(corpus['train'])}: {counts[0]}"},
        "network": _rows(model, config.model.dropout),
        "settings": RUN,
    }
    return CaptionJob(config, model.tokenizer, about, train, valid, model, request.show, layout=CaptionerLayout(model))


def _texts(request: TrainRequest) -> Iterator[str]:
    return (one.label for one in read_captions(request.train))


captioning_job = partial(captioner_from_scratch, fine_tuning_job, _texts)
FINE_TUNING = FineTuning(
    fine_tuning_job,
    Captioner,
    "a ViT or DeiT with a GPT-2 (vision-encoder-decoder; `headwise join` makes one of two folders)",
)
JOBS = TaskJobs(captioning_job, FINE_TUNING)


def _files(request: TrainRequest) -> tuple[list[Picture], list[Picture], dict[str, int]]:
    """Training and validation images, and the counts of images that were held out."""
    train, amount = read_captions(request.train), parse_validation_size(request.valid)
    if not amount:
        return train, read_captions(request.valid), {}
    return hold_out_pictures(train, amount, stratified=False)


def _corpus(model: Captioner, config: RunConfig, pictures: Sequence[Picture]) -> CaptionedDataset:
    special, encode = model.generation.special, bare(model.tokenizer)[0]
    if not model.generation.can_end:
        raise UserError(f"{model.path}: neither config.json nor generation_config.json has an eos_token_id")
    assert model.max_len
    tokens = special.prompt, special.eos_id
    changes = Augmentation(config.data.flip, config.data.shift)
    return captioned_dataset(pictures, encode, *tokens, model.max_len, model.preprocessing, changes)


def _rows(model: Captioner, dropout: float) -> dict[str, str]:
    """The rows of the model card for the network."""
    config, encoder, decoder = model.config, model.config.encoder, model.config.decoder
    assert encoder and decoder
    size = f"{config.image_size[0]} pixels a side in patches of {config.patch_size}"
    encoder_dropout = model.hf_config["encoder"].get("hidden_dropout_prob", 0.0)
    shape = f"{encoder.n_layers} + {decoder.n_layers} layers, d_model {encoder.d_model} and {decoder.d_model}, {size}"
    return {
        "architecture": f"{config.family}: {shape}",
        **vocabulary_row(model, config.vocab_size),
        "dropout": f"{dropout} in the decoder, {encoder_dropout} in the encoder",
    }
