"""Replaced-token detection (ELECTRA, arXiv:2003.10555): which tokens of a text did a small network put there?

15 % of the tokens of a block are masked. A generator, a quarter as wide, is trained to predict them, as BERT is; a
token is sampled from each of its predictions, and the discriminator is trained to decide for every token of the block
whether it is the original. The loss is the generator's plus 50 times the discriminator's, each a mean (section 2); the
latter has no gradient in the generator. A sampled token that happens to be the original counts as original.

The result is the discriminator, in ELECTRA's layout. Texts and vocabulary are those of a masked language model
(`masked_modelling`). Deviation: all chosen tokens are masked, as in the paper; its program leaves 15 % of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.architectures.language import replaced_axes
from headwise.checkpoint.from_scratch import check_axes, text_layout
from headwise.checkpoint.write import file_tensors
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.documents import document_tokenizer
from headwise.data.masking import MaskedBatch, MaskedText
from headwise.generation.fill import hidden_logits
from headwise.network.build import build
from headwise.network.config import NetworkConfig
from headwise.network.electra import Electra
from headwise.network.transformer import EncoderOnly
from headwise.tasks.job import TrainRequest
from headwise.tasks.language_modelling import loss_of_logits, once_readable, positions_of, prepared_texts
from headwise.tasks.masked_modelling import MaskedJob, check_block_room, marked_tokenizer, masking_of
from headwise.training.loss import Loss, at_least_float32
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard, mean_over_shards

WEIGHT = 50.0  # of the discriminator's loss
ALL_MASKED = 1.0, 0.0  # of the chosen tokens: masks, random tokens
DISCRIMINATOR = "discriminator."

Draw = Callable[[Tensor], Tensor]  # from logits (chosen, vocab) to a piece of each
Halves = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]  # of tokens: states, and a score of each


@dataclass(frozen=True)
class ReplacedJob(MaskedJob):
    """See `headwise.tasks.job.Job`."""

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size) + WEIGHT * math.log(2)}

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, Electra)
        return replaced_objective(network, self.config.train)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Of each batch the losses of both networks and how many tokens are judged right, and how many there are.

        What is masked is always the same, and so is what the generator puts in its place.
        """
        assert isinstance(network, Electra)
        outputs: Outputs = {"generator": [], "discriminator": [], "right": [], "masked": [], "read": []}
        batches = self.hidden(self.valid.tokens).fixed(self.config.train.tokens_per_batch)
        for number, batch in shard.of(enumerate(batches)):
            draw = partial(sampled_tokens, generator=torch.Generator(device).manual_seed(number))
            logits, scores, replaced = judged(network, halves_of(network), batch := batch.to(device), draw)
            generated = F.cross_entropy(at_least_float32(logits), batch.targets, reduction="sum")
            scores = at_least_float32(scores)
            discriminated = F.binary_cross_entropy_with_logits(scores, replaced.to(scores), reduction="sum")
            sums = torch.stack([generated, discriminated, ((scores > 0) == replaced).sum()]).tolist()
            for column, value in zip(outputs.values(), [*sums, batch.n_targets, batch.n_tokens], strict=True):
                column.append(value)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The loss as it is minimised, its two parts (nats), and the share of tokens that are judged right."""
        generator, discriminator = (
            mean_over_shards(outputs, "generator", "masked"),
            mean_over_shards(outputs, "discriminator", "read"),
        )
        return {
            "loss": generator + WEIGHT * discriminator,
            "generator": generator,
            "discriminator": discriminator,
            "accuracy": mean_over_shards(outputs, "right", "read"),
        }


def replaced_objective(network: Electra, train: TrainConfig, draw: Draw | None = None) -> Objective:
    """The generator's cross-entropy, and WEIGHT times what the discriminator loses for every token that is read."""
    choose, halves = draw or sampled_tokens, halves_of(network)
    if train.compile:
        halves = torch.compile(halves[0]), torch.compile(halves[1])

    def objective(batch: MaskedBatch) -> Loss:
        logits, scores, replaced = judged(network, halves, batch, choose)
        told = loss_of_logits(logits, batch.targets, train.label_smoothing)
        scores = at_least_float32(scores)
        doubted = F.binary_cross_entropy_with_logits(scores, replaced.to(scores)) * batch.n_targets
        share = ((scores > 0) == replaced).float().mean() * batch.n_targets
        figures = {"generator": told.nll, "discriminator": doubted.detach(), "accuracy": share}
        return Loss(told.objective + WEIGHT * doubted, figures)

    return objective


