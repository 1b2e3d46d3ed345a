"""The predictions of a model at each position, layer by layer, and the beam of a translation.

Predictions of a layer come from the logit lens (nostalgebraist 2020, lesswrong.com/posts/AcKRB8wDpdaN6v6ru): its output
passes the final norm and the output projection as if it were the last layer. Not here: attention (`attend`).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.decode.ranking import best
from headwise.decode.stepwise import evaluating
from headwise.errors import UserError
from headwise.inspect.beam import search_with_tree
from headwise.inspect.pair import InspectedInput, PairTranslator, found_pair, given_pair, read_source
from headwise.inspect.record import Candidate, Position, Trace
from headwise.inspect.recording import outputs
from headwise.network.transformer import DecoderOnly, EncoderOnly, Transformer


def trace(
    translator: PairTranslator, src: str, tgt: str | None = None, top: int = 10, prefix: str = "", **overrides: Any
) -> Trace:
    """Follow a translation position by position.

    Distributions are those of the model in float32, before constraints such as a forced prefix. Only Transformers have
    predictions of each layer (others: of the last one) and a residual stream (others: empty).

    Args:
        translator, src, tgt, prefix, **overrides: as of `attend`; with `tgt` there is no search, and the beam is empty.
        top: candidates of each position and layer.

    Raises:
        UserError: as of `attend`.
    """
    _check_top(top)
    config = translator.settings(overrides)
    source = read_source(translator, src, config)
    if tgt is not None:
        return Trace(predictions(translator.model, given_pair(translator, src, source, tgt, prefix), top), [])
    hypothesis, beam = search_with_tree(translator, source, translator.encode_prefix(prefix), config)
    return Trace(predictions(translator.model, found_pair(translator, src, source, hypothesis), top), beam)


def trace_of(network: Any, shown: InspectedInput, top: int) -> Trace:
    """The predictions for any input; there is no beam."""
    _check_top(top)
    return Trace(predictions(network, shown, top), [])


def _check_top(top: int) -> None:
    if top < 1:
        raise UserError(f"top = {top}: must be at least 1")


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
