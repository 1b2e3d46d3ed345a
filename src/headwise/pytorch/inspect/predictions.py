"""The predictions of a torch network at each position of one input, layer by layer (see `trace`)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.search import best
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.pytorch.inspect.pair_tensors import InspectedInput
from headwise.pytorch.inspect.recording import outputs
from headwise.pytorch.search.stepwise import evaluating
from headwise.view.record import Candidate, Position, Trace
from headwise.view.trace import check_top


def trace_of(network: Any, shown: InspectedInput, top: int) -> Trace:
    """The predictions for any input; there is no beam."""
    check_top(top)
    return Trace(predictions(network, shown, top), [])


def predictions(network: Any, shown: InspectedInput, top: int) -> list[Position]:
    """The predictions at each position; none if the head makes no predictions for positions."""
    if not shown.written:
        return []
    with evaluating(network), torch.inference_mode(), outputs(residual_stream(network)) as stream:
        hidden = shown.read_by(network)
        states = [_last_stack(network).norm(x) for x in list(stream.values())[1:]] if stream else [hidden]
        layers = [top_candidates(network.logits(state)[0], top, shown) for state in states]
    norms = [x[0].norm(dim=-1).tolist() for x in stream.values()]
    return [
        Position(piece, layers[-1][i], [layer[i] for layer in layers], [norm[i] for norm in norms])
        for i, piece in enumerate(shown.written)
    ]


def residual_stream(network: nn.Module) -> dict[str, nn.Module]:
    """The modules whose outputs are the residual stream of the last stack: embeddings, then each layer."""
    if not isinstance(network, Transformer | EncoderOnly | DecoderOnly):
        return {}
    layers: dict[str, nn.Module] = {f"layer {i}": layer for i, layer in enumerate(_last_stack(network).layers)}
    return {"embedding": network.tgt_embeddings if isinstance(network, Transformer) else network.embeddings, **layers}


def _last_stack(network: Any) -> Any:
    return network.encoder if isinstance(network, EncoderOnly) else network.decoder


def top_candidates(
    logits: Float[Tensor, "*positions outputs"], top: int, shown: InspectedInput
) -> list[list[Candidate]]:
    """The most probable outputs of each position, best first; ties by the lower id."""
    log_probs = logits.float().log_softmax(-1)
    log_probs = log_probs.reshape(-1, log_probs.size(-1))  # a head for the whole has one position
    values, ids = best(log_probs, min(top, log_probs.size(1)))
    rows = zip(map(shown.names, ids.tolist()), values.tolist(), strict=True)
    return [[Candidate(*entry) for entry in zip(*row, strict=True)] for row in rows]
