"""Training a captioner on pictures with captions: cross-entropy of the next piece, BLEU.

The decoder is given the mark that captions begin with and learns the caption and its end mark: the loss of
`VisionEncoderDecoderModel` with labels of both. Encoder and decoder drop each what its part of config.json says. What
comes out is a folder in the layout it came in. Not here: files (`headwise.data.captions`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from headwise.checkpoint.trained import RUN
from headwise.checkpoint.tuned import SameLayout
from headwise.checkpoint.vocabulary import bare
from headwise.config.settings import RunConfig
from headwise.data.captions import (
    CaptionedDataset,
    captioned_dataset,
    captions_by_picture,
    hold_out_pictures,
    read_captions,
)
from headwise.data.pictures import Augmentation, Picture, pictures_key
from headwise.data.split import parse_validation_size
from headwise.errors import UserError
from headwise.evaluate.captions import caption_report
from headwise.models.captioner import Captioner, search_captions
from headwise.network.dropout import Dropout
from headwise.network.extra_dropout import DroppingKernel
from headwise.network.transformer import Transformer
from headwise.tasks.conditional_generation import TellingJob
from headwise.tasks.from_scratch import captioner_from_scratch
from headwise.tasks.job import TrainRequest, base_names, notify
from headwise.tasks.pretrained import FineTuning, more_dropout, trainable


class WholeFolder(SameLayout):
    """With the pooler of its encoder, which nothing reads, but which `transformers` would miss."""

    def write_weights(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """The weights by the names that they came with, what no network reads beside them, and the model card."""
        self.write_pruned(folder, parameters, card)


@dataclass(frozen=True)
class CaptionJob(TellingJob):
    """See `headwise.tasks.job.Job`."""

    @property
    def size(self) -> int:
        """Pictures of a batch."""
        side = self.config.model.image_size // self.config.model.patch_size
        return max(1, self.config.train.tokens_per_batch // side**2)

    @property
    def rows(self) -> Sequence[int]:
        """A picture that has several captions is told of once."""
        return self.valid.first

    def network(self) -> Transformer:
        return trainable_captioner(self.model, self.config.model.dropout)

    def written(self, network: Transformer, memory: Tensor) -> list[str]:
        """What greedy search makes of pictures that the encoder has seen."""
        config = self.model.generation.changed({"beam_size": 1, "n_best": 1, "sample": False})
        return [
            self.model.decode(ranked[0].tokens)
            for ranked in search_captions(network, memory, config, self.model.max_len)
        ]

    def judged(self, written: Sequence[str]) -> dict[str, float]:
        """BLEU against all captions of each picture."""
        said = [*captions_by_picture(self.valid.pictures).values()]
        return {"bleu": caption_report(written, said, ["BLEU"]).scores["BLEU"].score}


def trainable_captioner(model: Captioner, dropout: float) -> Transformer:
    """Its network with weights that may change; `dropout` is the decoder's, the encoder has its own."""
    looks, writes = model.hf_config["encoder"], model.hf_config["decoder"]
    rates, attention = more_dropout(writes, dropout), more_dropout(looks, 0.0).attention
    both = replace(rates, attention=max(rates.attention, attention))
    network = trainable(model.network, dropout, both)
    own = float(looks.get("hidden_dropout_prob") or 0.0)
    for part in (network.src_embeddings, network.encoder):
        _drop(part, own, attention)
    _drop(network.decoder, dropout, rates.attention)
    return network


def _drop(part: nn.Module, p: float, attention: float) -> None:
    """Rates of a part of a network: the paper's dropout, and that of attention weights."""
    for module in part.modules():
        if isinstance(module, Dropout):
            module.p = p
    for module in part.modules():
        if isinstance(module, DroppingKernel):
            module.dropout.p = attention


# --- What it is made of


def caption_job(request: TrainRequest, config: RunConfig, folder: Path) -> CaptionJob:
    """Read and check the data that a captioner is fine-tuned on."""
    if request.source_language or request.target_language:
        raise UserError("--source-language and --target-language: captions are written in the language of those learnt")
    model: Captioner = FINE_TUNING.read(request.init)
    files = _files(request)
    train, valid = (_corpus(model, config, pictures) for pictures in files)
    counts = [f"{len(captions_by_picture(some)):,} pictures with {len(some):,} captions" for some in files]
    notify(request, f"training on {counts[0]}, validating on {counts[1]}")
    held = parse_validation_size(request.valid)
    corpus = {
        "train": base_names(request.train),
        "valid": base_names(request.train if held else request.valid),
        "captions": len(train),
        "key": pictures_key(files[0]),
        "valid_key": pictures_key(files[1]),
        **({"held_out": {"taken": len(valid), "dropped": 0}} if held else {}),
    }
    about = {
        "corpus": corpus,
        "material": {"training data": f"{', '.join(corpus['train'])}: {counts[0]}"},
        "network": _rows(model, config.model.dropout),
        "settings": RUN,
    }
    return CaptionJob(config, model.tokenizer, about, train, valid, WholeFolder(model), model, show=request.show)


def _texts(request: TrainRequest) -> Iterator[str]:
    return (one.label for one in read_captions(request.train))


captioning_job = partial(captioner_from_scratch, caption_job, _texts)
FINE_TUNING = FineTuning(
    caption_job,
    Captioner,
    "a ViT or DeiT with a GPT-2 (vision-encoder-decoder; `headwise join` makes one of two folders)",
)


def _files(request: TrainRequest) -> tuple[list[Picture], list[Picture]]:
    train, amount = read_captions(request.train), parse_validation_size(request.valid)
    if not amount:
        return train, read_captions(request.valid)
    there = len(captions_by_picture(train))
    count = amount.pairs or round(amount.share * there)
    if not 0 < count < there:
        raise UserError(f"--valid {amount.text}: {count} of {there} pictures; take another part")
    return hold_out_pictures(train, count)


def _corpus(model: Captioner, config: RunConfig, pictures: Sequence[Picture]) -> CaptionedDataset:
    special, encode = model.generation.special, bare(model.tokenizer)[0]
    if not model.generation.can_end:
        raise UserError(f"{model.path}: neither config.json nor generation_config.json has an eos_token_id")
    assert model.max_len
    marks = special.prompt, special.eos_id
    changes = Augmentation(config.data.flip, config.data.shift)
    return captioned_dataset(pictures, encode, *marks, model.max_len, model.preprocessing, changes)


def _rows(model: Captioner, dropout: float) -> dict[str, str]:
    """What the model card says of the network."""
    config, looks, writes = model.config, model.config.encoder, model.config.decoder
    assert looks and writes
    size = f"{config.image_size[0]} pixels a side in patches of {config.patch_size}"
    own = model.hf_config["encoder"].get("hidden_dropout_prob", 0.0)
    shape = f"{looks.n_layers} + {writes.n_layers} layers, d_model {looks.d_model} and {writes.d_model}, {size}"
    return {
        "architecture": f"{config.family}: {shape}",
        "vocabulary": f"{config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        "dropout": f"{dropout} of the decoder, {own} of the encoder",
    }
