"""Training a published encoder-decoder further on pairs: with its own vocabulary, dropout and search.

What is trained are copies of its weights in float32, whatever numbers its file has; a bias on the logits (Marian, BART)
stays as it is, as in `transformers`. What comes out is a folder in the layout it came in, with the files of its
tokenizer, and `training.json`, which says how. Objective, batches and trainer are those of a translator of ours.

Everything is dropped that the checkpoint's config.json has dropped (`network/more_dropout.py`), at its rates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.checkpoint.folder import read_folder
from sightline.checkpoint.trained import RUN
from sightline.checkpoint.tuned import SameLayout
from sightline.config import ModelConfig, RunConfig
from sightline.data.corpus import Pair
from sightline.errors import UserError
from sightline.evaluate.bleu import bleu_signature, corpus_scores
from sightline.generation.models import RewritingModel, rewriting, with_verbs
from sightline.network.axes import StackConfig
from sightline.network.dropout import Dropout
from sightline.network.more_dropout import DropoutRates, add_dropout, without
from sightline.network.transformer import Transformer
from sightline.tasks.job import TrainRequest
from sightline.tasks.translation import TranslationJob, batching, prepare_both, read_files

CHUNK = 50  # texts translated between two looks at the clock
DROPOUT = ("dropout", "dropout_rate")  # how configurations call the paper's
MORE_DROPOUT = {  # and what others there are
    "attention_dropout": "attention",
    "activation_dropout": "activation",
    "encoder_layerdrop": "encoder_layer",
    "decoder_layerdrop": "decoder_layer",
}


@dataclass(frozen=True)
class PublishedJob(TranslationJob):
    """See `sightline.tasks.job.Job`."""

    model: RewritingModel = field(kw_only=True)

    def network(self) -> nn.Module:
        dropout = self.config.model.dropout
        return trainable(self.model.network, dropout, more_dropout(self.model.hf_config, dropout))

    def validation(self, network: nn.Module, device: torch.device) -> Callable[[], dict[str, float]]:
        """As of `TranslationJob`, and as fast as for a network without dropouts of its own."""
        validate = super().validation(network, device)

        def validate_without() -> dict[str, float]:
            with without(network):
                return validate()

        return validate_without

    def bleu(self, network: Any, pairs: Sequence[Pair], done: Callable[[int], Any]) -> float:
        """Searched as the model's generation_config.json says."""
        now, texts = replace(self.model, network=network), list[str]()
        for start in range(0, len(pairs), CHUNK):
            chunk = pairs[start : start + CHUNK]
            texts += [" ".join(written.text.split()) for written in now.translate([src for src, _ in chunk])]
            done(len(chunk))
        return corpus_scores(texts, [tgt for _, tgt in pairs], metrics=["BLEU"])["BLEU"].score


def published_job(request: TrainRequest, config: RunConfig, folder: Path) -> PublishedJob:
    """Read, tokenise and check everything a published model is trained further on."""
    if request.special:
        raise UserError(f"--special {request.special[0]}: cannot be added to the vocabulary of --init {request.init}")
    model = start_of(request.init).between(request.source_language, request.target_language)
    _, train, valid, held = read_files(request)
    tokenizer = model._translator.tokenizer
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "pairs")
    config = replace(config, train=replace(config.train, batching=batching(request, config, folder)))
    search = f"beam {model.generation.beam_size}, length penalty {model.generation.length_penalty}"
    about = {
        "corpus": {**corpus, **held},
        "network": _rows(model, config.model.dropout),
        "search": search,
        "settings": RUN,
    }
    return PublishedJob(
        config, tokenizer, about, prepared, validating, None, request.init, None, bleu_signature(), request.show,
        SameLayout(model), model=model,
    )  # fmt: skip


def start_of(path: str) -> RewritingModel:
    """The model to start from, its weights in float32; `UserError` where it does not read a text and write another."""
    return rewriting(with_verbs(read_folder(path, dtype="float32")), path)


def trainable(network: Transformer, dropout: float, more: DropoutRates | None = None) -> Transformer:
    """The network itself with weights that may change: copies, for what it was given lies in a file."""
    for parameter in network.parameters():
        parameter.data = parameter.detach().clone()
        parameter.requires_grad_(True)
    if network.output.bias is not None:
        network.output.bias.requires_grad_(False)
    for module in network.modules():
        if isinstance(module, Dropout):
            module.p = dropout
    if more:
        add_dropout(network, more)
    return network


def more_dropout(hf_config: Mapping[str, Any], dropout: float) -> DropoutRates:
    """The dropouts beside the paper's that a config.json names; T5 has one rate, `dropout`, for all that it drops."""
    if "dropout_rate" in hf_config and "dropout" not in hf_config:
        return DropoutRates(attention=dropout, activation=dropout, stack=dropout)
    return DropoutRates(**{ours: float(hf_config.get(name) or 0.0) for name, ours in MORE_DROPOUT.items()})


def described(path: str) -> ModelConfig:
    """A published network in the words of a recipe, as far as they go, with the dropout that its config.json says."""
    model = start_of(path)
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    rate = next((model.hf_config[name] for name in DROPOUT if model.hf_config.get(name) is not None), 0.1)
    return ModelConfig(
        vocab_size=config.tgt_vocab_size or config.vocab_size,
        pad_id=model.generation.pad_id,
        d_model=stack.d_model,
        d_ff=stack.d_ff,
        n_heads=stack.n_heads,
        d_k=stack.d_head,
        d_v=stack.d_v or stack.d_head,
        n_encoder_layers=stack.n_layers,
        n_decoder_layers=config.decoder.n_layers,
        dropout=float(rate),
        norm_position=stack.norm_position,
        norm="rms" if stack.norm == "rms" else "layer",
        activation=stack.activation.partition("_")[0],
        gated=stack.gated,
        biases=stack.ffn_bias,
        positions=_positions(stack),
        max_len=stack.max_len or ModelConfig().max_len,
        tied_embeddings="none" if not config.tie_head else "all" if config.share_embeddings else "target",
    )


def _positions(stack: StackConfig) -> str:
    return "relative" if stack.relative_buckets else stack.positions.partition("_")[0]


def _rows(model: RewritingModel, dropout: float) -> dict[str, str]:
    """What the model card says of the network."""
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    shape = f"{stack.n_layers} + {config.decoder.n_layers} layers, d_model {stack.d_model}, d_ff {stack.d_ff}"
    between = " to ".join(filter(None, (model.source_language, model.target_language)))
    more = more_dropout(model.hf_config, dropout)
    rates = ", ".join(f"{name} {rate}" for name, rate in vars(more).items() if rate)
    return {
        "architecture": f"{config.family}: {shape}, {stack.n_heads} heads, {stack.norm_position}-norm",
        "vocabulary": f"{config.tgt_vocab_size or config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        **({"languages": between} if between else {}),
        **({"dropout": f"beside {dropout}: {rates}"} if rates else {}),
    }
