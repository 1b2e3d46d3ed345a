"""A walk through a Transformer along figure 1 of the paper, with the values for one input at each step.

One layer and one head are followed from the embeddings to the output. Values come from hooks on the modules during one
pass. What fused kernels do not return (scores, softmax, weighted sum) and the sums of residual connections are computed
here. A test repeats each operation on its operands in float64, for every family. Transformers that read text only.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.embeddings import Embeddings, TypedEmbeddings
from headwise.core.extensions.disentangled import RelativeVectors
from headwise.core.extensions.relative import RelativeBias
from headwise.core.extensions.rotary import Rotary
from headwise.core.heads import CappedLanguageHead, LanguageHead, MaskedLanguageHead, ScaledLanguageHead
from headwise.core.layers import GatedFeedForward, ParallelLayer, SandwichSublayer
from headwise.core.masks import Everywhere
from headwise.core.positions import LearnedPositions, NoPositions, sinusoids
from headwise.core.search import best
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.errors import UserError
from headwise.pytorch.inspect.pair_tensors import InspectedInput, with_tensors
from headwise.pytorch.inspect.predictions import top_candidates
from headwise.pytorch.inspect.recording import passing
from headwise.pytorch.inspect.walk_attention import attention_steps
from headwise.pytorch.inspect.walk_steps import Steps, activation_name, bias_of, is_norm
from headwise.pytorch.search.changes import interventions_of
from headwise.pytorch.search.stepwise import evaluating
from headwise.runtime.search.translator import TextTranslator
from headwise.view.pair import read_pair
from headwise.view.record import TEMPERATURES, Prediction, StackFigure, WalkRecord, WalkStep

N_CANDIDATES = 8  # most probable tokens of a position
N_OUTPUTS = 24  # tokens of the vocabulary that are shown at the output, or one for each position if those are more
UNWALKABLE = frozenset({"outputs", "kernel", "temperature", "residuals"})  # arguments of `interventions.intervene`


def walk_pair(
    translator: TextTranslator, src: str, tgt: str | None = None, prefix: str = "", **overrides: Any
) -> WalkRecord:
    """The walks through a translation model; arguments and errors as for `attend`."""
    check_walkable(translator.model)
    pair = read_pair(translator, src, tgt, prefix, translator.settings(overrides))
    return walk_record(translator.model, with_tensors(pair))


def walk_record(network: Any, shown: InspectedInput) -> WalkRecord:
    """The walks through a network for one input, which it reads once.

    Raises:
        UserError: the network is not a Transformer, or does not read text.
    """
    check_walkable(network)
    modules = dict(network.named_modules(remove_duplicate=False))
    with evaluating(network), torch.inference_mode(), passing(modules) as (taken, returned):
        network.logits(shown.read_by(network))
    return WalkRecord(
        figure_of(network), partial(_steps_as_read, interventions_of(network), network, shown, taken, returned)
    )


def check_walkable(network: Any) -> None:
    """`UserError` for a network that a walk cannot follow."""
    if not is_walkable(network):
        raise UserError("a walk follows figure 1 of the paper: this model is of another architecture, or reads no text")
    if changed := sorted(interventions_of(network) & UNWALKABLE):
        raise UserError(
            f"a walk repeats the steps of figure 1: it cannot follow an intervention with {', '.join(changed)}"
        )


def is_walkable(network: Any) -> bool:
    """Whether the network is a Transformer of texts."""
    if not isinstance(network, Transformer | EncoderOnly | DecoderOnly):
        return False
    front = network.src_embeddings if isinstance(network, Transformer) else network.embeddings
    return isinstance(front, Embeddings)


# --- The figure ---


def figure_of(network: Any) -> dict[str, StackFigure]:
    """The stacks of this network as figure 1 of the paper shows them; {} if a walk cannot follow it."""
    if not is_walkable(network):
        return {}
    return {name: _stack_figure(network, name) for name in ("encoder", "decoder") if hasattr(network, name)}


def _stack_figure(network: Any, name: str) -> StackFigure:
    stack: Any = network.get_submodule(name)
    first = stack.layers[0]
    blocks = [block for block in ("self_attn", "cross_attn", "ffn") if hasattr(first, block)]
    output = "states" if not isinstance(network.head, LanguageHead | MaskedLanguageHead) else "probabilities"
    return StackFigure(
        [min(one.n_heads for name, one in layer.named_children() if name.endswith("_attn")) for layer in stack.layers],
        blocks,
        _norm_position(first),
        _positions(network, name),
        not isinstance(getattr(stack.reach, "reach", stack.reach), Everywhere),
        "memory" if name == "encoder" and isinstance(network, Transformer) else output,
    )


def _norm_position(layer: Any) -> str:
    if isinstance(layer, ParallelLayer):
        return "parallel"
    if isinstance(layer.self_attn_sublayer, SandwichSublayer):
        return "sandwich"
    return "pre" if layer.self_attn_sublayer.norm_first else "post"


def _positions(network: Any, stack: str) -> str:
    if not isinstance(network.get_submodule(_front(network, stack)).positions, NoPositions):
        return "added"
    if isinstance(network.get_submodule(stack).reach, RelativeBias | RelativeVectors):
        return "relative"
    return "rotary" if isinstance(network.get_submodule(stack).layers[0].self_attn.rotate, Rotary) else "none"


def _front(network: Any, stack: str) -> str:
    if not isinstance(network, Transformer):
        return "embeddings"
    return "src_embeddings" if stack == "encoder" else "tgt_embeddings"


# --- The steps ---


def _steps_as_read(interventions: frozenset[str], network: Any, *arguments: Any) -> list[WalkStep]:
    """`_steps`; `UserError` if an intervention began or ended since the network read the input."""
    if interventions_of(network) is not interventions:
        raise UserError("an intervention began or ended since this walk was recorded: use it inside the same `with`")
    return _steps(network, *arguments)


@torch.inference_mode()
def _steps(
    network: Any,
    shown: InspectedInput,
    taken: Mapping[str, Tensor],
    returned: Mapping[str, Tensor],
    stack: str,
    layer: int,
    head: int,
) -> list[WalkStep]:
    """The steps of one layer and head, first to last; `UserError` if there is no such stack, layer or head."""
    stack = stack or next(iter(figure_of(network)))
    _check(network, stack, layer, head)
    axes = {"src": list(shown.described["src"].labels), "tgt": list(shown.read)}
    steps = Steps(network, stack, layer, head, axes, taken, returned)
    x = _embedding_steps(steps, _front(network, stack))
    if layer:
        x = steps.add("input", "given", f"x = layer_{layer - 1}(...)", returned[f"{stack}.layers.{layer - 1}"])
    module: Any = network.get_submodule(steps.here)
    before, sums = x, [x]
    for place in _stack_figure(network, stack).blocks:
        x = _sublayer_steps(steps, module, place, before if isinstance(module, ParallelLayer) else x, sums)
    _output_steps(steps, x)
    if _stack_figure(network, stack).output == "probabilities":
        _head_steps(steps, shown)
    return steps.made


def _check(network: Any, stack: str, layer: int, head: int) -> None:
    figure = figure_of(network)
    if stack not in figure:
        raise UserError(f"stack '{stack}': this model has {' and '.join(figure)}")
    heads = figure[stack].heads
    if not 0 <= layer < len(heads):
        raise UserError(f"the {stack} has no layer {layer}: they go from 0 to {len(heads) - 1}")
    if not 0 <= head < heads[layer]:
        raise UserError(f"{stack} layer {layer} has no head {head}: they go from 0 to {heads[layer] - 1}")


def _embedding_steps(steps: Steps, name: str) -> str:
    """Sections 3.4 and 3.5; the id of the last one."""
    front: Any = steps.network.get_submodule(name)
    ids = steps.taken[name]
    formula = "E" if front.scale == 1 else "E · √d_model"
    embeddings = front.tokens(ids)[0] * front.scale
    summands = [steps.add("embeddings", "embedding", formula, embeddings, place="embedding", scale=front.scale)]
    if not isinstance(front.positions, NoPositions):
        codes = front.positions(*front.numbering(ids, 0))[0]
        kind = "learned" if isinstance(front.positions, LearnedPositions) else "other"
        kind = "sinusoidal" if getattr(front.positions, "codes", None) is sinusoids else kind
        code = "PE" if kind != "sinusoidal" else "PE = sin(pos / 10000^(2 i / d_model)), cos(...)"
        summands.append(steps.add("position-codes", "position", code, codes, place="positions", kind=kind))
        formula += " + PE"
    if isinstance(front, TypedEmbeddings):
        types = front.types.weight[0].expand(ids.size(1), -1)
        summands.append(steps.add("token-types", "given", "E_type", types, place="positions"))
        formula += " + E_type"
    if len(summands) > 1:
        total = sum(steps.value(one) for one in summands)
        summands = [steps.add("embedded", "add", f"x = {formula}", total, summands, place="positions")]
    (x,) = summands
    if is_norm(front.norm):
        x = steps.norm("embedded-norm", front.norm, x, place="positions")
    if isinstance(front.project, nn.Linear):
        x = steps.project("embedded-projection", "x W + b", front.project, x, place="positions")
    return x


def _sublayer_steps(steps: Steps, module: Any, place: str, x: str, sums: list[str]) -> str:
    """One sublayer with its norm and its residual connection; `sums` collects the summands of parallel sublayers."""
    sublayer, parallel, start = getattr(module, f"{place}_sublayer"), isinstance(module, ParallelLayer), x
    if (sublayer.norm_first or parallel) and is_norm(sublayer.norm):
        x = steps.norm(f"{place}.norm", sublayer.norm, x, place=place)
    make = _feed_forward_steps if place == "ffn" else attention_steps
    x = make(steps, place, x)
    if isinstance(sublayer, SandwichSublayer):
        x = steps.norm(f"{place}.norm-after", sublayer.norm_after, x, place=place)
    if parallel:
        sums.append(x)
        if place != "ffn":
            return start
    operands = sums if parallel else [start, x]
    total, formula = (
        sum(steps.value(one) for one in operands),
        " + ".join(["x", *["sublayer(x)"] * (len(operands) - 1)]),
    )
    x = steps.add(f"{place}.add", "add", formula, total, operands, place=place)
    if sublayer.norm_first or parallel:
        return x
    return steps.norm(f"{place}.norm", sublayer.norm, x, place=place)


def _feed_forward_steps(steps: Steps, place: str, x: str) -> str:
    """Section 3.3."""
    ffn: Any = steps.module.ffn
    name = activation_name(ffn.activation)
    gated = isinstance(ffn, GatedFeedForward)
    first = [steps.project("ffn.gate", "x W_g", ffn.gate_proj, x, place=place)] if gated else []
    up = steps.project("ffn.up", "x W_1" + bias_of(ffn.up_proj, "_1"), ffn.up_proj, x, place=place)
    inside = ffn.activation(steps.value((first or [up])[0]).clone())
    formula = "max(0, x W_1)" if name == "relu" else f"{name}(x W_1)"
    if gated:
        formula, inside = f"{name}(x W_g) ⊙ x W_1", inside * steps.value(up)
    elif ffn.up_proj.bias is not None:
        formula = formula.replace("W_1", "W_1 + b_1")
    found = steps.add("ffn.inside", "activation", formula, inside, [*first, up], place=place, function=name)
    outside = f"({formula}) W_2" if gated else f"{formula} W_2"
    return steps.project("ffn.outside", outside + bias_of(ffn.down_proj, "_2"), ffn.down_proj, found, place=place)


def _output_steps(steps: Steps, x: str) -> None:
    """After the last layer: the final norm of pre-norm stacks."""
    stack, last = steps.network.get_submodule(steps.stack), len(steps.network.get_submodule(steps.stack).layers) - 1
    if steps.layer < last:
        output = steps.returned[f"{steps.stack}.layers.{last}"]
        x = steps.add("top", "given", f"x = layer_{last}(...)", output, place="output")
    if is_norm(stack.norm):
        steps.norm("output", stack.norm, x, place="output")
    else:
        steps.add("output", "same", "x", steps.value(x), [x], place="output")


def _head_steps(steps: Steps, shown: InspectedInput) -> None:
    """From the last hidden states to the most probable token of each position, then others, most probable first."""
    head, x = steps.network.head, "output"
    settings: dict[str, Any] = {}
    if isinstance(head, MaskedLanguageHead):
        x = steps.project("head.dense", "x W_t + b_t", head.dense, x, place="output")
        name, inside = activation_name(head.activation), head.activation(steps.value(x).clone())
        x = steps.add("head.inside", "activation", f"{name}(x)", inside, [x], place="output", function=name)
        x = steps.norm("head.norm", head.norm, x, place="output")
    if isinstance(head, ScaledLanguageHead):
        settings["scale"] = head.scale
    if isinstance(head, CappedLanguageHead):
        settings["cap"] = head.cap
    logits = steps.network.logits(steps.value("output").unsqueeze(0))[0]
    probabilities = logits.softmax(-1)
    peaks = probabilities.amax(0).float()
    peaks[probabilities.argmax(-1)] += 1.0
    _, ids = best(peaks[None], min(max(N_OUTPUTS, len(probabilities)), len(peaks)))
    steps.axes["vocabulary"] = shown.names(ids[0].tolist())
    weight, bias, formula = head.output.weight[ids[0]].T, head.output.bias, _logit_formula(head)
    chosen: dict[str, Any] = {"columns": "vocabulary", "place": "output"}
    tensors = {"weight": weight, "bias": None if bias is None else bias[ids[0]]}
    steps.add("logits", "projection", formula, logits[:, ids[0]], [x], **chosen, **tensors, **settings)
    totals, found = logits.logsumexp(-1), probabilities[:, ids[0]]
    steps.add(
        "probabilities",
        "probabilities",
        "softmax(logits)",
        found,
        ["logits"],
        **chosen,
        bias=totals,
        predictions=_predictions(logits, shown),
        size=logits.size(1),
        temperatures=list(TEMPERATURES),
    )


def _predictions(logits: Float[Tensor, "positions outputs"], shown: InspectedInput) -> list[Prediction]:
    log_probs = logits.float().log_softmax(-1)
    totals = torch.stack([(log_probs / temperature).logsumexp(-1) for temperature in TEMPERATURES], 1).tolist()
    return list(map(Prediction, top_candidates(logits, N_CANDIDATES, shown), totals))


def _logit_formula(head: Any) -> str:
    scale = f"{head.scale:.3g} " if isinstance(head, ScaledLanguageHead) else ""
    product = f"{scale}x W{bias_of(head.output, '')}"
    return f"{head.cap:g} tanh(({product}) / {head.cap:g})" if isinstance(head, CappedLanguageHead) else product
