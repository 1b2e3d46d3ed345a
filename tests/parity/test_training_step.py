"""The training step = its textbook: the same loss and the same gradient of every parameter, in float64.

The textbook is the formulas of the paper one by one on torch's plain functions, from the parameters by their names:
explicit attention, separate projections, logits of the whole batch, `cross_entropy`. The step has its shortcuts for
all of these.
"""

import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.config.model import TransformerConfig
from headwise.core.batches import Batch, collate
from headwise.core.positions import sinusoids
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.training.step import batch_loss, real_states

D_MODEL, N_HEADS, VOCAB, SMOOTHING = 12, 3, 23, 0.1
PAIRS = [([7, 5, 10, 3, 8], [8, 8, 4, 5]), ([4, 9], [3, 6, 20, 21, 22, 4, 5]), ([11], [12])]
"""Sources and targets of different lengths, so that there is padding on both sides."""


class Textbook:
    """Post-norm and pre-norm Transformer from a dictionary of parameters."""

    def __init__(self, parameters: dict[str, Tensor], norm_position: str) -> None:
        self.parameters = parameters
        self.pre = norm_position == "pre"

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.parameters[f"{name}.weight"].T + self.parameters[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def attention(self, name: str, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        def heads(x: Tensor) -> Tensor:
            return torch.stack(x.chunk(N_HEADS, -1), 1)

        q, k, v = (heads(self.linear(f"{name}.{p}_proj", y)) for p, y in zip("qkv", (x, memory, memory), strict=True))
        scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask, -math.inf)
        return self.linear(f"{name}.o_proj", torch.cat((scores.softmax(-1) @ v).unbind(1), -1))

    def ffn(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.down_proj", self.linear(f"{name}.up_proj", x).clamp(min=0))

    def layer(self, name: str, x: Tensor, mask: Tensor, memory: Tensor | None, src_mask: Tensor) -> Tensor:
        steps = {"self_attn": lambda h: self.attention(f"{name}.self_attn", h, h, mask)}
        if memory is not None:
            steps["cross_attn"] = lambda h: self.attention(f"{name}.cross_attn", h, memory, src_mask)
        steps["ffn"] = lambda h: self.ffn(f"{name}.ffn", h)
        for step, function in steps.items():
            norm = f"{name}.{step}_sublayer.norm"
            x = x + function(self.norm(norm, x)) if self.pre else self.norm(norm, x + function(x))
        return x

    def stack(self, name: str, tokens: Tensor, mask: Tensor, memory: Tensor | None, src_mask: Tensor) -> Tensor:
        x = self.parameters["src_embeddings.tokens.weight"][tokens] * math.sqrt(D_MODEL)
        x = x + sinusoids(tokens.size(1), D_MODEL).double()
        for i in range(2):
            x = self.layer(f"{name}.layers.{i}", x, mask, memory, src_mask)
        return self.norm(f"{name}.norm", x) if self.pre else x

    def logits(self, batch: Batch) -> Tensor:
        src_mask = batch.src_mask[:, None, None]
        memory = self.stack("encoder", batch.src, src_mask, None, src_mask)
        length = batch.tgt_in.size(1)
        causal = torch.ones(length, length).tril().bool()
        return (
            self.stack("decoder", batch.tgt_in, causal, memory, src_mask)
            @ self.parameters["src_embeddings.tokens.weight"].mT
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=str)
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_loss_and_every_gradient(norm_position: str, dtype: torch.dtype, tolerance: float) -> None:
    config = TransformerConfig(
        vocab_size=VOCAB,
        d_model=D_MODEL,
        d_ff=20,
        n_heads=N_HEADS,
        n_encoder_layers=2,
        n_decoder_layers=2,
        dropout=0.0,
        norm_position=norm_position,
    )
    model = build_model(config).double().train()
    with torch.no_grad():
        for parameter in model.parameters():  # fresh norms and biases would hide a mix-up
            parameter.add_(torch.randn_like(parameter) / 4)
    batch = collate(PAIRS, pad_id=0, bos_id=1, eos_id=2)

    exact = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    logits = Textbook(exact, norm_position).logits(batch)
    expected = F.cross_entropy(
        logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=0, label_smoothing=SMOOTHING, reduction="sum"
    )
    gradients = dict(zip(exact, torch.autograd.grad(expected, list(exact.values())), strict=True))

    model.to(dtype)
    loss = batch_loss(partial(real_states, model), model.get_parameter("output.weight"), batch, 0, SMOOTHING).objective
    loss.backward()
    torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=tolerance)
    ours = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(ours, gradients, rtol=tolerance, atol=10 * tolerance)
