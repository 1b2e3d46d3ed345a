"""Record the attention weights of a model with fused kernels, which return none, and the outputs of its modules.

During a recording each chosen attention is computed a second time by the explicit kernel, from the same inputs. The
output of the model is unchanged, bit for bit. See `attend` for texts and tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.attention import MultiHeadAttention
from headwise.core.cache import LayerCache
from headwise.core.masks import LayerMask
from headwise.pytorch.architectures.attention import DotAttention
from headwise.pytorch.inspect.pair_tensors import InspectedInput
from headwise.pytorch.search.stepwise import evaluating
from headwise.view.attend import Layers, select_layers, view
from headwise.view.notebook import AttentionView

RecordableAttention = MultiHeadAttention | DotAttention
Keep = Callable[[str, Tensor], Tensor]  # name and weights of an attention -> the weights to record
STACK_NAMES = {"encoder": ("encoder.", "self_attn"), "decoder": ("decoder.", "self_attn"), "cross": ("", "cross_attn")}


def attentions(model: nn.Module) -> dict[str, dict[str, RecordableAttention]]:
    """Every attention by its name in the model, first layer first, by kind.

    "encoder" and "decoder" are self-attention, "cross" is attention to the source. Kinds that the network lacks are
    empty: an encoder alone has the first, a decoder alone the second.
    """
    named = [(name, module) for name, module in model.named_modules() if isinstance(module, RecordableAttention)]
    return {
        stack: {name: module for name, module in named if name.startswith(start) and name.endswith(end)}
        for stack, (start, end) in STACK_NAMES.items()
    }


def cross_attentions(model: nn.Module) -> dict[str, RecordableAttention]:
    """The attentions of the decoder to the source by name, first layer first."""
    return attentions(model)["cross"]


@contextmanager
def recording(modules: Mapping[str, RecordableAttention], keep: Keep | None = None) -> Iterator[dict[str, Tensor]]:
    """A context manager for the weights (batch, heads, queries, keys) of the last call of each module, by its name.

    A recurrent decoder may call its attention once per target position; the queries of all calls are concatenated, so
    such a recording is for one pass. `keep` can reduce the weights of multi-head attention, because those of long
    sounds would fill the memory.
    """
    weights: dict[str, Float[Tensor, "batch heads queries keys"]] = {}

    def record(name: str, module: Any, inputs: tuple[Any, ...], _: Tensor) -> None:
        with torch.no_grad():
            if isinstance(module, MultiHeadAttention):
                found = _multi_head_weights(module, *inputs)
                weights[name] = keep(name, found) if keep else found
            else:
                query, keys, _, src_mask = inputs
                new = module.weights(query, keys, src_mask).unsqueeze(1)
                weights[name] = torch.cat([weights[name], new], 2) if name in weights else new

    with _hooks(modules, record):
        yield weights


@contextmanager
def outputs(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """A context manager for the outputs of the last call of each of `modules`, by its name."""
    returned: dict[str, Tensor] = {}

    def keep(name: str, _module: Any, _inputs: Any, output: Any) -> None:
        returned[name] = output

    with _hooks(modules, keep):
        yield returned


@contextmanager
def passing(modules: Mapping[str, nn.Module]) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Inside, copies of the first tensor that the last call of each of `modules` was given, and of what it returned.

    They are copies because activations may work in place.
    """
    taken: dict[str, Tensor] = {}
    returned: dict[str, Tensor] = {}

    def keep(name: str, _module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            taken[name] = inputs[0].clone()
        if isinstance(output, Tensor):
            returned[name] = output.clone()

    with _hooks(modules, keep):
        yield taken, returned


@contextmanager
def _hooks(modules: Mapping[str, nn.Module], hook: Any) -> Iterator[None]:
    """Inside, `hook(name, module, inputs, output)` is called after each call of one of `modules` by this thread."""
    handles = [module.register_forward_hook(_named(hook, name)) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _named(hook: Any, name: str) -> Any:
    here = get_ident()  # other threads may use the same model
    return lambda module, inputs, output: hook(name, module, inputs, output) if get_ident() == here else None


def _multi_head_weights(
    module: MultiHeadAttention, x: Tensor, memory: Tensor | None, mask: LayerMask, cache: LayerCache | None = None
) -> Float[Tensor, "batch heads queries keys"]:
    k, _ = module.keys_and_values(x if memory is None else memory, None) if cache is None else cache.read()
    start = k.size(2) - x.size(1) if cache is not None and cache.grows else 0
    q = module.queries(x, start)
    return module.kernel.weights(q, k, module.kernel_mask(q, k, mask))


def head_counts(model: nn.Module) -> dict[str, list[int]]:
    """The number of heads of each layer, by kind of attention."""
    return {
        stack: [getattr(one, "n_heads", 1) for one in modules.values()] for stack, modules in attentions(model).items()
    }


def record_attention(
    network: Any, shown: InspectedInput, layers: Layers | None = None, heads: Sequence[int] | None = None
) -> AttentionView:
    """The attention weights for any input; `layers` and `heads` as for `attend`."""
    counts = head_counts(network)
    return view(shown, counts, record_layers(network, shown, select_layers(counts, layers, heads)), heads)


def record_layers(
    network: Any, shown: InspectedInput, chosen: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, Float[np.ndarray, "heads queries keys"]]]:
    """The weights of the `chosen` layers of each stack for one input."""
    stacks = {stack: list(modules.items()) for stack, modules in attentions(network).items()}
    names = {stacks[stack][i][0]: (stack, i) for stack, numbers in chosen.items() for i in numbers}
    modules = {name: dict(stacks[stack])[name] for name, (stack, _) in names.items()}

    def kept(name: str, weights: Tensor) -> Tensor:
        return shown.as_shown(names[name][0], weights[0].float()).unsqueeze(0)

    with evaluating(network), torch.inference_mode(), recording(modules, kept) as weights:
        shown.read_by(network)
    found: dict[str, dict[int, Any]] = {stack: {} for stack in stacks}
    for name, (stack, i) in names.items():
        found[stack][i] = weights[name][0].float().cpu().numpy()
    return found
