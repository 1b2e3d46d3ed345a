"""Which source words a translation depends on, by gradients; attention alone does not show that.

Integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365), by the `captum` library: the gradients of a target
token's log-probability are summed along the straight line from an empty source to the real one. The attributions of all
source tokens add up to what the source as a whole changed. Needs the extra `inspect`. See `attend` for attention.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.errors import UserError
from headwise.pytorch.architectures.conv import Convolutional
from headwise.pytorch.inspect.pair_tensors import PairTensors, device_of, with_tensors
from headwise.pytorch.search.stepwise import evaluating
from headwise.runtime.search.translator import TextTranslator
from headwise.view.pair import read_pair
from headwise.view.record import Attribution, Word

STEPS = 64
BATCH_TOKENS = 2048  # source and target tokens of one pass; bounds the memory


def attribute(
    translator: TextTranslator, src: str, tgt: str | None = None, steps: int = STEPS, prefix: str = "", **overrides: Any
) -> Attribution:
    """The amount by which each source word raised the log-probability of each target word.

    The baseline has a zero vector in place of every source token except the end token; positions stay. The target
    tokens before a position are given in both cases, so a token that follows from those alone gets little.

    Args:
        translator, src, tgt, prefix, **overrides: as for `attend`.
        steps: points on the line; more are slower and make the `gap` of the result smaller.

    Raises:
        UserError: captum is not installed; or as for `attend`.
    """
    if steps < 1:
        raise UserError(f"steps = {steps}: must be at least 1")
    method: Any = _integrated_gradients()
    network: Any = translator.model
    pair = with_tensors(read_pair(translator, src, tgt, prefix, translator.settings(overrides)))
    with evaluating(network), true_gradients(network):
        score = TokenScores(network, pair)
        real = score.embedded()
        baseline = real.clone()
        baseline[:, : len(pair.src) - 1] = 0
        most = max(1, BATCH_TOKENS // (len(pair.src) + len(pair.tgt)))
        groups = torch.arange(len(pair.tgt), device=real.device).split(most)
        with torch.no_grad():
            log_probs, without = (_numbers([score(repeat(x, g), g) for g in groups]) for x in (real, baseline))
        pieces = _numbers([_shares(method(score), real, baseline, g, steps, most) for g in groups])
    words = sum_over_words(pieces, pair.tgt_words, pair.src_words)
    return Attribution(**pair.described, pieces=pieces, words=words, log_probs=log_probs, baseline=without)


def sum_over_words(
    pieces: Float[np.ndarray, "tgt src"], tgt_words: Sequence[Word], src_words: Sequence[Word]
) -> Float[np.ndarray, "tgt_words src_words"]:
    """The same for words: the sum over the tokens of both words, because logarithms add."""
    rows = [[pieces[t.start : t.stop, s.start : s.stop].sum() for s in src_words] for t in tgt_words]
    return np.array(rows, dtype=np.float32).reshape(len(tgt_words), len(src_words))


class TokenScores:
    """The log-probability of a target token as a function of the embedded source tokens."""

    def __init__(self, network: Any, pair: PairTensors) -> None:
        self.network = network
        # An `Embeddings` looks up in its `tokens`; recurrent networks have the bare table.
        self.table: nn.Module = getattr(network.src_embeddings, "tokens", network.src_embeddings)
        device = device_of(network)
        self.src, self.tgt_in, self.src_mask = pair.tensors(device)
        self.tgt = torch.tensor(pair.tgt, device=device)

    def embedded(self) -> Float[Tensor, "1 src width"]:
        """The embeddings of the source."""
        return self.table(self.src).detach()

    def __call__(
        self, embedded: Float[Tensor, "rows src width"], positions: Int[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """The log-probability of one target token for each row, at `positions`."""
        rows = len(embedded)
        src, src_mask, tgt_in = (x.expand(rows, -1) for x in (self.src, self.src_mask, self.tgt_in))
        with _returning(self.table, embedded):  # while encoding only: the target may use the same table
            memory = self.network.encode(src, src_mask)
        hidden = self.network.decode(tgt_in, memory, src_mask)[torch.arange(rows), positions]
        log_probs = self.network.logits(hidden).float().log_softmax(-1)
        return log_probs.gather(-1, self.tgt[positions].unsqueeze(-1)).squeeze(-1)


def repeat(x: Float[Tensor, "1 src width"], positions: Int[Tensor, " rows"]) -> Float[Tensor, "rows src width"]:
    """A row for each of `positions`."""
    return x.expand(len(positions), -1, -1).contiguous()


@contextmanager
def true_gradients(network: nn.Module) -> Iterator[None]:
    """A context manager in which gradients are those of the function that the network computes.

    ConvS2S scales gradients into the encoder down in training; cuDNN has none for a recurrent network in evaluation
    mode.
    """
    encoders: list[Any] = [network.encoder] if isinstance(network, Convolutional) else []
    scales = [encoder.gradient_scale for encoder in encoders]
    try:
        for encoder in encoders:
            encoder.gradient_scale = 1.0
        with torch.backends.cudnn.flags(enabled=False), torch.enable_grad():
            yield
    finally:
        for encoder, scale in zip(encoders, scales, strict=True):
            encoder.gradient_scale = scale


@contextmanager
def _returning(module: nn.Module, value: Tensor) -> Iterator[None]:
    """Inside, a module returns `value` to this thread."""
    here = get_ident()
    handle = module.register_forward_hook(lambda *_: value if get_ident() == here else None)
    try:
        yield
    finally:
        handle.remove()


def _shares(
    method: Any, real: Tensor, baseline: Tensor, positions: Int[Tensor, " some"], steps: int, most: int
) -> Float[Tensor, "some src"]:
    """Integrated gradients of some target tokens. A row of a pass is one token at one step; a pass has `most` rows."""
    start, end = repeat(baseline, positions), repeat(real, positions)
    found = method.attribute(end, start, additional_forward_args=positions, n_steps=steps, internal_batch_size=most)
    return found.sum(-1)


def _numbers(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).float().cpu().numpy()


def _integrated_gradients() -> Any:
    try:
        from captum.attr import IntegratedGradients
    except ImportError:
        raise UserError('gradient attribution needs captum: pip install "headwise[inspect]"') from None
    return IntegratedGradients
