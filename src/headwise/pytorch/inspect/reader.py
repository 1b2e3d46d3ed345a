"""Read pairs with a torch network of any architecture (`reader.PairReader`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.core.batches import Batch, collate
from headwise.pytorch.inspect.pair_tensors import device_of, with_tensors
from headwise.pytorch.inspect.predictions import predictions
from headwise.pytorch.inspect.recording import cross_attentions, head_counts, record_layers, recording
from headwise.pytorch.search.stepwise import evaluating
from headwise.text.prepared.batch_planning import cut_padded
from headwise.view.pair import TranslatedPair
from headwise.view.reader import HeadCounts, HeadWeights, Ids, WeightsByLayer
from headwise.view.record import Position


class TorchReader:
    """Reads with a torch network, without dropout; leaves the network in the mode in which it was."""

    def __init__(self, network: Any, pad_id: int) -> None:
        self._network, self._pad_id = network, pad_id

    @property
    def heads(self) -> HeadCounts:
        """The number of heads of each layer, by stack."""
        return head_counts(self._network)

    def log_probs(self, pairs: Sequence[tuple[Ids, Ids]], batch_tokens: int) -> list[list[float]]:
        """The log-probability of each token of each target after the first."""
        found: list[list[float]] = [[] for _ in pairs]
        with evaluating(self._network), torch.inference_mode():
            for rows, batch in self._batches(pairs, batch_tokens):
                for row, values in zip(rows, _target_log_probs(self._network, batch).tolist(), strict=True):
                    found[row] = values[: len(pairs[row][1]) - 1]
        return found

    def cross_attention(
        self, pairs: Sequence[tuple[Ids, Ids]], layers: Sequence[int], batch_tokens: int
    ) -> Iterator[tuple[int, Mapping[int, HeadWeights]]]:
        """The weights of attention to the source; the last token of a target predicts nothing and is not read."""
        modules = list(cross_attentions(self._network).items())
        chosen = {modules[layer][0]: modules[layer][1] for layer in layers}
        for rows, batch in self._batches(pairs, batch_tokens):
            with evaluating(self._network), torch.inference_mode(), recording(chosen) as weights:
                memory = self._network.encode(batch.src, batch.src_mask)
                self._network.decode(batch.tgt_in, memory, batch.src_mask)
            arrays = {layer: weights[modules[layer][0]].float().cpu().numpy() for layer in layers}
            for i, row in enumerate(rows):
                n, m = (len(side) for side in pairs[row])
                yield row, {layer: one[i, :, : m - 1, :n] for layer, one in arrays.items()}

    def attention(self, pair: TranslatedPair, chosen: Mapping[str, Sequence[int]]) -> WeightsByLayer:
        """The weights of the chosen layers of each stack for one pair."""
        return record_layers(self._network, with_tensors(pair), chosen)

    def predictions(self, pair: TranslatedPair, top: int) -> list[Position]:
        """The most probable tokens at each position; of a Transformer after each layer (logit lens)."""
        return predictions(self._network, with_tensors(pair), top)

    def _batches(self, pairs: Sequence[tuple[Ids, Ids]], batch_tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """Batches of pairs of similar length, longest first, so that memory trouble shows at once."""
        longest = np.array([max(len(src), len(tgt) - 1) for src, tgt in pairs], dtype=np.int64)
        order, device = np.argsort(longest, kind="stable"), device_of(self._network)
        for rows in reversed(cut_padded(order, longest[order], batch_tokens)):
            chosen = [pairs[row] for row in rows]
            special = (self._pad_id, chosen[0][1][0], chosen[0][1][-1])
            ids = [(src[:-1], tgt[1:-1]) for src, tgt in chosen]
            yield rows.tolist(), collate(ids, *special, src_end_id=chosen[0][0][-1]).to(device)


def _target_log_probs(network: Any, batch: Batch) -> Float[Tensor, "batch tgt_len"]:
    memory = network.encode(batch.src, batch.src_mask)
    logits = network.logits(network.decode(batch.tgt_in, memory, batch.src_mask)).float()
    chosen = logits.gather(-1, batch.tgt_out.unsqueeze(-1)).squeeze(-1)
    # The log softmax at the chosen tokens only, without a second tensor of the size of the vocabulary.
    return chosen - logits.logsumexp(-1)
