"""Change a network while a `with` statement runs, to see what a part of it is for.

`intervene` replaces modules and attributes of the network, edits outputs of modules with hooks, and silences heads with
`HeadMask`. Decoding notices all of these (`pytorch/search/changes.py`) and searches with torch, without packed weights.
See `pytorch.models.pruning` for permanent changes.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from fnmatch import fnmatchcase
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.core.attention import Kernel, MultiHeadAttention, NoRotation
from headwise.core.cache import LayerCache
from headwise.core.embeddings import Embeddings
from headwise.core.extensions.disentangled import RelativeVectors
from headwise.core.extensions.fronts import AudioFront, PatchFront, SeriesEmbeddings
from headwise.core.extensions.relative import RelativeBias
from headwise.core.layers import ParallelLayer, Sublayer
from headwise.core.masks import Causal, Everywhere, Mask, Packing
from headwise.core.positions import NoPositions
from headwise.errors import UserError, most_similar
from headwise.pytorch.inspect.heads import HeadMask, HeadsByLayer, heads_of
from headwise.pytorch.search.changes import INTERVENED, interventions_of
from headwise.pytorch.training.extra_dropout import DroppingKernel

PARTS = {  # what an argument needs in a network
    **dict.fromkeys(("kernel", "scale", "temperature"), "multi-head attention"),
    "residuals": "residual connections",
    "positions": "positions",
    "causal": "causal mask",
}
Edit = Callable[[Any], Any] | Tensor | float  # of the output of a module: a function of it, or another value


def intervene(
    model: Any,
    *,
    outputs: Mapping[str, Edit] | None = None,
    kernel: Any = None,
    scale: float | None = None,
    temperature: float | None = None,
    silence: HeadsByLayer | None = None,
    residuals: bool = True,
    positions: bool = True,
    causal: bool = True,
    where: str = "*",
) -> "Intervention":
    """A context manager in which a network computes something else; arguments combine.

    Everything that the model does inside includes the changes: translation with torch and its KV cache, scores,
    attention, traces, and training of a network in torch. The network is changed in place, so threads that use it at
    the same time see the changes, too. At the end it is as before, also after an exception. The object can be
    entered several times; interventions can be nested and are undone in reverse order.

    Args:
        model: a model from `headwise.load`, or a network in torch.
        outputs: the new output of modules by their names, such as "encoder.layers.0.ffn": a function of the old output
            (None keeps it), or a tensor or number that replaces all its values. With a KV cache, a decoder's modules
            compute the new positions only.
        kernel: another attention function (`headwise.core.attention.Kernel`).
        scale: the factor on Q K^T instead of d_k^-1/2 (equation 1); 1.0 is attention without scaling.
        temperature: scores are divided by it before the softmax, > 0; large values make weights uniform, small ones
            concentrate them on one position.
        silence: heads without effect, as in `Model.mask_heads`: `{"cross": {2: [0]}}`. Training inside does not change
            the W^O of their layers.
        residuals: False leaves out the residual connections: norm(f(x)) instead of norm(x + f(x)).
        positions: False leaves out position embeddings, rotations and biases.
        causal: False lets the decoder's self-attention see later positions, in batches also padding. This changes
            training and forced targets. Search is unchanged, except while it reads several tokens at once (a prefix):
            when a position is computed, later ones do not exist.
        where: which modules `kernel`, `scale`, `temperature`, `residuals`, `positions` and `causal` apply to: a name or
            a pattern, such as "encoder", "decoder.layers.0" or "*.cross_attn".

    Returns:
        A context manager whose value is `model`.

    Raises:
        UserError: no such module or head, a value that makes no sense, or a network without the part to change.

    >>> with intervene(model, scale=1.0, where="encoder"):  # doctest: +SKIP
    ...     print(model.translate(["A dog runs."])[0].text)
    """
    network = model if isinstance(model, nn.Module) else model.network
    _check_values(kernel, scale, temperature)
    _check_outputs(network, outputs or {})
    heads = heads_of(network, silence) if silence else None
    requested: dict[str, Callable[[nn.Module], Iterator[Change]]] = {}
    if kernel is not None:
        requested["kernel"] = lambda network: _kernels(network, lambda _: kernel)
    if scale is not None:
        requested["scale"] = lambda network: _kernels(network, lambda old: _scaled(old, scale))
    if temperature is not None:
        requested["temperature"] = lambda network: _kernels(network, lambda old: TemperedKernel(old, temperature))
    if not residuals:
        requested["residuals"] = _residuals
    if not positions:
        requested["positions"] = _positions
    if not causal:
        requested["causal"] = _causal_masks
    for name, changes in requested.items():
        _check_there(network, PARTS[name], changes(network), where)
    limited = {name: partial(_matching, find, where) for name, find in requested.items()}
    return Intervention(model, network, limited, outputs or {}, heads)


class Intervention(AbstractContextManager[Any]):
    """The context manager that `intervene` returns."""

    def __init__(
        self,
        model: Any,
        network: nn.Module,
        changes: Mapping[str, Callable[[nn.Module], Iterator["Change"]]],
        edits: Mapping[str, Edit],
        heads: Any,
    ) -> None:
        self._model, self._network = model, network
        self._changes, self._edits, self._heads = changes, edits, heads
        self._open: list[ExitStack] = []

    def __enter__(self) -> Any:
        with ExitStack() as undo:
            own = {*self._changes, *(["outputs"] if self._edits else []), *(["silence"] if self._heads else [])}
            _put(undo, self._network, INTERVENED, interventions_of(self._network) | own)
            for changes in self._changes.values():
                for change in [*changes(self._network)]:
                    _put(undo, change.module, change.attribute, change.value)
            for name, edit in self._edits.items():
                undo.callback(self._network.get_submodule(name).register_forward_hook(_hook(edit)).remove)
            if self._heads:
                mask = HeadMask(self._network)
                undo.callback(mask.set, mask.set(self._heads))
            self._open.append(undo.pop_all())
        return self._model

    def __exit__(self, *exception: object) -> None:
        self._open.pop().close()


def _put(undo: ExitStack, module: nn.Module, name: str, value: Any) -> None:
    """Set an attribute; `undo` restores the old one, or removes it."""
    own = vars(module) | module._modules | module._parameters
    if name in own:
        undo.callback(_set, module, name, own[name])
    else:
        undo.callback(delattr, module, name)
    _set(module, name, value)


def _set(module: nn.Module, name: str, value: Any) -> None:
    if name in module._modules and not isinstance(value, nn.Module):
        delattr(module, name)  # torch does not let another object replace a module
    setattr(module, name, value)


def _hook(edit: Edit) -> Callable[..., Any]:
    def replace(module: nn.Module, inputs: Any, output: Any) -> Any:
        if callable(edit):
            return edit(output)
        return torch.as_tensor(edit).to(output).expand_as(output)

    return replace


# --- Where and what to change ---


class Change(NamedTuple):
    """Another value for an attribute of a module."""

    name: str  # of the module
    module: nn.Module
    attribute: str
    value: Any


def _kernels(network: nn.Module, changed: Callable[[Kernel], Any]) -> Iterator[Change]:
    for name, module in network.named_modules():
        if isinstance(module, MultiHeadAttention):
            holder: Any = module
            while isinstance(holder.kernel, DroppingKernel):
                holder = holder.kernel
            yield Change(name, holder, "kernel", changed(holder.kernel))


def _scaled(kernel: Any, scale: float) -> Any:
    """A copy of a kernel with another factor on its scores."""
    changed = copy.copy(kernel)
    if hasattr(kernel, "scale"):
        changed.scale = scale
    elif isinstance(inner := getattr(kernel, "kernel", None), Kernel):
        changed.kernel = _scaled(inner, scale)
    else:
        raise UserError(f"scale = {scale}: the attention function {type(kernel).__name__} has no factor on its scores")
    return changed


def _residuals(network: nn.Module) -> Iterator[Change]:
    for name, module in network.named_modules():
        if isinstance(module, Sublayer):
            yield Change(name, module, "dropout", NoResidual(module.dropout))
        elif isinstance(module, ParallelLayer):
            yield Change(name, module, "forward", MethodType(_parallel_without_residual, module))


def _positions(network: nn.Module) -> Iterator[Change]:
    for name, module in network.named_modules():
        if isinstance(module, Embeddings | SeriesEmbeddings):
            if not isinstance(module.positions, NoPositions):
                yield Change(name, module, "positions", NoPositions())
        elif isinstance(module, PatchFront | AudioFront):
            zeros = nn.Parameter(torch.zeros_like(module.positions), requires_grad=False)
            yield Change(name, module, "positions", zeros)
        elif isinstance(module, MultiHeadAttention):
            if not isinstance(module.rotate, NoRotation):
                yield Change(name, module, "rotate", NoRotation())
        elif isinstance(bias := getattr(module, "reach", None), RelativeBias | RelativeVectors):
            yield Change(name, module, "reach", bias.reach)


def _causal_masks(network: nn.Module) -> Iterator[Change]:
    for name, module in network.named_modules():
        if isinstance(getattr(module, "reach", None), Causal):
            yield Change(name, module, "reach", NotCausal())


def _matching(find: Callable[[nn.Module], Iterator[Change]], where: str, network: nn.Module) -> Iterator[Change]:
    """The changes of modules whose name, or the name of a module around them, matches `where`."""
    for change in find(network):
        parts = change.name.split(".")
        if any(fnmatchcase(".".join(parts[:n]), where) for n in range(1, len(parts) + 1)):
            yield change


# --- Changed parts ---


class TemperedKernel:
    """A kernel with scores and relative biases divided by a temperature; a soft cap comes after it (`Capped`)."""

    def __init__(self, kernel: Kernel, temperature: float) -> None:
        self.kernel = kernel
        self.temperature = temperature

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        return self.kernel(q / self.temperature, k, v, self._mask(mask))

    def weights(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        """See `Kernel`."""
        return self.kernel.weights(q / self.temperature, k, self._mask(mask))

    def _mask(self, mask: Mask) -> Mask:
        if mask is None or mask.dtype == torch.bool:
            return mask
        lowest = torch.finfo(mask.dtype).min  # of pairs that may not attend (`relative.RelativeBias`)
        return torch.where(mask == lowest, lowest, mask / self.temperature)


class NoResidual(nn.Module):
    """The dropout of a `Sublayer`, without the residual connection."""

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "*any"], residual: Float[Tensor, "*any"] | None = None) -> Float[Tensor, "*any"]:
        """dropout(x)."""
        return self.dropout(x)


def _parallel_without_residual(
    self: ParallelLayer, x: Float[Tensor, "batch length d_model"], mask: Mask, cache: LayerCache | None = None
) -> Float[Tensor, "batch length d_model"]:
    """`ParallelLayer.forward` without its residual connection."""
    attended = self.self_attn(self.self_attn_sublayer.norm(x), None, mask, cache)
    return attended + self.ffn(self.ffn_sublayer.norm(x))


class NotCausal(Everywhere):
    """The mask of a decoder that sees later positions, too."""

    def forward(self, mask: Any, start: Any, queries: int, device: torch.device) -> Any:
        """See `Everywhere.forward`."""
        if isinstance(mask, Packing):
            return Packing(mask.queries, mask.queries, False, mask.attend)
        return super().forward(mask, start, queries, device)


# --- Errors ---


def _check_values(kernel: Any, scale: float | None, temperature: float | None) -> None:
    if kernel is not None and not isinstance(kernel, Kernel):
        raise UserError(f"kernel = {kernel!r}: must be an attention function like headwise.core.attention.Kernel")
    if scale is not None and not scale > 0:
        raise UserError(f"scale = {scale}: must be greater than 0")
    if kernel is not None and scale is not None:
        _scaled(kernel, scale)
    if temperature is not None and not temperature > 0:
        raise UserError(f"temperature = {temperature}: must be greater than 0")


def _check_outputs(network: nn.Module, edits: Mapping[str, Edit]) -> None:
    names = dict(network.named_modules())
    for name in edits:
        if name not in names or not name:
            raise _no_module(name, names)
        if isinstance(names[name], nn.ModuleList):
            raise UserError(f"module '{name}' is a list and has no output; name one of its modules, such as '{name}.0'")


def _check_there(network: nn.Module, part: str, changes: Iterator[Change], where: str) -> None:
    found = [*changes]
    if not found:
        raise UserError(f"this network has no {part} to change")
    if any(_matching(lambda _: iter(found), where, network)):
        return
    names = dict(network.named_modules())
    if not any(fnmatchcase(name, where) for name in names):
        raise _no_module(where, names)
    raise UserError(f"where = '{where}': has no {part}; '{found[0].name}' has")


def _no_module(name: str, names: Mapping[str, Any]) -> UserError:
    """The error for an unknown module; a network has too many to list them all."""
    near = most_similar(name, names)
    hint = f"did you mean '{near}'? " if near else ""
    return UserError(f"unknown module '{name}'; {hint}`dict(network.named_modules())` lists all")
