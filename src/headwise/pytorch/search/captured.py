"""Captured steps: a decoding step as a CUDA graph, which is replayed while shapes and buffers stay the same.

A step of a small batch launches hundreds of short kernels, and a GPU waits for Python to launch them. A replayed graph
launches all of them at once (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs). It reads and writes the
memory with which it was captured, so inputs are copied into tensors of its own, and the position of the new token is
one of them (`core.cache.StepPosition`). A graph serves until rows leave the batch or the KV cache grows.
"""

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.core.attention import Capped, DotProduct, MultiHeadAttention
from headwise.core.cache import DecoderCache, StepCache, TextCache
from headwise.core.embeddings import Embeddings
from headwise.core.extensions.relative import RelativeBias
from headwise.core.masks import Causal
from headwise.core.positions import LearnedPositions
from headwise.core.search import Step
from headwise.core.transformer import DecoderOnly, Transformer
from headwise.pytorch.search.changes import hooked

SWITCH = "HEADWISE_CAPTURE"  # in the environment: 0 switches captured steps off
TOLERANCE = 0.1  # of logits that are computed twice: wrong memory gives others, rounding of float16 does not
REPEATS = 3  # steps with the same buffers until one is captured: a capture takes as long as several steps

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


def cuda_graph(function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Capture a function without arguments; returns a function that replays it, and its output.

    It runs once before, because libraries allocate memory at their first call.
    """
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        function()
    current.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device
        output = function()
    return graph.replay, output


class CapturedStep:
    """A function of tensors with fixed shapes, recorded once."""

    def __init__(self, function: Callable[..., Tensor], *examples: Tensor, record: Record = cuda_graph) -> None:
        """Record `function` with copies of `examples`; `record` is as `cuda_graph`."""
        self._inputs = tuple(example.clone() for example in examples)
        self._replay, self._output = record(lambda: function(*self._inputs))

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The function's output for `inputs`; the next call overwrites it."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._replay()
        return self._output


class CapturedSteps:
    """A `search.Step` of one search that replays a step where it can, and otherwise computes it as usual."""

    def __init__(self, model: Any, step: Step, record: Record = cuda_graph) -> None:
        """`step` is the step function of `model`."""
        self._model, self._step, self._record = model, step, record
        table = _embeddings(model).positions
        self._longest = table.max_len if isinstance(table, LearnedPositions) else None
        self._buffers: tuple[Tensor, ...] = ()
        self._seen = 0  # steps with these buffers
        self._captured: CapturedStep | None = None
        self._kept: list[Tensor] = []  # a graph refers to memory that a table which grows would free
        self._failed = False

    def __call__(self, tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        """The logits after the newest tokens."""
        if self._failed or tokens.size(1) != 1 or type(cache) not in (DecoderCache, TextCache):
            return self._step(tokens, cache)
        self._observe(cache)
        bound = min(cache.capacity, self._longest or cache.capacity)
        if cache.length >= bound or self._seen <= REPEATS:
            return self._step(tokens, cache)
        index = torch.full((1,), cache.length, device=tokens.device)
        if self._captured is None:
            self._captured = self._capture(tokens, index, cache, bound)
            if self._captured is None:
                return self._step(tokens, cache)
        logits = self._captured(tokens, index)
        cache.advance()
        return logits

    def _observe(self, cache: StepCache) -> None:
        """Forget the captured step if the cache has other buffers."""
        buffers = cache.buffers
        same = len(buffers) == len(self._buffers) and all(a is b for a, b in zip(buffers, self._buffers, strict=True))
        if not same:
            self._buffers, self._seen, self._captured, self._kept = buffers, 0, None, []
        self._seen += 1

    def _capture(self, tokens: Tensor, index: Tensor, cache: StepCache, bound: int) -> CapturedStep | None:
        """The step as a graph; None, with a warning, if it cannot be captured, or if its first replay is wrong."""

        def step(tokens: Tensor, index: Tensor) -> Tensor:
            with cache.fixed(index, bound):
                return self._step(tokens, cache)

        try:
            captured = CapturedStep(step, tokens, index, record=self._record)
            if not torch.allclose(captured(tokens, index), step(tokens, index), rtol=TOLERANCE, atol=TOLERANCE):
                raise RuntimeError("its first replay gave other numbers")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._failed = True
            warnings.warn(f"decoding without CUDA graphs, because a step was not captured: {error}", stacklevel=2)
            return None
        self._kept = [*self._model.parameters(), *self._model.buffers()]
        return captured


def captured_steps(model: Any, step: Step) -> Step:
    """The step function for one search: `step`, captured if that is possible."""
    return CapturedSteps(model, step) if capturable(model) else step


def capturable(model: Any) -> bool:
    """Whether steps of a model may be captured.

    They may on CUDA, for a `Transformer` or `DecoderOnly` without hooks (recordings, interventions) and without sliding
    windows, unless the environment variable HEADWISE_CAPTURE is 0.
    """
    on_cuda = next(iter(model.parameters())).device.type == "cuda"
    return on_cuda and os.environ.get(SWITCH) != "0" and has_fixed_shapes(model)


def has_fixed_shapes(model: Any) -> bool:
    """Whether a step of a model can be computed with a `StepPosition`."""
    if type(model) not in (Transformer, DecoderOnly) or hooked(model):
        return False
    attentions = [module for module in model.decoder.modules() if isinstance(module, MultiHeadAttention)]
    reach: Any = model.decoder.reach
    masks = reach.reach if type(reach) is RelativeBias else reach
    plain = all(type(one) is MultiHeadAttention and type(one.kernel) in (DotProduct, Capped) for one in attentions)
    return plain and type(masks) is Causal


def _embeddings(model: Any) -> Embeddings:
    return model.embeddings if type(model) is DecoderOnly else model.tgt_embeddings
