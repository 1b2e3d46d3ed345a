"""Replaced-token detection (ELECTRA, arXiv:2003.10555), from scratch.

15 % of the tokens of a block are masked. A generator, a quarter as wide, is trained to predict them, as BERT is; a
token is sampled from each of its predictions, and the discriminator is trained to decide for every token of the block
whether it is the original. The loss is the generator's plus 50 times the discriminator's, each a mean (section 2); the
latter has no gradient in the generator. A sampled token that happens to be the original counts as original.

The result is the discriminator, in ELECTRA's layout. Texts and vocabulary are those of `masked_modelling`. Deviation:
all chosen tokens are masked, as in the paper; its code leaves 15 % of them unchanged.
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

from headwise.config.network import NetworkConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.build import build
from headwise.core.loss import Loss, at_least_float32
from headwise.core.train import Objective
from headwise.core.transformer import EncoderOnly
from headwise.pytorch.architectures.electra import Electra
from headwise.pytorch.architectures.hf_layouts import electra_configs
from headwise.pytorch.checkpoint.from_scratch import check_layout, text_layout
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.masked_sequences import MaskedBatch, masked_sequences
from headwise.pytorch.search.masks import masked_logits
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.language_modelling import context_length, logits_loss, prepared_texts, with_spooled_files
from headwise.pytorch.tasks.masked_modelling import MaskedJob, check_block_room, masking_for, tokenizer_with_template
from headwise.pytorch.tasks.pretrained import TaskJobs
from headwise.pytorch.training.validation import Outputs, Shard, mean_over_shards
from headwise.text.files.documents import document_tokenizer

WEIGHT = 50.0  # of the discriminator's loss
ALL_MASKED = 1.0, 0.0  # shares of chosen tokens: masked, replaced by random tokens
DISCRIMINATOR = "discriminator."

Sample = Callable[[Tensor], Tensor]  # from logits (chosen, vocab) to token ids
Networks = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]  # tokens to states; tokens to scores


@dataclass(frozen=True)
class ReplacedJob(MaskedJob):
    """Tokens of running text that a generator replaced (ELECTRA)."""

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size) + WEIGHT * math.log(2)}

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, Electra)
        return replaced_objective(network, self.config.train)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each batch the losses of both networks, how many tokens are classified right, and their numbers.

        Masks and random numbers are always the same.
        """
        assert isinstance(network, Electra)
        outputs: Outputs = {"generator": [], "discriminator": [], "right": [], "masked": [], "read": []}
        for number, batch in shard.of(enumerate(self.validation_batches())):
            sample = partial(sampled_tokens, generator=torch.Generator(device).manual_seed(number))
            batch = batch.to(device)
            logits, scores, replaced = run_electra(network, generator_and_discriminator(network), batch, sample)
            generated = F.cross_entropy(at_least_float32(logits), batch.targets, reduction="sum")
            scores = at_least_float32(scores)
            discriminated = F.binary_cross_entropy_with_logits(scores, replaced.to(scores), reduction="sum")
            sums = torch.stack([generated, discriminated, ((scores > 0) == replaced).sum()]).tolist()
            for column, value in zip(outputs.values(), [*sums, batch.n_targets, batch.n_tokens], strict=True):
                column.append(value)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The training loss, its two parts (nats), and the share of tokens that are classified right."""
        generator = mean_over_shards(outputs, "generator", "masked")
        discriminator = mean_over_shards(outputs, "discriminator", "read")
        return {
            "loss": generator + WEIGHT * discriminator,
            "generator": generator,
            "discriminator": discriminator,
            "accuracy": mean_over_shards(outputs, "right", "read"),
        }


def sampled_tokens(
    logits: Float[Tensor, "chosen vocab"], generator: torch.Generator | None = None
) -> Int[Tensor, " chosen"]:
    """A token for each mask, sampled by its probability."""
    return torch.multinomial(at_least_float32(logits).softmax(-1), 1, generator=generator).squeeze(1)


def replaced_objective(network: Electra, train: TrainConfig, sample: Sample = sampled_tokens) -> Objective:
    """The generator's cross-entropy plus WEIGHT times the discriminator's mean loss over all tokens."""
    networks = generator_and_discriminator(network)
    if train.compile:
        networks = torch.compile(networks[0]), torch.compile(networks[1])

    def objective(batch: MaskedBatch) -> Loss:
        logits, scores, replaced = run_electra(network, networks, batch, sample)
        generated = logits_loss(logits, batch.targets, train.label_smoothing)
        scores = at_least_float32(scores)
        discriminated = F.binary_cross_entropy_with_logits(scores, replaced.to(scores)) * batch.n_targets
        share = ((scores > 0) == replaced).float().mean() * batch.n_targets
        figures = {"generator": generated.nll, "discriminator": discriminated.detach(), "accuracy": share}
        return Loss(generated.objective + WEIGHT * discriminated, figures)

    return objective


def generator_and_discriminator(network: Electra) -> Networks:
    """The encoder of the generator, and the discriminator."""
    return network.generator.encode, network.discriminator


def run_electra(
    network: Electra, networks: Networks, batch: MaskedBatch, sample: Sample
) -> tuple[Float[Tensor, "chosen vocab"], Float[Tensor, "blocks length"], Bool[Tensor, "blocks length"]]:
    """The generator's logits for masked tokens, the discriminator's scores of all tokens, and their classes."""
    encode, discriminate = networks
    logits = masked_logits(encode, network.generator.logits, batch)
    src, replaced = replace_masks(batch, sample(logits.detach()))
    return logits, discriminate(src), replaced


def replace_masks(
    batch: MaskedBatch, tokens: Int[Tensor, " chosen"]
) -> tuple[Int[Tensor, "blocks length"], Bool[Tensor, "blocks length"]]:
    """The blocks with tokens instead of masks, and which of their tokens are not the original."""
    src, replaced = batch.src.flatten().clone(), torch.zeros_like(batch.src, dtype=torch.bool).flatten()
    src[batch.positions], replaced[batch.positions] = tokens, tokens != batch.targets
    return src.view_as(batch.src), replaced.view_as(batch.src)


def discriminator_tensors(parameters: Mapping[str, Tensor], axes: NetworkConfig) -> dict[str, Tensor]:
    """The tensors of the discriminator for its file, from the parameters of both networks."""
    kept = {name.removeprefix(DISCRIMINATOR): p for name, p in parameters.items() if name.startswith(DISCRIMINATOR)}
    return file_tensors(kept, axes)


def replaced_job(request: TrainRequest, config: RunConfig, folder: Path) -> ReplacedJob:
    """Read, tokenise and check the data for training from scratch."""
    length = context_length(config)
    for axes in electra_configs(replace(config.model, vocab_size=1), length):
        check_layout(axes)
    check_block_room(config, 2)
    request = with_spooled_files(request)
    tokenizer = tokenizer_with_template(request, config, folder)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    both = electra_configs(model, length)
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    kept = partial(discriminator_tensors, axes=both[0])
    config, layout = replace(config, model=model), replace(text_layout(both[0], length, tokenizer), in_file=kept)
    masking = replace(masking_for(tokenizer, config), shares=ALL_MASKED)
    before, behind = [tokenizer.bos_id], [tokenizer.eos_id]
    masked = partial(masked_sequences, length=length, around=(before, behind), masking=masking)
    return ReplacedJob(
        config, tokenizer, about, train, valid, lambda: build_electra(*both), layout=layout, blocks=masked
    )


JOBS = TaskJobs(replaced_job)


def build_electra(discriminator: NetworkConfig, generator: NetworkConfig) -> Electra:
    """Both networks, initialized with torch's global generator."""
    found = build(discriminator), build(generator)
    assert isinstance(found[0], EncoderOnly) and isinstance(found[1], EncoderOnly)
    return Electra(*found)