def halves_of(network: Electra) -> Halves:
    """What reads the text with masks, and what judges the one with other pieces in their place."""
    return network.generator.encode, network.discriminator


def judged(
    network: Electra, halves: Halves, batch: MaskedBatch, draw: Draw
) -> tuple[Float[Tensor, "chosen vocab"], Float[Tensor, "blocks length"], Bool[Tensor, "blocks length"]]:
    """What the generator says of what is masked; of all tokens what the discriminator says, and what is the case."""
    encode, judge = halves
    logits = hidden_logits(encode, network.generator.logits, batch)
    src, replaced = put_back(batch, draw(logits.detach()))
    return logits, judge(src), replaced


def sampled_tokens(
    logits: Float[Tensor, "chosen vocab"], generator: torch.Generator | None = None
) -> Int[Tensor, " chosen"]:
    """A piece for each mask, by its probability."""
    return torch.multinomial(at_least_float32(logits).softmax(-1), 1, generator=generator).squeeze(1)


def put_back(
    batch: MaskedBatch, pieces: Int[Tensor, " chosen"]
) -> tuple[Int[Tensor, "blocks length"], Bool[Tensor, "blocks length"]]:
    """The blocks with pieces in the place of masks, and which tokens of them are none that stood there."""
    src, other = batch.src.flatten().clone(), torch.zeros_like(batch.src, dtype=torch.bool).flatten()
    src[batch.positions], other[batch.positions] = pieces, pieces != batch.targets
    return src.view_as(batch.src), other.view_as(batch.src)


# --- What it is made of


def discriminator_tensors(parameters: Mapping[str, Tensor], axes: NetworkConfig) -> dict[str, Tensor]:
    """Of both networks' parameters those of the half that is kept, as its file has them."""
    own = {name.removeprefix(DISCRIMINATOR): p for name, p in parameters.items() if name.startswith(DISCRIMINATOR)}
    return file_tensors(own, axes)


def replaced_job(request: TrainRequest, config: RunConfig, folder: Path) -> ReplacedJob:
    """Read, tokenise and check everything that an ELECTRA is trained on from scratch."""
    length = positions_of(config)
    for axes in replaced_axes(replace(config.model, vocab_size=1), length):
        check_axes(axes)
    check_block_room(config, 2)
    request = once_readable(request)
    tokenizer = marked_tokenizer(request, config, folder)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    both = replaced_axes(model, length)
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    kept = partial(discriminator_tensors, axes=both[0])
    config, layout = replace(config, model=model), replace(text_layout(both[0], length, tokenizer), in_file=kept)
    masking = replace(masking_of(tokenizer, config), shares=ALL_MASKED)
    before, behind = [tokenizer.bos_id], [tokenizer.eos_id]
    hidden = partial(MaskedText, length=length, prefix=before, suffix=behind, masking=masking)
    return ReplacedJob(config, tokenizer, about, train, valid, layout, lambda: build_electra(*both), hidden=hidden)


def build_electra(discriminator: NetworkConfig, generator: NetworkConfig) -> Electra:
    """Both networks with fresh parameters from torch's global generator."""
    found = build(discriminator), build(generator)
    assert isinstance(found[0], EncoderOnly) and isinstance(found[1], EncoderOnly)
    return Electra(*found)
