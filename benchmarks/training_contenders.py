"""One training step in each library: forward, loss with smoothing 0.1, backward, Adam.

Every contender has the same dimensions, one tied table of embeddings, ReLU, and dropout 0.1 on embeddings and on the
output of every sub-layer. Dropout on attention weights and inside the feed-forward network is off, because not all have
it. All use torch's fused Adam. Everything else is the library's default, including extra work: torch and x-transformers
add two final norms, Marian a bias on the logits. Peers get boolean padding masks and convert them.

`contender(name, size_name, batches)` makes a contender inside its own process: a function from the number of a batch to
the loss per target token.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from plain_model import PlainTransformer, sinusoids, smoothed_divergence
from torch import Tensor, nn
from torch.nn import functional as F
from work import BOS, DROPOUT, EOS, PAD, SIZES, SMOOTHING, UNK, Size, training_batches

from headwise.config.training import TrainConfig
from headwise.core.batches import Batch
from headwise.core.optimizer import gradient_norm, make_optimizer
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.training.packed import pays_in_bfloat16
from headwise.pytorch.training.step import batch_loss, real_states

Step = Callable[[Batch], float]
LEARNING_RATE = 1e-4
MAX_LENGTH = 128


def contender(name: str, size_name: str, batches: int) -> Callable[[int], float]:
    """The step of a library, called with the number of a batch; after the last batch comes the first again."""
    torch.manual_seed(1)
    made = training_batches(batches)
    step = CONTENDERS[name](SIZES[size_name])
    return lambda turn: step(made[turn % len(made)])


def ours(size: Size, half: bool | None = None) -> Step:
    """One update as in `pytorch/training/trainer.py`, with its functions and the check of the gradients.

    `half`: whether products are in bfloat16; None: as for `train.precision = "auto"`.
    """
    train = TrainConfig(label_smoothing=SMOOTHING)
    half = pays_in_bfloat16(size.d_model) if half is None else half
    model = build_model(size.config()).train()
    weight, states = model.get_parameter("output.weight"), partial(real_states, model)
    optimizer = make_optimizer(model, train)

    def step(batch: Batch) -> float:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = batch_loss(states, weight, batch, PAD, train.label_smoothing, train.r_drop)
        (loss.objective / batch.n_target_tokens).backward()
        value = loss.objective.item() / batch.n_target_tokens
        assert math.isfinite(value) and gradient_norm(model).isfinite()
        optimizer.step(LEARNING_RATE)
        return value

    return step


def peer_step(model: nn.Module, logits: Callable[[Batch], Tensor]) -> Step:
    """The usual step around a model that returns logits: torch's cross-entropy and fused Adam."""

    def total(batch: Batch) -> Tensor:
        rows, targets = logits(batch).flatten(0, 1), batch.tgt_out.flatten()
        return F.cross_entropy(rows, targets, ignore_index=PAD, label_smoothing=SMOOTHING, reduction="sum")

    return total_step(model, total)


def total_step(model: nn.Module, total: Callable[[Batch], Tensor]) -> Step:
    """The same around a model and its loss, summed over target tokens."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)
    model.train()

    def step(batch: Batch) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = total(batch) / batch.n_target_tokens
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def marian(size: Size, half: bool = False) -> Step:
    """transformers' MarianMTModel, torch's fused attention; `half`: under torch's autocast to bfloat16."""
    from transformers import MarianMTModel

    model = MarianMTModel(marian_config(size))

    def logits(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return model(
                input_ids=batch.src, attention_mask=batch.src_mask, decoder_input_ids=batch.tgt_in, use_cache=False
            ).logits

    return peer_step(model, logits)


def marian_config(size: Size) -> Any:
    """Our configuration in transformers' terms."""
    from transformers import MarianConfig

    return MarianConfig(
        vocab_size=size.vocab_size,
        d_model=size.d_model,
        encoder_layers=size.n_layers,
        decoder_layers=size.n_layers,
        encoder_attention_heads=size.n_heads,
        decoder_attention_heads=size.n_heads,
        encoder_ffn_dim=size.d_ff,
        decoder_ffn_dim=size.d_ff,
        activation_function="relu",
        dropout=DROPOUT,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=MAX_LENGTH,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
        attn_implementation="sdpa",
    )


def torch_transformer(size: Size) -> Step:
    """torch.nn.Transformer between a table of embeddings and its transpose."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size.vocab_size, size.d_model)
            nn.init.normal_(self.tokens.weight, std=size.d_model**-0.5)
            self.register_buffer("positions", sinusoids(size.d_model, MAX_LENGTH))
            self.dropout = nn.Dropout(DROPOUT)
            self.transformer = nn.Transformer(
                size.d_model, size.n_heads, size.n_layers, size.n_layers, size.d_ff, DROPOUT, batch_first=True
            )
            for module in self.transformer.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    module.dropout = nn.Identity()  # the one inside the feed-forward network

        def embed(self, tokens: Tensor) -> Tensor:
            x = self.tokens(tokens) * math.sqrt(size.d_model) + self.positions[: tokens.size(1)]
            return self.dropout(x)

        def forward(self, batch: Batch) -> Tensor:
            length = batch.tgt_in.size(1)
            hidden = self.transformer(
                self.embed(batch.src),
                self.embed(batch.tgt_in),
                tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),  # True hides
                src_key_padding_mask=~batch.src_mask,
                memory_key_padding_mask=~batch.src_mask,
                tgt_is_causal=True,
            )
            return F.linear(hidden, self.tokens.weight)

    model = Model()
    return peer_step(model, model)


def x_transformers(size: Size) -> Step:
    """x-transformers' XTransformer with its flash attention."""
    from x_transformers import XTransformer

    layers = {
        "num_tokens": size.vocab_size,
        "max_seq_len": MAX_LENGTH,
        "depth": size.n_layers,
        "heads": size.n_heads,
        "attn_dim_head": size.d_model // size.n_heads,
        "attn_flash": True,
        "attn_sublayer_dropout": DROPOUT,
        "ff_sublayer_dropout": DROPOUT,
        "ff_mult": size.d_ff / size.d_model,
        "ff_custom_activation": nn.ReLU(),
        "emb_dropout": DROPOUT,
    }
    sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in layers.items()}
    model = XTransformer(dim=size.d_model, tie_token_emb=True, **sides)
    model.decoder.net.to_logits.weight = model.encoder.token_emb.emb.weight

    def logits(batch: Batch) -> Tensor:
        memory = model.encoder(batch.src, mask=batch.src_mask, return_embeddings=True)
        return model.decoder.net(batch.tgt_in, context=memory, context_mask=batch.src_mask)

    return peer_step(model, logits)


def joeynmt(size: Size) -> Step:
    """JoeyNMT's model and its own loss with an explicit smoothed target; its special tokens have other ids."""
    from types import SimpleNamespace

    from joeynmt.model import build_model as build_joeynmt
    from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
    from joeynmt.vocabulary import Vocabulary

    specials = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # in the order of the class
    fields = {f"{name}_id": i for name, i in specials.items()} | {f"{name}_token": f"<{name}>" for name in specials}
    words = [f"w{i}" for i in range(size.vocab_size - len(specials))]
    vocabulary = Vocabulary(words, SimpleNamespace(**fields, sep_token=None, sep_id=None, lang_tags=[]))
    side = {
        "type": "transformer",
        "num_layers": size.n_layers,
        "num_heads": size.n_heads,
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "dropout": DROPOUT,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": DROPOUT},
    }
    config = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
    model = build_joeynmt(config, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", SMOOTHING)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = 0.0
        if isinstance(module, PositionwiseFeedForward):
            module.pwff_layer[2].p = 0.0
    theirs = torch.arange(size.vocab_size)
    theirs[[PAD, BOS, EOS, UNK]] = torch.tensor([specials[name] for name in ("pad", "bos", "eos", "unk")])

    def total(batch: Batch) -> Tensor:
        tgt_out = theirs[batch.tgt_out]
        return model(
            return_type="loss",
            src=theirs[batch.src],
            src_mask=batch.src_mask.unsqueeze(1),
            src_length=batch.src_mask.sum(1),
            trg_input=theirs[batch.tgt_in],
            trg=tgt_out,
            trg_mask=(tgt_out != specials["pad"]).unsqueeze(1),
        )[0]

    return total_step(model, total)


def annotated(size: Size) -> Step:
    """A plain model as in the Annotated Transformer, with KL divergence from an explicit smoothed target."""
    model = PlainTransformer(size, DROPOUT)

    def total(batch: Batch) -> Tensor:
        log_probs = model(batch.src, batch.tgt_in, batch.src_mask)
        return smoothed_divergence(log_probs.flatten(0, 1), batch.tgt_out.flatten(), SMOOTHING, PAD)

    return total_step(model, total)


CONTENDERS: dict[str, Callable[[Size], Step]] = {
    "ours": ours,
    "ours float32": partial(ours, half=False),
    "transformers": marian,
    "transformers bf16": partial(marian, half=True),
    "torch.nn": torch_transformer,
    "x-transformers": x_transformers,
    "joeynmt": joeynmt,
    "annotated": annotated,
}
